// GEMM on AMX tiles (amx_kernel.h), from the canonical B panels and from the caller's A.
//
//   RunRange ─► chunks of panels (in half of L2) ─► chunks of rows ─► depth blocks ─► blocks of row tiles
//            (A in L1) ─► blocks of 2×2 tiles: one kernel call each, which also stores the previous block.
//            Shallow blocks whose sums are C's elements: one call for adjacent blocks, which stores them to C
//
// amx_blocking.h says how a range is cut into tiles and blocks, and which rows are staged.
//
// s8 activations and s8 weights are not shifted: AMX has an instruction for each combination of signs.
#ifndef INTACT_KERNELS_ENGINES_AMX_ENGINE_H_
#define INTACT_KERNELS_ENGINES_AMX_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/engines/amx_blocking.h"
#include "kernels/engines/engine.h"

namespace intact::kernels {

/// Copies depths [begin, end) of `rows` rows to rows of whole tiles. The padding may hold anything: B is zero
/// there.
void StageRows(RowCursor a, const Taps& taps, int64_t rows, int64_t begin, int64_t end, uint8_t* to);

class AmxEngine final : public Engine {
 public:
  /// `data` must outlive the engine.
  static Result<std::unique_ptr<Engine>> Create(const GemmData& data);

  EngineId id() const override { return {EngineId::Kind::kTiles}; }
  EngineTile tile() const override { return {kBlockRows, 2 * kPanelColumns, kPanelColumns, kTileRows}; }
  std::string KernelName() const override { return kernel_name_; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(compensation_.bytes()); }
  double Cost(int64_t m) const override;
  int64_t ScratchBytes(int64_t rows) const override;
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;

 private:
  class Region;  // the state of one RunRange()
  static constexpr int kBlockRows = 2 * kTileRows;

  explicit AmxEngine(const GemmData& data) : data_(data) {}
  Error GenerateKernels();
  const int32_t* compensation(const RunBuffers& buffers) const {
    return data_.UnshiftedCompensationOf(buffers, compensation_);
  }
  /// Whether C's elements are the kernels' sums.
  bool MakesSums() const {
    const EpilogueSpec& epilogue = data_.epilogue;
    return epilogue.c_type == INTACT_S32 && !epilogue.has_b_zero_points && !epilogue.has_row_zero_points;
  }
  /// Bytes of scratch for an edge within a panel.
  int64_t EdgeBytes() const;
  int64_t SegmentBytes() const;

  /// A function for each number of panels, and for C stored through the caches or past the caches.
  template <class Function>
  using PerPanels = std::array<std::array<Function, kMaxBlockTiles + 1>, 2>;

  const GemmData& data_;
  AlignedBuffer<int32_t> compensation_;  // see UnshiftCompensation()
  std::string kernel_name_;
  TileFunctions tile_functions_;
  std::array<PerPanels<AmxKernelFunction>, kMaxBlockTiles + 1> kernels_ = {};  // [row tiles][streams][panels]
  std::array<AmxKernelFunction, 2> staying_ =
      {};                                    // [streams], for AmxBlocking::b_stays; null without such blocks
  PerPanels<AmxStoreFunction> stores_ = {};  // [streams][panels]
  bool can_stream_ = false;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_AMX_ENGINE_H_
