#include "kernels/plans/item_cut.h"

namespace intact::kernels {

// Chunks of fewer rows give smaller blocks, and read the weights more often. The chosen chunks have the
// shortest estimated time: an equal share of the work, and one block.
ItemCut::ItemCut(const RunItems& items, int64_t n, int64_t column_step, int64_t parts)
    : items_(items), n_(n), column_step_(column_step), steps_(CeilDivide(n, column_step)), parts_(parts) {
  int64_t most = 1;
  for (int64_t item = 0; item < items.count; ++item) most = std::max(most, items.Rows(item));
  chunk_rows_ = most;
  work_ = Work(most);
  int64_t least = work_ / parts + most;
  for (int64_t rows = most; parts > 1 && rows > kWeightRows;) {
    rows = CeilDivide(rows, 2);
    const int64_t work = Work(rows), time = work / parts + rows;
    if (time >= least) continue;
    least = time;
    chunk_rows_ = rows;
    work_ = work;
  }
}

int64_t ItemCut::Work(int64_t chunk_rows) const {
  int64_t rows = 0;
  for (int64_t item = 0; item < items_.count; ++item) {
    const int64_t own = items_.Rows(item);
    rows += own + CeilDivide(own, chunk_rows) * kWeightRows;
  }
  return rows * steps_;
}

}  // namespace intact::kernels
