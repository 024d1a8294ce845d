#include "reference/contract/requantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace intact::reference {
namespace {

Requantization U8(float scale, int32_t zero_point = 0) {
  Requantization q;
  q.c_type = INTACT_U8;
  q.scale = scale;
  q.zero_point = zero_point;
  return q;
}

Requantization S8(float scale, int32_t zero_point = 0) {
  Requantization q = U8(scale, zero_point);
  q.c_type = INTACT_S8;
  return q;
}

TEST(Requantize, RoundsTiesToEven) {
  const int32_t expected[] = {-4, -2, -2, 0, 0, 2, 2, 4};  // of −3.5, −2.5, … 3.5
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Requantize(2 * i - 7, S8(0.5f)), expected[i]) << i;
}

TEST(Requantize, RoundsBeforeItAddsTheZeroPoint) {
  EXPECT_EQ(Requantize(1, U8(0.5f, 1)), 1);  // rne(0.5) + 1, not rne(1.5)
  EXPECT_EQ(Requantize(3, U8(0.5f, 1)), 3);
}

TEST(Requantize, ClampsToTheType) {
  EXPECT_EQ(Requantize(1000, U8(1.0f, 3)), 255);
  EXPECT_EQ(Requantize(-1000, U8(1.0f, 3)), 0);
  EXPECT_EQ(Requantize(1000, S8(1.0f, 3)), 127);
  EXPECT_EQ(Requantize(-1000, S8(1.0f, 3)), -128);
}

TEST(Requantize, HugeAndInfiniteValuesClamp) {
  const float huge = std::numeric_limits<float>::max();
  EXPECT_EQ(Requantize(std::numeric_limits<int32_t>::max(), S8(huge)), 127);
  EXPECT_EQ(Requantize(std::numeric_limits<int32_t>::min(), S8(huge)), -128);
  EXPECT_EQ(Requantize(std::numeric_limits<int32_t>::max(), U8(1.0f, 255)), 255);
}

TEST(Requantize, RoundsTheProductBeforeTheBias) {
  Requantization q;
  q.c_type = INTACT_F32;
  q.scale = 1.0f + 0x1p-23f;
  q.has_bias_f32 = true;
  q.bias_f32 = -(4097.0f * q.scale);  // the product needs 36 bits; an FMA would keep the bits rounded off
  ASSERT_NE(std::fma(4097.0f, q.scale, q.bias_f32), 0.0f);
  EXPECT_EQ(Dequantize(4097, q), 0.0f);
}

TEST(Requantize, RoundsTheIntegerToFloatFirst) {
  Requantization q;
  q.c_type = INTACT_F32;
  EXPECT_EQ(Dequantize((1 << 24) + 1, q), 16777216.0f);
  EXPECT_EQ(Dequantize((1 << 24) + 3, q), 16777220.0f);
}

TEST(Requantize, ReluMakesNegativeZeroPositive) {
  Requantization q;
  q.c_type = INTACT_F32;
  q.scale = 1e-45f;
  q.post_ops.Add(core::Relu{});
  q.has_bias_f32 = true;
  q.bias_f32 = -0.0f;
  EXPECT_FALSE(std::signbit(Dequantize(-1, q)));
  EXPECT_EQ(Dequantize(-1, q), 0.0f);
  EXPECT_GT(Dequantize(1, q), 0.0f);
}

TEST(Requantize, RoundsTheResidualsProductAndThenTheSum) {
  Requantization q;
  q.c_type = INTACT_F32;
  constexpr float kScale = 1.0f + 0x1p-23f;
  q.post_ops.Add(core::AddResidual{INTACT_F32, kScale});
  q.residual = 4097.0f;
  q.has_bias_f32 = true;
  q.bias_f32 = -(4097.0f * kScale);
  ASSERT_NE(std::fma(q.residual, kScale, q.bias_f32), 0.0f);
  EXPECT_EQ(Dequantize(0, q), 0.0f);
  // (2²⁴ + 1) + 1, in this order: both sums are ties, and round to the even 2²⁴.
  q.residual = q.post_ops.Find<core::AddResidual>()->scale = q.bias_f32 = 1.0f;
  EXPECT_EQ(Dequantize(1 << 24, q), 16777216.0f);
}

TEST(Requantize, AddsTheResidualBeforeTheActivation) {
  Requantization q = S8(1.0f, 2);
  q.post_ops.Add(core::AddResidual{INTACT_F32, 2.0f});
  q.post_ops.Add(core::Relu{});
  q.residual = -5.0f;
  EXPECT_EQ(Requantize(7, q), 2);   // max(7 − 10, 0) + 2
  EXPECT_EQ(Requantize(13, q), 5);  // 13 − 10 + 2
  EXPECT_EQ(Requantize(-9, q), 2);
  q.residual = 20.0f;
  EXPECT_EQ(Requantize(-9, q), 33);  // −9 + 40 + 2
}

TEST(Requantize, NanOfAResidualCountsAsMinusInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Requantization q;
  q.c_type = INTACT_F32;
  q.post_ops.Add(core::AddResidual{INTACT_F32, 1.0f});
  q.residual = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Dequantize(5, q), -kInfinity);
  q.post_ops.Add(core::Relu{});
  EXPECT_EQ(Dequantize(5, q), 0.0f);
  q.post_ops = q.post_ops.WithoutActivation();
  q.c_type = INTACT_U8;
  EXPECT_EQ(Requantize(5, q), 0);
  q.c_type = INTACT_F32;
  q.scale = std::numeric_limits<float>::max();
  q.residual = -kInfinity;
  EXPECT_EQ(Dequantize(5, q), -kInfinity);  // ∞ − ∞
  q.residual = kInfinity;
  EXPECT_EQ(Dequantize(5, q), kInfinity);
}

TEST(Requantize, PostOperationsComeInTheirOrder) {
  Requantization q;
  q.c_type = INTACT_F32;
  q.residual = -3.0f;
  q.post_ops.Add(core::Relu{});
  q.post_ops.Add(core::AddResidual{INTACT_F32, 1.0f});
  EXPECT_EQ(Dequantize(-5, q), -3.0f);
  q.post_ops.Add(core::Clamp{-1.0f, 1.0f});
  EXPECT_EQ(Dequantize(-5, q), -1.0f);
  EXPECT_EQ(Dequantize(9, q), 1.0f);
}

TEST(Requantize, ClampBoundsTheFloat) {
  Requantization q = S8(0.25f, 2);
  q.post_ops.Add(core::Clamp{-1.5f, 6.0f});
  EXPECT_EQ(Requantize(-100, q), 0);  // rne(−1.5) + 2
  EXPECT_EQ(Requantize(100, q), 8);
  EXPECT_EQ(Requantize(8, q), 4);
}

}  // namespace
}  // namespace intact::reference
