#include "kernels/codegen/quantizer.h"

#include <emmintrin.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/codegen/short_rows.h"

namespace intact::kernels {
namespace {

constexpr int64_t kLongestStep = 16;  // numbers

// To nearest even, as the floating-point environment is the default one.
int32_t Round(float value) noexcept { return _mm_cvtss_si32(_mm_set_ss(value)); }

// The value of a half float. The exponent of a float16 is 112 less than a float's exponent. The product is
// exact, also for subnormal numbers.
float Widen(intact_type type, uint32_t half) noexcept {
  if (type == INTACT_BF16) return std::bit_cast<float>(half << 16);
  const uint32_t sign = (half & 0x8000) << 16, magnitude = (half & 0x7fff) << 13;
  const bool is_finite = (half & 0x7c00) != 0x7c00;
  const float number =
      is_finite ? std::bit_cast<float>(magnitude) * 0x1p112f : std::bit_cast<float>(magnitude | 0x7f800000);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(number) | sign);
}

}  // namespace

bool Quantizer::HasReciprocal(float scale) noexcept { return scale >= kLeastScale && scale <= kLargestScale; }

// The product of two floats is exact in double, and so is its distance from 1. Choose() of short_rows.cc
// computes the remainder with FMA.
Quantizer::Reciprocal Quantizer::ReciprocalOf(float scale) noexcept {
  const float high = 1.0f / scale;
  const double remainder = 1.0 - double{scale} * double{high};
  return {high, static_cast<float>(remainder / double{scale})};
}

float Quantizer::At(const uint8_t* x) const noexcept {
  uint32_t bits = 0;
  if (source_ == INTACT_F32) {
    std::memcpy(&bits, x, 4);
    return std::bit_cast<float>(bits);
  }
  std::memcpy(&bits, x, 2);
  return Widen(source_, bits);
}

NumberRange Quantizer::RangeOf(const ScanArgs& args) const noexcept {
  const auto positive = static_cast<uint32_t>(args.positive), negative = static_cast<uint32_t>(args.negative);
  if (source_ == INTACT_F32) return {static_cast<int32_t>(positive), negative};
  return {std::bit_cast<int32_t>(Widen(source_, positive & 0xffff)),
          std::bit_cast<uint32_t>(Widen(source_, negative & 0xffff))};
}

NumberRange Quantizer::Scan(const uint8_t* x, int64_t count) const noexcept {
  NumberRange range;
  const int64_t step = step_ == 0 ? count + 1 : step_;
  if (count >= step) {
    ScanArgs args;
    args.x = x;
    args.blocks = count / block_;
    args.steps = count % block_ / step;
    scan_(&args);
    range = RangeOf(args);
    if (count % step == 0) return range;
    // The last step, which overlaps numbers that were scanned.
    args = {};
    args.x = x + (count - step) * source_bytes();
    args.steps = 1;
    scan_(&args);
    range.Add(RangeOf(args));
    return range;
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(At(x + i * source_bytes()));
    range.Add({static_cast<int32_t>(bits), bits});
  }
  return range;
}

// For eight rows at a time: Choose() of short_rows.cc.
RowQuantization Quantizer::Choose(const NumberRange& range) const noexcept {
  constexpr uint32_t kSign = 0x80000000;
  const RowQuantization none = {std::numeric_limits<float>::quiet_NaN(), 0};
  const float high = std::bit_cast<float>(range.positive);
  const float low = (range.negative & kSign) == 0 ? 0.0f : std::bit_cast<float>(range.negative);
  if (!std::isfinite(high) || !std::isfinite(low)) return none;
  if (a_type_ == INTACT_S8) {
    const float scale = std::max(high, -low) / kS8Width;
    return {scale == 0.0f ? 1.0f : scale, 0};
  }
  const float width = high - low;
  if (!std::isfinite(width)) return none;
  float scale = width / kU8Width;
  if (scale == 0.0f) scale = 1.0f;
  return {scale, std::clamp(Round(0.0f - low / scale), 0, core::HighestOf(INTACT_U8))};
}

void Quantizer::Quantize(const uint8_t* x, int64_t count, const RowQuantization& how,
                         uint8_t* a) const noexcept {
  if (std::isnan(how.scale)) {
    std::fill_n(a, count, static_cast<uint8_t>(how.zero_point));
    return;
  }
  if (block_ != 0 && HasReciprocal(how.scale)) {
    QuantizeArgs args;
    args.reciprocal = ReciprocalOf(how.scale);
    args.zero_point = how.zero_point;
    args.pack_order = pack_order_.data();
    if (count >= step_) {
      args.x = x;
      args.a = a;
      args.blocks = count / block_;
      args.steps = count % block_ / step_;
      quantize_(&args);
      if (count % step_ == 0) return;
      // The last step, which overlaps numbers that were quantized.
      args.x = x + (count - step_) * source_bytes();
      args.a = a + count - step_;
      args.blocks = 0;
      args.steps = 1;
      quantize_(&args);
      return;
    }
    // A part of a step, as a whole step.
    std::array<uint8_t, size_t{kLongestStep}* 4> tail_x = {};
    std::array<uint8_t, kLongestStep> tail_a;
    std::memcpy(tail_x.data(), x, static_cast<size_t>(count * source_bytes()));
    args.x = tail_x.data();
    args.a = tail_a.data();
    args.steps = 1;
    quantize_(&args);
    std::copy_n(tail_a.begin(), count, a);
    return;
  }
  // Read once: the compiler must assume that writing a[i] changes members.
  const int32_t low = core::LowestOf(a_type_), high = core::HighestOf(a_type_);
  const int64_t step = source_bytes();
  for (int64_t i = 0; i < count; ++i) {
    const int32_t value = Round(At(x + i * step) / how.scale) + how.zero_point;
    a[i] = static_cast<uint8_t>(std::clamp(value, low, high));
  }
}

bool Quantizer::QuantizeRows(const RowMap& rows, int64_t begin, int64_t end, int64_t k, uint8_t* a,
                             int64_t stride, RowValues* values) const noexcept {
  bool has_scales = true;
  const auto quantize = [&](const uint8_t* x, uint8_t* to, RowValues* own) {
    const RowQuantization how = Choose(Scan(x, k));
    Quantize(x, k, how, to);
    own->zero_point = how.zero_point;
    own->scale = how.scale;
    has_scales = has_scales && !std::isnan(how.scale);
  };
  const bool is_short =
      k <= ShortRows::kLongest && end - begin >= ShortRows::kLeastCount && block_ != 0 && ShortRows::Exist();
  RowCursor cursor(rows, begin);
  for (int64_t row = begin; row < end;) {
    if (!is_short || end - row < ShortRows::kLeastCount) {
      quantize(cursor.Next(), a, values);
      ++row, ++values, a += stride;
      continue;
    }
    ShortRows some;
    some.k = k;
    some.may_use_zmm = step_ == 64 / int64_t{sizeof(float)};
    some.count = static_cast<int>(std::min<int64_t>(ShortRows::kCount, end - row));
    cursor.Take(some.count, some.x.data());
    uint32_t undefined_rows = some.Quantize(source_, a_type_, a, stride, values);
    for (; undefined_rows != 0; undefined_rows &= undefined_rows - 1) {
      const int i = std::countr_zero(undefined_rows);
      quantize(some.x[static_cast<size_t>(i)], a + i * stride, values + i);
    }
    row += some.count;
    values += some.count;
    a += some.count * stride;
  }
  return has_scales;
}

}  // namespace intact::kernels
