#include "kernels/plans/item_cut.h"

namespace intact::kernels {

// Bands of fewer rows give smaller units, and read the weights more often. The chosen bands have the shortest
// estimated time: an equal share of the line, and one unit.
ItemCut::ItemCut(const RunItems& items, int64_t n, int64_t column_step, int64_t parts)
    : items_(items), n_(n), column_step_(column_step), steps_(CeilDivide(n, column_step)), parts_(parts) {
  int64_t most = 1;
  for (int64_t item = 0; item < items.count; ++item) most = std::max(most, items.Rows(item));
  band_rows_ = most;
  length_ = Length(most);
  int64_t least = length_ / parts + most;
  for (int64_t rows = most; parts > 1 && rows > kWeightRows;) {
    rows = CeilDivide(rows, 2);
    const int64_t length = Length(rows), time = length / parts + rows;
    if (time >= least) continue;
    least = time;
    band_rows_ = rows;
    length_ = length;
  }
}

int64_t ItemCut::Length(int64_t band_rows) const {
  int64_t rows = 0;
  for (int64_t item = 0; item < items_.count; ++item) {
    const int64_t own = items_.Rows(item);
    rows += own + CeilDivide(own, band_rows) * kWeightRows;
  }
  return rows * steps_;
}

}  // namespace intact::kernels
