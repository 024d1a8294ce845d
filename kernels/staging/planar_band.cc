#include "kernels/staging/planar_band.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/result.h"
#include "kernels/runtime/blocking.h"
#include "kernels/runtime/caches.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
namespace {

constexpr int64_t kSourceQuads = QuadSource::kBytes / kQuad;

constexpr int64_t kPixelsAtOnce = 64;

// The phases that some tap reads.
std::vector<int64_t> UsedPhases(const ConvGeometry& geometry, Dimension dimension) {
  std::set<int64_t> used;
  for (int64_t tap = 0; tap < geometry.kernel[dimension]; ++tap) {
    used.insert(tap * geometry.dilation[dimension] % geometry.stride[dimension]);
  }
  return {used.begin(), used.end()};
}

// Groups that fill whole panels, and about a cache line of each pixel.
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

PlanarBand::PlanarBand(const ConvGeometry& geometry, uint8_t shift)
    : geometry_(geometry), shift_(shift), line_phases_(UsedPhases(geometry, kHeight)) {
  const Spatial& stride = geometry.stride;
  for (const int64_t phase : UsedPhases(geometry, kWidth)) {
    const int64_t first_x = phase - geometry.pad_begin[kWidth];
    const auto position_of = [&](int64_t x) {
      return RoundUp(std::max<int64_t>(x - first_x, 0), stride[kWidth]) / stride[kWidth];
    };
    pixel_phases_.push_back({phase, first_x, position_of(0), position_of(geometry.input[kWidth])});
  }
  const auto length = [&](Dimension dimension, int64_t outputs) {
    return (geometry.Span(dimension, outputs) - 1) / stride[dimension] + 1;
  };
  line_length_ = length(kWidth, width());
  line_positions_ = LinePositions();
  // The next line, if any, overwrites the surplus.
  line_length_ = RoundUp(line_length_, PixelTransposeArgs::kPixels);
  const int64_t group_quads = RoundUp(geometry.group_inputs(), kQuad) / kQuad;
  const int64_t slices = geometry.kernel[kDepth];
  const int64_t phases = stride[kHeight] * stride[kWidth];
  const int64_t others = length(kHeight, 1) - 1;
  groups_ = ChooseGroups(geometry);
  const int64_t line_bytes = groups_ * group_quads * kQuad * slices * phases * line_positions_;
  lines_ = std::clamp<int64_t>(Caches().PlanarLines() / line_bytes - others, 1, geometry.output[kHeight]);
  phase_positions_ = length(kHeight, lines_) * line_positions_ + line_length_ - line_positions_;
  slice_positions_ = phases * phase_positions_;
  // An odd number of cache lines, so that quads do not share sets of L1.
  quad_bytes_ = RoundUp(slices * slice_positions_ * kQuad, 128) + 64;
  quads_ = groups_ * group_quads;
  sources_per_band_ = RoundUp(quads_, kSourceQuads) / kSourceQuads;
  SetSources();
}

bool PlanarBand::CanOrderChannels() const {
  const int64_t inputs = geometry_.group_inputs();
  return !sources_.empty() && inputs >= kQuad && QuadSource::kBytes % inputs == 0;
}

void PlanarBand::OrderChannels(std::vector<int64_t> order) {
  order_ = std::move(order);
  SetSources();
}

void PlanarBand::SetSources() {
  sources_.clear();
  if (geometry_.input_channels < QuadSource::kBytes) return;
  for (int64_t group = 0; group < geometry_.groups; group += groups_) {
    for (int64_t i = 0; i < sources_per_band_; ++i) {
      sources_.push_back(SourceOf(group * group_quads() + i * kSourceQuads));
    }
  }
}

QuadSource PlanarBand::SourceOf(int64_t first_quad) const {
  const int64_t inputs = geometry_.group_inputs();
  const auto first_channel = [&](int64_t quad) {
    return quad / group_quads() * inputs + quad % group_quads() * kQuad;
  };
  QuadSource source;
  source.offset = std::min(first_channel(first_quad), geometry_.input_channels - QuadSource::kBytes);
  for (int64_t i = 0; i < QuadSource::kBytes; ++i) {
    const int64_t quad = first_quad + i / kQuad;
    const bool is_channel =
        quad % group_quads() * kQuad + i % kQuad < inputs && quad < geometry_.groups * group_quads();
    const int64_t place = first_channel(quad) + i % kQuad;
    const auto channel = [&] { return HasOrder() ? order_[static_cast<size_t>(place)] : place; };
    source.shuffle[static_cast<size_t>(i)] =
        static_cast<uint8_t>(is_channel ? channel() - source.offset : 0x80);
  }
  return source;
}

Error PlanarBand::GenerateKernel() {
  if (sources_.empty()) return {};
  const bool shuffles = std::any_of(sources_.begin(), sources_.end(), [](const QuadSource& source) {
    for (uint8_t i = 0; i < QuadSource::kBytes; ++i) {
      if (source.shuffle[i] != i) return true;
    }
    return false;
  });
  ASSIGN_OR_RETURN(transpose_, GetPixelTranspose(shift_ != 0, shuffles));
  return {};
}

// Positions from a line to the next: at least the outputs of a line, and enough that only padding overlaps
// the next line's padding.
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
  return bytes() <= Caches().WholePlanarBand() && all < std::numeric_limits<uint32_t>::max() / bytes();
}

int64_t PlanarBand::EndFrom(int64_t row, int64_t row_end) const {
  const int64_t plane = row / geometry_.plane_pixels();
  const int64_t line = row % geometry_.plane_pixels() / width();
  const int64_t end_line = std::min(line + lines_, geometry_.output[kHeight]);
  return std::min(row_end, plane * geometry_.plane_pixels() + end_line * width());
}

PlanarAccess PlanarBand::MakeAccess() const {
  PlanarAccess access;
  access.line_rows = width();
  access.line_positions = line_positions_;
  access.group_columns = GroupColumns(geometry_);
  access.group_bytes = group_quads() * quad_bytes_;
  const Spatial& kernel = geometry_.kernel;
  const Spatial& dilation = geometry_.dilation;
  for (int64_t quad = 0; quad < group_quads(); ++quad) {
    for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
      const int64_t slice = tap / (kernel[kHeight] * kernel[kWidth]);
      const int64_t y = tap / kernel[kWidth] % kernel[kHeight] * dilation[kHeight];
      const int64_t x = tap % kernel[kWidth] * dilation[kWidth];
      access.quad_offsets.push_back(static_cast<uint32_t>(quad * quad_bytes_ + Offset(slice, y, x) * kQuad));
    }
  }
  return access;
}

PlanarRows PlanarBand::Stage(const ConvInput& input, int64_t group, int64_t row_begin, int64_t row_end,
                             uint8_t* to) const noexcept {
  const int64_t plane = row_begin / geometry_.plane_pixels();
  const int64_t first_line = row_begin % geometry_.plane_pixels() / width();
  const int64_t lines = (row_end - 1) % geometry_.plane_pixels() / width() + 1 - first_line;
  PlanarRows rows;
  rows.origin = reinterpret_cast<uintptr_t>(to) - static_cast<uintptr_t>(group * group_quads() * quad_bytes_);
  rows.first_row = plane * geometry_.plane_pixels() + first_line * width();
  const int64_t span = geometry_.Span(kHeight, lines);
  const int64_t line_bytes = geometry_.input[kWidth] * input.stride;
  for (int64_t slice = 0; slice < geometry_.kernel[kDepth]; ++slice) {
    const uint8_t* const image = InputLine(geometry_, input, plane, slice, geometry_.pad_begin[kHeight]);
    for (const int64_t line_phase : line_phases_) {
      uint8_t* to_line = to + Offset(slice, line_phase, 0) * kQuad;
      int64_t y = first_line * geometry_.stride[kHeight] + line_phase - geometry_.pad_begin[kHeight];
      for (const int64_t end = y - line_phase + span; y < end; y += geometry_.stride[kHeight]) {
        const bool is_inside = image != nullptr && y >= 0 && y < geometry_.input[kHeight];
        const PixelLine line{is_inside ? image + y * line_bytes : nullptr, input.stride, input.padding};
        rows.largest = std::max(rows.largest, StageLine(line, group, to_line));
        to_line += line_positions_ * kQuad;
      }
    }
  }
  return rows;
}

uint8_t PlanarBand::StageLine(const PixelLine& line, int64_t group, uint8_t* to) const noexcept {
  uint8_t largest = 0;
  for (const PixelPhase& phase : pixel_phases_) {
    uint8_t* const to_phase = to + phase.number * phase_positions_ * kQuad;
    for (int64_t position = 0; position < line_length_; position += kPixelsAtOnce) {
      std::array<const uint8_t*, kPixelsAtOnce> pixels;
      const int64_t count = std::min(kPixelsAtOnce, line_length_ - position);
      ListPixels(line, phase, position, {pixels.data(), static_cast<size_t>(count)});
      const uint8_t of_these =
          Transpose({pixels.data(), static_cast<size_t>(count)}, group, to_phase + position * kQuad);
      largest = std::max(largest, of_these);
    }
  }
  return largest;
}

// Lists the pixels from position `first` on.
void PlanarBand::ListPixels(const PixelLine& line, const PixelPhase& phase, int64_t first,
                            std::span<const uint8_t*> pixels) const noexcept {
  const int64_t count = std::ssize(pixels);
  const int64_t begin = line.first == nullptr ? count : std::clamp<int64_t>(phase.begin - first, 0, count);
  const int64_t end = line.first == nullptr ? count : std::clamp<int64_t>(phase.end - first, begin, count);
  std::fill_n(pixels.begin(), begin, line.padding);
  if (begin < end) {
    const int64_t step = geometry_.stride[kWidth] * line.stride;
    const uint8_t* pixel = line.first + phase.first_x * line.stride + (first + begin) * step;
    for (int64_t i = begin; i < end; ++i, pixel += step) pixels[static_cast<size_t>(i)] = pixel;
  }
  std::fill(pixels.begin() + end, pixels.end(), line.padding);
}

uint8_t PlanarBand::Transpose(std::span<const uint8_t* const> pixels, int64_t group,
                              uint8_t* to) const noexcept {
  uint8_t largest = 0;
  if (!transpose_) {
    const int64_t inputs = geometry_.group_inputs();
    for (int64_t i = 0; i < std::min(groups_, geometry_.groups - group); ++i) {
      largest = std::max(largest, PackActivations(pixels, (group + i) * inputs, inputs, shift_,
                                                  quad_bytes_ / kQuad, to + i * group_quads() * quad_bytes_));
    }
    return largest;
  }
  PixelTransposeArgs args;
  args.pixels = pixels.data();
  args.pixels_end = args.pixels + pixels.size();
  args.sources = sources_.data() + group / groups_ * sources_per_band_;
  args.sources_end = args.sources + sources_per_band_;
  args.to = to;
  args.quad_bytes = quad_bytes_;
  transpose_(&args);
  return args.Largest();
}

}  // namespace intact::kernels
