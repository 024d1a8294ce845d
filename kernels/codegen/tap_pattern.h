// The columns of the input that neighbouring output pixels share, along the filter's width. Kernels depend on
// this pattern, and read the columns' offsets from a table. So one kernel serves all widths and channels.
//
//   the columns of a filter of three taps    stride 1    stride 2    stride 3
//     pixel 0                                0 1 2       0 1 2       0 1 2
//     pixel 1                                  1 2 3         2 3 4         3 4 5
//
// Only columns that some tap reads have numbers. The numbers rise from left to right. A stride above 3 has
// the pattern of stride 3, because pixels share no columns.
#ifndef INTACT_KERNELS_CODEGEN_TAP_PATTERN_H_
#define INTACT_KERNELS_CODEGEN_TAP_PATTERN_H_

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace intact::kernels {

struct TapPattern {
  int pixels = 1;
  int width = 1;                   // taps of a pixel
  std::vector<int> columns = {0};  // [pixels][width]: the column's number

  int Column(int pixel, int tap) const {
    return columns[static_cast<size_t>(pixel) * static_cast<size_t>(width) + static_cast<size_t>(tap)];
  }
  int column_count() const;
  auto operator<=>(const TapPattern&) const = default;
  /// "x1_s1": the step from tap to tap, and from pixel to pixel. If steps differ, all columns: "0.1_3.4".
  std::string Name() const;
};

/// A pattern and the offsets of its columns.
struct PlacedPattern {
  TapPattern pattern;
  std::vector<int64_t> offsets;  // the offset of each column
};

/// The pattern of `pixels` adjacent pixels. Tap i of pixel p reads the offset `taps`[i] + p·pixel_stride.
PlacedPattern PlacePattern(const std::vector<int64_t>& taps, int64_t pixel_stride, int pixels);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_TAP_PATTERN_H_
