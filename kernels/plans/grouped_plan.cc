#include "kernels/plans/grouped_plan.h"

#include <algorithm>
#include <cmath>

#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/grouped_engine.h"
#include "kernels/engines/portable_grouped_engine.h"
#include "kernels/problem/checks.h"
#include "kernels/problem/output_map.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {
namespace {

bool HasNoRows(const intact_grouped_args& args) { return args.m == 0 || args.batch == 0; }

// The fields that describe a batch.
intact_gemm_args GemmArgsOf(const intact_grouped_args& args) {
  intact_gemm_args gemm = INTACT_GEMM_ARGS_INIT;
  gemm.m = args.m;
  gemm.a = args.a;
  gemm.a_stride = args.a_stride;
  gemm.c = args.c;
  gemm.c_stride = args.c_stride;
  gemm.batch = args.batch;
  gemm.a_batch_stride = args.a_batch_stride;
  gemm.c_batch_stride = args.c_batch_stride;
  return gemm;
}

// The items that are cut: those of the batch, or the rows of experts.
RunItems ItemsOf(const GroupedProblem& problem, const intact_grouped_args& args, const Batch& batch) {
  if (problem.experts == 1) return {batch.items(), batch.m(), nullptr};
  return {problem.experts, 0, args.expert_rows};
}

}  // namespace

GroupedPlan::GroupedPlan(GroupedProblem problem, core::Isa isa) : problem_(std::move(problem)), isa_(isa) {
  batch_problem_.n = problem_.n;
  batch_problem_.a_type = problem_.a_type;
  batch_problem_.a_source_type = problem_.a_source_type;
  batch_problem_.output.c_type = problem_.c_type;
}

Result<std::unique_ptr<GroupedPlan>> GroupedPlan::Create(GroupedProblem problem,
                                                         const GroupedWeightView& weights, core::Isa isa) {
  if (isa != core::Isa::kPortable) {
    ASSIGN_OR_RETURN(std::shared_ptr<const GroupedWeights> packed,
                     GroupedWeights::Pack(problem, weights, VectorIsa(isa)));
    return Create(std::move(problem), std::move(packed), isa);
  }
  std::unique_ptr<GroupedPlan> plan(new GroupedPlan(std::move(problem), isa));
  RETURN_IF_ERROR(plan->SetEngine(PortableGroupedEngine::Create(plan->problem_, weights)));
  return plan;
}

Result<std::unique_ptr<GroupedPlan>> GroupedPlan::Create(GroupedProblem problem,
                                                         std::shared_ptr<const GroupedWeights> weights,
                                                         core::Isa isa) {
  std::unique_ptr<GroupedPlan> plan(new GroupedPlan(std::move(problem), isa));
  RETURN_IF_ERROR(plan->SetEngine(GroupedPanelEngine::Create(plan->problem_, std::move(weights), isa)));
  return plan;
}

Error GroupedPlan::SetEngine(Result<std::unique_ptr<const GroupedEngine>> engine) {
  if (!engine) return engine.error();
  engine_ = std::move(*engine);
  constexpr int64_t kManyRows = 512;
  kernel_name_ = engine_->KernelName(kManyRows);
  return stager_.MakeKernels(problem_, isa_);
}

int GroupedPlan::Threads(const intact_grouped_args& args) const {
  const double rows = static_cast<double>(args.m) * static_cast<double>(args.batch);
  return ThreadsOf(args.threads, rows * static_cast<double>(problem_.n * problem_.k), isa_);
}

Error GroupedPlan::CheckSizes(const intact_grouped_args& args) const {
  RETURN_IF_ERROR(CheckGroupedSizes(problem_, args));
  if (IsPlain(args)) return {};
  const intact_gemm_args gemm = GemmArgsOf(args);
  RETURN_IF_ERROR(CheckBatch(gemm, batch_problem_));
  return CheckBatchStrides(gemm, batch_problem_, problem_.k);
}

Error GroupedPlan::CheckBuffers(const intact_grouped_args& args) const {
  RETURN_IF_ERROR(CheckGroupedBuffers(problem_, args));
  return CheckGroupedValues(problem_, args, args.m);
}

Error GroupedPlan::CheckBuffers(const intact_grouped_args& args, const Batch& batch) const {
  for (int64_t i = 0; i < batch.items(); ++i) {
    RETURN_IF_ERROR(CheckGroupedBuffers(problem_, ItemOf(args, batch, i)));
  }
  return CheckGroupedValues(problem_, args, batch.rows());
}

intact_grouped_args GroupedPlan::ItemOf(const intact_grouped_args& args, const Batch& batch,
                                        int64_t i) const {
  const BatchItem item = batch.Item(i);
  const int64_t values = i * batch.m() * (problem_.has_group_scales ? problem_.groups() : 1);
  intact_grouped_args own = args;
  own.m = batch.m();
  own.batch = 1;
  own.a = item.a;
  own.a_stride = item.a_stride;
  own.c = item.c;
  own.c_stride = item.c_stride;
  if (own.a_scales != nullptr) own.a_scales += values;
  if (own.a_zero_points != nullptr) own.a_zero_points += values;
  return own;
}

ItemCut GroupedPlan::CutItems(const RunItems& items, int parts) const {
  return {items, problem_.n, engine_->column_step(), parts};
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
  RETURN_IF_ERROR(CheckSizes(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  info->output[0] = args.m;
  info->output[1] = problem_.n;
  info->output[2] = 1;
  if (HasNoRows(args)) return {};
  const intact_gemm_args gemm = GemmArgsOf(args);
  const Batch batch(gemm, batch_problem_, problem_.k);
  int parts = Threads(args);
  if (IsLone(batch)) parts = Cut(batch.m(), parts).parts();
  const int threads = CountThreads(parts).threads;
  info->scratch_bytes = ScratchSize(ShareBytes(batch.m()) * threads);
  info->part_scratch_bytes = ScratchSize(ShareBytes(batch.m()));
  return {};
}

void GroupedPlan::RunShare(const intact_grouped_args& args, int64_t expert, const Range& range,
                           uint8_t* scratch) const {
  if (range.Empty()) return;
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

void GroupedPlan::RunItemShares(const intact_grouped_args& args, const Batch& batch, const ItemCut& cut,
                                int part, uint8_t* scratch) const {
  int64_t expert = 0, first_row = 0;
  cut.ForEach(part, [&](int64_t item, Range range) {
    if (problem_.experts == 1) return RunShare(ItemOf(args, batch, item), 0, range, scratch);
    for (; expert < item; ++expert) first_row += args.expert_rows[expert];
    range.row_begin += first_row;
    range.row_end += first_row;
    RunShare(args, expert, range, scratch);
  });
}

// Runs parts on threads: run_share(part, scratch).
template <class Share>
Error GroupedPlan::RunAll(const intact_grouped_args& args, int parts, int64_t share_bytes,
                          const Share& run_share) const {
  ThreadCount count = CountThreads(parts, Threads(args));
  ASSIGN_OR_RETURN(uint8_t* const scratch,
                   ScratchOf(args.scratch, args.scratch_bytes, share_bytes, &count.threads));
  RunParts(count, [&](int part, int thread) { run_share(part, scratch + thread * share_bytes); });
  return {};
}

Error GroupedPlan::RunLone(const intact_grouped_args& args) const {
  const Partition cut = Cut(args.m, Threads(args));
  return RunAll(args, cut.parts(), ShareBytes(args.m),
                [&](int part, uint8_t* scratch) { RunShare(args, 0, cut.Share(part), scratch); });
}

Error GroupedPlan::Run(const intact_grouped_args& args) const {
  RETURN_IF_ERROR(CheckSizes(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  if (HasNoRows(args)) return {};
  if (IsPlain(args)) {
    RETURN_IF_ERROR(CheckBuffers(args));
    return RunLone(args);
  }
  const intact_gemm_args gemm = GemmArgsOf(args);
  const Batch batch(gemm, batch_problem_, problem_.k);
  RETURN_IF_ERROR(CheckBuffers(args, batch));
  if (IsLone(batch)) return RunLone(ItemOf(args, batch, 0));
  // A part for each thread: each part passes over the rows of all experts.
  const int parts = CountThreads(Threads(args)).threads;
  const RunItems items = ItemsOf(problem_, args, batch);
  const ItemCut cut = CutItems(items, parts);
  return RunAll(args, parts, ShareBytes(batch.m()),
                [&](int part, uint8_t* scratch) { RunItemShares(args, batch, cut, part, scratch); });
}

Error GroupedPlan::RunPart(const intact_grouped_args& args, int32_t part, int32_t parts) const {
  RETURN_IF_ERROR(CheckSizes(args));
  RETURN_IF_ERROR(CheckPart(part, parts));
  if (HasNoRows(args)) return {};
  const intact_gemm_args gemm = GemmArgsOf(args);
  const Batch batch(gemm, batch_problem_, problem_.k);
  RETURN_IF_ERROR(CheckBuffers(args, batch));
  int threads = 1;
  ASSIGN_OR_RETURN(uint8_t* const scratch,
                   ScratchOf(args.scratch, args.scratch_bytes, ShareBytes(batch.m()), &threads));
  if (IsLone(batch)) {
    const intact_grouped_args own = ItemOf(args, batch, 0);
    const Partition cut = Cut(own.m, parts);
    if (part < cut.parts()) RunShare(own, 0, cut.Share(part), scratch);
    return {};
  }
  const RunItems items = ItemsOf(problem_, args, batch);
  RunItemShares(args, batch, CutItems(items, parts), part, scratch);
  return {};
}

}  // namespace intact::kernels
