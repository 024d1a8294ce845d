#include "kernels/runtime/blocking.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/runtime/caches.h"

namespace intact::kernels {

int64_t RowsPerBlock(int64_t row_bytes, int mr) {
  const int64_t rows = Caches().RowBlock() / std::max<int64_t>(row_bytes, 1);
  return std::max<int64_t>(rows / mr, 1) * mr;
}

int64_t ColumnsPerChunk(int64_t column_bytes, int nr) {
  const int64_t columns = Caches().ColumnChunk() / std::max<int64_t>(column_bytes, 1);
  return std::max<int64_t>(columns / nr, 1) * nr;
}

// ----- shares of threads -----------------------------------------------------------------------------------

// How much slower a cut may be than one in which threads share cache lines or read more.
constexpr double kNearly = 1.03;

// Tries the cuts into at most `parts` shares, at multiples of a row step and a column step.
class Partition::Search {
 public:
  Search(const SharedOutput& output, int64_t parts, const RowCost& cost)
      : output_(output), cost_(cost), parts_(parts) {}

  // The time of the slowest share in the fastest cut so far.
  double least() const { return least_; }
  // The chosen cut and the time of its slowest share: among cuts that are nearly as fast, one that reads
  // little.
  double cost() const { return taken_cost_; }
  const std::array<Bands, 2>& taken() const { return taken_; }

  void Run(int64_t row_step, int64_t column_step) {
    constexpr int64_t kEach = 256;  // up to this, each number of bands is tried
    row_step_ = row_step;
    row_steps_ = CeilDivide(output_.m, row_step);
    column_step_ = column_step;
    column_steps_ = CeilDivide(output_.n, column_step);
    taken_cost_ = taken_bytes_ = std::numeric_limits<double>::infinity();
    least_ = taken_cost_;
    const int64_t most = std::min(parts_, row_steps_);
    for (int64_t bands = 1; bands <= most; bands += CeilDivide(bands, kEach)) {
      const int64_t cells = parts_ / bands;
      const int64_t rows = CeilDivide(row_steps_, bands);  // of the largest band, in steps
      const int64_t columns = CeilDivide(column_steps_, std::min(cells, column_steps_));
      Consider({Bands{CeilDivide(row_steps_, rows), CeilDivide(column_steps_, columns), row_steps_}, Bands{}},
               {Cell{rows, columns}, Cell{}});
      const int64_t wider = parts_ % bands;
      if (wider != 0 && cells < column_steps_) ConsiderUneven(bands, wider, cells, columns);
    }
  }

 private:
  // The largest cell of some bands, in steps.
  struct Cell {
    int64_t rows = 0, columns = 0;
  };

  // `wider` of the bands have one cell more than the others, and more rows to match. The other bands have
  // `cells` cells of at most `columns` columns.
  void ConsiderUneven(int64_t bands, int64_t wider, int64_t cells, int64_t columns) {
    const int64_t wider_columns = CeilDivide(column_steps_, cells + 1);
    const int64_t others = bands - wider;
    // All rows, in units of a wider band's rows, if all cells take equally long.
    const double alike = static_cast<double>(wider) +
                         static_cast<double>(others * wider_columns) / static_cast<double>(columns);
    const auto least_rows = static_cast<int64_t>(static_cast<double>(row_steps_) / alike);
    for (const int64_t rows : {least_rows, least_rows + 1}) {
      const int64_t other_steps = row_steps_ - wider * rows;
      if (rows < 1 || other_steps < others) continue;
      Consider({Bands{wider, cells + 1, wider * rows}, Bands{others, cells, other_steps}},
               {Cell{rows, wider_columns}, Cell{CeilDivide(other_steps, others), columns}});
    }
  }
  void Consider(const std::array<Bands, 2>& cut, const std::array<Cell, 2>& largest) {
    double cost = 0;
    double bytes = 0;
    for (const Cell& cell : largest) {
      if (cell.rows == 0) continue;
      const int64_t rows = std::min(output_.m, cell.rows * row_step_);
      const int64_t columns = std::min(output_.n, cell.columns * column_step_);
      cost = std::max(cost, cost_.Of(rows) * static_cast<double>(columns));
      bytes = std::max(bytes, static_cast<double>(rows) * static_cast<double>(output_.row_bytes) +
                                  static_cast<double>(columns) * static_cast<double>(output_.column_bytes));
    }
    least_ = std::min(least_, cost);
    const bool is_nearly = cost <= kNearly * least_;
    if (!is_nearly || (taken_cost_ <= kNearly * least_ && bytes >= taken_bytes_)) return;
    taken_ = cut;
    taken_cost_ = cost;
    taken_bytes_ = bytes;
  }

  const SharedOutput& output_;
  const RowCost& cost_;
  int64_t parts_;
  int64_t row_step_ = 1, row_steps_ = 1;
  int64_t column_step_ = 1, column_steps_ = 1;
  double least_ = 0, taken_cost_ = 0, taken_bytes_ = 0;
  std::array<Bands, 2> taken_ = {};
};

Partition Partition::Choose(const SharedOutput& output, int64_t parts, const RowCost& cost) {
  Partition chosen = Whole(output.m, output.n);
  if (parts == 1) return chosen;
  Search search(output, parts, cost);
  double slowest = std::numeric_limits<double>::infinity();
  const auto take = [&](int64_t row_step, int64_t column_step, double most) {
    search.Run(row_step, column_step);
    if (search.cost() > most) return;
    slowest = search.cost();
    chosen.row_step_ = row_step;
    chosen.column_step_ = column_step;
    chosen.bands_ = search.taken();
  };
  take(output.row_step, output.column_step, slowest);
  const int64_t whole_lines = std::lcm(output.column_step, output.line_columns);
  if (whole_lines != output.column_step && whole_lines < output.n) {
    take(output.row_step, whole_lines, kNearly * search.least());
  }
  if (output.least_row_step != 0) {
    take(output.least_row_step, output.any_column_step, slowest / kNearly);
  }
  return chosen;
}

Range Partition::FindShare(int part) const {
  int64_t row_steps = 0;  // above the band
  int64_t share = part;
  for (const Bands& bands : bands_) {
    if (share >= bands.shares()) {
      share -= bands.shares();
      row_steps += bands.row_steps;
      continue;
    }
    const int64_t band = share / bands.cells;
    const int64_t cell = share % bands.cells;
    const int64_t columns = CeilDivide(n_, column_step_);
    const auto row = [&](int64_t i) {
      return std::min(m_, (row_steps + bands.row_steps * i / bands.count) * row_step_);
    };
    const auto column = [&](int64_t i) { return std::min(n_, columns * i / bands.cells * column_step_); };
    return {row(band), row(band + 1), column(cell), column(cell + 1)};
  }
  return {};
}

}  // namespace intact::kernels
