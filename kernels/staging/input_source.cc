#include "kernels/staging/input_source.h"

#include <algorithm>
#include <cstring>

#include "kernels/problem/operands.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {

WindowSource::WindowSource(const ConvGeometry& geometry, const Band& band, int64_t window_bytes)
    : band_(band), group_inputs_(geometry.group_inputs()), window_bytes_(window_bytes) {
  static_assert(kCopyBytes <= Band::kSlackBytes);
  const auto& [depth, height, width] = geometry.kernel;
  const int64_t adjacent = geometry.dilation[kWidth] == 1 ? width : 1;
  for (int64_t d = 0; d < depth; ++d) {
    for (int64_t h = 0; h < height; ++h) {
      for (int64_t w = 0; w < width; w += adjacent) run_offsets_.push_back(band.TapOffset(d, h, w));
    }
  }
  run_bytes_ = adjacent * group_inputs_;
  plane_rows_ = geometry.plane_pixels();
  // Windows may take as much memory as the band's lines; whole lines, if one fits.
  constexpr int64_t kLeastRows = 8;
  const int64_t line = geometry.output[kWidth];
  const int64_t fitting = std::max(Caches().BandLines() / window_bytes, kLeastRows);
  max_rows_ = std::min(band.max_rows(), fitting < line ? fitting : fitting / line * line);
}

// Copies whole vectors: the next run overwrites what a copy writes beyond its run.
InputRows WindowSource::Stage(const ConvInput& input, int64_t group, int64_t row_begin, int64_t row_end,
                              uint8_t* to) const noexcept {
  const RowMap pixels =
      band_.Stage(input, group * group_inputs_, row_begin, row_end, to + WindowsBytes(row_end - row_begin));
  RowCursor cursor(pixels, row_begin);
  uint8_t* window = to;
  for (int64_t row = row_begin; row < row_end; ++row, window += window_bytes_) {
    const uint8_t* const pixel = cursor.Next();
    uint8_t* run = window;
    for (const int64_t offset : run_offsets_) {
      for (int64_t i = 0; i < run_bytes_; i += kCopyBytes) {
        std::memcpy(run + i, pixel + offset + i, kCopyBytes);
      }
      run += run_bytes_;
    }
    std::memset(run, band_.PaddingOf(input), kQuad);
  }
  RowMap windows(to, window_bytes_);
  windows.origin -= static_cast<uintptr_t>(row_begin * window_bytes_);
  return windows;
}

}  // namespace intact::kernels
