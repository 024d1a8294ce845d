// How a GEMM is cut: among threads, and into blocks that fit the caches (caches.h).
#ifndef INTACT_KERNELS_RUNTIME_BLOCKING_H_
#define INTACT_KERNELS_RUNTIME_BLOCKING_H_

#include <array>
#include <cstdint>

namespace intact::kernels {

inline constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// a / b for a ≥ 0. Without a division if a < b, as in the first line of the first image.
inline constexpr int64_t Quotient(int64_t a, int64_t b) { return a < b ? 0 : a / b; }
inline constexpr int64_t RoundUp(int64_t value, int64_t unit) { return CeilDivide(value, unit) * unit; }

/// Rows of A, of `row_bytes` each, in a block that stays in a quarter of L2. A multiple of mr, at least mr.
int64_t RowsPerBlock(int64_t row_bytes, int mr);

/// Columns of B, of `column_bytes` each, in a chunk that stays in an eighth of L2 while a block of rows
/// passes it. A multiple of nr, at least nr.
int64_t ColumnsPerChunk(int64_t column_bytes, int nr);

/// A rectangle of C: rows [row_begin, row_end) × columns [column_begin, column_end).
struct Range {
  int64_t row_begin = 0, row_end = 0;
  int64_t column_begin = 0, column_end = 0;
  bool Empty() const { return row_begin >= row_end || column_begin >= column_end; }
};

/// An m×n output to cut into shares.
struct SharedOutput {
  int64_t m = 0, n = 0;
  int64_t row_step = 1, column_step = 1;  // cuts are at multiples of these
  // Alternative steps (fewer rows, more columns), used if they are faster; 0: no alternative.
  int64_t least_row_step = 0, any_column_step = 0;
  int64_t line_columns = 1;  // columns in a cache line, if rows of C begin with a line; else 1
  // Bytes that a share reads for each of its rows and for each of its columns. Among cuts of about
  // equal duration, the cut that reads the fewest bytes is chosen.
  int64_t row_bytes = 1, column_bytes = 1;
};

/// SharedOutput::line_columns for rows of n dense elements of `element_bytes`.
inline int64_t LineColumns(int64_t n, int64_t element_bytes) {
  constexpr int64_t kLine = 64;
  return n * element_bytes % kLine == 0 ? kLine / element_bytes : 1;
}

/// The time to compute `rows` rows of a column, in any unit.
class RowCost {
 public:
  virtual ~RowCost() = default;
  virtual double Of(int64_t rows) const = 0;
};

/// The RowCost that calls `of(rows)`.
template <class Function>
class RowCostOf final : public RowCost {
 public:
  explicit RowCostOf(const Function& of) : of_(of) {}
  double Of(int64_t rows) const override { return of_(rows); }

 private:
  const Function& of_;
};

/// How an output is cut into shares: into bands of rows, and each band into cells of columns. If the number
/// of shares has no good factors, the last bands have one cell less, and fewer rows, than the first bands.
///
///     ┌──────┬──────┬──────┐
///     │  0   │  1   │  2   │     two bands of three cells
///     ├──────┼──────┼──────┤
///     │  3   │  4   │  5   │
///     ├──────┴──┬───┴──────┤     and one of two cells
///     │    6    │     7    │
///     └─────────┴──────────┘
///
/// The shares are disjoint and cover all of C.
class Partition {
 public:
  /// At most `parts` shares, cut so that the slowest share takes about the least possible time. There are
  /// fewer shares if more would not help: a share has at least row_step × column_step elements. Among cuts of
  /// nearly equal duration, a cut that writes whole cache lines is chosen.
  static Partition Choose(const SharedOutput& output, int64_t parts, const RowCost& cost);
  /// One share: all of an m×n output.
  static Partition Whole(int64_t m, int64_t n) {
    Partition whole{};
    whole.m_ = m;
    whole.n_ = n;
    whole.row_step_ = whole.column_step_ = 1;
    whole.bands_[0] = {1, 1, m};
    return whole;
  }

  int parts() const { return static_cast<int>(bands_[0].shares() + bands_[1].shares()); }
  /// The number of bands of rows.
  int64_t bands() const { return bands_[0].count + bands_[1].count; }
  /// Empty if `part` is parts() or more.
  Range Share(int part) const { return part == 0 && parts() == 1 ? Range{0, m_, 0, n_} : FindShare(part); }

 private:
  struct Bands {
    int64_t count, cells;  // the number of bands, and of shares in each band
    int64_t row_steps;     // of all bands together
    int64_t shares() const { return count * cells; }
  };
  class Search;
  Range FindShare(int part) const;

  // Without initial values: an array of partitions costs no time until they are set.
  int64_t m_, n_;
  int64_t row_step_, column_step_;
  std::array<Bands, 2> bands_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_BLOCKING_H_
