#include "kernels/plans/unit_plan.h"

#include <xmmintrin.h>

#include <algorithm>

#include "kernels/codegen/dispatch.h"

namespace intact::kernels {

Result<std::unique_ptr<UnitPlan>> UnitPlan::Create(std::shared_ptr<const LinearWeights> weights,
                                                   Access access, core::Isa isa, UsualRows usual,
                                                   const UnitPlan* like) {
  RETURN_IF_ERROR(weights->RestorePanels());
  std::unique_ptr<UnitPlan> plan(new UnitPlan(std::move(weights), std::move(access), isa));
  if (auto* const rows = std::get_if<GemmData>(&plan->plan_data_)) {
    RETURN_IF_ERROR(rows->SetSkippingCompensation());
  }
  RETURN_IF_ERROR(plan->engines_.MakeUsual(usual, like == nullptr ? nullptr : &like->engines_));
  RETURN_IF_ERROR(plan->rows_.MakeKernels(isa));
  const int64_t named = usual.named == 0 ? kLargeM : usual.named;
  plan->kernel_name_ = plan->engines_.For(named).KernelNameFor(named);
  return plan;
}

void UnitPlan::RunShare(const Engine& engine, const RunBuffers& buffers, const Range& range,
                        uint8_t* scratch) const {
  if (range.Empty()) return;
  rows_.ForEachChunk(buffers, range, scratch,
                     [&](const RunBuffers& ready, const Range& chunk, uint8_t* free_scratch) {
                       engines_.Run(engine, ready, chunk, free_scratch);
                     });
  if (buffers.columns != nullptr && !buffers.columns->has_scale) {
    FillWithNan(buffers.output, range, data_.problem.output.c_type);
  }
  if (buffers.may_stream) _mm_sfence();  // nothing else orders non-temporal stores
}

std::unique_ptr<BoundCalls> UnitPlan::Bind(const Engine& engine, const RunBuffers& buffers,
                                           const Range& range, uint8_t* scratch) const {
  const bool prepares = data_.epilogue.has_row_values() || buffers.IsTransposed();
  const bool is_alone = engine.WholeRows(range.row_end - range.row_begin) == range.row_end - range.row_begin;
  if (prepares || !is_alone || !data_.problem.lookup_table.empty()) return nullptr;
  return engine.Bind(buffers, range, scratch);
}

Error UnitPlan::PrepareRows(const Engine& engine, int64_t rows, bool transposed, bool or_fewer) const {
  const int64_t chunk = std::min(rows, rows_.ChunkRows(transposed));
  if (chunk == 0) return {};
  RETURN_IF_ERROR(engines_.PrepareRows(engine, chunk, or_fewer));
  return or_fewer || rows % chunk == 0 ? Error() : engines_.PrepareRows(engine, rows % chunk, false);
}

int64_t UnitPlan::ShareBytes(const Engine& engine, int64_t m, bool transposed) const {
  const int64_t bytes = rows_.ScratchBytes(m, transposed) + engines_.ScratchBytes(engine, m);
  if (!data_.problem.has_runtime_b) return bytes;
  return bytes + RuntimeWeightBytes(weights(), engine.runtime_form(), RuntimeColumns(engine, m));
}

void UnitPlan::RunShare(const Engine& engine, const RuntimeB& b, RunBuffers buffers, const Range& range,
                        uint8_t* scratch, const uint8_t* shared) const {
  if (shared != nullptr) {
    const RuntimeWeights given = PackedRuntimeB(weights(), b, shared);
    buffers.weights = &given;
    buffers.columns = &given;
    return RunShare(engine, buffers, range, scratch);
  }
  const RuntimeForm form = engine.runtime_form();
  const int64_t columns = RuntimeColumns(engine, range.row_end - range.row_begin);
  uint8_t* const free_scratch = scratch + RuntimeWeightBytes(weights(), form, columns);
  Range chunk = range;
  for (; chunk.column_begin < range.column_end; chunk.column_begin = chunk.column_end) {
    chunk.column_end = std::min(range.column_end, chunk.column_begin + columns);
    const RuntimeWeights given =
        PackRuntimeB(weights(), b, form, chunk.column_begin, chunk.column_begin, chunk.column_end, scratch);
    buffers.weights = &given;
    buffers.columns = &given;
    const bool is_other = form == RuntimeForm::kCutPanels && !given.is_cut;
    RunShare(is_other ? engines_.ForPanels(range.row_end - range.row_begin) : engine, buffers, chunk,
             free_scratch);
  }
}

int64_t UnitPlan::packed_bytes() const {
  int64_t bytes = weights().bytes() + engines_.packed_bytes();
  for (const SkippingCompensation& skipping : data_.skipping_compensation) {
    bytes += static_cast<int64_t>(skipping.columns.bytes() + skipping.paddings.bytes());
  }
  return bytes;
}

void UnitPlan::DropUnreadPanels() {
  if (auto source = engines_.PanelsFrom(); source != nullptr) weights().DropPanels(std::move(source));
}

ScheduleStatistics UnitPlan::schedule_statistics() const {
  if (!UsesSchedule(isa_, data_.problem.mode)) return {};
  ScheduleStatistics statistics = engines_.statistics();
  if (statistics.quads != 0) statistics.quads = data_.weights.quads() * data_.n;
  return statistics;
}

}  // namespace intact::kernels
