// Cuts a run of several items among parts, so that all parts have about equal work. The rows may be
// distributed among the items in any way.
//
// The rows of an item are cut into chunks. A block is a chunk times the columns of one step. The work of a
// block is its rows plus kWeightRows, because a block reads its columns of B once. The blocks of all items
// are in one order. In this order, each part computes an equal share of the work:
//
//     item 0, 1 row │ item 2, 5 rows          │ item 3, 1 row       (item 1 has no rows)
//     b  b  b  b  b │ b    b    b    b    b   │ b  b  b  b  b
//     ───── part 0 ─────┼───── part 1 ─────┼───── part 2 ────
#ifndef INTACT_KERNELS_PLANS_ITEM_CUT_H_
#define INTACT_KERNELS_PLANS_ITEM_CUT_H_

#include <algorithm>
#include <cstdint>

#include "kernels/runtime/blocking.h"

namespace intact::kernels {

/// The items of a run: products that differ in their weights, or in where A and C are.
struct RunItems {
  int64_t count = 1;
  int64_t m = 0;                  // rows of each item, unless `rows` is given
  const int64_t* rows = nullptr;  // rows of each item, or null
  int64_t Rows(int64_t item) const { return rows == nullptr ? m : rows[item]; }
};

class ItemCut {
 public:
  /// What reading weights costs, in rows.
  static constexpr int64_t kWeightRows = 8;

  /// Cuts outputs of `n` columns at multiples of `column_step`.
  ItemCut(const RunItems& items, int64_t n, int64_t column_step, int64_t parts);

  /// Calls visit(item, range) for each rectangle of `part`. Rows of `range` are counted from the first row of
  /// the item.
  template <class Visit>
  void ForEach(int64_t part, const Visit& visit) const {
    const int64_t begin = WorkBefore(part), end = WorkBefore(part + 1);
    int64_t before = 0;  // the work before the chunk
    for (int64_t item = 0; item < items_.count && before < end; ++item) {
      const int64_t rows = items_.Rows(item), chunks = CeilDivide(rows, chunk_rows_);
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        Range range = {rows * chunk / chunks, rows * (chunk + 1) / chunks, 0, 0};
        const int64_t block_work = range.row_end - range.row_begin + kWeightRows;
        range.column_begin = ColumnAt(begin - before, block_work);
        range.column_end = ColumnAt(end - before, block_work);
        before += steps_ * block_work;
        if (!range.Empty()) visit(item, range);
      }
    }
  }

 private:
  /// The work of the parts before `part`.
  int64_t WorkBefore(int64_t part) const { return work_ / parts_ * part + work_ % parts_ * part / parts_; }
  /// The column of a chunk where `work` of the chunk is done, rounded to a block. `block_work`: of each block
  /// of the chunk.
  int64_t ColumnAt(int64_t work, int64_t block_work) const {
    const int64_t steps = (std::max<int64_t>(work, 0) + block_work / 2) / block_work;
    return std::min(n_, std::clamp<int64_t>(steps, 0, steps_) * column_step_);
  }
  /// The work of all items if a chunk has at most `chunk_rows` rows.
  int64_t Work(int64_t chunk_rows) const;

  RunItems items_;
  int64_t n_, column_step_, steps_, parts_;
  int64_t chunk_rows_;  // the most rows of a chunk
  int64_t work_;        // of all items
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_ITEM_CUT_H_
