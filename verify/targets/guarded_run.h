// Calls an operation through the structs of the public C ABI, on memory that detects stray accesses. Our
// library and plug-ins are called in this way.
#ifndef INTACT_VERIFY_TARGETS_GUARDED_RUN_H_
#define INTACT_VERIFY_TARGETS_GUARDED_RUN_H_

#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <vector>

#include "verify/problem/target.h"

namespace intact::verify {

/// The descriptor of an operation with `options`. It points to the operation's arrays (bias, scales and
/// others).
GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options);
ConvDesc DescOf(const reference::Conv& conv, const RunOptions& options);

/// How one item's tensor lies in memory: rows of elements, `stride` elements from row to row.
struct TensorLayout {
  int64_t rows, elements, stride;
};
/// A, or the input.
TensorLayout InputLayoutOf(const reference::Gemm& gemm, const RunOptions& options);
TensorLayout InputLayoutOf(const reference::Conv& conv, const RunOptions& options);
/// B, or the filter.
TensorLayout WeightLayoutOf(const reference::Gemm& gemm, const RunOptions& options);
TensorLayout WeightLayoutOf(const reference::Conv& conv, const RunOptions& options);

/// B, or the filter, as `options` lay it out; empty with runtime B.
std::vector<int8_t> StoredWeights(const reference::Gemm& gemm, const RunOptions& options);
std::vector<int8_t> StoredWeights(const reference::Conv& conv, const RunOptions& options);

/// A, or the input, as `options` lay it out, without gaps between rows.
std::vector<uint8_t> StoredInput(const reference::Gemm& gemm, const RunOptions& options);
std::vector<uint8_t> StoredInput(const reference::Conv& conv, const RunOptions& options);

/// The tensors of a run.
struct Buffers {
  const void* a = nullptr;
  void* c = nullptr;
  const void* residual = nullptr;
};

/// The arguments of a run on `buffers`, with the strides of `options`.
intact_gemm_args ArgsOf(const reference::Gemm& gemm, const RunOptions& options, const Buffers& buffers);
intact_conv_args ArgsOf(const reference::Conv& conv, const RunOptions& options, const Buffers& buffers);

/// Calls `run` options.calls times with the operation's tensors in guarded memory, and returns the bytes of C
/// without gaps. Buffers lie next to inaccessible pages, and C has canaries at both ends. If a later call
/// writes other bytes than the first call, returns an error and sets *changed, if `changed` is given.
Result<std::vector<uint8_t>> RunGuarded(const reference::Gemm& gemm, const RunOptions& options,
                                        const std::function<Error(const intact_gemm_args&)>& run,
                                        bool* changed = nullptr);
Result<std::vector<uint8_t>> RunGuarded(const reference::Conv& conv, const RunOptions& options,
                                        const std::function<Error(const intact_conv_args&)>& run,
                                        bool* changed = nullptr);

/// The error of call number `call` of `calls` that wrote other outputs than the first.
Error OtherOutputs(int32_t call, int32_t calls);

/// Returns call(descriptor, weights). The descriptor's arrays (bias, scales and others) and the weights
/// are in guarded memory. With runtime B the weights are nullptr. With options.reused, calls it twice: first
/// with other weights in the same memory.
Error CallGuarded(const reference::Gemm& gemm, const RunOptions& options,
                  const std::function<Error(const GemmDesc& desc, const void* b)>& call);
Error CallGuarded(const reference::Conv& conv, const RunOptions& options,
                  const std::function<Error(const ConvDesc& desc, const void* weights)>& call);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_GUARDED_RUN_H_
