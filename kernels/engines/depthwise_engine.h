// Depthwise convolution: each channel with a filter of its own, a row of adjacent output pixels at a time.
//
// The caller stages the input as a *band*: u8 (s8 shifted by +128), padding in place, so that every tap of
// every output pixel is there to read. A pixel of it holds the n output channels, densely, and tap t of
// output pixel x of a row lies at
//
//   pixel0 + x·pixel_stride_bytes + TapGrid::Offset(t) + channel
//
// A kernel computes a vector of V channels. How vectors cover a row is a *cover*:
//
//   by channels, n ≥ V:             |....V....|....V....|      vectors of each pixel; the last one ends with
//                                           |....V....|        the pixel and computes some channels again
//
//   flat, where adjacent pixels     |p0 |p1 |p2 |p3 |p4 |p5 |  the row is one line of channels that repeat
//   are adjacent in the band        |....V....|....V....|      after n; vectors of the line repeat after
//   and in the output:              |<-  lcm(n, V)    ->|      lcm(n, V), which is a kernel's pixel
//
// The flat cover wastes no lanes where n is no multiple of V, but neighbours share fewer places. It needs the
// pixel stride of stride 1: a band of stride s is flat too if it is staged in s phases of columns, each of
// them adjacent. Where neither fits, pixels go through scratch.
//
// Portable plans (portable_engine.h) have no kernel and no cover: compiled code takes a pixel at a time.
#ifndef INTACT_KERNELS_ENGINES_DEPTHWISE_ENGINE_H_
#define INTACT_KERNELS_ENGINES_DEPTHWISE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/depthwise_kernel.h"
#include "kernels/engines/engine.h"

namespace intact::kernels {

/// A run's own constants of columns, also as kernels read them.
struct DepthwiseColumns : RunColumns {
  const uint8_t* covers = nullptr;  // DepthwiseEngine::Cover::records and factors, cover by cover
};

/// Adjacent output pixels of a row.
struct DepthwiseRow {
  const uint8_t* pixel0 = nullptr;  // the first one's first tap
  int64_t pixels = 0;
  OutputMap output;                           // a row for each pixel
  const DepthwiseColumns* columns = nullptr;  // null: the plan's
};

class DepthwiseEngine {
 public:
  /// `data.n` channels and `data.k` = taps.taps() depths; `data` outlives the engine. Pixels of the band are
  /// data.n bytes. CODEGEN_FAILED names the kernel.
  static Result<std::unique_ptr<DepthwiseEngine>> Create(const KernelData& data, const TapGrid& taps,
                                                         core::Isa isa);

  /// Bytes beyond the last tap of a band that may be read.
  static constexpr int64_t kSlackBytes = 64;

  std::string KernelName() const { return kernel_name_; }
  /// Channels of a vector.
  int64_t channel_step() const { return v_; }
  int64_t packed_bytes() const;

  /// Scratch for a run's own constants of columns beside those of KernelData, a multiple of 64.
  int64_t RunColumnBytes() const {
    return data_.HasRunColumns() ? RunBytes(by_channels_) + RunBytes(flat_) : 0;
  }
  /// Makes them of KernelData's at `to`, aligned to 64 bytes.
  DepthwiseColumns MakeRunColumns(const RunColumns& columns, uint8_t* to) const noexcept;

  /// Whether RunRow() reads nothing beyond the taps of its pixels, for rows of `pixels` or more: otherwise
  /// kSlackBytes after them too.
  bool ReadsOnlyTaps(int64_t pixels, int64_t c_stride_bytes) const {
    return !by_channels_.kernel || data_.n >= v_ || RunsFlat(pixels, c_stride_bytes);
  }

  /// Writes elements [channel_begin, channel_end) of each pixel, and reads those of the residual.
  /// `channel_begin` is a multiple of channel_step(), and `channel_end` too, or data.n. Reads of the band
  /// what these channels need, and before them in the band where the last vector is ragged.
  void RunRow(const DepthwiseRow& row, int64_t channel_begin, int64_t channel_end) const noexcept;

 private:
  /// Vectors of channels, each with its record and, for outputs that are scaled, its factors and addends.
  struct Cover {
    DepthwiseKernelFunction kernel;
    std::vector<int64_t> starts;  // where vectors begin in the line of channels
    int64_t step_pixels = 1;      // the kernel's pixel, in pixels
    std::vector<int64_t> taps;    // where a kernel that loops reads; whole groups
    std::vector<int64_t> places;  // where the kernel's places lie, and from a block of pixels to the next
    int64_t block_stride_bytes = 0;
    int64_t record_bytes = 0;
    AlignedBuffer<uint8_t> records;
    AlignedBuffer<uint32_t> factors, addends;  // of EpilogueArgs
  };

  /// Of a run's own records and factors of a cover: whole cache lines each.
  static int64_t RecordBytes(const Cover& cover) { return static_cast<int64_t>(cover.records.bytes()); }
  static int64_t RunBytes(const Cover& cover) {
    return RecordBytes(cover) + static_cast<int64_t>(cover.factors.bytes());
  }
  /// Copies column values of 4 bytes, `from`, to where the vectors of `cover` read them.
  void Arrange(const void* from, const Cover& cover, uint8_t* to) const noexcept;
  /// Writes the accumulators' start of each channel of a vector's record.
  void SetCompensation(const int32_t* compensation, int64_t start, uint8_t* record) const noexcept;

  /// What compiled code reads.
  struct Portable {
    std::vector<int64_t> offsets;  // of taps, in bytes
    std::vector<int16_t> weights;  // [tap][channel], less their zero points
  };

  DepthwiseEngine(const KernelData& data, const TapGrid& taps, core::Isa isa);
  void MakePortable();
  void RunPortably(const DepthwiseRow& row, int64_t channel_begin, int64_t channel_end) const noexcept;
  bool RunsFlat(int64_t pixels, int64_t c_stride_bytes) const {
    return flat_.kernel && c_stride_bytes == data_.n * data_.element_bytes() && pixels * data_.n >= v_;
  }
  /// The kernel's pixel of the flat cover, in pixels.
  int64_t step_pixels() const;
  TapGrid FlatTaps() const;
  DepthwiseKernelSpec SpecFor(const TapGrid& taps) const;
  bool IsFlatBetter() const;
  Error Make(const TapGrid& taps, Cover* cover);
  /// The tap that each place of a group is multiplied with; −1: weight 0.
  using GroupWeights = std::vector<std::vector<int>>;
  bool Loops() const;
  GroupWeights WeightsInOrder() const;
  Error Fill(const GroupWeights& weights, Cover* cover) const;
  void FillRecord(const GroupWeights& weights, int64_t start, uint8_t* record) const;
  int32_t Weight(int64_t tap, int64_t channel) const;
  int64_t ChannelAt(int64_t start, int64_t i) const { return (start + i) % data_.n; }

  /// What is left of `row` from a pixel and a channel on.
  DepthwiseRow From(const DepthwiseRow& row, int64_t pixel, int64_t channel) const;
  /// A vector of `cover`, whose channels and pixels `row` holds.
  void RunVector(const Cover& cover, size_t vector, const DepthwiseRow& row) const noexcept;
  void RunByChannels(const DepthwiseRow& row, int64_t channel_begin, int64_t channel_end) const noexcept;
  void RunFlat(const DepthwiseRow& row) const noexcept;
  /// A vector of by_channels_, of which channels before `done` are not written.
  void RunThroughScratch(size_t vector, int64_t done, const DepthwiseRow& row) const noexcept;

  const KernelData& data_;
  TapGrid taps_;
  DepthwiseKernelSpec spec_;  // of by_channels_
  int64_t v_;                 // channels of a vector
  Cover by_channels_;
  Cover flat_;         // without a kernel where it is not wanted; the last vector ends a row
  Portable portable_;  // empty where there are kernels
  std::string kernel_name_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_DEPTHWISE_ENGINE_H_
