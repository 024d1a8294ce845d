// The shape of a convolution, always in three spatial dimensions: the dimensions that the caller lacks are
// outermost, of extent 1. Extents of the input may be open. A geometry with open extents stands for all
// sizes. Sized() makes a geometry that can be computed.
#ifndef INTACT_KERNELS_PROBLEM_CONV_GEOMETRY_H_
#define INTACT_KERNELS_PROBLEM_CONV_GEOMETRY_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>

#include "core/result.h"

namespace intact::kernels {

/// One value for each of depth, height and width.
using Spatial = std::array<int64_t, INTACT_MAX_SPATIAL>;
enum Dimension : uint8_t { kDepth, kHeight, kWidth };

struct ConvGeometry {
  int dims = 2;  // the caller's dimensions: the last `dims` elements of the arrays below
  int64_t input_channels = 0, output_channels = 0, groups = 1;
  // Negative padding crops. Phases of a transposed convolution may have it (conv_transposed.h).
  Spatial input = {}, kernel = {}, stride = {}, dilation = {}, pad_begin = {}, pad_end = {}, output_pad = {};
  Spatial output = {};
  bool is_transposed = false;
  // The dimensions in which runs give the input's extent. Until Sized(), input and output are
  // INTACT_ANY_EXTENT there.
  std::array<bool, INTACT_MAX_SPATIAL> is_open = {};

  /// Whether runs give the input's extent in some dimension.
  bool IsOpen() const { return is_open[kDepth] || is_open[kHeight] || is_open[kWidth]; }
  /// The index of the caller's dimension `i` in the arrays above.
  size_t Place(int i) const { return static_cast<size_t>(INTACT_MAX_SPATIAL - dims + i); }

  int64_t group_inputs() const { return input_channels / groups; }
  int64_t group_outputs() const { return output_channels / groups; }
  int64_t taps() const { return kernel[kDepth] * kernel[kHeight] * kernel[kWidth]; }
  /// The output pixels of a plane: of an image, or of one slice (kDepth) of a volume.
  int64_t plane_pixels() const { return output[kHeight] * output[kWidth]; }
  /// Multiply-adds of `batch` images, including multiply-adds of padding.
  double MultiplyAdds(int64_t batch) const {
    const Spatial& pixels = is_transposed ? input : output;
    double count = 1;
    for (const int64_t factor : {batch, input_channels, group_outputs(), taps()}) {
      count *= static_cast<double>(factor);
    }
    for (const int64_t extent : pixels) count *= static_cast<double>(extent);
    return count;
  }
  bool HasPadding() const { return pad_begin != Spatial{} || pad_end != Spatial{}; }
  bool HasPadding(Dimension dimension) const { return pad_begin[dimension] > 0 || pad_end[dimension] > 0; }
  /// The number of input positions in `dimension` that `outputs` adjacent outputs span, from the first
  /// position read to the last.
  int64_t Span(Dimension dimension, int64_t outputs) const {
    return (outputs - 1) * stride[dimension] + (kernel[dimension] - 1) * dilation[dimension] + 1;
  }
};

/// Checks all of `desc`. INVALID_ARGUMENT names the field and its value.
Result<ConvGeometry> CheckGeometry(const intact_conv_desc& desc);

/// The descriptor of a `geometry` that CheckGeometry() returned.
intact_conv_desc DescOf(const ConvGeometry& geometry);

/// `geometry` for an input of extents `given`, as in a run's arguments: 0 stands for the descriptor's extent.
/// Unless transposed, the stride becomes 1 in dimensions of one output. INVALID_ARGUMENT names the field and
/// its value.
Result<ConvGeometry> Sized(const ConvGeometry& geometry, const int64_t* given);

/// `geometry` with common extents in place of open extents. Choices for all sizes are made for these extents.
Result<ConvGeometry> TypicallySized(const ConvGeometry& geometry);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_CONV_GEOMETRY_H_
