#include "kernels/engines/planar_engine.h"

#include <algorithm>
#include <vector>

#include "kernels/codegen/dispatch.h"
#include "kernels/engines/cost_table.h"

namespace intact::kernels {
namespace {

// Vectors of a planar band straddle cache lines, so each load counts twice, and several columns should share
// it. With VNNI, a quad is one item, and registers suffice for all accumulators. A strip of one column has
// more vectors, because each accumulator waits for its last product: on Zen 5 it is 1.03 to 1.13 times as
// fast as with four vectors.
std::vector<StripVariant> VariantsOf(core::Isa isa, int64_t group_columns) {
  const bool is_zmm = jit::VectorBytes(isa) == 64;
  const ScheduleCosts& costs = Costs().Of(isa).schedule;
  std::vector<StripVariant> own = {{4, is_zmm ? 4 : 3, &costs.planar_vnni_columns, is_zmm ? 1 : 3},
                                   {1, is_zmm ? 8 : 6, &costs.planar_vnni_column}};
  if (UsesSchedule(isa, INTACT_EXACT)) {
    own = {{2, is_zmm ? 4 : 3, &costs.planar_columns, is_zmm ? 2 : 5}, {1, 4, &costs.planar_column, 2}};
  }
  std::erase_if(own, [&](const StripVariant& variant) { return group_columns % variant.columns != 0; });
  return own;
}

// Offsets depend on the extents, so the schedule of `like` is copied.
Result<ScheduledSums::Schedule> MakeSchedule(const PlanarData& data, const ScheduleSpec& spec,
                                             const ScheduledSums::Schedule& like) {
  std::shared_ptr<LazyScheduleOf<ScheduledWeights>> own;
  if (like == nullptr) {
    ASSIGN_OR_RETURN(own, data.linear->MakeSchedule<ScheduledWeights>(spec));
    RETURN_IF_ERROR(own->Find(1));
  } else {
    ScheduledWeights copy;
    if (!copy.CopyFrom(like->made())) return NoMemoryForSchedule();
    own = std::make_shared<LazyScheduleOf<ScheduledWeights>>(spec, std::move(copy));
  }
  if (!data.planar().IsModel()) own->mutable_made()->Relocate(data.planar());
  return ScheduledSums::Schedule(std::move(own));
}

}  // namespace

Result<std::unique_ptr<PlanarEngine>> PlanarEngine::Create(const PlanarData& data, core::Isa isa,
                                                           const ScheduledSums* like) {
  std::unique_ptr<PlanarEngine> engine(new PlanarEngine(data, isa));
  ScheduleSpec spec;
  spec.group_columns = data.planar().group_columns;
  if (data.problem.HasWeightZeroPoints()) spec.zero_points = data.problem.b_zero_points.data();
  RETURN_IF_ERROR(engine->sums_.Choose(VariantsOf(isa, spec.group_columns), spec, like));
  RETURN_IF_ERROR(
      engine->sums_.Build([&](const ScheduleSpec& chosen, const ScheduledSums::Schedule& like_it) {
        return MakeSchedule(data, chosen, like_it);
      }));
  return engine;
}

int64_t PlanarEngine::ScratchBytes(int64_t rows) const {
  const PlanarAccess& planar = data_.planar();
  const int64_t positions = (rows / planar.line_rows + 2) * planar.line_positions;  // at most
  const int64_t bytes = sums_.ScratchBytes(positions);
  return sums_.fallback() == nullptr ? bytes : std::max(bytes, sums_.fallback()->ScratchBytes(positions));
}

void PlanarEngine::RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept {
  const PlanarRows& band = buffers.planar();
  const ScheduledSums& sums = sums_.For(band.largest);
  const auto position_of = [&](int64_t row) {
    const int64_t from_first = row - band.first_row;
    const PlanarAccess& planar = data_.planar();
    return from_first / planar.line_rows * planar.line_positions + from_first % planar.line_rows;
  };
  const int64_t position_end = position_of(range.row_end - 1) + 1;
  for (int64_t position = position_of(range.row_begin); position < position_end;
       position += sums.tile_rows()) {
    const int64_t positions = std::min<int64_t>(sums.tile_rows(), position_end - position);
    ScheduledSums::TileRows rows = RowsOf(buffers, position, positions, sums.Drop(scratch));
    const uint8_t* const a = RowMap::Pointer(band.origin + static_cast<uintptr_t>(position * kQuad));
    sums.RunTile(buffers, rows, a, false, range.column_begin, range.column_end, scratch);
  }
}

ScheduledSums::TileRows PlanarEngine::RowsOf(const RunBuffers& buffers, int64_t position, int64_t positions,
                                             uint8_t* drop) const noexcept {
  const PlanarAccess& planar = data_.planar();
  ScheduledSums::TileRows rows;
  int64_t line = position / planar.line_positions;
  int64_t x = position % planar.line_positions;
  for (int64_t left = positions; left > 0; left = positions - rows.count, ++line, x = 0) {
    const int64_t valid = std::clamp<int64_t>(planar.line_rows - x, 0, left);
    const int64_t row = buffers.planar().first_row + line * planar.line_rows + x;
    rows.Add(static_cast<int32_t>(row), valid, buffers.output.C(row, 0), buffers.output.c_stride_bytes);
    rows.AddDropped(std::min(planar.line_positions - x, left) - valid, drop);
  }
  rows.FillVector(sums_.lanes(), drop);
  return rows;
}

}  // namespace intact::kernels
