// Joins the taps of a filter's line that lie apart: copies the pixels of each output side by side, so that
// taps of few channels share their quads.
//
//   3 taps, dilation 2    line     x0 x1 x2 x3 x4 x5 x6 …
//                         joined   x0 x2 x4 · | x1 x3 x5 · | x2 x4 x6 · | …      · any value of the line
//
// With AVX2, each 16 bytes of the output are a shuffle of 16 bytes of the line.
#ifndef INTACT_KERNELS_STAGING_TAP_JOINER_H_
#define INTACT_KERNELS_STAGING_TAP_JOINER_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace intact::kernels {

class TapJoiner {
 public:
  /// Bytes that the taps of an output may span, and that Copy() may read from each output's first tap on.
  static constexpr int64_t kMostSpan = 16;
  /// Bytes that Copy() may write behind its last output.
  static constexpr int64_t kSpill = 12;

  TapJoiner() = default;
  /// Of `taps` taps, `tap_step` pixels apart, of `channels` channels; outputs are `output_step` pixels apart. An output's
  /// taps span at most kMostSpan bytes. `pitch`: bytes between joined outputs, a multiple of kQuad.
  TapJoiner(int64_t taps, int64_t tap_step, int64_t channels, int64_t output_step, int64_t pitch);

  /// Writes `outputs` joined outputs to `to`. `line` is at the first output's first tap.
  void Copy(const uint8_t* line, int64_t outputs, uint8_t* to) const noexcept;

 private:
  static constexpr int64_t kBytes = 16;  // of a shuffle

  int64_t at_once_ = 1;  // outputs of a shuffle
  int64_t output_bytes_ = 0, pitch_ = 0;
  alignas(16) std::array<uint8_t, kBytes> order_ = {};
};

inline TapJoiner::TapJoiner(int64_t taps, int64_t tap_step, int64_t channels, int64_t output_step,
                            int64_t pitch)
    : output_bytes_(output_step * channels), pitch_(pitch) {
  const int64_t span = ((taps - 1) * tap_step + 1) * channels;
  at_once_ = std::min(kBytes / pitch, (kMostSpan - span) / output_bytes_ + 1);
  for (int64_t i = 0; i < at_once_ * pitch; ++i) {
    const int64_t byte = std::min(i % pitch, taps * channels - 1);
    const int64_t from = i / pitch * output_bytes_ + byte / channels * tap_step * channels + byte % channels;
    order_[static_cast<size_t>(i)] = static_cast<uint8_t>(from);
  }
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_STAGING_TAP_JOINER_H_
