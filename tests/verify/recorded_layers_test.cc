// Outputs of FBGEMM on a CPU with AVX2 and without VNNI (PyTorch 2.13.0), compared with the library's
// saturating kernels with INTACT_PAIRING_FLATTENED: equal accumulators. tests/data/torch-2.13-avx2 has some
// of the layers. INTACT_RECORDED_LAYERS names a folder with more, each with output_fbgemm_avx2.npy.
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

}  // namespace
}  // namespace intact::verify
