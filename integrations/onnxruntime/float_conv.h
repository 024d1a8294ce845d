// Convolutions of float tensors, with one order of additions on every CPU.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_CONV_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_CONV_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convolution.h"
#include "layer.h"
#include "linear.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// A convolution of float32 tensors in two dimensions, with the order of additions of ONNX Runtime's NCHWc kernels for AVX-512
/// (snchwc.cpp, SconvKernelAvx512F): the input channels of a group are cut into blocks. For each output:
///
///     part[b] = Σ x·w, from +0 on, each step a fused multiply-add, in the order (kh, kw, channel of block b);
///               taps that lie in the padding are left out
///     sum     = part[0];  sum = part[b] + sum for b = 1, 2, …
///     y       = sum + bias, or sum if there is no bias; then a Relu or Clip of the group
///
/// Channels of a block: 1 without groups and with fewer than 16 input channels; 128 if the kernel is 1×1 and there is no padding;
/// else 16. A last block of 16 that the channels do not fill has zeros for the missing ones. The bits of a NaN are not defined.
class FloatConv : public Layer {
 public:
  /// The operator's inputs, as its definition names them.
  static constexpr std::array kInputs = {"X", "W", "B"};

  /// Throws Refusal without the option `reproducible`, and for convolutions that ONNX Runtime computes in one order on every CPU.
  FloatConv(const Node& node, const Context& context);
  void Compute(Run& run) const override;
  std::string Kernel() const override;

  /// Whether ONNX Runtime computes convolutions with weights of this shape in one order on every CPU and for every number of threads.
  /// It does so in two dimensions with several groups, if a group's channels or outputs are no multiple of 8. Measured with 260 geometries.
  static bool HasOneOrder(const Shape& weights, int64_t groups);

  struct Kernels;

 private:
  // Adjacent output pixels of a line with the same taps in the image.
  struct Pixels {
    int64_t first, count;
    int64_t w_begin, w_end;  // the taps
    bool is_of_column;       // one pixel, computed together with the ones below it
  };

  void Pack(const Constant& w);
  std::vector<Pixels> PixelsOfLine(int64_t in_width, int64_t out_width) const;
  // For each line of outputs: how many lines, this one first, are computed together in columns (Pixels::is_of_column); 0: an earlier
  // line computes it.
  std::vector<int64_t> LinesOfColumns(int64_t in_height, int64_t out_height) const;

  // Tensors of a run. Shapes are NHWC; steps are in elements.
  struct Images {
    const float* x = nullptr;
    float* y = nullptr;
    Shape in, out;
    int64_t x_channel_step = 1, x_pixel_step = 1;
    std::vector<Pixels> pixels;
    std::vector<int64_t> lines;
    std::vector<int64_t> first_lines;  // of the lines that are computed together
  };
  // Where the outputs of Lines begin.
  struct Target {
    float* y;
    int64_t pixel_step, line_step;
  };
  // Lines of one image, one group, and one tile of panels.
  struct Lines {
    int64_t image, group, panel, first;
  };

  Images ImagesOf(Run& run) const;
  void ComputeLines(const Images& images, const Lines& lines) const;
  void ComputeLine(const Images& images, const Lines& lines, int64_t line, const Target& target) const;

  const ConvGeometry geometry_;
  const ConvNeighbors neighbors_;
  const bool is_input_nchw_, is_output_nchw_;
  const Kernels* kernels_ = nullptr;
  int64_t channels_, outputs_;  // of a group
  int64_t block_;
  int64_t panels_;              // of a group: 16 outputs each
  struct alignas(64) Outputs {  // no vector crosses a cache line
    std::array<float, 16> weights;
  };
  std::vector<Outputs> weights_;  // (group, panel, block, kh, kw, channel)
  std::vector<float> bias_;       // (group, panel, output); empty: none
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_FLOAT_CONV_H_
