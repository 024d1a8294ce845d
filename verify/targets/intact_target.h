// Our own library as a target, through the public C ABI.
#ifndef INTACT_VERIFY_TARGETS_INTACT_TARGET_H_
#define INTACT_VERIFY_TARGETS_INTACT_TARGET_H_

#include <intact/grouped.hpp>
#include <vector>

#include "verify/problem/target.h"
#include "verify/targets/guarded_run.h"

namespace intact::verify {

/// The plan that runs an operation. UNSUPPORTED if the library chose another ISA than options.isa.
Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options);
Result<Conv> CreatePlan(const reference::Conv& conv, const RunOptions& options);
Result<Grouped> CreatePlan(const reference::Grouped& grouped, const RunOptions& options);

/// The output of `plan`, a plan of `grouped`. Runs on guarded memory.
Result<std::vector<uint8_t>> RunOn(const Grouped& plan, const reference::Grouped& grouped,
                                   const RunOptions& options);

/// Runs on guarded memory.
class IntactTarget : public Target {
 public:
  std::string Name() const override { return "intact"; }
  FeatureMasks Features() const override { return {kAllFeatures, kAllFeatures, kAllFeatures}; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_INTACT_TARGET_H_
