#include "kernels/staging/band.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/runtime/blocking.h"
#include "kernels/runtime/caches.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

const uint8_t* InputLine(const ConvGeometry& geometry, const ConvInput& input, int64_t plane,
                         int64_t depth_tap, int64_t y) noexcept {
  const Spatial& extents = geometry.input;
  const int64_t image = Quotient(plane, geometry.output[kDepth]);
  const int64_t z = (plane - image * geometry.output[kDepth]) * geometry.stride[kDepth] -
                    geometry.pad_begin[kDepth] + depth_tap * geometry.dilation[kDepth];
  const int64_t line = y - geometry.pad_begin[kHeight];
  if (z < 0 || z >= extents[kDepth] || line < 0 || line >= extents[kHeight]) return nullptr;
  return input.a + ((image * extents[kDepth] + z) * extents[kHeight] + line) * extents[kWidth] * input.stride;
}

Band::Band(const ConvGeometry& geometry, const BandChannels& channels, uint8_t shift)
    : geometry_(geometry), channels_(channels), shift_(shift), repeater_(channels.repeats, shift) {
  const int64_t budget = Caches().BandLines();
  pixel_step_ = TapStep(kWidth, width());
  line_bytes_ = (channels.joins_taps ? width() : Positions(kWidth, width())) * channels.pitch;
  lines_ = LinesWithin(budget);
  line_step_ = TapStep(kHeight, lines_);
  slice_bytes_ = Positions(kHeight, lines_) * line_bytes_;
  plane_bytes_ = geometry.kernel[kDepth] * slice_bytes_;
  planes_ = lines_ < geometry.output[kHeight] ? 1 : std::max<int64_t>(budget / plane_bytes_, 1);
  if (channels.joins_taps) {
    joiner_ = TapJoiner(geometry.kernel[kWidth], geometry.dilation[kWidth], channels.count,
                        geometry.stride[kWidth], channels.pitch);
  }
}

int64_t Band::TapStep(Dimension dimension, int64_t outputs) const {
  return std::min(geometry_.dilation[dimension], (outputs - 1) * geometry_.stride[dimension] + 1);
}

int64_t Band::Positions(Dimension dimension, int64_t outputs) const {
  return (geometry_.kernel[dimension] - 1) * TapStep(dimension, outputs) +
         (outputs - 1) * geometry_.stride[dimension] + 1;
}

int64_t Band::LinesWithin(int64_t budget) const {
  const int64_t stride = geometry_.stride[kHeight];
  const int64_t taps = geometry_.kernel[kHeight];
  const int64_t dilation = geometry_.dilation[kHeight];
  const int64_t positions = budget / (geometry_.kernel[kDepth] * line_bytes_);
  // Each further output line adds `stride` lines of the input, or `stride` lines for each tap if taps have
  // their own lines.
  const int64_t shared = (positions - geometry_.Span(kHeight, 1)) / stride + 1;
  const int64_t own = (std::min(positions / taps, dilation) - 1) / stride + 1;
  return std::clamp<int64_t>(std::max(shared, own), 1, geometry_.output[kHeight]);
}

int64_t Band::TapOffset(int64_t depth, int64_t height, int64_t width) const {
  return depth * slice_bytes_ + height * line_step_ * line_bytes_ + width * pixel_step_ * channels_.pitch;
}

int64_t Band::EndFrom(int64_t row, int64_t row_end) const {
  const int64_t plane_pixels = geometry_.plane_pixels();
  const int64_t plane = Quotient(row, plane_pixels);
  if (planes_ > 1) return std::min(row_end, (plane + planes_) * plane_pixels);
  const int64_t line = Quotient(row - plane * plane_pixels, width());
  return std::min(row_end,
                  plane * plane_pixels + std::min(line + lines_, geometry_.output[kHeight]) * width());
}

RowMap Band::Stage(const ConvInput& input, int64_t first_channel, int64_t row_begin, int64_t row_end,
                   uint8_t* to) const noexcept {
  return StageRows(input.FromChannel(first_channel), {0, channels_.pitch}, row_begin, row_end, to);
}

RowMap Band::StageSlice(const ConvInput& input, int64_t begin, int64_t end, int64_t row_begin,
                        int64_t row_end, uint8_t* to) const noexcept {
  return StageRows(input, {begin, end}, row_begin, row_end, to);
}

RowMap Band::StageRows(const ConvInput& input, const Slice& slice, int64_t row_begin, int64_t row_end,
                       uint8_t* to) const noexcept {
  const int64_t plane_pixels = geometry_.plane_pixels();
  const int64_t first_plane = Quotient(row_begin, plane_pixels);
  const int64_t last_plane = Quotient(row_end - 1, plane_pixels);
  int64_t first_line = 0;
  int64_t end_line = geometry_.output[kHeight];
  if (first_plane == last_plane) {
    first_line = Quotient(row_begin - first_plane * plane_pixels, width());
    end_line = Quotient(row_end - 1 - first_plane * plane_pixels, width()) + 1;
  }
  for (int64_t plane = first_plane; plane <= last_plane; ++plane) {
    StageLines(input, slice, plane, first_line, end_line - first_line,
               to + (plane - first_plane) * plane_bytes_);
  }
  RowMap map(to, row_stride());
  map.line_rows = width();
  map.line_stride = line_stride();
  map.plane_lines = geometry_.output[kHeight];
  map.plane_stride = plane_bytes_;
  map.origin -= static_cast<uintptr_t>(first_plane * plane_bytes_ + first_line * map.line_stride);
  return map;
}

void Band::StageLines(const ConvInput& input, const Slice& slice, int64_t plane, int64_t first_line,
                      int64_t lines, uint8_t* to) const noexcept {
  // Lines of the band before those of the last tap.
  const int64_t others = (geometry_.kernel[kHeight] - 1) * line_step_;
  const int64_t staged = others + (lines - 1) * geometry_.stride[kHeight] + 1;
  for (int64_t tap = 0; tap < geometry_.kernel[kDepth]; ++tap, to += slice_bytes_) {
    for (int64_t i = 0; i < staged; ++i) {
      const int64_t height = Quotient(std::min(i, others), line_step_);
      const int64_t y =
          first_line * geometry_.stride[kHeight] + i + height * (geometry_.dilation[kHeight] - line_step_);
      StageLine(input, slice, InputLine(geometry_, input, plane, tap, y), to + i * line_bytes_);
    }
    // The last quad of a tap may read this much of the next line. Later slices overwrite it. Taps that are padded to whole
    // steps read more, and multiply it by 0.
    std::memset(to + staged * line_bytes_, PaddingOf(input), kQuad);
  }
}

// `line`: pixel 0 of a line of the input, or null outside the input.
void Band::StageLine(const ConvInput& input, const Slice& slice, const uint8_t* line,
                     uint8_t* to) const noexcept {
  if (channels_.joins_taps) return StageJoinedTaps(input, line, to);
  const bool is_whole = slice.size() == channels_.pitch;
  const bool is_even = pixel_step_ == geometry_.dilation[kWidth];
  const int64_t runs = is_even ? 1 : geometry_.kernel[kWidth];
  const int64_t run_pixels = is_even ? line_bytes_ / channels_.pitch : pixel_step_;
  for (int64_t run = 0; run < runs; ++run, to += run_pixels * channels_.pitch) {
    const int64_t first = run * geometry_.dilation[kWidth];
    if (is_whole) {
      StagePixels(input, line, first, run_pixels, to);
    } else {
      StageSliceOfPixels(input, slice, line, first, run_pixels, to);
    }
  }
}

// Some outputs at a time, from a copy with padding. Later lines overwrite what TapJoiner writes behind a line.
void Band::StageJoinedTaps(const ConvInput& input, const uint8_t* line, uint8_t* to) const noexcept {
  static_assert(TapJoiner::kSpill <= kSlackBytes);
  if (line == nullptr) {
    std::memset(to, PaddingOf(input), static_cast<size_t>(line_bytes_));
    return;
  }
  constexpr int64_t kCopied = 512;  // bytes
  std::array<uint8_t, kCopied + TapJoiner::kMostSpan> copy;
  const int64_t step = geometry_.stride[kWidth] * channels_.count;
  const int64_t most = (kCopied - TapJoiner::kMostSpan) / step + 1;
  for (int64_t x = 0; x < width(); x += most) {
    const int64_t outputs = std::min(most, width() - x);
    StagePixels(input, line, x * geometry_.stride[kWidth], geometry_.Span(kWidth, outputs), copy.data());
    joiner_.Copy(copy.data(), outputs, to + x * channels_.pitch);
  }
}

void Band::StagePixels(const ConvInput& input, const uint8_t* line, int64_t first, int64_t pixels,
                       uint8_t* to) const noexcept {
  const int64_t pitch = staged_pitch();
  const uint8_t value = PaddingOf(input);
  const int64_t padding = geometry_.pad_begin[kWidth] - first;
  int64_t begin = pixels;
  int64_t end = pixels;
  if (line != nullptr) {
    begin = std::clamp<int64_t>(padding, 0, pixels);
    end = std::clamp(padding + geometry_.input[kWidth], begin, pixels);
  }
  std::memset(to, value, static_cast<size_t>(begin * pitch));
  if (begin < end) {
    CopyPixels(input, line + (begin - padding) * input.stride, end - begin, to + begin * pitch);
  }
  std::memset(to + end * pitch, value, static_cast<size_t>((pixels - end) * pitch));
}

void Band::StageSliceOfPixels(const ConvInput& input, const Slice& slice, const uint8_t* line, int64_t first,
                              int64_t pixels, uint8_t* to) const noexcept {
  const int64_t begin = first - geometry_.pad_begin[kWidth];
  const uint8_t padding = PaddingOf(input);
  const int64_t end = std::min(slice.end, channels_.count * channels_.repeats);  // padding follows
  uint8_t* pixel = to + slice.begin;
  for (int64_t x = begin; x < begin + pixels; ++x) {
    int64_t filled = 0;
    if (line != nullptr && x >= 0 && x < geometry_.input[kWidth] && slice.begin < end) {
      filled = end - slice.begin;
      repeater_.Copy(line + x * input.stride, slice.begin, end, pixel);
    }
    std::memset(pixel + filled, padding, static_cast<size_t>(slice.size() - filled));
    pixel += channels_.pitch;
  }
}

void Band::CopyPixels(const ConvInput& input, const uint8_t* from, int64_t pixels,
                      uint8_t* to) const noexcept {
  const int64_t filled = channels_.count * channels_.repeats;
  const int64_t pitch = staged_pitch();
  if (channels_.count == input.stride && filled == pitch) {
    return repeater_.Copy(from, 0, pixels * filled, to);
  }
  const uint8_t padding = PaddingOf(input);
  for (int64_t pixel = 0; pixel < pixels; ++pixel, from += input.stride, to += pitch) {
    repeater_.Copy(from, 0, filled, to);
    std::memset(to + filled, padding, static_cast<size_t>(pitch - filled));
  }
}

}  // namespace intact::kernels
