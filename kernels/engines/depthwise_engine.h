// Depthwise convolution: each channel has its own filter. A call computes a row of adjacent output pixels.
//
// The caller stages the input as a *band*: u8 (s8 shifted by +128), with padding in place, so that every tap
// of every output pixel can be read. A pixel of the band holds the n output channels, densely. Tap t of
// output pixel x of a row lies at
//
//   pixel0 + x·pixel_stride_bytes + TapGrid::Offset(t) + channel
//
// A kernel computes a vector of V channels. How vectors cover a row is a *cover*:
//
//   by channels, n ≥ V:             |....V....|....V....|      vectors of each pixel; the last one ends with
//                                           |....V....|        the pixel and computes some channels again
//
//   flat:                           |p0 |p1 |p2 |p3 |p4 |p5 |  the row is one line of channels that repeat
//                                   |....V....|....V....|      after n; the vectors repeat after lcm(n, V)
//                                   |<-  lcm(n, V)    ->|      channels, which the kernel treats as a pixel
//
// The flat cover wastes no lanes if n is no multiple of V, but neighbouring pixels share fewer inputs. A row
// of all channels is computed flat in two cases:
//   - its pixels are adjacent in the band and in the output. The outputs are stored in place. Exception: a
//     row of fewer than V elements is copied from scratch;
//   - the distance to the next pixel is at most V. Pixels in between are computed too, and dropped: the outputs
//     are copied from scratch.
// Other rows are computed by channels. If n < V, each of their pixels goes through scratch.
//
// Portable plans (portable_engine.h) have no kernel and no cover: compiled code computes pixel by pixel.
#ifndef INTACT_KERNELS_ENGINES_DEPTHWISE_ENGINE_H_
#define INTACT_KERNELS_ENGINES_DEPTHWISE_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/depthwise_kernel.h"
#include "kernels/engines/engine.h"

namespace intact::kernels {

/// A run's own constants of columns, and a copy that is arranged for kernels.
struct DepthwiseColumns : PerRunColumnConstants {
  const uint8_t* covers = nullptr;  // DepthwiseEngine::Cover::records and factors, cover by cover
};

/// Adjacent output pixels of a row.
struct DepthwiseRow {
  const uint8_t* pixel0 = nullptr;  // first tap of the first pixel
  int64_t pixels = 0;
  OutputMap output;                           // a row for each pixel
  const DepthwiseColumns* columns = nullptr;  // null: the constants of the plan
};

class DepthwiseEngine {
 public:
  /// `data.n` channels and `data.k` = taps.taps() depths; `data` must outlive the engine. Pixels of the band
  /// have data.n bytes. `row_pixels`: the pixels of most rows, which are then the fastest; 0: not known. A
  /// CODEGEN_FAILED error names the kernel.
  static Result<std::unique_ptr<DepthwiseEngine>> Create(const KernelData& data, const TapGrid& taps,
                                                         core::Isa isa, int64_t row_pixels);

  /// The number of bytes beyond a band's last tap that may be read.
  static constexpr int64_t kSlackBytes = 64;

  const TapGrid& taps() const { return taps_; }
  std::string KernelName() const;
  /// The number of channels of a vector.
  int64_t channel_step() const { return v_; }
  int64_t packed_bytes() const;

  /// Bytes of scratch for a run's arranged constants, in addition to KernelData::RunColumnBytes(); a multiple
  /// of 64.
  int64_t RunColumnBytes() const {
    return data_.HasPerRunColumnConstants() ? RunBytes(by_channels_) + RunBytes(flat_) : 0;
  }
  /// Arranges `columns`, the result of KernelData::MakePerRunColumnConstants(), for kernels. The arranged copy lies at
  /// `to`, aligned to 64 bytes.
  DepthwiseColumns MakePerRunColumnConstants(const PerRunColumnConstants& columns,
                                             uint8_t* to) const noexcept;

  /// Whether RunRow() reads only the taps of its pixels, if a row has at least `pixels` pixels and all
  /// channels are computed. Otherwise RunRow() may also read bytes between the taps, and kSlackBytes behind them.
  bool ReadsOnlyTaps(int64_t pixels) const {
    const bool is_adjacent = flat_.kernel && taps_.pixel_stride_bytes == data_.n;
    return IsPortable() || data_.n >= v_ || (is_adjacent && pixels * data_.n >= v_);
  }

  /// Writes elements [channel_begin, channel_end) of each pixel, and reads these elements of the residual and
  /// of the band. The bounds are multiples of channel_step(); `channel_end` may also be data.n. The vector
  /// that ends with the last channel may also read channels of the band before `channel_begin`.
  void RunRow(const DepthwiseRow& row, int64_t channel_begin, int64_t channel_end) const noexcept;

 private:
  /// Vectors of channels. Each has a record (its compensation and weights: see depthwise_kernel.h) and, if
  /// outputs are scaled, factors and addends.
  struct Cover {
    DepthwiseKernelFunction kernel;
    int64_t block_pixels = 1;        // a power of two
    std::array<jit::Code, 4> tails;  // [pixels]; null: not made
    std::vector<int64_t> starts;     // where each vector begins in the line of channels
    int64_t step_pixels = 1;         // pixels that the kernel treats as one
    std::vector<int64_t> taps;       // offsets for a kernel that loops, padded to whole groups
    std::vector<int64_t> places;     // offset of each input of a block; with a loop over taps, of each pixel
    int64_t pixel_stride_bytes = 0, block_stride_bytes = 0;  // from a pixel or block to the next
    int64_t record_bytes = 0;
    AlignedBuffer<uint8_t> records;
    AlignedBuffer<uint32_t> factors, addends;  // for EpilogueArgs
  };

  /// Bytes of the records of `cover`, a multiple of 64.
  static int64_t RecordBytes(const Cover& cover) { return static_cast<int64_t>(cover.records.bytes()); }
  /// Bytes of a run's own records and factors for `cover`, a multiple of 64.
  static int64_t RunBytes(const Cover& cover) {
    return RecordBytes(cover) + static_cast<int64_t>(cover.factors.bytes());
  }
  /// Copies 4-byte column values from `from` to `to`, in the order in which the vectors of `cover` read them.
  void Arrange(const void* from, const Cover& cover, uint8_t* to) const noexcept;
  void CopyVector(const void* from, int64_t start, bool is_quartered, uint8_t* to) const noexcept;

  /// The taps and weights that compiled code reads.
  struct Portable {
    std::vector<int64_t> offsets;  // offsets of taps, in bytes
    std::vector<int16_t> weights;  // [tap][channel], zero points subtracted
  };

  static constexpr int64_t kLineElements = 1024;

  DepthwiseEngine(const KernelData& data, const TapGrid& taps, core::Isa isa, int64_t row_pixels);
  void MakePortable();
  bool IsPortable() const { return !portable_.offsets.empty(); }
  void RunPortably(const DepthwiseRow& row, int64_t channel_begin, int64_t channel_end) const noexcept;
  /// Pixels that the flat cover's kernel treats as one.
  int64_t step_pixels() const;
  TapGrid FlatTaps() const;
  DepthwiseKernelSpec FlatSpec() const;
  /// Pixels of the flat cover's kernel from element `start` on, in a line of `elements`.
  int64_t FlatPixels(int64_t start, int64_t elements) const {
    return Quotient(elements - start - v_, flat_.step_pixels * data_.n) + 1;
  }
  DepthwiseKernelSpec SpecFor(const TapGrid& taps, int pixels) const;
  const DepthwiseInterleaving& InterleavingOf(const DepthwiseKernelSpec& spec);
  bool IsFlatBetter();
  /// Whether all rows run flat if flat is better. Then n < V, so that rows are not cut at channels.
  bool RunsAllFlat() const { return taps_.pixel_stride_bytes <= v_; }
  Error Make(const DepthwiseKernelSpec& spec, const TapGrid& taps, Cover* cover);
  Error MakeTails(const DepthwiseKernelSpec& spec, Cover* cover) const;
  /// The numbers of pixels that RunVector() computes of most rows; empty: not known.
  std::vector<int64_t> UsualPixels(const Cover& cover) const;
  /// [group of interleaved inputs][input]: the index of the tap whose weight multiplies the input. −1: the
  /// weight is 0.
  using GroupWeights = std::vector<std::vector<int>>;
  bool Loops() const;
  GroupWeights WeightsInOrder() const;
  Error Fill(const GroupWeights& weights, Cover* cover) const;
  /// `columns`: the weights of each channel, tap after tap.
  void FillRecord(const GroupWeights& weights, const int8_t* columns, int64_t start, uint8_t* record) const;
  int32_t Weight(int64_t tap, int64_t channel) const;
  int64_t ChannelAt(int64_t start, int64_t i) const { return (start + i) % data_.n; }

  /// The part of `row` from a pixel and a channel on.
  DepthwiseRow From(const DepthwiseRow& row, int64_t pixel, int64_t channel) const;
  /// Computes a vector of `cover` for all pixels of `row`. `row` begins at the vector's first channel.
  void RunVector(const Cover& cover, size_t vector, const DepthwiseRow& row) const noexcept;
  void RunByChannels(const DepthwiseRow& row, int64_t channel_begin, int64_t channel_end) const noexcept;
  bool RunsFlat(const DepthwiseRow& row) const;
  void RunFlat(const DepthwiseRow& row) const noexcept;
  void RunLine(const DepthwiseRow& row, int64_t elements) const noexcept;
  /// Computes a vector of by_channels_, without writing the channels before `done`.
  void RunThroughScratch(size_t vector, int64_t done, const DepthwiseRow& row) const noexcept;

  const KernelData& data_;
  TapGrid taps_;
  int64_t row_pixels_;        // of most rows; 0: not known
  DepthwiseKernelSpec spec_;  // the kernel of by_channels_
  int64_t v_;                 // number of channels of a vector, a power of two
  // The pixels of a line of scratch, for a cover of pixels with gaps, and the fewest that fill a vector.
  int64_t line_pixels_, least_line_pixels_;
  Cover by_channels_;  // without a kernel if all rows run flat
  Cover flat_;  // without a kernel if by_channels_ is better. The last vector ends with a row's last pixel.
  std::vector<std::shared_ptr<const DepthwiseInterleaving>> interleavings_;  // shared with other engines
  Portable portable_;  // empty unless the plan is portable
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_DEPTHWISE_ENGINE_H_
