#include "reference/models/fixed_point.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace intact::reference {
namespace {

// scale = multiplier·2^(exponent − 31), multiplier in [2³⁰, 2³¹).
struct FixedPoint {
  int64_t multiplier = 0;
  int exponent = 0;
};

FixedPoint FixedPointOf(float scale) noexcept {
  FixedPoint fixed;
  // A float's 24 bits are exact.
  fixed.multiplier = static_cast<int64_t>(std::ldexp(std::frexp(scale, &fixed.exponent), 31));
  return fixed;
}

int32_t ClampToInt32(int64_t x) noexcept {
  using Limits = std::numeric_limits<int32_t>;
  return static_cast<int32_t>(std::clamp<int64_t>(x, Limits::min(), Limits::max()));
}

// x/2^exponent, to nearest, ties away from zero.
int64_t DivideHalfAway(int64_t x, int exponent) noexcept {
  const int64_t half = exponent == 0 ? 0 : int64_t{1} << (exponent - 1);
  return x < 0 ? -((-x + half) >> exponent) : (x + half) >> exponent;
}

}  // namespace

int32_t MultiplyRoundedTwice(int32_t y, float scale) noexcept {
  const FixedPoint fixed = FixedPointOf(scale);
  const int64_t shifted = ClampToInt32(int64_t{y} * (int64_t{1} << std::clamp(fixed.exponent, 0, 31)));
  // The division truncates: after the nudge ties go up.
  const int64_t product = shifted * fixed.multiplier;
  const int64_t nudge = product >= 0 ? int64_t{1} << 30 : 1 - (int64_t{1} << 30);
  const int64_t high = (product + nudge) / (int64_t{1} << 31);
  return ClampToInt32(DivideHalfAway(high, std::clamp(-fixed.exponent, 0, 62)));
}

int32_t MultiplyRoundedOnce(int32_t y, float scale) noexcept {
  const FixedPoint fixed = FixedPointOf(scale);
  const int64_t product = int64_t{y} * fixed.multiplier;
  // With fewer bits than that to shift out, every product but 0 is beyond int32, shifted or not.
  const int right = std::clamp(31 - fixed.exponent, 0, 62);
  const int64_t half = right == 0 ? 0 : int64_t{1} << (right - 1);
  return ClampToInt32((product + half) >> right);
}

}  // namespace intact::reference
