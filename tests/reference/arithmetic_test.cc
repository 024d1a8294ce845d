// Predictions of other libraries' arithmetic, compared with numbers worked out by hand.
#include "reference/models/arithmetic.h"
#include "core/types.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/expect_model.h"

namespace intact::reference {
namespace {

using Order = std::vector<int64_t>;

TEST(InPairs, FillsTapsOrCrossesThem) {
  const Depths depths = {2, 3, 4};  // two taps of three channels
  EXPECT_EQ(InPairs(Model::kMaddubs, depths), (Order{0, 1, 2, -1, 4, 5, 6, -1}));
  Model model = Model::kMaddubs;
  model.order = DepthOrder::kFlattened;
  EXPECT_EQ(InPairs(model, depths), (Order{0, 1, 2, 4, 5, 6}));
  model.order = DepthOrder::kChannels;
  EXPECT_EQ(InPairs(model, depths), (Order{0, 4, 1, 5, 2, 6}));
}

TEST(InPairs, FillsRowsAndColumnsOfTheKernel) {
  Model model = Model::kMaddubs;
  model.order = DepthOrder::kRows;
  const Depths depths = {12, 1, 2, 2, 3};  // two planes of 2×3 taps
  EXPECT_EQ(InPairs(model, depths), (Order{0, 2, 4, -1, 6, 8, 10, -1, 12, 14, 16, -1, 18, 20, 22, -1}));
  model.order = DepthOrder::kColumns;
  EXPECT_EQ(InPairs(model, depths), (Order{0, 6, 2, 8, 4, 10, 12, 18, 14, 20, 16, 22}));
  EXPECT_EQ(InPairs(model, {9, 1, 1, 3, 3}), (Order{0, 3, 6, 1, 4, 7, 2, 5, 8, -1}));
}

TEST(InPairs, TakesDepthsThatAreApart) {
  Model model = Model::kMaddubs;
  model.distance = 2;
  EXPECT_EQ(InPairs(model, DepthsOf(7)), (Order{0, 2, 1, 3, 4, 6, 5, -1}));
  model.distance = kHalfDepth;
  EXPECT_EQ(InPairs(model, DepthsOf(5)), (Order{0, 3, 1, 4, 2, -1}));
}

TEST(InPairs, FillsTapsToWholeQuadsForQuads) {
  const auto order = [](const Model& model, const Depths& depths) { return InPairs(model, depths); };
  EXPECT_EQ(order(Model::kDpbusds, {2, 1, 1}), (Order{0, -1, -1, -1, 1, -1, -1, -1}));
  EXPECT_EQ(order(Model::kDpbusds, {2, 3, 4}), (Order{0, 1, 2, -1, 4, 5, 6, -1}));
  EXPECT_EQ(order(Model::kDpbusds, {2, 6, 6}), (Order{0, 1, 2, 3, 4, 5, -1, -1, 6, 7, 8, 9, 10, 11, -1, -1}));
  Model model = Model::kDpbusds;
  model.order = DepthOrder::kFlattened;
  EXPECT_EQ(order(model, {2, 3, 3}), (Order{0, 1, 2, 3, 4, 5, -1, -1}));
  for (const Summation sum : {Summation::kProducts16, Summation::kFloat32}) {
    EXPECT_EQ(order({.sum = sum}, {2, 3, 4}), (Order{0, 1, 2, 4, 5, 6}));
    EXPECT_EQ(order({.sum = sum, .order = DepthOrder::kChannels}, {2, 3, 4}), (Order{0, 4, 1, 5, 2, 6}));
  }
}

TEST(Int16Sums, AreWidenedAsTheModelSays) {
  const std::vector<int32_t> pairs = {30000, -20000, 10000, -30000, 5000, 40000};
  const auto sum = [&](int32_t spill, int32_t lanes, bool wraps) {
    return SumInt16({.sum = Summation::kInt16, .spill = spill, .lanes = lanes, .wraps = wraps}, pairs);
  };
  EXPECT_EQ(sum(1, 1, false), -5000 + 32767);
  EXPECT_EQ(sum(2, 1, false), 10000 - 20000 + 32767);
  EXPECT_EQ(sum(2, 1, true), 10000 - 20000 + 37767 - 65536);
  EXPECT_EQ(sum(kWholeDepth, 1, false), 27767);  // −5000, then 32767 + −5000
  EXPECT_EQ(sum(kWholeDepth, 2, false), 32767 - 1);
  EXPECT_EQ(sum(2, 2, false), 32767 + 5000 - 32768 + 32767);
}

TEST(Int16Products, WrapUntilTheyAreWidened) {
  const std::vector<int32_t> products = {30000, 10000, -20000, 500, 40000, 7};
  const auto sum = [&](int32_t spill, int32_t lanes) {
    return SumProducts({.sum = Summation::kProducts16, .spill = spill, .lanes = lanes}, 5, products);
  };
  EXPECT_EQ(sum(1, 1), 5 + 30000 + 10000 - 20000 + 500 + 40000 - 65536 + 7);
  EXPECT_EQ(sum(2, 1), 5 + 40000 - 65536 - 19500 + 40007 - 65536);
  EXPECT_EQ(sum(kWholeDepth, 1), 5 + 60507 - 65536);
  EXPECT_EQ(sum(2, 2), 5 + 10000 + 10500 + 40000 - 65536 + 7);  // lanes of 30000 − 20000 and 10000 + 500
}

TEST(Float32Sums, AreRoundedAfterEachGroupOfQuads) {
  constexpr int32_t kLarge = 1 << 24;  // here odd numbers are ties
  const std::vector<int32_t> products = {kLarge, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 1};
  const auto sum = [&](int32_t spill, int32_t lanes, int32_t compensation) {
    return SumProducts({.sum = Summation::kFloat32, .spill = spill, .lanes = lanes}, compensation, products);
  };
  EXPECT_EQ(sum(1, 1, 0), kLarge + 4);  // 1 and 1 are lost, 3 becomes 4, and 1 is lost
  EXPECT_EQ(sum(2, 1, 0), kLarge + 4);  // 2²⁴ + 1 in int32 loses 1, then 1 + 3
  EXPECT_EQ(sum(4, 1, 0), kLarge + 4);  // 2²⁴ + 5 becomes 2²⁴ + 4
  EXPECT_EQ(sum(1, 2, 0), kLarge + 4);  // lanes of 2²⁴ and 1 + 3
  EXPECT_EQ(sum(1, 4, 0), kLarge + 4);  // lanes of 2²⁴, 1, 1 and 3: 2²⁴ + 1 loses 1, then 1 + 3
  EXPECT_EQ(sum(8, 1, 0), kLarge + 6);
  EXPECT_EQ(sum(8, 1, 3), kLarge + 8);  // 2²⁴ + 6 + 3 is a tie
  const std::vector<int32_t> beyond = {1 << 30, 0, 0, 0, 1 << 30};
  EXPECT_EQ(SumProducts({.sum = Summation::kFloat32}, -1, beyond), std::numeric_limits<int32_t>::min());
}

TEST(SumsOfProducts, AreOfNumbersLessTheirZeroPoints) {
  Gemm gemm;
  gemm.m = gemm.n = 1;
  gemm.k = 2;
  gemm.a_type = INTACT_S8;
  gemm.b_type = INTACT_U8;
  gemm.a = {100, 0x9c};      // −100
  gemm.a_zero_point = -55;   // 155 and −45
  gemm.b = {-1, 15};         // 255 and 15
  gemm.b_zero_points = {5};  // 250 and 10
  gemm.bias_s32 = {9};
  EXPECT_EQ(Accumulators(gemm, Model::kExact)[0], 9 + 155 * 250 - 45 * 10);
  EXPECT_EQ(Accumulators(gemm, {.sum = Summation::kProducts16})[0], 9 + 155 * 250 - 65536 - 45 * 10);
  EXPECT_EQ(Accumulators(gemm, {.sum = Summation::kFloat32})[0], 9 + 155 * 250 - 45 * 10);
}

TEST(HalvedWeights, AreRoundedToEvenWithTheirZeroPointCompensated) {
  EXPECT_EQ(TwiceHalf(127), 128);
  EXPECT_EQ(TwiceHalf(-127), -128);
  EXPECT_EQ(TwiceHalf(5), 4);
  EXPECT_EQ(TwiceHalf(-128), -128);
  Gemm gemm;
  gemm.m = gemm.n = 1;
  gemm.k = 2;
  gemm.a_type = INTACT_S8;
  gemm.a = {100, 0x9c};  // −100
  gemm.a_zero_point = 7;
  gemm.b = {127, 5};
  gemm.bias_s32 = {1};
  EXPECT_EQ(Accumulators(gemm, {.sum = Summation::kHalvedWeights})[0], 93 * 128 - 107 * 4 + 1);
}

TEST(MovedSigns, LeaveMinus128AsItIs) {
  Gemm gemm;
  gemm.m = gemm.n = 1;
  gemm.k = 2;
  gemm.a_type = INTACT_S8;
  gemm.a = {0xfd, 5};  // −3
  gemm.b = {-128, 127};
  gemm.a_zero_point = 11;
  Model model = Model::kMaddubs;
  model.signs = Signs::kMoved;
  const int32_t exact = Accumulators(gemm, Model::kExact)[0];
  EXPECT_EQ(Accumulators(gemm, model)[0], exact - 2 * 3 * 128);
}

TEST(UnsignedWeights, AreShiftedInsteadOfActivations) {
  Gemm gemm;
  gemm.m = gemm.n = 1;
  gemm.k = 2;
  gemm.a = {255, 255};  // 127 and 127
  gemm.b = {127, 127};  // 255 and 255: 64770
  Model model = Model::kMaddubs;
  model.signs = Signs::kUnsignedWeights;
  EXPECT_EQ(Accumulators(gemm, model)[0], 64770 - 64770 + 32767);
  gemm.b = {-128, -128};  // 0 and 0
  EXPECT_EQ(Accumulators(gemm, model)[0], -2 * 255 * 128);
}

// The model's predictions equal the functions that compute whole operations.
TEST(Predict, IsWhatTheReferenceComputes) {
  for (const char* line :
       {"gemm u8s8u8 m=5 n=9 k=33 za=3 fill=bait", "gemm s8u8f32 m=5 n=9 k=33 zb=9 bias=f32 res=f32",
        "gemm u8s8bf16 m=5 n=9 k=33 batch=3 runtimeb=yes scale=item",
        "gemm u8s8f32 m=5 n=9 k=33 quant=dynamic_rows bias=f32"}) {
    const Gemm gemm = verify::MaterializeGemm(tests::Parsed(line));
    for (const Model& model : {Model::kExact, Model::kMaddubs}) {
      EXPECT_EQ(Predict(gemm, {model}), Outputs(gemm, Accumulators(gemm, model))) << line;
    }
  }
  for (const char* line : {"conv u8s8s32 in=5x6 c=3 o=4 kernel=3x3 pad=1x1 za=3 fill=bait batch=2",
                           "conv s8s8u8 in=5x6 c=6 o=4 kernel=3x2 groups=2 za=-3 scale=channel res=u8"}) {
    const Conv conv = verify::MaterializeConv(tests::Parsed(line));
    for (const Model& model : {Model::kExact, Model::kMaddubs}) {
      EXPECT_EQ(Predict(conv, {model}), Outputs(conv, Accumulators(conv, model))) << line;
    }
  }
}

// ----- roundings ------------------------------------------------------------------------------------------

Requantization Scaled(intact_type c_type, float scale) {
  Requantization q;
  q.c_type = c_type;
  q.scale = scale;
  return q;
}

int32_t Int8(int32_t y, const Requantization& q, Rounding rounding) {
  uint8_t element = 0;
  StoreRounded(y, q, {1.0f, q.scale}, rounding, &element);
  return core::DecodeInt8(q.c_type, element);
}

float Float(int32_t y, const Requantization& q, const Scales& scales, Rounding rounding) {
  float element = 0;
  uint8_t bytes[sizeof element];
  StoreRounded(y, q, scales, rounding, bytes);
  std::memcpy(&element, bytes, sizeof element);
  return element;
}

TEST(Rounding, OfTies) {
  const Requantization q = Scaled(INTACT_S8, 0.5f);
  const auto rounded = [&](Rounding rounding) {
    std::vector<int32_t> values;
    for (const int32_t y : {-5, -3, 3, 5}) values.push_back(Int8(y, q, rounding));
    return values;
  };
  using Values = std::vector<int32_t>;
  EXPECT_EQ(rounded(Rounding::kContract), (Values{-2, -2, 2, 2}));
  EXPECT_EQ(rounded(Rounding::kHalfUp), (Values{-2, -1, 2, 3}));
  EXPECT_EQ(rounded(Rounding::kHalfAway), (Values{-3, -2, 2, 3}));
  EXPECT_EQ(rounded(Rounding::kTruncation), (Values{-2, -1, 1, 2}));
  EXPECT_EQ(rounded(Rounding::kGemmlowp), (Values{-2, -1, 2, 3}));
  EXPECT_EQ(rounded(Rounding::kFixedPoint), (Values{-2, -1, 2, 3}));
}

TEST(Rounding, OfFixedPointOnceAndTwice) {
  // The doubled product's high half is 20.5, rounded up to 21. Half of that is 10.5, rounded to 11.
  Requantization q = Scaled(INTACT_S8, 0.25f);
  EXPECT_EQ(Int8(41, q, Rounding::kGemmlowp), 11);
  EXPECT_EQ(Int8(41, q, Rounding::kFixedPoint), 10);
  EXPECT_EQ(Int8(-41, q, Rounding::kGemmlowp), -10);
  EXPECT_EQ(Int8(-42, q, Rounding::kGemmlowp), -11);  // −21, −10.5
  q.scale = 0.375f;                                   // 0.75/2: 27·0.75 = 20.25 → 20 → 10; 10.125
  EXPECT_EQ(Int8(27, q, Rounding::kGemmlowp), 10);
  EXPECT_EQ(Int8(26, q, Rounding::kGemmlowp), 10);    // 19.5 → 20 → 10; 9.75
  EXPECT_EQ(Int8(30, q, Rounding::kGemmlowp), 12);    // 22.5 → 23 → 11.5 → 12
  EXPECT_EQ(Int8(30, q, Rounding::kFixedPoint), 11);  // 11.25
  q.scale = 3.0f;
  EXPECT_EQ(Int8(-7, q, Rounding::kGemmlowp), -21);
  EXPECT_EQ(Int8(-7, q, Rounding::kFixedPoint), -21);
  q.scale = 0x1p-120f;
  EXPECT_EQ(Int8(1 << 30, q, Rounding::kGemmlowp), 0);
  EXPECT_EQ(Int8(-(1 << 30), q, Rounding::kFixedPoint), 0);
}

TEST(Rounding, OfZeroPointsBiasesAndScales) {
  Requantization q = Scaled(INTACT_U8, 0.5f);
  q.zero_point = 3;
  EXPECT_EQ(Int8(5, q, Rounding::kContract), 5);
  EXPECT_EQ(Int8(5, q, Rounding::kZeroPointFirst), 6) << "5.5, to even";

  q = Scaled(INTACT_U8, 0.25f);
  q.has_bias_f32 = true;
  q.bias_f32 = 0.3f;                                 // 1.2 in units of the accumulator
  EXPECT_EQ(Int8(9, q, Rounding::kContract), 3);     // 2.55
  EXPECT_EQ(Int8(9, q, Rounding::kBiasRounded), 2);  // 2.5
  EXPECT_EQ(Int8(9, q, Rounding::kFixedPoint), 3);   // half up

  q = Scaled(INTACT_F32, 1.0f + 0x1p-23f);
  q.has_bias_f32 = true;
  q.bias_f32 = -3.0f;
  const Scales scales = {1.0f, q.scale};
  EXPECT_EQ(Float(3, q, scales, Rounding::kContract), 0x1p-21f);  // 3 + 3·2⁻²³ lies between floats
  EXPECT_EQ(Float(3, q, scales, Rounding::kFused), 3 * 0x1p-23f);
  EXPECT_EQ(Float(3, q, scales, Rounding::kBiasFirst), 0x1p-22f * q.scale);

  q = Scaled(INTACT_F32, 1.1f * 1.3f);
  const float row_first = 7.0f * 1.1f * 1.3f;
  const float column_first = 7.0f * 1.3f * 1.1f;
  EXPECT_EQ(Float(7, q, {1.1f, 1.3f}, Rounding::kRowFirst), row_first);
  EXPECT_EQ(Float(7, q, {1.1f, 1.3f}, Rounding::kColumnFirst), column_first);
}

TEST(Rounding, ReluByAFactorKeepsTheSignOfZero) {
  Requantization q = Scaled(INTACT_F32, 0.5f);
  EXPECT_EQ(Float(-3, q, {}, Rounding::kReluByFactor), -1.5f) << "without ReLU it is the contract";
  q.post_ops.Add(core::Relu{});
  EXPECT_EQ(Float(3, q, {}, Rounding::kReluByFactor), 1.5f);
  EXPECT_FALSE(std::signbit(Float(0, q, {}, Rounding::kReluByFactor)));
  EXPECT_TRUE(std::signbit(Float(-3, q, {}, Rounding::kReluByFactor)));
  EXPECT_FALSE(std::signbit(Float(-3, q, {}, Rounding::kContract)));
}

TEST(Rounding, TakesDenormalsForZeros) {
  const Requantization tiny = Scaled(INTACT_F32, 0x1p-140f);
  EXPECT_EQ(Float(-(1 << 20), tiny, {}, Rounding::kContract), -0x1p-120f);
  EXPECT_EQ(Float(-(1 << 20), tiny, {}, Rounding::kFlushed), 0.0f);
  EXPECT_TRUE(std::signbit(Float(-(1 << 20), tiny, {}, Rounding::kFlushed)));
  const Requantization small = Scaled(INTACT_F32, 0x1p-20f);
  EXPECT_EQ(Float(3, small, {0x1p100f, 0x1p-120f}, Rounding::kFlushed), 3 * 0x1p-20f);
  EXPECT_EQ(Float(3, small, {0x1p110f, 0x1p-130f}, Rounding::kFlushed), 0.0f) << "of a factor";
  Requantization biased = Scaled(INTACT_F32, 0x1p-126f);
  biased.has_bias_f32 = true;
  biased.bias_f32 = -0x1.8p-126f;
  EXPECT_EQ(Float(1, biased, {}, Rounding::kContract), -0x1p-127f);
  EXPECT_EQ(Float(1, biased, {}, Rounding::kFlushed), 0.0f) << "a sum";
  biased.bias_f32 = 0x1p-127f;
  EXPECT_EQ(Float(1, biased, {}, Rounding::kFlushed), 0x1p-126f) << "a bias";
}

TEST(Rounding, OfOtherTypes) {
  uint8_t bytes[4];
  StoreRounded((1 << 24) + 1, Scaled(INTACT_S32, 1.0f), {}, Rounding::kThroughFloat, bytes);
  int32_t y = 0;
  std::memcpy(&y, bytes, sizeof y);
  EXPECT_EQ(y, 1 << 24);
  const Requantization q = Scaled(INTACT_BF16, 1.0f);
  uint16_t bits = 0;
  for (const auto& [rounding, expected] : {std::pair{Rounding::kContract, 0x4380},
                                           {Rounding::kTruncation, 0x4380},
                                           {Rounding::kHalfAway, 0x4381}}) {
    StoreRounded(257, q, {}, rounding, bytes);  // 256 or 258
    std::memcpy(&bits, bytes, sizeof bits);
    EXPECT_EQ(bits, expected) << ToString(rounding);
  }
}

TEST(Rounding, TwiceToHalfFloats) {
  Requantization q = Scaled(INTACT_BF16, 0.75f);
  const auto bits = [&](int32_t y, const Scales& scales, Rounding rounding) {
    uint8_t bytes[4];
    StoreRounded(y, q, scales, rounding, bytes);
    return core::Decode(INTACT_BF16, bytes);
  };
  // 257·¾ = 192.75 becomes 193. 257 becomes 256, and 256·¾ is 192.
  EXPECT_EQ(bits(257, {1.0f, 0.75f}, Rounding::kContract), 193.0);
  EXPECT_EQ(bits(257, {1.0f, 0.75f}, Rounding::kEachStep), 192.0);
  q = Scaled(INTACT_BF16, 1.125f);
  EXPECT_EQ(bits(175, {0.75f, 1.5f}, Rounding::kContract), 197.0);  // 196.875
  EXPECT_EQ(bits(175, {0.75f, 1.5f}, Rounding::kEachStep), 196.0);  // 131.25 becomes 131, 196.5 a tie
  q = Scaled(INTACT_BF16, 1.0f);
  q.has_bias_f32 = true;
  q.bias_f32 = 0.5f;
  EXPECT_EQ(bits(257, {1.0f, 1.0f}, Rounding::kContract), 258.0);
  EXPECT_EQ(bits(257, {1.0f, 1.0f}, Rounding::kEachStep), 256.0);
  q.post_ops.Add(core::Clamp{-1.0f, 0.7509765625f});  // becomes 0.75
  EXPECT_EQ(bits(257, {1.0f, 1.0f}, Rounding::kEachStep), 0.75);
}

TEST(Rounding, TwiceToEightBits) {
  Requantization q = Scaled(INTACT_U8, 0.125f);
  EXPECT_EQ(Int8(811, q, Rounding::kContract), 101);       // 101.375
  EXPECT_EQ(Int8(811, q, Rounding::kBfloat16First), 102);  // 101.5
  EXPECT_EQ(Int8(811, q, Rounding::kFloat16First), 101);
  q = Scaled(INTACT_U8, 0x1p-6f);
  EXPECT_EQ(Int8(6495, q, Rounding::kContract), 101);      // 101.484375
  EXPECT_EQ(Int8(6495, q, Rounding::kFloat16First), 102);  // 101.5
}

TEST(Arithmetic, RefusesTextThatItDoesNotPrint) {
  EXPECT_EQ(ToString(*ParseArithmetic("maddubs, flattened depth; half away from zero")),
            "maddubs, flattened depth; half away from zero");
  for (const char* text :
       {"", "Maddubs", "exact, ", "maddubs, depths 0 apart", "maddubs, depths x apart", "maddubs; ",
        "maddubs; half", "maddubs, lanes", "maddubs, 65 lanes", "acc16 wrapping", "exact; half up; half up",
        "products16, widened every 2 pairs", "float32 sums, 3 lanes", "dpbusds, compensation last",
        // Their sums do not use the last modifier.
        "exact, compensation clamped", "exact, without padding", "maddubs, compensation first",
        "dpbusds, 2 lanes", "dpbusds, wrapping", "dpbusds, widened at the end", "products16, wrapping",
        "products16, flattened depth", "products16, depths 4 apart", "float32 sums, unsigned weights",
        "float32 sums, cut in two from 257 to 511 depths", "float32 sums, widened at the end",
        "halved weights, moved signs"}) {
    EXPECT_FALSE(ParseArithmetic(text)) << text;
  }
}

}  // namespace
}  // namespace intact::reference
