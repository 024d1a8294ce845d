// Transformers in intact_bench: GEMMs of float32 activations that runs quantize, batches with runtime B, and
// the passes of engines around a library that has neither.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/cases/suites.h"
#include "bench/measure/measure.h"
#include "bench/measure/run.h"
#include "bench/peers/engine_passes.h"
#include "bench/peers/peers.h"
#include "bench/report/report.h"
#include "core/isas.h"
#include "jit/isa.h"
#include "reference/contract/quantize.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/bench/bench_fixtures.h"
#include "tests/support/require_isas.h"
#include "verify/problem/problem.h"

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

TEST(Format, Names) {
  std::vector<std::string> formats(kFormats.size());
  std::ranges::transform(kFormats, formats.begin(), [](const Format& format) { return ToString(format); });
  EXPECT_THAT(formats,
              ElementsAre("s32", "u8", "f32", "f32 by tensor", "f32 by row", "f32 by block", "float"));
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

// One scale for all rows and a scale for each row are not confused.
TEST(RecognitionOfDynamicGemms, DistinguishesThem) {
  Case c;
  c.shape = Dynamic(9, 40, 256);
  const Workload workload(c);
  for (const Format& format : {kByTensor, kByRow}) {
    c.format = format == kByRow ? kByTensor : kByRow;
    FakeContender fake(workload, c, Model::kExact);
    EXPECT_EQ(workload.Recognise(&fake, format, kBoth), std::nullopt) << ToString(format);
  }
}

// Each item has another B, in the shape's order.
TEST(RecognitionOfBatches, DistinguishesThem) {
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
  EXPECT_EQ(workload.Recognise(&fake, c.format, kBoth), std::nullopt) << "the first item's B for all";
}

/// A problem with m×k float32 activations.
reference::Gemm Numbers(int64_t m, int64_t k, bool by_row) {
  verify::Problem problem;
  problem.m = m;
  problem.k = k;
  problem.n = 5;
  problem.c_type = INTACT_F32;
  problem.scale = verify::ScaleKind::kChannel;
  problem.quantization = by_row ? INTACT_QUANTIZATION_DYNAMIC_ROWS : INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  problem.numbers = verify::Numbers::kHalves;
  return verify::MaterializeGemm(problem);
}

// The passes around exact sums give the contract's bytes, in whole vectors and in the tail.
TEST(EnginePasses, AreTheContracts) {
  for (const core::Isa isa : {core::Isa::kAvx2, core::Isa::kAvx512}) {
    if (!jit::HardwareIsas().Has(isa)) continue;
    for (const bool by_row : {false, true}) {
      for (const int64_t k : {1, 15, 64, 100}) {
        SCOPED_TRACE(fmt::format("{} {} k={}", core::ToString(isa), by_row ? "rows" : "tensor", k));
        const reference::Gemm gemm = Numbers(3, k, by_row);
        const reference::Operands operands(gemm);
        EnginePasses passes(isa, gemm.m, k, by_row, operands.column_sums, gemm.scales);
        std::vector<float> x(static_cast<size_t>(gemm.m * k));
        std::memcpy(x.data(), gemm.a_source.data(), gemm.a_source.size());
        std::vector<uint8_t> a(x.size());
        passes.Quantize(x.data(), a.data());
        EXPECT_EQ(a, gemm.a);
        reference::Gemm product = gemm;  // the product has no zero points
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

// Ties may round the zero point and the largest number up, to 256 together.
TEST(EnginePasses, Clamp) {
  constexpr int64_t kDepth = 80;
  std::vector<float> x(kDepth, 155.5f);
  x[1] = -99.5f;
  std::vector<uint8_t> expected(kDepth, 255);
  expected[1] = 0;
  for (const core::Isa isa : {core::Isa::kAvx2, core::Isa::kAvx512}) {
    if (!jit::HardwareIsas().Has(isa)) continue;
    EnginePasses passes(isa, 1, kDepth, false, {}, {});
    std::vector<uint8_t> a(kDepth);
    passes.Quantize(x.data(), a.data());
    EXPECT_EQ(a, expected);
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
    const size_t ours = (row.shape.is_dynamic ? 3 : 2) * (can_saturate ? 2 : 1);
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

// The longer of two formats is recognised, whatever else the machine does.
TEST(MeasuredTransformer, CostIsOverStatic) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  Case c;
  c.shape = Dynamic(2, 8, 16);
  const Workload workload(c);
  for (const Format& slow : {kF32, kByRow}) {
    std::vector<Entrant> entrants;
    for (const Format& format : {kF32, kByRow}) {
      const auto wait = [is_slow = format == slow](const uint8_t* /*a*/, uint8_t* /*c*/) {
        if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      };
      c.format = format;
      std::unique_ptr<Contender> fake = std::make_unique<FakeContender>(workload, c, Model::kExact, wait);
      entrants.push_back({c, &workload, std::move(fake)});
    }
    const Result<Row> row = MeasureRow(entrants, Seconds(0));
    ASSERT_TRUE(row) << row.error().message;
    ASSERT_TRUE(HasTiming({&*row, 1}, kIntact, kF32) && HasTiming({&*row, 1}, kIntact, kByRow));
    EXPECT_EQ(row->Find(kIntact, kF32)->over_static, 0);
    EXPECT_EQ(row->Find(kIntact, kByRow)->over_static > 1, slow == kByRow) << ToString(slow);
  }
}

/// A dynamic GEMM on one ISA, of 10 us with static quantization, and a batch for which peers take s8 Bs only.
Results MadeUpTransformer() {
  Results results = MadeUpResults();
  Row dynamic = {"avx2", Dynamic(128, 768, 768), 1, "maddubs/ymm", 30000, 1000, {}};
  dynamic.timings = {{"intact", kF32, "ours", "exact", 10, 0.01},
                     {"intact", kByTensor, "ours", "exact", 10.6, 0.01, 1.05},
                     {"intact", kByRow, "ours", "exact", 10.3, 0.01, 1.02},
                     {"onednn", kF32, "theirs", "saturates", 20, 0.02},
                     {"onednn", kByTensor, "theirs", "saturates", 31.8, 0.02, 1.59},
                     {"onednn", kByRow, "theirs", "wrong: not timed"},
                     {"onednn", kFloat, "theirs", "exact", 53, 0.02}};
  Row batch = {"avx2", Batched(128, 128, 64, kKeys), 1, "maddubs/ymm", 200, 20, {}};
  batch.timings = {
      {"intact", kS32, "ours", "exact", 100, 0.01},        {"intact", kF32, "ours", "exact", 110, 0.01},
      {"saturating", kS32, "ours", "saturates", 80, 0.01}, {"onednn", kS32, "theirs", "saturates", 150, 0.02},
      {"onednn", kF32, "theirs", "saturates", 220, 0.02},  {"onednn", kFloat, "theirs", "exact", 330, 0.02}};
  results.rows = {dynamic, batch};
  return results;
}

TEST(BenchReport, OfTransformersDerives) {
  const std::vector<Row> rows = MadeUpTransformer().rows;
  EXPECT_NEAR(*CostOf(rows[0], kByTensor), 0.05, 1e-9) << "the median of ratios, not the ratio of medians";
  EXPECT_EQ(CostOf(rows[0], kU8), std::nullopt);
  EXPECT_NEAR(*CostOf(rows[1], kF32), 0.1, 1e-9);
  EXPECT_DOUBLE_EQ(*SpeedUp(rows[0], "onednn", kByTensor), 3);
  EXPECT_DOUBLE_EQ(*SpeedUp(rows[0], "onednn", kFloat), 5) << "beside what takes float32 too";
  EXPECT_DOUBLE_EQ(*SpeedUp(rows[1], "onednn", kFloat), 3) << "beside what gives float32 too";
  std::vector<std::string> groups;
  for (const Group& group : GroupsOf(rows)) groups.push_back(group.name);
  EXPECT_THAT(groups, ElementsAre("dynamic", "batch"));
}

TEST(BenchReport, TextOfTransformers) {
  const std::string text = ToText(MadeUpTransformer());
  EXPECT_THAT(text, HasSubstr("\navx2, from float32 to float32: peak is maddubs/ymm\n"));
  EXPECT_THAT(text, testing::ContainsRegex("static GOPS +onednn +ratio +of roof +by tensor +onednn +ratio "
                                           "+by row +onednn +ratio +onednn f32 +ratio\n"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "128×768×768 +15099\\.5 +7549\\.7! +2\\.00x +50 % peak +\\+5\\.0 % +4748\\.3! "
                        "+3\\.00x +\\+2\\.0 % +- +- +2849\\.0 +5\\.00x\n"));
  EXPECT_THAT(
      text, HasSubstr("onednn f32: computed in float; its ratio compares it with intact's f32 by tensor\n"));
  EXPECT_THAT(text, HasSubstr("128×768×768, onednn, f32 by row: wrong: not timed\n"));
  EXPECT_THAT(text, HasSubstr("\navx2, batches with runtime B: peak is maddubs/ymm\n"));
  EXPECT_THAT(
      text, testing::ContainsRegex("3×\\(128×128×64\\) u8×u8ᵀ +62\\.9 +78\\.6! +0\\.80x +41\\.9! +1\\.50x"));
  EXPECT_THAT(text, HasSubstr("peers take no u8 Bs, and get s8 Bs instead\n"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "\n  ISA +M×N×K +by tensor +by row\n  avx2 +128×768×768 +\\+5\\.0 % +\\+2\\.0 %\n"));
  EXPECT_THAT(ToText(MadeUpResults()), testing::Not(HasSubstr("by tensor")));
}

TEST(BenchReport, JsonOfTransformers) {
  const nlohmann::ordered_json json = ToJson(MadeUpTransformer());
  const auto& dynamic = json["rows"][0];
  EXPECT_EQ(dynamic["dynamic"], true);
  EXPECT_TRUE(dynamic["batch"].is_null());
  EXPECT_TRUE(dynamic["fused_cost"].is_null());
  EXPECT_EQ(dynamic["timings"][1]["quantization"], "tensor");
  EXPECT_EQ(dynamic["timings"][1]["c_type"], "f32");
  EXPECT_EQ(dynamic["timings"][1]["over_static"], 1.05);
  EXPECT_TRUE(dynamic["timings"][0]["over_static"].is_null());
  const auto& batch = json["rows"][1];
  EXPECT_EQ(batch["batch"],
            nlohmann::ordered_json::parse(R"({"b_order": "nk", "b_type": "u8", "items": 3})"));
  EXPECT_EQ(batch["dynamic"], false);
  EXPECT_NEAR(batch["fused_cost"], 0.1, 1e-9);
  EXPECT_EQ(batch["timings"][5]["quantization"], "none");
  // Rows are passed back as JSON by the processes that measured them.
  for (const Row& row : MadeUpTransformer().rows) {
    const nlohmann::json text = row;
    EXPECT_EQ(nlohmann::json(text.get<Row>()), text);
    EXPECT_EQ(text.get<Row>().shape, row.shape);
    EXPECT_EQ(text.get<Row>().timings[1].format, row.timings[1].format);
  }
}

}  // namespace
}  // namespace intact::bench
