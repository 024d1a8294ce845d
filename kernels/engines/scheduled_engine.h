// Exact GEMM before VNNI, and convolution of few channels a group on every ISA, from scheduled weights
// (schedule.h): rows of A fill the vectors' lanes, weights are broadcast.
//
//   RunRange ─► blocks of rows (A packed) ─► chunks of panels (their schedule in half of L2) ─► tiles of
//   rows: register blocks side by side ─► windows of depth (A in L1) ─► panels: one scheduled kernel call
//   each, into int32 accumulators of the chunk ─► tile epilogue
//
// Where the depth is small a tile has several register blocks: what the ends of a strip's loops are is then
// predicted from the second block on.
//
// A convolution's rows may come from a planar band instead (PlanarAccess): then nothing is packed, register
// blocks are made of its positions, and those between two lines are dropped when C is stored. All panels of a
// tile of positions are computed one after the other, while its lines of C are in L1.
#ifndef INTACT_KERNELS_ENGINES_SCHEDULED_ENGINE_H_
#define INTACT_KERNELS_ENGINES_SCHEDULED_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/scheduled_kernel.h"
#include "kernels/codegen/tile_epilogue.h"
#include "kernels/engines/cost_constants.h"
#include "kernels/engines/engine.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

class ScheduledEngine final : public Engine {
 public:
  /// Chooses the strip width that the cost model finds cheaper for the declared range; or that of `like`, an
  /// engine of the same weights for other extents of a convolution's input. Until it is built the engine
  /// tells its cost alone. `data` outlives the engine, and so does `like` until it is built.
  static Result<std::unique_ptr<ScheduledEngine>> Create(const GemmData& data, core::Isa isa,
                                                         const ScheduledEngine* like);

  /// Schedules the weights, or takes the schedule of `like`. Once.
  Error Build();

  int mr() const override { return tile_rows_; }
  int nr() const override { return kPanelColumns; }
  int row_step() const override { return lanes_; }
  int least_row_step() const override { return data_.IsPlanar() ? 0 : 1; }
  int column_step() const override { return schedule_->spec().strip_columns; }
  std::string KernelName() const override { return kernel_name_; }
  bool ReadsPanels() const override { return false; }
  static constexpr std::string_view kKind = "scheduled";
  std::string KindName() const override { return std::string(kKind); }
  double Cost(int64_t m) const override;
  int64_t packed_bytes() const override {
    return schedule_->bytes() + (fallback_ == nullptr ? 0 : fallback_->packed_bytes());
  }
  int64_t WholeRows(int64_t m) const override { return m / lanes_ * lanes_; }
  int64_t ScratchBytes(int64_t rows) const override;
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;

  const ScheduleStatistics& statistics() const { return schedule_->statistics(); }
  const std::shared_ptr<const ScheduledWeights>& schedule() const { return schedule_; }

 private:
  ScheduledEngine(const GemmData& data, core::Isa isa, int amax, std::unique_ptr<ScheduledEngine> fallback);
  /// For activations in [0, amax]. Rows that hold a larger one are left to `fallback`; without one the caller
  /// guarantees that there are none.
  static Result<std::unique_ptr<ScheduledEngine>> CreateFor(const GemmData& data, core::Isa isa, int amax,
                                                            std::unique_ptr<ScheduledEngine> fallback,
                                                            const ScheduledEngine* like);
  int BlocksOf(const costs::StripForm& form) const;
  Error Choose();
  void ChooseLike(const ScheduledEngine& like);
  Error GenerateKernels();
  bool CanPair() const;
  uint8_t Pack(RowCursor* cursor, int64_t rows, uint8_t* panel) const noexcept;
  /// Whether `rows` rows that fill no block run twice in a vector, each for a column of its own.
  bool ArePaired(int64_t rows) const { return rows != 0 && paired_kernel_ && 2 * rows <= lanes_; }
  /// The range is within one band.
  void RunPlanar(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept;
  struct TileRows;
  class RowOf;
  /// The rows of C from `row` on.
  TileRows AdjacentRows(const RunBuffers& buffers, int64_t row, int64_t rows,
                        uint8_t* scratch) const noexcept;
  /// The rows of C at band positions [position, position + positions).
  TileRows RowsOfPositions(const RunBuffers& buffers, int64_t position, int64_t positions,
                           uint8_t* scratch) const noexcept;
  /// `range`: of columns.
  void Store(const RunBuffers& buffers, const Range& range, const TileRows& rows, const int32_t* accumulators,
             uint8_t* scratch) const noexcept;
  void StoreEdge(const RunBuffers& buffers, const TileRows& rows, int64_t column, int64_t columns,
                 TileEpilogueArgs args, uint8_t* scratch) const noexcept;
  void RunBlock(const RunBuffers& buffers, const Range& range, const uint8_t* panels,
                uint8_t* scratch) const noexcept;
  int64_t RowsPerBlock() const;
  int64_t PanelsPerChunk() const;
  /// Panels whose accumulators are in memory at a time: a chunk's, if they wait for further windows.
  int64_t PanelsAtOnce() const { return schedule_->windows() == 1 ? 1 : PanelsPerChunk(); }
  // Scratch: accumulators, a tile of C where columns are no whole tile, a row of C for what is dropped,
  // packed A.
  int64_t AccumulatorBytes() const { return PanelsAtOnce() * kPanelColumns * tile_rows_ * 4; }
  int64_t EdgeBytes() const {
    return ScratchTile::Bytes(RoundUp(tile_rows_, lanes_), tile_columns_, data_.epilogue.has_residual());
  }
  int64_t DropBytes() const { return RoundUp((data_.n + tile_columns_) * data_.element_bytes(), 64); }
  uint8_t* Edge(uint8_t* scratch) const { return scratch + AccumulatorBytes(); }
  uint8_t* Drop(uint8_t* scratch) const { return Edge(scratch) + EdgeBytes(); }
  int64_t FixedBytes() const { return AccumulatorBytes() + EdgeBytes() + DropBytes(); }
  uint8_t* PackedRows(uint8_t* scratch) const { return scratch + FixedBytes(); }
  /// Sums `rows` rows, at most tile_rows_.
  void Accumulate(const uint8_t* a, int64_t rows, int64_t panel_begin, int64_t panel_end,
                  int32_t* accumulators) const noexcept;

  const GemmData& data_;
  core::Isa isa_;
  int amax_;
  std::unique_ptr<ScheduledEngine> fallback_;
  const ScheduledEngine* like_ = nullptr;  // until it is built
  ScheduleSpec spec_;
  int lanes_;
  int block_vectors_ = 0, rows_ = 0;  // of a register block
  int tile_rows_ = 0;                 // of the accumulators: register blocks side by side
  int tile_columns_ = 0;              // that are stored at a time
  double row_cost_ = 0;               // of a full block, see Cost()
  std::shared_ptr<const ScheduledWeights> schedule_;
  std::string kernel_name_;
  std::vector<ScheduledKernelFunction> kernels_;  // [vectors − 1]
  ScheduledKernelFunction paired_kernel_;         // for half a vector of rows; of strips of two columns
  TileEpilogueFunction epilogue_;
  TileEpilogueFunction vector_epilogue_;     // for the rest of the columns, where tiles have several vectors
  TileEpilogueFunction streaming_epilogue_;  // where a row of a tile is a whole cache line of C
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_SCHEDULED_ENGINE_H_
