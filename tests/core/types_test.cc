#include "core/types.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace intact::core {
namespace {

constexpr auto kNoType = static_cast<intact_type>(9);

TEST(Types, HaveTheirSizesAndLimits) {
  EXPECT_EQ(BytesOf(INTACT_U8), 1);
  EXPECT_EQ(BytesOf(INTACT_BF16), 2);
  EXPECT_EQ(BytesOf(INTACT_S32), 4);
  EXPECT_EQ(NameOf(INTACT_BF16), "bf16");
  EXPECT_TRUE(IsFloat(INTACT_F32) && IsFloat(INTACT_BF16) && !IsFloat(INTACT_S32));
  EXPECT_EQ(LowestOf(INTACT_S8), -128);
  EXPECT_EQ(HighestOf(INTACT_S8), 127);
  EXPECT_EQ(HighestOf(INTACT_U8), 255);
  EXPECT_EQ(LowestOf(INTACT_S4), -8);
  EXPECT_EQ(HighestOf(INTACT_U4), 15);
  for (const intact_type type : {INTACT_TYPE_NONE, INTACT_S32, INTACT_F32, kNoType}) {
    EXPECT_EQ(LowestOf(type), 0);
    EXPECT_EQ(HighestOf(type), 0);
  }
}

// Every element is stored as it was read. A bfloat16 is the upper half of a float.
TEST(Types, ElementsSurviveDecodingAndEncoding) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    std::array<uint8_t, 2> element, again = {};
    std::memcpy(element.data(), &bits, element.size());
    EXPECT_EQ(Decode(INTACT_U8, element.data()), element[0]);
    EXPECT_EQ(Decode(INTACT_S8, element.data()), static_cast<int8_t>(element[0]));
    const double number = Decode(INTACT_BF16, element.data());
    const auto upper = std::bit_cast<float>(bits << 16);
    if (std::isnan(upper)) continue;
    EXPECT_EQ(number, upper);
    Encode(INTACT_BF16, number, again.data());
    EXPECT_EQ(again, element);
  }
  uint16_t nan = 0;
  Encode(INTACT_BF16, std::numeric_limits<double>::quiet_NaN(), reinterpret_cast<uint8_t*>(&nan));
  EXPECT_EQ(nan, 0x7fc0);
  for (const double number : {0.0, 1.0, -1.0, 2147483647.0, -2147483648.0}) {
    std::array<uint8_t, 4> element = {};
    Encode(INTACT_S32, number, element.data());
    EXPECT_EQ(Decode(INTACT_S32, element.data()), number);
  }
}

// A float16 computed with integers only, in units of the smallest, 2⁻²⁴.
TEST(Types, Float16IsBinary16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    std::array<uint8_t, 2> element, again = {};
    std::memcpy(element.data(), &bits, element.size());
    const double number = Decode(INTACT_F16, element.data());
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const bool is_nan = exponent == 31 && fraction != 0;
    ASSERT_EQ(std::isnan(number), is_nan) << bits;
    if (!is_nan) {
      const int64_t units = exponent == 0 ? fraction : int64_t{fraction + 0x400} << (exponent - 1);
      const double magnitude =
          exponent == 31 ? std::numeric_limits<double>::infinity() : static_cast<double>(units) / (1 << 24);
      ASSERT_EQ(std::bit_cast<uint64_t>(number),
                std::bit_cast<uint64_t>(bits >> 15 ? -magnitude : magnitude));
    }
    Encode(INTACT_F16, number, again.data());
    constexpr std::array<uint8_t, 2> kNan = {0x00, 0x7e};
    ASSERT_EQ(again, is_nan ? kNan : element) << bits;
  }
  EXPECT_EQ(LargestOf(INTACT_F16), 65504);
  EXPECT_EQ(LargestOf(INTACT_F32), std::numeric_limits<float>::max());
}

TEST(Types, WhatIsNoTypeIsNeitherReadNorWritten) {
  constexpr std::array<uint8_t, 4> kNines = {9, 9, 9, 9};
  std::array<uint8_t, 4> element = kNines;
  for (const intact_type type : {INTACT_TYPE_NONE, kNoType}) {
    EXPECT_EQ(Decode(type, element.data()), 0);
    Encode(type, 1.0, element.data());
    EXPECT_EQ(element, kNines);
  }
}

}  // namespace
}  // namespace intact::core
