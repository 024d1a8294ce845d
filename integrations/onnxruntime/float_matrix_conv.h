// Convolutions of float tensors in one or three dimensions, with one order of additions for every number of threads.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATRIX_CONV_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATRIX_CONV_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "convolution.h"
#include "float_matmul.h"
#include "layer.h"
#include "linear.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// A convolution of float32 tensors in one or three dimensions, a product of matrices:
///
///     y[o][p] = Σ w[o][c][t]·x[c][the pixel that tap t of output pixel p reads] + bias[o]
///
/// The depths (channel c of the group, tap t) are added as FloatMatMul adds them, of a product with a column for each output pixel of an
/// image; taps that lie in the padding multiply zeros. So Y has the bytes of ONNX Runtime's CPU provider with one thread (MlasConv()),
/// except for one output pixel or one output in a group, which it adds in another order. ONNX Runtime itself cuts the pixels of one image
/// among the threads, so that its bytes depend on their number if a group has more than 128 depths.
///
/// Refuses every node if the session lacks the option `reproducible`, and convolutions that ONNX Runtime computes in one order: see HasOneOrder().
class FloatMatrixConv : public Layer {
 public:
  FloatMatrixConv(const Node& node, const Context& context);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return std::string("conv_matrix_f32_") + product_.name; }

  /// Whether ONNX Runtime computes convolutions with weights of this shape in one order: one output and at most 128 depths in each
  /// group, which is not cut.
  static bool HasOneOrder(const Shape& weights, int64_t groups);

 private:
  // The extents of a tensor. A dimension that the operator does not have is 1.
  struct Image {
    std::array<int64_t, 3> extents;
    int64_t channel_step, pixel_step;  // in elements
    int64_t Pixels() const { return extents[0] * extents[1] * extents[2]; }
  };

  Image ImageOf(const Shape& shape) const;
  // Writes what the taps of an output pixel read, (channel, tap). `x`: the group's first channel of an image.
  void ReadTaps(const Image& in, const Image& out, const float* x, int64_t pixel, float* row) const;

  const FloatProduct& product_;
  const ConvGeometry geometry_;
  std::array<int64_t, 3> kernel_, stride_, dilation_, pad_;
  int64_t channels_, outputs_, taps_;  // channels and outputs of a group
  std::vector<float> weights_;         // (group, channel, tap, output)
  std::vector<float> bias_;            // empty: none
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_MATRIX_CONV_H_
