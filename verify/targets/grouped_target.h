// Targets of grouped weights.
#ifndef INTACT_VERIFY_TARGETS_GROUPED_TARGET_H_
#define INTACT_VERIFY_TARGETS_GROUPED_TARGET_H_

#include <cstdint>
#include <intact/grouped.hpp>
#include <intact/intact.hpp>
#include <vector>

#include "reference/contract/grouped.h"
#include "verify/problem/grouped.h"

namespace intact::verify {

class GroupedTarget {
 public:
  virtual ~GroupedTarget() = default;
  /// Output bytes, dense. UNSUPPORTED if the machine or the target cannot run it.
  virtual Result<std::vector<uint8_t>> Run(const reference::Grouped& grouped,
                                           const GroupedRun& run) const = 0;
};

/// A plan of our kernels. It keeps nothing of the memory that the tensors are in. Errors: UNSUPPORTED if the
/// ISA of `run` is not available.
Result<Grouped> CreateGroupedPlan(const reference::Grouped& grouped, const GroupedRun& run);
/// The output of `plan`, which was made of `grouped`.
Result<std::vector<uint8_t>> RunGroupedPlan(const Grouped& plan, const reference::Grouped& grouped,
                                            const GroupedRun& run);

/// Our kernels, on tensors between guard pages.
class IntactGroupedTarget : public GroupedTarget {
 public:
  Result<std::vector<uint8_t>> Run(const reference::Grouped& grouped, const GroupedRun& run) const override;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_GROUPED_TARGET_H_
