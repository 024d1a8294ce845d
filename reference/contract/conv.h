// Scalar convolution, written to be read at a glance.
#ifndef INTACT_REFERENCE_CONTRACT_CONV_H_
#define INTACT_REFERENCE_CONTRACT_CONV_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/contract/gemm.h"
#include "reference/contract/linear.h"

namespace intact::reference {

/// One spatial dimension. The default is a dimension that the convolution does not have.
struct Axis {
  int64_t input = 1, kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;
  bool transposed = false;
  int64_t output_pad = 0;  // 0 unless transposed

  bool operator==(const Axis&) const = default;
  /// Extent of the output. 0 if the kernel does not fit into the padded input, or if padding crops all of a
  /// transposed convolution's output.
  int64_t Output() const noexcept;
  /// The input position that tap `k` of output `o` reads. Positions outside [0, input) are padding.
  /// Transposed: the i with o = i·stride − pad_begin + k·dilation; −1 if no integer i solves this.
  int64_t Position(int64_t o, int64_t k) const noexcept {
    if (!transposed) return o * stride - pad_begin + k * dilation;
    const int64_t i_stride = o + pad_begin - k * dilation;
    return i_stride % stride == 0 ? i_stride / stride : -1;
  }
  bool Holds(int64_t position) const noexcept { return position >= 0 && position < input; }
};

inline constexpr int kMaxSpatial = 3;
using Spatial = std::array<int64_t, kMaxSpatial>;  // D, H, W

struct ConvGeometry {
  int dims = 2;                        // W, (H, W) or (D, H, W)
  std::array<Axis, kMaxSpatial> axes;  // D, H, W; the convolution has the last `dims` axes
  int64_t batch = 1;
  int64_t input_channels = 1, output_channels = 1, groups = 1;

  bool operator==(const ConvGeometry&) const = default;
  int64_t GroupInputs() const noexcept { return input_channels / groups; }
  int64_t GroupOutputs() const noexcept { return output_channels / groups; }
  bool IsTransposed() const noexcept { return axes.back().transposed; }
  int64_t Taps() const noexcept { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
  /// Pixels of all images.
  int64_t InputPixels() const noexcept { return batch * axes[0].input * axes[1].input * axes[2].input; }
  int64_t OutputPixels() const noexcept {
    return batch * axes[0].Output() * axes[1].Output() * axes[2].Output();
  }
  /// Depths of one tap in the lowered GEMM: the group's channels, rounded up to an even number.
  int64_t TapDepth() const noexcept { return (GroupInputs() + 1) / 2 * 2; }
};

/// An output pixel.
struct Pixel {
  int64_t batch = 0;
  Spatial at = {};
  bool operator==(const Pixel&) const = default;
};
/// The output pixel of row m.
Pixel PixelOf(const ConvGeometry& geometry, int64_t m) noexcept;

/// The tap with number `tap`; w is the fastest dimension.
Spatial TapOf(const ConvGeometry& geometry, int64_t tap) noexcept;

/// The tap and the channel that a depth of the lowered GEMM belongs to.
struct TapChannel {
  Spatial tap = {};
  int64_t channel = 0;  // the channel's number in its group; GroupInputs(): the depth is padding
  bool operator==(const TapChannel&) const = default;
};
TapChannel TapChannelOf(const ConvGeometry& geometry, int64_t k) noexcept;

/// The input pixel that a tap of an output pixel reads, as a row of `a`; −1: padding.
int64_t InputRow(const ConvGeometry& geometry, const Pixel& output, const Spatial& tap) noexcept;

/// A convolution with its tensors, dense and channels last:
///
///   a  [batch][D][H][W][input_channels]
///   b  [output_channels][KD][KH][KW][input_channels/groups]
struct Conv : Linear {
  ConvGeometry geometry;
};

/// The contract as include/intact/intact.h states it: y = Σ (a − za)·(b − zb) + bias_s32 over taps and
/// channels, for each output pixel and output channel, modulo 2³².
std::vector<int32_t> Convolve(const Conv& conv);

/// Output bytes, dense [batch][OD][OH][OW][output_channels] of c_type, from accumulators.
inline std::vector<uint8_t> Outputs(const Conv& conv, const std::vector<int32_t>& accumulators) {
  return Outputs(conv, conv.geometry.output_channels, accumulators);
}

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_CONV_H_
