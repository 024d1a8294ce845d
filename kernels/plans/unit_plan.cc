#include "kernels/plans/unit_plan.h"

#include "kernels/codegen/dispatch.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {

Result<std::unique_ptr<UnitPlan>> UnitPlan::Create(std::shared_ptr<const LinearWeights> weights,
                                                   Access access, core::Isa isa, UsualRows usual,
                                                   const UnitPlan* like) {
  RETURN_IF_ERROR(weights->RestorePanels());
  std::unique_ptr<UnitPlan> plan(new UnitPlan(std::move(weights), std::move(access), isa));
  RETURN_IF_ERROR(plan->data_.SetSkippingCompensation());
  RETURN_IF_ERROR(plan->engines_.MakeUsual(usual, like == nullptr ? nullptr : &like->engines_));
  RETURN_IF_ERROR(plan->rows_.MakeKernels(isa));
  plan->kernel_name_ = plan->engines_.For(usual.named == 0 ? kLargeM : usual.named).KernelName();
  return plan;
}

void UnitPlan::RunShare(const Engine& engine, const RunBuffers& buffers, const Range& range,
                        uint8_t* scratch) const {
  if (range.Empty()) return;
  const ScopedFloatEnvironment float_environment;
  rows_.ForEachChunk(buffers, range, scratch,
                     [&](const RunBuffers& ready, const Range& chunk, uint8_t* free_scratch) {
                       engines_.Run(engine, ready, chunk, free_scratch);
                     });
  if (buffers.columns != nullptr && !buffers.columns->has_scale) FillWithNan(buffers.output, range, data_);
  if (buffers.may_stream) _mm_sfence();  // nothing else orders non-temporal stores
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
