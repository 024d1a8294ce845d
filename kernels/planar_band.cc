#include "kernels/planar_band.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "kernels/blocking.h"
#include "kernels/engine.h"
#include "kernels/pack.h"

namespace intact::kernels {
namespace {

// The phases that some tap reads.
std::vector<bool> UsedPhases(const ConvGeometry& geometry, Dimension dimension) {
  std::vector<bool> used(static_cast<size_t>(geometry.stride[dimension]));
  for (int64_t tap = 0; tap < geometry.kernel[dimension]; ++tap) {
    used[static_cast<size_t>(tap * geometry.dilation[dimension] % geometry.stride[dimension])] = true;
  }
  return used;
}

// Whole panels, and a cache line of each pixel.
int64_t ChooseGroups(const ConvGeometry& geometry) {
  constexpr int64_t kLine = 64;
  // Static analysis does not know that these are at least 1.
  const int64_t inputs = std::max<int64_t>(geometry.group_inputs(), 1);
  const int64_t outputs = std::max<int64_t>(geometry.group_outputs(), 1);
  const int64_t panel = std::max<int64_t>(std::lcm(outputs, kPanelColumns) / outputs, 1);
  const int64_t panels = std::max<int64_t>(kLine / (panel * inputs), 1);
  return std::min(panels * panel, geometry.groups);
}

}  // namespace

PlanarBand::PlanarBand(const ConvGeometry& geometry, uint8_t padding, uint8_t flip)
    : geometry_(geometry),
      padding_(static_cast<size_t>(geometry.input_channels), padding),
      flip_(flip),
      uses_line_phase_(UsedPhases(geometry, kHeight)),
      uses_pixel_phase_(UsedPhases(geometry, kWidth)) {
  const Spatial& stride = geometry.stride;
  const auto length = [&](Dimension dimension, int64_t outputs) {
    return (geometry.Span(dimension, outputs) - 1) / stride[dimension] + 1;
  };
  line_length_ = length(kWidth, width());
  line_positions_ = LinePositions();
  const int64_t group_quads = RoundUp(geometry.group_inputs(), kQuad) / kQuad;
  const int64_t slices = geometry.kernel[kDepth];
  const int64_t phases = stride[kHeight] * stride[kWidth];
  const int64_t others = length(kHeight, 1) - 1;
  groups_ = ChooseGroups(geometry);
  const int64_t line_bytes = groups_ * group_quads * kQuad * slices * phases * line_positions_;
  lines_ = std::clamp<int64_t>(Caches().l1d_bytes * 3 / 4 / line_bytes - others, 1, geometry.output[kHeight]);
  phase_positions_ = length(kHeight, lines_) * line_positions_ + line_length_ - line_positions_;
  slice_positions_ = phases * phase_positions_;
  // An odd number of cache lines, so that quads do not meet in the same sets of L1.
  quad_bytes_ = RoundUp(slices * slice_positions_ * kQuad, 128) + 64;
  quads_ = groups_ * group_quads;
}

// From a line to the next: no less than its outputs, and than it takes for nothing but padding to lie on that
// of the next line.
int64_t PlanarBand::LinePositions() const {
  const int64_t stride = geometry_.stride[kWidth];
  const int64_t padding = geometry_.pad_begin[kWidth];
  const int64_t begin = RoundUp(padding + geometry_.input[kWidth], stride) / stride;
  const int64_t end =
      RoundUp(std::max<int64_t>(geometry_.Span(kWidth, width()) - padding, 0), stride) / stride;
  return std::min(std::max({width(), begin, end}), line_length_);
}

bool PlanarBand::IsSmall() const {
  const int64_t all = geometry_.groups / groups_ + 1;
  return bytes() <= Caches().l2_bytes && all < std::numeric_limits<uint32_t>::max() / bytes();
}

int64_t PlanarBand::EndFrom(int64_t row, int64_t row_end) const {
  const int64_t plane = row / geometry_.plane_pixels();
  const int64_t line = row % geometry_.plane_pixels() / width();
  const int64_t end_line = std::min(line + lines_, geometry_.output[kHeight]);
  return std::min(row_end, plane * geometry_.plane_pixels() + end_line * width());
}

PlanarDepth PlanarBand::MakeDepth() const {
  PlanarDepth depth;
  depth.line_rows = width();
  depth.line_positions = line_positions_;
  depth.group_columns = geometry_.group_outputs();
  depth.group_bytes = group_quads() * quad_bytes_;
  const Spatial& kernel = geometry_.kernel;
  const Spatial& dilation = geometry_.dilation;
  for (int64_t quad = 0; quad < group_quads(); ++quad) {
    for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
      const int64_t slice = tap / (kernel[kHeight] * kernel[kWidth]);
      const int64_t y = tap / kernel[kWidth] % kernel[kHeight] * dilation[kHeight];
      const int64_t x = tap % kernel[kWidth] * dilation[kWidth];
      depth.quad_offsets.push_back(static_cast<uint32_t>(quad * quad_bytes_ + Offset(slice, y, x) * kQuad));
    }
  }
  return depth;
}

PlanarRows PlanarBand::Stage(const ConvInput& input, int64_t group, int64_t row_begin, int64_t row_end,
                             uint8_t* to) const noexcept {
  const int64_t plane = row_begin / geometry_.plane_pixels();
  const int64_t first_line = row_begin % geometry_.plane_pixels() / width();
  const int64_t lines = (row_end - 1) % geometry_.plane_pixels() / width() + 1 - first_line;
  const int64_t groups = std::min(groups_, geometry_.groups - group);
  const ConvInput first{input.a + group * geometry_.group_inputs(), input.stride};
  PlanarRows rows;
  rows.origin = reinterpret_cast<uintptr_t>(to) - static_cast<uintptr_t>(group * group_quads() * quad_bytes_);
  rows.first_row = plane * geometry_.plane_pixels() + first_line * width();
  for (int64_t slice = 0; slice < geometry_.kernel[kDepth]; ++slice) {
    for (int64_t y = 0; y < geometry_.Span(kHeight, lines); ++y) {
      if (!uses_line_phase_[static_cast<size_t>(Phase(kHeight, y))]) continue;
      const uint8_t* const line =
          InputLine(geometry_, first, plane, slice, first_line * geometry_.stride[kHeight] + y);
      for (int64_t phase = 0; phase < geometry_.stride[kWidth]; ++phase) {
        if (!uses_pixel_phase_[static_cast<size_t>(phase)]) continue;
        const uint8_t largest =
            StageLine(line, input.stride, groups, phase, to + Offset(slice, y, phase) * kQuad);
        rows.largest = std::max(rows.largest, largest);
      }
    }
  }
  return rows;
}

// `line`: pixel 0 of a line of the input, or null outside of it.
uint8_t PlanarBand::StageLine(const uint8_t* line, int64_t pixel_stride, int64_t groups, int64_t phase,
                              uint8_t* to) const noexcept {
  constexpr int64_t kAtOnce = 64;
  // Groups of whole quads follow each other without a gap: they are packed as one.
  const int64_t inputs = geometry_.group_inputs();
  const int64_t joined = inputs % kQuad == 0 ? groups : 1;
  std::array<const uint8_t*, kAtOnce> pixels;
  uint8_t largest = 0;
  int64_t x = phase - geometry_.pad_begin[kWidth];
  for (int64_t position = 0; position < line_length_; position += kAtOnce) {
    const int64_t count = std::min(kAtOnce, line_length_ - position);
    for (int64_t i = 0; i < count; ++i, x += geometry_.stride[kWidth]) {
      const bool is_inside = line != nullptr && x >= 0 && x < geometry_.input[kWidth];
      pixels[static_cast<size_t>(i)] = is_inside ? line + x * pixel_stride : padding_.data();
    }
    for (int64_t group = 0; group < groups; group += joined) {
      uint8_t* const quads = to + position * kQuad + group * group_quads() * quad_bytes_;
      largest = std::max(largest, PackActivations({pixels.data(), static_cast<size_t>(count)}, group * inputs,
                                                  joined * inputs, flip_, quad_bytes_ / kQuad, quads));
    }
  }
  return largest;
}

}  // namespace intact::kernels
