// The band: a copy of the input pixels that some output pixels read, with the padding in place, so that taps
// lie at the same distances from every output pixel (access.h) and none needs to ask for a border.
//
//   plane (an image, or a depth of a volume's output)
//     slice per tap in depth
//       line   | padding |  pixels of the input, u8  | padding |     lines outside the input: padding
//
// Where taps lie further apart than the outputs of a band span, what lies between them is left out: the lines
// or pixels of a tap follow those of the tap before it.
//
// It holds some lines of one plane, or whole planes: as much as a part of L2, where kernels find it. s8 is
// shifted to u8 on the way, channels may be repeated (a channel multiplier), and padding is the zero point,
// which contributes nothing.
#ifndef INTACT_KERNELS_STAGING_BAND_H_
#define INTACT_KERNELS_STAGING_BAND_H_

#include <cstdint>

#include "kernels/problem/access.h"
#include "kernels/problem/conv_geometry.h"

namespace intact::kernels {

/// The input of one run.
struct ConvInput {
  const uint8_t* a = nullptr;
  int64_t stride = 0;                // bytes between pixels
  const uint8_t* padding = nullptr;  // a pixel of padding: the zero point in all channels, as A has it
  /// The input whose first channel is `channel` of this one.
  ConvInput FromChannel(int64_t channel) const { return {a + channel, stride, padding}; }
};

/// The channels of a pixel that a band copies, from the one on that Stage() is told.
struct BandChannels {
  int64_t count = 0;
  int64_t repeats = 1;  // of each channel
  int64_t pitch = 0;    // bytes between pixels of the band, ≥ count·repeats
};

/// Pixel 0 of the line of input that output plane `plane` (over all images) reads with its tap `depth_tap` at
/// `y`, counted from the first padding line; null outside of the input.
const uint8_t* InputLine(const ConvGeometry& geometry, const ConvInput& input, int64_t plane,
                         int64_t depth_tap, int64_t y) noexcept;

class Band {
 public:
  /// Beyond what is staged; kernels may read them against weights that contribute nothing: the end of a tap's
  /// last quad, or of its last tile. They need not be written. What such reads find within a band must be
  /// activations of the activation range, so each line is staged, also where no tap reads it.
  static constexpr int64_t kSlackBytes = 128;

  Band() = default;
  /// `shift`: ActivationShift(). A negative pad_begin of the width: lines begin within the input.
  Band(const ConvGeometry& geometry, const BandChannels& channels, uint8_t shift);

  /// Padding as kernels see it.
  uint8_t PaddingOf(const ConvInput& input) const { return *input.padding ^ shift_; }
  /// Bytes that Stage() writes, and some that kernels may read beyond.
  int64_t bytes() const { return planes_ * plane_bytes_ + kSlackBytes; }
  int64_t pixel_bytes() const { return channels_.pitch; }
  /// From an output pixel's first tap to tap (depth, height, width).
  int64_t TapOffset(int64_t depth, int64_t height, int64_t width) const;
  /// Bytes between what adjacent output pixels of a line read.
  int64_t row_stride() const { return geometry_.stride[kWidth] * channels_.pitch; }
  /// The same of adjacent lines.
  int64_t line_stride() const { return geometry_.stride[kHeight] * line_bytes_; }
  /// Rows of a line.
  int64_t line_rows() const { return width(); }

  /// Rows (output pixels, over all planes) that a band holds at most.
  int64_t max_rows() const { return (planes_ > 1 ? planes_ * geometry_.output[kHeight] : lines_) * width(); }
  /// Where the band that begins at `row` ends: with whole lines, at most `row_end`.
  int64_t EndFrom(int64_t row, int64_t row_end) const;
  /// Copies what rows [row_begin, row_end) read of the channels from `first_channel` on to `to`, aligned to
  /// 64 bytes.
  RowMap Stage(const ConvInput& input, int64_t first_channel, int64_t row_begin, int64_t row_end,
               uint8_t* to) const noexcept;
  /// The same, but for bytes [begin, end) of each pixel of the band: the others are not written.
  RowMap StageSlice(const ConvInput& input, int64_t begin, int64_t end, int64_t row_begin, int64_t row_end,
                    uint8_t* to) const noexcept;

 private:
  /// Bytes of a pixel of the band.
  struct Slice {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  int64_t width() const { return geometry_.output[kWidth]; }
  /// From a tap to the next, in positions of a band of `outputs` outputs.
  int64_t TapStep(Dimension dimension, int64_t outputs) const;
  /// Positions of such a band.
  int64_t Positions(Dimension dimension, int64_t outputs) const;
  /// The output lines that a band of one plane has room for.
  int64_t LinesWithin(int64_t budget) const;
  RowMap StageRows(const ConvInput& input, const Slice& slice, int64_t row_begin, int64_t row_end,
                   uint8_t* to) const noexcept;
  void StageLines(const ConvInput& input, const Slice& slice, int64_t plane, int64_t first_line,
                  int64_t lines, uint8_t* to) const noexcept;
  void StageLine(const ConvInput& input, const Slice& slice, const uint8_t* line, uint8_t* to) const noexcept;
  /// Pixels [first, first + pixels) of a line, counted from the first of its padding.
  void StagePixels(const ConvInput& input, const uint8_t* line, int64_t first, int64_t pixels,
                   uint8_t* to) const noexcept;
  void StageSliceOfPixels(const ConvInput& input, const Slice& slice, const uint8_t* line, int64_t first,
                          int64_t pixels, uint8_t* to) const noexcept;
  void CopyPixels(const ConvInput& input, const uint8_t* from, int64_t pixels, uint8_t* to) const noexcept;

  ConvGeometry geometry_;
  BandChannels channels_;
  uint8_t shift_ = 0;
  int64_t lines_ = 0;                       // output lines that a band of one plane holds
  int64_t planes_ = 0;                      // whole planes that it holds; 1 if not all lines of one
  int64_t line_step_ = 0, pixel_step_ = 0;  // TapStep()
  int64_t line_bytes_ = 0, slice_bytes_ = 0, plane_bytes_ = 0;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_STAGING_BAND_H_
