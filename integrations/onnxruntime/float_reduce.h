// Sums and means over adjacent dimensions of float tensors, with one order of additions for every number of threads and rows.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_REDUCE_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_REDUCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layer.h"
#include "linear.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// How a reduction goes through a tensor: its axes are `begin` to `end` − 1.
struct AdjacentAxes {
  int64_t begin, end;
};

/// ReduceSum or ReduceMean of float32 over adjacent axes. If others are behind them, as with the mean over a sentence's tokens:
///
///     y[i][j] = ((0 + x[i][0][j]) + x[i][1][j]) + x[i][2][j] + …      for ReduceMean divided by their number
///
/// added from left to right. ONNX Runtime's CPU provider adds four elements first if the number of items of the batch, i, is not below the
/// session's number of threads, so its bytes depend on both; with fewer items it has these bytes. Over the first axes it has these bytes,
/// except that with many columns for a thread it begins with the first element instead of 0, so that a sum of −0 is −0.
///
/// The last axes have ONNX Runtime's order, which does not depend on the threads. So FloatReduce computes them only if the model does not
/// state the number of dimensions. The sum of n elements, whose first s elements are before a multiple of 4 of the tensor's elements:
///
///     n − s < 4    from left to right; else
///     lane[l]  = x[s + l] + x[s + l + 8] + …                                 l = 0 … 7, as often as eight elements follow
///     four[l]  = lane[l] + lane[l + 4] (+ one of four elements that are left)  l = 0 … 3
///     y        = ((four[0] + four[2]) + (four[1] + four[3])) + the first s elements + the elements that are left, one by one
///
/// Refuses every node if the session lacks the option `reproducible`, and nodes whose axes are known to be the last ones.
class FloatReduce : public Layer {
 public:
  /// The operators' inputs, as their definitions name them.
  static constexpr std::array kInputs = {"data", "axes"};

  FloatReduce(const Node& node, const Context& context, bool is_mean);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return is_mean_ ? "reduce_mean_f32" : "reduce_sum_f32"; }

 private:
  const bool is_mean_, keeps_dimensions_;
  const size_t dimensions_;    // of the input; 0: only a run knows
  std::vector<int64_t> axes_;  // as the model has them: from 0 on, or from the last dimension, −1, downward
};

/// What the axes of a reduction mean for its bytes in ONNX Runtime.
struct ReducedAxes {
  bool depends_on_threads = true;             ///< also if the axes are not known
  std::optional<AdjacentAxes> adjacent = {};  ///< if FloatReduce can compute it
};

/// The axes of a node: constant ones, of its second input or its attribute.
ReducedAxes AxesOf(const Node& node);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_REDUCE_H_
