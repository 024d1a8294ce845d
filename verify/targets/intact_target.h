// Our own library as a target, through the public C ABI.
#ifndef INTACT_VERIFY_TARGETS_INTACT_TARGET_H_
#define INTACT_VERIFY_TARGETS_INTACT_TARGET_H_

#include <vector>

#include "verify/problem/target.h"
#include "verify/targets/grouped_target.h"
#include "verify/targets/guarded_run.h"

namespace intact::verify {

/// The plan that runs an operation. UNSUPPORTED if the library chose another ISA than options.isa.
Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options);
Result<Conv> CreatePlan(const reference::Conv& conv, const RunOptions& options);

/// Runs on guarded memory.
class IntactTarget : public Target {
 public:
  std::string Name() const override { return "intact"; }
  const GroupedTarget* AsGrouped() const override { return &grouped_; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override;

 private:
  IntactGroupedTarget grouped_;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_INTACT_TARGET_H_
