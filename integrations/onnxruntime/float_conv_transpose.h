// Transposed convolutions of float tensors, with one order of additions for every number of threads and pixels.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_CONV_TRANSPOSE_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_CONV_TRANSPOSE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "float_matmul.h"
#include "layer.h"
#include "linear.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// ConvTranspose of float32 tensors in one to three dimensions. Each input pixel p of a group, with C channels, gives products for all
/// taps t of all outputs m; an output pixel q adds its products:
///
///     column[m][t][p] = Σ w[c][m][t]·x[c][p]      as FloatMatMul adds K = C depths, of a product with a column for each pixel
///     y[m][q]         = (((0 + column[m][t0][p0]) + column[m][t1][p1]) + …) + bias[m]      t ascending, p the pixel that t takes to q
///
/// D of FloatMatMul is 128 if a run gives the weights, or if a group has one output and one tap: ONNX Runtime then multiplies by a
/// transposed matrix. So Y has the bytes of ONNX Runtime's CPU provider with one thread, except for one pixel, which it adds in another
/// order. ONNX Runtime itself cuts the pixels among the threads, so that D, and with it the bytes, depends on their number if C > 128.
///
/// Refuses every node if the session lacks the option `reproducible`, and each node of one order (HasOneOrder()).
class FloatConvTranspose : public Layer {
 public:
  /// The operator's inputs, as its definition names them.
  static constexpr std::array kInputs = {"X", "W", "B"};

  FloatConvTranspose(const Node& node, const Context& context);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return std::string("conv_transpose_f32_") + product_.name; }

  /// Whether the bytes of a node do not depend on the number of threads in ONNX Runtime: a group has at most
  /// FloatMatMul::kMostDepthOfOneOrder channels, and the image is known to have two pixels or more.
  static bool HasOneOrder(const Node& convolution);

 private:
  // Extents of a run; one that the operator does not have is 1.
  struct Sizes {
    int64_t batch = 1, channels = 1, outputs = 1;  // of a group
    std::array<int64_t, 3> in = {}, kernel = {}, out = {};
    int64_t Taps() const { return kernel[0] * kernel[1] * kernel[2]; }
    int64_t InPixels() const { return in[0] * in[1] * in[2]; }
    int64_t OutPixels() const { return out[0] * out[1] * out[2]; }
  };

  // Sets `out` to the output's shape.
  Sizes SizesOf(const Shape& x, const Shape& w, Shape* out) const;
  // The columns of one output, (tap, pixel), become its pixels.
  void AddColumns(const Sizes& sizes, const float* columns, float* y) const;

  const FloatProduct& product_;
  const int64_t groups_;
  const bool is_bias_from_run_;
  std::array<int64_t, 3> strides_, dilations_, pads_begin_, pads_end_, output_padding_;
  Shape weights_shape_;         // of constant weights; empty: each run gives them
  std::vector<float> weights_;  // (group, output, tap, channel)
  std::vector<float> bias_;     // of the model; empty: none
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_CONV_TRANSPOSE_H_
