// Depthwise convolution of whole output lines, on the engines of depthwise_engine.h.
//
//   by band    lines above       ┌──────┬─────────┬──────┐
//   in place   …                 │ left │  inner  │ right│   inner: taps are read from the caller's input
//              …                 │ col. │         │ col. │   columns: from bands, a column at a time
//   by band    lines below       └──────┴─────────┴──────┘
//
// Products are few, so copying the input to a band takes up to a third of the time. Therefore kernels read
// the input itself if they can: two dimensions, u8 input, no channel multiplier, adjacent pixels. Then only
// pixels at the borders come from bands. Otherwise all lines come from bands.
#ifndef INTACT_KERNELS_PLANS_DEPTHWISE_CONV_H_
#define INTACT_KERNELS_PLANS_DEPTHWISE_CONV_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/depthwise_engine.h"
#include "kernels/engines/engine.h"
#include "kernels/plans/conv_kernels.h"
#include "kernels/plans/conv_layout.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/staging/band.h"

namespace intact::kernels {

class DepthwiseConv final : public ConvKernels {
 public:
  /// `layout` outlives the result.
  static Result<std::unique_ptr<ConvKernels>> Create(const ConvLayout& layout, const ConvGeometry& geometry);

  std::string KernelName() const override { return lines_.engine->KernelName(); }
  int64_t packed_bytes() const override;
  int64_t LeastChunkRows() const override { return geometry_.output[kWidth]; }
  void Decide(const EngineChoice& choice, ConvRun* run) const override;
  /// All pixels cost the same.
  double RowsCost(const ConvRun& /*run*/, int64_t rows) const override { return static_cast<double>(rows); }
  int64_t RunColumnBytes() const override;
  const PerRunColumnConstants* MakePerRunColumnConstants(const RowQuantization& a,
                                                         uint8_t* to) const override;
  /// `chunk`: whole lines.
  void Run(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run, const Range& chunk,
           uint8_t* scratch) const override;
  /// Binds a chunk of one line that comes from a band.
  std::unique_ptr<BoundCalls> Bind(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run,
                                   const Range& chunk, uint8_t* scratch) const override;

 private:
  class BoundLine;
  /// A band and the engine that reads it. The engine is null if no pixels need the band.
  struct Part {
    Band band;
    std::shared_ptr<const DepthwiseEngine> engine;
  };
  /// Outputs [begin, end) of a dimension that have no padding among their taps.
  struct Inner {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };

  /// The operands of one Run(), and the channels of its chunk.
  struct Call {
    const ConvInput& input;
    const OutputMap& output;
    int64_t channel_begin, channel_end;
    uint8_t* scratch;
    const DepthwiseColumns* columns;  // [engine of Engines()]; null: the plan's columns
  };

  DepthwiseConv(const ConvLayout& layout, const ConvGeometry& geometry)
      : layout_(layout), data_(layout.weights(0), layout.isa(), false), geometry_(geometry) {}
  /// A band of the layout's input.
  Band BandOf(const ConvGeometry& geometry, const BandChannels& channels) const {
    return Band(geometry, channels, layout_.problem().a_shift());
  }
  /// All engines; null for engines that do not exist.
  static constexpr size_t kEngines = 4;
  enum Engine : uint8_t { kLines, kInner, kLeft, kRight };
  std::array<const DepthwiseEngine*, kEngines> Engines() const {
    return {lines_.engine.get(), inner_.get(), left_.engine.get(), right_.engine.get()};
  }
  /// Runs engine `which` with its entry of call.columns.
  void RunEngine(Engine which, const Call& call, DepthwiseRow row) const noexcept;
  Inner InnerOf(Dimension dimension) const;
  TapGrid GridOf(const Band& band) const;
  Error MakeLines();
  bool ReadsInPlace() const;
  Error MakeInner();
  /// Makes left_ or right_ for columns [begin, begin + count) of the output. The part's engine runs down a column.
  Error MakeColumns(int64_t begin, int64_t count, Part* part);
  bool IsInPlace(const ConvInput& input) const { return inner_ != nullptr && input.stride == data_.n; }
  /// Pixels of C from (plane, line, x) on, `stride` rows of C apart.
  DepthwiseRow RowAt(const OutputMap& output, int64_t plane, int64_t line, int64_t x, int64_t stride) const;

  void RunLines(const Call& call, int64_t plane, const Inner& lines) const noexcept;
  void RunInner(const Call& call, int64_t plane, const Inner& lines) const noexcept;
  /// `which`: kLeft or kRight.
  void RunEdgeColumns(Engine which, const Part& part, int64_t begin, const Call& call, int64_t plane,
                      const Inner& lines) const noexcept;

  /// Scratch that Run() needs.
  int64_t ScratchBytes(int64_t planes) const;

  const ConvLayout& layout_;
  KernelData data_;
  ConvGeometry geometry_;
  Part lines_;
  Inner inner_x_, inner_y_;
  std::unique_ptr<DepthwiseEngine> inner_;  // null: all lines come from lines_
  Part left_, right_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_DEPTHWISE_CONV_H_
