// The cost table of a test.
#ifndef INTACT_TESTS_SUPPORT_SCOPED_COSTS_H_
#define INTACT_TESTS_SUPPORT_SCOPED_COSTS_H_

#include "kernels/engines/cost_table.h"

namespace intact::tests {

/// Makes `table` the table of the process.
class ScopedCosts {
 public:
  explicit ScopedCosts(const kernels::CostTable& table) : own_(kernels::Costs()) { kernels::SetCosts(table); }
  ~ScopedCosts() { kernels::SetCosts(own_); }
  ScopedCosts(const ScopedCosts&) = delete;
  ScopedCosts& operator=(const ScopedCosts&) = delete;

 private:
  kernels::CostTable own_;
};

/// The table of test programs, with tiles that cost nothing: plans that may use tiles use them, however small
/// they are.
inline kernels::CostTable CostsOfFreeTiles() {
  kernels::CostTable costs = kernels::Costs();
  const kernels::TileCosts own = costs.tiles;
  costs.tiles = {};
  costs.tiles.copy = own.copy;  // how tiles read lines, not whether they are used
  costs.tiles.copy_tile = own.copy_tile;
  return costs;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_SCOPED_COSTS_H_
