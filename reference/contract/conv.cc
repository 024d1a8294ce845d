#include "reference/contract/conv.h"

#include <algorithm>

#include "core/types.h"

namespace intact::reference {
namespace {

// The coordinates of element `index` of a box with these extents; the last coordinate is fastest.
Spatial Unravel(int64_t index, const Spatial& extents) noexcept {
  const int64_t w = index % extents[2];
  const int64_t dh = index / extents[2];
  return {dh / extents[1], dh % extents[1], w};
}

// a − za of an input pixel's channel; padding is zero.
int32_t CenteredActivation(const Conv& conv, int64_t input_row, int64_t channel) noexcept {
  if (input_row < 0) return 0;
  const int64_t at = input_row * conv.geometry.input_channels + channel;
  return core::DecodeInt8(conv.a_type, conv.a[static_cast<size_t>(at)]) - ActivationZeroPoint(conv);
}

// b − zb.
int32_t CenteredWeight(const Conv& conv, int64_t output_channel, int64_t tap, int64_t channel) noexcept {
  const ConvGeometry& g = conv.geometry;
  const int64_t at = (output_channel * g.Taps() + tap) * g.GroupInputs() + channel;
  const auto byte = static_cast<uint8_t>(conv.b[static_cast<size_t>(at)]);
  return core::DecodeInt8(conv.b_type, byte) - WeightZeroPoint(conv, output_channel);
}

}  // namespace

int64_t Axis::Output() const noexcept {
  if (transposed) {
    const int64_t last = (input - 1) * stride + (kernel - 1) * dilation - pad_begin - pad_end;
    return std::max<int64_t>(last + output_pad + 1, 0);
  }
  const int64_t room = input + pad_begin + pad_end - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

Pixel PixelOf(const ConvGeometry& geometry, int64_t m) noexcept {
  const auto& [d, h, w] = geometry.axes;
  const int64_t image = d.Output() * h.Output() * w.Output();
  // A row exists, so the image has outputs. NOLINTNEXTLINE(clang-analyzer-core.DivideZero)
  return {m / image, Unravel(m % image, {d.Output(), h.Output(), w.Output()})};
}

Spatial TapOf(const ConvGeometry& geometry, int64_t tap) noexcept {
  const auto& [d, h, w] = geometry.axes;
  return Unravel(tap, {d.kernel, h.kernel, w.kernel});
}

TapChannel TapChannelOf(const ConvGeometry& geometry, int64_t k) noexcept {
  return {TapOf(geometry, k / geometry.TapDepth()), k % geometry.TapDepth()};
}

int64_t InputRow(const ConvGeometry& geometry, const Pixel& output, const Spatial& tap) noexcept {
  int64_t row = output.batch;
  for (size_t i = 0; i < kMaxSpatial; ++i) {
    const int64_t position = geometry.axes[i].Position(output.at[i], tap[i]);
    if (!geometry.axes[i].Holds(position)) return -1;
    row = row * geometry.axes[i].input + position;
  }
  return row;
}

std::vector<int32_t> Convolve(const Conv& conv) {
  const ConvGeometry& g = conv.geometry;
  const auto& [d, h, w] = g.axes;
  std::vector<int32_t> y;
  for (int64_t batch = 0; batch < g.batch; ++batch) {
    for (int64_t od = 0; od < d.Output(); ++od) {
      for (int64_t oh = 0; oh < h.Output(); ++oh) {
        for (int64_t ow = 0; ow < w.Output(); ++ow) {
          for (int64_t n = 0; n < g.output_channels; ++n) {
            const int64_t first_channel = n / g.GroupOutputs() * g.GroupInputs();
            int64_t sum = conv.bias_s32.empty() ? 0 : conv.bias_s32[static_cast<size_t>(n)];
            int64_t tap = 0;
            for (int64_t kd = 0; kd < d.kernel; ++kd) {
              for (int64_t kh = 0; kh < h.kernel; ++kh) {
                for (int64_t kw = 0; kw < w.kernel; ++kw, ++tap) {
                  const int64_t row = InputRow(g, {batch, {od, oh, ow}}, {kd, kh, kw});
                  for (int64_t c = 0; c < g.GroupInputs(); ++c) {
                    const int64_t a = CenteredActivation(conv, row, first_channel + c);
                    sum += a * CenteredWeight(conv, n, tap, c);
                  }
                }
              }
            }
            y.push_back(static_cast<int32_t>(static_cast<uint64_t>(sum)));
          }
        }
      }
    }
  }
  return y;
}

}  // namespace intact::reference
