#include "kernels/plans/gemm_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/amx_engine.h"
#include "kernels/engines/block_cost.h"
#include "kernels/engines/panel_engine.h"
#include "kernels/engines/portable_engine.h"
#include "kernels/engines/scheduled_engine.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {
namespace {

// Rows whose values are found at a time: whole blocks of most engines that stay in half of L2, where the
// engine then finds them; and few enough to bound the memory for the values.
int64_t PieceRows(int64_t k) {
  constexpr int kUnit = 192;
  return std::min(RowsPerBlock(k, kUnit), RowValues::kRows);
}

// From a row that was quantized to the next: a line more than the row, so that the rows of a tile do not meet
// in the same sets of L1.
int64_t QuantizedStride(int64_t k) { return RoundUp(k, 64) + 64; }

// Scratch in front of the engine's: what rows have of their own, then those that are quantized.
int64_t RowValueBytes(const GemmData& data) {
  return data.epilogue.has_row_values() ? RoundUp(static_cast<int64_t>(sizeof(RowValues)), 64) : 0;
}
int64_t QuantizedBytes(const GemmData& data, int64_t m) {
  return data.problem.IsDynamic() ? std::min(PieceRows(data.k), m) * QuantizedStride(data.k) : 0;
}

// Scratch of the weights that a run gives.
int64_t WeightBytes(const GemmData& data) { return data.problem.has_given_b ? GivenBytes(*data.linear) : 0; }

// Outputs of rows that have no scale are NaNs, see the contract.
void FillWithNan(intact_type c_type, int64_t columns, uint8_t* c) {
  const auto bytes = static_cast<size_t>(core::BytesOf(c_type));
  for (int64_t i = 0; i < columns; ++i, c += bytes) {
    core::Encode(c_type, std::numeric_limits<double>::quiet_NaN(), c);
  }
}

// Activations beyond a declared range that is checked run on these vectors too.
ScheduleSpec VectorSpec(const GemmData& data, core::Isa isa) {
  const int amax = data.problem.IsRangeChecked() ? 255 : data.problem.range.high;
  return ScheduledVectors::SpecFor(data.weights, jit::VectorBytes(isa) / kQuad, amax);
}

Error OutOfMemory() { return {INTACT_OUT_OF_MEMORY, "no memory for scheduled weights"}; }

constexpr int64_t kLargeM = 1024;  // the M that a plan's kernel is named for

}  // namespace

Result<std::unique_ptr<GemmPlan>> GemmPlan::Create(std::shared_ptr<const LinearWeights> weights,
                                                   Access access, core::Isa isa, UsualRows usual,
                                                   const GemmPlan* like) {
  RETURN_IF_ERROR(weights->RestorePanels());
  std::unique_ptr<GemmPlan> plan(new GemmPlan(std::move(weights), std::move(access), isa, usual));
  RETURN_IF_ERROR(plan->SetSkippingInitial());
  RETURN_IF_ERROR(plan->MakeEngines(like));
  return plan;
}

Error GemmPlan::SetSkippingInitial() {
  if (data_.IsPlanar()) return {};
  const Taps& taps = data_.taps();
  if (taps.line_taps.empty() && !taps.HasLineEnds()) return {};
  std::vector<TapRange> ranges = {{0, taps.count()}};
  for (const TapRange& range : taps.line_taps) {
    if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) ranges.push_back(range);
  }
  for (const TapRange& range : ranges) {
    RETURN_IF_ERROR(AddSkippingInitial(range));
  }
  return {};
}

// Padding contributes za'·Σ b' (pack.h), which the column's constant takes over.
Error GemmPlan::AddSkippingInitial(const TapRange& range) {
  const Taps& taps = data_.taps();
  const auto zero_point = static_cast<uint32_t>(data_.problem.ActivationZeroPoint());
  const size_t columns = data_.initial.size();
  std::vector<uint32_t> padding(3 * columns);
  uint32_t* const rows = padding.data();
  uint32_t* const first = rows + columns;
  uint32_t* const last = first + columns;
  AddDepths(data_.weights, 0, range.first * taps.depth, rows);
  AddDepths(data_.weights, range.end * taps.depth, data_.k, rows);
  std::copy_n(rows, columns, first);
  std::copy_n(rows, columns, last);
  for (int64_t tap = range.first; tap < range.end; ++tap) {
    AddDepths(data_.weights, tap * taps.depth, tap * taps.depth + taps.head, first);
    AddDepths(data_.weights, (tap + 1) * taps.depth - taps.tail, (tap + 1) * taps.depth, last);
  }
  SkippingInitial& made = data_.skipping_initial.emplace_back();
  made.taps = range;
  if (!made.columns.Resize(padding.size())) return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  for (size_t i = 0; i < padding.size(); ++i) {
    const auto initial = static_cast<uint32_t>(data_.initial[i % columns]);
    made.columns[i] = static_cast<int32_t>(initial + zero_point * padding[i]);
  }
  return {};
}

Result<std::unique_ptr<ScheduledEngine>> GemmPlan::MakeScheduledEngine(const GemmPlan* like) const {
  if (data_.problem.has_given_b) return std::unique_ptr<ScheduledEngine>();
  if (!UsesSchedule(isa_, data_.problem.mode) && !data_.IsPlanar()) return std::unique_ptr<ScheduledEngine>();
  if (like != nullptr && like->scheduled_ == nullptr) return std::unique_ptr<ScheduledEngine>();
  return ScheduledEngine::Create(data_, VectorIsa(isa_), like == nullptr ? nullptr : like->scheduled_);
}

// `scheduled` may be null, and need not be built.
Result<GemmPlan::Needed> GemmPlan::NeededEngines(const ScheduledEngine* scheduled,
                                                 const GemmPlan* like) const {
  if (data_.IsPlanar()) return Needed{{}, true};
  struct Candidate {
    KernelBlock block;
    BlockCost cost;
  };
  std::vector<Candidate> candidates;
  for (const KernelBlock& block : kKernels) {
    if (!CanRun(block)) continue;
    ScheduleStatistics statistics;
    if (block.dot == jit::DotKind::kScheduled) {
      if (like != nullptr && like->vectors_ == nullptr) continue;
      if (like != nullptr) {
        statistics = like->vectors_->statistics();
      } else {
        const std::optional<ScheduleStatistics> estimate =
            EstimateSchedule(data_.weights, VectorSpec(data_, block.isa));
        if (!estimate) return OutOfMemory();
        statistics = *estimate;
      }
    }
    candidates.push_back({block, BlockCost(block, data_, statistics)});
  }
  // The best for `m` rows; null: the scheduled engine.
  const auto best = [&](int64_t m) {
    const auto cost = [&](const Candidate& candidate) {
      // One more form takes as much memory as the weights.
      const bool is_wasted =
          usual_.named == 0 && m < usual_.least && candidate.block.dot == jit::DotKind::kScheduled;
      return is_wasted ? std::numeric_limits<double>::infinity() : candidate.cost.Of(m);
    };
    const auto is_cheaper = [&](const Candidate& a, const Candidate& b) { return cost(a) < cost(b); };
    const auto found = std::min_element(candidates.begin(), candidates.end(), is_cheaper);
    const bool has = found != candidates.end();
    if (scheduled != nullptr && (!has || scheduled->Cost(m) < cost(*found))) return candidates.end();
    return found;
  };
  // One form for all rows.
  const bool names_rows = usual_.named != 0 && UsesSchedule(isa_, data_.problem.mode);
  if (names_rows) {
    const auto found = best(usual_.named);
    if (found == candidates.end()) return Needed{{}, true};
    const bool is_scheduled = found->block.dot == jit::DotKind::kScheduled;
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return (candidate.block.dot == jit::DotKind::kScheduled) != is_scheduled;
    });
    scheduled = nullptr;
  }
  Needed needed;
  for (int64_t m = 1; m <= kLargeM; m = m < 4 * 16 ? m + 1 : 2 * m) {
    const auto found = best(m);
    if (found == candidates.end()) {
      needed.scheduled = true;
    } else if (std::ranges::find(needed.blocks, found->block) == needed.blocks.end()) {
      needed.blocks.push_back(found->block);
    }
  }
  return needed;
}

Error GemmPlan::MakeEngines(const GemmPlan* like) {
  if (core::IsCompiled(isa_)) {
    engines_.push_back(std::make_unique<PortableEngine>(data_));
  } else if (Error error = MakeGeneratedEngines(like); error.status != INTACT_OK) {
    return error;
  }
  if (data_.problem.IsDynamic()) {
    ASSIGN_OR_RETURN(quantizer_, Quantizer::Create(isa_, data_.problem.a_type, data_.problem.a_source_type));
  }
  if (data_.epilogue.has_b_zero_points) {
    ASSIGN_OR_RETURN(row_sums_, RowSums::Create(isa_, data_.problem.a_type));
  }
  kernel_name_ = EngineFor(usual_.named == 0 ? kLargeM : usual_.named).KernelName();
  return {};
}

Error GemmPlan::MakeGeneratedEngines(const GemmPlan* like) {
  ASSIGN_OR_RETURN(std::unique_ptr<ScheduledEngine> scheduled, MakeScheduledEngine(like));
  ASSIGN_OR_RETURN(const Needed needed, NeededEngines(scheduled.get(), like));
  if (needed.scheduled) {
    RETURN_IF_ERROR(scheduled->Build());
    scheduled_ = scheduled.get();
    engines_.push_back(std::move(scheduled));
  }
  if (like != nullptr) vectors_ = like->vectors_;
  for (const KernelBlock& block : needed.blocks) {
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> panel, MakePanelEngine(block, &vectors_));
    engines_.push_back(std::move(panel));
  }
  if (UsesTiles(isa_) && !data_.IsPlanar()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> tiles, AmxEngine::Create(data_));
    engines_.push_back(std::move(tiles));
  }
  return {};
}

void GemmPlan::DropUnreadPanels() {
  if (data_.IsPlanar()) return;
  for (const Engine* const engine : OwnEngines()) {
    if (engine->ReadsPanels()) return;
  }
  if (vectors_ != nullptr) return weights().DropPanels(vectors_);
  weights().DropPanels(scheduled_->schedule());
}

Result<std::unique_ptr<Engine>> GemmPlan::MakePanelEngine(
    const KernelBlock& block, std::shared_ptr<const ScheduledVectors>* vectors) const {
  if (block.dot != jit::DotKind::kScheduled) return PanelEngine::Create(data_, block, nullptr);
  if (*vectors == nullptr) {
    auto made = std::make_shared<ScheduledVectors>();
    if (!made->Build(data_.weights, VectorSpec(data_, block.isa))) return OutOfMemory();
    *vectors = std::move(made);
  }
  return PanelEngine::Create(data_, block, *vectors);
}

bool GemmPlan::CanRun(const KernelBlock& block) const {
  if (data_.IsPlanar() || !Computes(block, isa_, data_.problem.mode)) return false;
  if (data_.problem.has_given_b && block.dot == jit::DotKind::kScheduled) return false;
  return block.dot != jit::DotKind::kScheduled ||
         (data_.taps().vector_step == 0 && data_.weights.quads() <= kMaxVectorQuads);
}

ScheduleStatistics GemmPlan::schedule_statistics() const {
  if (!UsesSchedule(isa_, data_.problem.mode)) return {};
  if (scheduled_ == nullptr && vectors_ == nullptr) return {};
  ScheduleStatistics statistics = scheduled_ == nullptr ? vectors_->statistics() : scheduled_->statistics();
  statistics.quads = data_.weights.quads() * data_.n;
  return statistics;
}

int64_t GemmPlan::packed_bytes() const {
  int64_t bytes = weights().bytes();
  for (const SkippingInitial& skipping : data_.skipping_initial) {
    bytes += static_cast<int64_t>(skipping.columns.bytes());
  }
  for (const auto& engine : engines_) bytes += engine->packed_bytes();
  for (const auto& engine : tuned_engines_) bytes += engine->packed_bytes();
  return bytes;
}

Error GemmPlan::CheckArguments(const intact_gemm_args& args) const {
  RETURN_IF_ERROR(CheckRows(args.m));
  RETURN_IF_ERROR(CheckBatch(args, data_.problem, data_.k));
  RETURN_IF_ERROR(CheckBatchArrays(args, data_.problem));
  const Batch batch(args, data_.problem, data_.k);
  RETURN_IF_ERROR(CheckStride("a_stride", args.a_stride, data_.k));
  for (int64_t i = 0; i < batch.items(); ++i) {
    const intact_gemm_args item = batch.Item(i);
    if (item.a == nullptr) return InvalidArgument("a is NULL");
    if (data_.problem.has_given_b && item.b == nullptr)
      return InvalidArgument("b is NULL; expected B, for runs give it (b_from_run)");
    // The strides as they are given: an item of joined rows has others.
    RETURN_IF_ERROR(CheckOutput(data_.problem.output, data_.n,
                                {item.c, args.c_stride, item.residual, args.residual_stride}));
    RETURN_IF_ERROR(CheckItemApart(item));
  }
  return CheckRowArguments(data_.problem, batch.rows(), args.a_zero_points, args.a_scales);
}

// That C of a batch's item has no byte of its inputs, except where the residual is C itself.
Error GemmPlan::CheckItemApart(const intact_gemm_args& item) const {
  const auto rows = [&](const char* name, const void* data, int64_t columns, int64_t stride, int bytes) {
    return MemoryRows{name, data, item.m, columns * bytes, (stride == 0 ? columns : stride) * bytes};
  };
  const Requantization& output = data_.problem.output;
  const MemoryRows c = rows("c", item.c, data_.n, item.c_stride, data_.element_bytes());
  Error error = CheckApart(c, rows("a", item.a, data_.k, item.a_stride, data_.problem.a_bytes()));
  if (error.status != INTACT_OK || item.residual == nullptr || item.residual == item.c) return error;
  return CheckApart(c, rows("the residual", item.residual, data_.n, item.residual_stride,
                            core::BytesOf(output.residual_type)));
}

RunBuffers GemmPlan::BuffersOf(const intact_gemm_args& args) const {
  RunBuffers buffers;
  buffers.a = RowMap(static_cast<const uint8_t*>(args.a),
                     (args.a_stride == 0 ? data_.k : args.a_stride) * data_.problem.a_bytes());
  buffers.given_zero_points = args.a_zero_points;
  buffers.given_scales = args.a_scales;
  buffers.output = OutputMap::Of(data_.problem.output, data_.n, args.c, args.c_stride, args.residual,
                                 args.residual_stride);
  buffers.may_stream = MayStream(buffers.output, args.m, data_.n * data_.element_bytes());
  return buffers;
}

int64_t GemmPlan::ShareBytes(const Engine& engine, int64_t m) const {
  int64_t bytes = engine.ScratchBytes(m);
  // A rest of rows may be another's.
  for (const auto* const engines : {&engines_, &tuned_engines_}) {
    for (const auto& other : *engines) {
      bytes = std::max(bytes, other->ScratchBytes(std::min<int64_t>(m, engine.mr())));
    }
  }
  return WeightBytes(data_) + RowValueBytes(data_) + QuantizedBytes(data_, m) + RoundUp(bytes, 64);
}

void GemmPlan::RunShare(const Engine& engine, const RunBuffers& buffers, const Range& range,
                        uint8_t* scratch) const {
  if (range.Empty()) return;
  const ScopedFloatEnvironment float_environment;
  if (data_.epilogue.has_row_values()) {
    RunWithRowValues(engine, buffers, range, scratch);
  } else {
    RunRows(engine, buffers, range, scratch);
  }
  if (buffers.may_stream) _mm_sfence();  // non-temporal stores are ordered by nothing else
}

// The engine for those of `m` rows that do not fill the vectors of `engine`; null if that had better run all
// of them.
const Engine* GemmPlan::EngineForRest(const Engine& engine, int64_t m) const {
  const int64_t whole = engine.WholeRows(m);
  if (whole == m || whole == 0 || run_all_as_ != 0) return nullptr;
  const Engine& other = EngineFor(m - whole);
  return engine.Cost(whole) + other.Cost(m - whole) < engine.Cost(m) ? &other : nullptr;
}

// Null too if the other engine cannot begin or end where the range does.
const Engine* GemmPlan::EngineForRest(const Engine& engine, const Range& range) const {
  const Engine* const other = EngineForRest(engine, range.row_end - range.row_begin);
  const auto is_cut = [&](int64_t column) { return column == data_.n || column % other->nr() == 0; };
  return other != nullptr && is_cut(range.column_begin) && is_cut(range.column_end) ? other : nullptr;
}

double GemmPlan::RowsCost(const Engine& engine, int64_t rows) const {
  const Engine* const other = EngineForRest(engine, rows);
  if (other == nullptr) return engine.Cost(rows);
  const int64_t whole = engine.WholeRows(rows);
  return engine.Cost(whole) + other->Cost(rows - whole);
}

int64_t GemmPlan::AnyColumnStep() const {
  int64_t step = 1;
  for (const auto* const engines : {&engines_, &tuned_engines_}) {
    for (const auto& engine : *engines) step = std::lcm(step, engine->nr());
  }
  return step;
}

Partition GemmPlan::Cut(const Engine& engine, int64_t m, int parts) const {
  class Cost final : public RowCost {
   public:
    Cost(const GemmPlan& plan, const Engine& engine) : plan_(plan), engine_(engine) {}
    double Of(int64_t rows) const override { return plan_.RowsCost(engine_, rows); }

   private:
    const GemmPlan& plan_;
    const Engine& engine_;
  };
  SharedOutput output;
  output.m = m;
  output.n = data_.n;
  output.row_step = engine.row_step();
  output.least_row_step = engine.least_row_step();
  output.any_column_step = AnyColumnStep();
  output.column_step = engine.nr();
  output.line_columns = LineColumns(data_.n, data_.element_bytes());
  return Partition::Choose(output, parts, Cost(*this, engine));
}

double GemmPlan::Work(const Engine& engine, const Range& range) const {
  if (range.Empty()) return 0;
  const int64_t rows = range.row_end - range.row_begin;
  const auto work = [&](const Engine& runs, int64_t m) {
    const int64_t columns = RoundUp(range.column_end - range.column_begin, runs.column_step());
    return runs.Cost(m) * static_cast<double>(columns * data_.k);
  };
  const Engine* const other = EngineForRest(engine, range);
  if (other == nullptr) return work(engine, rows);
  const int64_t whole = engine.WholeRows(rows);
  return work(engine, whole) + work(*other, rows - whole);
}

void GemmPlan::RunRows(const Engine& engine, const RunBuffers& buffers, const Range& range,
                       uint8_t* scratch) const {
  const Engine* const other = EngineForRest(engine, range);
  if (other == nullptr) return engine.RunRange(buffers, range, scratch);
  Range whole = range;
  Range rest = range;
  whole.row_end = rest.row_begin = range.row_begin + engine.WholeRows(range.row_end - range.row_begin);
  engine.RunRange(buffers, whole, scratch);
  other->RunRange(buffers, rest, scratch);
}

void GemmPlan::RunWithRowValues(const Engine& engine, RunBuffers buffers, const Range& range,
                                uint8_t* scratch) const {
  auto* const values = reinterpret_cast<RowValues*>(scratch);
  uint8_t* const quantized = scratch + RowValueBytes(data_);
  const RowMap source = buffers.rows();
  const int64_t rows = PieceRows(data_.k);
  for (int64_t row = range.row_begin; row < range.row_end; row += rows) {
    Range piece = range;
    piece.row_begin = row;
    piece.row_end = std::min(range.row_end, row + rows);
    if (data_.problem.IsDynamic()) {
      buffers.a = QuantizeRows(source, buffers.tensor, piece, quantized, values);
    } else if (data_.problem.a_quantization == INTACT_QUANTIZATION_ROWS) {
      CopyGiven(buffers, piece, values);
    }
    if (data_.epilogue.has_b_zero_points) {
      row_sums_.Sum(buffers.rows(), row, piece.row_end, data_.taps(), values->sums.data());
    }
    buffers.row_values = values;
    buffers.row_values_begin = row;
    RunRows(engine, buffers, piece, quantized + QuantizedBytes(data_, range.row_end - range.row_begin));
    if (data_.problem.IsDynamic()) FillWithoutScale(*values, buffers.output, piece);
  }
}

RowMap GemmPlan::QuantizeRows(const RowMap& source, const RowQuantization& tensor, const Range& piece,
                              uint8_t* quantized, RowValues* values) const noexcept {
  const int64_t stride = QuantizedStride(data_.k);
  RowMap rows(quantized, stride);
  rows.origin -= static_cast<uintptr_t>(piece.row_begin * stride);
  RowCursor cursor(source, piece.row_begin);
  for (size_t i = 0; i < static_cast<size_t>(piece.row_end - piece.row_begin); ++i, quantized += stride) {
    const uint8_t* const x = cursor.Next();
    const bool is_by_rows = data_.problem.a_quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
    const RowQuantization how = is_by_rows ? quantizer_.Choose(quantizer_.Scan(x, data_.k)) : tensor;
    quantizer_.Quantize(x, data_.k, how, quantized);
    values->zero_points[i] = how.zero_point;
    values->scales[i] = how.scale;
  }
  return rows;
}

void GemmPlan::CopyGiven(const RunBuffers& buffers, const Range& piece, RowValues* values) const noexcept {
  const int64_t rows = piece.row_end - piece.row_begin;
  if (buffers.given_zero_points == nullptr) {
    std::fill_n(values->zero_points.begin(), rows, 0);
  } else {
    std::copy_n(buffers.given_zero_points + piece.row_begin, rows, values->zero_points.begin());
  }
  if (buffers.given_scales == nullptr) return;
  std::copy_n(buffers.given_scales + piece.row_begin, rows, values->scales.begin());
}

void GemmPlan::FillWithoutScale(const RowValues& values, const OutputMap& output,
                                const Range& piece) const noexcept {
  const intact_type c_type = data_.problem.output.c_type;
  if (!core::IsFloat(c_type)) return;
  for (int64_t row = piece.row_begin; row < piece.row_end; ++row) {
    if (!std::isnan(values.scales[static_cast<size_t>(row - piece.row_begin)])) continue;
    FillWithNan(c_type, piece.column_end - piece.column_begin, output.C(row, piece.column_begin));
  }
}

// Shares of many threads: each finds the range of some rows.
RowQuantization GemmPlan::FindTensor(const Batch& batch, int threads) const {
  if (data_.problem.a_quantization != INTACT_QUANTIZATION_DYNAMIC_TENSOR) return {};
  const ScopedFloatEnvironment float_environment;
  constexpr int kMostShares = 64;
  std::array<NumberRange, kMostShares> ranges;
  const int shares = std::min(threads, kMostShares);
  RunParts({shares, shares}, [&](int share, int /*thread*/) {
    NumberRange* const range = &ranges[static_cast<size_t>(share)];
    const int64_t end = batch.rows() * (share + 1) / shares;
    for (int64_t row = batch.rows() * share / shares; row < end;) {
      const RunBuffers buffers = BuffersOf(batch.Item(row / batch.m()));
      const int64_t item_end = std::min(end, (row / batch.m() + 1) * batch.m());
      for (RowCursor cursor(buffers.rows(), row % batch.m()); row < item_end; ++row) {
        range->Add(quantizer_.Scan(cursor.Next(), data_.k));
      }
    }
  });
  for (int share = 1; share < shares; ++share) ranges[0].Add(ranges[static_cast<size_t>(share)]);
  return quantizer_.Choose(ranges[0]);
}

const Engine& GemmPlan::EngineFor(int64_t m) const {
  const auto tuned = FirstTunedFrom(m);
  return tuned != tuned_.end() && tuned->first == m ? *tuned->second : ModelEngineFor(m);
}

const Engine& GemmPlan::ModelEngineFor(int64_t m) const {
  if (run_all_as_ != 0) m = run_all_as_;
  const auto cheaper = [&](const auto& a, const auto& b) { return a->Cost(m) < b->Cost(m); };
  return **std::min_element(engines_.begin(), engines_.end(), cheaper);
}

Error GemmPlan::Prepare(const intact_gemm_args& args, intact_run_info* info) const {
  RETURN_IF_ERROR(CheckRows(args.m));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  RETURN_IF_ERROR(CheckBatch(args, data_.problem, data_.k));
  const Batch batch(args, data_.problem, data_.k);
  const Engine& engine = EngineFor(batch.m());
  const Partition cut = Cut(engine, batch.m(), batch.PartsPerItem(Threads(args)));
  const ThreadCount count = CountThreads(batch, cut, Threads(args));
  const int64_t bytes = ShareBytes(engine, batch.m());
  info->output[0] = args.m;
  info->output[1] = data_.n;
  info->output[2] = 1;
  info->scratch_bytes = ScratchSize(bytes * count.threads);
  info->part_scratch_bytes = ScratchSize(bytes);
  return {};
}

std::vector<Share> GemmPlan::Shares(int64_t m, int threads) const {
  const Engine& engine = EngineFor(m);
  const Partition cut = Cut(engine, m, threads);
  std::vector<Share> shares(static_cast<size_t>(cut.parts()));
  for (int part = 0; part < cut.parts(); ++part) {
    const Range range = cut.Share(part);
    Share& share = shares[static_cast<size_t>(part)];
    share.Add(range.row_begin, 1, range);
    share.work = Work(engine, range);
  }
  return shares;
}

// A part is one of the cut of one of the items.
ThreadCount GemmPlan::CountThreads(const Batch& batch, const Partition& cut, int threads) {
  ThreadCount count = kernels::CountThreads(static_cast<int>(batch.items() * cut.parts()));
  count.threads = std::min(count.threads, threads);
  return count;
}

void GemmPlan::RunBatchShare(const Engine& engine, const Batch& batch, const Partition& cut, int64_t share,
                             const RowQuantization& tensor, uint8_t* scratch) const {
  const intact_gemm_args item = batch.Item(share / cut.parts());
  const Range range = cut.Share(static_cast<int>(share % cut.parts()));
  if (range.Empty()) return;
  RunBuffers buffers = BuffersOf(item);
  buffers.tensor = tensor;
  GivenWeights given;
  if (data_.problem.has_given_b) {
    given = PackGiven(*data_.linear, {static_cast<const int8_t*>(item.b), item.b_scales, item.b_zero_points},
                      range.column_begin, range.column_end, scratch);
    buffers.weights = &given;
  }
  RunShare(engine, buffers, range, scratch + WeightBytes(data_));
}

Error GemmPlan::Run(const intact_gemm_args& args) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckThreads(args.threads));
  const Batch batch(args, data_.problem, data_.k);
  const Engine& engine = EngineFor(batch.m());
  const int threads = Threads(args);
  const Partition cut = Cut(engine, batch.m(), batch.PartsPerItem(threads));
  ThreadCount count = CountThreads(batch, cut, threads);
  const int64_t bytes = ShareBytes(engine, batch.m());
  ASSIGN_OR_RETURN(uint8_t* const scratch,
                   ScratchOf(args.scratch, args.scratch_bytes, bytes, &count.threads));
  const RowQuantization tensor = FindTensor(batch, count.threads);
  RunParts(count, [&](int part, int thread) {
    RunBatchShare(engine, batch, cut, part, tensor, scratch + thread * bytes);
  });
  return {};
}

Error GemmPlan::RunPart(const intact_gemm_args& args, int32_t part, int32_t parts) const {
  RETURN_IF_ERROR(CheckArguments(args));
  RETURN_IF_ERROR(CheckPart(part, parts));
  const Batch batch(args, data_.problem, data_.k);
  const Engine& engine = EngineFor(batch.m());
  int threads = 1;
  ASSIGN_OR_RETURN(uint8_t* const scratch,
                   ScratchOf(args.scratch, args.scratch_bytes, ShareBytes(engine, batch.m()), &threads));
  const Partition cut = Cut(engine, batch.m(), batch.PartsPerItem(parts));
  const RowQuantization tensor = FindTensor(batch, 1);
  const int64_t shares = batch.items() * cut.parts();
  // As many of one item as there are parts are those parts; an empty one is a part's that there is not.
  if (batch.items() == 1) {
    if (part < shares) RunBatchShare(engine, batch, cut, part, tensor, scratch);
    return {};
  }
  for (int64_t share = shares * part / parts; share < shares * (part + 1) / parts; ++share) {
    RunBatchShare(engine, batch, cut, share, tensor, scratch);
  }
  return {};
}

}  // namespace intact::kernels
