// Our own library as a target, through the public C ABI.
#ifndef INTACT_VERIFY_TARGETS_INTACT_TARGET_H_
#define INTACT_VERIFY_TARGETS_INTACT_TARGET_H_

#include <functional>
#include <memory>
#include <vector>

#include "verify/target.h"

namespace intact::verify {

/// The descriptor of an operation, whose vectors it points to, for `options`.
GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options);
ConvDesc DescOf(const reference::Conv& conv, const RunOptions& options);

/// B, or the filter, as `options` lay it out for such a plan; empty where runs give it.
std::vector<int8_t> StoredWeights(const reference::Gemm& gemm, const RunOptions& options);
std::vector<int8_t> StoredWeights(const reference::Conv& conv, const RunOptions& options);

/// The plan that runs an operation; UNSUPPORTED unless it is for exactly options.isa.
Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options);
Result<Conv> CreatePlan(const reference::Conv& conv, const RunOptions& options);

/// The tensors of a run.
struct Buffers {
  const void* a = nullptr;
  void* c = nullptr;
  const void* residual = nullptr;
};

/// The arguments of its run on `buffers`, whose strides are those of `options`.
intact_gemm_args ArgsOf(const reference::Gemm& gemm, const RunOptions& options, const Buffers& buffers);
intact_conv_args ArgsOf(const reference::Conv& conv, const RunOptions& options, const Buffers& buffers);

/// Output bytes, dense, of `run` on the tensors of an operation: with every buffer that emitted code touches
/// ending at an unmapped page (the output at both ends a canary), so that a stray access is a fault and a
/// stray write is found.
Result<std::vector<uint8_t>> RunGuarded(const reference::Gemm& gemm, const RunOptions& options,
                                        const std::function<Error(const intact_gemm_args&)>& run);
Result<std::vector<uint8_t>> RunGuarded(const reference::Conv& conv, const RunOptions& options,
                                        const std::function<Error(const intact_conv_args&)>& run);

/// An operation and its plan, as its options ask for it, to be run again. Run() is thread-safe.
class HeldPlan {
 public:
  virtual ~HeldPlan() = default;
  /// Runs guarded; output bytes, dense.
  virtual Result<std::vector<uint8_t>> Run() const = 0;
};
Result<std::unique_ptr<HeldPlan>> Hold(reference::Gemm gemm, const RunOptions& options);
Result<std::unique_ptr<HeldPlan>> Hold(reference::Conv conv, const RunOptions& options);

/// Runs guarded.
class IntactTarget : public Target {
 public:
  std::string Name() const override { return "intact"; }
  Result<std::vector<uint8_t>> Run(const reference::Gemm& gemm, const RunOptions& options) const override;
  Result<std::vector<uint8_t>> RunConv(const reference::Conv& conv, const RunOptions& options) const override;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_INTACT_TARGET_H_
