// Sums of two quantized tensors: QLinearAdd.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_ADD_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_ADD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "linear.h"
#include "node.h"
#include "operators.h"

namespace intact::onnxruntime {

/// y = clamp(rne(fma(a, a_ratio, fma(b, b_ratio, fixed)))) in float32, as ONNX Runtime's kernel for AVX2 computes it:
///
///     a_ratio = a_scale/y_scale      b_ratio = b_scale/y_scale
///     fixed = y_zero_point − fma(a_ratio, a_zero_point, b_ratio·b_zero_point)
///
/// If ONNX Runtime takes one element of A for several elements of B, A and B change places in both formulas. ONNX Runtime
/// decides this by the last dimension of A and B in which one extent is not 1: there the extent of A is 1. It looks at the
/// dimensions that both tensors have; if all their extents are 1, A and B change places too.
class QLinearAdd : public Layer {
 public:
  /// With `is_moved_to_u8` s8 tensors and zero points are 128 higher in this arithmetic.
  QLinearAdd(const Node& node, const Context& context);

  void Compute(Run& run) const override;
  std::string Kernel() const override { return has_avx2_ ? "qlinear_add_avx2" : "qlinear_add_portable"; }

 private:
  // Elements of output in memory order: `extent` of them, where A and B advance or repeat one element.
  struct Dimension {
    int64_t extent, a_step, b_step;
  };

  // The dimensions of the output, adjacent ones joined where possible; at least one.
  static std::vector<Dimension> DimensionsOf(const Shape& a, const Shape& b, Shape* output);
  // Whether A and B change places.
  static bool IsExchanged(const Shape& a, const Shape& b);
  // Outputs [0, count) of a span.
  void AddSpan(const Dimension& span, bool is_exchanged, const uint8_t* a, const uint8_t* b, uint8_t* y,
               int64_t count) const;

  float a_ratio_, b_ratio_;
  float fixed_, exchanged_fixed_;  // the second one: if A and B change places
  bool has_avx2_;
  // The number of a byte x is (x ^ shift) − offset.
  uint8_t shift_;
  int32_t offset_;
  bool b_is_constant_;
  Shape b_shape_;                    // of a constant B
  std::vector<uint8_t> b_constant_;  // its elements
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_ADD_H_
