// Softmax of quantized tensors.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_SOFTMAX_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_SOFTMAX_H_

#include <array>
#include <cstdint>
#include <string>

#include "byte_table.h"
#include "layer.h"
#include "linear.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// Softmax of rows of u8, or of s8 that ONNX Runtime moves to u8, as ONNX Runtime's kernel of QLinearSoftmax computes it. n: the elements of a row; `largest`: the largest
/// of them.
///
///     table[b] = float(exp((b − 255 + shift)·x_scale))      shift = max(0, log(FLT_MAX/n) − 5)/x_scale
///     e[i] = table[x[i] + 255 − largest]
///     y[i] = min(rne(e[i]·floor(1/y_scale) / sum) + y_zero_point, 255)
///
/// log, `sum` and floor(1/y_scale) are in float32, all other operations in double. `sum` adds e[0], e[1], … in this order; so several
/// rows are added side by side.
class QLinearSoftmax : public Layer {
 public:
  /// The operator's inputs, as its definition names them.
  static constexpr std::array kInputs = {"X", "X_scale", "x_zero_point", "y_scale", "y_zero_point"};

  /// `since_version`: of ONNX's Softmax. Before 13 a row is all dimensions from `axis` on.
  QLinearSoftmax(const Node& node, const Context& context, int64_t since_version);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return has_avx2_ ? "softmax_avx2" : "softmax_portable"; }

 private:
  using Table = std::array<float, 256 + 7>;  // ends with zeros: vectors of eight elements may begin anywhere

  Table TableOf(int64_t row_elements) const;

  const bool has_avx2_;
  const LookUpFunction look_up_;
  uint8_t shift_ = 0;  // bytes ^ shift_ are u8
  int64_t axis_;       // a row is all dimensions from this one on
  float x_scale_, y_factor_;
  int32_t y_zero_point_ = 0;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_SOFTMAX_H_
