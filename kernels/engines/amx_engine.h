// GEMM on AMX tiles (amx_kernel.h), from the canonical B panels and from A as the caller holds it.
//
//   RunRange ─► chunks of panels (in half of L2) ─► blocks of row tiles ─► depth blocks (A in L1)
//            ─► blocks of 2×2 tiles: one kernel call each, which also stores the block before it
//
// All row tiles of a range have the same number of rows, so that tiles are configured once. Rows seldom
// divide by it: the last tile of a line begins earlier then and computes some rows again, which the tile
// before it has too.
//
//   a line of 20 rows     tile 0  rows 0 to 9     a line of 25    tile 0  rows  0 to 12
//                         tile 1  rows 10 to 19                   tile 1  rows 12 to 24, row 12 again
//
// A line is what one stride leads through: all rows of a GEMM, or a line of output pixels. Tiles are loaded
// from it in place, a convolution's from its band or its input, one tap after the other.
//
// A is staged, that is copied into rows that follow each other, only where that does not work or not pay: the
// last depths of a row, if they are no whole tile (a load would read beyond the row); all of it where a
// block's rows at the caller's stride do not fit in L1 together, or would displace each other; where lines
// are much shorter than tiles, or taps are no whole tiles, see ReadsLinesInPlace().
//
// If A's block outgrows L1, the depth is cut into blocks, and the sums of all but the last wait in scratch.
//
// s8 activations and s8 weights are multiplied as they are, by the instruction for their signs: no shift.
#ifndef INTACT_KERNELS_ENGINES_AMX_ENGINE_H_
#define INTACT_KERNELS_ENGINES_AMX_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/engines/engine.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {

/// The rows of A that a rectangle of C needs.
struct AmxRows {
  int64_t count = 0;
  int64_t stride = 0;  // bytes between rows of a line
  int64_t line = 0;    // rows of a line
};

/// How a rectangle of C is cut.
struct AmxBlocking {
  int64_t tile_rows = 0;     // 1 to 16, and no more than the count or a line
  int64_t row_tiles = 0;     // of a block: 1, 2 or 4; what is no such block goes by 2, then by 1
  int64_t depth = 0;         // of a depth block, a multiple of 64; at least k if there is one only
  bool stages_a = false;     // all of it, not the end of rows alone; then all rows are one line
  int64_t chunk_panels = 0;  // panels of B that stay in L2
  bool a_stays = false;      // A stays in L2 and B streams: the next chunk of B is prefetched, else of A
};

AmxBlocking ChooseAmxBlocking(const AmxRows& rows, int64_t panels, const Taps& taps,
                              const CacheSizes& caches);

/// Whether loading tiles from lines of `line` rows in place, tap by tap, beats staging them, by an estimate.
/// With several taps, reading in place needs taps of whole tiles: they are estimated as if padded to that,
/// the staged ones not.
bool ReadsLinesInPlace(int64_t line, int64_t panels, int64_t tap_count, int64_t tap_depth);
/// The value of Taps::stages_tiles for a convolution with lines of `line` rows.
bool StagesLines(int64_t line, int64_t panels, const Taps& taps);

class AmxEngine final : public Engine {
 public:
  /// `data` outlives the engine.
  static Result<std::unique_ptr<Engine>> Create(const GemmData& data);

  EngineId id() const override { return {EngineId::Kind::kTiles}; }
  EngineTile tile() const override { return {kBlockRows, 2 * kPanelColumns, kPanelColumns, kTileRows}; }
  std::string KernelName() const override { return kernel_name_; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(compensation_.bytes()); }
  double Cost(int64_t m) const override;
  int64_t ScratchBytes(int64_t rows) const override;
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;

 private:
  class Region;  // one RunRange()
  static constexpr int kBlockRows = 2 * kTileRows;

  explicit AmxEngine(const GemmData& data) : data_(data) {}
  Error GenerateKernels();
  const int32_t* compensation(const RunBuffers& buffers) const {
    return data_.UnshiftedCompensationOf(buffers, compensation_);
  }
  /// Blocks of sums that may wait for their next depths at a time.
  int64_t MaxBlocks() const;
  /// Scratch for an edge within a panel.
  int64_t EdgeBytes() const;
  int64_t SegmentBytes() const;

  /// For a number of panels, and for C stored through the caches or past them.
  template <class Function>
  using PerPanels = std::array<std::array<Function, kMaxBlockTiles + 1>, 2>;

  const GemmData& data_;
  AlignedBuffer<int32_t>
      compensation_;  // as KernelData::compensation, without the shift that s8 activations need elsewhere
  std::string kernel_name_;
  TileFunctions tile_functions_;
  std::array<PerPanels<AmxKernelFunction>, kMaxBlockTiles + 1> kernels_ = {};  // [row tiles][streams][panels]
  PerPanels<AmxStoreFunction> stores_ = {};                                    // [streams][panels]
  bool can_stream_ = false;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_AMX_ENGINE_H_
