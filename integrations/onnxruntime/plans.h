// Plans of layers. All sessions of the process share them: layers of equal content have one plan, with one
// copy of the packed weights. The plan lives as long as one of these layers.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_PLANS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_PLANS_H_

#include <intact/grouped.h>
#include <intact/intact.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linear.h"

namespace intact::onnxruntime {

using GemmPlan = std::shared_ptr<const intact_gemm>;
using ConvPlan = std::shared_ptr<const intact_conv>;
using GroupedPlan = std::shared_ptr<const intact_grouped>;

/// A plan for `b`, k × n bytes in the order that `desc` describes; null if each run passes B. Throws
/// Refusal.
GemmPlan MakeGemmPlan(const intact_gemm_desc& desc, Linear& linear, const void* b);

/// A plan for `weights`. `reordered` is called for a new plan, and returns the weights in the order that intact expects,
/// or no weights if they are in this order. The order must depend on `desc` only. Throws Refusal.
ConvPlan MakeConvPlan(const intact_conv_desc& desc, Linear& linear, std::span<const uint8_t> weights,
                      const std::function<std::vector<uint8_t>()>& reordered);

/// How a model stores grouped weights.
enum class StoredWeights {
  kColumns,  ///< as intact expects them: each column is adjacent bytes
  kRows,     ///< K×N: each depth is adjacent elements
  kTwoBits,  ///< columns of elements of 2 bits
};

/// A plan for `weights`; `desc.b_stride_n` is given, and `b_stride_k` is 0. `columns` is called for a new plan if `stored` is not
/// kColumns, and returns the weights as intact expects them. They must depend on `desc`, `stored` and `weights` only. Throws Refusal.
GroupedPlan MakeGroupedPlan(const intact_grouped_desc& desc, StoredWeights stored,
                            std::span<const uint8_t> weights,
                            const std::function<std::vector<uint8_t>()>& columns);

/// The name of a plan's main kernel.
std::string KernelOf(const intact_gemm& plan);
std::string KernelOf(const intact_conv& plan);
std::string KernelOf(const intact_grouped& plan);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_PLANS_H_
