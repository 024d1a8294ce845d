// Access: how kernels find A. Either by rows, a pointer to each and a convolution's taps beside it (Taps,
// RowMap), or in a planar band, by positions (PlanarAccess, PlanarRows; planar_band.h). What a plan knows
// stands in the first of each pair, what a run adds in the second.
//
//   row m   At(m) + taps.offsets[0] ─► taps.depth bytes      depths 0 …
//                 + taps.offsets[1] ─► taps.depth bytes      depths taps.depth …
//
// The rows of a GEMM are one stride apart, and there is one tap, at 0. A convolution's rows are output
// pixels, each pointing to the input pixel of its first tap: pixels of a line are one stride apart, lines
// another, and planes (images, or the depths of a volume) a third. Taps lie at the same distances from every
// pixel, so a tile of rows is addressed by its pointers and one offset.
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
  std::vector<uint32_t> quad_offsets;  // where quad q of the depth lies, in bytes from a position
  int64_t group_columns = 0;           // the columns of a group, which read the same channels
  int64_t group_bytes = 0;             // from those channels to the next group's
  int64_t line_rows = 0;               // rows (output pixels) of a line
  int64_t line_positions = 0;          // from a line to the next

  /// Whether the input's extents, and with them all but the groups' columns, are left open: plans for given
  /// extents are made like the one that has this access.
  bool IsModel() const { return quad_offsets.empty(); }
};

/// A planar band as it is staged for a run of rows of one plane.
struct PlanarRows {
  uintptr_t origin = 0;   // address of position 0 of group 0, which need not be there
  int64_t first_row = 0;  // the row there: the first of a line
  uint8_t largest = 0;    // activation
};

/// The taps [first, end) of some output line that are not all padding.
struct TapRange {
  int64_t first = 0, end = 0;
  bool operator==(const TapRange&) const = default;
};

/// Taps side by side, for tiles that lie within a line: neighbouring rows then read the same pixels, with
/// different taps.
struct SharedPixels {
  int64_t taps = 1;      // along the width, which follow each other in Taps::offsets
  int64_t tap_step = 0;  // in bytes, from one to the next
  int64_t row_step = 0;  // from a row of a line to the next
};

struct Taps {
  std::vector<int64_t> offsets = {0};  // in bytes from a row's pointer
  int64_t depth = 0;                   // of each tap; a multiple of 4 where there are several
  // From the activations that one vector of columns reads to those of the next: 0, or the input channels of a
  // grouped convolution whose groups fill a vector.
  int64_t vector_step = 0;
  // One range for each output line of a plane, where lines read nothing but padding with some of their taps:
  // those need not be computed. Empty where that cannot be used.
  std::vector<TapRange> line_taps;
  // How many bytes at each tap's begin are padding for the first row of a line, and how many at its end for
  // the last: not computed either. Whole quads, less than the depth together; 0 where that cannot be used.
  int64_t head = 0, tail = 0;
  std::optional<SharedPixels> shared;  // where kernels are to use that
  bool stages_tiles = false;           // AMX: rows are copied, not loaded from their lines (amx_engine.h)
  int64_t line_rows = 0;               // of an output line, where it is used, or one of the above is not 0
  int64_t count() const { return static_cast<int64_t>(offsets.size()); }
  bool HasLineEnds() const { return head != 0 || tail != 0; }
};

using Access = std::variant<Taps, PlanarAccess>;

/// The rows of one run, by number. Strides are in bytes.
struct RowMap {
  // Where row 0 is, or would be: an address, since the row itself need not be there.
  uintptr_t origin = 0;
  int64_t stride = 0;
  int64_t line_rows = std::numeric_limits<int64_t>::max();
  int64_t line_stride = 0;
  int64_t plane_lines = std::numeric_limits<int64_t>::max();
  int64_t plane_stride = 0;
  // Of a transposed A, whose rows are to be copied (row_preparer.h): from an element of a row to the next.
  // 0: they lie side by side, as kernels read them.
  int64_t depth_stride = 0;

  RowMap() = default;
  /// Rows `row_stride` apart.
  RowMap(const uint8_t* first, int64_t row_stride)
      : origin(reinterpret_cast<uintptr_t>(first)), stride(row_stride) {}
  /// Rows from number `row` on, which is at `first`, `row_stride` apart.
  static RowMap From(int64_t row, const uint8_t* first, int64_t row_stride) {
    RowMap rows(first, row_stride);
    rows.origin -= static_cast<uintptr_t>(row * row_stride);
    return rows;
  }

  bool IsTransposed() const { return depth_stride != 0; }
  /// Whether all rows are one stride apart.
  bool IsEven() const { return line_rows == std::numeric_limits<int64_t>::max(); }
  const uint8_t* At(int64_t row) const {
    const int64_t line = row / line_rows;
    const int64_t offset =
        row % line_rows * stride + line % plane_lines * line_stride + line / plane_lines * plane_stride;
    return Pointer(origin + static_cast<uintptr_t>(offset));
  }
  static const uint8_t* Pointer(uintptr_t address) {
    return reinterpret_cast<const uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
};

/// The rows of A of one run, as its plan's Access asks for them.
using InputRows = std::variant<RowMap, PlanarRows>;

/// Walks over the rows of a map in their order, without divisions.
class RowCursor {
 public:
  RowCursor(const RowMap& map, int64_t row)
      : map_(map),
        address_(reinterpret_cast<uintptr_t>(map.At(row))),
        rows_left_(map.line_rows - row % map.line_rows),
        lines_left_(map.plane_lines - row / map.line_rows % map.plane_lines) {}

  /// The pointer of the present row; moves on to the next.
  const uint8_t* Next() { return Skip(1); }
  /// The pointer of the present row; moves on by `count` rows, at most those that are left in its line.
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
      const uintptr_t first = address_;
      Skip(run);
      for (int64_t i = 0; i < run; ++i) {
        rows[i] = RowMap::Pointer(first + static_cast<uintptr_t>(i * map_.stride));
      }
      rows += run;
      count -= run;
    }
  }
  /// Whether the row that Next() will return is a line's first; and its line, of the plane.
  bool BeginsLine() const { return rows_left_ == map_.line_rows; }
  int64_t line() const { return map_.plane_lines - lines_left_; }
  /// Rows to come in that line.
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
