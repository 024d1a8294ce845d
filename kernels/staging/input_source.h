// Where a convolution's kernels find their input: in place, in a band (band.h), in windows or in a planar
// band (planar_band.h). Each source stages the input pixels that some output pixels read, and returns where
// the staged pixels are.
#ifndef INTACT_KERNELS_STAGING_INPUT_SOURCE_H_
#define INTACT_KERNELS_STAGING_INPUT_SOURCE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/problem/access.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/runtime/blocking.h"
#include "kernels/staging/band.h"
#include "kernels/staging/planar_band.h"

namespace intact::kernels {

class InputSource {
 public:
  InputSource() = default;
  virtual ~InputSource() = default;
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;

  /// The most rows (output pixels, over all planes) that are staged at a time.
  virtual int64_t max_rows() const { return std::numeric_limits<int64_t>::max(); }
  /// The end of the rows that are staged together from `row` on, at most `row_end`.
  virtual int64_t EndFrom(int64_t /*row*/, int64_t row_end) const { return row_end; }
  /// Bytes of scratch that Stage() needs in a run of `planes` planes.
  virtual int64_t Bytes(int64_t /*planes*/) const { return 0; }
  /// Adjacent groups whose channels are staged together.
  virtual int64_t groups() const = 0;
  /// Stages the channels of the groups from `group` on that rows [row_begin, row_end) read, at `to`, aligned
  /// to 64 bytes. Returns where the rows begin.
  virtual InputRows Stage(const ConvInput& input, int64_t group, int64_t row_begin, int64_t row_end,
                          uint8_t* to) const noexcept = 0;
};

/// The caller's input, for filters of one tap without padding.
class InPlaceSource final : public InputSource {
 public:
  explicit InPlaceSource(const ConvGeometry& geometry)
      : geometry_(geometry), reads_all_(geometry.input == geometry.output) {}
  int64_t groups() const override { return geometry_.groups; }
  InputRows Stage(const ConvInput& input, int64_t /*group*/, int64_t /*row_begin*/, int64_t /*row_end*/,
                  uint8_t* /*to*/) const noexcept override {
    if (reads_all_) return RowMap(input.a, input.stride);
    return LinesOf(geometry_, input);
  }
  /// The first pixel of each output pixel without padding, line by line.
  static RowMap LinesOf(const ConvGeometry& geometry, const ConvInput& input) {
    const auto& [depth, height, width] = geometry.stride;
    RowMap map(input.a, width * input.stride);
    map.line_rows = geometry.output[kWidth];
    map.line_stride = height * geometry.input[kWidth] * input.stride;
    map.plane_lines = geometry.output[kHeight];
    map.plane_stride = depth * geometry.input[kHeight] * geometry.input[kWidth] * input.stride;
    return map;
  }

 private:
  ConvGeometry geometry_;
  bool reads_all_;  // a pixel of the output for each pixel of the input
};

class BandSource final : public InputSource {
 public:
  /// The band holds the channels of `groups` groups, `group_inputs` channels each.
  BandSource(Band band, int64_t groups, int64_t group_inputs)
      : band_(std::move(band)), groups_(groups), group_inputs_(group_inputs) {}
  int64_t max_rows() const override { return band_.max_rows(); }
  int64_t EndFrom(int64_t row, int64_t row_end) const override { return band_.EndFrom(row, row_end); }
  int64_t Bytes(int64_t planes) const override { return band_.Bytes(planes); }
  int64_t groups() const override { return groups_; }
  InputRows Stage(const ConvInput& input, int64_t group, int64_t row_begin, int64_t row_end,
                  uint8_t* to) const noexcept override {
    return band_.Stage(input, group * group_inputs_, row_begin, row_end, to);
  }

 private:
  Band band_;
  int64_t groups_, group_inputs_;
};

/// Windows, copied from a band. A window holds the channels of a group that the taps of an output pixel read,
/// in the order (depth, height, width, channel) and without gaps. So pairs of adjacent depths cross taps.
class WindowSource final : public InputSource {
 public:
  /// `band` holds the channels of one group. Windows are `window_bytes` apart, a multiple of a quad. If the
  /// taps do not fill the last quad, it ends with padding.
  WindowSource(const ConvGeometry& geometry, const Band& band, int64_t window_bytes);
  int64_t max_rows() const override { return max_rows_; }
  int64_t EndFrom(int64_t row, int64_t row_end) const override {
    return band_.EndFrom(row, std::min(row_end, row + max_rows_));
  }
  int64_t Bytes(int64_t planes) const override {
    return WindowsBytes(planes * plane_rows_) + band_.Bytes(planes);
  }
  int64_t groups() const override { return 1; }
  InputRows Stage(const ConvInput& input, int64_t group, int64_t row_begin, int64_t row_end,
                  uint8_t* to) const noexcept override;

 private:
  /// Bytes of the windows of `rows` rows, plus what copies of whole vectors write beyond them.
  int64_t WindowsBytes(int64_t rows) const {
    return RoundUp(std::min(rows, max_rows_) * window_bytes_ + kCopyBytes, 64);
  }
  static constexpr int64_t kCopyBytes = 32;

  Band band_;
  int64_t group_inputs_;
  int64_t window_bytes_;
  std::vector<int64_t> run_offsets_;  // in the band, from a pixel's first tap to each run of adjacent taps
  int64_t run_bytes_;
  int64_t plane_rows_, max_rows_;
};

class PlanarSource final : public InputSource {
 public:
  explicit PlanarSource(PlanarBand band) : band_(std::move(band)) {}
  int64_t max_rows() const override { return band_.max_rows(); }
  int64_t EndFrom(int64_t row, int64_t row_end) const override { return band_.EndFrom(row, row_end); }
  int64_t Bytes(int64_t /*planes*/) const override { return band_.bytes(); }
  int64_t groups() const override { return band_.groups(); }
  InputRows Stage(const ConvInput& input, int64_t group, int64_t row_begin, int64_t row_end,
                  uint8_t* to) const noexcept override {
    return band_.Stage(input, group, row_begin, row_end, to);
  }

 private:
  PlanarBand band_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_STAGING_INPUT_SOURCE_H_
