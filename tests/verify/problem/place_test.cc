#include "verify/problem/place.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"

#include <gtest/gtest.h>

#include "tests/support/expect_model.h"
#include "verify/explain/compare.h"
#include "verify/report/report_json.h"
#include "verify/report/report_terminal.h"

namespace intact::verify {
namespace {

MaybeConv Geometry(std::string_view line) { return tests::Parsed(line).conv; }

TEST(Place, OfAGemm) {
  EXPECT_EQ(OutputPlace(std::nullopt, 3, 5), "m 3 n 5");
  EXPECT_EQ(PairPlace(std::nullopt, 5, 24), "k 24");
  EXPECT_EQ(PairPlace(std::nullopt, 5, 24, 25), "k 24");
  EXPECT_EQ(PairPlace(std::nullopt, 5, 24, 28), "k 24 and 28");
}

TEST(Place, HasTheDimensionsOfTheConvolution) {
  const MaybeConv line = Geometry("conv u8s8s32 in=9 c=3 o=4 kernel=2 batch=2");
  EXPECT_EQ(OutputPlace(line, 8 + 5, 3), "n 1 ow 5 oc 3");
  EXPECT_EQ(PairPlace(line, 3, 4), "tap kw 1, channels 0 1");
  const MaybeConv plane = Geometry("conv u8s8s32 in=4x5 c=4 o=4 kernel=3x2");
  EXPECT_EQ(OutputPlace(plane, 5, 0), "n 0 oh 1 ow 1 oc 0");
  EXPECT_EQ(PairPlace(plane, 0, (2 * 2 + 1) * 4 + 2), "tap kh 2 kw 1, channels 2 3");
  const MaybeConv volume = Geometry("conv u8s8s32 in=2x3x4 c=2 o=1 kernel=2x2x2 batch=2");
  EXPECT_EQ(OutputPlace(volume, 6 + 3 + 2, 0), "n 1 od 0 oh 1 ow 2 oc 0");
  EXPECT_EQ(PairPlace(volume, 0, 12), "tap kd 1 kh 1 kw 0, channels 0 1");
}

TEST(Place, ChannelsAreThoseOfTheInput) {
  const MaybeConv groups = Geometry("conv u8s8s32 in=4x4 c=12 o=9 kernel=1x1 groups=3");
  EXPECT_EQ(PairPlace(groups, 5, 2), "tap kh 0 kw 0, channels 6 7");
}

// From the target's bytes to the text: one pair of the second group's second output channel clamps.
TEST(Place, OfAPairThatClamps) {
  reference::Conv conv;
  conv.geometry = *Geometry("conv u8s8s32 in=1x2 c=4 o=4 kernel=1x2 groups=2");
  conv.a = {0, 0, 0, 0, 0, 0, 200, 180};
  conv.b.resize(16);
  conv.b[3 * 4 + 2] = 120;
  conv.b[3 * 4 + 3] = 100;
  const std::vector<uint8_t> maddubs =
      reference::Outputs(conv, reference::Accumulators(conv, reference::Model::kMaddubs));
  const Comparison comparison = Compare(conv, maddubs, std::nullopt);
  ASSERT_EQ(comparison.differing, 1);
  const Difference& difference = comparison.listed[0];
  EXPECT_EQ(difference.cause, Cause::kInt16Saturation);
  EXPECT_EQ(Describe(difference.pairs.at(0), comparison.conv),
            "n 0 oh 0 ow 0 oc 3 tap kh 0 kw 1, channels 2 3: 200*120 + 180*100 = 42000, clamped to 32767");
  const Json json = ToJson(difference, comparison.conv);
  EXPECT_EQ(json["n"], 3);
  EXPECT_EQ(json["batch"], 0);
  EXPECT_EQ(json["output"], Json::array({0, 0}));
  EXPECT_EQ(json["pairs"][0]["tap"], Json::array({0, 1}));
  EXPECT_EQ(json["pairs"][0]["channels"], Json::array({2, 3}));
}

}  // namespace
}  // namespace intact::verify
