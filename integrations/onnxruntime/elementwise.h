// Operators of two quantized tensors, element by element, with broadcasting: QLinearAdd, QLinearMul.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_ELEMENTWISE_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_ELEMENTWISE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layer.h"
#include "linear.h"
#include "node.h"

namespace intact::onnxruntime {

/// How bytes encode numbers: the number of a byte x is (x ^ shift) − offset.
struct Coding {
  uint8_t shift = 0;
  int32_t offset = 0;
};

/// An operator of A (inputs 0 to 2: elements, scale, zero point) and B (inputs 3 to 5). Inputs 6 and 7 are the scale and the
/// zero point of the output. A or B may be a constant.
class QLinearElementwise : public Layer {
 public:
  ElementOrder GetOrder() const override { return order_; }
  void Compute(Run& run) const override;

 protected:
  /// If `context.is_moved_to_u8`, the arithmetic adds 128 to s8 elements and to their zero points.
  QLinearElementwise(const Node& node, const Context& context);

  /// `extent` consecutive outputs. In them each operand either advances by one element (step 1) or repeats one
  /// element (step 0).
  struct Dimension {
    int64_t extent, a_step, b_step;
  };
  /// Outputs [0, count) of a span.
  virtual void ComputeSpan(const Dimension& span, bool is_exchanged, const uint8_t* a, const uint8_t* b,
                           uint8_t* y, int64_t count) const = 0;

  /// Throws Refusal if `largest` is beyond int32 or NaN: ONNX Runtime converts results to int32 before it clamps them.
  void CheckRange(double largest) const;

  const bool has_avx2_;
  float a_scale_, b_scale_, y_scale_;
  float a_zero_point_, b_zero_point_, y_zero_point_;
  Coding coding_;

 private:
  struct ConstantOperand {
    Shape shape;
    std::vector<uint8_t> elements;
  };

  // The dimensions of the output from the last one on, adjacent ones joined where possible; at least one.
  static std::vector<Dimension> DimensionsOf(const Shape& a, const Shape& b, Shape* output);
  // Whether A and B change places in a sum.
  static bool IsExchanged(const Shape& a, const Shape& b);

  std::array<std::optional<ConstantOperand>, 2> constants_;  // A and B
  const ElementOrder order_;
};

/// y = clamp(rne(fma(a, a_ratio, fma(b, b_ratio, fixed)))) in float32, as ONNX Runtime's kernel for AVX2 computes it:
///
///     a_ratio = a_scale/y_scale      b_ratio = b_scale/y_scale
///     fixed = y_zero_point − fma(a_ratio, a_zero_point, b_ratio·b_zero_point)
///
/// If ONNX Runtime takes one element of A for several elements of B, A and B change places in both formulas. ONNX Runtime
/// decides this by the last dimension of A and B in which one extent is not 1: there the extent of A is 1. It looks at the
/// dimensions that both tensors have; if all their extents are 1, A and B change places too.
class QLinearAdd : public QLinearElementwise {
 public:
  QLinearAdd(const Node& node, const Context& context);
  std::string Kernel() const override { return has_avx2_ ? "qlinear_add_avx2" : "qlinear_add_portable"; }

 private:
  void ComputeSpan(const Dimension& span, bool is_exchanged, const uint8_t* a, const uint8_t* b, uint8_t* y,
                   int64_t count) const override;

  float a_ratio_, b_ratio_;
  float fixed_, exchanged_fixed_;  // the second one: if A and B change places
};

/// y = clamp(rne((a − a_zero_point)·(b − b_zero_point)·ratio + y_zero_point)) in float32, each operation rounded, with
/// ratio = (a_scale·b_scale)/y_scale: as ONNX Runtime's kernel computes it.
class QLinearMul : public QLinearElementwise {
 public:
  QLinearMul(const Node& node, const Context& context);
  std::string Kernel() const override { return has_avx2_ ? "qlinear_mul_avx2" : "qlinear_mul_portable"; }

 private:
  void ComputeSpan(const Dimension& span, bool is_exchanged, const uint8_t* a, const uint8_t* b, uint8_t* y,
                   int64_t count) const override;

  float ratio_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_ELEMENTWISE_H_
