#include "kernels/plans/conv_simplified.h"

#include <algorithm>

#include "kernels/problem/conv_geometry.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {
namespace {

/// Adjacent taps of a dimension.
struct TapSpan {
  int64_t first = 0, end = 0;
};

bool MeetsInput(const ConvGeometry& geometry, Dimension dimension, int64_t tap) {
  const int64_t stride = geometry.stride[dimension];
  const int64_t of_first = tap * geometry.dilation[dimension] - geometry.pad_begin[dimension];
  const int64_t output = of_first >= 0 ? 0 : CeilDivide(-of_first, stride);
  return output < geometry.output[dimension] && of_first + output * stride < geometry.input[dimension];
}

// From the first tap to the last tap that meet the input. If none does, tap 0: kernels run at least one.
TapSpan SpanOf(const ConvGeometry& geometry, Dimension dimension) {
  TapSpan span = {0, geometry.kernel[dimension]};
  while (span.end > 1 && !MeetsInput(geometry, dimension, span.end - 1)) --span.end;
  while (span.first < span.end - 1 && !MeetsInput(geometry, dimension, span.first)) ++span.first;
  return span;
}

void Cut(const TapSpan& span, Dimension dimension, ConvGeometry* geometry) {
  int64_t& dilation = geometry->dilation[dimension];
  geometry->pad_begin[dimension] -= span.first * dilation;
  geometry->pad_end[dimension] -= (geometry->kernel[dimension] - span.end) * dilation;
  geometry->kernel[dimension] = span.end - span.first;
  if (geometry->kernel[dimension] == 1) dilation = 1;
  int64_t& pad_end = geometry->pad_end[dimension];
  if (geometry->is_open[dimension] || pad_end <= 0) return;
  // Without the padding that no tap of the last output reads.
  const int64_t last = (geometry->output[dimension] - 1) * geometry->stride[dimension] +
                       (geometry->kernel[dimension] - 1) * dilation;
  const int64_t read = last + 1 - geometry->input[dimension] - geometry->pad_begin[dimension];
  pad_end = std::clamp<int64_t>(read, 0, pad_end);
}

// Whether the dimension has one pixel, one tap and no padding, for all extents.
bool IsFlat(const ConvGeometry& geometry, Dimension dimension) {
  return !geometry.is_open[dimension] && geometry.input[dimension] == 1 && geometry.kernel[dimension] == 1 &&
         geometry.output[dimension] == 1 && geometry.pad_begin[dimension] == 0 &&
         geometry.pad_end[dimension] == 0;
}

// Moves the width outwards, and the other dimensions inwards. With a flat width, the order of pixels and the
// order of taps stay.
void MoveWidthOutwards(ConvGeometry* geometry) {
  const auto move = [](auto* values) { std::rotate(values->begin(), values->end() - 1, values->end()); };
  for (Spatial* values :
       {&geometry->input, &geometry->kernel, &geometry->stride, &geometry->dilation, &geometry->pad_begin,
        &geometry->pad_end, &geometry->output_pad, &geometry->output}) {
    move(values);
  }
  move(&geometry->is_open);
}

}  // namespace

ConvPhase Simplified(const ConvGeometry& geometry, bool drops_taps) {
  ConvPhase phase;
  phase.geometry = geometry;
  phase.taps = {0};
  for (const Dimension dimension : {kDepth, kHeight, kWidth}) {
    const bool drops = drops_taps && !geometry.is_open[dimension];
    const TapSpan span = drops ? SpanOf(geometry, dimension) : TapSpan{0, geometry.kernel[dimension]};
    std::vector<int64_t> taps;
    taps.reserve(phase.taps.size() * static_cast<size_t>(span.end - span.first));
    for (const int64_t outer : phase.taps) {
      for (int64_t tap = span.first; tap < span.end; ++tap) {
        taps.push_back(outer * geometry.kernel[dimension] + tap);
      }
    }
    phase.taps = std::move(taps);
    Cut(span, dimension, &phase.geometry);
  }
  for (int moves = 0; moves < 2 && IsFlat(phase.geometry, kWidth); ++moves)
    MoveWidthOutwards(&phase.geometry);
  phase.grid = OutputGrid::All(phase.geometry.output);
  return phase;
}

}  // namespace intact::kernels
