// The structure of measurements, and checks that nothing wrong is timed. Times are never asserted.
#include "verify/studies/cost.h"
#include "core/isas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "support/turns.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"
#include "verify/report/report_json.h"
#include "verify/report/report_terminal.h"

namespace intact::verify {
namespace {

using Row = std::tuple<intact_isa, intact_mode, bool>;

std::vector<Row> RowsOf(const Cost& cost) {
  std::vector<Row> rows;
  for (const Timing& timing : cost.timings) rows.emplace_back(timing.isa, timing.mode, timing.seven_bits);
  return rows;
}

/// The rows to time on this machine.
std::vector<Row> ExpectedRows(bool seven_bits) {
  std::vector<Row> rows;
  for (const intact_isa isa : core::kIsaLadder) {
    if (intact_isa_available(isa) == 0) continue;
    const bool saturates = isa == INTACT_ISA_AVX2 || isa == INTACT_ISA_AVX512;
    if (saturates) rows.emplace_back(isa, INTACT_SATURATING, false);
    rows.emplace_back(isa, INTACT_EXACT, false);
    if (saturates && seven_bits) rows.emplace_back(isa, INTACT_EXACT, true);
  }
  return rows;
}

Layer Builtin(const std::string& name) {
  for (Layer& layer : BuiltinLayers()) {
    if (layer.name == name) return layer;
  }
  ADD_FAILURE() << name;
  return {};
}

Cost CostOf(const Layer& layer) {
  Result<Cost> cost = MeasureCost(layer);
  EXPECT_TRUE(cost) << cost.error().message;
  return cost ? *cost : Cost{};
}

class MeasuredCost : public testing::Test {
 protected:
  void SetUp() override {
    if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  }
};

TEST_F(MeasuredCost, FullRangeLayer) {
  const Layer layer = Builtin("builtin_u8");
  const Cost cost = CostOf(layer);
  EXPECT_EQ(cost.layer, "builtin_u8");
  EXPECT_EQ(std::tie(cost.m, cost.n, cost.k), std::make_tuple(256, 10, 64));
  EXPECT_EQ(cost.why_not_seven_bits, "activations reach 255");
  EXPECT_THAT(RowsOf(cost), testing::IsSupersetOf(ExpectedRows(false)));
  EXPECT_TRUE(cost.AllRight());
  const Audit audit = AuditReduceRange(layer.gemm(), layer.reduce_range);
  ASSERT_GT(audit.stated.pairs_at_risk, 0);
  for (const Timing& timing : cost.timings) {
    EXPECT_FALSE(timing.seven_bits);
    EXPECT_EQ(timing.certificate.failing_pairs, audit.stated.pairs_at_risk);
    EXPECT_EQ(timing.certificate.pairs, audit.weight_pairs);
    EXPECT_EQ(cost.SpeedUp(timing).has_value(), core::SaturatesInt16(timing.isa));
  }
}

TEST_F(MeasuredCost, SevenBitLayer) {
  const Cost cost = CostOf(Builtin("builtin_u7"));
  EXPECT_EQ(cost.why_not_seven_bits, "");
  EXPECT_THAT(RowsOf(cost), testing::IsSupersetOf(ExpectedRows(true)));
  EXPECT_TRUE(cost.AllRight());
  ASSERT_NE(cost.FullRangeCertificate(), nullptr);
  EXPECT_GT(cost.FullRangeCertificate()->failing_pairs, 0);
  const Timing* declared = cost.Find(INTACT_ISA_AVX2, INTACT_EXACT, true);
  ASSERT_NE(declared, nullptr);
  EXPECT_EQ(declared->certificate.failing_pairs, 0);
  EXPECT_EQ(declared->certificate.a_max, 127);
}

// A convolution of three channels: its pairings add different products.
TEST_F(MeasuredCost, PairingOfTheLayer) {
  Result<Layer> layer = ReadLayer(INTACT_TEST_DATA "/torch-2.13-avx2/conv_3x16x3x3x2x1x1x1_uniform_pc");
  ASSERT_TRUE(layer) << layer.error().message;
  std::vector<int64_t> at_risk;
  for (const auto& [pairing, pairs] : {std::pair(INTACT_PAIRING_WITHIN_TAP, INTACT_ENGINE_PAIRS_WITHIN_TAP),
                                       std::pair(INTACT_PAIRING_FLATTENED, INTACT_ENGINE_PAIRS_FLATTENED)}) {
    LinearOf(layer->operation).pairing = pairing;
    const Cost cost = CostOf(*layer);
    EXPECT_TRUE(cost.AllRight()) << "the saturating kernels clamp these pairs";
    EXPECT_NE(cost.Find(INTACT_ISA_AVX2, INTACT_SATURATING, false), nullptr);
    EXPECT_NE(cost.Find(INTACT_ISA_AVX2, INTACT_EXACT, false), nullptr);
    const Audit audit = AuditReduceRange(layer->operation, false, pairs);
    at_risk.push_back(audit.stated.pairs_at_risk);
    for (const Timing& timing : cost.timings) {
      if (timing.seven_bits) continue;
      EXPECT_EQ(timing.certificate.pairing, pairing);
      EXPECT_EQ(timing.certificate.failing_pairs, audit.stated.pairs_at_risk);
      EXPECT_EQ(timing.certificate.pairs, audit.weight_pairs);
    }
  }
  EXPECT_NE(at_risk[0], at_risk[1]);
}

TEST_F(MeasuredCost, SevenBitsDoNotApply) {
  const Cost shifted = CostOf(Builtin("builtin_s7"));
  EXPECT_THAT(shifted.why_not_seven_bits, testing::HasSubstr("s8"));
  EXPECT_EQ(shifted.Find(INTACT_ISA_AVX2, INTACT_EXACT, true), nullptr);
  Layer layer = Builtin("builtin_u7");
  layer.gemm().a_zero_point = 128;
  EXPECT_EQ(CostOf(layer).why_not_seven_bits, "the zero point is 128");
}

TEST(Race, TimesOnlyWhatIsRight) {
  const std::vector<uint8_t> expected = {1, 2, 3};
  int wrong_runs = 0;
  int failed_runs = 0;
  int right_runs = 0;
  const std::vector<Contender> contenders = {
      {[&](uint8_t* output) {
         ++wrong_runs;
         std::fill_n(output, 3, uint8_t{1});
         return INTACT_OK;
       },
       expected},
      {[&](uint8_t* output) {
         ++right_runs;
         std::ranges::copy(expected, output);
         return INTACT_OK;
       },
       expected},
      {[&](uint8_t* output) {
         ++failed_runs;
         std::ranges::copy(expected, output);
         return INTACT_OUT_OF_MEMORY;
       },
       expected},
  };
  const std::vector<std::optional<Time>> times = Race(contenders);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_FALSE(times[0]);
  ASSERT_TRUE(times[1]);
  EXPECT_GE(times[1]->spread, 0);
  EXPECT_FALSE(times[2]);
  EXPECT_EQ(wrong_runs, 1);
  EXPECT_EQ(failed_runs, 1);
  EXPECT_GT(right_runs, 2);
}

TEST(Turns, Spread) {
  EXPECT_DOUBLE_EQ(support::Spread({8, 20, 10, 9, 13}), (13.0 - 9.0) / 10.0);
  EXPECT_DOUBLE_EQ(support::Spread({4}), 0);
  EXPECT_DOUBLE_EQ(support::MedianRatio({2, 6, 5}, {1, 2, 5}), 2) << "not that of the medians, 2.5";
}

/// Made up: the saturating kernel takes 12 us, the exact kernel 10 us.
Cost MadeUpCost() {
  Cost cost;
  cost.layer = "made_up";
  cost.why_not_seven_bits = "activations reach 200";
  const auto add = [&cost](intact_isa isa, intact_mode mode, double microseconds) {
    Timing timing;
    timing.isa = isa;
    timing.mode = mode;
    timing.time = Time{microseconds, 0.034};
    timing.certificate.pairs = 200;
    timing.certificate.failing_pairs = 50;
    timing.certificate.worst_column = 7;
    timing.certificate.worst_column_failing_pairs = 9;
    cost.timings.push_back(timing);
  };
  add(INTACT_ISA_AVX2, INTACT_SATURATING, 12.0);
  add(INTACT_ISA_AVX2, INTACT_EXACT, 10.0);
  add(INTACT_ISA_AVX512_VNNI, INTACT_EXACT, 5.0);
  cost.timings[1].certificate.schedule_quads = 100;
  cost.timings[1].certificate.schedule_items = 110;
  cost.timings[1].certificate.schedule_groups = 30;
  return cost;
}

TEST(CostReport, Text) {
  Cost cost = MadeUpCost();
  const std::string text = ToText({&cost, 1});
  EXPECT_THAT(text,
              testing::HasSubstr("50 of 200 weight pairs can saturate (25.0 %), 9 of them in channel 7"));
  EXPECT_THAT(text, testing::ContainsRegex("avx2 +12.0 us +3 % +10.0 us +3 % +1.20x +- +1.10 +0.30\n"));
  EXPECT_THAT(text, testing::ContainsRegex("avx512_vnni +- +5.0 us +3 % +- +- +-\n"));
  EXPECT_THAT(text, testing::HasSubstr("7 bits do not apply: activations reach 200"));
  cost.timings[1].time.reset();
  EXPECT_FALSE(cost.AllRight());
  EXPECT_THAT(ToText({&cost, 1}), testing::HasSubstr("WRONG: not timed"));
}

TEST(CostReport, JsonObject) {
  Cost cost = MadeUpCost();
  cost.timings[2].time.reset();
  const Json json = ToJson(cost);
  EXPECT_EQ(json["certificate"]["failing_share"], 0.25);
  EXPECT_EQ(json["certificate"]["worst_channel"], 7);
  EXPECT_EQ(json["threads"], 1);
  ASSERT_EQ(json["timings"].size(), 3u);
  EXPECT_EQ(json["timings"][1]["mode"], "exact");
  EXPECT_DOUBLE_EQ(json["timings"][1]["speed_up"], 1.2);
  EXPECT_DOUBLE_EQ(json["timings"][1]["spread"], 0.034);
  EXPECT_DOUBLE_EQ(json["timings"][1]["items_per_quad"], 1.1);
  EXPECT_EQ(json["timings"][2]["right"], false);
  EXPECT_TRUE(json["timings"][2]["microseconds"].is_null());
  EXPECT_TRUE(json["timings"][2]["spread"].is_null());
  EXPECT_TRUE(json["timings"][2]["speed_up"].is_null());
}

}  // namespace
}  // namespace intact::verify
