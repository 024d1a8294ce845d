#include "kernels/input/band.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/blocking.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

const uint8_t* InputLine(const ConvGeometry& geometry, const ConvInput& input, int64_t plane,
                         int64_t depth_tap, int64_t y) noexcept {
  const Spatial& extents = geometry.input;
  const int64_t image = plane / geometry.output[kDepth];
  const int64_t z = plane % geometry.output[kDepth] * geometry.stride[kDepth] - geometry.pad_begin[kDepth] +
                    depth_tap * geometry.dilation[kDepth];
  const int64_t line = y - geometry.pad_begin[kHeight];
  if (z < 0 || z >= extents[kDepth] || line < 0 || line >= extents[kHeight]) return nullptr;
  return input.a + ((image * extents[kDepth] + z) * extents[kHeight] + line) * extents[kWidth] * input.stride;
}

Band::Band(const ConvGeometry& geometry, const BandChannels& channels, uint8_t padding, uint8_t flip)
    : geometry_(geometry), channels_(channels), padding_(padding), flip_(flip) {
  const int64_t budget = Caches().l2_bytes / 4;
  line_bytes_ = geometry.Span(kWidth, width()) * channels.pitch;
  const auto slice_bytes = [&](int64_t lines) { return geometry.Span(kHeight, lines) * line_bytes_; };
  const int64_t slices = geometry.kernel[kDepth];
  // Each further line adds stride lines of the input.
  const int64_t added = slices * geometry.stride[kHeight] * line_bytes_;
  lines_ = std::clamp<int64_t>((budget - slices * slice_bytes(1)) / added + 1, 1, geometry.output[kHeight]);
  slice_bytes_ = slice_bytes(lines_);
  plane_bytes_ = slices * slice_bytes_;
  planes_ = lines_ < geometry.output[kHeight] ? 1 : std::max<int64_t>(budget / plane_bytes_, 1);
}

int64_t Band::TapOffset(int64_t depth, int64_t height, int64_t width) const {
  return depth * slice_bytes_ + height * geometry_.dilation[kHeight] * line_bytes_ +
         width * geometry_.dilation[kWidth] * channels_.pitch;
}

int64_t Band::EndFrom(int64_t row, int64_t row_end) const {
  const int64_t plane_pixels = geometry_.plane_pixels();
  const int64_t plane = row / plane_pixels;
  if (planes_ > 1) return std::min(row_end, (plane + planes_) * plane_pixels);
  const int64_t line = row % plane_pixels / width();
  return std::min(row_end,
                  plane * plane_pixels + std::min(line + lines_, geometry_.output[kHeight]) * width());
}

RowMap Band::Stage(const ConvInput& input, int64_t first_channel, int64_t row_begin, int64_t row_end,
                   uint8_t* to) const noexcept {
  return StageRows({input.a + first_channel, input.stride}, {0, channels_.pitch}, row_begin, row_end, to);
}

RowMap Band::StageSlice(const ConvInput& input, int64_t begin, int64_t end, int64_t row_begin,
                        int64_t row_end, uint8_t* to) const noexcept {
  return StageRows(input, {begin, end}, row_begin, row_end, to);
}

RowMap Band::StageRows(const ConvInput& input, const Slice& slice, int64_t row_begin, int64_t row_end,
                       uint8_t* to) const noexcept {
  const int64_t plane_pixels = geometry_.plane_pixels();
  const int64_t first_plane = row_begin / plane_pixels;
  const int64_t last_plane = (row_end - 1) / plane_pixels;
  int64_t first_line = 0;
  int64_t end_line = geometry_.output[kHeight];
  if (first_plane == last_plane) {
    first_line = row_begin % plane_pixels / width();
    end_line = (row_end - 1) % plane_pixels / width() + 1;
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
  const bool is_whole = slice.size() == channels_.pitch;
  for (int64_t tap = 0; tap < geometry_.kernel[kDepth]; ++tap, to += slice_bytes_) {
    for (int64_t i = 0; i < geometry_.Span(kHeight, lines); ++i) {
      const int64_t y = first_line * geometry_.stride[kHeight] + i;
      const uint8_t* const line = InputLine(geometry_, input, plane, tap, y);
      if (is_whole) {
        StageLine(input, line, to + i * line_bytes_);
      } else {
        StageLineSlice(input, slice, line, to + i * line_bytes_);
      }
    }
    // What the last quad of a tap may read of the next line; slices that follow are staged after this.
    std::memset(to + geometry_.Span(kHeight, lines) * line_bytes_, padding_, kQuad);
  }
}

// `line`: pixel 0 of a line of the input, or null outside of it.
void Band::StageLine(const ConvInput& input, const uint8_t* line, uint8_t* to) const noexcept {
  const int64_t pitch = channels_.pitch;
  const int64_t pixels = line_bytes_ / pitch;
  int64_t begin = pixels;
  int64_t end = pixels;
  if (line != nullptr) {
    begin = std::clamp<int64_t>(geometry_.pad_begin[kWidth], 0, pixels);
    end = std::clamp(geometry_.pad_begin[kWidth] + geometry_.input[kWidth], begin, pixels);
  }
  std::memset(to, padding_, static_cast<size_t>(begin * pitch));
  if (begin < end) {
    const uint8_t* const first = line + (begin - geometry_.pad_begin[kWidth]) * input.stride;
    CopyPixels(first, input.stride, end - begin, to + begin * pitch);
  }
  std::memset(to + end * pitch, padding_, static_cast<size_t>((pixels - end) * pitch));
}

void Band::StageLineSlice(const ConvInput& input, const Slice& slice, const uint8_t* line,
                          uint8_t* to) const noexcept {
  const int64_t pixels = line_bytes_ / channels_.pitch;
  const int64_t repeats = channels_.repeats;
  const int64_t end = std::min(slice.end, channels_.count * repeats);  // padding follows
  uint8_t* pixel = to + slice.begin;
  for (int64_t x = -geometry_.pad_begin[kWidth]; x < pixels - geometry_.pad_begin[kWidth]; ++x) {
    int64_t filled = 0;
    if (line != nullptr && x >= 0 && x < geometry_.input[kWidth] && slice.begin < end) {
      filled = end - slice.begin;
      const uint8_t* const from = line + x * input.stride;
      if (repeats == 1) {
        CopyActivations(from + slice.begin, filled, flip_, pixel);
      } else {
        for (int64_t i = 0; i < filled; ++i) pixel[i] = from[(slice.begin + i) / repeats] ^ flip_;
      }
    }
    std::memset(pixel + filled, padding_, static_cast<size_t>(slice.size() - filled));
    pixel += channels_.pitch;
  }
}

void Band::CopyPixels(const uint8_t* from, int64_t stride, int64_t pixels, uint8_t* to) const noexcept {
  const int64_t count = channels_.count;
  if (channels_.repeats == 1 && count == stride && count == channels_.pitch) {
    return CopyActivations(from, pixels * count, flip_, to);
  }
  for (int64_t pixel = 0; pixel < pixels; ++pixel, from += stride, to += channels_.pitch) {
    if (channels_.repeats == 1) {
      CopyActivations(from, count, flip_, to);
    } else {
      for (int64_t i = 0; i < count * channels_.repeats; ++i) to[i] = from[i / channels_.repeats] ^ flip_;
    }
    const int64_t filled = count * channels_.repeats;
    std::memset(to + filled, padding_, static_cast<size_t>(channels_.pitch - filled));
  }
}

}  // namespace intact::kernels
