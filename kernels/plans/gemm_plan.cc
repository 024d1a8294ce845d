#include "kernels/plans/gemm_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/base/threads.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/amx_engine.h"
#include "kernels/engines/block_cost.h"
#include "kernels/engines/panel_engine.h"
#include "kernels/engines/scheduled_engine.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {
namespace {

// Rows whose sums are taken at a time: whole blocks of most engines that stay in half of L2, where the engine
// then finds them; and few enough to bound the memory for the sums.
int64_t SummedRows(int64_t k) {
  constexpr int kUnit = 192;
  constexpr int64_t kMost = int64_t{24} * kUnit;
  return std::min(RowsPerBlock(k, kUnit), kMost);
}

int64_t RowSumBytes(const GemmData& data) {
  if (!data.epilogue.has_b_zero_points) return 0;
  return RoundUp(SummedRows(data.k) * static_cast<int64_t>(sizeof(int32_t)), 64);
}

constexpr int64_t kLargeM = 1024;  // the M that a plan's kernel is named for

Error OutOfMemory(const char* what) { return {INTACT_OUT_OF_MEMORY, std::string("no memory for ") + what}; }

Error Invalid(const std::string& name, int64_t value, const std::string& expected) {
  return {INTACT_INVALID_ARGUMENT, name + " is " + std::to_string(value) + "; expected " + expected};
}

}  // namespace

Result<std::unique_ptr<GemmPlan>> GemmPlan::Create(const intact_gemm_desc& desc, const void* b) {
  const ScopedFloatEnvironment float_environment;
  const Result<GemmProblem> problem = CheckDescriptor(desc, b);
  if (!problem) return problem.error();
  Taps taps;
  taps.depth = problem->k;
  return Create(*problem, taps);
}

Result<std::unique_ptr<GemmPlan>> GemmPlan::Create(const GemmProblem& problem, const Taps& taps) {
  const Result<jit::Isa> isa = ChooseIsa(problem.isas);
  if (!isa) return isa.error();
  std::unique_ptr<GemmPlan> plan(new GemmPlan);
  plan->isa_ = *isa;
  GemmData& data = plan->data_;
  data.n = problem.n;
  data.k = problem.k;
  data.taps = taps;
  data.a_type = problem.a_type;
  data.b_type = problem.b_type;
  data.mode = problem.mode;
  data.a_zero_point = problem.a_zero_point;
  data.range = problem.range;
  data.is_range_checked = problem.is_range_checked;
  data.epilogue = problem.epilogue;
  data.naming = problem.naming;
  data.residual = problem.residual;
  if (!PackWeights(problem.b, &data.weights)) return OutOfMemory("packed weights");
  Error error = plan->SetColumns(problem);
  if (error.status != INTACT_OK) return error;
  data.certificate = Certify(data.weights, data.range);
  error = plan->Finish();
  if (error.status != INTACT_OK) return error;
  return plan;
}

Result<std::unique_ptr<GemmPlan>> GemmPlan::Load(const void* image, size_t size, intact_isa max_isa,
                                                 std::shared_ptr<const void> mapping) {
  const ScopedFloatEnvironment float_environment;
  const Result<jit::IsaSet> isas = PermittedIsas(max_isa);
  if (!isas) return isas.error();
  const Result<jit::Isa> isa = ChooseIsa(*isas);
  if (!isa) return isa.error();
  std::unique_ptr<GemmPlan> plan(new GemmPlan);
  plan->isa_ = *isa;
  plan->mapping_ = std::move(mapping);
  Error error = ReadPackImage(image, size, &plan->data_);
  plan->data_.taps.depth = plan->data_.k;
  if (error.status == INTACT_OK) error = plan->Finish();
  if (error.status != INTACT_OK) return error;
  return plan;
}

Error GemmPlan::Finish() {
  data_.constants = MakeEpilogueConstants(data_.bounds, data_.residual, isa_);
  Error error = BoundAccumulators();
  if (error.status != INTACT_OK) return error;
  error = SetSkippingInitial();
  if (error.status != INTACT_OK) return error;
  EpilogueSpec& epilogue = data_.epilogue;
  if (epilogue.residual != INTACT_F32) {  // which may be anything
    const double largest = largest_output_ + 255.0 * double{data_.residual.scale};
    epilogue.known = KnowOutput(epilogue.c_type, data_.bounds, largest);
  }
  return MakeEngines();
}

Error GemmPlan::SetColumns(const GemmProblem& problem) {
  const auto padded = static_cast<size_t>(data_.weights.panels() * kPanelColumns);
  // Padding columns are computed and dropped; they repeat the last one.
  const auto column = [&](size_t n) { return std::min(n, static_cast<size_t>(data_.n) - 1); };
  if (problem.bias_s32 != nullptr) {
    if (!data_.bias_s32.Resize(padded)) return OutOfMemory("bias_s32");
    for (size_t n = 0; n < padded; ++n) data_.bias_s32[n] = problem.bias_s32[column(n)];
  }
  if (problem.clamp_excess != nullptr) {
    data_.clamp_excess.assign(problem.clamp_excess, problem.clamp_excess + problem.n);
  }
  data_.bounds = {problem.lo, problem.hi, problem.c_zero_point};
  Error error = SetWeightZeroPoints(problem);
  if (error.status != INTACT_OK) return error;
  if (problem.epilogue.c_type == INTACT_S32) return {};
  if (!data_.scales.Resize(padded)) return OutOfMemory("scales");
  for (size_t n = 0; n < padded; ++n)
    data_.scales[n] = problem.scales[problem.scale_count == 1 ? 0 : column(n)];
  if (!problem.epilogue.has_bias) return {};
  if (!data_.bias.Resize(padded)) return OutOfMemory("bias_f32");
  for (size_t n = 0; n < padded; ++n) data_.bias[n] = problem.bias_f32[column(n)];
  return {};
}

int32_t GemmProblem::WeightZeroPoint(int64_t column) const {
  const int32_t shift = WeightFlip(b_type);
  if (b_zero_point_count == 0) return -shift;
  return b_zero_points[b_zero_point_count == 1 ? 0 : column] - shift;
}

bool GemmProblem::HasWeightZeroPoints() const {
  for (int64_t column = 0; column < n; ++column) {
    if (WeightZeroPoint(column) != 0) return true;
  }
  return false;
}

Error GemmPlan::SetWeightZeroPoints(const GemmProblem& problem) {
  if (!problem.HasWeightZeroPoints()) return {};
  const auto padded = static_cast<size_t>(data_.weights.panels() * kPanelColumns);
  if (!data_.b_zero_points.Resize(padded)) return OutOfMemory("b_zero_points");
  for (size_t i = 0; i < padded; ++i) {
    data_.b_zero_points[i] = problem.WeightZeroPoint(std::min(static_cast<int64_t>(i), data_.n - 1));
  }
  data_.epilogue.has_b_zero_points = !data_.taps.planar;  // else they are folded into the schedule
  return {};
}

Error GemmPlan::BoundAccumulators() {
  // A checked range is a hint: any activation must come out right.
  const ActivationRange admissible = data_.is_range_checked ? ActivationRange{} : data_.range;
  const auto padded = static_cast<size_t>(data_.weights.panels() * kPanelColumns);
  if (!data_.initial.Resize(padded)) return OutOfMemory("column sums");
  data_.certificate.accumulator_min = std::numeric_limits<int64_t>::max();
  data_.certificate.accumulator_max = std::numeric_limits<int64_t>::min();
  std::fill_n(data_.initial.data(), padded, 0);  // padding columns are computed and dropped
  for (int64_t panel = 0; panel < data_.weights.panels(); ++panel) {
    const int64_t first = panel * kPanelColumns;
    const auto columns = static_cast<size_t>(std::min<int64_t>(kPanelColumns, data_.n - first));
    std::array<ColumnParts, kPanelColumns> parts;
    std::copy_n(data_.certificate.column_sums.begin() + first, kPanelColumns, parts.begin());
    if (data_.b_zero_points.size() != 0) {
      std::array<int32_t, kPanelColumns> zero_points = {};
      for (size_t i = 0; i < columns; ++i) {
        zero_points[i] = data_.b_zero_point(static_cast<size_t>(first) + i);
      }
      parts = SumPanel(data_.weights, panel, zero_points);
    }
    for (size_t i = 0; i < columns; ++i) {
      Error error = BoundColumn(first + static_cast<int64_t>(i), parts[i], admissible);
      if (error.status != INTACT_OK) return error;
    }
  }
  return {};
}

Error GemmPlan::BoundColumn(int64_t n, const ColumnParts& parts, ActivationRange admissible) {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const auto i = static_cast<size_t>(n);
  const int64_t bias = data_.bias_s32.size() == 0 ? 0 : data_.bias_s32[i];
  const int64_t initial = bias - (data_.a_zero_point + data_.shift()) * (parts.positive + parts.negative);
  // The exact sums decide in both modes, and clamped ones in saturating mode on every ISA, so that every ISA
  // refuses the same problems.
  std::vector<ColumnBound> bounds = {parts.Bound(admissible)};
  const int64_t excess = data_.clamp_excess.empty() ? 0 : data_.clamp_excess[i];
  if (data_.mode == INTACT_SATURATING) {
    bounds.push_back(BoundSaturatingColumn(data_.weights, n, data_.b_zero_point(i), admissible));
    bounds.back().lowest += excess;
    bounds.back().highest += excess;
  }
  for (const ColumnBound& bound : bounds) {
    const int64_t lowest = initial + bound.lowest;
    const int64_t highest = initial + bound.highest;
    if (lowest >= kMin && highest <= kMax) continue;
    const Naming& naming = data_.naming;
    return {INTACT_OVERFLOW, std::string(naming.column) + " " + std::to_string(naming.first_column + n) +
                                 " of " + naming.weights + " can accumulate " +
                                 std::to_string(lowest < kMin ? lowest : highest) +
                                 ", which leaves int32; its depth is " +
                                 std::to_string(naming.depth == 0 ? data_.k : naming.depth)};
  }
  for (const ColumnBound& bound : bounds) {
    const double largest = std::max(std::abs(static_cast<double>(initial + bound.lowest)),
                                    std::abs(static_cast<double>(initial + bound.highest)));
    const double scale = data_.scales.size() == 0 ? 1.0 : double{data_.scales[i]};
    const double added = data_.bias.size() == 0 ? 0.0 : std::abs(double{data_.bias[i]});
    largest_output_ = std::max(largest_output_, largest * scale + added);
  }
  // Modulo 2³²: intermediate sums may wrap, the final one is proven to fit.
  const int64_t start = initial + (PairsSaturate(isa_, data_.mode) ? excess : 0);
  data_.initial[i] = static_cast<int32_t>(static_cast<uint32_t>(start));
  const ColumnBound declared = parts.Bound(data_.range);
  Certificate& certificate = data_.certificate;
  certificate.accumulator_min = std::min(certificate.accumulator_min, initial + declared.lowest);
  certificate.accumulator_max = std::max(certificate.accumulator_max, initial + declared.highest);
  return {};
}

Error GemmPlan::SetSkippingInitial() {
  const Taps& taps = data_.taps;
  if (taps.line_taps.empty() && !taps.HasLineEnds()) return {};
  std::vector<TapRange> ranges = {{0, taps.count()}};
  for (const TapRange& range : taps.line_taps) {
    if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) ranges.push_back(range);
  }
  for (const TapRange& range : ranges) {
    Error error = AddSkippingInitial(range);
    if (error.status != INTACT_OK) return error;
  }
  return {};
}

// Padding contributes za'·Σ b' (pack.h), which the column's constant takes over.
Error GemmPlan::AddSkippingInitial(const TapRange& range) {
  const Taps& taps = data_.taps;
  const auto zero_point = static_cast<uint32_t>(data_.a_zero_point + data_.shift());
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
  if (!made.columns.Resize(padding.size())) return OutOfMemory("column sums");
  for (size_t i = 0; i < padding.size(); ++i) {
    const auto initial = static_cast<uint32_t>(data_.initial[i % columns]);
    made.columns[i] = static_cast<int32_t>(initial + zero_point * padding[i]);
  }
  return {};
}

// Of the blocks of this ISA and form, those that some M would choose.
std::vector<KernelBlock> GemmPlan::BlocksInUse() const {
  std::vector<std::pair<KernelBlock, BlockCost>> candidates;
  for (const KernelBlock& block : kKernels) {
    if (block.isa != VectorIsa(isa_) || block.dot != DotOf(isa_, data_.mode)) continue;
    candidates.emplace_back(block, BlockCost(block, data_));
  }
  std::vector<KernelBlock> used;
  const auto best = [&](int64_t m) {
    const auto is_cheaper = [&](const auto& a, const auto& b) { return a.second.Of(m) < b.second.Of(m); };
    return std::min_element(candidates.begin(), candidates.end(), is_cheaper)->first;
  };
  for (int64_t m = 1; m <= kLargeM; m = m < 4 * 16 ? m + 1 : 2 * m) {
    const KernelBlock block = best(m);
    if (std::find(used.begin(), used.end(), block) == used.end()) used.push_back(block);
  }
  return used;
}

Error GemmPlan::MakeEngines() {
  if (data_.taps.is_depthwise) return {};
  if (!data_.taps.planar) {
    Error error = MakePanelEngines();
    if (error.status != INTACT_OK) return error;
  }
  if (UsesSchedule(isa_, data_.mode) || data_.taps.planar) {
    Error error = MakeScheduledEngine();
    if (error.status != INTACT_OK) return error;
  }
  if (UsesTiles(isa_) && !data_.taps.planar) {
    Result<std::unique_ptr<Engine>> tiles = AmxEngine::Create(data_);
    if (!tiles) return tiles.error();
    engines_.push_back(std::move(*tiles));
  }
  if (data_.epilogue.has_b_zero_points) {
    const Result<RowSums> row_sums = RowSums::Create(isa_, data_.a_type);
    if (!row_sums) return row_sums.error();
    row_sums_ = *row_sums;
  }
  kernel_name_ = EngineFor(kLargeM).KernelName();
  return {};
}

Error GemmPlan::MakePanelEngines() {
  for (const KernelBlock& block : BlocksInUse()) {
    Result<std::unique_ptr<Engine>> panel = PanelEngine::Create(data_, block);
    if (!panel) return panel.error();
    engines_.push_back(std::move(*panel));
  }
  return {};
}

Error GemmPlan::MakeScheduledEngine() {
  std::unique_ptr<ScheduledEngine> fallback;
  const jit::Isa isa = VectorIsa(isa_);
  if (UsesSchedule(isa, data_.mode) && data_.range.high < 255 && data_.is_range_checked) {
    Result<std::unique_ptr<ScheduledEngine>> full = ScheduledEngine::Create(data_, isa, 255, nullptr);
    if (!full) return full.error();
    fallback = std::move(*full);
  }
  auto grouped = ScheduledEngine::Create(data_, isa, data_.range.high, std::move(fallback));
  if (!grouped) return grouped.error();
  grouped_ = grouped->get();
  engines_.push_back(std::move(*grouped));
  return {};
}

ScheduleStatistics GemmPlan::schedule_statistics() const {
  if (!UsesSchedule(isa_, data_.mode) || grouped_ == nullptr) return {};
  ScheduleStatistics statistics = grouped_->statistics();
  statistics.quads = statistics.quads / (data_.weights.panels() * kPanelColumns) * data_.n;
  return statistics;
}

int64_t GemmPlan::packed_bytes() const {
  int64_t bytes = data_.weights.bytes();
  for (const size_t part : {data_.initial.bytes(), data_.bias_s32.bytes(), data_.b_zero_points.bytes(),
                            data_.scales.bytes(), data_.bias.bytes()}) {
    bytes += static_cast<int64_t>(part);
  }
  for (const SkippingInitial& skipping : data_.skipping_initial) {
    bytes += static_cast<int64_t>(skipping.columns.bytes());
  }
  for (const auto& engine : engines_) bytes += engine->packed_bytes();
  return bytes;
}

Error CheckPart(int part, int parts) {
  if (parts >= 1 && part >= 0 && part < parts) return {};
  return {INTACT_INVALID_ARGUMENT,
          "part is " + std::to_string(part) + " of " + std::to_string(parts) + "; expected 0 to parts − 1"};
}

Error CheckResidual(const EpilogueSpec& epilogue, int64_t columns, const ResidualArguments& arguments) {
  const bool is_given = arguments.residual != nullptr;
  if (is_given != epilogue.has_residual()) {
    return {INTACT_INVALID_ARGUMENT, is_given ? "residual is given; expected NULL, for the plan has none"
                                              : "residual is NULL; expected a tensor of the plan's type"};
  }
  const int64_t stride = arguments.residual_stride;
  if (stride != 0 && (stride < columns || stride > kMaxStride)) {
    return Invalid("residual_stride", stride, "0 or at least " + std::to_string(columns) + ", at most 2^40");
  }
  if (!is_given || arguments.residual != arguments.c) return {};
  const int bytes = ElementBytes(epilogue.residual);
  if (bytes != ElementBytes(epilogue.c_type)) {
    return {INTACT_INVALID_ARGUMENT,
            "residual is c, whose elements are of another size; expected a tensor of " +
                std::to_string(bytes) + "-byte elements beside c"};
  }
  const auto or_dense = [&](int64_t given) { return given == 0 ? columns : given; };
  if (or_dense(stride) != or_dense(arguments.c_stride)) {
    return Invalid("residual_stride", stride,
                   "c_stride, which is " + std::to_string(arguments.c_stride) + ", for residual is c");
  }
  return {};
}

Error GemmPlan::CheckArguments(const intact_gemm_args& args) const {
  if (args.struct_size != sizeof(intact_gemm_args)) {
    return Invalid("args->struct_size", static_cast<int64_t>(args.struct_size),
                   "that of INTACT_GEMM_ARGS_INIT");
  }
  if (args.m < 1 || args.m > std::numeric_limits<int32_t>::max()) {
    return Invalid("m", args.m, "1 to 2147483647");
  }
  if (args.a == nullptr) return {INTACT_INVALID_ARGUMENT, "a is NULL"};
  if (args.c == nullptr) return {INTACT_INVALID_ARGUMENT, "c is NULL"};
  if (args.a_stride != 0 && (args.a_stride < data_.k || args.a_stride > kMaxStride)) {
    return Invalid("a_stride", args.a_stride, "0 or at least k, at most 2^40");
  }
  if (args.c_stride != 0 && (args.c_stride < data_.n || args.c_stride > kMaxStride)) {
    return Invalid("c_stride", args.c_stride, "0 or at least n, at most 2^40");
  }
  return CheckResidual(data_.epilogue, data_.n, {args.residual, args.residual_stride, args.c, args.c_stride});
}

RunBuffers GemmPlan::BuffersOf(const intact_gemm_args& args) const {
  RunBuffers buffers;
  buffers.a = RowMap(static_cast<const uint8_t*>(args.a), args.a_stride == 0 ? data_.k : args.a_stride);
  buffers.c = static_cast<uint8_t*>(args.c);
  buffers.c_stride_bytes = (args.c_stride == 0 ? data_.n : args.c_stride) * data_.element_bytes();
  buffers.residual = static_cast<const uint8_t*>(args.residual);
  buffers.residual_stride_bytes =
      (args.residual_stride == 0 ? data_.n : args.residual_stride) * data_.residual_bytes();
  buffers.may_stream = MayStream(buffers, args.m, data_.n * data_.element_bytes());
  return buffers;
}

int64_t GemmPlan::ShareBytes(const Engine& engine, int64_t m) const {
  int64_t bytes = engine.ScratchBytes(m);
  for (const auto& other : engines_)
    bytes = std::max(bytes, other->ScratchBytes(std::min<int64_t>(m, engine.mr())));
  return RowSumBytes(data_) + RoundUp(bytes, 64);
}

void GemmPlan::RunShare(const Engine& engine, const RunBuffers& buffers, const Range& range,
                        uint8_t* scratch) const {
  if (range.Empty()) return;
  const ScopedFloatEnvironment float_environment;
  if (data_.epilogue.has_b_zero_points) {
    RunWithRowSums(engine, buffers, range, scratch);
  } else {
    RunRows(engine, buffers, range, scratch);
  }
  if (buffers.may_stream) _mm_sfence();  // non-temporal stores are ordered by nothing else
}

// Null if `engine` had better run all of `m` rows.
const Engine* GemmPlan::EngineForRest(const Engine& engine, int64_t m) const {
  const int64_t whole = engine.WholeRows(m);
  if (whole == m || whole == 0 || run_all_as_ != 0) return nullptr;
  const Engine& other = EngineFor(m - whole);
  return engine.Cost(whole) + other.Cost(m - whole) < engine.Cost(m) ? &other : nullptr;
}

void GemmPlan::RunRows(const Engine& engine, const RunBuffers& buffers, const Range& range,
                       uint8_t* scratch) const {
  const int64_t rows = range.row_end - range.row_begin;
  const Engine* const other = EngineForRest(engine, rows);
  const auto is_cut = [&](int64_t column) { return column == data_.n || column % other->nr() == 0; };
  if (other == nullptr || !is_cut(range.column_begin) || !is_cut(range.column_end)) {
    return engine.RunRange(buffers, range, scratch);
  }
  Range whole = range;
  Range rest = range;
  whole.row_end = rest.row_begin = range.row_begin + engine.WholeRows(rows);
  engine.RunRange(buffers, whole, scratch);
  other->RunRange(buffers, rest, scratch);
}

void GemmPlan::RunWithRowSums(const Engine& engine, RunBuffers buffers, const Range& range,
                              uint8_t* scratch) const {
  auto* const sums = reinterpret_cast<int32_t*>(scratch);
  buffers.row_sums = sums;
  const int64_t rows = SummedRows(data_.k);
  for (int64_t row = range.row_begin; row < range.row_end; row += rows) {
    Range piece = range;
    piece.row_begin = row;
    piece.row_end = std::min(range.row_end, row + rows);
    row_sums_.Sum(buffers.a, row, piece.row_end, data_.taps, sums);
    buffers.row_sums_begin = row;
    RunRows(engine, buffers, piece, scratch + RowSumBytes(data_));
  }
}

const Engine& GemmPlan::EngineFor(int64_t m) const {
  if (run_all_as_ != 0) m = run_all_as_;
  const auto cheaper = [&](const auto& a, const auto& b) { return a->Cost(m) < b->Cost(m); };
  return **std::min_element(engines_.begin(), engines_.end(), cheaper);
}

Error GemmPlan::Run(const intact_gemm_args& args) const {
  Error error = CheckArguments(args);
  if (error.status != INTACT_OK) return error;
  if (args.threads < 0) {
    return {INTACT_INVALID_ARGUMENT, "threads is " + std::to_string(args.threads) + "; expected 0 or more"};
  }
  const Engine& engine = EngineFor(args.m);
  const RunBuffers buffers = BuffersOf(args);
  const int64_t tiles = TileCount(args.m, data_.n, engine.mr(), engine.nr());
  const ThreadCount count = CountThreads(args.threads, tiles);
  const int64_t bytes = ShareBytes(engine, args.m);
  uint8_t* scratch = ThreadScratch(bytes * count.threads);
  if (scratch == nullptr) return OutOfMemory("panels of a");
  RunParts(count, [&](int part, int thread) {
    const Range range = Partition(args.m, data_.n, engine.mr(), engine.nr(), part, count.parts);
    RunShare(engine, buffers, range, scratch + thread * bytes);
  });
  return {};
}

Error GemmPlan::RunPart(const intact_gemm_args& args, int part, int parts) const {
  Error error = CheckArguments(args);
  if (error.status == INTACT_OK) error = CheckPart(part, parts);
  if (error.status != INTACT_OK) return error;
  const Engine& engine = EngineFor(args.m);
  uint8_t* scratch = ThreadScratch(ShareBytes(engine, args.m));
  if (scratch == nullptr) return OutOfMemory("panels of a");
  const Range range = Partition(args.m, data_.n, engine.mr(), engine.nr(), part, parts);
  RunShare(engine, BuffersOf(args), range, scratch);
  return {};
}

}  // namespace intact::kernels
