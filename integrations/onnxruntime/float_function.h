// Functions of the elements of float tensors, with the same bytes at every place of a tensor.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_FUNCTION_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_FUNCTION_H_

#include <array>
#include <cstdint>
#include <string>

#include "layer.h"
#include "linear.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// Celu, Elu, Log, Selu or Softplus of float32 tensors, each element as ONNX Runtime's CPU provider computes four adjacent ones
/// (Eigen's plog_float() and pexp_float() without fused multiply-adds; float_function.cc has the formulas):
///
///     Celu:     max(x, 0) + min(alpha·(exp(x / alpha) − 1), 0)
///     Elu:      x ≥ 0 ? x : alpha·(exp(x) − 1)
///     Selu:     gamma·max(x, 0) + min((gamma·alpha)·(exp(x) − 1), 0)
///     Softplus: x > 0 ? x + log1p(exp(−x)) : log1p(exp(x))
///
/// Each operation is rounded to float32. ONNX Runtime cuts a tensor among the threads, and computes the last 1 to 3 elements of each
/// part with the C library's functions. Only these elements differ from ONNX Runtime's: with one thread, the last
/// elements of a tensor if their number is no multiple of 4.
class FloatFunction : public Layer {
 public:
  /// The operators' inputs, as their definitions name them.
  static constexpr std::array kInputs = {"X"};

  /// Refuses all nodes without the option `reproducible`. `type`: the operator.
  FloatFunction(const Node& node, const Context& context, const std::string& type);
  void Compute(Run& run) const override;
  std::string Kernel() const override;

  struct Parameters {
    float alpha, gamma;
  };
  struct Kind;

 private:
  const Kind& kind_;
  Parameters parameters_;
};

/// y = exp(x) of `count` elements, as FloatFunction computes it. `x` may be `y`.
void Exponential(const float* x, float* y, int64_t count);

/// y = 1 / (1 + exp(−x)) of `count` elements, with the exp() of FloatFunction. Each operation is rounded to float32. `x` may be `y`.
void Sigmoid(const float* x, float* y, int64_t count);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_FUNCTION_H_
