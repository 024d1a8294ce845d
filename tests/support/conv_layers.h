// Problem lines of convolutions, one for each way in which the library computes them, and the same layers on
// inputs of other extents.
#ifndef INTACT_TESTS_SUPPORT_CONV_LAYERS_H_
#define INTACT_TESTS_SUPPORT_CONV_LAYERS_H_

#include <intact/intact.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "reference/contract/conv.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {

struct ConvLayer {
  const char* name;
  const char* line;
};

inline std::ostream& operator<<(std::ostream& out, const ConvLayer& layer) { return out << layer.line; }

inline constexpr ConvLayer kConvLayers[] = {
    {"Padded3x3",
     "conv u8s8u8 in=9x11 c=16 o=24 kernel=3x3 pad=1x1 za=3 zc=7 bias=f32 scale=channel act=relu"},
    {"Padded3x3Saturating",
     "conv u8s8s32 in=9x11 c=6 o=20 kernel=3x3 pad=1x1 za=30 fill=bait mode=saturating"},
    {"Padded3x3ZeroPoints", "conv s8u8s8 in=8x7 c=7 o=18 kernel=3x3 pad=1x1 za=-9 zb=77 zbper=channel zc=-3"},
    {"AsymmetricStride2", "conv u8s8s32 in=12x9 c=5 o=10 kernel=5x5 stride=2x2 pad=2x1:1x3 za=9 bias=s32"},
    {"AsymmetricSaturating",
     "conv s8s8s32 in=12x9 c=5 o=10 kernel=5x5 stride=2x2 pad=2x1:1x3 za=-40 fill=bait mode=saturating"},
    {"FlattenedFirst",
     "conv u8s8u8 in=13x11 c=3 o=20 kernel=5x5 stride=2x2 pad=2x2:1x3 pairing=flattened za=30 zc=7 bias=f32 "
     "scale=channel fill=bait mode=saturating"},
    {"FlattenedSigned",
     "conv s8s8s32 in=9x11 c=5 o=18 kernel=3x3 dilation=1x2 pad=1x2 pairing=flattened za=-40 fill=bait "
     "mode=saturating"},
    {"FlattenedZeroPoints",
     "conv u8u8s32 in=8x7 c=7 o=18 kernel=3x3 pad=1x1 pairing=flattened za=9 zb=77 zbper=channel fill=bait "
     "mode=saturating"},
    {"FlattenedGroups",
     "conv u8s8s32 in=9x8 c=15 o=10 groups=5 kernel=3x3 pad=1x1 pairing=flattened za=60 fill=bait "
     "mode=saturating"},
    {"FlattenedEvenLines",
     "conv u8s8s32 in=9x11 c=5 o=18 kernel=3x4 pad=1x2 pairing=flattened za=60 fill=bait mode=saturating"},
    {"FlattenedVolume",
     "conv s8u8s8 in=4x5x7 c=3 o=9 kernel=3x3x3 pad=1x1x1 pairing=flattened za=-7 zc=3 fill=bait "
     "mode=saturating"},
    {"FlattenedDepthwise",
     "conv u8s8s32 in=9x21 c=40 o=40 groups=40 kernel=3x3 pad=1x1 pairing=flattened za=17 fill=bait "
     "mode=saturating"},
    {"FlattenedDepthwiseMultiplier2",
     "conv s8s8s32 in=9x11 c=19 o=38 groups=19 kernel=5x5 stride=2x2 pad=2x2 pairing=flattened za=-7 "
     "fill=bait "
     "mode=saturating"},
    {"FlattenedDepthwiseZeroPoints",
     "conv u8u8s32 in=6x7 c=9 o=9 groups=9 kernel=5x3 pad=2x1 pairing=flattened za=9 zb=100 fill=bait "
     "mode=saturating"},
    {"InPlace1x1", "conv s8s8u8 in=7x9 c=33 o=20 kernel=1x1 za=-5 zc=128 bias=s32 fill=laplace"},
    {"InPlace1x1Saturating", "conv u8u8s32 in=7x9 c=33 o=20 kernel=1x1 za=5 zb=90 fill=bait mode=saturating"},
    {"Strided1x1",
     "conv u8s8u8 in=9x12 c=24 o=17 kernel=1x1 stride=2x2 za=11 res=u8 zres=9 inplace=yes act=relu"},
    {"Dilated", "conv u8s8s8 in=9x11 c=8 o=16 kernel=3x3 dilation=2x2 pad=2x1 za=200 res=s8 inplace=yes"},
    {"DilatedWide", "conv u8s8s32 in=9x9 c=3 o=9 kernel=2x3 dilation=1x3 stride=1x2 pad=0x2:1x4 za=1"},
    {"Depthwise", "conv u8s8u8 in=9x11 c=40 o=40 groups=40 kernel=3x3 pad=1x1 za=17 zc=3 bias=f32"},
    {"DepthwiseStride2", "conv s8s8s32 in=9x11 c=19 o=19 groups=19 kernel=3x3 stride=2x2 pad=0x0:1x1 za=-7"},
    {"DepthwiseZeroPoints", "conv u8u8u8 in=6x7 c=33 o=33 groups=33 kernel=5x3 pad=2x1 za=9 zb=100 zc=9"},
    {"DepthwiseMultiplier2",
     "conv u8s8s32 in=9x11 c=12 o=24 groups=12 kernel=3x3 pad=1x1 za=8 bias=s32 fill=extremes"},
    {"Grouped", "conv u8s8u8 in=9x11 c=32 o=64 groups=8 kernel=3x3 pad=1x1 za=3 bias=f32"},
    {"GroupedSigned", "conv s8s8s32 in=9x11 c=32 o=32 groups=8 kernel=3x3 pad=1x1 za=-33 bias=s32"},
    {"GroupedZeroPoints",
     "conv s8u8u8 in=9x11 c=24 o=16 groups=8 kernel=3x3 pad=1x1 za=4 zb=9 zbper=channel"},
    {"GroupedStride2",
     "conv u8s8s32 in=9x11 c=64 o=64 groups=8 kernel=3x3 stride=2x2 pad=1x1 za=3 fill=gauss"},
    {"GroupedRange", "conv u8s8s32 in=9x11 c=64 o=64 groups=8 kernel=3x3 pad=1x1 arange=127 fill=stray"},
    {"GroupedSaturating",
     "conv u8s8s32 in=9x11 c=24 o=16 groups=8 kernel=3x3 pad=1x1 za=60 fill=bait mode=saturating"},
    {"Grouped1x1", "conv u8s8u8 in=5x6 c=32 o=64 groups=4 kernel=1x1 za=3"},
    {"Line", "conv u8s8u8 in=40 c=6 o=12 kernel=5 pad=2 za=3"},
    {"LineGrouped", "conv s8s8f32 in=40 c=16 o=16 groups=4 kernel=3 stride=2 pad=1 res=f32 inplace=yes"},
    {"Volume", "conv u8s8s32 in=4x5x7 c=5 o=9 kernel=3x3x3 pad=1x1x1 za=77"},
    {"VolumeStride2InDepth", "conv u8s8u8 in=5x4x6 c=9 o=10 kernel=1x1x1 stride=2x1x1 za=2"},
    {"VolumeDepthwise", "conv u8s8s32 in=4x5x6 c=17 o=17 groups=17 kernel=3x3x3 stride=2x1x1 pad=1x1x1 za=7"},
    {"VolumeGrouped", "conv u8s8s32 in=4x5x7 c=16 o=16 groups=8 kernel=2x3x3 pad=1x1x1:0x1x1 za=5"},
    {"Transposed3",
     "conv u8s8u8 in=5x6 c=10 o=12 kernel=3x3 stride=2x2 pad=1x1 outpad=1x1 za=9 transposed=yes"},
    {"Transposed4",
     "conv u8s8s32 in=5x6 c=8 o=20 kernel=4x4 stride=2x2 pad=1x1 za=9 bias=s32 transposed=yes"},
    {"TransposedBare",
     "conv u8s8s8 in=5x6 c=8 o=20 kernel=2x2 stride=3x3 za=9 bias=s32 res=s8 inplace=yes transposed=yes"},
    {"TransposedSaturating",
     "conv s8s8s32 in=5x6 c=7 o=11 kernel=2x4 stride=3x2 pad=0x1 za=-70 fill=bait mode=saturating "
     "transposed=yes"},
    {"TransposedGrouped",
     "conv u8s8s32 in=5x6 c=32 o=32 groups=8 kernel=4x4 stride=2x2 pad=1x1 za=3 transposed=yes"},
    {"TransposedDepthwise",
     "conv u8s8u8 in=5x6 c=20 o=20 groups=20 kernel=3x3 stride=2x2 pad=1x1 za=3 transposed=yes"},
    {"TransposedLine", "conv u8s8s32 in=20 c=4 o=9 kernel=5 stride=3 dilation=2 pad=1 za=3 transposed=yes"},
};

/// A value for each of a convolution's dimensions, outermost first.
using Extents = std::vector<int64_t>;

inline Extents InputOf(const reference::ConvGeometry& geometry) {
  Extents extents;
  for (int i = reference::kMaxSpatial - geometry.dims; i < reference::kMaxSpatial; ++i) {
    extents.push_back(geometry.axes[static_cast<size_t>(i)].input);
  }
  return extents;
}

inline Extents OutputOf(const reference::ConvGeometry& geometry) {
  Extents extents;
  for (int i = reference::kMaxSpatial - geometry.dims; i < reference::kMaxSpatial; ++i) {
    extents.push_back(geometry.axes[static_cast<size_t>(i)].Output());
  }
  return extents;
}

inline void SetInput(const Extents& extents, reference::ConvGeometry* geometry) {
  for (size_t i = 0; i < extents.size(); ++i) {
    geometry->axes[reference::kMaxSpatial - extents.size() + i].input = extents[i];
  }
}

/// The layer `layer` of `problem` on another input. Only the activations and the residual are new.
inline reference::Conv OnInput(const verify::Problem& problem, const reference::Conv& layer,
                               const Extents& extents, int64_t batch, uint64_t seed) {
  verify::Problem resized = problem;
  SetInput(extents, &*resized.conv);
  resized.conv->batch = batch;
  resized.seed = seed;
  reference::Conv tensors = verify::MaterializeConv(resized);
  reference::Conv made = layer;
  made.geometry = *resized.conv;
  made.a = std::move(tensors.a);
  made.residual = std::move(tensors.residual);
  return made;
}

/// The descriptor of `conv` with open extents: the dimensions `i` whose bit 1 << i is in `open`.
inline ConvDesc OpenDescOf(const reference::Conv& conv, const verify::RunOptions& options, unsigned open) {
  ConvDesc desc = verify::DescOf(conv, options);
  for (int i = 0; i < desc.spatial_dims; ++i) {
    if ((open >> i & 1u) != 0) desc.input[i] = INTACT_ANY_EXTENT;
  }
  return desc;
}

/// All dimensions open, then each one alone, as OpenDescOf() takes them.
inline std::vector<unsigned> OpenDimensions(int dims) {
  std::vector<unsigned> open = {(1u << dims) - 1};
  for (int i = 0; i < dims && dims > 1; ++i) open.push_back(1u << i);
  return open;
}

/// The output of `conv` by the scalar model of the mode and the ISA.
inline std::vector<uint8_t> ExpectedOutput(const reference::Conv& conv, const verify::RunOptions& options) {
  const auto model = verify::ExpectedModel(conv, options.isa);
  return reference::Outputs(conv, reference::Accumulators(conv, model));
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_CONV_LAYERS_H_
