#include "verify/explain/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "reference/models/operands.h"

namespace intact::verify {
namespace {

using reference::Requantization;

bool SameElement(const Observation& seen, int64_t y, const Requantization& q) {
  uint8_t element[4] = {};
  reference::StoreOutput(y, q, element);
  return std::memcmp(element, seen.element, static_cast<size_t>(core::BytesOf(q.c_type))) == 0;
}

// ----- what a wrong accumulator looks like ----------------------------------------------------------------

int32_t Wrap(int64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

// Σ_k (a − a_offset)·(w − w_offset) over depths from `from` on.
int64_t Products(const Observation& seen, int64_t from, int64_t a_offset, int64_t w_offset) {
  const auto a = seen.operands.Row(seen.m);
  const auto w = seen.operands.Column(seen.n);
  int64_t sum = 0;
  for (auto k = static_cast<size_t>(from); k < a.size(); ++k) sum += (a[k] - a_offset) * (w[k] - w_offset);
  return sum;
}

int64_t ZeroPoint(const Observation& seen) {
  return seen.operands.w_zero_points[static_cast<size_t>(seen.n)];
}

constexpr int64_t kSignBit = 128;

void SuspectZeroPoint(const Observation& seen, std::vector<Suspicion>* suspicions) {
  const auto column = static_cast<size_t>(seen.n);
  const int64_t weights = seen.operands.column_sums[column] - seen.operands.k * ZeroPoint(seen);
  const int64_t za =
      seen.operands.a_zero_points[static_cast<size_t>(seen.m)] - reference::ActivationShift(seen.gemm);
  if (za != 0) {
    suspicions->push_back({"activation zero point not subtracted", Wrap(seen.exact + za * weights)});
  }
  if (seen.gemm.a_type == INTACT_S8) {
    suspicions->push_back(
        {"shift of s8 activations by 128 not compensated", Wrap(seen.exact + 128 * weights)});
    suspicions->push_back(
        {"neither zero point nor shift compensated", Wrap(seen.exact + (za + 128) * weights)});
    constexpr std::string_view kBy127 = "shift of s8 activations by 128 compensated by 127";
    suspicions->push_back({kBy127, Wrap(seen.exact + weights)});
    suspicions->push_back({kBy127, Wrap(seen.exact - weights)});
  }
  if (seen.gemm.a_type == INTACT_U8 && za >= kSignBit) {
    suspicions->push_back({"activation zero point read as s8", Wrap(seen.exact + 2 * kSignBit * weights)});
  } else if (seen.gemm.a_type == INTACT_S8 && za < 0) {
    suspicions->push_back({"activation zero point read as u8", Wrap(seen.exact - 2 * kSignBit * weights)});
  }
}

void SuspectWeightZeroPoint(const Observation& seen, std::vector<Suspicion>* suspicions) {
  const reference::Operands& operands = seen.operands;
  const int64_t row_sum = operands.row_sums[static_cast<size_t>(seen.m)];
  const int64_t activations = row_sum - operands.k * operands.a_zero_points[static_cast<size_t>(seen.m)];
  const int64_t zb = reference::WeightZeroPoint(seen.gemm, seen.n);
  suspicions->push_back({"weight zero point not subtracted", Wrap(seen.exact + zb * activations)});
  const int64_t bias = operands.bias[static_cast<size_t>(seen.n)];
  suspicions->push_back(
      {"no zero point subtracted", Wrap(bias + Products(seen, 0, reference::ActivationShift(seen.gemm),
                                                        reference::WeightShift(seen.gemm)))});
  const int64_t count = std::ssize(seen.gemm.b_zero_points);
  for (const int64_t other : {seen.n - 1, seen.n + 1, int64_t{0}, 2 * seen.n}) {
    if (other < 0 || other >= count) continue;
    const int64_t step = zb - seen.gemm.b_zero_points[static_cast<size_t>(other)];
    suspicions->push_back({"the zero point of another column",
                           Wrap(seen.exact + step * activations),
                           {},
                           fmt::format("the zero point of column {} taken for that of column {}",
                                       seen.first_column + other, seen.first_column + seen.n)});
  }
  if (seen.gemm.b_type == INTACT_U8) {
    suspicions->push_back(
        {"shift of u8 weights by 128 not compensated", Wrap(seen.exact - 128 * activations)});
    if (zb >= kSignBit) {
      suspicions->push_back({"weight zero point read as s8", Wrap(seen.exact + 2 * kSignBit * activations)});
    }
  } else if (zb < 0) {
    suspicions->push_back({"weight zero point read as u8", Wrap(seen.exact - 2 * kSignBit * activations)});
  }
  suspicions->push_back(
      {"sum of the row's activations left out", Wrap(seen.exact + ZeroPoint(seen) * row_sum)});
}

// Differences that do not fit into 8 bits.
void SuspectBytes(const Observation& seen, std::vector<Suspicion>* suspicions) {
  const auto a = seen.operands.Row(seen.m);
  const auto w = seen.operands.Column(seen.n);
  const int32_t a_zero_point = seen.operands.a_zero_points[static_cast<size_t>(seen.m)];
  int64_t wrapped = seen.exact;
  for (size_t k = 0; k < a.size(); ++k) {
    const int32_t centered = a[k] - a_zero_point;
    wrapped += (static_cast<int8_t>(centered) - centered) * (w[k] - ZeroPoint(seen));
  }
  suspicions->push_back({"activations less their zero point wrapped to 8 bits", Wrap(wrapped)});
}

// Operands read with the wrong sign: u8 as s8, or s8 as u8.
void SuspectSigns(const Observation& seen, std::vector<Suspicion>* suspicions) {
  const auto a = seen.operands.Row(seen.m);
  const auto w = seen.operands.Column(seen.n);
  const int64_t a_zero_point = seen.operands.a_zero_points[static_cast<size_t>(seen.m)];
  const int64_t a_shift = reference::ActivationShift(seen.gemm), w_shift = reference::WeightShift(seen.gemm);
  // The value as which a byte is misread, less its true value.
  const auto error = [](intact_type type, int64_t value) -> int64_t {
    if (type == INTACT_U8) return value >= kSignBit ? -2 * kSignBit : 0;
    return value < 0 ? 2 * kSignBit : 0;
  };
  int64_t of_a = 0, of_b = 0, of_both = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    const int64_t x = a[k] - a_zero_point, y = w[k] - ZeroPoint(seen);
    const int64_t x_error = error(seen.gemm.a_type, a[k] - a_shift);
    const int64_t y_error = error(seen.gemm.b_type, w[k] - w_shift);
    of_a += x_error * y;
    of_b += x * y_error;
    of_both += x_error * y + x * y_error + x_error * y_error;
  }
  const auto text = [](std::string_view operand, intact_type type) {
    return fmt::format("{} read as {}", operand, type == INTACT_U8 ? "s8" : "u8");
  };
  const std::string a_text = text("A", seen.gemm.a_type), b_text = text("B", seen.gemm.b_type);
  suspicions->push_back({"the sign of A", Wrap(seen.exact + of_a), {}, a_text});
  suspicions->push_back({"the sign of B", Wrap(seen.exact + of_b), {}, b_text});
  suspicions->push_back({"the signs of A and B", Wrap(seen.exact + of_both), {}, a_text + " and " + b_text});
}

// A loop over blocks of depths that ends too early, or that leaves out the depths beyond whole blocks.
void SuspectTail(const Observation& seen, std::vector<Suspicion>* suspicions) {
  const int64_t k = seen.gemm.k;
  int64_t last_from = k;
  for (const int64_t block : {1, 2, 4, 8, 16, 32, 64}) {
    const int64_t from = (k - 1) / block * block;
    const bool is_all = from == 0 && k % block == 0;  // then nothing is added up
    if (is_all || from == std::exchange(last_from, from)) continue;
    const std::string text = fmt::format("depth tail k={}…{} missing", from, k - 1);
    // The products that are missing are of numbers as kernels see them, as they are stored, or less their zero
    // points.
    const int64_t zero_point = seen.operands.a_zero_points[static_cast<size_t>(seen.m)];
    for (const int64_t a_offset : {int64_t{0}, int64_t{reference::ActivationShift(seen.gemm)}, zero_point}) {
      for (const int64_t w_offset :
           {int64_t{0}, int64_t{reference::WeightShift(seen.gemm)}, ZeroPoint(seen)}) {
        const int64_t missing = Products(seen, from, a_offset, w_offset);
        suspicions->push_back({"depth tail missing", Wrap(seen.exact - missing), {}, text, true});
      }
    }
  }
}

std::vector<Suspicion> Suspicions(const Observation& seen, std::vector<Suspicion> suspicions) {
  SuspectZeroPoint(seen, &suspicions);
  SuspectWeightZeroPoint(seen, &suspicions);
  if (seen.gemm.a_type == INTACT_S8) SuspectBytes(seen, &suspicions);
  SuspectSigns(seen, &suspicions);
  SuspectTail(seen, &suspicions);
  suspicions.push_back({seen.gemm.bias_s32.empty() ? "nothing was added up" : "nothing but the bias",
                        seen.operands.bias[static_cast<size_t>(seen.n)]});
  if (!seen.gemm.bias_s32.empty()) {
    const int64_t bias = seen.gemm.bias_s32[static_cast<size_t>(seen.n)];
    suspicions.push_back({"s32 bias missing", Wrap(seen.exact - bias)});
    const int64_t sum = seen.exact - bias;
    suspicions.push_back({"s32 bias cut to int16", Wrap(sum + static_cast<int16_t>(bias))});
    suspicions.push_back({"s32 bias clamped to int16", Wrap(sum + std::clamp<int64_t>(bias, -32768, 32767))});
    suspicions.push_back({"s32 bias added in int16, which wrapped", static_cast<int16_t>(seen.exact)});
    suspicions.push_back({"s32 bias added in int16, which clamped",
                          static_cast<int32_t>(std::clamp<int64_t>(seen.exact, -32768, 32767))});
  }
  std::erase_if(suspicions, [&](const Suspicion& s) { return s.accumulator == seen.exact && !s.scale; });
  return suspicions;
}

// A mistake of a requantization, if one was found.
using Mistake = std::optional<Diagnosis>;

Diagnosis Same(const char* mistake) { return {mistake, mistake}; }

// Another column's scale, nearest first; or 1 instead of 0, as in code that divides by scales.
Mistake OtherScale(const Observation& seen) {
  Requantization q = seen.OwnRequantization();
  if (q.scale == 0.0f) {
    q.scale = 1.0f;
    if (SameElement(seen, seen.exact, q)) return Same("the scale 0 taken for 1");
  }
  if (seen.gemm.scales.size() < 2) return std::nullopt;
  for (const int64_t column : {seen.n - 1, seen.n + 1, int64_t{0}, seen.gemm.n - 1}) {
    if (column < 0 || column >= seen.gemm.n || column == seen.n) continue;
    q.scale = seen.gemm.scales[static_cast<size_t>(column)] * seen.RowScale();
    if (SameElement(seen, seen.exact, q)) {
      return Diagnosis{"the scale of another column",
                       fmt::format("the scale of column {} gives this output of column {}",
                                   seen.first_column + column, seen.first_column + seen.n)};
    }
  }
  return std::nullopt;
}

// Mistakes with a residual.
Mistake OtherResidual(const Observation& seen) {
  const Requantization q = seen.OwnRequantization();
  const auto* const added = q.post_ops.Find<core::AddResidual>();
  if (added == nullptr) return std::nullopt;
  Requantization other = q;
  other.post_ops = q.post_ops.Without<core::AddResidual>();
  if (SameElement(seen, seen.exact, other)) return Same("the residual left out");
  other = q;
  other.residual = q.residual + static_cast<float>(added->zero_point);
  if (SameElement(seen, seen.exact, other)) return Same("the residual's zero point not subtracted");
  other.post_ops = q.post_ops.Without<core::AddResidual>();
  const float before = reference::Dequantize(seen.exact, other);
  other.scale = 1.0f;
  other.has_bias_f32 = true;
  other.bias_f32 = before + q.residual * added->scale;
  other.post_ops = {};
  if (SameElement(seen, 0, other)) return Same("the residual added after the activation");
  return std::nullopt;
}

// Mistakes with an activation.
Mistake OtherActivation(const Observation& seen) {
  Requantization q = seen.OwnRequantization();
  const bool is_relu = q.post_ops.Has<core::Relu>();
  if (!q.post_ops.HasActivation()) return std::nullopt;
  q.post_ops = q.post_ops.WithoutActivation();
  if (SameElement(seen, seen.exact, q)) return Same("the activation left out");
  if (!is_relu || core::BytesOf(q.c_type) != 1) return std::nullopt;
  const int32_t at_zero = std::max(reference::Requantize(seen.exact, q), 0);
  if (static_cast<uint8_t>(at_zero) != *seen.element) return std::nullopt;
  return Same("ReLU at 0 instead of at the output's zero point");
}

// Mistakes with a lookup table.
Mistake OtherLookup(const Observation& seen) {
  const Requantization q = seen.OwnRequantization();
  if (q.lookup_table == nullptr) return std::nullopt;
  Requantization other = q;
  other.lookup_table = nullptr;
  if (SameElement(seen, seen.exact, other)) return Same("the lookup table left out");
  std::array<uint8_t, 256> table;
  const auto is_from = [&](auto index) {
    for (int i = 0; i < 256; ++i) table.at(static_cast<size_t>(i)) = q.lookup_table[index(i) & 0xff];
    other.lookup_table = table.data();
    return SameElement(seen, seen.exact, other);
  };
  if (is_from([](int i) { return i + 1; })) return Same("the element after the lookup table's right one");
  if (is_from([](int i) { return i - 1; })) return Same("the element before the lookup table's right one");
  if (q.c_type == INTACT_S8 && is_from([](int i) { return i ^ 0x80; })) {
    return Same("the lookup table's element 0 taken for that of 0, not of -128");
  }
  return std::nullopt;
}

// Mistakes in the conversion to 8 bits.
Mistake OtherNarrowing(const Observation& seen) {
  const Requantization q = seen.OwnRequantization();
  if (core::BytesOf(q.c_type) != 1 || std::isnan(q.scale)) return std::nullopt;
  const float f = reference::Dequantize(seen.exact, q);
  const int32_t clamped = reference::RoundToType(f, q.c_type, 0) + q.zero_point;
  const int32_t lowest = q.c_type == INTACT_U8 ? 0 : -128;
  if (static_cast<uint8_t>(std::clamp(clamped, lowest, lowest + 255)) == *seen.element) {
    return Same("the zero point added after clamping");
  }
  // cvtps2dq makes −2³¹ of floats beyond int32, which is then clamped.
  if (f >= 0x1p31f && static_cast<uint8_t>(lowest) == *seen.element) {
    return Same("a float beyond int32 converted to int32 before it is clamped");
  }
  constexpr float kMost = 0x1p30f;  // conversions of larger values are undefined
  if (std::fabs(f) > kMost) return std::nullopt;
  const int64_t wrapped = std::llrint(f) + q.zero_point;
  if (static_cast<uint8_t>(wrapped) == *seen.element) return Same("wrapped to 8 bits instead of clamped");
  return std::nullopt;
}

// Four-byte outputs are seldom 0 by chance; 8-bit outputs often are.
bool IsZeroOfFourBytes(const Observation& seen) {
  constexpr size_t kSize = 4;
  return core::BytesOf(seen.gemm.c_type) == kSize &&
         std::all_of(seen.element, seen.element + kSize, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

float Observation::RowScale() const { return reference::ActivationScale(gemm, m); }

bool Observation::GivenBy(int32_t y, std::optional<float> scale) const {
  if (actual_accumulator && *actual_accumulator != y) return false;
  reference::Requantization q = OwnRequantization();
  q.scale = scale.value_or(q.scale);
  return SameElement(*this, y, q);
}

reference::Requantization Observation::OwnRequantization() const {
  return AtOutput(reference::RequantizationOf(gemm, n), gemm, gemm.n, m * gemm.n + n);
}

bool Observation::GivenBy(int32_t y, reference::Rounding rounding) const {
  // An s32 output may have been rounded, so it does not prove the accumulator.
  if (gemm.c_type != INTACT_S32 && actual_accumulator && *actual_accumulator != y) return false;
  const Requantization q = OwnRequantization();
  uint8_t bytes[4] = {};
  reference::StoreRounded(y, q, {RowScale(), reference::RequantizationOf(gemm, n).scale}, rounding, bytes);
  return std::memcmp(bytes, element, static_cast<size_t>(core::BytesOf(q.c_type))) == 0;
}

std::optional<std::string> HowNotWrapped(const Observation& seen) {
  if (seen.gemm.overflow != INTACT_OVERFLOW_WRAPS) return std::nullopt;
  using Limits = std::numeric_limits<int32_t>;
  const int64_t sum =
      seen.operands.bias[static_cast<size_t>(seen.n)] +
      Products(seen, 0, seen.operands.a_zero_points[static_cast<size_t>(seen.m)], ZeroPoint(seen));
  const auto clamped = static_cast<int32_t>(std::clamp<int64_t>(sum, Limits::min(), Limits::max()));
  if (clamped == sum) return std::nullopt;
  const bool is_clamped = seen.GivenBy(clamped);
  // An s32 output wraps even if its sum did not.
  const bool may_be_kept =
      seen.gemm.c_type != INTACT_S32 && (!seen.actual_accumulator || *seen.actual_accumulator == seen.exact);
  const bool is_kept = may_be_kept && SameElement(seen, sum, seen.OwnRequantization());
  if (!is_clamped && !is_kept) return std::nullopt;
  return fmt::format("the exact sum {} was {} instead of wrapped to int32", sum,
                     !is_clamped ? "kept"
                     : is_kept   ? "kept or clamped"
                                 : "clamped");
}

Diagnosis KnownOf(const Observation& seen) {
  if (!seen.actual_accumulator) return Same("accumulator not known");
  if (seen.actual_accumulator == seen.exact) return Same("accumulator right, requantization wrong");
  return {"accumulator wrong",
          fmt::format("accumulator {} instead of {}", *seen.actual_accumulator, seen.exact)};
}

std::vector<Diagnosis> Mistakes(const Observation& seen, std::vector<Suspicion> of_operation) {
  std::vector<Diagnosis> mistakes;
  const auto add = [&](const Mistake& mistake) {
    const auto is_it = [&](const Diagnosis& known) { return known.key() == mistake->key(); };
    if (mistake && std::ranges::none_of(mistakes, is_it)) mistakes.push_back(*mistake);
  };
  if (seen.actual_accumulator == 0 && IsZeroOfFourBytes(seen)) {
    add(Same("0, as if nothing was added up or written"));
  }
  for (const Suspicion& suspicion : Suspicions(seen, std::move(of_operation))) {
    if (!seen.GivenBy(suspicion.accumulator, suspicion.scale)) continue;
    const std::string mistake(suspicion.mistake);
    add(Diagnosis{mistake, suspicion.text.empty() ? mistake : suspicion.text, suspicion.is_common});
  }
  if (seen.actual_accumulator == seen.exact) {
    for (const auto& find : {OtherLookup, OtherActivation, OtherNarrowing, OtherScale, OtherResidual}) {
      add(find(seen));
    }
  } else if (!seen.actual_accumulator) {
    add(OtherNarrowing(seen));
    add(OtherScale(seen));
  } else if (const int64_t off = int64_t{*seen.actual_accumulator} - seen.exact; off % 65536 == 0) {
    add(Diagnosis{"int16 sums wrapped", fmt::format("off by {}·65536, int16 sums wrapped", off / 65536)});
  }
  return mistakes;
}

}  // namespace intact::verify
