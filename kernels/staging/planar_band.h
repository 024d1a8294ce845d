// The planar band: the band (band.h) transposed, so that a quad of adjacent output pixels is contiguous and
// fills a vector's lanes.
//
//   channel quad 0   slice per tap in depth
//                      phase (y mod stride, x mod stride)
//                        line   x0: c0 c1 c2 c3 | x1: c0 c1 c2 c3 | …   line_positions quads
//   channel quad 1   …
//
// The last quad of a group's channels is padded with zeros. Channels may have another order within their
// group (channel_order.h).
//
// Output pixel (line, x) is position line·line_positions + x. Pixels of one phase are adjacent, so each tap
// lies at one offset from every position, whatever the stride is. The scheduled kernel (scheduled_kernel.h)
// reads its quads from the band in place. So each pixel is transposed once, not once for each tap. The price:
// a line of the band is about as long as a padded input line. Kernels also compute the positions between two
// output lines, and drop them. The padding right of a line also serves as the padding left of the next line.
//
// Groups do not read each other's channels. So a band holds only a few groups: about a cache line of each
// pixel. Its lines take a little more than L1. With fewer lines in a band, more lines would be transposed
// twice.
#ifndef INTACT_KERNELS_STAGING_PLANAR_BAND_H_
#define INTACT_KERNELS_STAGING_PLANAR_BAND_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "kernels/codegen/pixel_transpose.h"
#include "kernels/problem/access.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/operands.h"
#include "kernels/runtime/blocking.h"
#include "kernels/staging/band.h"

namespace intact::kernels {

class PlanarBand {
 public:
  PlanarBand() = default;
  PlanarBand(const ConvGeometry& geometry, uint8_t shift);
  /// Whether channels may have another order within their group: one shuffle must reach the whole group.
  bool CanOrderChannels() const;
  /// Sets the channel at each place of a pixel; groups keep their places. Requires CanOrderChannels().
  void OrderChannels(std::vector<int64_t> order);
  bool HasOrder() const { return !order_.empty(); }
  /// Must be called before Stage(). A CODEGEN_FAILED error names the kernel.
  Error GenerateKernel();

  /// Bytes that Stage() writes, plus a few that kernels may read beyond them.
  int64_t bytes() const { return sources_per_band_ * 4 * quad_bytes_ + kSlackBytes; }
  /// The most rows that a band holds.
  int64_t max_rows() const { return lines_ * width(); }
  /// The end row of the band that begins at `row`: the end of a line in its plane, or `row_end` if that comes
  /// first.
  int64_t EndFrom(int64_t row, int64_t row_end) const;
  /// Whether a band fits in L2, and offsets within the bands of all groups fit in 32 bits. Otherwise the
  /// band must not be used.
  bool IsSmall() const;
  /// Groups that a band holds. Their columns fill whole panels, except in the last band.
  int64_t groups() const { return groups_; }
  /// Stages the pixels that rows [row_begin, row_end) read, with the channels of groups [group, group +
  /// groups()). `to` is aligned to 64 bytes.
  PlanarRows Stage(const ConvInput& input, int64_t group, int64_t row_begin, int64_t row_end,
                   uint8_t* to) const noexcept;

  /// Columns that read the channels of one group: its outputs. A single group also has the columns that fill
  /// its last panel, so that strips of several columns suit any number of outputs.
  static int64_t GroupColumns(const ConvGeometry& geometry) {
    const int64_t outputs = geometry.group_outputs();
    return geometry.groups == 1 ? RoundUp(outputs, kPanelColumns) : outputs;
  }
  /// The layout of a column's depth in the band: quads of channels, and the taps of each quad.
  PlanarAccess MakeAccess() const;

 private:
  static constexpr int64_t kSlackBytes = 512;  // kernels read whole register blocks

  int64_t width() const { return geometry_.output[kWidth]; }
  int64_t Phase(Dimension dimension, int64_t position) const {
    return position % geometry_.stride[dimension];
  }
  /// The offset of a phase, in positions from the slice's first position.
  int64_t PhaseOffset(int64_t y, int64_t x) const {
    return (Phase(kHeight, y) * geometry_.stride[kWidth] + Phase(kWidth, x)) * phase_positions_;
  }
  /// Positions from position 0 of a quad to pixel (slice, y, x) of the padded input.
  int64_t Offset(int64_t slice, int64_t y, int64_t x) const {
    return slice * slice_positions_ + PhaseOffset(y, x) + y / geometry_.stride[kHeight] * line_positions_ +
           x / geometry_.stride[kWidth];
  }
  int64_t LinePositions() const;
  int64_t group_quads() const { return quads_ / groups_; }
  /// The pixels of a line with x ≡ `number` (mod stride), if some tap reads them.
  struct PixelPhase {
    int64_t number;
    int64_t first_x;     // the input's x at position 0; negative in the padding
    int64_t begin, end;  // the positions that lie within the input
  };
  void SetSources();
  QuadSource SourceOf(int64_t first_quad) const;
  /// A line of the input; `first` is null outside the input.
  struct PixelLine {
    const uint8_t* first;
    int64_t stride;
    const uint8_t* padding;
  };
  /// Stages all phases of the groups from `group` on.
  uint8_t StageLine(const PixelLine& line, int64_t group, uint8_t* to) const noexcept;
  void ListPixels(const PixelLine& line, const PixelPhase& phase, int64_t first,
                  std::span<const uint8_t*> pixels) const noexcept;
  uint8_t Transpose(std::span<const uint8_t* const> pixels, int64_t group, uint8_t* to) const noexcept;

  ConvGeometry geometry_;
  uint8_t shift_ = 0;
  int64_t lines_ = 0;        // output lines that a band holds
  int64_t line_length_ = 0;  // positions that a line fills; it may overlap the next line
  int64_t line_positions_ = 0, phase_positions_ = 0, slice_positions_ = 0;
  int64_t groups_ = 1;
  int64_t quads_ = 0, quad_bytes_ = 0;
  std::vector<int64_t> line_phases_;  // phases of lines that some tap reads
  std::vector<PixelPhase> pixel_phases_;
  std::vector<int64_t> order_;  // the channel at each place; empty for the input's order
  int64_t sources_per_band_ = 0;
  std::vector<QuadSource> sources_;   // band by band; empty if a pixel is shorter than a source
  PixelTransposeFunction transpose_;  // null if sources_ is empty
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_STAGING_PLANAR_BAND_H_
