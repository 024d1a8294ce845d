// How a GEMM is cut: among threads, and into blocks that fit the caches (caches.h).
#ifndef INTACT_KERNELS_RUNTIME_BLOCKING_H_
#define INTACT_KERNELS_RUNTIME_BLOCKING_H_

#include <array>
#include <cstdint>

namespace intact::kernels {

inline constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline constexpr int64_t RoundUp(int64_t value, int64_t unit) { return CeilDivide(value, unit) * unit; }

/// Rows of A, of `row_bytes` each, that a block holds: they stay in a quarter of L2. A multiple of mr, at
/// least mr.
int64_t RowsPerBlock(int64_t row_bytes, int mr);

/// Columns of B, of `column_bytes` each, that stay in an eighth of L2 while a block of rows passes them. A
/// multiple of nr, at least nr.
int64_t ColumnsPerChunk(int64_t column_bytes, int nr);

/// A rectangle of C: rows [row_begin, row_end) × columns [column_begin, column_end).
struct Range {
  int64_t row_begin = 0, row_end = 0;
  int64_t column_begin = 0, column_end = 0;
  bool Empty() const { return row_begin >= row_end || column_begin >= column_end; }
};

/// An m×n output that is to be cut into shares.
struct SharedOutput {
  int64_t m = 0, n = 0;
  int64_t row_step = 1, column_step = 1;  // cuts are at multiples of these
  // Or, where that is faster, at multiples of fewer rows and of more columns; 0: not.
  int64_t least_row_step = 0, any_column_step = 0;
  int64_t line_columns = 1;  // of a cache line, if rows of C begin with one; else 1
  // What a share reads for each of its rows and each of its columns. Of the cuts that take about as long, the
  // one is best whose shares read least.
  int64_t row_bytes = 1, column_bytes = 1;
};

/// SharedOutput::line_columns of n dense columns of `element_bytes`.
inline int64_t LineColumns(int64_t n, int64_t element_bytes) {
  constexpr int64_t kLine = 64;
  return n * element_bytes % kLine == 0 ? kLine / element_bytes : 1;
}

/// How long `rows` rows of a column take, in any unit.
class RowCost {
 public:
  virtual double Of(int64_t rows) const = 0;

 protected:
  ~RowCost() = default;
};

/// As `of(rows)` says.
template <class Function>
class RowCostOf final : public RowCost {
 public:
  explicit RowCostOf(const Function& of) : of_(of) {}
  double Of(int64_t rows) const override { return of_(rows); }

 private:
  const Function& of_;
};

/// How an output is cut into shares: into bands of rows, and each band into cells of columns. Where the
/// number of shares is no product of two good numbers, the first bands have a cell more than the others, and
/// as many more rows.
///
///     ┌──────┬──────┬──────┐
///     │  0   │  1   │  2   │     two bands of three cells
///     ├──────┼──────┼──────┤
///     │  3   │  4   │  5   │
///     ├──────┴──┬───┴──────┤     and one of two
///     │    6    │     7    │
///     └─────────┴──────────┘
///
/// The shares are disjoint and cover all of C.
class Partition {
 public:
  /// At most `parts` shares, the slowest of which takes about as little time as can be. There are fewer where
  /// more would not make the slowest faster: a share has row_step × column_step elements or more. Of shares
  /// that take nearly as long those are taken that write whole cache lines.
  static Partition Choose(const SharedOutput& output, int64_t parts, const RowCost& cost);

  int parts() const { return static_cast<int>(bands_[0].shares() + bands_[1].shares()); }
  /// Empty for a `part` that there is not.
  Range Share(int part) const;

 private:
  struct Bands {
    int64_t count = 0, cells = 1;  // bands, and shares of each
    int64_t row_steps = 0;         // of all of these bands
    int64_t shares() const { return count * cells; }
  };
  class Search;

  int64_t m_ = 0, n_ = 0;
  int64_t row_step_ = 1, column_step_ = 1;
  std::array<Bands, 2> bands_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_BLOCKING_H_
