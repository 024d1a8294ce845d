// Depthwise convolution of whole output lines, on the engines of depthwise_engine.h.
//
//   by band    lines above       ┌──────┬─────────┬──────┐
//   in place   …                 │ left │  inner  │ right│   inner: taps are read from the caller's input
//              …                 │ col. │         │ col. │   columns: from bands, a column at a time
//   by band    lines below       └──────┴─────────┴──────┘
//
// Copying the input to a band costs up to a third of the time of so few products, so where kernels can read
// the input itself only the pixels at the borders come from bands: in two dimensions, u8 input, no channel
// multiplier, adjacent pixels. Elsewhere all lines come from bands.
#ifndef INTACT_KERNELS_PLANS_DEPTHWISE_CONV_H_
#define INTACT_KERNELS_PLANS_DEPTHWISE_CONV_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/depthwise_engine.h"
#include "kernels/engines/engine.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/staging/band.h"

namespace intact::kernels {

class DepthwiseConv {
 public:
  /// `padding` and `flip` as for Band; `data` outlives it.
  static Result<std::unique_ptr<DepthwiseConv>> Create(const KernelData& data, const ConvGeometry& geometry,
                                                       uint8_t padding, uint8_t flip, core::Isa isa);

  std::string KernelName() const { return lines_.engine->KernelName(); }
  int64_t packed_bytes() const;
  /// Scratch that Run() needs, aligned to 64 bytes.
  int64_t ScratchBytes() const;
  /// Shares of C are cut between multiples of as many channels.
  int64_t channel_step() const { return lines_.engine->channel_step(); }
  /// Computes `range` of C: whole lines.
  void Run(const ConvInput& input, const OutputMap& output, const Range& range,
           uint8_t* scratch) const noexcept;
  /// What Run() of `range` takes, see Share::work: all pixels take the same.
  double Work(const Range& range) const;

 private:
  /// A band and the engine that reads it; without an engine there is nothing for it.
  struct Part {
    Band band;
    std::unique_ptr<DepthwiseEngine> engine;
  };
  /// Outputs [begin, end) of a dimension: none of their taps is padding.
  struct Inner {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };

  /// What a run's share computes from, and which channels.
  struct Call {
    const ConvInput& input;
    const OutputMap& output;
    int64_t channel_begin, channel_end;
    uint8_t* scratch;
  };

  DepthwiseConv(const KernelData& data, const ConvGeometry& geometry, uint8_t padding, uint8_t flip)
      : data_(data), geometry_(geometry), padding_(padding), flip_(flip) {}
  Inner InnerOf(Dimension dimension) const;
  TapGrid GridOf(const Band& band) const;
  Error MakeLines(core::Isa isa);
  Error MakeInner(core::Isa isa);
  /// Columns [begin, begin + count) of the output, whose pixels are those of a column.
  Error MakeColumns(int64_t begin, int64_t count, core::Isa isa, Part* part) const;
  bool CanReadInPlace(const ConvInput& input, const OutputMap& output) const;
  /// Pixels of C from (plane, line, x) on, `stride` rows apart.
  DepthwiseRow RowAt(const OutputMap& output, int64_t plane, int64_t line, int64_t x, int64_t stride) const;

  void RunLines(const Call& call, int64_t plane, const Inner& lines) const noexcept;
  void RunInner(const Call& call, int64_t plane, const Inner& lines) const noexcept;
  void RunColumns(const Part& part, int64_t begin, const Call& call, int64_t plane,
                  const Inner& lines) const noexcept;

  const KernelData& data_;
  ConvGeometry geometry_;
  uint8_t padding_, flip_;
  Part lines_;
  Inner inner_x_, inner_y_;
  std::unique_ptr<DepthwiseEngine> inner_;  // null: all lines come from lines_
  Part left_, right_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_DEPTHWISE_CONV_H_
