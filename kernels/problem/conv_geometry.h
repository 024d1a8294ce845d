// The shape of a convolution, in three spatial dimensions whatever the caller's: missing ones are outermost
// and of extent 1.
#ifndef INTACT_KERNELS_PROBLEM_CONV_GEOMETRY_H_
#define INTACT_KERNELS_PROBLEM_CONV_GEOMETRY_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <intact/intact.hpp>

namespace intact::kernels {

/// One value for each of depth, height and width.
using Spatial = std::array<int64_t, INTACT_MAX_SPATIAL>;
enum Dimension : uint8_t { kDepth, kHeight, kWidth };

struct ConvGeometry {
  // The stride is 1 in dimensions of one output, unless transposed.
  int64_t input_channels = 0, output_channels = 0, groups = 1;
  // Negative padding crops: plans of a transposed convolution's phases have such (conv_transposed.h).
  Spatial input = {}, kernel = {}, stride = {}, dilation = {}, pad_begin = {}, pad_end = {};
  Spatial output = {};
  bool is_transposed = false;

  int64_t group_inputs() const { return input_channels / groups; }
  int64_t group_outputs() const { return output_channels / groups; }
  int64_t taps() const { return kernel[kDepth] * kernel[kHeight] * kernel[kWidth]; }
  /// Planes are images, or the depths of a volume's output.
  int64_t plane_pixels() const { return output[kHeight] * output[kWidth]; }
  bool HasPadding() const { return pad_begin != Spatial{} || pad_end != Spatial{}; }
  bool HasPadding(Dimension dimension) const { return pad_begin[dimension] > 0 || pad_end[dimension] > 0; }
  /// Input positions in `dimension` that `outputs` adjacent ones read, from the first to the last.
  int64_t Span(Dimension dimension, int64_t outputs) const {
    return (outputs - 1) * stride[dimension] + (kernel[dimension] - 1) * dilation[dimension] + 1;
  }
};

/// Checks all of `desc` but what it holds of a GEMM. INVALID_ARGUMENT names the field and its value.
Result<ConvGeometry> CheckGeometry(const intact_conv_desc& desc);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_CONV_GEOMETRY_H_
