// Softmax and LogSoftmax of float tensors, with one order of additions on every CPU.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_SOFTMAX_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_SOFTMAX_H_

#include <array>
#include <cstdint>
#include <string>

#include "layer.h"
#include "linear.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// Softmax or LogSoftmax of rows of float32, with the bytes of ONNX Runtime's CPU provider on a CPU with AVX-512
/// (MlasComputeSoftmax() with the kernels of TransKernelAvx512F and SoftmaxKernelAvx512F). n: the elements of a row.
///
///     largest = max(−FLT_MAX, x[0], …, x[n−1])
///     e[i]    = Exp(x[i] − largest)
///     lane[j] = e[j] + e[j + 16] + e[j + 32] + …      j = 0 … 15; added from left to right, from 0 on
///     half[j] = lane[j + 8] + lane[j]                 j = 0 … 7
///     sum     = ((half[0] + half[1]) + (half[2] + half[3])) + ((half[4] + half[5]) + (half[6] + half[7]))
///     Softmax:    y[i] = (1 / sum) · e[i]
///     LogSoftmax: y[i] = (x[i] − largest) − log(sum)  log: LogOf(), logarithm.h
///
/// Exp(x) raises x to at least −103.972084 and is p·2^m, rounded once:
///
///     m = rne(fma(x, 1/ln 2, 1.5·2^23) − 1.5·2^23)
///     r = fma(m, ln2_low, fma(m, ln2_high, x))        the negated parts of ln 2
///     p = six fused multiply-adds of r: a polynomial of degree 6, by Horner's rule
///
/// float_softmax.cc has the constants. Each operation is rounded to float32. Denormal numbers are kept, unless the thread
/// flushes them. Rows are computed independently, so the bytes of a row do not depend on
/// threads or other rows. A NaN or +∞ makes the whole row NaN, with the payload that the order above gives.
class FloatSoftmax : public Layer {
 public:
  /// The operator's inputs, as its definition names them.
  static constexpr std::array kInputs = {"input"};

  /// Before opset 13 a row is all dimensions from `axis` on, else the elements along `axis`.
  FloatSoftmax(const Node& node, const Context& context, bool is_log);
  void Compute(Run& run) const override;
  std::string Kernel() const override;

 private:
  // Computes `count` rows of `elements`, one behind the other.
  using RowsFunction = void (*)(const float* x, float* y, int64_t count, int64_t elements, bool is_log);

  static RowsFunction ChooseRows(const Settings& settings);

  void ComputeRows(const Run& run, const float* x, float* y, int64_t count, int64_t elements) const;

  const bool is_log_, is_coerced_;  // is_coerced_: opset < 13
  const int64_t axis_;              // may be negative
  const RowsFunction rows_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_SOFTMAX_H_
