// Convolutions in intact_bench: networks as suites, shapes and names, recognition of other convolutions, and
// reports of a network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/suites.h"
#include "bench/report/report.h"
#include "tests/bench/bench_fixtures.h"

namespace intact::bench {
namespace {

using reference::Model;
using testing::ElementsAre;
using testing::HasSubstr;

/// A network's convolutions, by kind, and its multiplications, as published.
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

// Counted from the networks' files.
TEST(Suites, TrainedNetworksAddUp) {
  using testing::Pair;
  const Totals segmentation = TotalsOf("segmentation");
  EXPECT_THAT(segmentation.kinds, ElementsAre(Pair(Kind::kDense, 118), Pair(Kind::kFirstLayer, 1)));
  EXPECT_EQ(segmentation.multiplications, 159673614336);
  const Totals detection = TotalsOf("text_detection");
  EXPECT_THAT(detection.kinds,
              ElementsAre(Pair(Kind::kDense, 47), Pair(Kind::kFirstLayer, 1), Pair(Kind::kDepthwise, 14)));
  EXPECT_EQ(detection.multiplications, 2233122944);
  const Totals recognition = TotalsOf("text_recognition");
  EXPECT_THAT(recognition.kinds, ElementsAre(Pair(Kind::kGemm, 9), Pair(Kind::kDense, 20),
                                             Pair(Kind::kFirstLayer, 1), Pair(Kind::kDepthwise, 14)));
  EXPECT_EQ(recognition.multiplications, 692197440);
}

// Every layer of a network except the first reads an output of a layer before it.
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
  EXPECT_EQ(transposed.conv->PadBegin(), Extents(1));
  EXPECT_EQ(transposed.conv->PadEnd(), Extents(0));
  EXPECT_DOUBLE_EQ(transposed.Operations(), 2.0 * 28 * 14 * 9 * 64 * 32);
  EXPECT_EQ(transposed.ToString(), "transposed 64×28×14→32 3×3/2");
  const Shape rectangular = Shape::Of({12, 80, 64, 32, {1, 3}, {2, 1}, 1, 1, false, 4});
  EXPECT_EQ(rectangular.m, 6 * 80);
  EXPECT_EQ(rectangular.k, 3 * 64);
  EXPECT_EQ(rectangular.conv->PadBegin(), Extents(0, 4));
  EXPECT_EQ(rectangular.conv->PadEnd(), Extents(0, 4));
  EXPECT_EQ(rectangular.ToString(), "64×12×80→32 1×3/2×1 d4");
  const Shape gemm = {128, 768, 3072};
  EXPECT_EQ(gemm.InputElements(), 128 * 3072);
  EXPECT_EQ(Shape::Of(gemm.AsConvolution()).m, gemm.m);
  EXPECT_EQ(Shape::Of(gemm.AsConvolution()).k, gemm.k);
}

const std::vector<Recognised> kConvolutions = {
    {"s32", Shape::Of({5, 6, 40, 18, 3, 1, 2, 1}), kS32},
    {"u8", Shape::Of({6, 5, 9, 24, 3, 2, 1, 2}), kU8},
    {"depthwise_u8", Shape::Of({5, 6, 24, 24, 3, 1, 24, 1}), kU8},
    {"float_conv", Shape::Of({5, 6, 40, 18, 3, 1, 2, 1}), kFloat},
    {"rectangular_u8", Shape::Of({6, 12, 40, 18, {3, 5}, {1, 2}, 1, 1, false, 2}), kU8},
};

INSTANTIATE_TEST_SUITE_P(Convolutions, Recognition, testing::ValuesIn(kConvolutions),
                         [](const auto& test) { return std::string(test.param.name); });

// Each is another convolution than the case's.
TEST(RecognitionOfConvolutions, DistinguishesThem) {
  Case c;
  c.shape = Shape::Of({7, 8, 12, 20, 3, 1, 2, 1});
  const Workload workload(c);
  const auto recognise = [&](const std::function<void(reference::Conv*)>& change) {
    FakeContender fake(workload, c, Model::kExact);
    change(fake.conv());
    return workload.Recognise(&fake, c.format, kBoth);
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
  const auto is_dilated = [](reference::Conv* conv) {
    reference::Axis& width = conv->geometry.axes[2];
    width.dilation = width.pad_begin = width.pad_end = 2;
  };
  EXPECT_EQ(recognise(is_dilated), std::nullopt);
  const auto swaps_groups = [](reference::Conv* conv) {
    const auto half = std::ssize(conv->b) / 2;
    std::swap_ranges(conv->b.begin(), conv->b.begin() + half, conv->b.begin() + half);
  };
  EXPECT_EQ(recognise(swaps_groups), std::nullopt);
}

TEST(RecognitionOfConvolutions, SignOfFloatZeroDoesNotCount) {
  Case c;
  c.shape = Shape::Of({5, 6, 40, 18, 3});
  c.format = kFloat;
  const Workload workload(c);
  int64_t zeros = 0;
  const auto negate_zeros = [&](const uint8_t* /*a*/, uint8_t* output) {
    for (int64_t i = 0; i < c.shape.m * c.shape.n; ++i, output += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, output, sizeof value);
      if (value != 0) continue;
      output[sizeof value - 1] = 0x80;
      ++zeros;
    }
  };
  FakeContender fake(workload, c, Model::kExact, negate_zeros);
  EXPECT_EQ(workload.Recognise(&fake, c.format, kBoth), Model::kExact);
  EXPECT_GT(zeros, 0);
}

/// Two layers of a network on one ISA: a dense one, which occurs twice, and a depthwise one; and the first
/// call.
Results MadeUpNetwork() {
  Results results = MadeUpResults();
  const auto row = [](const Geometry& geometry, int times, double ours, double theirs, double in_float) {
    Row made = {"avx2", Shape::Of(geometry), times, "maddubs/ymm", 200, 20, {}};
    made.timings = {{"intact", kS32, "ours", "exact", ours, 0.01},
                    {"intact", kU8, "ours", "exact", ours, 0.01},
                    {"onednn", kS32, "theirs", "exact", 3 * theirs, 0.01},
                    {"onednn", kU8, "theirs", "saturates", theirs, 0.01},
                    {"onednn", kFloat, "theirs", "exact", in_float, 0.01}};
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
                                  Pair("depthwise", 1), Pair("all", 3)));
  EXPECT_EQ(Layers(rows), 4);
  EXPECT_DOUBLE_EQ(*NetworkMilliseconds(rows, "intact", kU8), 4.5);
  EXPECT_DOUBLE_EQ(*NetworkMilliseconds(rows, "onednn", kFloat), 36.5);
  EXPECT_EQ(NetworkMilliseconds(rows, "intact", kFloat), std::nullopt);
  EXPECT_DOUBLE_EQ(*SpeedUp(rows[0], "onednn", kFloat), 2);
  EXPECT_EQ(Layers(MadeUpResults().rows), 0);
  EXPECT_DOUBLE_EQ(*WorstOf(rows, "onednn", kU8), 1);
  EXPECT_EQ(WorstOf(rows, "saturating", kU8), std::nullopt);
  EXPECT_THAT(OthersOf(rows), ElementsAre("onednn"));
  EXPECT_EQ(GroupsOf(MadeUpResults().rows).front().name, "gemm");
}

TEST(BenchReport, JsonOfANetwork) {
  const nlohmann::ordered_json json = ToJson(MadeUpNetwork());
  const auto& row = json["rows"][1];
  EXPECT_EQ(row["times"], 2);
  EXPECT_EQ(row["m"], 784);
  EXPECT_EQ(row["conv"], nlohmann::ordered_json::parse(R"({"batch": 1, "c_in": 64, "c_out": 64, "dilation": 1,
      "groups": 1, "height": 28, "kernel": [3, 3], "stride": [1, 1], "transposed": false, "width": 28})"));
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
                                                                            {"quantization", "static"},
                                                                            {"c_type", "u8"},
                                                                            {"rows", 2},
                                                                            {"speed_up", 2.0},
                                                                            {"worst", 1.0}}));
  EXPECT_EQ(find(json["means"], J{{"kind", "depthwise"}, {"c_type", "f32"}})["speed_up"], 1.0);
  EXPECT_EQ(find(json["sums"], J{{"contender", "onednn"}, {"c_type", "u8"}}), (J{{"isa", "avx2"},
                                                                                 {"contender", "onednn"},
                                                                                 {"quantization", "static"},
                                                                                 {"c_type", "u8"},
                                                                                 {"layers", 4},
                                                                                 {"milliseconds", 11.0}}));
  EXPECT_EQ(json["sums"].size(), 5u);
}

TEST(BenchReport, TextOfANetwork) {
  const std::string text = ToText(MadeUpNetwork());
  EXPECT_THAT(text, HasSubstr("avx2, convolutions: peak is maddubs/ymm"));
  EXPECT_THAT(text, testing::ContainsRegex("64×28×28→64 3×3 +2 +57\\.8 +4\\.8 +12\\.00x"));
  EXPECT_THAT(text, testing::ContainsRegex("geometric mean, dense +6\\.00x"));
  EXPECT_THAT(text, testing::ContainsRegex("worst ratio +3\\.00x +1\\.00x! +1\\.00x\n"));
  EXPECT_THAT(text,
              testing::ContainsRegex(
                  "sum of 4, ms +4\\.50 +33\\.00 +7\\.33x +4\\.50 +11\\.00 +2\\.44x! +36\\.50 +8\\.11x"));
}

}  // namespace
}  // namespace intact::bench
