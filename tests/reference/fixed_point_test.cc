// A fixed-point multiplier that rounds twice, compared with one rounding of the product.
#include "reference/models/fixed_point.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "support/random.h"

namespace intact::reference {
namespace {

int32_t Twice(int32_t y, float scale) {
  return MultiplyRoundedTwice(y, FixedPointOf(scale, INTACT_FIXED_POINT_HALF_AWAY));
}

TEST(MultiplyRoundedTwice, Rounds11And499To12) {
  constexpr float kScale = 0.0014402703931141053f;
  EXPECT_EQ(std::nearbyint(7984 * static_cast<double>(kScale)), 11.0);
  EXPECT_EQ(Twice(7984, kScale), 12);
}

TEST(MultiplyRoundedTwice, RoundsHalvesAwayFromZero) {
  EXPECT_EQ(Twice(3, 0.5f), 2);
  EXPECT_EQ(Twice(5, 0.5f), 3);
  EXPECT_EQ(Twice(10, 0.25f), 3);
  EXPECT_EQ(Twice(-10, 0.25f), -3);
}

TEST(MultiplyRoundedTwice, IsOffByOneAtMost) {
  support::Random random(1, 0, 0);
  int off = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto y = static_cast<int32_t>(random.Integer(-1000000, 1000000));
    const auto scale = static_cast<float>(random.Unit() * 1e-3);
    const double once = std::nearbyint(y * static_cast<double>(scale));
    const double twice = Twice(y, scale);
    EXPECT_LE(std::fabs(twice - once), 1.0) << y << " * " << scale;
    off += twice == once ? 0 : 1;
  }
  EXPECT_GT(off, 10);
}

}  // namespace
}  // namespace intact::reference
