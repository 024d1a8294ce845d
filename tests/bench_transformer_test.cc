// What intact_bench has for transformers: GEMMs of float32 numbers that runs quantize, batches whose runs
// give B; the passes of engines around a library that has neither.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "bench/engine_passes.h"
#include "bench/peers.h"
#include "bench/report.h"
#include "bench/run.h"
#include "bench/suites.h"
#include "reference/quantize.h"
#include "tests/bench_fixtures.h"
#include "tests/require_isas.h"
#include "verify/problem.h"

namespace intact::bench {
namespace {

using reference::Model;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Shape Dynamic(int64_t m, int64_t n, int64_t k) {
  return {m, n, k, std::nullopt, std::nullopt, true};
}

constexpr Shape Batched(int64_t m, int64_t n, int64_t k, const Batch& batch) {
  return {m, n, k, std::nullopt, batch};
}

constexpr Batch kKeys = {3, INTACT_U8, true};
constexpr Batch kValues = {3, INTACT_S8, false};

TEST(Suites, Transformer) {
  int dynamic = 0;
  std::vector<std::string> batches;
  for (const Layer& layer : FindSuite("transformer")->layers) {
    const Shape& shape = layer.shape;
    if (KindOf(shape) == Kind::kDynamic) ++dynamic;
    if (KindOf(shape) == Kind::kBatch) batches.push_back(shape.ToString());
  }
  EXPECT_EQ(dynamic, 4 * 6) << "rows by weights";
  EXPECT_THAT(batches, ElementsAre("12×(128×128×64) u8×u8ᵀ", "12×(128×128×64) u8×s8ᵀ",
                                   "12×(128×64×128) u8×u8", "12×(128×64×128) u8×s8"));
}

TEST(Shape, OfABatch) {
  const Shape shape = Batched(5, 8, 16, kKeys);
  EXPECT_EQ(shape.Rows(), 15);
  EXPECT_EQ(shape.WeightBytes(), 3 * 8 * 16);
  EXPECT_EQ(shape.InputElements(), 3 * 5 * 16);
  EXPECT_DOUBLE_EQ(shape.Operations(), 2.0 * 3 * 5 * 8 * 16);
}

TEST(Case, NamesOfTransformers) {
  Case c;
  c.shape = Dynamic(1, 2, 3);
  static_cast<Format&>(c) = kByRow;
  EXPECT_EQ(c.Name(), "gemm/isa:avx2/mode:exact/weights:laplace/quant:row/c:f32/m:1/n:2/k:3");
  c.shape = Batched(1, 2, 3, kKeys);
  static_cast<Format&>(c) = kS32;
  EXPECT_EQ(c.Name(),
            "gemm/isa:avx2/mode:exact/weights:laplace/m:1/n:2/k:3/batch:3/b:run/b_type:u8/b_order:nk");
  c.shape = Batched(1, 2, 3, kValues);
  EXPECT_THAT(c.Name(), testing::EndsWith("/m:1/n:2/k:3/batch:3/b:run"));
  std::vector<std::string> formats;
  for (const Format& format : kFormats) formats.push_back(ToString(format));
  EXPECT_THAT(formats, ElementsAre("s32", "u8", "f32", "f32 by tensor", "f32 by row", "float"));
}

TEST(Case, FormatsOfTransformers) {
  Case c;
  c.shape = Dynamic(1, 2, 3);
  EXPECT_THAT(FormatsOf(c), ElementsAre(kF32, kByTensor, kByRow));
  c.peer = "onednn";
  EXPECT_THAT(FormatsOf(c), ElementsAre(kF32, kByTensor, kByRow, kFloat));
  c.shape = Batched(1, 2, 3, kValues);
  EXPECT_THAT(FormatsOf(c), ElementsAre(kS32, kF32, kFloat));
  c.shape = Batched(1, 2, 3, kKeys);
  EXPECT_THAT(FormatsOf(c), ElementsAre()) << "peers take no u8 Bs";
  c.peer = "";
  EXPECT_THAT(FormatsOf(c), ElementsAre(kS32, kF32));
}

const std::vector<Recognised> kTransformers = {
    {"static_f32", Dynamic(9, 40, 256), kF32},
    {"by_tensor", Dynamic(9, 40, 256), kByTensor},
    {"by_row", Dynamic(9, 40, 256), kByRow},
    {"float_gemm", Dynamic(9, 40, 256), kFloat},
    {"batch_s32", Batched(5, 24, 96, kKeys), kS32},
    {"batch_f32", Batched(5, 24, 96, kValues), kF32},
    {"batch_float", Batched(5, 24, 96, kValues), kFloat},
};

INSTANTIATE_TEST_SUITE_P(Transformers, Recognition, testing::ValuesIn(kTransformers),
                         [](const auto& test) { return std::string(test.param.name); });

// One scale of all rows is not taken for each row's own, nor the other way.
TEST(RecognitionOfDynamicGemms, TellsThemApart) {
  Case c;
  c.shape = Dynamic(9, 40, 256);
  const Workload workload(c);
  for (const Format& format : {kByTensor, kByRow}) {
    static_cast<Format&>(c) = format == kByRow ? kByTensor : kByRow;
    FakeContender fake(workload, c, Model::kExact);
    EXPECT_EQ(workload.Recognise(&fake, format, kBoth), std::nullopt) << ToString(format);
  }
}

// Each item has its own B, in the order that the shape tells.
TEST(RecognitionOfBatches, TellsThemApart) {
  Case c;
  c.shape = Batched(5, 24, 96, kKeys);
  const Workload workload(c);
  const reference::Gemm& gemm = workload.gemm();
  ASSERT_EQ(workload.b().size(), gemm.b.size());
  for (int64_t item = 0; item < kKeys.items; ++item) {
    for (int64_t k = 0; k < gemm.k; ++k) {
      for (int64_t n = 0; n < gemm.n; ++n) {
        const int64_t begin = item * gemm.n * gemm.k;
        ASSERT_EQ(workload.b()[static_cast<size_t>(begin + n * gemm.k + k)],
                  gemm.b[static_cast<size_t>(begin + k * gemm.n + n)]);
      }
    }
  }
  FakeContender fake(workload, c, Model::kExact);
  fake.gemm()->b.resize(gemm.b.size() / 3);
  for (int i = 0; i < 2; ++i)
    fake.gemm()->b.insert(fake.gemm()->b.end(), gemm.b.begin(), gemm.b.begin() + 24 * 96);
  EXPECT_EQ(workload.Recognise(&fake, c, kBoth), std::nullopt) << "the first item's B for all";
}

/// A problem of m×k numbers.
reference::Gemm Numbers(int64_t m, int64_t k, bool by_row) {
  verify::Problem problem;
  problem.m = m;
  problem.k = k;
  problem.n = 5;
  problem.c_type = INTACT_F32;
  problem.scale = verify::ScaleKind::kChannel;
  problem.quantization = by_row ? INTACT_QUANTIZATION_DYNAMIC_ROWS : INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  problem.numbers = verify::Numbers::kHalves;
  return verify::Materialize(problem);
}

// The passes around exact sums give the contract's bytes, of whole vectors and of what is left over.
TEST(EnginePasses, AreTheContracts) {
  for (const jit::Isa isa : {jit::Isa::kAvx2, jit::Isa::kAvx512}) {
    if (!jit::HardwareIsas().Has(isa)) continue;
    for (const bool by_row : {false, true}) {
      for (const int64_t k : {1, 15, 64, 100}) {
        SCOPED_TRACE(fmt::format("{} {} k={}", jit::ToString(isa), by_row ? "rows" : "tensor", k));
        const reference::Gemm gemm = Numbers(3, k, by_row);
        const reference::Operands operands(gemm);
        EnginePasses passes(isa, gemm.m, k, by_row, operands.column_sums, gemm.scales);
        std::vector<float> x(static_cast<size_t>(gemm.m * k));
        std::memcpy(x.data(), gemm.a_source.data(), gemm.a_source.size());
        std::vector<uint8_t> a(x.size());
        passes.Quantize(x.data(), a.data());
        EXPECT_EQ(a, gemm.a);
        reference::Gemm product = gemm;  // without zero points
        product.a_zero_points.clear();
        std::vector<int32_t> sums = reference::Accumulators(product, Model::kExact);
        passes.Dequantize(sums.data());
        const std::vector<uint8_t> expected =
            reference::Outputs(gemm, reference::Accumulators(gemm, Model::kExact));
        EXPECT_EQ(std::memcmp(sums.data(), expected.data(), expected.size()), 0);
      }
    }
  }
}

constexpr std::array kTinyLayers = {Layer{Dynamic(8, 64, 1024)}, Layer{Dynamic(1, 32, 256)},
                                    Layer{Batched(16, 32, 64, kKeys)}, Layer{Batched(16, 64, 32, kValues)}};
constexpr Suite kTinyTransformer = {"tiny transformer", "for tests", kTinyLayers};

TEST(MeasuredTransformer, IsExactAndPeersAreLabelled) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const Results results = RunTiny(kTinyTransformer);
  EXPECT_TRUE(results.AllRight()) << ToText(results);
  for (const Row& row : results.rows) {
    SCOPED_TRACE(row.isa + " " + row.shape.ToString());
    const bool can_saturate = row.isa == "avx2" || row.isa == "avx512";
    const size_t ours = row.shape.is_dynamic ? 3 : can_saturate ? 4 : 2;
    ASSERT_EQ(row.timings.size(), ours + Peers().size() * (row.shape.is_dynamic ? 4 : 3));
    for (const Timing& timing : row.timings) {
      EXPECT_TRUE(timing.IsTimed()) << timing.contender << ", " << ToString(timing.format) << ": "
                                    << timing.result;
      const bool saturates = can_saturate && timing.contender != kIntact && timing.format != kFloat;
      EXPECT_EQ(timing.result, saturates ? kSaturates : kExact)
          << timing.contender << ", " << ToString(timing.format);
      EXPECT_EQ(timing.over_static > 0, IsDynamic(timing.format.quantization));
    }
  }
}

}  // namespace
}  // namespace intact::bench
