// The parts of intact_bench: its cases, that nothing wrong is timed, and what it reports. Times themselves
// are never asserted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/bandwidth.h"
#include "bench/child.h"
#include "bench/measure.h"
#include "bench/peers.h"
#include "bench/report.h"
#include "bench/run.h"
#include "bench/suites.h"
#include "bench/workload.h"
#include "tests/require_isas.h"

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
  EXPECT_THAT(names, testing::UnorderedElementsAre("short", "figures", "bert", "llm", "square", "conv",
                                                   "transposed", "resnet50", "mobilenet_v2"));
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

/// Convolutions of a network, those by kind, and their multiplications: what is published of it.
struct Totals {
  std::map<Kind, int> kinds;
  double multiplications = 0;
};
Totals TotalsOf(std::string_view suite) {
  Totals totals;
  for (const Layer& layer : FindSuite(suite)->layers) {
    totals.kinds[KindOf(layer.shape)] += layer.times;
    totals.multiplications += layer.times * layer.shape.Operations() / 2;
  }
  return totals;
}

TEST(Suites, NetworksAddUp) {
  using testing::Pair;
  const Totals resnet = TotalsOf("resnet50");
  EXPECT_THAT(resnet.kinds, ElementsAre(Pair(Kind::kDense, 52), Pair(Kind::kFirstLayer, 1)));
  EXPECT_NEAR(resnet.multiplications, 8.17e9 / 2, 0.005e9);
  const Totals mobilenet = TotalsOf("mobilenet_v2");
  EXPECT_THAT(mobilenet.kinds,
              ElementsAre(Pair(Kind::kDense, 34), Pair(Kind::kFirstLayer, 1), Pair(Kind::kDepthwise, 17)));
  EXPECT_NEAR(mobilenet.multiplications, 300.8e6 - 1280 * 1000, 0.1e6) << "without the classifier";
  const Totals conv = TotalsOf("conv");
  EXPECT_THAT(conv.kinds, ElementsAre(Pair(Kind::kDense, 6), Pair(Kind::kFirstLayer, 1),
                                      Pair(Kind::kGrouped, 1), Pair(Kind::kDepthwise, 2)));
}

// Every layer of a network but the first reads what some layer before it writes.
TEST(Suites, NetworksAreConnected) {
  for (const char* name : {"resnet50", "mobilenet_v2"}) {
    std::set<std::vector<int64_t>> outputs;
    for (const Layer& layer : FindSuite(name)->layers) {
      const Geometry& g = *layer.shape.conv;
      SCOPED_TRACE(std::string(name) + ": " + g.ToString());
      outputs.insert({g.OutHeight(), g.OutWidth(), g.c_out});
    }
    outputs.insert({56, 56, 64});  // ResNet-50's pooling
    for (const Layer& layer : FindSuite(name)->layers.subspan(1)) {
      const Geometry& g = *layer.shape.conv;
      EXPECT_TRUE(outputs.contains({g.height, g.width, g.c_in})) << name << ": " << g.ToString();
    }
  }
}

constexpr Geometry kStridedGeometry = {56, 28, 64, 128, 3, 2, 4, 8};

TEST(Shape, OfAConvolution) {
  const Shape shape = Shape::Of(kStridedGeometry);
  EXPECT_EQ(shape.m, 8 * 28 * 14);
  EXPECT_EQ(shape.n, 128);
  EXPECT_EQ(shape.k, 9 * 16);
  EXPECT_EQ(shape.InputElements(), 8 * 56 * 28 * 64);
  EXPECT_EQ(shape.ToString(), "64×56×28→128 3×3/2 g4 batch 8");
  EXPECT_EQ(Shape::Of({112, 112, 32, 32, 3, 1, 32, 1}).ToString(), "dw 32×112×112 3×3");
  const Shape transposed = Shape::Of({28, 14, 64, 32, 3, 2, 1, 1, true});
  EXPECT_EQ(transposed.m, 56 * 28);
  EXPECT_EQ(transposed.conv->PadBegin() + transposed.conv->PadEnd(), 3 - 2);
  EXPECT_DOUBLE_EQ(transposed.Operations(), 2.0 * 28 * 14 * 9 * 64 * 32);
  EXPECT_EQ(transposed.ToString(), "transposed 64×28×14→32 3×3/2");
  const Shape gemm = {128, 768, 3072};
  EXPECT_EQ(gemm.InputElements(), 128 * 3072);
  EXPECT_EQ(Shape::Of(gemm.AsConvolution()).m, gemm.m);
  EXPECT_EQ(Shape::Of(gemm.AsConvolution()).k, gemm.k);
}

TEST(Case, Names) {
  Case c;
  c.shape = {128, 768, 3072};
  EXPECT_EQ(c.Name(), "gemm/isa:avx2/mode:exact/weights:laplace/m:128/n:768/k:3072");
  c.amax = 127;
  c.c_type = INTACT_U8;
  c.isa = jit::Isa::kAvx512;
  c.mode = INTACT_SATURATING;
  EXPECT_EQ(c.Name(), "gemm/isa:avx512/mode:saturating/weights:laplace/amax:127/c:u8/m:128/n:768/k:3072");
  c = {};
  c.peer = "onednn";
  c.threads = 2;
  EXPECT_EQ(c.Name(), "gemm/isa:avx2/peer:onednn/weights:laplace/m:1/n:1/k:1/threads:2");
  c = {};
  c.shape = Shape::Of(kStridedGeometry);
  EXPECT_EQ(c.Name(),
            "conv/isa:avx2/mode:exact/weights:laplace/c:s32/in:56x28/c_in:64/c_out:128/kernel:3x3/stride:2/"
            "groups:4/batch:8");
  c.shape.conv->transposed = true;
  EXPECT_THAT(c.Name(), testing::EndsWith("/groups:4/batch:8/transposed"));
}

/// Computes by the reference, in whatever model, and spoils the result.
class FakeContender final : public Contender {
 public:
  using Spoil = std::function<void(const uint8_t* a, uint8_t* c)>;

  FakeContender(const Workload& workload, const Case& c, Model model, Spoil spoil = {})
      : is_conv_(c.shape.conv.has_value()), c_type_(c.c_type), model_(model), spoil_(std::move(spoil)) {
    if (is_conv_) {
      conv_ = workload.conv();
    } else {
      gemm_ = workload.gemm();
    }
    for (reference::Operation* operation :
         {static_cast<reference::Operation*>(&gemm_), static_cast<reference::Operation*>(&conv_)}) {
      operation->c_type = c_type_;
      if (c_type_ == INTACT_F32) operation->scales = {1.0f};
    }
  }

  std::string Implementation() const override { return "fake"; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    ++runs;
    if (!writes) return true;
    std::ranges::copy(is_conv_ ? Compute(&conv_, a) : Compute(&gemm_, a), c);
    if (spoil_) spoil_(a, c);
    return !fails;
  }

  reference::Conv* conv() { return &conv_; }

  int runs = 0;
  bool fails = false;
  bool writes = true;

 private:
  template <class Operation>
  std::vector<uint8_t> Compute(Operation* operation, const uint8_t* a) const {
    for (size_t i = 0; i < operation->a.size(); ++i) {
      float value = 0;
      if (c_type_ == INTACT_F32) std::memcpy(&value, a + i * sizeof value, sizeof value);
      operation->a[i] = c_type_ == INTACT_F32 ? static_cast<uint8_t>(value) : a[i];
    }
    return reference::Outputs(*operation, reference::Accumulators(*operation, model_));
  }

  bool is_conv_;
  intact_type c_type_;
  reference::Gemm gemm_;
  reference::Conv conv_;
  Model model_;
  Spoil spoil_;
};

Case SmallCase() {
  Case c;
  c.shape = {9, 40, 256};
  return c;
}

constexpr std::array kBoth = {Model::kExact, Model::kTriple};

struct Recognised {
  const char* name;
  Shape shape;
  intact_type c_type;
};
// What googletest prints instead of its bytes.
void PrintTo(const Recognised& recognised, std::ostream* out) { *out << recognised.name; }

const std::vector<Recognised> kRecognised = {
    {"gemm_s32", SmallCase().shape, INTACT_S32},
    {"gemm_u8", SmallCase().shape, INTACT_U8},
    {"conv_s32", Shape::Of({5, 6, 40, 18, 3, 1, 2, 1}), INTACT_S32},
    {"conv_u8", Shape::Of({6, 5, 9, 24, 3, 2, 1, 2}), INTACT_U8},
    {"depthwise_u8", Shape::Of({5, 6, 24, 24, 3, 1, 24, 1}), INTACT_U8},
    {"float_conv", Shape::Of({5, 6, 40, 18, 3, 1, 2, 1}), INTACT_F32},
};

class Recognition : public testing::TestWithParam<Recognised> {
 protected:
  static Case What() {
    Case c;
    c.shape = GetParam().shape;
    c.c_type = GetParam().c_type;
    return c;
  }
  std::optional<Model> Recognise(FakeContender fake, std::span<const Model> models = kBoth) const {
    return workload_.Recognise(&fake, GetParam().c_type, models);
  }
  FakeContender Fake(Model model, FakeContender::Spoil spoil = {}) const {
    return {workload_, What(), model, std::move(spoil)};
  }
  static int64_t RowBytes() { return GetParam().shape.n * reference::ElementSize(GetParam().c_type); }
  static int64_t Bytes() { return GetParam().shape.m * RowBytes(); }

  const Workload workload_{What()};
};

TEST_P(Recognition, TellsTheModels) {
  EXPECT_EQ(Recognise(Fake(Model::kExact)), Model::kExact);
  EXPECT_EQ(Recognise(Fake(Model::kExact), {kBoth.data(), 1}), Model::kExact);
  // Nothing saturates with a pair's one channel, or with an eighth of the range.
  const bool saturates = KindOf(GetParam().shape) != Kind::kDepthwise && GetParam().c_type != INTACT_F32;
  EXPECT_EQ(Recognise(Fake(Model::kTriple)), saturates ? Model::kTriple : Model::kExact);
  if (!saturates) return;
  EXPECT_EQ(Recognise(Fake(Model::kTriple), {kBoth.data(), 1}), std::nullopt) << "exact is asked for";
  EXPECT_EQ(Recognise(Fake(Model::kExact), {kBoth.data() + 1, 1}), std::nullopt) << "saturating is asked for";
}

TEST_P(Recognition, FindsPlantedFaults) {
  for (int64_t row = 0; row < GetParam().shape.m; ++row) {
    SCOPED_TRACE(row);
    const auto spoil = [&](const uint8_t* /*a*/, uint8_t* c) { c[row * RowBytes() + RowBytes() / 2] ^= 1; };
    EXPECT_EQ(Recognise(Fake(Model::kExact, spoil)), std::nullopt);
  }
  // Only where activations are not all the same.
  const auto spoil_ordinary = [&](const uint8_t* a, uint8_t* c) {
    if (a == workload_.a(GetParam().c_type)) c[Bytes() - 1] ^= 1;
  };
  EXPECT_EQ(Recognise(Fake(Model::kExact, spoil_ordinary)), std::nullopt);
}

TEST_P(Recognition, FindsOutputsThatAreNotWritten) {
  FakeContender fake = Fake(Model::kExact);
  fake.writes = false;
  EXPECT_EQ(workload_.Recognise(&fake, GetParam().c_type, kBoth), std::nullopt);
  // Nor is what an earlier contender left in freed memory taken for a result.
  for (int i = 0; i < 2; ++i) {
    auto c = workload_.NewC(GetParam().c_type);
    EXPECT_EQ(std::count(c.data(), c.data() + c.size(), c[0]), Bytes());
    std::iota(c.data(), c.data() + c.size(), uint8_t{0});
  }
}

TEST_P(Recognition, FailureIsNoResult) {
  FakeContender fake = Fake(Model::kExact);
  fake.fails = true;
  EXPECT_EQ(workload_.Recognise(&fake, GetParam().c_type, kBoth), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Recognition, testing::ValuesIn(kRecognised),
                         [](const auto& test) { return std::string(test.param.name); });

// Each is a convolution too, but another one.
TEST(RecognitionOfConvolutions, TellsThemApart) {
  Case c;
  c.shape = Shape::Of({7, 8, 12, 20, 3, 1, 2, 1});
  const Workload workload(c);
  const auto recognise = [&](const std::function<void(reference::Conv*)>& change) {
    FakeContender fake(workload, c, Model::kExact);
    change(fake.conv());
    return workload.Recognise(&fake, c.c_type, kBoth);
  };
  EXPECT_EQ(recognise([](reference::Conv* /*conv*/) {}), Model::kExact);
  const auto padded_elsewhere = [](reference::Conv* conv) {
    conv->geometry.axes[2].pad_begin = 0;
    conv->geometry.axes[2].pad_end = 2;
  };
  EXPECT_EQ(recognise(padded_elsewhere), std::nullopt);
  // Adjacent taps of the last output channel.
  const auto swaps_taps = [](reference::Conv* conv) {
    std::swap_ranges(conv->b.end() - 6, conv->b.end(), conv->b.end() - 12);
  };
  EXPECT_EQ(recognise(swaps_taps), std::nullopt);
  const auto swaps_groups = [](reference::Conv* conv) {
    const auto half = std::ssize(conv->b) / 2;
    std::swap_ranges(conv->b.begin(), conv->b.begin() + half, conv->b.begin() + half);
  };
  EXPECT_EQ(recognise(swaps_groups), std::nullopt);
}

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
  entrants.push_back({c, fake(Model::kExact)});
  entrants.push_back({c, fake(Model::kExact, spoil)});
  entrants.push_back({c, fake(Model::kTriple)});
  entrants.push_back({peer, fake(Model::kTriple)});
  entrants.push_back({peer, fake(Model::kTriple, spoil)});
  entrants.push_back({peer, Error{INTACT_UNSUPPORTED, "not today"}});
  const Result<Row> row = MeasureRow(workload, entrants, Seconds(0));
  ASSERT_TRUE(row) << row.error().message;

  std::vector<std::pair<std::string, bool>> outcomes;
  for (const Timing& timing : row->timings) outcomes.emplace_back(timing.result, timing.IsTimed());
  using testing::Pair;
  EXPECT_THAT(outcomes, ElementsAre(Pair("exact", true), Pair("wrong: not timed", false),
                                    Pair("wrong: not timed", false), Pair("saturates", true),
                                    Pair("wrong: not timed", false), Pair("not today", false)));
  std::vector<bool> ran_on;  // beyond the two runs of the check
  for (size_t i = 0; i + 1 < entrants.size(); ++i) {
    ran_on.push_back(dynamic_cast<FakeContender&>(**entrants[i].contender).runs > 2);
  }
  EXPECT_THAT(ran_on, ElementsAre(true, false, false, true, false));
  EXPECT_EQ(row->isa, "avx2");
  EXPECT_EQ(row->shape, c.shape);
  EXPECT_GT(row->peak_gops, 0);
  EXPECT_GT(row->read_gb_per_s, 0);
}

constexpr std::array kTinyLayers = {
    Layer{{8, 64, 1024}}, Layer{{1, 32, 256}}, Layer{Shape::Of({9, 8, 64, 32, 3, 2, 1, 1}), 2},
    Layer{Shape::Of({9, 8, 32, 32, 3, 1, 32, 2})}, Layer{Shape::Of({5, 4, 64, 32, 3, 2, 1, 1, true})}};
constexpr Suite kTinySuite = {"tiny", "for tests", kTinyLayers};

Results RunTinySuite() {
  Request request;
  request.suite = &kTinySuite;
  request.budget = Seconds(0);
  for (const jit::Isa isa : jit::kAllIsas) {
    if (intact_isa_available(static_cast<intact_isa>(isa)) != 0) request.isas.push_back(isa);
  }
  Result<Results> results = Run(request, [](int64_t, int64_t) {});
  EXPECT_TRUE(results) << results.error().message;
  return results ? *results : Results{};
}

TEST_F(MeasuredRow, IntactIsExactAndPeersAreLabelled) {
  const Results results = RunTinySuite();
  EXPECT_TRUE(results.AllRight()) << ToText(results);
  EXPECT_EQ(results.peers.size(), Peers().size());
  std::vector<std::string> isas;
  for (const jit::Isa isa : jit::kAllIsas) {
    if (intact_isa_available(static_cast<intact_isa>(isa)) != 0) isas.emplace_back(jit::ToString(isa));
  }
  EXPECT_EQ(results.Isas(), isas);
  EXPECT_EQ(results.rows.size(), kTinyLayers.size() * isas.size());
  EXPECT_EQ(results.first_calls.size(), isas.size());
  for (const Row& row : results.rows) {
    SCOPED_TRACE(row.isa + " " + row.shape.ToString());
    ASSERT_EQ(row.timings.size(), 2 + Peers().size() * TypesOf(row.shape, "onednn").size());
    const bool saturates =
        (row.isa == "avx2" || row.isa == "avx512") && KindOf(row.shape) != Kind::kDepthwise;
    for (const Timing& timing : row.timings) {
      EXPECT_TRUE(timing.IsTimed()) << timing.result;
      const bool may_saturate = timing.contender != kIntact && timing.c_type != "f32";
      EXPECT_EQ(timing.result, saturates && may_saturate ? kSaturates : kExact);
    }
  }
}

/// Results of two shapes on one ISA: intact takes 10 and 20 us, the peer, which saturates, 20 and 80 us.
Results MadeUpResults() {
  Results results;
  results.suite = "made up";
  results.weights = "laplace";
  results.machine.cpu = "A <CPU> & more";
  results.isas = {{INTACT_ISA_AVX2, true, ""}, {INTACT_ISA_AMX_INT8, false, "no tiles"}};
  results.peaks = {{"triple/ymm", 200}};
  results.reads = {{int64_t{16} << 20, "L3", 20}};
  results.peers = {{"onednn", "2.6.3"}};
  Row compute = {"avx2", {100, 100, 50}, 1, "triple/ymm", 200, 20, {}};  // 1e6 operations
  compute.timings = {{"intact", "s32", "ours", "exact", 10, 0.01},
                     {"intact", "u8", "ours", "exact", 10.5, 0.01},
                     {"onednn", "s32", "theirs", "saturates", 20, 0.02},
                     {"onednn", "u8", "theirs", "wrong: not timed", 0, 0}};
  Row thin = {"avx2", {1, 1000, 100}, 1, "triple/ymm", 200, 20, {}};  // 100 kB of weights: 5 us at 20 GB/s
  thin.timings = {{"intact", "s32", "ours", "exact", 20, 0.01},
                  {"intact", "u8", "ours", "exact", 20, 0.01},
                  {"onednn", "s32", "theirs", "saturates", 80, 0.02},
                  {"onednn", "u8", "theirs", "exact", 40, 0.02}};
  results.rows = {compute, thin};
  results.first_calls = {{"avx2", "", 12.5, 3.25, 1.95}};
  return results;
}

TEST(BenchReport, Derives) {
  const Results results = MadeUpResults();
  const Row& compute = results.rows[0];
  const Row& thin = results.rows[1];
  EXPECT_DOUBLE_EQ(Gops(compute, *compute.Find("intact", "s32")), 100);
  EXPECT_FALSE(IsMemoryBound(compute));
  EXPECT_DOUBLE_EQ(OfRoof(compute, *compute.Find("intact", "s32")), 0.5);
  EXPECT_DOUBLE_EQ(*SpeedUp(compute, "onednn", "s32"), 2);
  EXPECT_EQ(SpeedUp(compute, "onednn", "u8"), std::nullopt);
  EXPECT_NEAR(*FusedCost(compute), 0.05, 1e-9);
  EXPECT_TRUE(IsMemoryBound(thin));
  EXPECT_DOUBLE_EQ(OfRoof(thin, *thin.Find("intact", "s32")), 0.25);
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

/// Two layers of a network on one ISA: a dense one, twice, and a depthwise one; and its first.
Results MadeUpNetwork() {
  Results results = MadeUpResults();
  const auto row = [](const Geometry& geometry, int times, double ours, double theirs, double in_float) {
    Row made = {"avx2", Shape::Of(geometry), times, "triple/ymm", 200, 20, {}};
    made.timings = {{"intact", "s32", "ours", "exact", ours, 0.01},
                    {"intact", "u8", "ours", "exact", ours, 0.01},
                    {"onednn", "s32", "theirs", "exact", 3 * theirs, 0.01},
                    {"onednn", "u8", "theirs", "saturates", theirs, 0.01},
                    {"onednn", "f32", "theirs", "exact", in_float, 0.01}};
    return made;
  };
  results.rows = {row({56, 56, 3, 64, 3, 2, 1, 1}, 1, 2000, 2000, 4000),
                  row({28, 28, 64, 64, 3, 1, 1, 1}, 2, 1000, 4000, 16000),
                  row({28, 28, 64, 64, 3, 1, 64, 1}, 1, 500, 1000, 500)};
  return results;
}

TEST(BenchReport, GroupsConvolutions) {
  const std::vector<Row> rows = MadeUpNetwork().rows;
  std::vector<std::pair<std::string, size_t>> groups;
  for (const Group& group : GroupsOf(rows)) groups.emplace_back(group.name, group.rows.size());
  using testing::Pair;
  EXPECT_THAT(groups, ElementsAre(Pair("dense", 2), Pair("first layer", 1), Pair("other dense", 1),
                                  Pair("depthwise", 1)));
  EXPECT_EQ(Convolutions(rows), 4);
  EXPECT_DOUBLE_EQ(*NetworkMilliseconds(rows, "intact", "u8"), 4.5);
  EXPECT_DOUBLE_EQ(*NetworkMilliseconds(rows, "onednn", "f32"), 36.5);
  EXPECT_EQ(NetworkMilliseconds(rows, "intact", "f32"), std::nullopt);
  EXPECT_DOUBLE_EQ(*SpeedUp(rows[0], "onednn", "f32"), 2);
  EXPECT_EQ(Convolutions(MadeUpResults().rows), 0);
  EXPECT_EQ(GroupsOf(MadeUpResults().rows).front().name, "gemm");
}

TEST(BenchReport, JsonOfANetwork) {
  const nlohmann::ordered_json json = ToJson(MadeUpNetwork());
  const auto& row = json["rows"][1];
  EXPECT_EQ(row["times"], 2);
  EXPECT_EQ(row["m"], 784);
  EXPECT_EQ(row["conv"], nlohmann::ordered_json::parse(R"({"batch": 1, "c_in": 64, "c_out": 64, "groups": 1,
      "height": 28, "kernel": 3, "stride": 1, "transposed": false, "width": 28})"));
  const auto find = [](const auto& all, const nlohmann::ordered_json& wanted) -> nlohmann::ordered_json {
    const auto has_it = [&](const auto& one) {
      return std::ranges::all_of(wanted.items(),
                                 [&](const auto& item) { return one[item.key()] == item.value(); });
    };
    const auto found = std::ranges::find_if(all, has_it);
    return found == all.end() ? nlohmann::ordered_json() : nlohmann::ordered_json(*found);
  };
  using J = nlohmann::ordered_json;
  EXPECT_EQ(find(json["means"], J{{"kind", "dense"}, {"c_type", "u8"}}), (J{{"isa", "avx2"},
                                                                            {"kind", "dense"},
                                                                            {"contender", "onednn"},
                                                                            {"c_type", "u8"},
                                                                            {"rows", 2},
                                                                            {"speed_up", 2.0}}));
  EXPECT_EQ(find(json["means"], J{{"kind", "depthwise"}, {"c_type", "f32"}})["speed_up"], 1.0);
  EXPECT_EQ(find(json["sums"], J{{"contender", "onednn"}, {"c_type", "u8"}}), (J{{"isa", "avx2"},
                                                                                 {"contender", "onednn"},
                                                                                 {"c_type", "u8"},
                                                                                 {"convolutions", 4},
                                                                                 {"milliseconds", 11.0}}));
  EXPECT_EQ(json["sums"].size(), 5u);
}

TEST(BenchReport, TextOfANetwork) {
  const std::string text = ToText(MadeUpNetwork());
  EXPECT_THAT(text, HasSubstr("avx2, convolutions: peak is triple/ymm"));
  EXPECT_THAT(text, testing::ContainsRegex("64×28×28→64 3×3 +2 +57\\.8 +4\\.8 +12\\.00x"));
  EXPECT_THAT(text, testing::ContainsRegex("geometric mean, dense +6\\.00x"));
  EXPECT_THAT(text,
              testing::ContainsRegex(
                  "sum of 4, ms +4\\.50 +33\\.00 +7\\.33x +4\\.50 +11\\.00 +2\\.44x! +36\\.50 +8\\.11x"));
}

TEST(BenchReport, Json) {
  const nlohmann::ordered_json json = ToJson(MadeUpResults());
  EXPECT_THAT(Keys(json),
              ElementsAre("schema", "schema_version", "version", "suite", "weights", "machine", "isas",
                          "peaks", "reads", "peers", "rows", "first_calls", "means", "sums"));
  EXPECT_EQ(json["schema"], "intact-bench");
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["isas"][1]["reason"], "no tiles");
  EXPECT_EQ(json["peaks"][0], nlohmann::ordered_json({{"gops", 200.0}, {"name", "triple/ymm"}}));
  const auto& row = json["rows"][0];
  EXPECT_THAT(Keys(row), testing::UnorderedElementsAre("isa", "m", "n", "k", "conv", "times", "peak",
                                                       "peak_gops", "read_gb_per_s", "memory_bound",
                                                       "intensity", "fused_cost", "timings"));
  const std::vector<std::string> of_all = {"contender", "c_type",       "implementation",
                                           "result",    "microseconds", "spread"};
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
  EXPECT_EQ(ReadSizes(0, 0, 0).front().bytes, 16 * kMebi) << "caches are not known";
}

TEST(ReadBandwidth, EveryIsaAndSize) {
  for (const jit::Isa isa : jit::kAllIsas) {
    if (!jit::HardwareIsas().Has(isa)) continue;
    for (const int64_t bytes : {1, 4096, 9408, 100000}) {
      const Result<ReadBandwidth> read = ReadBandwidth::Create(isa, bytes);
      ASSERT_TRUE(read) << read.error().message;
      EXPECT_GT(read->Measure(), 0);
      EXPECT_THAT(read->Describe(), HasSubstr("stream"));
    }
  }
}

}  // namespace
}  // namespace intact::bench
