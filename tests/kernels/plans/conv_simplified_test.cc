// Convolutions without taps that only padding meets, and with their extents in the inner dimensions: each
// output reads the same pixels with the same taps as before.
#include "kernels/plans/conv_simplified.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <map>
#include <utility>
#include <vector>

#include "core/result.h"
#include "support/random.h"

namespace intact::kernels {
namespace {

using testing::ElementsAre;

/// The taps (the caller's numbers) and the input pixels that an output reads, without padding.
using Reads = std::map<int64_t, int64_t>;

int64_t PixelOf(const ConvGeometry& g, const Spatial& output, const Spatial& tap) {
  int64_t pixel = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const int64_t position = output[i] * g.stride[i] - g.pad_begin[i] + tap[i] * g.dilation[i];
    if (position < 0 || position >= g.input[i]) return -1;
    pixel = pixel * g.input[i] + position;
  }
  return pixel;
}

template <class Visit>
void ForEach(const Spatial& extents, const Visit& visit) {
  int64_t number = 0;
  for (int64_t z = 0; z < extents[0]; ++z) {
    for (int64_t y = 0; y < extents[1]; ++y) {
      for (int64_t x = 0; x < extents[2]; ++x) visit(Spatial{z, y, x}, number++);
    }
  }
}

/// Of each output, in order.
std::vector<Reads> ReadsOf(const ConvGeometry& geometry, const std::vector<int64_t>& taps) {
  std::vector<Reads> all;
  ForEach(geometry.output, [&](const Spatial& output, int64_t /*number*/) {
    Reads& reads = all.emplace_back();
    ForEach(geometry.kernel, [&](const Spatial& tap, int64_t number) {
      const int64_t pixel = PixelOf(geometry, output, tap);
      if (pixel >= 0) reads[taps[static_cast<size_t>(number)]] = pixel;
    });
  });
  return all;
}

std::vector<int64_t> AllTaps(const ConvGeometry& geometry) {
  std::vector<int64_t> taps(static_cast<size_t>(geometry.taps()));
  for (size_t i = 0; i < taps.size(); ++i) taps[i] = static_cast<int64_t>(i);
  return taps;
}

struct Axis {
  int64_t input = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
};

ConvGeometry GeometryOf(const std::vector<Axis>& axes) {
  intact_conv_desc desc = INTACT_CONV_DESC_INIT;
  desc.spatial_dims = static_cast<int32_t>(axes.size());
  desc.input_channels = desc.output_channels = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    desc.input[i] = axes[i].input;
    desc.kernel[i] = axes[i].kernel;
    desc.stride[i] = axes[i].stride;
    desc.dilation[i] = axes[i].dilation;
    desc.pad_begin[i] = desc.pad_end[i] = axes[i].pad;
  }
  return *CheckGeometry(desc);
}

TEST(ConvSimplified, DropsTapsInPadding) {
  const ConvPhase pixel = Simplified(GeometryOf({{1, 7, 1, 1, 3}, {1, 7, 1, 1, 3}}), true);
  EXPECT_THAT(pixel.taps, ElementsAre(24));
  EXPECT_FALSE(pixel.geometry.HasPadding());
  const ConvPhase far = Simplified(GeometryOf({{8, 3, 1, 36, 36}, {8, 3, 1, 1, 1}}), true);
  EXPECT_THAT(far.taps, ElementsAre(3, 4, 5));
  EXPECT_THAT(far.geometry.kernel, ElementsAre(1, 1, 3));
  EXPECT_THAT(far.geometry.dilation, ElementsAre(1, 1, 1));
  EXPECT_THAT(far.geometry.pad_begin, ElementsAre(0, 0, 1));
}

TEST(ConvSimplified, KeepsTapsThatCount) {
  const ConvGeometry pixel = GeometryOf({{1, 3, 1, 1, 1}, {1, 3, 1, 1, 1}});
  EXPECT_EQ(Simplified(pixel, false).taps, AllTaps(pixel));
  ConvGeometry open = pixel;
  open.is_open[kHeight] = true;
  EXPECT_THAT(Simplified(open, true).taps, ElementsAre(1, 4, 7));
}

TEST(ConvSimplified, MovesExtentsInwards) {
  const ConvPhase high = Simplified(GeometryOf({{100, 3, 2, 1, 1}, {1}}), true);
  EXPECT_THAT(high.geometry.input, ElementsAre(1, 1, 100));
  EXPECT_THAT(high.geometry.kernel, ElementsAre(1, 1, 3));
  EXPECT_THAT(high.geometry.stride, ElementsAre(1, 1, 2));
  EXPECT_THAT(high.geometry.output, ElementsAre(1, 1, 50));
  EXPECT_THAT(high.grid.count, ElementsAre(1, 1, 50));
  EXPECT_THAT(Simplified(GeometryOf({{9, 3}, {8, 2}, {1}}), true).geometry.input, ElementsAre(1, 9, 8));
  EXPECT_THAT(Simplified(GeometryOf({{9, 3}, {1}, {1}}), true).geometry.input, ElementsAre(1, 1, 9));
  ConvGeometry open = GeometryOf({{100, 3}, {1}});
  open.is_open[kWidth] = true;
  EXPECT_THAT(Simplified(open, true).geometry.input, ElementsAre(1, 100, 1));
  open.is_open = {false, true, false};
  EXPECT_THAT(Simplified(open, true).geometry.is_open, ElementsAre(false, false, true));
}

TEST(ConvSimplified, ReadsTheSamePixels) {
  support::Random random(1, 2, 3);
  int dropped = 0, moved = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Axis> axes(static_cast<size_t>(random.Integer(1, 3)));
    for (Axis& axis : axes) {
      axis = {random.Integer(1, 6), random.Integer(1, 4), random.Integer(1, 3), random.Integer(1, 7), 0};
      const int64_t span = (axis.kernel - 1) * axis.dilation + 1;
      axis.pad = random.Integer(std::max<int64_t>(span - axis.input, 0), span + 2);
    }
    if (random.Integer(0, 1) == 1) axes.back() = {};
    const ConvGeometry geometry = GeometryOf(axes);
    const ConvPhase simple = Simplified(geometry, true);
    ASSERT_EQ(ReadsOf(simple.geometry, simple.taps), ReadsOf(geometry, AllTaps(geometry))) << "number " << i;
    dropped += std::ssize(simple.taps) < geometry.taps() ? 1 : 0;
    moved += simple.geometry.input != geometry.input ? 1 : 0;
  }
  EXPECT_GT(dropped, 200);
  EXPECT_GT(moved, 200);
}

/// The failing pairs of a 3×3 convolution of 8×8 pixels whose outer taps lie in padding: the weights' own,
/// whether taps are dropped or (with open extents) kept.
std::vector<std::array<int64_t, 4>> FailingPairsWith(const std::array<int64_t, 2>& input) {
  ConvDesc desc = MakeConvDesc();
  desc.input_channels = 4;
  desc.output_channels = 5;
  for (size_t i = 0; i < input.size(); ++i) {
    desc.input[i] = input[i];
    desc.kernel[i] = 3;
    desc.dilation[i] = desc.pad_begin[i] = desc.pad_end[i] = 36;
  }
  std::vector<int8_t> weights(5 * 9 * 4);
  support::Random random(4, 5, 6);
  for (int8_t& weight : weights) weight = static_cast<int8_t>(random.Integer(-128, 127));
  const auto conv = Conv::Create(desc, weights.data());
  EXPECT_TRUE(conv) << conv.error().message;
  std::vector<intact_conv_failing_pair> pairs(weights.size());
  int64_t count = 0;
  EXPECT_EQ(intact_conv_failing_pairs(conv->handle(), INTACT_PAIRING_WITHIN_TAP, 0, std::ssize(pairs),
                                      pairs.data(), &count),
            INTACT_OK);
  std::vector<std::array<int64_t, 4>> all;
  for (int64_t i = 0; i < count; ++i) {
    const intact_conv_failing_pair& pair = pairs[static_cast<size_t>(i)];
    all.push_back({pair.output_channel, pair.tap[0], pair.tap[1], pair.channel});
  }
  return all;
}

TEST(ConvSimplified, CertifiesDroppedTaps) {
  const auto dropped = FailingPairsWith({8, 8});
  EXPECT_FALSE(dropped.empty());
  EXPECT_EQ(dropped, FailingPairsWith({INTACT_ANY_EXTENT, INTACT_ANY_EXTENT}));
}

}  // namespace
}  // namespace intact::kernels
