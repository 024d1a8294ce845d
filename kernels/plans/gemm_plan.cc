#include "kernels/plans/gemm_plan.h"

#include <algorithm>

#include "core/types.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {

Result<std::unique_ptr<GemmPlan>> GemmPlan::Create(std::shared_ptr<const LinearWeights> weights,
                                                   core::Isa isa, int64_t usual_m) {
  Taps taps;
  taps.depth = weights->k();
  ASSIGN_OR_RETURN(std::unique_ptr<UnitPlan> unit,
                   UnitPlan::Create(std::move(weights), std::move(taps), isa,
                                    {.named = usual_m, .most = usual_m == 0 ? kLargeM : usual_m}));
  std::unique_ptr<GemmPlan> plan(new GemmPlan(std::move(unit), usual_m));
  if (usual_m != 0)
    RETURN_IF_ERROR(plan->unit_->PrepareRows(plan->unit_->engines().For(usual_m), usual_m, false, false));
  plan->DropUnused();
  return plan;
}

// ----- checks ----------------------------------------------------------------------------------------------

Error GemmPlan::CheckSizes(const intact_gemm_args& args) const {
  RETURN_IF_ERROR(CheckRows(args.m, 0));
  RETURN_IF_ERROR(CheckBatch(args, problem()));
  RETURN_IF_ERROR(CheckStride("a_stride", args.a_stride, args.a_transposed != 0 ? args.m : weights().k()));
  RETURN_IF_ERROR(CheckOutputStrides(weights().n(), {nullptr, args.c_stride, nullptr, args.residual_stride}));
  return CheckBatchStrides(args, problem());
}

Error GemmPlan::CheckArguments(const intact_gemm_args& args) const {
  RETURN_IF_ERROR(CheckSizes(args));
  return IsEmpty(args) ? Error() : CheckBatchArrays(args, problem());
}

Error GemmPlan::CheckItems(const Batch& batch) const {
  const intact_gemm_args& args = batch.args();
  for (int64_t i = 0; i < batch.items(); ++i) {
    const BatchItem item = batch.Item(i);
    if (item.a == nullptr) return Refuse([] { return InvalidArgument("a is NULL"); });
    if (problem().has_runtime_b && item.b == nullptr) {
      return InvalidArgument("b is NULL; expected B, because each run passes it (runtime_b)");
    }
    // The caller's strides: an item of joined rows has other strides.
    RETURN_IF_ERROR(CheckOutput(problem().output, weights().n(),
                                {item.c, args.c_stride, item.residual, args.residual_stride}));
    RETURN_IF_ERROR(CheckItemApart(batch, item));
  }
  return CheckRowArguments(problem(), batch.rows(), args.a_zero_points, args.a_scales);
}

// Checks that C of an item does not overlap its inputs, except that the residual may be C itself.
Error GemmPlan::CheckItemApart(const Batch& batch, const BatchItem& item) const {
  const int64_t n = weights().n();
  const auto rows = [&](const char* name, const void* data, int64_t columns, int64_t stride, int bytes) {
    return MemoryRows{name, data, batch.m(), columns * bytes, (stride == 0 ? columns : stride) * bytes};
  };
  const Requantization& output = problem().output;
  const MemoryRows c = rows("c", item.c, n, item.c_stride, core::BytesOf(output.c_type));
  MemoryRows a = rows("a", item.a, weights().k(), item.a_stride, problem().a_bytes());
  if (IsTransposed(batch.args())) {
    a.rows = weights().k();
    a.row_bytes = batch.m() * problem().a_bytes();
  }
  RETURN_IF_ERROR(CheckApart(c, a));
  if (item.residual == nullptr || item.residual == item.c) return {};
  return CheckApart(
      c, rows("the residual", item.residual, n, item.residual_stride, core::BytesOf(output.residual_type)));
}

// ----- runs ------------------------------------------------------------------------------------------------

RunBuffers GemmPlan::BuffersOf(const Batch& batch, const BatchItem& item) const {
  const KernelData& data = unit_->data();
  RunBuffers buffers;
  buffers.a = unit_->rows().RowsOf(item, IsTransposed(batch.args()));
  buffers.given_zero_points = item.a_zero_points;
  buffers.given_scales = item.a_scales;
  buffers.output =
      OutputMap::Of(data.problem.output, data.n, item.c, item.c_stride, item.residual, item.residual_stride);
  SetStreaming(batch.m(), data.n * data.element_bytes(), (batch.m() + data.n) * data.k, &buffers);
  return buffers;
}

int GemmPlan::Threads(const intact_gemm_args& args) const {
  const double rows = static_cast<double>(args.m) * static_cast<double>(args.batch);
  return ThreadsOf(args.threads, rows * static_cast<double>(weights().n() * weights().k()), isa());
}

GemmPlan::Decision GemmPlan::Decide(const Batch& batch, int parts, bool may_share) const {
  const Engine& engine = unit_->engines().For(batch.m());
  const int64_t bytes = unit_->ShareBytes(engine, batch.m(), IsTransposed(batch.args()));
  const Partition cut = unit_->engines().Cut(engine, batch.m(), batch.PartsPerItem(parts));
  const bool shares = may_share && problem().has_runtime_b && cut.parts() > 1;
  return {batch, engine, cut, bytes, shares ? SharedBytes(batch, engine, cut, parts) : 0};
}

// Shares of different rows would pack the same columns. Packing them once pays if each thread saves more
// than it waits for the others, and if the caches of all threads hold the packed columns.
int64_t GemmPlan::SharedBytes(const Batch& batch, const Engine& engine, const Partition& cut,
                              int parts) const {
  constexpr int64_t kLeastSaved = 64 << 10;  // about 2 µs
  const int64_t item_bytes = unit_->SharedBytes(engine);
  const int64_t bytes = batch.items() * item_bytes;
  const int64_t saved = bytes * (cut.bands() - 1) / parts;
  const bool pays = saved >= kLeastSaved && bytes <= parts * Caches().RuntimeChunk();
  return pays ? item_bytes : 0;
}

ThreadCount GemmPlan::Decision::Count(int threads) const {
  return CountThreads(static_cast<int>(shares()), threads);
}

Error GemmPlan::Prepare(const intact_gemm_args& args, intact_run_info* info) const {
  RETURN_IF_ERROR(CheckSizes(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  info->output[0] = args.m;
  info->output[1] = weights().n();
  info->output[2] = 1;
  if (IsEmpty(args)) return {};
  const int threads = Threads(args);
  const auto add = [&](const Batch& batch) -> Error {
    const Decision run = Decide(batch, threads, true);
    const int64_t bytes = run.shared_bytes * batch.items() + run.share_bytes * run.Count(threads).threads;
    info->scratch_bytes = std::max(info->scratch_bytes, ScratchSize(bytes));
    info->part_scratch_bytes = std::max(info->part_scratch_bytes, ScratchSize(run.share_bytes));
    // There may be any number of parts.
    RETURN_IF_ERROR(unit_->engines().FindSchedules(run.engine));
    return unit_->PrepareRows(run.engine, run.batch.m(), IsTransposed(run.batch.args()), true);
  };
  if (args.batch == 1) return add(BatchOf(args));
  // The run may give items by strides, which may join them, or by pointers, whatever `args` gives.
  intact_gemm_args strided = args;
  strided.a_items = strided.residual_items = strided.b_items = nullptr;
  strided.c_items = nullptr;
  RETURN_IF_ERROR(add(Batch(strided, problem(), weights().k(), true)));
  return add(Batch(strided, problem(), weights().k(), false));
}

Error GemmPlan::PrepareShares(const Decision& run) const {
  RETURN_IF_ERROR(unit_->engines().FindSchedules(run.engine));
  for (int i = 0; i < run.cut.parts(); ++i) {
    const Range share = run.cut.Share(i);
    const int64_t rows = share.row_end - share.row_begin;
    RETURN_IF_ERROR(unit_->PrepareRows(run.engine, rows, IsTransposed(run.batch.args()), false));
  }
  return {};
}

RuntimeB GemmPlan::RuntimeBOf(const Decision& run, const BatchItem& item) const {
  const intact_gemm_args& args = run.batch.args();
  return {static_cast<const int8_t*>(item.b), item.b_scales, args.b_scale_count > 1, item.b_zero_points,
          args.b_zero_point_count > 1};
}

// Each thread packs whole items, or a piece of an item's columns.
void GemmPlan::PackShared(const Decision& run, int threads, uint8_t* shared) const {
  const int64_t items = run.batch.items();
  const int64_t pieces = CeilDivide(threads, items);
  const int64_t columns = RoundUp(CeilDivide(weights().n(), pieces), kPanelColumns);
  RunParts({static_cast<int>(items * pieces), threads}, [&](int part, int) {
    const int64_t item = part / pieces, begin = part % pieces * columns;
    const int64_t end = std::min(weights().n(), begin + columns);
    if (begin >= end) return;
    PackRuntimeB(weights(), RuntimeBOf(run, run.batch.Item(item)), RuntimeForm::kPanels, 0, begin, end,
                 shared + item * run.shared_bytes);
  });
}

void GemmPlan::RunShare(const Decision& run, int64_t share, const RowQuantization& tensor, uint8_t* scratch,
                        const uint8_t* shared) const {
  const bool is_item = run.cut.parts() == 1;  // then no division is needed
  const int64_t number = is_item ? share : share / run.cut.parts();
  const BatchItem item = run.batch.Item(number);
  const Range range = run.cut.Share(is_item ? 0 : static_cast<int>(share % run.cut.parts()));
  if (range.Empty()) return;
  RunBuffers buffers = BuffersOf(run.batch, item);
  buffers.tensor = tensor;
  if (problem().has_runtime_b) {
    const uint8_t* const packed = run.shared_bytes == 0 ? nullptr : shared + number * run.shared_bytes;
    return unit_->RunShare(run.engine, RuntimeBOf(run, item), buffers, range, scratch, packed);
  }
  unit_->RunShare(run.engine, buffers, range, scratch);
}

Error GemmPlan::Run(const intact_gemm_args& args) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  if (IsEmpty(args)) return {};
  const Batch batch = BatchOf(args);
  RETURN_IF_ERROR(CheckItems(batch));
  const int threads = Threads(args);
  Decision run = Decide(batch, threads, true);
  ThreadCount count = run.Count(threads);
  RETURN_IF_ERROR(unit_->engines().FindSchedules(run.engine, count.threads));
  int64_t shared_bytes = run.shared_bytes * batch.items();
  // OpenMP's default may have grown since the caller asked for the size.
  if (args.scratch != nullptr && args.scratch_bytes < ScratchSize(shared_bytes + run.share_bytes)) {
    run.shared_bytes = shared_bytes = 0;
  }
  ASSIGN_OR_RETURN(uint8_t* const shared, ScratchOf(args.scratch, args.scratch_bytes, run.share_bytes,
                                                    &count.threads, shared_bytes));
  uint8_t* const scratch = shared + shared_bytes;
  const RowQuantization tensor = unit_->rows().FindTensor(run.batch, count.threads);
  if (shared_bytes != 0) PackShared(run, count.threads, shared);
  RunParts(count, [&](int part, int thread) {
    RunShare(run, part, tensor, scratch + thread * run.share_bytes, shared);
  });
  return {};
}

Error GemmPlan::RunPart(const intact_gemm_args& args, int32_t part, int32_t parts) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckPart(part, parts));
  if (IsEmpty(args)) return {};
  const Batch batch = BatchOf(args);
  RETURN_IF_ERROR(CheckItems(batch));
  const Decision run = Decide(batch, parts, false);
  RETURN_IF_ERROR(unit_->engines().FindSchedules(run.engine));
  int threads = 1;
  ASSIGN_OR_RETURN(uint8_t* const scratch,
                   ScratchOf(args.scratch, args.scratch_bytes, run.share_bytes, &threads));
  const RowQuantization tensor = unit_->rows().FindTensor(run.batch, 1);
  // With one item, shares are the parts; parts beyond the last share do nothing.
  if (run.batch.items() == 1) {
    if (part < run.shares()) RunShare(run, part, tensor, scratch, nullptr);
    return {};
  }
  for (int64_t share = run.shares() * part / parts; share < run.shares() * (part + 1) / parts; ++share) {
    RunShare(run, share, tensor, scratch, nullptr);
  }
  return {};
}

// ----- bound runs ------------------------------------------------------------------------------------------

/// A run of one share, which only needs the engine.
class GemmPlan::Bound final : public BoundRun {
 public:
  Bound(const UnitPlan& unit, const Engine& engine, const RunBuffers& buffers, const Range& range)
      : unit_(unit), engine_(engine), buffers_(buffers), range_(range) {}
  BoundScratch* scratch() { return &scratch_; }
  /// Binds the kernels' arguments too. Set the scratch first.
  void BindCalls() { calls_ = unit_.Bind(engine_, buffers_, range_, scratch_.data()); }
  Error Run() override {
    if (calls_ != nullptr) {
      calls_->Run();
    } else {
      unit_.RunShare(engine_, buffers_, range_, scratch_.data());
    }
    return {};
  }

 private:
  const UnitPlan& unit_;
  const Engine& engine_;
  RunBuffers buffers_;
  Range range_;
  BoundScratch scratch_;
  std::unique_ptr<BoundCalls> calls_;  // null: RunShare() finds the calls each time
};

Result<std::unique_ptr<BoundRun>> GemmPlan::Bind(const intact_gemm_args& args) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  if (IsEmpty(args)) return std::unique_ptr<BoundRun>(std::make_unique<EmptyRun>());
  const Batch batch = BatchOf(args);
  RETURN_IF_ERROR(CheckItems(batch));
  const int threads = Threads(args);
  const Decision run = Decide(batch, threads, true);
  RETURN_IF_ERROR(PrepareShares(run));
  // Other runs read what may change from run to run: pointers, zero points and scales.
  const bool reads_arrays = args.a_zero_points != nullptr || args.a_scales != nullptr ||
                            args.a_items != nullptr || args.c_items != nullptr ||
                            args.residual_items != nullptr;
  const bool is_alone = run.Count(threads).threads == 1;
  if (run.shares() != 1 || !is_alone || reads_arrays || problem().has_runtime_b ||
      problem().a_quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR) {
    auto bound = std::make_unique<CheckedRun<GemmPlan, intact_gemm_args>>(*this, args);
    RETURN_IF_ERROR(bound->CheckScratch(run.share_bytes));
    if (is_alone) {
      RETURN_IF_ERROR(bound->OwnScratch(run.shared_bytes * batch.items() + run.share_bytes));
    }
    return std::unique_ptr<BoundRun>(std::move(bound));
  }
  auto bound = std::make_unique<Bound>(*unit_, run.engine, BuffersOf(batch, batch.Item(0)), run.cut.Share(0));
  RETURN_IF_ERROR(bound->scratch()->Set(args.scratch, args.scratch_bytes, run.share_bytes));
  bound->BindCalls();
  return std::unique_ptr<BoundRun>(std::move(bound));
}

void GemmPlan::DropUnused() {
  unit_->mutable_engines()->DropUnchosen();
  if (!problem().has_runtime_b) unit_->DropUnreadPanels();
}

}  // namespace intact::kernels
