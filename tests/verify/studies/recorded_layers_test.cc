// Outputs of engines, recorded on a CPU with AVX2 and without VNNI: FBGEMM and oneDNN of PyTorch 2.13.0 in
// tests/data/torch-2.13-avx2, OpenVINO 2026.4.1 in tests/data/openvino-2026.4-avx2. INTACT_RECORDED_LAYERS
// names a folder with more layers.
//
// FBGEMM has the accumulators of the library's saturating kernels with INTACT_PAIRING_FLATTENED. Each engine
// has the pairs of the table of engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/engines.h"
#include "core/isas.h"
#include "reference/models/arithmetic.h"
#include "tests/support/require_isas.h"
#include "verify/explain/compare.h"
#include "verify/explain/pairing.h"
#include "verify/studies/layer.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

// The layers' folders, by name. If there is no folder: one without a name.
std::vector<std::string> LayersIn(const char* folder) {
  if (folder == nullptr) return {""};
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(folder)) folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

std::vector<int32_t> Sums(const Bytes& bytes) {
  std::vector<int32_t> sums(bytes.size() / sizeof(int32_t));
  std::memcpy(sums.data(), bytes.data(), bytes.size());
  return sums;
}

int64_t Differing(const std::vector<int32_t>& sums, const std::vector<int32_t>& others) {
  return std::ssize(sums) - std::inner_product(sums.begin(), sums.end(), others.begin(), int64_t{0},
                                               std::plus<>(), std::equal_to<>());
}

const std::string kData = INTACT_TEST_DATA "/torch-2.13-avx2";

class Fbgemm : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() {
    std::printf("%d layers, %lld sums, %lld of them clamped; %lld outputs differ, all by rounding\n", layers_,
                static_cast<long long>(outputs_), static_cast<long long>(clamped_),
                static_cast<long long>(rounded_));
    layers_ = 0;
    outputs_ = clamped_ = rounded_ = 0;
  }

  static int layers_;
  static int64_t outputs_, clamped_, rounded_;
};
int Fbgemm::layers_ = 0;
int64_t Fbgemm::outputs_ = 0;
int64_t Fbgemm::clamped_ = 0;
int64_t Fbgemm::rounded_ = 0;

// FBGEMM rounds differently, so its rounding is applied to the library's sums. The library's own outputs may
// be one off.
TEST_P(Fbgemm, HasTheSumsOfTheLibrary) {
  if (GetParam().empty()) GTEST_SKIP() << "INTACT_RECORDED_LAYERS names no folder of recorded layers";
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const Result<Layer> layer = ReadLayer(GetParam());
  ASSERT_TRUE(layer) << layer.error().message;
  if (!fs::exists(fs::path(GetParam()) / "output_fbgemm_avx2.npy")) GTEST_SKIP() << "not of FBGEMM";
  const Result<Bytes> recorded = ReadExpected(*layer, "output_fbgemm_avx2.npy");
  ASSERT_TRUE(recorded) << recorded.error().message;
  reference::Operation operation = layer->operation;
  LinearOf(operation).mode = INTACT_SATURATING;
  LinearOf(operation).pairing = INTACT_PAIRING_FLATTENED;
  RunOptions options;
  options.isa = INTACT_ISA_AVX2;
  const Result<Bytes> sums = IntactTarget().Run(AccumulatorProblem(operation), options);
  ASSERT_TRUE(sums) << sums.error().message;
  const reference::Predictor predictor(operation);
  EXPECT_EQ(Sums(*sums), predictor.Accumulators(MaddubsOf(INTACT_PAIRING_FLATTENED)));
  EXPECT_EQ(predictor.Outputs(Sums(*sums), reference::Rounding::kBiasFirst), *recorded);
  const int64_t clamped = Differing(Sums(*sums), predictor.Accumulators(reference::Model::kExact));
  if (GetParam().starts_with(kData)) {
    EXPECT_GT(clamped, 0) << "the layer shows nothing";
  }

  const Result<Bytes> output = IntactTarget().Run(operation, options);
  ASSERT_TRUE(output) << output.error().message;
  const ByteComparison bytes = CompareBytes(LinearOf(operation).c_type, *recorded, *output);
  EXPECT_LE(bytes.max_abs_difference, 1);
  ++layers_;
  outputs_ += bytes.outputs;
  clamped_ += clamped;
  rounded_ += bytes.differing;
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  return info.param.empty() ? "none" : fs::path(info.param).filename().string();
}

INSTANTIATE_TEST_SUITE_P(Data, Fbgemm, testing::ValuesIn(LayersIn(kData.c_str())), NameOf);
INSTANTIATE_TEST_SUITE_P(All, Fbgemm, testing::ValuesIn(LayersIn(std::getenv("INTACT_RECORDED_LAYERS"))),
                         NameOf);

// The table of engines against each recorded engine: the pairs of core/engines.json, with one of the known
// roundings, give the recorded bytes; if the engine has pairs, exact sums do not.
class RecordedEngine : public testing::TestWithParam<std::string> {};

bool Reproduces(const reference::Predictor& predictor, const reference::Model& model, const Bytes& recorded) {
  const std::vector<int32_t> sums = predictor.Accumulators(model);
  return std::ranges::any_of(reference::kAllRoundings, [&](reference::Rounding rounding) {
    return predictor.Outputs(sums, rounding) == recorded;
  });
}

TEST_P(RecordedEngine, HasThePairsOfTheTable) {
  if (GetParam().empty()) GTEST_SKIP() << "INTACT_RECORDED_LAYERS names no folder of recorded layers";
  const Result<Layer> layer = ReadLayer(GetParam());
  ASSERT_TRUE(layer) << layer.error().message;
  const reference::Predictor predictor(layer->operation);
  const EngineLayer as_engines_see_it = EngineLayerOf(layer->operation);
  int engines = 0;
  for (const Engine& engine : core::Engines()) {
    const std::string file = "output_" + std::string(engine.name) + "_avx2.npy";
    if (!fs::exists(fs::path(GetParam()) / file)) continue;
    ++engines;
    const Result<Bytes> recorded = ReadExpected(*layer, file);
    ASSERT_TRUE(recorded) << recorded.error().message;
    const auto pairs = core::PairsOf(engine, as_engines_see_it, core::Isa::kAvx2);
    ASSERT_TRUE(pairs);
    const auto model_of = [&](intact_engine_pairs of) {
      reference::Model model = MaddubsOf(of, as_engines_see_it.depth);
      model.skips_padding = of != INTACT_ENGINE_PAIRS_NONE && engine.skips_padding;
      return model;
    };
    EXPECT_TRUE(Reproduces(predictor, model_of(*pairs), *recorded)) << file << " " << verify::NameOf(*pairs);
    for (const intact_engine_pairs other : {INTACT_ENGINE_PAIRS_NONE, INTACT_ENGINE_PAIRS_WITHIN_TAP,
                                            INTACT_ENGINE_PAIRS_FLATTENED, INTACT_ENGINE_PAIRS_DEPTHS}) {
      const bool is_of_conv = other != INTACT_ENGINE_PAIRS_DEPTHS;
      const bool applies = other == INTACT_ENGINE_PAIRS_NONE || is_of_conv == as_engines_see_it.IsConv();
      // Other layers may have few sums that clamp, and rounding may hide these.
      if (!GetParam().starts_with(INTACT_TEST_DATA)) continue;
      const std::vector<int32_t> sums = predictor.Accumulators(model_of(other));
      if (!applies || sums == predictor.Accumulators(model_of(*pairs))) continue;
      EXPECT_FALSE(Reproduces(predictor, model_of(other), *recorded))
          << file << " not " << verify::NameOf(other);
    }
  }
  EXPECT_GT(engines, 0);
}

INSTANTIATE_TEST_SUITE_P(Data, RecordedEngine, testing::ValuesIn(LayersIn(kData.c_str())), NameOf);
INSTANTIATE_TEST_SUITE_P(OpenVino, RecordedEngine,
                         testing::ValuesIn(LayersIn(INTACT_TEST_DATA "/openvino-2026.4-avx2")), NameOf);
INSTANTIATE_TEST_SUITE_P(All, RecordedEngine,
                         testing::ValuesIn(LayersIn(std::getenv("INTACT_RECORDED_LAYERS"))), NameOf);

}  // namespace
}  // namespace intact::verify
