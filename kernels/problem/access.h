// Access: how kernels find A. Kernels find A by rows, with a pointer to each row and a convolution's taps
// (Taps, RowMap), or by positions in a planar band (PlanarAccess, PlanarRows; planar_band.h). The first type
// of each pair holds what a plan knows. The second type holds what a run adds.
//
//   row m   At(m) + taps.offsets[0] ─► taps.depth bytes      depths 0 …
//                 + taps.offsets[1] ─► taps.depth bytes      depths taps.depth …
//
// The rows of a GEMM are one stride apart, and there is one tap, at 0. A convolution's rows are output
// pixels. Each points to the input pixel of its first tap. Pixels have one stride, lines a second, and
// planes (images, or the depths of a volume) a third. Taps are at equal distances from the pointer of every
// row, so the pointers of a tile's rows and one offset address the tile.
//
//   plane 0   line 0   p0 p1 p2 …  p(line_rows − 1)          ─► row 0, 1, …
//             line 1   …
//   plane 1   …
#ifndef INTACT_KERNELS_PROBLEM_ACCESS_H_
#define INTACT_KERNELS_PROBLEM_ACCESS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <variant>
#include <vector>

namespace intact::kernels {

/// How columns read A from a planar band (planar_band.h).
struct PlanarAccess {
  std::vector<uint32_t> quad_offsets;  // of each quad of the depth, in bytes from a position
  int64_t group_columns = 0;           // columns of a group; they all read the group's channels
  int64_t group_bytes = 0;             // from the channels of a group to the channels of the next
  int64_t line_rows = 0;               // rows (output pixels) of a line
  int64_t line_positions = 0;          // positions from a line to the next

  /// Whether the input's extents are open, so that only group_columns is known. Plans for known extents are
  /// then made from the plan that has this access.
  bool IsModel() const { return quad_offsets.empty(); }
};

/// A planar band, staged for adjacent rows of one plane.
struct PlanarRows {
  uintptr_t origin = 0;   // address of position 0 of group 0, which may not be staged
  int64_t first_row = 0;  // the row at position 0: the first of a line
  uint8_t largest = 0;    // the largest activation in the band
};

/// Taps [first, end) of an output line: its other taps read only padding.
struct TapRange {
  int64_t first = 0, end = 0;
  bool operator==(const TapRange&) const = default;
};

/// Adjacent taps, for tiles within a line: neighbouring rows read common pixels with different taps.
struct SharedPixels {
  int64_t taps = 1;      // along the width; they follow each other in Taps::offsets
  int64_t tap_step = 0;  // in bytes, from a tap to the next
  int64_t row_step = 0;  // in bytes, from a row of a line to the next
};

struct Taps {
  std::vector<int64_t> offsets = {0};  // in bytes from a row's pointer
  int64_t depth = 0;                   // of each tap; a multiple of 4 if there are several taps
  // Bytes from the activations of one vector of columns to the activations of the next vector. 0, or the
  // input channels of a group if each group of a convolution fills a vector.
  int64_t vector_step = 0;
  // For each output line of a plane, the taps to compute: the line's other taps read only padding. Empty if
  // all taps are computed.
  std::vector<TapRange> line_taps;
  // Bytes of padding that are not computed: `head` at each tap's beginning in the first row of a line, `tail`
  // at each tap's end in the last row. Whole quads, together less than the depth; 0 if all bytes are
  // computed.
  int64_t head = 0, tail = 0;
  std::optional<SharedPixels> shared;  // set if kernels use it
  bool lies_in_band = false;           // bytes between rows may be read
  bool stages_tiles = false;           // AMX: rows are copied, not loaded from their lines (amx_blocking.h)
  int64_t line_rows = 0;               // rows of an output line; 0: not known
  int64_t count() const { return static_cast<int64_t>(offsets.size()); }
  bool HasLineEnds() const { return head != 0 || tail != 0; }
};

using Access = std::variant<Taps, PlanarAccess>;

/// The rows of one run, by number. Strides are in bytes.
struct RowMap {
  // The address of row 0. Not a pointer, because row 0 may not exist.
  uintptr_t origin = 0;
  int64_t stride = 0;
  int64_t line_rows = std::numeric_limits<int64_t>::max();
  int64_t line_stride = 0;
  int64_t plane_lines = std::numeric_limits<int64_t>::max();
  int64_t plane_stride = 0;
  // The distance between elements of a row of a transposed A. Such rows are copied (row_preparer.h). 0:
  // elements are adjacent, as kernels read them.
  int64_t depth_stride = 0;

  RowMap() = default;
  /// Rows `row_stride` apart.
  RowMap(const uint8_t* first, int64_t row_stride)
      : origin(reinterpret_cast<uintptr_t>(first)), stride(row_stride) {}
  /// Rows from number `row` on, `row_stride` apart. Row `row` is at `first`.
  static RowMap From(int64_t row, const uint8_t* first, int64_t row_stride) {
    RowMap rows(first, row_stride);
    rows.origin -= static_cast<uintptr_t>(row * row_stride);
    return rows;
  }

  bool IsTransposed() const { return depth_stride != 0; }
  /// Whether all rows are one stride apart.
  bool IsEven() const { return line_rows == std::numeric_limits<int64_t>::max(); }
  const uint8_t* At(int64_t row) const {
    if (IsEven()) return Pointer(origin + static_cast<uintptr_t>(row * stride));
    const int64_t line = row / line_rows;
    const int64_t offset =
        row % line_rows * stride + line % plane_lines * line_stride + line / plane_lines * plane_stride;
    return Pointer(origin + static_cast<uintptr_t>(offset));
  }
  static const uint8_t* Pointer(uintptr_t address) {
    return reinterpret_cast<const uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
};

/// The rows of A of one run: the type that matches the plan's Access.
using InputRows = std::variant<RowMap, PlanarRows>;

/// Walks over the rows of a map in order, without divisions.
class RowCursor {
 public:
  RowCursor(const RowMap& map, int64_t row)
      : map_(map),
        address_(reinterpret_cast<uintptr_t>(map.At(row))),
        rows_left_(map.line_rows - row),
        lines_left_(map.plane_lines) {
    if (map.IsEven()) return;
    rows_left_ = map.line_rows - row % map.line_rows;
    lines_left_ = map.plane_lines - row / map.line_rows % map.plane_lines;
  }

  /// Returns the current row's pointer and moves on to the next row.
  const uint8_t* Next() { return Skip(1); }
  /// Returns the current row's pointer and moves on by `count` rows, at most the rows left in the line.
  const uint8_t* Skip(int64_t count) {
    const uint8_t* const row = RowMap::Pointer(address_);
    address_ += static_cast<uintptr_t>(count * map_.stride);
    rows_left_ -= count;
    if (rows_left_ == 0) NextLine();
    return row;
  }
  /// The pointers of the next `count` rows.
  void Take(int64_t count, const uint8_t** rows) {
    while (count > 0) {
      const int64_t run = std::min(count, rows_left_);
      uintptr_t row = address_;
      const auto stride = static_cast<uintptr_t>(map_.stride);
      Skip(run);
#pragma GCC unroll 4
      for (int64_t i = 0; i < run; ++i, row += stride) rows[i] = RowMap::Pointer(row);
      rows += run;
      count -= run;
    }
  }
  /// Whether the row that Next() will return is the first row of its line.
  bool BeginsLine() const { return rows_left_ == map_.line_rows; }
  /// The line of the row that Next() will return, within the plane.
  int64_t line() const { return map_.plane_lines - lines_left_; }
  /// The number of rows left in this line.
  int64_t rows_left() const { return rows_left_; }

 private:
  void NextLine() {
    rows_left_ = map_.line_rows;
    int64_t step = map_.line_stride - map_.line_rows * map_.stride;
    if (--lines_left_ == 0) {
      lines_left_ = map_.plane_lines;
      step += map_.plane_stride - map_.plane_lines * map_.line_stride;
    }
    address_ += static_cast<uintptr_t>(step);
  }

  const RowMap& map_;
  uintptr_t address_;
  int64_t rows_left_, lines_left_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_ACCESS_H_
