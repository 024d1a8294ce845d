#include "kernels/plans/grouped_plan.h"

#include <algorithm>
#include <cmath>

#include "core/types.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/grouped_engine.h"
#include "kernels/engines/portable_grouped_engine.h"
#include "kernels/problem/checks.h"
#include "kernels/problem/output_map.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {

Result<std::unique_ptr<GroupedPlan>> GroupedPlan::Create(GroupedProblem problem,
                                                         const GroupedWeightView& weights, core::Isa isa) {
  std::unique_ptr<GroupedPlan> plan(new GroupedPlan(std::move(problem), isa));
  RETURN_IF_ERROR(plan->stager_.MakeKernels(plan->problem_, isa));
  ASSIGN_OR_RETURN(plan->engine_, isa == core::Isa::kPortable
                                      ? PortableGroupedEngine::Create(plan->problem_, weights)
                                      : GroupedPanelEngine::Create(plan->problem_, weights, isa));
  constexpr int64_t kManyRows = 512;
  plan->kernel_name_ = plan->engine_->KernelName(kManyRows);
  return plan;
}

int GroupedPlan::Threads(const intact_grouped_args& args) const {
  return ThreadsOf(args.threads, static_cast<double>(args.m) * static_cast<double>(problem_.n * problem_.k),
                   isa_);
}

Partition GroupedPlan::Cut(int64_t m, int parts) const {
  SharedOutput output;
  output.m = m;
  output.n = problem_.n;
  output.row_step = engine_->row_step();
  output.column_step = engine_->column_step();
  output.line_columns = LineColumns(problem_.n, core::BytesOf(problem_.c_type));
  output.row_bytes = problem_.k * problem_.a_bytes();
  output.column_bytes = CeilDivide(engine_->packed_bytes(), problem_.n);
  // A share reads its columns of B once for a block of rows.
  return Partition::Choose(output, parts, RowCostOf([](int64_t rows) {
                             return static_cast<double>(rows + ItemCut::kWeightRows);
                           }));
}

int64_t GroupedPlan::ShareBytes(int64_t m) const {
  const int64_t rows = std::min(m, stager_.ChunkRows());
  return stager_.ScratchBytes(rows) + engine_->ScratchBytes(rows);
}

Error GroupedPlan::Prepare(const intact_grouped_args& args, intact_run_info* info) const {
  RETURN_IF_ERROR(CheckGroupedSizes(problem_, args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  info->output[0] = args.m;
  info->output[1] = problem_.n;
  info->output[2] = 1;
  if (args.m == 0) return {};
  int parts = Threads(args);
  if (problem_.experts == 1) parts = Cut(args.m, parts).parts();
  const int threads = CountThreads(parts).threads;
  info->scratch_bytes = ScratchSize(ShareBytes(args.m) * threads);
  info->part_scratch_bytes = ScratchSize(ShareBytes(args.m));
  return {};
}

void GroupedPlan::RunShare(const intact_grouped_args& args, int64_t expert, const Range& range,
                           uint8_t* scratch) const {
  if (range.Empty()) return;
  const ScopedFloatEnvironment float_environment;
  Requantization type;
  type.c_type = problem_.c_type;
  const OutputMap output = OutputMap::Of(type, problem_.n, args.c, args.c_stride, nullptr, 0);
  Range chunk = range;
  for (; chunk.row_begin < range.row_end; chunk.row_begin = chunk.row_end) {
    chunk.row_end = std::min(range.row_end, chunk.row_begin + stager_.ChunkRows());
    const int64_t count = chunk.row_end - chunk.row_begin;
    const GroupedRows rows = stager_.Stage(args, chunk.row_begin, count, scratch);
    engine_->Run(rows, expert, chunk.column_begin, chunk.column_end, output.C(chunk.row_begin, 0),
                 output.c_stride_bytes, scratch + stager_.ScratchBytes(count));
    for (int64_t i = 0; problem_.IsDynamic() && i < count; ++i) {
      if (stager_.HasScale(rows, i)) continue;
      const int64_t row = chunk.row_begin + i;
      FillWithNan(output, {row, row + 1, chunk.column_begin, chunk.column_end}, problem_.c_type);
    }
  }
}

void GroupedPlan::RunExperts(const intact_grouped_args& args, const ItemCut& cut, int part,
                             uint8_t* scratch) const {
  int64_t expert = 0, first_row = 0;
  cut.ForEach(part, [&](int64_t item, Range range) {
    for (; expert < item; ++expert) first_row += args.expert_rows[expert];
    range.row_begin += first_row;
    range.row_end += first_row;
    RunShare(args, item, range, scratch);
  });
}

Error GroupedPlan::Run(const intact_grouped_args& args) const {
  RETURN_IF_ERROR(CheckGroupedSizes(problem_, args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  if (args.m == 0) return {};
  RETURN_IF_ERROR(CheckGroupedBuffers(problem_, args));
  const int threads = Threads(args);
  const int64_t bytes = ShareBytes(args.m);
  const auto run = [&](int parts, const auto& run_part) -> Error {
    ThreadCount count = CountThreads(parts);
    count.threads = std::min(count.threads, threads);
    ASSIGN_OR_RETURN(uint8_t* const scratch,
                     ScratchOf(args.scratch, args.scratch_bytes, bytes, &count.threads));
    RunParts(count, [&](int part, int thread) { run_part(part, scratch + thread * bytes); });
    return {};
  };
  if (problem_.experts == 1) {
    const Partition cut = Cut(args.m, threads);
    return run(cut.parts(), [&](int part, uint8_t* scratch) { RunShare(args, 0, cut.Share(part), scratch); });
  }
  const RunItems items = {problem_.experts, 0, args.expert_rows};
  const ItemCut cut(items, problem_.n, engine_->column_step(), threads);
  return run(threads, [&](int part, uint8_t* scratch) { RunExperts(args, cut, part, scratch); });
}

Error GroupedPlan::RunPart(const intact_grouped_args& args, int32_t part, int32_t parts) const {
  RETURN_IF_ERROR(CheckGroupedSizes(problem_, args));
  RETURN_IF_ERROR(CheckPart(part, parts));
  if (args.m == 0) return {};
  RETURN_IF_ERROR(CheckGroupedBuffers(problem_, args));
  int threads = 1;
  ASSIGN_OR_RETURN(uint8_t* const scratch,
                   ScratchOf(args.scratch, args.scratch_bytes, ShareBytes(args.m), &threads));
  if (problem_.experts == 1) {
    const Partition cut = Cut(args.m, parts);
    if (part < cut.parts()) RunShare(args, 0, cut.Share(part), scratch);
    return {};
  }
  const RunItems items = {problem_.experts, 0, args.expert_rows};
  RunExperts(args, ItemCut(items, problem_.n, engine_->column_step(), parts), part, scratch);
  return {};
}

}  // namespace intact::kernels
