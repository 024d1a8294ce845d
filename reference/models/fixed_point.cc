#include "reference/models/fixed_point.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace intact::reference {
namespace {

int32_t ClampToInt32(int64_t x) noexcept {
  using Limits = std::numeric_limits<int32_t>;
  return static_cast<int32_t>(std::clamp<int64_t>(x, Limits::min(), Limits::max()));
}

}  // namespace

FixedPoint FixedPointOf(double scale, intact_fixed_point rule) noexcept {
  FixedPoint fixed{rule, 0, 0};
  auto multiplier = static_cast<int64_t>(std::round(std::ldexp(std::frexp(scale, &fixed.shift), 31)));
  if (multiplier == int64_t{1} << 31) {
    multiplier /= 2;
    ++fixed.shift;
  }
  fixed.multiplier = static_cast<int32_t>(multiplier);
  return fixed;
}

int32_t MultiplyRoundedTwice(int32_t y, const FixedPoint& scale) noexcept {
  FixedPoint within = scale;
  within.shift = std::clamp(scale.shift, -61, 31);  // outside, results are 0 or leave int32
  return ClampToInt32(MultiplyFixed(y, within));
}

int32_t MultiplyRoundedOnce(int32_t y, const FixedPoint& scale) noexcept {
  if (!scale.multiplier) return MultiplyRoundedTwice(y, scale);
  const int64_t product = int64_t{y} * *scale.multiplier;
  // With fewer than 0 bits to shift out, almost every product except 0 is beyond int32, shifted or not.
  const int right = std::clamp(31 - scale.shift, 0, 62);
  const int64_t half = right == 0 ? 0 : int64_t{1} << (right - 1);
  return ClampToInt32((product + half) >> right);
}

}  // namespace intact::reference
