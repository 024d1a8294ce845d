#include "kernels/codegen/tap_pattern.h"

#include <algorithm>

namespace intact::kernels {

int TapPattern::column_count() const { return *std::max_element(columns.begin(), columns.end()) + 1; }

std::string TapPattern::Name() const {
  const int tap_step = width > 1 ? Column(0, 1) : 0;
  const int pixel_step = pixels > 1 ? Column(1, 0) : 0;
  bool is_regular = true;
  for (int pixel = 0; is_regular && pixel < pixels; ++pixel) {
    for (int tap = 0; tap < width; ++tap) {
      is_regular &= Column(pixel, tap) == pixel * pixel_step + tap * tap_step;
    }
  }
  std::string list = is_regular ? "x" : "";
  if (is_regular)
    return list.append(std::to_string(tap_step)).append("_s").append(std::to_string(pixel_step));
  for (int pixel = 0; pixel < pixels; ++pixel) {
    for (int tap = 0; tap < width; ++tap) {
      if (!list.empty()) list += tap == 0 ? "_" : ".";
      list += std::to_string(Column(pixel, tap));
    }
  }
  return list;
}

PlacedPattern PlacePattern(const std::vector<int64_t>& taps, int64_t pixel_stride, int pixels) {
  std::vector<int64_t> read;
  read.reserve(static_cast<size_t>(pixels) * taps.size());
  for (int pixel = 0; pixel < pixels; ++pixel) {
    for (const int64_t tap : taps) read.push_back(pixel * pixel_stride + tap);
  }
  PlacedPattern placed{{pixels, static_cast<int>(taps.size()), {}}, read};
  std::vector<int64_t>& offsets = placed.offsets;
  std::sort(offsets.begin(), offsets.end());
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  placed.pattern.columns.reserve(read.size());
  for (const int64_t offset : read) {
    const auto column = std::lower_bound(offsets.begin(), offsets.end(), offset);
    placed.pattern.columns.push_back(static_cast<int>(column - offsets.begin()));
  }
  return placed;
}

}  // namespace intact::kernels
