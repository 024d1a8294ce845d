#include "kernels/plans/grouped_plan.h"

#include <algorithm>
#include <optional>

#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/grouped_engine.h"
#include "kernels/engines/portable_grouped_engine.h"
#include "kernels/plans/item_cut.h"
#include "kernels/problem/checks.h"
#include "kernels/problem/output_map.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {
namespace {

bool HasNoRows(const intact_grouped_args& args) { return args.m == 0 || args.batch == 0; }

}  // namespace

core::Isa GroupedPlan::PackingIsa(core::Isa isa) {
  return isa == core::Isa::kPortable ? core::Isa::kAvx2 : VectorIsa(isa);
}

Result<std::unique_ptr<GroupedPlan>> GroupedPlan::Create(GroupedProblem problem,
                                                         const GroupedWeightView& weights, core::Isa isa) {
  ASSIGN_OR_RETURN(std::shared_ptr<const GroupedWeights> packed,
                   GroupedWeights::Pack(problem, weights, PackingIsa(isa)));
  return Create(std::move(problem), std::move(packed), isa);
}

Result<std::unique_ptr<GroupedPlan>> GroupedPlan::Create(GroupedProblem problem,
                                                         std::shared_ptr<const GroupedWeights> weights,
                                                         core::Isa isa) {
  constexpr int64_t kManyRows = 512;
  std::unique_ptr<GroupedPlan> plan(new GroupedPlan(std::move(problem), std::move(weights), isa));
  ASSIGN_OR_RETURN(plan->engine_, isa == core::Isa::kPortable
                                      ? PortableGroupedEngine::Create(plan->problem_, plan->weights())
                                      : GroupedPanelEngine::Create(plan->problem_, plan->weights_, isa));
  plan->kernel_name_ = plan->engine_->KernelName(kManyRows);
  RETURN_IF_ERROR(plan->stager_.MakeKernels(plan->problem_, isa));
  return plan;
}

GroupedPlan::Items GroupedPlan::ItemsOf(const intact_grouped_args& args) const {
  ItemSteps a = ItemSteps::Of(args.m, problem_.k, args.a_stride, args.a_batch_stride);
  ItemSteps c = ItemSteps::Of(args.m, problem_.n, args.c_stride, args.c_batch_stride);
  const bool are_one = args.batch == 1 || JoinItems(args.m, &a, &c);
  return {are_one ? 1 : args.batch, are_one ? args.m * args.batch : args.m, a, c};
}

intact_grouped_args GroupedPlan::ItemOf(const intact_grouped_args& args, const Items& items, int64_t item,
                                        int64_t first_row) const {
  const auto at = [&](auto* base, const ItemSteps& steps, int bytes) {
    return problem_.experts == 1 ? ItemAt(base, item, steps.item, bytes)
                                 : ItemAt(base, first_row, steps.row, bytes);
  };
  const int64_t values = first_row * problem_.row_values();
  intact_grouped_args own = args;
  own.m = items.m;
  own.a = at(args.a, items.a, problem_.a_bytes());
  own.a_stride = items.a.row;
  own.c = at(args.c, items.c, core::BytesOf(problem_.c_type));
  own.c_stride = items.c.row;
  if (own.a_scales != nullptr) own.a_scales += values;
  if (own.a_zero_points != nullptr) own.a_zero_points += values;
  return own;
}

Error GroupedPlan::CheckSizes(const intact_grouped_args& args) const {
  RETURN_IF_ERROR(CheckGroupedSizes(problem_, args));
  if (args.batch != 1) RETURN_IF_ERROR(CheckItemNumbers(args.m, args.batch));
  RETURN_IF_ERROR(CheckStride("a_batch_stride", args.a_batch_stride, 0));
  RETURN_IF_ERROR(CheckStride("c_batch_stride", args.c_batch_stride, 0));
  if (args.batch < 2 || args.m == 0) return {};
  const ItemSteps c = ItemSteps::Of(args.m, problem_.n, args.c_stride, args.c_batch_stride);
  return CheckItemsApart(c, args.m, args.batch, args.c_batch_stride);
}

Error GroupedPlan::CheckBuffers(const intact_grouped_args& args, const Items& items) const {
  if (args.batch == 1) RETURN_IF_ERROR(CheckGroupedBuffers(problem_, args));
  for (int64_t i = 0; i < items.count && args.batch != 1; ++i) {
    RETURN_IF_ERROR(CheckGroupedBuffers(problem_, ItemOf(args, items, i, 0)));
  }
  return CheckGroupedValues(problem_, args, items.count * items.m);
}

// A part for each thread: each part passes over the rows of all experts.
int GroupedPlan::Parts(const intact_grouped_args& args, const Items& items) const {
  const double rows = static_cast<double>(args.m) * static_cast<double>(args.batch);
  const int threads = ThreadsOf(args.threads, rows * static_cast<double>(problem_.n * problem_.k), isa_);
  return IsLone(items) ? threads : CountThreads(threads).threads;
}

Partition GroupedPlan::Cut(int64_t m, int parts) const {
  SharedOutput output;
  output.m = m;
  output.n = problem_.n;
  output.row_step = engine_->row_step();
  output.column_step = engine_->column_step();
  output.line_columns = LineColumns(problem_.n, core::BytesOf(problem_.c_type));
  output.row_bytes = problem_.k * problem_.a_bytes();
  output.column_bytes = CeilDivide(packed_bytes(), problem_.n);
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
  const Items items = ItemsOf(args);
  const int64_t bytes = ShareBytes(items.m);
  int parts = Parts(args, items);
  if (IsLone(items)) parts = Cut(items.m, parts).parts();
  info->scratch_bytes = ScratchSize(bytes * CountThreads(parts).threads);
  info->part_scratch_bytes = ScratchSize(bytes);
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

template <class Body>
Error GroupedPlan::RunChecked(const intact_grouped_args& args, const Items& items, int wanted,
                              const Body& run) const {
  RETURN_IF_ERROR(CheckBuffers(args, items));
  const int64_t bytes = ShareBytes(items.m);
  if (IsLone(items)) {
    std::optional<intact_grouped_args> joined;  // a copy takes longer than all checks
    const intact_grouped_args& own = args.batch == 1 ? args : joined.emplace(ItemOf(args, items, 0, 0));
    const Partition cut = Cut(items.m, wanted);
    return run(cut.parts(), bytes,
               [&](int part, uint8_t* scratch) { RunShare(own, 0, cut.Share(part), scratch); });
  }
  const bool has_experts = problem_.experts != 1;
  const RunItems rows =
      has_experts ? RunItems{problem_.experts, 0, args.expert_rows} : RunItems{items.count, items.m, nullptr};
  const ItemCut cut(rows, problem_.n, engine_->column_step(), wanted);
  return run(wanted, bytes, [&](int part, uint8_t* scratch) {
    int64_t item = 0, first_row = 0;
    cut.ForEach(part, [&](int64_t number, const Range& range) {
      for (; item < number; ++item) first_row += rows.Rows(item);
      RunShare(ItemOf(args, items, item, first_row), has_experts ? item : 0, range, scratch);
    });
  });
}

Error GroupedPlan::Run(const intact_grouped_args& args) const {
  RETURN_IF_ERROR(CheckSizes(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  if (HasNoRows(args)) return {};
  const Items items = ItemsOf(args);
  const int wanted = Parts(args, items);
  return RunChecked(args, items, wanted, [&](int parts, int64_t bytes, const auto& run_part) -> Error {
    ThreadCount count = CountThreads(parts, wanted);
    ASSIGN_OR_RETURN(uint8_t* const scratch,
                     ScratchOf(args.scratch, args.scratch_bytes, bytes, &count.threads));
    RunParts(count, [&](int part, int thread) { run_part(part, scratch + thread * bytes); });
    return {};
  });
}

Error GroupedPlan::RunPart(const intact_grouped_args& args, int32_t part, int32_t parts) const {
  RETURN_IF_ERROR(CheckSizes(args));
  RETURN_IF_ERROR(CheckPart(part, parts));
  if (HasNoRows(args)) return {};
  return RunChecked(args, ItemsOf(args), parts, [&](int, int64_t bytes, const auto& run_part) -> Error {
    int threads = 1;
    ASSIGN_OR_RETURN(uint8_t* const scratch, ScratchOf(args.scratch, args.scratch_bytes, bytes, &threads));
    run_part(part, scratch);  // nothing, beyond the last part
    return {};
  });
}

}  // namespace intact::kernels
