// Pools of float tensors, with one order of additions on every CPU.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_POOL_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_POOL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "layer.h"
#include "linear.h"
#include "node.h"
#include "pool.h"
#include "run.h"

namespace intact::onnxruntime {

/// MaxPool, AveragePool, GlobalMaxPool or GlobalAveragePool of float32 tensors in two dimensions, with the order of ONNX Runtime's
/// kernels for planes (pooling.cpp of MLAS), which it uses with AVX-512 unless the channels are a multiple of 16. ⊕ is + or the
/// maximum, e is +0 or −FLT_MAX. Taps that lie in the padding are e in the second case, and left out in the third one.
///
/// 1. The window is the whole image, without strides and padding:
///
///     lane[j] = e ⊕ x[j] ⊕ x[j + 4] ⊕ …      j = 0 … 3; from left to right, without the last 1 to 3 elements
///     y       = ((lane[0] ⊕ lane[2]) ⊕ (lane[1] ⊕ lane[3])) ⊕ the last elements
///
/// 2. The stride along w is at most 2, the window at most 32×32, and a line with its padding has at most 2045 elements:
///
///     column[j] = x[h0][j] ⊕ x[h0 + 1][j] ⊕ …      the lines of the window that lie in the image
///     y         = column[0] ⊕ column[1] ⊕ …
///
/// 3. Else y = e ⊕ x[h0][w0] ⊕ x[h0][w0 + 1] ⊕ …, in the order (kh, kw). With dilation y begins with the first tap in the image, as in
/// ONNX Runtime 1.32; 1.28 begins with e, which drops a NaN.
///
/// An average is y divided by the number of taps in the image, or of all taps with `count_include_pad`. docs/arithmetic.md
/// says what the maximum of a NaN and of zeros of two signs is; the sign and the payload of a NaN are not defined.
class FloatPool : public Layer {
 public:
  /// The operators' inputs, as their definitions name them.
  static constexpr std::array kInputs = {"X"};

  /// `type`: the operator. Refuses all nodes without the option `reproducible`, and nodes with HasOneOrder().
  FloatPool(const Node& node, const Context& context, const std::string& type);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return "pool_f32"; }

  /// Whether a node of operator `type` has the same bytes in ONNX Runtime on every CPU. It cuts channels into blocks of 16 with
  /// AVX-512 and of 8 with AVX2 if the blocks are full, and each way has its order.
  static bool HasOneOrder(const Node& node, const std::string& type);

 private:
  struct Plane;
  struct Taps;

  template <class Operation>
  void ComputePlane(const Plane& plane, const float* x, float* y) const;
  template <class Operation>
  void ComputeColumns(const Plane& plane, const float* x, float* y) const;
  template <class Operation>
  float ComputeWindow(const Plane& plane, const Taps& taps, const float* x) const;
  Plane PlaneOf(int64_t height, int64_t width) const;

  const bool is_average_, channels_last_, counts_padding_;
  std::optional<PoolWindow> window_;  // none: the whole image
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_POOL_H_
