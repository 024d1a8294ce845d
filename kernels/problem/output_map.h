// Where the rows of C and of the residual lie. Rows lie at equal distances: rows of a matrix, pixels of an
// image or of one line, or every other pixel (a phase of a transposed convolution).
#ifndef INTACT_KERNELS_PROBLEM_OUTPUT_MAP_H_
#define INTACT_KERNELS_PROBLEM_OUTPUT_MAP_H_

#include <cstdint>
#include <cstring>

#include "core/types.h"
#include "kernels/problem/requantization.h"

namespace intact::kernels {

struct OutputMap {
  uint8_t* c = nullptr;  // row 0, which may not exist
  int64_t c_stride_bytes = 0;
  const uint8_t* residual = nullptr;  // null without a residual; may be `c`
  int64_t residual_stride_bytes = 0;
  int c_bytes = 0, residual_bytes = 0;  // of an element

  /// Strides are in elements; 0 stands for dense rows of `elements`.
  static OutputMap Of(const Requantization& output, int64_t elements, void* c, int64_t c_stride,
                      const void* residual, int64_t residual_stride) {
    const int c_bytes = core::BytesOf(output.c_type);
    const int residual_bytes = core::BytesOf(output.residual_type);
    return {static_cast<uint8_t*>(c),
            (c_stride == 0 ? elements : c_stride) * c_bytes,
            static_cast<const uint8_t*>(residual),
            (residual_stride == 0 ? elements : residual_stride) * residual_bytes,
            c_bytes,
            residual_bytes};
  }

  uint8_t* C(int64_t row, int64_t column) const { return c + row * c_stride_bytes + column * c_bytes; }
  /// Null without a residual.
  const uint8_t* Residual(int64_t row, int64_t column) const {
    return residual == nullptr ? nullptr : residual + row * residual_stride_bytes + column * residual_bytes;
  }
  /// The map whose column 0 is this map's column `column`.
  OutputMap FromColumn(int64_t column) const {
    OutputMap map = *this;
    map.c = C(0, column);
    map.residual = Residual(0, column);
    return map;
  }
  /// A map whose row `row + i` is this map's row `first + i·step`.
  OutputMap EveryRow(int64_t step, int64_t first, int64_t row = 0) const {
    OutputMap map = *this;
    map.c_stride_bytes *= step;
    map.residual_stride_bytes *= step;
    map.c = C(first, 0) - row * map.c_stride_bytes;
    if (residual != nullptr) map.residual = Residual(first, 0) - row * map.residual_stride_bytes;
    return map;
  }
};

/// Replaces bytes of an 8-bit output, `columns` of each row in [row, row_end), by elements of `table`. The
/// first element of `table` replaces the value `lowest`.
inline void LookUp(const uint8_t* __restrict table, int32_t lowest, const OutputMap& output, int64_t row,
                   int64_t row_end, int64_t column, int64_t columns) noexcept {
  const auto shift = static_cast<uint8_t>(lowest);  // 0, or the sign
  for (; row < row_end; ++row) {
    uint8_t* __restrict const c = output.C(row, column);
    for (int64_t i = 0; i < columns; ++i) c[i] = table[c[i] ^ shift];
  }
}

/// Copies a row of at least `size` and at most 2·`size` bytes: the first `size` bytes, then the last `size`
/// bytes.
template <size_t size>
void CopyEnds(const uint8_t* from, int64_t bytes, uint8_t* to) noexcept {
  std::memcpy(to, from, size);
  std::memcpy(to + bytes - size, from + bytes - size, size);
}

/// Copies a row. For short rows, this function is faster than a call of memcpy.
inline void CopyRow(const uint8_t* from, int64_t bytes, uint8_t* to) noexcept {
  constexpr int64_t kShort = 128;
  if (bytes >= kShort) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  for (; bytes > 32; bytes -= 16, from += 16, to += 16) std::memcpy(to, from, 16);
  if (bytes >= 16) return CopyEnds<16>(from, bytes, to);
  if (bytes >= 8) return CopyEnds<8>(from, bytes, to);
  if (bytes >= 4) return CopyEnds<4>(from, bytes, to);
  for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

/// Copies `rows` rows of `row_bytes`. Rows of up to 32 bytes have loops of their own: for few bytes, a loop that
/// calls CopyRow() takes several times as long.
inline void CopyTile(const uint8_t* from, int64_t from_stride_bytes, int64_t rows, int64_t row_bytes,
                     uint8_t* to, int64_t to_stride_bytes) noexcept {
  const auto each = [&](const auto& copy) {
    for (int64_t i = 0; i < rows; ++i, from += from_stride_bytes, to += to_stride_bytes) copy();
  };
  switch (row_bytes) {
    case 1:
      return each([&] { std::memcpy(to, from, 1); });
    case 2:
      return each([&] { std::memcpy(to, from, 2); });
    case 3:
      return each([&] { std::memcpy(to, from, 3); });
    case 4:
      return each([&] { std::memcpy(to, from, 4); });
    case 8:
      return each([&] { std::memcpy(to, from, 8); });
    default:
      break;
  }
  if (row_bytes > 4 && row_bytes < 8) return each([&] { CopyEnds<4>(from, row_bytes, to); });
  if (row_bytes > 8 && row_bytes <= 16) return each([&] { CopyEnds<8>(from, row_bytes, to); });
  if (row_bytes > 16 && row_bytes <= 32) return each([&] { CopyEnds<16>(from, row_bytes, to); });
  each([&] { CopyRow(from, row_bytes, to); });
}

/// A tile of C that kernels cannot write in whole vectors. The tile is computed in scratch. The part that
/// belongs to C is then copied to C.
///
///   scratch   rows × padded_columns of C   |   rows × padded_columns of the residual, if any
class ScratchTile {
 public:
  ScratchTile(const OutputMap& output, int64_t rows, int64_t padded_columns, uint8_t* scratch)
      : output_(output), rows_(rows), tile_(output) {
    tile_.c = scratch;
    tile_.c_stride_bytes = padded_columns * output.c_bytes;
    tile_.residual_stride_bytes = padded_columns * output.residual_bytes;
    if (output.residual != nullptr) tile_.residual = residual();
  }
  /// `element_bytes`: of C and of the residual together.
  static int64_t Bytes(int64_t rows, int64_t padded_columns, bool) = delete;  // bytes, no flag
  static constexpr int64_t Bytes(int64_t rows, int64_t padded_columns, int element_bytes) {
    return rows * padded_columns * element_bytes;
  }

  /// The tile in scratch, with rows 0 to `rows`.
  const OutputMap& map() const { return tile_; }
  /// Copies the residual's columns [column, column + columns) of the rows from `row` on to scratch.
  void Load(int64_t row, int64_t column, int64_t columns) const noexcept {
    if (output_.residual == nullptr) return;
    Clear();
    CopyTile(output_.Residual(row, column), output_.residual_stride_bytes, rows_,
             columns * output_.residual_bytes, residual(), tile_.residual_stride_bytes);
  }
  /// Copies the columns to C, except the first `skipped`.
  void Store(int64_t row, int64_t column, int64_t skipped, int64_t columns) const noexcept {
    CopyTile(tile_.C(0, skipped), tile_.c_stride_bytes, rows_, (columns - skipped) * output_.c_bytes,
             output_.C(row, column + skipped), output_.c_stride_bytes);
  }
  void Store(int64_t row, int64_t column, int64_t columns) const noexcept { Store(row, column, 0, columns); }
  /// Store() of the first `rows` rows.
  void StoreFirst(int64_t rows, int64_t row, int64_t column, int64_t columns) const noexcept {
    CopyTile(tile_.c, tile_.c_stride_bytes, rows, columns * output_.c_bytes, output_.C(row, column),
             output_.c_stride_bytes);
  }
  /// Load() for rows in any places: row i of the tile is row row_of(i) of C, or no row if row_of(i) is
  /// negative.
  template <class RowOf>
  void LoadRows(const RowOf& row_of, int64_t column, int64_t columns) const noexcept {
    if (output_.residual == nullptr) return;
    Clear();
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t row = row_of(i);
      if (row < 0) continue;
      CopyRow(output_.Residual(row, column), columns * output_.residual_bytes,
              residual() + i * tile_.residual_stride_bytes);
    }
  }
  template <class RowOf>
  void StoreRows(const RowOf& row_of, int64_t column, int64_t columns) const noexcept {
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t row = row_of(i);
      if (row < 0) continue;
      CopyRow(tile_.C(i, 0), columns * output_.c_bytes, output_.C(row, column));
    }
  }

 private:
  uint8_t* residual() const { return tile_.c + rows_ * tile_.c_stride_bytes; }
  /// Old contents of the scratch may be denormal floats, which cost time.
  void Clear() const noexcept {
    std::memset(residual(), 0, static_cast<size_t>(rows_ * tile_.residual_stride_bytes));
  }

  const OutputMap& output_;
  int64_t rows_;
  OutputMap tile_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_OUTPUT_MAP_H_
