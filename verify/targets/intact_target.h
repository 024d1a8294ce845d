// Our own library as a target, through the public C ABI.
#ifndef INTACT_VERIFY_TARGETS_INTACT_TARGET_H_
#define INTACT_VERIFY_TARGETS_INTACT_TARGET_H_

#include <memory>
#include <vector>

#include "verify/problem/target.h"
#include "verify/targets/guarded_run.h"

namespace intact::verify {

/// The plan that runs an operation; UNSUPPORTED unless it is for exactly options.isa.
Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options);
Result<Conv> CreatePlan(const reference::Conv& conv, const RunOptions& options);

/// An operation and its plan, as its options ask for it, to be run again. Run() is thread-safe.
class HeldPlan {
 public:
  virtual ~HeldPlan() = default;
  /// Runs guarded; output bytes, dense.
  virtual Result<std::vector<uint8_t>> Run() const = 0;
};
Result<std::unique_ptr<HeldPlan>> Hold(reference::Operation operation, const RunOptions& options);

/// Runs guarded.
class IntactTarget : public Target {
 public:
  std::string Name() const override { return "intact"; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_INTACT_TARGET_H_
