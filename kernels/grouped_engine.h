// Exact GEMM before VNNI, and convolution of few channels a group on every ISA, from scheduled weights
// (schedule.h): rows of A fill the vectors' lanes, weights are broadcast.
//
//   RunRange ─► blocks of rows (A packed) ─► chunks of panels (their schedule in half of L2) ─► register
//   blocks of rows ─► windows of depth (A in L1) ─► panels: one grouped kernel call each, into int32
//   accumulators of the chunk ─► tile epilogue
//
// A convolution's rows may come from a planar band instead (Taps::planar): then nothing is packed, register
// blocks are made of its positions, and those between two lines are dropped when C is stored.
#ifndef INTACT_KERNELS_GROUPED_ENGINE_H_
#define INTACT_KERNELS_GROUPED_ENGINE_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/engine.h"
#include "kernels/grouped_kernel.h"
#include "kernels/schedule.h"
#include "kernels/tile_epilogue.h"

namespace intact::kernels {

class GroupedEngine final : public Engine {
 public:
  /// Schedules the weights for activations in [0, amax], with the strip width that the cost model finds
  /// cheaper. Rows that hold a larger activation are left to `fallback`; without one the caller guarantees
  /// that there are none. `data` outlives the engine.
  static Result<std::unique_ptr<GroupedEngine>> Create(const GemmData& data, jit::Isa isa, int amax,
                                                       std::unique_ptr<GroupedEngine> fallback);

  int mr() const override { return rows_; }
  int nr() const override { return kPanelColumns; }
  std::string KernelName() const override { return kernel_name_; }
  double Cost(int64_t m) const override;
  int64_t packed_bytes() const override {
    return schedule_.bytes() + (fallback_ == nullptr ? 0 : fallback_->packed_bytes());
  }
  int64_t WholeRows(int64_t m) const override { return m / lanes_ * lanes_; }
  int64_t ScratchBytes(int64_t rows) const override;
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;

  const ScheduleStatistics& statistics() const { return schedule_.statistics(); }

 private:
  GroupedEngine(const GemmData& data, jit::Isa isa, int amax, std::unique_ptr<GroupedEngine> fallback);
  Error Schedule();
  Error GenerateKernels();
  uint8_t Pack(RowCursor* cursor, int64_t rows, uint8_t* panel) const noexcept;
  /// The range is within one band.
  void RunPlanar(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept;
  /// Stores those of `positions` positions from `position` on that are rows of `range`.
  void StorePositions(const RunBuffers& buffers, const Range& range, int64_t position, int64_t positions,
                      const int32_t* accumulators, uint8_t* scratch_tile) const noexcept;
  void StoreTiles(const RunBuffers& buffers, const Range& range, std::span<const int64_t> rows,
                  const int32_t* accumulators, uint8_t* scratch_tile) const noexcept;
  void GatherResidual(const RunBuffers& buffers, std::span<const int64_t> rows, int64_t column,
                      int64_t columns, uint8_t* to, EpilogueArgs* args) const noexcept;
  void RunBlock(const RunBuffers& buffers, const Range& range, const uint8_t* panels,
                uint8_t* scratch) const noexcept;
  int64_t RowsPerBlock() const;
  int64_t PanelsPerChunk() const;
  /// Panels whose accumulators are in memory at a time: a chunk's, if they wait for further windows.
  int64_t PanelsAtOnce() const { return schedule_.windows() == 1 ? 1 : PanelsPerChunk(); }
  int64_t AccumulatorBytes() const { return PanelsAtOnce() * kPanelColumns * rows_ * 4; }
  int64_t TileBytes() const { return int64_t{4} * lanes_ * lanes_; }
  /// Scratch for an edge within a vector: C's tile, and the residual's behind it.
  int64_t EdgeBytes() const { return TileBytes() * (data_.epilogue.has_residual() ? 2 : 1); }
  void Accumulate(const uint8_t* a, int64_t vectors, int64_t panel_begin, int64_t panel_end,
                  int32_t* accumulators) const noexcept;
  void Store(const RunBuffers& buffers, const Range& range, const int32_t* accumulators,
             uint8_t* scratch_tile) const noexcept;

  const GemmData& data_;
  jit::Isa isa_;
  int amax_;
  std::unique_ptr<GroupedEngine> fallback_;
  int lanes_;
  int block_vectors_ = 0, rows_ = 0;
  double row_cost_ = 0;  // of a full block, see Cost()
  ScheduledWeights schedule_;
  std::string kernel_name_;
  std::vector<GroupedKernelFunction> kernels_;  // [vectors − 1]
  TileEpilogueFunction epilogue_ = nullptr;
  TileEpilogueFunction streaming_epilogue_ = nullptr;  // where a row of a tile is a whole cache line of C
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_GROUPED_ENGINE_H_
