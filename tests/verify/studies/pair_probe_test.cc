// Probing finds the pairs of the arithmetic that computed the outputs.
#include "verify/studies/pair_probe.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "reference/models/models.h"

namespace intact::verify {
namespace {

using reference::DepthOrder;
using reference::Model;
using reference::Summation;

constexpr uint64_t Bits(std::initializer_list<intact_target_feature> features) {
  uint64_t bits = 0;
  for (const intact_target_feature feature : features) bits |= INTACT_TARGET_BIT(feature);
  return bits;
}
constexpr uint64_t kU8S8 =
    Bits({INTACT_TARGET_GEMM, INTACT_TARGET_CONV_2D, INTACT_TARGET_CONV_GROUPS, INTACT_TARGET_CONV_DEPTHWISE,
          INTACT_TARGET_CONV_PADDING, INTACT_TARGET_A_ZERO_POINT, INTACT_TARGET_A_U8, INTACT_TARGET_B_S8});

// Computes by a model.
class ModelTarget : public Target {
 public:
  explicit ModelTarget(Model model, uint64_t features = kU8S8 | INTACT_TARGET_BIT(INTACT_TARGET_C_S32))
      : model_(model), features_(features) {}
  std::string Name() const override { return "a model"; }
  FeatureMasks Features() const override { return {features_, features_}; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation, const RunOptions&) const override {
    return reference::Outputs(operation, reference::Accumulators(operation, model_));
  }

 private:
  const Model model_;
  const uint64_t features_;
};

// The pairings by operation. Each operation has one combination of types.
std::map<std::string, std::string> Pairings(const Target& target) {
  std::map<std::string, std::string> pairings;
  for (const ProbedPairs& pairs : ProbePairs(target, {})) {
    const auto [place, is_new] = pairings.emplace(pairs.operation, PairingOf(pairs));
    EXPECT_TRUE(is_new || place->second == PairingOf(pairs)) << pairs.operation << " " << pairs.types;
  }
  return pairings;
}

std::map<std::string, std::string> Expected(const std::string& product, const std::string& one,
                                            const std::string& odd, const std::string& even,
                                            const std::string& padding) {
  return {{"product, 1 row", product},
          {"product, 5 rows", product},
          {"convolution 3x3, 1 channel", one},
          {"convolution 3x3, 3 channels", odd},
          {"convolution 3x3, 4 channels", even},
          {"convolution 3x3, 2 groups of 3 channels", odd},
          {"convolution 3x3, 2 groups of 2 channels", even},
          {"convolution 3x3, 2 groups of 4 channels", even},
          {"depthwise 3x3", one},
          {"depthwise 3x3, 2 outputs for each channel", one},
          {"padding, convolution 3x3, 4 channels", padding},
          {"convolution 5x5, 1 channel", one},
          {"convolution 1x4, 1 channel", one},
          {"convolution 3x3, 1 channel, wide", one},
          {"convolution 5x5, 1 channel, wide", one},
          {"convolution 1x4, 1 channel, wide", one},
          {"convolution 3x3, 3 channels, wide", odd},
          {"depthwise 3x3, wide", one},
          {"depthwise 3x3, 2 outputs for each channel, wide", one}};
}

Model Maddubs(DepthOrder order, bool skips_padding = false) {
  Model model = Model::kMaddubs;
  model.order = order;
  model.skips_padding = skips_padding;
  return model;
}

TEST(PairProbe, FindsThePairsOfEachOrder) {
  EXPECT_EQ(Pairings(ModelTarget(Model::kExact)), Expected("none", "none", "none", "none", "none"));
  EXPECT_EQ(Pairings(ModelTarget(Maddubs(DepthOrder::kTaps))),
            Expected("depths", "none", "within_tap", "within_tap_or_flattened", "multiplied"));
  EXPECT_EQ(Pairings(ModelTarget(Maddubs(DepthOrder::kTaps, true))),
            Expected("depths", "none", "within_tap", "within_tap_or_flattened", "skipped"));
  EXPECT_EQ(Pairings(ModelTarget(Maddubs(DepthOrder::kFlattened))),
            Expected("depths", "flattened", "flattened", "within_tap_or_flattened", "multiplied"));
}

TEST(PairProbe, FindsPairsOfRowsAndColumns) {
  for (const auto& [order, name] :
       {std::pair(DepthOrder::kRows, "kernel_row"), std::pair(DepthOrder::kColumns, "kernel_column")}) {
    const std::map<std::string, std::string> found = Pairings(ModelTarget(Maddubs(order)));
    for (const std::string operation : {"convolution 3x3, 1 channel", "convolution 5x5, 1 channel",
                                        "convolution 5x5, 1 channel, wide", "depthwise 3x3, wide"}) {
      EXPECT_EQ(found.at(operation), name) << operation;
    }
    EXPECT_EQ(found.at("convolution 1x4, 1 channel"), "flattened");  // one row
  }
}

TEST(PairProbe, SeesPairsBehindEveryType) {
  for (const intact_target_feature c : {INTACT_TARGET_C_S32, INTACT_TARGET_C_F32, INTACT_TARGET_C_BF16,
                                        INTACT_TARGET_C_U8, INTACT_TARGET_C_S8}) {
    const uint64_t features =
        kU8S8 | Bits({c, INTACT_TARGET_A_S8, INTACT_TARGET_B_U8, INTACT_TARGET_B_ZERO_POINT});
    EXPECT_EQ(Pairings(ModelTarget(Maddubs(DepthOrder::kFlattened), features)),
              Expected("depths", "flattened", "flattened", "within_tap_or_flattened", "multiplied"))
        << c;
  }
  // u8 weights without a zero point.
  const uint64_t features =
      Bits({INTACT_TARGET_GEMM, INTACT_TARGET_A_U8, INTACT_TARGET_B_U8, INTACT_TARGET_C_S32});
  EXPECT_EQ(Pairings(ModelTarget(Model::kMaddubs, features)).at("product, 1 row"), "depths");
}

TEST(PairProbe, ReportsOtherPairsAndOtherSums) {
  Model quads = Model::kMaddubs;
  quads.distance = 2;
  const std::vector<ProbedPairs> probed = ProbePairs(ModelTarget(quads), {});
  EXPECT_EQ(PairingOf(probed.front()), "other");
  EXPECT_EQ(InWords(probed.front()), "12 pairs: 0-2, 1-3, 4-6, 5-7, ...");
  // Every second weight is odd: 127.
  Model halved;
  halved.sum = Summation::kHalvedWeights;
  EXPECT_THAT(InWords(ProbePairs(ModelTarget(halved), {}).front()),
              testing::HasSubstr("276 sums are neither exact"));
}

TEST(PairProbe, TextJoinsTypesWithTheSamePairs) {
  const auto row = [](const std::string& types, std::vector<std::pair<int64_t, int64_t>> clamping) {
    ProbedPairs pairs;
    pairs.operation = "product, 1 row";
    pairs.types = types;
    pairs.depths = 4;
    pairs.clamping = std::move(clamping);
    return pairs;
  };
  EXPECT_EQ(ToText({row("u8s8s32", {}), row("u8s8f32", {}), row("s8s8s32", {})}),
            "  product, 1 row  u8s8 s8s8: none\n");
  EXPECT_EQ(ToText({row("u8s8s32", {{0, 1}, {2, 3}}), row("s8s8s32", {{0, 1}, {2, 3}}), row("u8s8bf16", {})}),
            "  product, 1 row  u8s8s32 s8s8s32: adjacent depths: 0-1, 2-3\n"
            "  product, 1 row  u8s8bf16: none\n");
}

// A target that refuses all problems, or fails for all.
class Refuser : public ModelTarget {
 public:
  explicit Refuser(intact_status status) : ModelTarget(Model::kExact), status_(status) {}
  Result<std::vector<uint8_t>> Run(const reference::Operation&, const RunOptions&) const override {
    return Error{status_, "not today"};
  }

 private:
  const intact_status status_;
};

TEST(PairProbe, SaysWhatWasNotRun) {
  EXPECT_EQ(InWords(ProbePairs(Refuser(INTACT_UNSUPPORTED), {}).front()), "not run: not today");
  EXPECT_EQ(InWords(ProbePairs(Refuser(INTACT_CODEGEN_FAILED), {}).front()), "FAILED: not today");
}

}  // namespace
}  // namespace intact::verify
