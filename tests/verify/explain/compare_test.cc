#include "verify/explain/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "verify/problem/place.h"

namespace intact::verify {
namespace {

// One output whose only pair clamps: 255·(127 + 127) = 64770.
reference::Gemm OnePair(intact_type c_type) {
  reference::Gemm gemm;
  gemm.m = gemm.n = 1;
  gemm.k = 2;
  gemm.c_type = c_type;
  gemm.a = {255, 255};
  gemm.b = {127, 127};
  if (c_type != INTACT_S32) gemm.scales = {0x1p-9f};  // 126.5 → 126, and 32767 → 63.998 → 64
  return gemm;
}

std::vector<uint8_t> Bytes(int32_t value) {
  std::vector<uint8_t> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

Cause OnlyCause(const Comparison& comparison) {
  EXPECT_EQ(comparison.differing, 1);
  EXPECT_EQ(comparison.listed.size(), 1u);
  return comparison.listed.at(0).cause;
}

TEST(Compare, FindsParity) {
  const Comparison comparison = Compare(OnePair(INTACT_S32), Bytes(64770), std::nullopt);
  EXPECT_TRUE(comparison.Parity());
  EXPECT_EQ(comparison.first_differing, -1);
  EXPECT_EQ(comparison.saturated_accumulators, 1);
  EXPECT_EQ(comparison.saturated_pairs, 1);
  EXPECT_EQ(comparison.off_maddubs, 1);
}

// Never runs.
class NoTarget : public Target {
 public:
  std::string Name() const override { return "none"; }
  Result<std::vector<uint8_t>> Run(const reference::Operation&, const RunOptions&) const override {
    return Error{INTACT_UNSUPPORTED, ""};
  }
};

// In saturating mode five outputs of six clamp, and one has no cause. ISAs with VNNI clamp nothing, so there the
// five outputs do not show saturation either: an arithmetic must explain nine wrong outputs of ten.
TEST(Compare, KnowsWhichIsasClamp) {
  reference::Gemm gemm = OnePair(INTACT_S32);
  gemm.mode = INTACT_SATURATING;
  gemm.n = 6;
  gemm.b.assign(12, 127);
  std::vector<uint8_t> output = Bytes(7654321);
  for (int i = 0; i < 5; ++i) {
    const std::vector<uint8_t> clamped = Bytes(32767);
    output.insert(output.end(), clamped.begin(), clamped.end());
  }
  const auto saturated = [&](intact_isa isa) {
    RunOptions options;
    options.isa = isa;
    const Comparison comparison = Explain(NoTarget(), gemm, options, output, 1, nullptr);
    return comparison.by_cause[static_cast<size_t>(Cause::kInt16Saturation)];
  };
  EXPECT_EQ(saturated(INTACT_ISA_AVX2), 5);
  EXPECT_EQ(saturated(INTACT_ISA_AVX512_VNNI), 0);
}

TEST(Compare, GoesItemByItem) {
  reference::Gemm batch = OnePair(INTACT_S32);
  batch.batch = 3;
  batch.has_runtime_b = true;
  batch.a = {1, 2, 3, 4, 5, 6};
  batch.b = {1, 1, 2, 2, 4, 4};  // 3, 14, 44
  std::vector<uint8_t> actual;
  for (const int32_t y : {3, 28, 43}) {
    const std::vector<uint8_t> bytes = Bytes(y);
    actual.insert(actual.end(), bytes.begin(), bytes.end());
  }
  const Comparison comparison = Compare(batch, actual, std::nullopt);
  EXPECT_EQ(comparison.outputs, 3);
  EXPECT_EQ(comparison.differing, 2);
  EXPECT_EQ(comparison.first_differing, 1);
  ASSERT_EQ(comparison.listed.size(), 2u);
  EXPECT_EQ(PlaceOf(comparison, comparison.listed[0]), "item 1 m 0 n 0");
  EXPECT_THAT(comparison.listed[0].detail, testing::HasSubstr("B of item 2 taken for that of item 1"));
  EXPECT_EQ(PlaceOf(comparison, comparison.listed[1]), "item 2 m 0 n 0");
}

TEST(Compare, AttributesSaturationToItsPair) {
  const Comparison comparison = Compare(OnePair(INTACT_S32), Bytes(32767), std::nullopt);
  EXPECT_EQ(OnlyCause(comparison), Cause::kInt16Saturation);
  EXPECT_EQ(comparison.max_abs_difference, 64770 - 32767);
  EXPECT_EQ(comparison.off_maddubs, 0);
  EXPECT_EQ(comparison.Explained(), 1);
  const Difference& difference = comparison.listed[0];
  EXPECT_EQ(difference.hypothesis, "the arithmetic of all outputs");
  EXPECT_EQ(difference.pair_count, 1);
  ASSERT_EQ(difference.pairs.size(), 1u);
  EXPECT_EQ(difference.pairs[0].k, 0);
  EXPECT_EQ(difference.pairs[0].true_sum, 64770);
  EXPECT_EQ(difference.pairs[0].clamped_sum, 32767);
}

// Depths 0 and 2 form a pair that clamps. Adjacent depths do not.
reference::Gemm PairTwoApart(intact_type c_type) {
  reference::Gemm gemm = OnePair(c_type);
  gemm.k = 4;
  gemm.a = {255, 1, 255, 1};
  gemm.b = {127, 1, 127, 1};  // 64772; 32769 if pairs are two apart
  return gemm;
}

TEST(Compare, NamesPairsOtherThanAdjacentOnes) {
  const Comparison comparison = Compare(PairTwoApart(INTACT_S32), Bytes(32769), std::nullopt);
  EXPECT_EQ(OnlyCause(comparison), Cause::kInt16Saturation);
  const Difference& difference = comparison.listed[0];
  EXPECT_EQ(difference.detail,
            "accumulator 32769 instead of 64772: pairs of depths 2 apart clamped to int16 (maddubs, depths 2 "
            "apart)");
  ASSERT_EQ(difference.pairs.size(), 1u);
  EXPECT_EQ(difference.pairs[0].k, 0);
  EXPECT_EQ(difference.pairs[0].k1, 2);
  EXPECT_EQ(difference.pairs[0].clamped_sum, 32767);
  EXPECT_EQ(comparison.off_maddubs, 1);
}

TEST(Compare, NamesPairsThatCrossTaps) {
  reference::Conv
      conv;  // two taps of a pixel each, three channels: the third and the fourth depth are a pair
  conv.geometry.dims = 1;
  conv.geometry.axes[2].input = conv.geometry.axes[2].kernel = 2;
  conv.geometry.input_channels = 3;
  conv.a = {1, 1, 255, 255, 1, 1};
  conv.b = {1, 1, 127, 127, 1, 1};
  const Comparison comparison = Compare(conv, Bytes(4 + 32767), std::nullopt);
  EXPECT_EQ(OnlyCause(comparison), Cause::kInt16Saturation);
  const Difference& difference = comparison.listed[0];
  EXPECT_THAT(difference.detail, ::testing::HasSubstr("that cross taps"));
  ASSERT_EQ(difference.pairs.size(), 1u);
  EXPECT_EQ(PairPlace(comparison.conv, 0, difference.pairs[0].k, difference.pairs[0].k1),
            "tap kw 0, channel 2 and tap kw 1, channel 0");
}

// An 8-bit output that some arithmetic explains may be chance. With its accumulator, or among many outputs,
// it is not.
TEST(Compare, BelievesNoExplanationOfAFewBytes) {
  const reference::Gemm one = PairTwoApart(INTACT_U8);  // 64772 gives 127, 32769 gives 64
  EXPECT_EQ(OnlyCause(Compare(one, {64}, std::nullopt)), Cause::kImplementationError);
  EXPECT_EQ(OnlyCause(Compare(one, {64}, {{32769}})), Cause::kInt16Saturation);
  reference::Gemm many = one;
  many.n = 10;
  many.b.clear();
  for (const int8_t weight : one.b) many.b.insert(many.b.end(), 10, weight);
  const Comparison comparison = Compare(many, std::vector<uint8_t>(10, 64), std::nullopt);
  EXPECT_EQ(comparison.by_cause[static_cast<size_t>(Cause::kInt16Saturation)], 10);
}

TEST(Compare, DistinguishesClampedSumsFromTheirRounding) {
  reference::Gemm gemm = OnePair(INTACT_U8);
  gemm.m = 12;
  gemm.scales = {0x1p-8f};
  gemm.a = {255, 255};  // 64770 gives 253; clamped, 32767 gives 127.996
  std::vector<uint8_t> actual = {128};
  for (int i = 1; i < 12; ++i) {
    gemm.a.insert(gemm.a.end(), {64, 64});  // 16256 gives 63.5, rounded to even
    actual.push_back(63);
  }
  const Comparison comparison = Compare(gemm, actual, std::nullopt);
  EXPECT_EQ(comparison.by_cause[static_cast<size_t>(Cause::kInt16Saturation)], 1);
  EXPECT_EQ(comparison.by_cause[static_cast<size_t>(Cause::kRequantization)], 11);
}

// If no arithmetic explains all outputs, each output gets its own cause.
TEST(Compare, TriesTheCausesOfOneOutputInOrder) {
  reference::Gemm gemm = OnePair(INTACT_U8);
  gemm.m = 6;
  gemm.scales = {0x1p-8f};
  gemm.a = {255, 255, 255, 255, 64, 64, 1, 1, 1, 1, 1, 1};
  // 253, or 128 if the pair clamps; 63.5, rounded to even or not; 0.99 each.
  const Comparison comparison = Compare(gemm, {128, 253, 63, 1, 1, 1}, std::nullopt);
  EXPECT_EQ(comparison.differing, 2);
  ASSERT_EQ(comparison.listed.size(), 2u);
  EXPECT_EQ(comparison.listed[0].hypothesis, "adjacent pairs");
  EXPECT_THAT(comparison.listed[0].detail, testing::HasSubstr("; consistent with 1 of 2 wrong outputs"));
  EXPECT_EQ(comparison.listed[1].hypothesis, "another rounding");
  EXPECT_THAT(comparison.listed[1].detail, testing::HasSubstr("; consistent with 1 of 2 wrong outputs"));
  // If an output has no cause, what explains a few of the others explains them by chance.
  const Comparison with_another = Compare(gemm, {128, 253, 63, 1, 77, 1}, std::nullopt);
  EXPECT_EQ(with_another.Unexplained(), 3);
  ASSERT_EQ(with_another.listed.size(), 3u);
  for (const Difference& difference : with_another.listed) {
    EXPECT_EQ(difference.cause, Cause::kImplementationError);
  }
  EXPECT_THAT(with_another.listed[0].detail,
              testing::HasSubstr("consistent with 1 of 3 wrong outputs: pairs of adjacent"));
}

TEST(Compare, KnowsTheSaturatingSumOfOneOutput) {
  reference::Gemm gemm;
  gemm.m = 2;
  gemm.n = 1;
  gemm.k = 66572;
  gemm.a.assign(static_cast<size_t>(gemm.k), 255);
  gemm.a.resize(static_cast<size_t>(2 * gemm.k), 1);
  gemm.b.assign(static_cast<size_t>(gemm.k), 127);
  gemm.bias_s32 = {-66572 * 127 * 20};  // brings the sum 66572·255·127 back into int32
  gemm.c_type = INTACT_U8;
  gemm.scales = {0x1p-23f};
  // 236.85 and a negative number; 235.84 if the sum of products is clamped.
  const Comparison comparison = Compare(gemm, {236, 0}, std::nullopt);
  ASSERT_EQ(comparison.listed.size(), 1u);
  EXPECT_EQ(comparison.listed[0].cause, Cause::kInt32Overflow);
  EXPECT_EQ(comparison.listed[0].hypothesis, "VPDPBUSDS");
}

TEST(Compare, NamesReducedWeights) {
  reference::Gemm gemm = OnePair(INTACT_S32);
  gemm.a_type = INTACT_S8;
  gemm.a = {100, 3};
  gemm.b = {127, 5};  // 128 and 4
  const Comparison comparison = Compare(gemm, Bytes(12800 + 12), std::nullopt);
  EXPECT_EQ(OnlyCause(comparison), Cause::kReducedWeights);
  EXPECT_THAT(comparison.listed[0].detail, ::testing::HasSubstr("weights halved and rounded"));
}

TEST(Compare, ASumBetweenTheModelsIsUnexplained) {
  EXPECT_EQ(OnlyCause(Compare(OnePair(INTACT_S32), Bytes(32768), std::nullopt)), Cause::kImplementationError);
}

TEST(Compare, AKnownAccumulatorOverrulesACoincidence) {
  const reference::Gemm gemm = OnePair(INTACT_U8);
  EXPECT_EQ(OnlyCause(Compare(gemm, {64}, std::nullopt)), Cause::kInt16Saturation);
  EXPECT_EQ(OnlyCause(Compare(gemm, {64}, {{32767}})), Cause::kInt16Saturation);
  EXPECT_EQ(OnlyCause(Compare(gemm, {64}, {{32700}})), Cause::kImplementationError);
  const Comparison exact = Compare(gemm, {64}, {{64770}});
  EXPECT_EQ(OnlyCause(exact), Cause::kImplementationError);
  EXPECT_THAT(exact.listed[0].detail, ::testing::HasSubstr("accumulator right, requantization wrong"));
}

TEST(Compare, NamesTheOtherRounding) {
  reference::Gemm gemm = OnePair(INTACT_U8);
  gemm.b = {1, 1};  // 510
  gemm.scales = {0.25f};
  EXPECT_TRUE(Compare(gemm, {128}, std::nullopt).Parity());  // 127.5 to even
  const Comparison truncated = Compare(gemm, {127}, {{510}});
  EXPECT_EQ(OnlyCause(truncated), Cause::kRequantization);
  EXPECT_EQ(truncated.listed[0].detail, "truncation");
  EXPECT_EQ(truncated.listed[0].hypothesis, "the arithmetic of all outputs");
  EXPECT_EQ(OnlyCause(Compare(gemm, {127}, {{509}})), Cause::kImplementationError);
  gemm.b = {1, 0};
  gemm.scales = {0.5f};  // 127.5 again, to 128
  gemm.a = {253, 0};     // 126.5 to even: 126
  EXPECT_TRUE(Compare(gemm, {126}, std::nullopt).Parity());
  EXPECT_EQ(Compare(gemm, {127}, {{253}}).listed.at(0).detail, "half up, or one of 4 other roundings");
}

TEST(Compare, NamesFusedMultiplyAddInFloatOutputs) {
  reference::Gemm gemm = OnePair(INTACT_F32);
  gemm.scales = {1.0f + 0x1p-23f};
  gemm.bias_f32 = {-(64770.0f * gemm.scales[0])};
  const float fused = std::fma(64770.0f, gemm.scales[0], gemm.bias_f32[0]);
  int32_t bits = 0;
  std::memcpy(&bits, &fused, sizeof bits);
  const Comparison comparison = Compare(gemm, Bytes(bits), {{64770}});
  EXPECT_EQ(OnlyCause(comparison), Cause::kRequantization);
  EXPECT_EQ(comparison.listed[0].detail, "fused multiply-add, or double precision");
}

// If the exact sum exceeds int32, the oracle continues in 64 bits. A target that does so is right, one that
// wraps is not.
TEST(Compare, ReportsSumsThatLeaveInt32) {
  reference::Gemm gemm;
  gemm.m = 1;
  gemm.n = 2;
  gemm.k = 66572;  // 66572·255·127 = 2155934220
  gemm.a.assign(static_cast<size_t>(gemm.k), 255);
  gemm.b.assign(static_cast<size_t>(2 * gemm.k), 127);
  for (int64_t k = 0; k < gemm.k; ++k) gemm.b[static_cast<size_t>(2 * k + 1)] = 1;  // column 1 stays small
  const int64_t sum = int64_t{66572} * 255 * 127;
  const auto wrapped = static_cast<int32_t>(static_cast<uint32_t>(sum));
  gemm.c_type = INTACT_U8;
  gemm.scales = {1e-7f};
  const Comparison right = Compare(gemm, {216, 2}, std::nullopt);
  EXPECT_EQ(right.differing, 0);
  const Comparison wraps = Compare(gemm, {0, 2}, std::nullopt);
  EXPECT_EQ(wraps.differing, 1);
  EXPECT_EQ(OnlyCause(wraps), Cause::kInt32Overflow);
  EXPECT_EQ(wraps.listed.at(0).detail, "the exact sum 2155934220 leaves int32");
  EXPECT_EQ(wraps.listed.at(0).expected, 216);

  gemm.c_type = INTACT_S32;  // no value is right, whatever the target does
  gemm.scales.clear();
  const int32_t small = 66572 * 255;
  for (const int32_t value : {wrapped, std::numeric_limits<int32_t>::max()}) {
    std::vector<uint8_t> bytes(8);
    std::memcpy(bytes.data(), &value, 4);
    std::memcpy(bytes.data() + 4, &small, 4);
    const Comparison comparison = Compare(gemm, bytes, std::nullopt);
    EXPECT_EQ(comparison.differing, 1);
    EXPECT_EQ(OnlyCause(comparison), Cause::kInt32Overflow);
    EXPECT_EQ(comparison.listed.at(0).expected, static_cast<double>(sum));
  }
}

TEST(Compare, NamesAFloatRoundTripOfS32Outputs) {
  reference::Gemm gemm = OnePair(INTACT_S32);
  gemm.bias_s32 = {(1 << 24) + 1};
  const int32_t exact = 64770 + (1 << 24) + 1;
  const Comparison comparison = Compare(gemm, Bytes(exact + 1), std::nullopt);
  EXPECT_EQ(OnlyCause(comparison), Cause::kFloatSums);
  EXPECT_EQ(comparison.listed[0].detail, "float round trip");
}

TEST(Compare, ListsAFewAndCountsAll) {
  reference::Gemm gemm;
  gemm.m = 20;
  gemm.n = 10;
  gemm.k = 1;
  gemm.a.assign(20, 1);
  gemm.b.assign(10, 1);
  const Comparison comparison = Compare(gemm, std::vector<uint8_t>(800, 0x7f), std::nullopt);
  EXPECT_EQ(comparison.differing, 200);
  EXPECT_EQ(comparison.Unexplained(), 200);
  EXPECT_EQ(std::ssize(comparison.listed), kMaxDifferencesListed);
}

TEST(CompareBytes, KnowsTheTypes) {
  EXPECT_EQ(CompareBytes(INTACT_U8, {0, 255}, {0, 0}).max_abs_difference, 255);
  EXPECT_EQ(CompareBytes(INTACT_S8, {0, 255}, {0, 0}).max_abs_difference, 1);
  EXPECT_EQ(CompareBytes(INTACT_S8, {0, 255}, {0, 0}).first_differing, 1);
  EXPECT_EQ(CompareBytes(INTACT_S32, Bytes(-5), Bytes(7)).max_abs_difference, 12);
  // −0.0 and +0.0 differ in bytes, although nothing lies between them. NaN is infinitely far.
  EXPECT_EQ(CompareBytes(INTACT_F32, Bytes(0), Bytes(std::numeric_limits<int32_t>::min())).differing, 1);
  EXPECT_TRUE(std::isinf(CompareBytes(INTACT_F32, Bytes(0), Bytes(0x7fc00000)).max_abs_difference));
}

TEST(SaturatedPairs, SeesSignedActivationsAfterTheShift) {
  reference::Gemm gemm = OnePair(INTACT_S32);
  gemm.a_type = INTACT_S8;
  gemm.a = {127, 0x80};  // 127 and −128: 255 and 0 after the shift
  EXPECT_TRUE(SaturatedPairs(gemm, 0, 0).empty());
  gemm.a = {127, 64};  // 255 and 192
  const std::vector<SaturatedPair> pairs = SaturatedPairs(gemm, 0, 0);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].a1, 192);
  EXPECT_EQ(pairs[0].true_sum, 127 * (255 + 192));
}

// A target with outputs of the wrong size.
class ShortTarget : public Target {
 public:
  std::string Name() const override { return "short"; }
  Result<std::vector<uint8_t>> Run(const reference::Operation&, const RunOptions&) const override {
    return std::vector<uint8_t>(3);
  }
};

TEST(RunChecked, RefusesAnOutputOfAnotherSize) {
  const Result<std::vector<uint8_t>> output = RunChecked(ShortTarget(), OnePair(INTACT_S32), {});
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().message, "target short gave 3 bytes of output; expected 4");
}

}  // namespace
}  // namespace intact::verify
