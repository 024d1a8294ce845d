// Weights that resemble trained layers have the figures of the networks' files, by the library's own
// certificate.
#include "bench/cases/trained_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "bench/cases/suites.h"
#include "bench/cases/workload.h"
#include "bench/peers/contenders.h"
#include "tests/support/require_isas.h"

namespace intact::bench {
namespace {

Case CaseOf(const Layer& layer) {
  Case c;
  c.shape = layer.shape;
  c.weights = DefaultWeights(layer);
  return c;
}

/// The percentage of failing pairs in the library's certificate of a layer's weights.
double CertifiedShare(const Layer& layer) {
  Case c = CaseOf(layer);
  // The certificate depends on the weights only, so few pixels suffice.
  if (c.shape.conv) {
    c.shape.conv->height = std::min<int64_t>(c.shape.conv->height, 4);
    c.shape.conv->width = std::min<int64_t>(c.shape.conv->width, 4);
    c.shape = Shape::Of(*c.shape.conv);
  }
  const Workload workload(c);
  const auto share = [](const auto& plan) {
    EXPECT_TRUE(plan) << plan.error().message;
    const Result<intact_certificate> certificate = plan->Certificate(INTACT_PAIRING_WITHIN_TAP);
    EXPECT_TRUE(certificate) << certificate.error().message;
    return 100.0 * static_cast<double>(certificate->failing_pairs) / static_cast<double>(certificate->pairs);
  };
  if (c.shape.conv) return share(Conv::Create(ConvDescOf(workload, c), workload.conv().b.data()));
  return share(Gemm::Create(GemmDescOf(workload, c), workload.gemm().b.data()));
}

constexpr std::array kNetworks = {"segmentation", "text_detection", "text_recognition"};

// The share is within a tenth of the file's share, plus two pairs.
TEST(TrainedWeights, HaveTheShareOfFailingPairs) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  constexpr size_t kEvery = 6;
  for (const char* network : kNetworks) {
    const Suite& suite = *FindSuite(network);
    for (size_t i = 0; i < suite.layers.size(); i += kEvery) {
      const Layer& layer = suite.layers[i];
      const Geometry g = layer.shape.AsConvolution();
      if (g.Channels() == 1) continue;  // no pairs
      SCOPED_TRACE(std::string(network) + ": " + layer.shape.ToString());
      const double expected = layer.weights->failing_pairs_percent;
      const double pair = 100.0 / static_cast<double>(g.c_out * g.Taps() * ((g.Channels() + 1) / 2));
      EXPECT_NEAR(CertifiedShare(layer), expected, 0.1 * expected + 2 * pair);
    }
  }
}

// A kurtosis above a channel's own comes from different scales of channels, which quantization removes.
TEST(TrainedWeights, HaveAtMostTheKurtosis) {
  for (const char* network : kNetworks) {
    for (const Layer& layer : FindSuite(network)->layers) {
      const Geometry g = layer.shape.AsConvolution();
      if (g.c_out * g.Taps() * g.Channels() > 200'000) continue;
      SCOPED_TRACE(std::string(network) + ": " + layer.shape.ToString());
      const std::vector<int8_t> weights = DrawLike(*layer.weights, g.c_out, g.Taps(), g.Channels());
      EXPECT_LE(FiguresOf(weights, g.Channels()).kurtosis, 1.15 * layer.weights->kurtosis);
    }
  }
}

// A single channel has one scale. There the kurtosis decides if the share leaves a choice.
TEST(TrainedWeights, OfOneChannelHaveTheKurtosis) {
  for (const double kurtosis : {2.5, 8.0, 50.0, 400.0}) {
    const std::vector<int8_t> weights = DrawLike({0, kurtosis}, 1, 2048, 1);
    EXPECT_NEAR(FiguresOf(weights, 1).kurtosis, kurtosis, 0.1 * kurtosis);
  }
}

TEST(TrainedWeights, EveryChannelReachesTheRangesEnd) {
  constexpr int64_t kOutputs = 24, kTaps = 9, kChannels = 16;
  const std::vector<int8_t> weights = DrawLike({3, 4}, kOutputs, kTaps, kChannels);
  ASSERT_EQ(std::ssize(weights), kOutputs * kTaps * kChannels);
  for (auto column = weights.begin(); column != weights.end(); column += kTaps * kChannels) {
    const auto is_heavier = [](int a, int b) { return std::abs(a) < std::abs(b); };
    EXPECT_EQ(std::abs(*std::max_element(column, column + kTaps * kChannels, is_heavier)), 127);
  }
  EXPECT_EQ(weights, DrawLike({3, 4}, kOutputs, kTaps, kChannels)) << "always the same";
}

TEST(TrainedWeights, Figures) {
  // Taps of three channels: (64 64) and 1 alone; (127 2) fails, −127 alone; (−127 −2) fails; (127 −127).
  const std::vector<int8_t> weights = {64, 64, 1, 127, 2, -127, -127, -2, 0, 127, -127, 0};
  EXPECT_DOUBLE_EQ(FiguresOf(weights, 3).failing_pairs_percent, 100.0 * 2 / 8);
  const std::vector<int8_t> two_values = {-5, 5, 5, -5};
  EXPECT_DOUBLE_EQ(FiguresOf(two_values, 2).kurtosis, 1);
}

}  // namespace
}  // namespace intact::bench
