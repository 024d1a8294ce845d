// The share of a run that one thread computes: the rows of C that it writes, and its time by the engines'
// cost model. Plans report shares without running, from the cuts that runs make.
#ifndef INTACT_KERNELS_PLANS_SHARE_H_
#define INTACT_KERNELS_PLANS_SHARE_H_

#include <cstdint>
#include <vector>

#include "kernels/runtime/blocking.h"

namespace intact::kernels {

struct Share {
  /// `count` rows of the caller's C, `step` rows apart from `first` on, columns [column_begin, column_end).
  struct Rows {
    int64_t first = 0, step = 1, count = 0;
    int64_t column_begin = 0, column_end = 0;
  };
  std::vector<Rows> rows;
  /// In multiply-adds at the rate of the ISA's own sequence (Engine::Cost()). Includes what tiles compute
  /// beyond the share; does not include copies of the input.
  double work = 0;

  /// Adds rows of C from `first` on, `step` apart; `range` gives the number of rows, and the columns.
  void Add(int64_t first, int64_t step, const Range& range) {
    if (range.Empty()) return;
    rows.push_back({first, step, range.row_end - range.row_begin, range.column_begin, range.column_end});
  }
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_SHARE_H_
