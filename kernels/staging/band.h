// The band: a copy of the input pixels that some output pixels read, with padding in place. So the taps of
// every output pixel lie at equal distances (access.h), and no tap needs a check for borders.
//
//   plane (an image, or a depth of a volume's output)
//     slice per tap in depth
//       line   | padding |  pixels of the input, u8  | padding |     lines outside the input: padding
//
// If the outputs of a band span less than the distance between taps, the gap between the taps is not copied:
// the lines or pixels of a tap directly follow the lines or pixels of the previous tap.
//
// The taps of each output pixel's lines may lie side by side (tap_joiner.h), in place of the input's pixels.
//
// A band fits in a part of L2. It holds lines of one plane, or whole planes. Copying shifts s8 to u8, and may
// repeat channels (a channel multiplier). Padding is the zero point, and contributes nothing.
#ifndef INTACT_KERNELS_STAGING_BAND_H_
#define INTACT_KERNELS_STAGING_BAND_H_

#include <algorithm>
#include <cstdint>

#include "kernels/problem/access.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/staging/repeater.h"
#include "kernels/staging/tap_joiner.h"

namespace intact::kernels {

/// The input of one run.
struct ConvInput {
  const uint8_t* a = nullptr;
  int64_t stride = 0;                // bytes between pixels
  const uint8_t* padding = nullptr;  // a pixel of padding: the zero point in all channels, in A's type
  /// The input from channel `channel` on.
  ConvInput FromChannel(int64_t channel) const { return {a + channel, stride, padding}; }
};

/// The channels of a pixel that a band copies. Stage() is given the first channel.
struct BandChannels {
  int64_t count = 0;
  int64_t repeats = 1;      // of each channel
  int64_t pitch = 0;        // bytes between pixels of the band, ≥ count·repeats
  bool joins_taps = false;  // a pixel of the band is an output pixel, and holds the taps of a filter's line
};

/// Pixel 0 of an input line, at the depth that tap `depth_tap` of output plane `plane` reads. Planes are
/// counted over all images, lines `y` from the first padding line. Null outside the input.
const uint8_t* InputLine(const ConvGeometry& geometry, const ConvInput& input, int64_t plane,
                         int64_t depth_tap, int64_t y) noexcept;

class Band {
 public:
  /// Kernels may read these bytes behind the staged bytes: the end of a tap's last quad or last tile. Their
  /// weights contribute nothing, so the bytes need not be written. Inside the band, bytes past a tap must lie
  /// in the activation range, so each line is staged, even if no tap reads it.
  static constexpr int64_t kSlackBytes = 128;

  Band() = default;
  /// `shift`: ActivationShift(). If pad_begin of the width is negative, lines begin inside the input.
  Band(const ConvGeometry& geometry, const BandChannels& channels, uint8_t shift);

  /// The value of a padding byte in the band.
  uint8_t PaddingOf(const ConvInput& input) const { return *input.padding ^ shift_; }
  /// Bytes that Stage() writes in a run of `planes` planes, plus a few that kernels may read beyond them.
  int64_t Bytes(int64_t planes) const { return std::min(planes_, planes) * plane_bytes_ + kSlackBytes; }
  int64_t pixel_bytes() const { return channels_.pitch; }
  /// Bytes from an output pixel's first tap to tap (depth, height, width).
  int64_t TapOffset(int64_t depth, int64_t height, int64_t width) const;
  /// Bytes from the first tap of an output pixel to the first tap of the next pixel.
  int64_t row_stride() const {
    return (channels_.joins_taps ? 1 : geometry_.stride[kWidth]) * channels_.pitch;
  }
  /// Bytes from the first tap of an output line to the first tap of the next line.
  int64_t line_stride() const { return geometry_.stride[kHeight] * line_bytes_; }
  /// Rows (output pixels) of an output line.
  int64_t line_rows() const { return width(); }

  /// The most rows (output pixels, over all planes) that a band holds.
  int64_t max_rows() const { return (planes_ > 1 ? planes_ * geometry_.output[kHeight] : lines_) * width(); }
  /// The end row of the band that begins at `row`: the end of a line, or `row_end` if that comes first.
  int64_t EndFrom(int64_t row, int64_t row_end) const;
  /// Copies the pixels that rows [row_begin, row_end) read, with the channels from `first_channel` on, to
  /// `to`, aligned to 64 bytes.
  RowMap Stage(const ConvInput& input, int64_t first_channel, int64_t row_begin, int64_t row_end,
               uint8_t* to) const noexcept;
  /// Stage() that writes only bytes [begin, end) of each pixel of the band.
  RowMap StageSlice(const ConvInput& input, int64_t begin, int64_t end, int64_t row_begin, int64_t row_end,
                    uint8_t* to) const noexcept;

 private:
  /// A range of bytes of each pixel of the band (not the slice of a tap in depth).
  struct Slice {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  int64_t width() const { return geometry_.output[kWidth]; }
  /// Lines or pixels from a tap to the next tap, in a band of `outputs` outputs along `dimension`.
  int64_t TapStep(Dimension dimension, int64_t outputs) const;
  /// Lines or pixels that a band of `outputs` outputs along `dimension` holds.
  int64_t Positions(Dimension dimension, int64_t outputs) const;
  /// The number of output lines that a band of one plane, of `budget` bytes, can hold.
  int64_t LinesWithin(int64_t budget) const;
  RowMap StageRows(const ConvInput& input, const Slice& slice, int64_t row_begin, int64_t row_end,
                   uint8_t* to) const noexcept;
  void StageLines(const ConvInput& input, const Slice& slice, int64_t plane, int64_t first_line,
                  int64_t lines, uint8_t* to) const noexcept;
  void StageLine(const ConvInput& input, const Slice& slice, const uint8_t* line, uint8_t* to) const noexcept;
  /// Bytes between pixels that StagePixels() writes.
  int64_t staged_pitch() const { return channels_.joins_taps ? channels_.count : channels_.pitch; }
  void StageJoinedTaps(const ConvInput& input, const uint8_t* line, uint8_t* to) const noexcept;
  /// Stages pixels [first, first + pixels) of a line. Pixel 0 is the first pixel of padding.
  void StagePixels(const ConvInput& input, const uint8_t* line, int64_t first, int64_t pixels,
                   uint8_t* to) const noexcept;
  void StageSliceOfPixels(const ConvInput& input, const Slice& slice, const uint8_t* line, int64_t first,
                          int64_t pixels, uint8_t* to) const noexcept;
  void CopyPixels(const ConvInput& input, const uint8_t* from, int64_t pixels, uint8_t* to) const noexcept;

  ConvGeometry geometry_;
  BandChannels channels_;
  uint8_t shift_ = 0;
  Repeater repeater_;
  TapJoiner joiner_;
  int64_t lines_ = 0;                       // output lines that a band of one plane holds
  int64_t planes_ = 0;                      // whole planes that a band holds, or 1 for a part of a plane
  int64_t line_step_ = 0, pixel_step_ = 0;  // TapStep()
  int64_t line_bytes_ = 0, slice_bytes_ = 0, plane_bytes_ = 0;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_STAGING_BAND_H_
