#include "reference/contract/requantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

namespace intact::reference {
namespace {

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

float WithoutNan(float f) noexcept { return std::isnan(f) ? -std::numeric_limits<float>::infinity() : f; }

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

float AfterBias(float f, const Requantization& q) noexcept {
  f = WithoutNan(f);
  for (const core::PostOp& op : q.post_ops) f = WithoutNan(std::visit(Applied{f, q.residual}, op));
  return f;
}

float Dequantize(int64_t y, const Requantization& q) noexcept {
  const float f = static_cast<float>(y) * q.scale;
  return AfterBias(q.has_bias_f32 ? f + q.bias_f32 : f, q);
}

int32_t Requantize(int64_t y, const Requantization& q) noexcept {
  if (q.fixed.rule != INTACT_FIXED_POINT_NONE) {
    const float v = AfterBias(static_cast<float>(MultiplyFixed(y, q.fixed)), q);
    return LookUp(RoundToType(v, q.c_type, q.zero_point), q);
  }
  return LookUp(RoundToType(Dequantize(y, q), q.c_type, q.zero_point), q);
}

int32_t LookUp(int32_t output, const Requantization& q) noexcept {
  if (q.lookup_table == nullptr) return output;
  const uint8_t element = q.lookup_table[q.c_type == INTACT_S8 ? output + 128 : output];
  return q.c_type == INTACT_S8 ? static_cast<int8_t>(element) : element;
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

}  // namespace intact::reference
