// Sums and means over an inner dimension of float tensors, with one order of additions for every number of threads and rows.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_REDUCE_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_REDUCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "linear.h"
#include "node.h"
#include "operators.h"
#include "run.h"

namespace intact::onnxruntime {

/// How a reduction goes through a tensor: its axes are `begin` to `end` − 1.
struct InnerAxes {
  int64_t begin, end;
};

/// ReduceSum or ReduceMean of float32 over axes with others before and behind them, the mean over a sentence's tokens for instance:
///
///     y[i][j] = ((0 + x[i][0][j]) + x[i][1][j]) + x[i][2][j] + …      for ReduceMean divided by their number
///
/// added from left to right. ONNX Runtime's CPU provider adds four elements first if the number of items of the batch is not below
/// the session's number of threads, so its bytes depend on both; with fewer items it has these bytes. For other axes its bytes do not depend on
/// the threads.
///
/// Refuses all nodes without the option `reproducible`, and nodes with other axes.
class FloatReduce : public Layer {
 public:
  /// The operators' inputs, as their definitions name them.
  static constexpr std::array kInputs = {"data", "axes"};

  FloatReduce(const Node& node, const Context& context, bool is_mean);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return is_mean_ ? "reduce_mean_f32" : "reduce_sum_f32"; }

 private:
  const bool is_mean_, keeps_dimensions_;
  const size_t dimensions_;  // of the input
  InnerAxes axes_;
};

/// What the axes of a reduction mean for its bytes in ONNX Runtime.
struct ReducedAxes {
  bool depends_on_threads = true;       ///< also if the axes are not known
  std::optional<InnerAxes> inner = {};  ///< if FloatReduce can compute it
};

/// The axes of a node: constant ones, of its second input or its attribute.
ReducedAxes AxesOf(const Node& node);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_REDUCE_H_
