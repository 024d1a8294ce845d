// The parts of intact_bench: cases, checks of results before timing, and reports. Times are never asserted.
// Tests of convolutions only are in bench_conv_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/cases/suites.h"
#include "bench/cases/workload.h"
#include "bench/measure/bandwidth.h"
#include "bench/measure/child.h"
#include "bench/measure/measure.h"
#include "bench/measure/run.h"
#include "bench/peers/contenders.h"
#include "bench/peers/peers.h"
#include "bench/report/report.h"
#include "core/isas.h"
#include "jit/isa.h"
#include "tests/bench/bench_fixtures.h"
#include "tests/support/require_isas.h"

namespace intact::bench {
namespace {

using reference::Model;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

bool Contains(const Suite& suite, const Shape& shape) {
  return std::ranges::find(suite.layers, shape, &Layer::shape) != suite.layers.end();
}

TEST(Suites, ContainWhatTheySay) {
  std::set<std::string_view> names;
  for (const Suite& suite : Suites()) {
    SCOPED_TRACE(suite.name);
    EXPECT_TRUE(names.insert(suite.name).second) << "twice";
    EXPECT_EQ(FindSuite(suite.name), &suite);
    std::set<std::string> shapes;
    for (const Layer& layer : suite.layers) {
      EXPECT_TRUE(shapes.insert(layer.shape.ToString()).second) << layer.shape.ToString() << " twice";
    }
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("short", "figures", "small-m", "bert", "llm",
                                                   "transformer", "blocks", "llm-blocks", "square", "conv",
                                                   "transposed", "resnet50", "mobilenet_v2", "tune",
                                                   "segmentation", "text_detection", "text_recognition"));
  EXPECT_EQ(FindSuite("Short"), nullptr);

  EXPECT_EQ(FindSuite("figures")->layers.size(), 12u);
  EXPECT_EQ(FindSuite("llm")->layers.size(), 12u);
  for (const int64_t m : {1, 8, 32, 128}) {
    EXPECT_TRUE(Contains(*FindSuite("llm"), {m, 4096, 4096}));
    EXPECT_TRUE(Contains(*FindSuite("llm"), {m, 11008, 4096}));
    EXPECT_TRUE(Contains(*FindSuite("llm"), {m, 4096, 11008}));
  }
  for (const Layer& layer : FindSuite("square")->layers) {
    const Shape& shape = layer.shape;
    EXPECT_TRUE(shape.m == shape.n && shape.n == shape.k) << shape.ToString();
  }
  for (const Layer& layer : FindSuite("short")->layers) {
    EXPECT_TRUE(std::ranges::any_of(
        Suites(), [&](const Suite& suite) { return suite.name != "short" && Contains(suite, layer.shape); }))
        << layer.shape.ToString() << " is of no other suite";
  }
}

TEST(Shape, IsReadFromItsText) {
  for (const Suite& suite : Suites()) {
    for (const Layer& layer : suite.layers) {
      Shape shape = layer.shape;
      shape.is_dynamic = false;
      EXPECT_EQ(ParseShape(shape.ToString()), shape) << shape.ToString();
    }
  }
  EXPECT_EQ(ParseShape("12x(128x64x32) u8xs8T"),
            (Shape{128, 64, 32, std::nullopt, Batch{12, INTACT_S8, true}}));
  EXPECT_EQ(ParseShape("12x(128x64x32) s8xs8"), std::nullopt);
  EXPECT_EQ(ParseShape("dw 8x5x4 3x3/2 batch 2"), Shape::Of({5, 4, 8, 8, 3, 2, 8, 2}));
  EXPECT_EQ(ParseShape("64x12x80->32 1x3/2x1 d4"),
            Shape::Of({12, 80, 64, 32, {1, 3}, {2, 1}, 1, 1, false, 4}));
  EXPECT_EQ(ParseShape("transposed 4x5x6->8 4x4/2 g2"), Shape::Of({5, 6, 4, 8, 4, 2, 2, 1, true}));
}

TEST_P(Recognition, NamesTheModels) {
  EXPECT_EQ(Recognise(Fake(Model::kExact)), Model::kExact);
  EXPECT_EQ(Recognise(Fake(Model::kExact), {kBoth.data(), 1}), Model::kExact);
  // Pairs with one channel do not saturate, nor do activations of an eighth of the range.
  const bool saturates = KindOf(GetParam().shape) != Kind::kDepthwise && GetParam().format != kFloat;
  EXPECT_EQ(Recognise(Fake(Model::kMaddubs)), saturates ? Model::kMaddubs : Model::kExact);
  if (!saturates) return;
  EXPECT_EQ(Recognise(Fake(Model::kMaddubs), {kBoth.data(), 1}), std::nullopt) << "exact is asked for";
  EXPECT_EQ(Recognise(Fake(Model::kExact), {kBoth.data() + 1, 1}), std::nullopt) << "saturating is asked for";
}

TEST_P(Recognition, FindsPlantedFaults) {
  for (int64_t row = 0; row < GetParam().shape.Rows(); ++row) {
    SCOPED_TRACE(row);
    const auto spoil = [&](const uint8_t* /*a*/, uint8_t* c) { c[row * RowBytes() + RowBytes() / 2] ^= 1; };
    EXPECT_EQ(Recognise(Fake(Model::kExact, spoil)), std::nullopt);
  }
  // Spoils the output only if activations differ.
  const auto spoil_ordinary = [&](const uint8_t* a, uint8_t* c) {
    if (a == workload_.a(GetParam().format)) c[Bytes() - 1] ^= 1;
  };
  EXPECT_EQ(Recognise(Fake(Model::kExact, spoil_ordinary)), std::nullopt);
}

TEST_P(Recognition, FindsOutputsThatAreNotWritten) {
  FakeContender fake = Fake(Model::kExact);
  fake.writes = false;
  EXPECT_EQ(workload_.Recognise(&fake, GetParam().format, kBoth), std::nullopt);
  // The right result of an earlier contender in freed memory must not be accepted.
  for (int i = 0; i < 2; ++i) {
    auto c = workload_.NewC(GetParam().format.c_type);
    EXPECT_EQ(std::count(c.data(), c.data() + c.size(), c[0]), Bytes());
    std::iota(c.data(), c.data() + c.size(), uint8_t{0});
  }
}

TEST_P(Recognition, FailureIsNoResult) {
  FakeContender fake = Fake(Model::kExact);
  fake.fails = true;
  EXPECT_EQ(workload_.Recognise(&fake, GetParam().format, kBoth), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Gemms, Recognition,
                         testing::Values(Recognised{"s32", SmallCase().shape, kS32},
                                         Recognised{"u8", SmallCase().shape, kU8}),
                         [](const auto& test) { return std::string(test.param.name); });

class MeasuredRow : public testing::Test {
 protected:
  void SetUp() override {
    if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  }
};

TEST_F(MeasuredRow, WhatIsWrongIsNotTimed) {
  const Case c = SmallCase();
  const Workload workload(c);
  Case peer = c;
  peer.peer = "fake";
  const auto fake = [&](Model model, const FakeContender::Spoil& spoil = {}) -> std::unique_ptr<Contender> {
    return std::make_unique<FakeContender>(workload, c, model, spoil);
  };
  const auto spoil = [](const uint8_t* /*a*/, uint8_t* output) { output[0] ^= 1; };
  std::vector<Entrant> entrants;
  entrants.push_back({c, &workload, fake(Model::kExact)});
  entrants.push_back({c, &workload, fake(Model::kExact, spoil)});
  entrants.push_back({c, &workload, fake(Model::kMaddubs)});
  entrants.push_back({peer, &workload, fake(Model::kMaddubs)});
  entrants.push_back({peer, &workload, fake(Model::kMaddubs, spoil)});
  entrants.push_back({peer, &workload, Error{INTACT_UNSUPPORTED, "not today"}});
  const Result<Row> row = MeasureRow(entrants, Seconds(0));
  ASSERT_TRUE(row) << row.error().message;

  std::vector<std::pair<std::string, bool>> outcomes;
  for (const Timing& timing : row->timings) outcomes.emplace_back(timing.result, timing.IsTimed());
  using testing::Pair;
  EXPECT_THAT(outcomes, ElementsAre(Pair("exact", true), Pair("wrong: not timed", false),
                                    Pair("wrong: not timed", false), Pair("saturates", true),
                                    Pair("wrong: not timed", false), Pair("not today", false)));
  std::vector<bool> ran_on;  // runs after the two of the check
  for (size_t i = 0; i + 1 < entrants.size(); ++i) {
    ran_on.push_back(dynamic_cast<FakeContender&>(**entrants[i].contender).runs > 2);
  }
  EXPECT_THAT(ran_on, ElementsAre(true, false, false, true, false));
  EXPECT_EQ(row->isa, "avx2");
  EXPECT_EQ(row->shape, c.shape);
  EXPECT_GT(row->peak_gops, 0);
  EXPECT_GT(row->read_gb_per_s, 0);
}

constexpr std::array kTinyLayers = {Layer{{8, 64, 1024}},
                                    Layer{{1, 32, 256}},
                                    Layer{Shape::Of({9, 8, 64, 32, 3, 2, 1, 1}), 2},
                                    Layer{Shape::Of({9, 8, 32, 32, 3, 1, 32, 2})},
                                    Layer{Shape::Of({5, 4, 64, 32, 3, 2, 1, 1, true})},
                                    Layer{Shape::Of({9, 20, 64, 32, {1, 3}, {1, 2}, 1, 1, false, 2})}};
constexpr Suite kTinySuite = {"tiny", "for tests", kTinyLayers};

// Trained layers: a dense convolution, a matrix product, and a depthwise one without pairs that saturate.
constexpr std::array kTinyTrained = {Layer{Shape::Of({9, 20, 64, 32, {5, 3}, {2, 1}}), 2, {{3, 4}}},
                                     Layer{{40, 32, 120}, 1, {{5, 3}}},
                                     Layer{Shape::Of({9, 8, 32, 32, 3, 1, 32}), 1, {{0, 5}}}};
constexpr Suite kTinyNetwork = {"tiny network", "for tests", kTinyTrained};

TEST_F(MeasuredRow, IntactIsExactAndPeersAreLabelled) {
  const Results results = RunTiny(kTinySuite);
  EXPECT_TRUE(results.AllRight()) << ToText(results);
  EXPECT_EQ(results.peers.size(), Peers().size());
  std::vector<std::string> isas;
  for (const core::Isa isa : GeneratedIsas()) isas.emplace_back(core::ToString(isa));
  EXPECT_EQ(results.Isas(), isas);
  EXPECT_EQ(results.rows.size(), kTinyLayers.size() * isas.size());
  EXPECT_EQ(results.first_calls.size(), isas.size());
  for (const Row& row : results.rows) {
    SCOPED_TRACE(row.isa + " " + row.shape.ToString());
    const size_t peers_types = row.shape.conv && !row.shape.conv->transposed ? 3 : 2;
    const bool has_saturating = row.isa == "avx2" || row.isa == "avx512";
    ASSERT_EQ(row.timings.size(), (has_saturating ? 4 : 2) + Peers().size() * peers_types);
    const bool saturates = has_saturating && KindOf(row.shape) != Kind::kDepthwise;
    for (const Timing& timing : row.timings) {
      EXPECT_TRUE(timing.IsTimed()) << timing.result;
      const bool may_saturate = timing.contender != kIntact && timing.format != kFloat;
      EXPECT_EQ(timing.result, saturates && may_saturate ? kSaturates : kExact);
    }
  }
}

TEST_F(MeasuredRow, PortableKernelsAreMeasuredBesideAvx2sPeak) {
  const Results results = RunTiny(kTinySuite, {core::Isa::kPortable});
  EXPECT_TRUE(results.AllRight()) << ToText(results);
  for (const Row& row : results.rows) {
    EXPECT_EQ(row.peak, "maddubs/ymm");
    for (const Timing& timing : row.timings) {
      EXPECT_TRUE(timing.contender != kIntact || timing.result == kExact) << timing.result;
    }
  }
}

TEST_F(MeasuredRow, NetworksHaveSaturatingKernelsAndFloats) {
  const Results results = RunTiny(kTinyNetwork);
  EXPECT_EQ(results.weights, "trained");
  EXPECT_TRUE(results.AllRight()) << ToText(results);
  for (const Row& row : results.rows) {
    SCOPED_TRACE(row.isa + " " + row.shape.ToString());
    const bool has_saturating = row.isa == "avx2" || row.isa == "avx512";
    EXPECT_EQ(row.timings.size(), (has_saturating ? 4 : 2) + 3 * Peers().size());
    const bool saturates = KindOf(row.shape) != Kind::kDepthwise;
    for (const Format& format : {kS32, kU8}) {
      ASSERT_EQ(row.Find(kSaturating, format) != nullptr, has_saturating);
      EXPECT_EQ(SpeedUp(row, kSaturating, format).has_value(), has_saturating);
      EXPECT_EQ(row.Find(kIntact, format)->result, kExact);
      if (!has_saturating) continue;
      EXPECT_EQ(row.Find(kSaturating, format)->result, saturates ? kSaturates : kExact);
    }
    for (const Peer* peer : Peers()) EXPECT_TRUE(HasTiming({&row, 1}, peer->Name(), kFloat));
  }
}

TEST(BenchReport, Derives) {
  const Results results = MadeUpResults();
  const Row& compute = results.rows[0];
  const Row& few_rows = results.rows[1];
  EXPECT_DOUBLE_EQ(Gops(compute, *compute.Find("intact", kS32)), 100);
  EXPECT_FALSE(IsMemoryBound(compute));
  EXPECT_DOUBLE_EQ(OfRoof(compute, *compute.Find("intact", kS32)), 0.5);
  EXPECT_DOUBLE_EQ(*SpeedUp(compute, "onednn", kS32), 2);
  EXPECT_EQ(SpeedUp(compute, "onednn", kU8), std::nullopt);
  EXPECT_NEAR(*CostOf(compute, kU8), 0.05, 1e-9);
  EXPECT_TRUE(IsMemoryBound(few_rows));
  EXPECT_DOUBLE_EQ(OfRoof(few_rows, *few_rows.Find("intact", kS32)), 0.25);
  EXPECT_TRUE(results.AllRight()) << "a peer's failure is not ours";
  Results wrong = results;
  wrong.rows[0].timings[0].microseconds = 0;
  EXPECT_FALSE(wrong.AllRight());
  const std::vector<double> values = {2, 8};
  EXPECT_DOUBLE_EQ(*GeometricMean(values), 4);
  EXPECT_EQ(GeometricMean({}), std::nullopt);
}

std::vector<std::string> Keys(const nlohmann::ordered_json& json) {
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  return keys;
}

TEST(BenchReport, Json) {
  const nlohmann::ordered_json json = ToJson(MadeUpResults());
  EXPECT_THAT(Keys(json),
              ElementsAre("schema", "schema_version", "version", "suite", "weights", "machine", "isas",
                          "peaks", "reads", "peers", "not_measured", "rows", "first_calls", "means", "sums"));
  EXPECT_EQ(json["schema"], "intact-bench");
  EXPECT_EQ(json["schema_version"], 4);
  EXPECT_EQ(json["isas"][1]["reason"], "no tiles");
  EXPECT_EQ(json["peaks"][0], nlohmann::ordered_json({{"gops", 200.0}, {"name", "maddubs/ymm"}}));
  const auto& row = json["rows"][0];
  EXPECT_THAT(Keys(row),
              testing::UnorderedElementsAre("isa", "m", "n", "k", "conv", "batch", "dynamic", "blocks",
                                            "times", "peak", "peak_gops", "read_gb_per_s", "memory_bound",
                                            "intensity", "fused_cost", "timings"));
  const std::vector<std::string> of_all = {"contender", "quantization", "c_type", "implementation",
                                           "result",    "microseconds", "spread", "over_static"};
  std::vector<std::string> of_timed = of_all;
  of_timed.insert(of_timed.end(), {"gops", "of_peak", "of_bandwidth"});
  EXPECT_THAT(Keys(row["timings"][0]), testing::UnorderedElementsAreArray(of_timed));
  of_timed.emplace_back("speed_up");
  EXPECT_THAT(Keys(row["timings"][2]), testing::UnorderedElementsAreArray(of_timed));
  EXPECT_THAT(Keys(row["timings"][3]), testing::UnorderedElementsAreArray(of_all)) << "not timed";
  EXPECT_TRUE(row["timings"][3]["microseconds"].is_null());
  EXPECT_EQ(row["timings"][2]["result"], "saturates");
  EXPECT_EQ(row["timings"][2]["speed_up"], 2.0);
  EXPECT_EQ(json["rows"][1]["memory_bound"], true);
  EXPECT_EQ(json["rows"][1]["timings"][0]["of_bandwidth"], 0.25);
  EXPECT_EQ(json["first_calls"][0]["speed_up_of_two_threads"], 1.95);
}

TEST(BenchReport, Text) {
  const std::string text = ToText(MadeUpResults());
  EXPECT_THAT(text, HasSubstr("A <CPU> & more"));
  EXPECT_THAT(text, HasSubstr("no tiles"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "100×100×50 +100\\.0 +50\\.0! +2\\.00x +50 % peak +95\\.2 +- +- +\\+5\\.0 %"));
  EXPECT_THAT(
      text, testing::ContainsRegex("1×1000×100 +10\\.0 +2\\.5! +4\\.00x +25 % read +10\\.0 +5\\.0 +2\\.00x"));
  EXPECT_THAT(text, testing::ContainsRegex("geometric mean +2\\.83x! +35 % +2\\.00x +\\+2\\.5 %"));
  EXPECT_THAT(text, HasSubstr("! saturates in int16"));
  EXPECT_THAT(text, HasSubstr("100×100×50, onednn, u8: wrong: not timed"));
  EXPECT_THAT(text, HasSubstr("3.250 GB/s"));
}

TEST(BenchReport, MarksUnsteadyRowsAndLeavesThemOutOfMeans) {
  Results results = MadeUpResults();
  results.rows.front().timings.front().spread = 0.6;
  const std::string text = ToText(results);
  EXPECT_THAT(text, testing::ContainsRegex("100×100×50 \\? "));
  EXPECT_THAT(text, testing::ContainsRegex("geometric mean +4\\.00x! +25 % +2\\.00x"));
  EXPECT_THAT(text, HasSubstr("? the turns of a time differ by more than 25 % of the median"));
}

TEST(BenchReport, Html) {
  const std::string page = ToHtml(MadeUpResults());
  EXPECT_THAT(page, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("A &lt;CPU&gt; &amp; more"));
  EXPECT_THAT(page, Not(HasSubstr("A <CPU>")));
  EXPECT_THAT(page, HasSubstr("onednn, u8: wrong: not timed"));
  EXPECT_THAT(page, testing::AnyOf(HasSubstr("<svg"), HasSubstr("No picture: gnuplot")));
}

TEST(Child, ReturnsItsResult) {
  const Result<nlohmann::json> json = RunInChild([] {
    return nlohmann::json{{"text", std::string(100000, 'x')}};
  });
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ((*json)["text"].get<std::string>().size(), 100000u);
}

TEST(Child, ItsEndIsAnError) {
  const Result<nlohmann::json> crashed = RunInChild([]() -> nlohmann::json {
    std::signal(SIGILL, SIG_DFL);
    std::raise(SIGILL);
    return {};
  });
  ASSERT_FALSE(crashed);
  EXPECT_THAT(crashed.error().message, HasSubstr("signal 4"));
  const Result<nlohmann::json> thrown =
      RunInChild([]() -> nlohmann::json { throw std::runtime_error("of a test"); });
  ASSERT_FALSE(thrown);
  EXPECT_THAT(thrown.error().message, HasSubstr("of a test"));
}

TEST(ReadSizes, TellTheLevels) {
  constexpr int64_t kKibi = 1 << 10;
  constexpr int64_t kMebi = 1 << 20;
  std::vector<std::pair<std::string, std::string>> sizes;
  for (const ReadSize& size : ReadSizes(48 * kKibi, 2 * kMebi, 30 * kMebi)) {
    sizes.emplace_back(size.Name(), size.level);
  }
  using testing::Pair;
  EXPECT_THAT(sizes, ElementsAre(Pair("bandwidth/read/24KiB", "L1"), Pair("bandwidth/read/1MiB", "L2"),
                                 Pair("bandwidth/read/16MiB", "L3"), Pair("bandwidth/read/64MiB", "memory"),
                                 Pair("bandwidth/read/256MiB", "memory")));
  const ReadSize unknown = ReadSizes(0, 0, 0).front();
  EXPECT_EQ(unknown.bytes, 16 * kMebi) << "caches are not known";
  EXPECT_EQ(unknown.level, "L3 or memory");
}

TEST(ReadBandwidth, EveryIsaAndSize) {
  for (const core::Isa isa : core::kAllIsas) {
    if (!jit::HardwareIsas().Has(isa)) continue;
    for (const int64_t bytes : {1, 4096, 9408, 100000}) {
      const Result<ReadBandwidth> read = ReadBandwidth::Create(isa, bytes);
      ASSERT_TRUE(read) << read.error().message;
      EXPECT_GT(read->Measure(), 0);
      EXPECT_THAT(read->Describe(), HasSubstr("stream"));
    }
  }
}

// Multiplies weights in blocks as ONNX Runtime does, or with a fault.
enum class Fault : uint8_t {
  kNone,
  kActivation,
  kScale,
  kNeighbour,
  kHalfScales,
  kNoColumn,
  kLastColumn,
  kThrows
};

class FakeBlocks final : public Contender {
 public:
  FakeBlocks(const Shape& shape, const BlockOperands& operands, Fault fault)
      : shape_(shape), operands_(operands), fault_(fault) {}
  std::string Implementation() const override { return "fake"; }
  bool Run(const uint8_t* a, uint8_t* c) override {
    for (int64_t row = 0; row < shape_.m; ++row) {
      const std::vector<double> real =
          Quantized(reinterpret_cast<const float*>(a) + row * shape_.k, row == 0);
      for (int64_t n = fault_ == Fault::kNoColumn ? 1 : 0; n < shape_.n; ++n) {
        double sum = fault_ == Fault::kLastColumn && n + 1 == shape_.n && row + 1 == shape_.m ? 1 : 0;
        for (int64_t k = 0; k < shape_.k; ++k) sum += real[static_cast<size_t>(k)] * Weight(n, k);
        reinterpret_cast<float*>(c)[row * shape_.n + n] = static_cast<float>(sum);
      }
    }
    return true;
  }
  double Microseconds(const uint8_t* a, uint8_t* c, int64_t times) override {
    if (fault_ == Fault::kThrows) throw std::runtime_error("out of luck");
    return Contender::Microseconds(a, c, times);
  }

 private:
  std::vector<double> Quantized(const float* row, bool is_first) const {
    const int64_t depth = shape_.blocks->depth;
    std::vector<double> real;
    for (int64_t k = 0; k < shape_.k; k += depth) {
      float largest = 0;
      for (int64_t i = k; i < k + depth; ++i) largest = std::max(largest, std::fabs(row[i]));
      double scale = largest / 127.0f;
      if (fault_ == Fault::kHalfScales) scale = std::nearbyint(scale * 0x1p17) * 0x1p-17;
      for (int64_t i = k; i < k + depth; ++i) {
        const double number = std::nearbyint(row[i] * (127.0f / largest));
        real.push_back(scale * (number + (fault_ == Fault::kActivation && is_first && i == 0 ? 1 : 0)));
      }
    }
    return real;
  }
  double Weight(int64_t n, int64_t k) const {
    const int64_t depth = shape_.blocks->depth;
    if (fault_ == Fault::kNeighbour) k ^= 1;
    const auto place = static_cast<size_t>(n * shape_.k + k);
    const int weight = shape_.blocks->b_type == INTACT_S8
                           ? static_cast<int8_t>(operands_.b()[place])
                           : (operands_.b()[place / 2] >> (k % 2 * 4) & 15) - 8;
    const int64_t g = fault_ == Fault::kScale && n == 0 && k < depth ? 1 : k / depth;
    const auto scale = static_cast<size_t>(n * (shape_.k / depth) + g);
    return weight * core::DecodeFloat(core::TraitsOf(INTACT_F16), operands_.scales()[scale]);
  }

  Shape shape_;
  const BlockOperands& operands_;
  Fault fault_;
};

Case InBlocks(int64_t m, int64_t n, int64_t k, const Blocks& blocks, core::Isa isa, const Format& format) {
  Case c;
  c.shape = {m, n, k};
  c.shape.blocks = blocks;
  c.isa = isa;
  c.format = format;
  return c;
}

TEST(BlocksBench, MeasuresWhatEqualsTheReference) {
  for (const core::Isa isa : core::kAllIsas) {
    if (!jit::HardwareIsas().Has(isa)) continue;
    for (const int64_t m : {1, 4, 200}) {
      for (const auto& [n, k, blocks] :
           {std::tuple{72, 160, Blocks{INTACT_U4, 32}}, std::tuple{40, 100, Blocks{INTACT_S8, 64}}}) {
        SCOPED_TRACE(fmt::format("{} {}×{}×{}", core::ToString(isa), m, n, k));
        const Workload workload(InBlocks(m, n, k, blocks, isa, kByRow));
        std::vector<Entrant> entrants;
        for (const Format& format : {kByRow, kByBlock}) {
          const Case c = InBlocks(m, n, k, blocks, isa, format);
          EXPECT_EQ(FormatsOf(c).size(), 2U);
          entrants.push_back({c, &workload, MakeContender(workload, c)});
        }
        const Result<Row> row = MeasureRow(entrants, Seconds(1e-3));
        ASSERT_TRUE(row) << row.error().message;
        for (const Timing& timing : row->timings) {
          EXPECT_EQ(timing.result, kExact);
          EXPECT_THAT(timing.implementation, testing::StartsWith("grouped_"));
        }
        const Timing* const timing = row->Find(kIntact, MainFormat(*row));
        ASSERT_NE(timing, nullptr);
        EXPECT_GT(OfRoof(*row, *timing), 0);
        EXPECT_GE(row->shape.WeightBytes(), n * k * (blocks.b_type == INTACT_U4 ? 1 : 2) / 2);
      }
    }
  }
}

TEST(BlocksBench, FindsWrongOutputsOfIntact) {
  if (!jit::HardwareIsas().Has(core::Isa::kAvx2)) INTACT_SKIP_ISA("avx2");
  const Case c = InBlocks(2, 50, 256, {}, core::Isa::kAvx2, kByRow);
  const Workload workload(c);
  const Entrant by_blocks = {c, &workload,
                             MakeContender(workload, InBlocks(2, 50, 256, {}, c.isa, kByBlock))};
  EXPECT_EQ(Check(by_blocks).result, "wrong outputs: they differ from the reference");
}

TEST(BlocksBench, ComparesWithPeersThatAreRight) {
  if (!jit::HardwareIsas().Has(core::Isa::kAvx2)) INTACT_SKIP_ISA("avx2");
  const std::string wrong = "wrong outputs: an error of ";
  for (const auto& [fault, result] :
       std::vector<std::pair<Fault, std::string>>{{Fault::kNone, "near"},
                                                  {Fault::kActivation, wrong},
                                                  {Fault::kScale, wrong},
                                                  {Fault::kNeighbour, wrong},
                                                  {Fault::kHalfScales, wrong},
                                                  {Fault::kNoColumn, "wrong outputs: not a number"},
                                                  {Fault::kLastColumn, wrong},
                                                  {Fault::kThrows, "near"}}) {
    SCOPED_TRACE(static_cast<int>(fault));
    for (const intact_type b_type : {INTACT_U4, INTACT_S8}) {
      Case c = InBlocks(2, 50, 4096, {b_type, 32}, core::Isa::kAvx2, kByBlock);
      const Workload workload(c);
      std::vector<Entrant> entrants;
      entrants.push_back({c, &workload, MakeContender(workload, c)});
      c.peer = "fake";
      c.kernels = "fast";
      entrants.push_back(
          {c, &workload,
           std::unique_ptr<Contender>(std::make_unique<FakeBlocks>(c.shape, *workload.blocks(), fault))});
      if (fault == Fault::kThrows) {
        EXPECT_THROW((void)MeasureRow(entrants, Seconds(1e-3)), ContenderFailed);
        continue;
      }
      const Result<Row> row = MeasureRow(entrants, Seconds(1e-3));
      ASSERT_TRUE(row) << row.error().message;
      EXPECT_NE(row->Find(kIntact, kByBlock), nullptr);
      EXPECT_EQ(row->timings[1].contender, "fake fast");
      EXPECT_THAT(row->timings[1].result, testing::StartsWith(result));
      EXPECT_EQ(row->timings[1].IsTimed(), fault == Fault::kNone);
      EXPECT_EQ(SpeedUp(*row, "fake fast", kByBlock).has_value(), fault == Fault::kNone);
      Results results;
      results.rows = {nlohmann::json(*row).get<Row>()};
      const std::string text = ToText(results);
      EXPECT_THAT(text, HasSubstr("weights in blocks, from float32 to float32"));
      EXPECT_THAT(text, HasSubstr(fmt::format("2×50×4096 {}/32", b_type == INTACT_U4 ? "u4" : "s8")));
      EXPECT_EQ(text.find("fake fast, f32 by block: " + result) != std::string::npos, fault != Fault::kNone);
      EXPECT_EQ(ToJson(results)["rows"][0]["blocks"]["depth"], 32);
    }
  }
}

TEST(BlocksBench, SuitesHaveTheShapesOfDecoders) {
  EXPECT_EQ(FindSuite("blocks")->layers.size(), 16U);
  EXPECT_EQ(FindSuite("llm-blocks")->layers.size(), 120U);
  EXPECT_TRUE(FindSuite("blocks")->HasBlocks());
  EXPECT_FALSE(FindSuite("llm")->HasBlocks());
  for (const Suite& suite : Suites()) {
    for (const Layer& layer : suite.layers) {
      if (!layer.shape.blocks) continue;
      EXPECT_EQ(ParseShape(layer.shape.ToString()), layer.shape) << layer.shape.ToString();
    }
  }
}

}  // namespace
}  // namespace intact::bench
