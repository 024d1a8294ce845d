// Targets of grouped weights.
#ifndef INTACT_VERIFY_TARGETS_GROUPED_TARGET_H_
#define INTACT_VERIFY_TARGETS_GROUPED_TARGET_H_

#include <intact/target.h>

#include <cstdint>
#include <functional>
#include <intact/grouped.hpp>
#include <intact/intact.hpp>
#include <string>
#include <vector>

#include "reference/contract/grouped.h"
#include "verify/problem/failure.h"
#include "verify/problem/grouped.h"
#include "verify/problem/target.h"

namespace intact::verify {

class GroupedTarget {
 public:
  virtual ~GroupedTarget() = default;
  /// What the target claims: see intact_target::arithmetic.
  virtual std::string GroupedClaims() const { return "exact"; }
  /// The reason why callers must not run the target again; "" if they may.
  virtual std::string WhyGivenUp() const { return {}; }
  /// The kind of the last run's error, if the run failed.
  virtual Failure LastFailure() const { return {}; }
  /// The intact_target_feature bits that the target supports.
  virtual uint64_t GroupedFeatures() const { return kAllFeatures; }
  /// Output bytes, dense. UNSUPPORTED if the machine or the target cannot run it.
  virtual Result<std::vector<uint8_t>> Run(const reference::Grouped& grouped,
                                           const GroupedRun& run) const = 0;
};

/// The intact_target_feature bits that a product needs when it is run in this way.
uint64_t FeaturesOf(const reference::Grouped& grouped, const GroupedRun& run);

/// The descriptor without arrays and strides.
intact_grouped_desc DescOf(const reference::Grouped& grouped, const GroupedRun& run);
/// Returns call(descriptor, b). The descriptor's arrays and the weights are in guarded memory. With run.reused,
/// calls it twice: first with other weights, scales and zero points in the same memory.
Error CallGuarded(const reference::Grouped& grouped, const GroupedRun& run,
                  const std::function<Error(const intact_grouped_desc& desc, const void* b)>& call);
/// Calls `call` with the arguments of each run, in guarded memory, and returns the bytes of C without gaps. All
/// is computed run.calls times. An error of a later call that wrote other bytes than the first one sets
/// *changed, if `changed` is given.
Result<std::vector<uint8_t>> RunGuarded(const reference::Grouped& grouped, const GroupedRun& run,
                                        const std::function<Error(const intact_grouped_args&)>& call,
                                        bool* changed = nullptr);

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
