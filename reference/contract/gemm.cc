// What intact computes, from the loops to the clamp, in the order of the computation: sums, outputs, requantization,
// post-operations, rounding. A function's helpers stand directly above it. linear.cc says which zero point, scale and bias
// belong to an output.
#include "reference/contract/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <variant>

#include "core/types.h"

namespace intact::reference {
namespace {

// a − za.
int32_t CenteredActivation(const Gemm& gemm, int64_t row, int64_t k) noexcept {
  const uint8_t a = gemm.a[static_cast<size_t>(row * gemm.k + k)];
  return core::DecodeInt8(gemm.a_type, a) - ActivationZeroPoint(gemm, row);
}

// How many of the per-item `values` belong to each item.
template <class T>
int64_t EachOf(const Gemm& gemm, const std::vector<T>& values) {
  return values.empty() ? 0 : std::ssize(values) / gemm.batch;
}

// b − zb of an item's B.
int32_t CenteredWeight(const Gemm& gemm, int64_t item, int64_t k, int64_t n) noexcept {
  const int64_t at = ((gemm.has_runtime_b ? item * gemm.k : 0) + k) * gemm.n + n;
  int32_t zero_point = 0;
  if (gemm.item_zero_points.empty()) {
    zero_point = WeightZeroPoint(gemm, n);
  } else {
    const int64_t each = EachOf(gemm, gemm.item_zero_points);
    zero_point = gemm.item_zero_points[static_cast<size_t>(item * each + (each == 1 ? 0 : n))];
  }
  return core::DecodeInt8(gemm.b_type, static_cast<uint8_t>(gemm.b[static_cast<size_t>(at)])) - zero_point;
}

}  // namespace

std::vector<int32_t> Multiply(const Gemm& gemm) {
  std::vector<int32_t> y;
  for (int64_t row = 0; row < gemm.rows(); ++row) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      int64_t sum = gemm.bias_s32.empty() ? 0 : gemm.bias_s32[static_cast<size_t>(n)];
      for (int64_t k = 0; k < gemm.k; ++k)
        sum += int64_t{CenteredActivation(gemm, row, k)} * CenteredWeight(gemm, row / gemm.m, k, n);
      y.push_back(static_cast<int32_t>(static_cast<uint32_t>(sum)));
    }
  }
  return y;
}

std::vector<uint8_t> Outputs(const Linear& linear, int64_t columns,
                             const std::vector<int32_t>& accumulators) {
  std::vector<Requantization> requantizations;
  for (int64_t n = 0; n < columns; ++n) requantizations.push_back(RequantizationOf(linear, n));
  const auto size = static_cast<size_t>(core::BytesOf(linear.c_type));
  std::vector<uint8_t> bytes(accumulators.size() * size);
  for (size_t i = 0; i < accumulators.size(); ++i) {
    const Requantization& column = requantizations[i % requantizations.size()];
    const Requantization q = AtOutput(column, linear, columns, static_cast<int64_t>(i));
    StoreOutput(accumulators[i], q, &bytes[i * size]);
  }
  return bytes;
}

void StoreOutput(int64_t y, const Requantization& q, uint8_t* destination) noexcept {
  if (q.c_type == INTACT_S32) {
    const auto wrapped = static_cast<int32_t>(static_cast<uint32_t>(y));
    std::memcpy(destination, &wrapped, sizeof wrapped);
  } else if (core::IsInt8(q.c_type)) {
    *destination = static_cast<uint8_t>(Requantize(y, q));
  } else {  // without a scale the output is NaN
    const float f = std::isnan(q.scale) ? std::numeric_limits<float>::quiet_NaN() : Dequantize(y, q);
    core::Encode(q.c_type, RoundToFloat(f, q.c_type), destination);
  }
}

int32_t Requantize(int64_t y, const Requantization& q) noexcept {
  const float f = q.fixed.rule == INTACT_FIXED_POINT_NONE
                      ? Dequantize(y, q)
                      : AfterBias(static_cast<float>(MultiplyFixed(y, q.fixed)), q);
  return LookUp(RoundToType(f, q.c_type, q.zero_point), q);
}

float Dequantize(int64_t y, const Requantization& q) noexcept {
  const float f = static_cast<float>(y) * q.scale;
  return AfterBias(q.has_bias_f32 ? f + q.bias_f32 : f, q);
}

namespace {

float WithoutNan(float f) noexcept { return std::isnan(f) ? -std::numeric_limits<float>::infinity() : f; }

// The operand order of VMAXPS(f, bound) and VMINPS(f, bound): equal operands give the bound, so that a ReLU
// turns −0.0 into +0.0.
float Max(float f, float bound) noexcept { return f > bound ? f : bound; }
float Min(float f, float bound) noexcept { return f < bound ? f : bound; }

// A post-operation on f.
struct Applied {
  float f, residual;
  float operator()(const core::AddResidual& op) const noexcept {
    const float scaled = residual * op.scale;
    return f + scaled;
  }
  float operator()(const core::Relu& /*op*/) const noexcept { return Max(f, 0.0f); }
  float operator()(const core::Clamp& op) const noexcept { return Min(Max(f, op.low), op.high); }
};

}  // namespace

float AfterBias(float f, const Requantization& q) noexcept {
  f = WithoutNan(f);
  for (const core::PostOp& op : q.post_ops) f = WithoutNan(std::visit(Applied{f, q.residual}, op));
  return f;
}

int32_t RoundToType(float f, intact_type c_type, int32_t zero_point) noexcept {
  const int32_t lowest = c_type == INTACT_U8 ? 0 : -128;
  const int32_t highest = c_type == INTACT_U8 ? 255 : 127;
  // Clamping before rounding gives the same result, because the bounds are integers and rounding is
  // monotonic. It also keeps infinities and huge values out of the conversion to an integer.
  f = Max(f, static_cast<float>(lowest - zero_point));
  f = Min(f, static_cast<float>(highest - zero_point));
  return static_cast<int32_t>(std::nearbyint(f)) + zero_point;
}

// Less usual outputs: lookup tables, float16 and bfloat16, scales in fixed point. Then batches with a runtime B.

int32_t LookUp(int32_t output, const Requantization& q) noexcept {
  if (q.lookup_table == nullptr) return output;
  const uint8_t element = q.lookup_table[q.c_type == INTACT_S8 ? output + 128 : output];
  return q.c_type == INTACT_S8 ? static_cast<int8_t>(element) : element;
}

double RoundToFloat(float f, intact_type type, double (*round)(double)) noexcept {
  if (type == INTACT_F32 || !std::isfinite(f) || f == 0) return f;
  const core::ElementType& traits = core::TraitsOf(type);
  const int last_bit = std::max(std::ilogb(f), traits.exponent) - traits.fraction;
  const double rounded = std::ldexp(round(std::ldexp(double{f}, -last_bit)), last_bit);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return std::fabs(rounded) > core::LargestOf(type) ? std::copysign(kInfinity, rounded) : rounded;
}

namespace {

int64_t ClampToInt32(int64_t x) noexcept {
  using Limits = std::numeric_limits<int32_t>;
  return std::clamp<int64_t>(x, Limits::min(), Limits::max());
}

// a·b/2^31, to the nearest integer, ties up: the division truncates, and the nudge is gemmlowp's.
int64_t DoublingHighMultiply(int64_t a, int64_t b) noexcept {
  const int64_t nudge = a * b >= 0 ? int64_t{1} << 30 : 1 - (int64_t{1} << 30);
  return (a * b + nudge) / (int64_t{1} << 31);
}

// x/2^exponent to the nearest integer.
int64_t ShiftRight(int64_t x, int32_t exponent, intact_fixed_point rule) noexcept {
  const int64_t divisor = int64_t{1} << exponent;
  const bool goes_down = x < 0 && rule == INTACT_FIXED_POINT_HALF_AWAY;
  const int64_t remainder = (x % divisor + divisor) % divisor;
  const int64_t floor = (x - remainder) / divisor;
  const bool is_up = goes_down ? 2 * remainder > divisor : 2 * remainder >= divisor;
  return is_up ? floor + 1 : floor;
}

}  // namespace

int64_t MultiplyFixed(int64_t y, const FixedPoint& fixed) noexcept {
  const int32_t left = std::max(fixed.shift, 0), right = std::max(-fixed.shift, 0);
  const int64_t shifted = ClampToInt32(ClampToInt32(y) * (int64_t{1} << left));
  return ShiftRight(fixed.multiplier ? DoublingHighMultiply(shifted, *fixed.multiplier) : shifted, right,
                    fixed.rule);
}

namespace {

// Elements [i·size, (i + 1)·size) of `values`; empty if `values` is.
template <class T>
std::vector<T> Slice(const std::vector<T>& values, int64_t i, int64_t size) {
  if (values.empty()) return {};
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

}  // namespace

std::vector<uint8_t> Outputs(const Gemm& gemm, const std::vector<int32_t>& accumulators) {
  if (!gemm.has_runtime_b) return Outputs(static_cast<const Linear&>(gemm), gemm.n, accumulators);
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < gemm.batch; ++i) {
    const Gemm item = Item(gemm, i);
    const std::vector<uint8_t> outputs = Outputs(item, Slice(accumulators, i, gemm.m * gemm.n));
    bytes.insert(bytes.end(), outputs.begin(), outputs.end());
  }
  return bytes;
}

Gemm Item(const Gemm& gemm, int64_t i) {
  Gemm item = gemm;
  item.batch = 1;
  item.has_runtime_b = false;
  item.a = Slice(gemm.a, i, gemm.m * gemm.k);
  item.a_source = Slice(gemm.a_source, i, gemm.m * gemm.k * core::BytesOf(gemm.a_source_type));
  item.a_zero_points = Slice(gemm.a_zero_points, i, gemm.m);
  item.a_scales = Slice(gemm.a_scales, i, gemm.m);
  item.residual = Slice(gemm.residual, i, gemm.m * gemm.n * core::BytesOf(gemm.residual_type()));
  if (!gemm.has_runtime_b) return item;
  item.b = Slice(gemm.b, i, gemm.k * gemm.n);
  const int64_t zero_points = EachOf(gemm, gemm.item_zero_points), scales = EachOf(gemm, gemm.item_scales);
  if (zero_points != 0) item.b_zero_points = Slice(gemm.item_zero_points, i, zero_points);
  if (scales != 0) item.scales = Slice(gemm.item_scales, i, scales);
  item.item_zero_points.clear();
  item.item_scales.clear();
  return item;
}

std::vector<int8_t> FromColumns(std::span<const int8_t> columns, int64_t n, int64_t k) {
  std::vector<int8_t> b(columns.size());
  auto from = columns.begin();
  for (auto item = b.begin(); item != b.end(); item += n * k) {
    for (int64_t column = 0; column < n; ++column) {
      for (int64_t depth = 0; depth < k; ++depth) item[depth * n + column] = *from++;
    }
  }
  return b;
}

}  // namespace intact::reference
