// An operation as the public C ABI states it, on memory that tells of stray accesses: how our library and
// plug-ins are called alike.
#ifndef INTACT_VERIFY_TARGETS_GUARDED_RUN_H_
#define INTACT_VERIFY_TARGETS_GUARDED_RUN_H_

#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <vector>

#include "verify/problem/target.h"

namespace intact::verify {

/// A descriptor for `options` that points to the vectors of an operation.
GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options);
ConvDesc DescOf(const reference::Conv& conv, const RunOptions& options);

/// How a tensor of an item lies in memory: rows of elements, `stride` from one to the next.
struct TensorLayout {
  int64_t rows, elements, stride;
};
/// A, or the input.
TensorLayout InputLayoutOf(const reference::Gemm& gemm, const RunOptions& options);
TensorLayout InputLayoutOf(const reference::Conv& conv, const RunOptions& options);
/// B, or the filter.
TensorLayout WeightLayoutOf(const reference::Gemm& gemm, const RunOptions& options);
TensorLayout WeightLayoutOf(const reference::Conv& conv, const RunOptions& options);

/// B, or the filter, as `options` lay it out for such a plan; empty where runs give it.
std::vector<int8_t> StoredWeights(const reference::Gemm& gemm, const RunOptions& options);
std::vector<int8_t> StoredWeights(const reference::Conv& conv, const RunOptions& options);

/// A, or the input, as `options` lay it out, without what lies between rows.
std::vector<uint8_t> StoredInput(const reference::Gemm& gemm, const RunOptions& options);
std::vector<uint8_t> StoredInput(const reference::Conv& conv, const RunOptions& options);

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

/// What call(the descriptor, the weights) returns, all that they point to in guarded memory. The weights are
/// nullptr where runs give them.
Error CallGuarded(const reference::Gemm& gemm, const RunOptions& options,
                  const std::function<Error(const GemmDesc& desc, const void* b)>& call);
Error CallGuarded(const reference::Conv& conv, const RunOptions& options,
                  const std::function<Error(const ConvDesc& desc, const void* weights)>& call);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_GUARDED_RUN_H_
