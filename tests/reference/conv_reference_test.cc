// The convolution's loop nest compared with results by hand, and its lowering compared with the loop nest.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/types.h"
#include "reference/contract/conv.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/support/expect_model.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"

namespace intact::reference {
namespace {

using Values = std::vector<int32_t>;

// One channel, one dimension: 1 2 3 4 under the filter 1 10 100.
Conv Ramp() {
  Conv conv;
  conv.geometry.dims = 1;
  conv.geometry.axes[2].input = 4;
  conv.geometry.axes[2].kernel = 3;
  conv.a = {1, 2, 3, 4};
  conv.b = {1, 10, 100};
  return conv;
}

// Computes by the loop nest and by lowering, which must agree.
Values Exact(const Conv& conv) {
  Values y = Convolve(conv);
  EXPECT_EQ(Accumulators(conv, Model::kExact), y);
  return y;
}

TEST(Convolve, SlidesItsFilter) {
  Conv conv = Ramp();
  EXPECT_EQ(Exact(conv), (Values{321, 432}));
  conv.geometry.axes[2].stride = 2;
  EXPECT_EQ(Exact(conv), (Values{321}));
}

TEST(Convolve, PadsWithTheZeroPoint) {
  Conv conv = Ramp();
  conv.geometry.axes[2].pad_begin = 1;
  conv.geometry.axes[2].pad_end = 2;
  EXPECT_EQ(Exact(conv), (Values{210, 321, 432, 43, 4}));
  conv.a_zero_point = 1;  // 0 1 2 3, and zeros around
  EXPECT_EQ(Exact(conv), (Values{100, 210, 321, 32, 3}));
}

TEST(Convolve, DilatesBeyondTheInput) {
  Conv conv = Ramp();
  conv.geometry.axes[2].dilation = 3;
  conv.geometry.axes[2].pad_begin = 3;
  conv.geometry.axes[2].pad_end = 3;
  EXPECT_EQ(Exact(conv), (Values{410, 20, 30, 41}));
  conv.geometry.axes[2].pad_begin = 100;
  conv.geometry.axes[2].dilation = 100;
  conv.geometry.axes[2].pad_end = 97;  // only the middle tap meets the input
  EXPECT_EQ(Exact(conv), (Values{10}));
}

TEST(Convolve, SubtractsTheWeightsZeroPoints) {
  Conv conv = Ramp();
  conv.b_type = INTACT_U8;
  conv.b_zero_points = {1};
  EXPECT_EQ(Exact(conv), (Values{321 - 6, 432 - 9}));
}

// The definition of a transposed convolution: each input pixel adds its products to the outputs that it
// reaches.
Values Scatter(const Conv& conv) {
  const ConvGeometry& g = conv.geometry;
  const auto& [d, h, w] = g.axes;
  Values y;
  while (std::ssize(y) < g.OutputPixels() * g.output_channels) {
    const auto n = y.size() % static_cast<size_t>(g.output_channels);
    y.push_back(conv.bias_s32.empty() ? 0 : conv.bias_s32[n]);
  }
  for (int64_t i = 0; i < g.InputPixels(); ++i) {
    const Spatial at = {i / w.input / h.input % d.input, i / w.input % h.input, i % w.input};
    for (int64_t tap = 0; tap < g.Taps(); ++tap) {
      const Spatial k = TapOf(g, tap);
      int64_t pixel = i / w.input / h.input / d.input;
      bool is_inside = true;
      for (size_t j = 0; j < at.size(); ++j) {
        const Axis& axis = g.axes[j];
        const int64_t o = at[j] * axis.stride - axis.pad_begin + k[j] * axis.dilation;
        is_inside = is_inside && o >= 0 && o < axis.Output();
        pixel = pixel * axis.Output() + o;
      }
      for (int64_t n = 0; is_inside && n < g.output_channels; ++n) {
        for (int64_t c = 0; c < g.GroupInputs(); ++c) {
          const int64_t from = i * g.input_channels + n / g.GroupOutputs() * g.GroupInputs() + c;
          const int64_t weight = (n * g.Taps() + tap) * g.GroupInputs() + c;
          const auto b = static_cast<uint8_t>(conv.b[static_cast<size_t>(weight)]);
          y[static_cast<size_t>(pixel * g.output_channels + n)] +=
              (core::DecodeInt8(conv.a_type, conv.a[static_cast<size_t>(from)]) - conv.a_zero_point) *
              (core::DecodeInt8(conv.b_type, b) - WeightZeroPoint(conv, n));
        }
      }
    }
  }
  return y;
}

TEST(Convolve, TransposedScattersItsFilter) {
  Conv conv = Ramp();
  Axis& axis = conv.geometry.axes[2];
  axis.transposed = true;
  EXPECT_EQ(Exact(conv), (Values{1, 12, 123, 234, 340, 400}));
  axis.stride = 2;
  EXPECT_EQ(Exact(conv), (Values{1, 10, 102, 20, 203, 30, 304, 40, 400}));
  axis.output_pad = 1;
  axis.pad_begin = 2;
  axis.pad_end = 1;
  EXPECT_EQ(Exact(conv), (Values{102, 20, 203, 30, 304, 40, 400}));
  axis.dilation = 3;
  axis.pad_end = 0;
  EXPECT_EQ(Exact(conv), (Values{2, 10, 3, 20, 104, 30, 200, 40, 300, 0, 400, 0}));
  axis = {4, 1, 3, 1, 0, 0, true, 2};
  conv.b = {5};
  conv.a_zero_point = 1;
  conv.bias_s32 = {7};
  EXPECT_EQ(Exact(conv), (Values{7, 7, 7, 12, 7, 7, 17, 7, 7, 22, 7, 7}));
}

TEST(Convolve, TransposedIsTheScatter) {
  int count = 0;
  for (const char* geometry :
       {"in=5 c=3 o=4 kernel=1 stride=3", "in=9 c=1 o=1 kernel=3 stride=2 pad=4:0",
        "in=6x7 c=5 o=3 kernel=3x2 stride=1x2 dilation=2x1 pad=1x0:2x3",
        "in=4x3 c=6 o=4 kernel=4x4 stride=2x3 pad=1x1 groups=2 batch=3",
        "in=1x2 c=6 o=12 kernel=2x5 stride=3x2 groups=6 batch=2",
        "in=3x2x4 c=4 o=2 kernel=2x3x2 stride=2x1x3 pad=1x2x0:0x1x2 dilation=1x2x2 groups=2"}) {
    for (const char* types : {"u8s8s32 za=9", "s8s8s32 za=-128 zb=-7", "u8u8s32 za=255 zb=3 zbper=channel",
                              "s8u8s32 za=127 zb=128 bias=s32"}) {
      const std::string line = std::string("conv ") + types + " " + geometry + " transposed=yes";
      SCOPED_TRACE(line);
      Conv conv = verify::MaterializeConv(tests::Parsed(line));
      EXPECT_EQ(Convolve(conv), Scatter(conv));
      EXPECT_EQ(Accumulators(conv, Model::kExact), Convolve(conv));
      ++count;
    }
  }
  EXPECT_EQ(count, 24);
}

// Two dimensions whose order matters: 1 2 / 3 4 under 1 10 / 100 1000, padded on the right and below.
TEST(Convolve, KnowsRowsFromColumns) {
  Conv conv;
  for (size_t i = 1; i < 3; ++i) {
    conv.geometry.axes[i].input = 2;
    conv.geometry.axes[i].kernel = 2;
    conv.geometry.axes[i].pad_end = 1;
  }
  conv.a = {1, 2, 3, 4};
  conv.b = {1, 10, 100, -100};
  EXPECT_EQ(Exact(conv), (Values{21 - 100, 402, 43, 4}));
}

// Two images of one pixel; two groups of two channels, each with two outputs.
TEST(Convolve, KeepsGroupsApart) {
  Conv conv;
  conv.geometry.dims = 1;
  conv.geometry.batch = 2;
  conv.geometry.groups = 2;
  conv.geometry.input_channels = 4;
  conv.geometry.output_channels = 4;
  conv.a = {1, 2, 3, 4, 5, 6, 7, 8};
  conv.b = {1, 0, 0, 1, 1, 1, 1, -1};
  conv.bias_s32 = {0, 0, 0, 100};
  EXPECT_EQ(Exact(conv), (Values{1, 2, 7, 99, 5, 6, 15, 99}));
  const std::vector<Gemm> groups = Lower(conv);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1].a, (std::vector<uint8_t>{3, 4, 7, 8}));
  EXPECT_EQ(groups[1].b, (std::vector<int8_t>{1, 1, 1, -1}));
  EXPECT_EQ(groups[1].bias_s32, (Values{0, 100}));
  const std::vector<int64_t> last_row = {1};
  const std::vector<Gemm> of_last = Lower(conv, last_row);
  EXPECT_EQ(of_last[1].m, 1);
  EXPECT_EQ(of_last[1].a, (std::vector<uint8_t>{7, 8}));
}

// Channels 0 and 1 of a tap are a pair. Channel 2 is alone, whatever the next tap holds.
TEST(Lowering, PairsChannelsWithinATap) {
  Conv conv;
  conv.geometry.dims = 1;
  conv.geometry.axes[2].input = 2;
  conv.geometry.axes[2].kernel = 2;
  conv.geometry.input_channels = 3;
  conv.a = {255, 255, 255, 255, 0, 0};
  conv.b = {127, 127, 127, 127, 0, 0};
  EXPECT_EQ(Exact(conv), (Values{4 * 255 * 127}));
  EXPECT_EQ(Accumulators(conv, Model::kMaddubs), (Values{32767 + 2 * 255 * 127}));
  const std::vector<Gemm> groups = Lower(conv);
  EXPECT_EQ(groups[0].k, 8);
  EXPECT_EQ(TapChannelOf(conv.geometry, 2), (TapChannel{{0, 0, 0}, 2}));
  EXPECT_EQ(TapChannelOf(conv.geometry, 4), (TapChannel{{0, 0, 1}, 0}));
  const std::vector<verify::SaturatedPair> pairs = verify::SaturatedPairs(groups[0], 0, 0);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].k, 0);
}

// An odd last channel cannot clamp, whatever the zero points.
TEST(Lowering, TheLastOddChannelIsAlone) {
  for (const intact_type a : {INTACT_U8, INTACT_S8}) {
    for (const intact_type b : {INTACT_U8, INTACT_S8}) {
      Conv conv;
      conv.a_type = a;
      conv.b_type = b;
      conv.a_zero_point = a == INTACT_U8 ? 255 : 127;
      conv.b_zero_points = {b == INTACT_U8 ? 0 : -128};
      conv.a = {static_cast<uint8_t>(a == INTACT_U8 ? 200 : 72)};
      conv.b = {static_cast<int8_t>(b == INTACT_U8 ? 255 : 127)};
      EXPECT_EQ(Exact(conv), (Values{-55 * 255}));
      EXPECT_EQ(Accumulators(conv, Model::kMaddubs), (Values{-55 * 255}));
    }
  }
}

// The instruction sees padding as the zero point, so it clamps like the zero point.
TEST(Lowering, PaddingIsTheZeroPointToTheInstruction) {
  Conv conv = Ramp();
  conv.geometry.input_channels = 2;
  conv.geometry.axes[2] = {1, 2, 1, 1, 1, 0};
  conv.a = {255, 255};
  conv.b = {127, 127, 0, 0};
  conv.a_zero_point = 255;
  EXPECT_EQ(Exact(conv), (Values{0}));
  EXPECT_EQ(Accumulators(conv, Model::kMaddubs), (Values{32767 - 255 * 254}));
}

// The instruction sees zero points between the input's pixels.
TEST(Lowering, PaddingBetweenPixelsIsTheZeroPointToTheInstruction) {
  Conv conv = Ramp();
  conv.geometry.input_channels = 2;
  conv.geometry.axes[2] = {1, 2, 2, 1, 0, 0, true};
  conv.a = {255, 255};
  conv.b = {0, 0, 127, 127};
  conv.a_zero_point = 255;
  EXPECT_EQ(Exact(conv), (Values{0, 0}));
  EXPECT_EQ(Accumulators(conv, Model::kMaddubs), (Values{32767 - 255 * 254, 32767 - 255 * 254}));
}

TEST(Geometry, PlacesOfRows) {
  ConvGeometry geometry;
  geometry.batch = 2;
  geometry.dims = 3;
  geometry.axes[0].input = 2;
  geometry.axes[1].input = 3;
  geometry.axes[2].input = 5;
  EXPECT_EQ(geometry.OutputPixels(), 60);
  EXPECT_EQ(PixelOf(geometry, 30 + 15 + 5 + 4), (Pixel{1, {1, 1, 4}}));
  geometry.axes[2].kernel = 6;
  EXPECT_EQ(geometry.axes[2].Output(), 0);
  EXPECT_EQ(geometry.OutputPixels(), 0);
}

TEST(Lowering, IsTheLoopNest) {
  int count = 0;
  for (const char* geometry :
       {"in=5 c=3 o=4 kernel=1", "in=9 c=1 o=1 kernel=3 stride=2", "in=4 c=2 o=3 kernel=9 pad=7:1",
        "in=6x7 c=5 o=3 kernel=3x2 stride=1x2 dilation=2x1 pad=1x0:2x3",
        "in=6x7 c=6 o=4 kernel=3x3 pad=1x1 groups=2 batch=3",
        "in=3x3 c=6 o=12 kernel=2x3 pad=4x4 groups=6 batch=2",
        "in=3x4x5 c=4 o=2 kernel=2x3x2 stride=2x1x3 pad=1x2x0:0x1x2 dilation=1x2x2 groups=2",
        "in=2x3 c=3 o=3 kernel=5x3 dilation=2x3 pad=5x4 groups=3",
        "in=8x8 c=3 o=16 kernel=7x7 stride=2x2 pad=3x3"}) {
    for (const char* types : {"u8s8s32 za=9", "s8s8s32 za=-128 zb=-7", "u8u8s32 za=255 zb=3 zbper=channel",
                              "s8u8s32 za=127 zb=128 bias=s32"}) {
      const std::string line = std::string("conv ") + types + " " + geometry;
      SCOPED_TRACE(line);
      const Conv conv = verify::MaterializeConv(tests::Parsed(line));
      EXPECT_EQ(Accumulators(conv, Model::kExact), Convolve(conv));
      ++count;
    }
  }
  EXPECT_EQ(count, 36);
}

// Channels of two taps. The first tap of the first pixel and the last tap of the last pixel are padding.
TEST(Lowering, PaddingMayBeLeftOutOfPairs) {
  Conv conv;
  conv.geometry.dims = 1;
  conv.geometry.input_channels = 2;
  conv.geometry.axes[2] = {.input = 1, .kernel = 2, .pad_begin = 1, .pad_end = 1};
  conv.a_zero_point = 255;
  conv.a = {255, 250};
  conv.b = {127, 127, -128, -128};
  EXPECT_EQ(Convolve(conv), (std::vector<int32_t>{5 * 128, -5 * 127}));
  // With padding both pairs clamp in each pixel. Without it only the pair of the real tap clamps.
  const int32_t compensation = -255 * (127 + 127 - 128 - 128);
  Model model = Model::kMaddubs;
  EXPECT_EQ(Accumulators(conv, model),
            (std::vector<int32_t>{32767 - 32768 + compensation, 32767 - 32768 + compensation}));
  model.skips_padding = true;
  EXPECT_EQ(Accumulators(conv, model), (std::vector<int32_t>{-32768 + 255 * 256, 32767 - 255 * 254}));
  conv.a_zero_point = 0;
  EXPECT_EQ(Accumulators(conv, model), Accumulators(conv, Model::kMaddubs));
}

}  // namespace
}  // namespace intact::reference
