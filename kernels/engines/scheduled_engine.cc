#include "kernels/engines/scheduled_engine.h"

#include <algorithm>
#include <array>

#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

using TileRows = ScheduledSums::TileRows;

}  // namespace

Result<std::unique_ptr<ScheduledEngine>> ScheduledEngine::Create(const GemmData& data, core::Isa isa,
                                                                 const ScheduledSums* like) {
  std::unique_ptr<ScheduledEngine> engine(new ScheduledEngine(data, isa));
  const int lanes = engine->sums_.lanes();
  const ScheduleCosts& costs = engine->sums_.costs();
  std::array variants = {StripVariant{2, lanes == 16 ? 4 : 3, &costs.columns},
                         StripVariant{1, 4, &costs.column}};
  for (StripVariant& variant : variants) {
    const int64_t rows = int64_t{variant.vectors} * lanes;
    const int64_t in_l1 = Caches().ScheduledBlocks() / (rows * data.k);
    variant.blocks = static_cast<int>(std::clamp<int64_t>(in_l1, 1, ScheduledSums::kMaxTileRows / rows));
  }
  RETURN_IF_ERROR(engine->sums_.Choose(variants, {}, like));
  return engine;
}

// Shares the schedule for other extents, because it does not depend on them.
Error ScheduledEngine::Build() {
  using Schedule = ScheduledSums::Schedule;
  return sums_.Build([&](const ScheduleSpec& spec, const Schedule& like) -> Result<Schedule> {
    if (like != nullptr) return like;
    ASSIGN_OR_RETURN(Schedule made, data_.linear->MakeSchedule<ScheduledWeights>(spec));
    return made;
  });
}

// Each chunk reads packed rows again. With a single chunk, they are still in L1, so a block is one tile.
int64_t ScheduledEngine::RowsPerBlock(const ScheduledSums& sums) const {
  const int64_t tile_rows = sums.tile_rows();
  if (data_.weights.panels() <= sums.PanelsPerChunk()) return tile_rows;
  return std::max<int64_t>(Caches().ScheduledRows() / std::max<int64_t>(data_.k, 1) / tile_rows, 1) *
         tile_rows;
}

int64_t ScheduledEngine::ScratchBytes(const ScheduledSums& sums, int64_t rows) const {
  const int64_t block = std::min(RoundUp(rows, sums.tile_rows()), RowsPerBlock(sums));
  return sums.ScratchBytes(rows) + RoundUp(ActivationPanelBytes(block, data_.k), 64);
}

int64_t ScheduledEngine::ScratchBytes(int64_t rows) const {
  const int64_t bytes = ScratchBytes(sums_, rows);
  return sums_.fallback() == nullptr ? bytes : std::max(bytes, ScratchBytes(*sums_.fallback(), rows));
}

void ScheduledEngine::RunRange(const ScheduledSums& sums, const RunBuffers& buffers, const Range& range,
                               uint8_t* scratch) const noexcept {
  uint8_t* const panels = scratch + sums.ScratchBytes(range.row_end - range.row_begin);
  const int64_t rows_per_block = RowsPerBlock(sums);
  // Asked once, because another thread may generate the kernel.
  const bool is_paired = sums.ArePaired((range.row_end - range.row_begin) % sums.block_rows());
  for (int64_t block = range.row_begin; block < range.row_end; block += rows_per_block) {
    const Range block_range{block, std::min(range.row_end, block + rows_per_block), range.column_begin,
                            range.column_end};
    uint8_t largest = 0;
    RowCursor cursor(buffers.rows(), block);
    for (int64_t row = block; row < block_range.row_end; row += sums.tile_rows()) {
      const int64_t rows = std::min<int64_t>(sums.tile_rows(), block_range.row_end - row);
      uint8_t* const panel = panels + ActivationPanelBytes(row - block, data_.k);
      largest = std::max(largest, Pack(sums, &cursor, rows, is_paired, panel));
    }
    if (const ScheduledSums& own = sums.For(largest); &own != &sums) {
      RunRange(own, buffers, block_range, scratch);
    } else {
      RunBlock(sums, buffers, block_range, panels, is_paired, scratch);
    }
  }
}

// Packs the next `rows` rows, tap by tap. Returns the largest activation.
uint8_t ScheduledEngine::Pack(const ScheduledSums& sums, RowCursor* cursor, int64_t rows, bool is_paired,
                              uint8_t* panel) const noexcept {
  std::array<const uint8_t*, ScheduledSums::kMaxTileRows> pointers;
  const int64_t paired = is_paired ? rows % sums.block_rows() : 0;
  const uint8_t** next = pointers.data();
  for (int64_t i = 0; i < rows - paired; ++i) *next++ = cursor->Next();
  for (int64_t i = 0; i < paired; ++i, next += 2) next[0] = next[1] = cursor->Next();
  rows += paired;
  uint8_t largest = 0;
  for (const int64_t tap : data_.taps().offsets) {
    largest =
        std::max(largest, PackActivations({pointers.data(), static_cast<size_t>(rows)}, tap,
                                          data_.taps().depth, data_.a_shift(), sums.tile_rows(), panel));
    panel += ActivationPanelBytes(sums.tile_rows(), data_.taps().depth);
  }
  return largest;
}

void ScheduledEngine::RunBlock(const ScheduledSums& sums, const RunBuffers& buffers, const Range& range,
                               const uint8_t* panels, bool is_paired, uint8_t* scratch) const noexcept {
  const int64_t chunk_columns = sums.PanelsPerChunk() * kPanelColumns;
  for (int64_t column = range.column_begin; column < range.column_end; column += chunk_columns) {
    const int64_t column_end = std::min(range.column_end, column + chunk_columns);
    for (int64_t row = range.row_begin; row < range.row_end; row += sums.tile_rows()) {
      const int64_t count = std::min<int64_t>(sums.tile_rows(), range.row_end - row);
      TileRows rows;
      rows.Add(static_cast<int32_t>(row), count, buffers.output.C(row, 0), buffers.output.c_stride_bytes);
      rows.FillVector(sums.lanes(), sums.Drop(scratch));
      const uint8_t* const a = panels + ActivationPanelBytes(row - range.row_begin, data_.k);
      sums.RunTile(buffers, rows, a, is_paired, column, column_end, scratch);
    }
  }
}

}  // namespace intact::kernels
