// How a run of several items is cut among parts, so that all parts have about equal work however the rows are
// distributed among the items.
//
// The work of all items is a line. A unit is some rows of an item times the columns of one step. Its length
// is its cost: the rows, and kWeightRows more, because a unit reads its columns of B once. A part computes
// the units of an equal length of the line:
//
//     item 0, 1 row │ item 2, 5 rows          │ item 3, 1 row       (item 1 has no rows)
//     u  u  u  u  u │ u    u    u    u    u   │ u  u  u  u  u
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

  /// Cuts outputs of `n` columns at multiples of `column_step`. `items` outlives the cut.
  ItemCut(const RunItems& items, int64_t n, int64_t column_step, int64_t parts);

  /// Calls visit(item, range) for each rectangle of `part`. Rows of `range` are counted from the first row of
  /// the item.
  template <class Visit>
  void ForEach(int64_t part, const Visit& visit) const {
    const int64_t begin = LineAt(part), end = LineAt(part + 1);
    int64_t line = 0;
    for (int64_t item = 0; item < items_.count && line < end; ++item) {
      const int64_t rows = items_.Rows(item), bands = CeilDivide(rows, band_rows_);
      for (int64_t band = 0; band < bands; ++band) {
        Range range = {rows * band / bands, rows * (band + 1) / bands, 0, 0};
        const int64_t cost = range.row_end - range.row_begin + kWeightRows;
        range.column_begin = ColumnAt(begin - line, cost);
        range.column_end = ColumnAt(end - line, cost);
        line += steps_ * cost;
        if (!range.Empty()) visit(item, range);
      }
    }
  }

 private:
  /// Where part `part` begins.
  int64_t LineAt(int64_t part) const { return length_ / parts_ * part + length_ % parts_ * part / parts_; }
  /// The column where a part that begins at `line` of a band begins. `cost`: of the band's units.
  int64_t ColumnAt(int64_t line, int64_t cost) const {
    const int64_t steps = std::clamp<int64_t>((std::max<int64_t>(line, 0) + cost / 2) / cost, 0, steps_);
    return std::min(n_, steps * column_step_);
  }
  /// The length of the line if a band has at most `band_rows` rows.
  int64_t Length(int64_t band_rows) const;

  const RunItems& items_;
  int64_t n_, column_step_, steps_, parts_;
  int64_t band_rows_;  // the most rows of a unit
  int64_t length_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_ITEM_CUT_H_
