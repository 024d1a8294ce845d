// The pixels of the caller's output that a plan computes: all pixels, or every step-th pixel in each
// dimension.
//
//   width:   . . first . . first + step . . first + 2·step . .      `count` pixels of `extents`
//
// Rows of C are numbered over the pixels of the grid, images outermost.
#ifndef INTACT_KERNELS_PROBLEM_OUTPUT_GRID_H_
#define INTACT_KERNELS_PROBLEM_OUTPUT_GRID_H_

#include <algorithm>
#include <cstdint>

#include "kernels/problem/conv_geometry.h"

namespace intact::kernels {

struct OutputGrid {
  Spatial first = {}, step = {1, 1, 1};
  Spatial count = {};    // the grid's pixels in each dimension
  Spatial extents = {};  // of the caller's output

  /// The grid of all pixels.
  static OutputGrid All(const Spatial& output) { return {{}, {1, 1, 1}, output, output}; }

  /// Pixels from row 0 to row 1, at most the pixels of the output: in a dimension with one pixel of the grid,
  /// the step is not used.
  int64_t RowStep() const {
    int64_t pixels = 1;  // of the output within a line, a plane, an image
    for (const Dimension dimension : {kWidth, kHeight, kDepth}) {
      if (count[dimension] > 1) return step[dimension] * pixels;
      pixels *= extents[dimension];
    }
    return pixels;
  }

  /// Whether the rows of `batch` images all are RowStep() apart.
  bool IsEven(int64_t batch) const {
    int64_t rows = 1;    // of the grid within a line, a plane, an image
    int64_t pixels = 1;  // of the output within a line, a plane, an image
    for (const Dimension dimension : {kWidth, kHeight, kDepth}) {
      if (count[dimension] > 1 && step[dimension] * pixels != rows * RowStep()) return false;
      rows *= count[dimension];
      pixels *= extents[dimension];
    }
    return batch == 1 || pixels == rows * RowStep();
  }

  /// The index of row 0's pixel in the output.
  int64_t FirstPixel() const {
    return (first[kDepth] * extents[kHeight] + first[kHeight]) * extents[kWidth] + first[kWidth];
  }

  /// Calls run(row, pixel, rows) for rows [row_begin, row_end), line by line: rows [row, row + rows) are
  /// RowStep() pixels apart, and the first is at `pixel`.
  template <class Run>
  void ForEachLine(int64_t row_begin, int64_t row_end, const Run& run) const {
    for (int64_t row = row_begin; row < row_end;) {
      const int64_t x = row % count[kWidth];
      const int64_t line = row / count[kWidth];
      const int64_t y = line % count[kHeight];
      const int64_t z = line / count[kHeight] % count[kDepth];
      const int64_t image = line / count[kHeight] / count[kDepth];
      const int64_t plane_at = image * extents[kDepth] + z * step[kDepth];
      const int64_t line_at = plane_at * extents[kHeight] + y * step[kHeight];
      const int64_t pixel = line_at * extents[kWidth] + x * step[kWidth] + FirstPixel();
      const int64_t rows = std::min(count[kWidth] - x, row_end - row);
      run(row, pixel, rows);
      row += rows;
    }
  }
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_OUTPUT_GRID_H_
