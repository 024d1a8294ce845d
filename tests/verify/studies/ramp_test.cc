#include "verify/studies/ramp.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/models/models.h"
#include "tests/support/require_isas.h"
#include "verify/studies/saturation_map.h"

namespace intact::verify {
namespace {

using reference::Model;

Layer Golden(const std::string& name) {
  const Result<Layer> layer = ReadLayer(INTACT_TEST_DATA "/torch-layers/" + name);
  EXPECT_TRUE(layer);
  return *layer;
}

std::vector<uint8_t> ModelOutputs(const Layer& layer, Model model) {
  return reference::Outputs(layer.gemm(), reference::Accumulators(layer.gemm(), model));
}

// Outputs that PyTorch itself computed.
TEST(Ramp, FindsTheKinksOfPyTorchOnAvx2) {
  const Layer layer = Golden("u8_ramp_64x10");
  const auto saturating = ReadExpected(layer, "output_avx2.npy");
  const auto exact = ReadExpected(layer, "output_onednn.npy");
  ASSERT_TRUE(saturating && exact);
  const Ramp ramp = FindKinks(layer, *saturating);
  EXPECT_GT(ramp.NonMonotonic(), 0);
  EXPECT_EQ(ramp.Unexplained(), 0);
  for (const Kink& kink : ramp.kinks) EXPECT_FALSE(kink.pairs.empty());
  EXPECT_EQ(FindKinks(layer, *exact).NonMonotonic(), 0);

  const Layer reduced = Golden("u7_ramp_64x10");
  EXPECT_EQ(FindKinks(reduced, *ReadExpected(reduced, "output_avx2.npy")).NonMonotonic(), 0);
}

TEST(Ramp, AKinkThatNoPairMakesIsUnexplained) {
  const Layer layer = BuiltinLayers()[1];
  std::vector<uint8_t> output = ModelOutputs(layer, Model::kExact);
  EXPECT_TRUE(FindKinks(layer, output).Passed());
  output[500] = static_cast<uint8_t>(output[500] ^ 64);
  const Ramp ramp = FindKinks(layer, output);
  EXPECT_GT(ramp.Unexplained(), 0);
  EXPECT_FALSE(ramp.Passed());
}

// A kernel that clamps in exact mode is wrong, even if the model explains it.
TEST(Ramp, SaturationDoesNotPassInExactMode) {
  const Layer layer = BuiltinLayers()[0];
  Ramp ramp = FindKinks(layer, ModelOutputs(layer, Model::kMaddubs));
  EXPECT_EQ(ramp.Unexplained(), 0);
  ramp.isa = INTACT_ISA_AVX2;
  ramp.mode = INTACT_SATURATING;
  EXPECT_TRUE(ramp.Passed());
  ramp.mode = INTACT_EXACT;
  EXPECT_FALSE(ramp.Passed());
}

TEST(Ramp, BuiltinLayersShowWhatHelps) {
  std::vector<int64_t> kinks;
  for (const Layer& layer : BuiltinLayers()) {
    kinks.push_back(FindKinks(layer, ModelOutputs(layer, Model::kMaddubs)).NonMonotonic());
    EXPECT_EQ(FindKinks(layer, ModelOutputs(layer, Model::kExact)).NonMonotonic(), 0);
  }
  EXPECT_THAT(kinks, testing::ElementsAre(testing::Gt(0), 0, 0, testing::Gt(0)));
}

TEST(Ramp, AnyLayerCanBeProbed) {
  const Result<Layer> ramp = AsRamp(Golden("u8_11"));
  ASSERT_TRUE(ramp);
  EXPECT_EQ(ramp->gemm().m, 256);
  EXPECT_EQ(FindKinks(*ramp, ModelOutputs(*ramp, Model::kExact)).NonMonotonic(), 0);
  Layer crooked = Golden("u8_ramp_64x10");
  crooked.gemm().a[64 * 7 + 3] ^= 1;
  EXPECT_THAT(AsRamp(crooked).error().message, testing::HasSubstr("row 7 is not constant"));
}

TEST(Ramp, RunsOnTheLibrary) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const Layer layer = Golden("u8_ramp_64x10");
  const Result<Ramp> saturating = RunRamp(layer, INTACT_SATURATING, INTACT_ISA_AVX2);
  const Result<Ramp> exact = RunRamp(layer, INTACT_EXACT, INTACT_ISA_AVX2);
  ASSERT_TRUE(saturating && exact);
  EXPECT_GT(saturating->NonMonotonic(), 0);
  EXPECT_TRUE(saturating->Passed());
  EXPECT_EQ(exact->NonMonotonic(), 0);
}

TEST(SaturationMap, HasABoundary) {
  const Result<SaturationMap> map = MapSaturation();
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_TRUE(map->Agrees());
  EXPECT_EQ(map->measured, intact_isa_available(INTACT_ISA_AVX2) != 0);
  for (const SaturationCell& cell : map->cells) {
    const Problem& problem = cell.problem;
    EXPECT_EQ(cell.measured.value_or(cell.predicted), cell.predicted) << problem.ToString();
    EXPECT_EQ(cell.witness.has_value(), cell.predicted > 0);
    if (problem.amax <= 127 || problem.wmax <= 64) {
      EXPECT_EQ(cell.predicted, 0) << problem.ToString();
    }
  }
  EXPECT_GT(map->cells.back().Share(), 0.5);
}

}  // namespace
}  // namespace intact::verify
