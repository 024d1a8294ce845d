#include "kernels/engines/scheduled_sums.h"

#include <cassert>
#include <new>
#include <optional>
#include <utility>

#include "kernels/codegen/dispatch.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {

ScheduledSums::ScheduledSums(const KernelData& data, core::Isa isa, int amax)
    : data_(data), isa_(isa), amax_(amax), lanes_(jit::VectorBytes(isa) / 4) {}

// ----- which strips ----------------------------------------------------------------------------------------

Error ScheduledSums::Choose(std::span<const StripVariant> variants, const ScheduleSpec& spec,
                            const ScheduledSums* like) {
  const LinearProblem& problem = data_.problem;
  if (UsesSchedule(isa_, problem.mode) && problem.range.high < 255 && problem.IsRangeChecked()) {
    fallback_.reset(new ScheduledSums(data_, isa_, 255));
    RETURN_IF_ERROR(fallback_->ChooseVariant(variants, spec, like == nullptr ? nullptr : like->fallback()));
  }
  return ChooseVariant(variants, spec, like);
}

ScheduleSpec ScheduledSums::SpecFor(const StripVariant& variant, ScheduleSpec spec) const {
  const int rows = variant.vectors * lanes_ * variant.blocks;
  spec.strip_columns = variant.columns;
  spec.rows = rows;
  spec.window_quads =
      std::clamp<int64_t>(Caches().ScheduledWindow() / (rows * kQuad), 16, (kMostWindowOffset - 1) / rows);
  spec.amax = amax_;
  spec.saturates = UsesSchedule(isa_, INTACT_EXACT);
  const LayoutLimits& limits = Costs().layout;
  const bool is_shallow = std::min(data_.weights.quads(), spec.window_quads) <= limits.shallow_quads;
  if (spec.saturates && is_shallow) {
    spec.largest_group = static_cast<int>(std::clamp<int64_t>(limits.shallow_group, 1, spec.largest_group));
  }
  return spec;
}

Error ScheduledSums::ChooseVariant(std::span<const StripVariant> variants, const ScheduleSpec& spec,
                                   const ScheduledSums* like) {
  like_ = like;
  if (like != nullptr) {
    variant_ = like->variant_;
    return {};
  }
  for (const StripVariant& variant : variants) {
    const ScheduleSpec own = SpecFor(variant, spec);
    const auto candidate_of = [&](const ScheduleStatistics& statistics) {
      const auto quads = static_cast<double>(std::max<int64_t>(statistics.quads, 1));
      return Variant{own, variant.vectors, variant.costs, static_cast<double>(statistics.items) / quads,
                     static_cast<double>(statistics.groups) / quads};
    };
    // An estimate is slow. Most variants after the first could not be chosen with the best schedule.
    const bool is_first = variant_.vectors == 0;
    if (!is_first && candidate_of(LeastSchedule(data_.weights, own)).QuadCost() >= variant_.QuadCost())
      continue;
    const std::optional<ScheduleStatistics> statistics =
        data_.linear->schedules().Estimate(data_.weights, own);
    if (!statistics) return NoMemoryForSchedule();
    const Variant candidate = candidate_of(*statistics);
    if (is_first || candidate.QuadCost() < variant_.QuadCost()) variant_ = candidate;
  }
  return {};
}

Error ScheduledSums::Build(const MakeSchedule& make) {
  if (fallback_ != nullptr) {
    RETURN_IF_ERROR(fallback_->Build(make));
  }
  const ScheduledSums* const like = std::exchange(like_, nullptr);
  ASSIGN_OR_RETURN(schedule_, make(variant_.spec, like == nullptr ? nullptr : like->schedule_));
  windows_ = Windows(data_.weights, variant_.spec);
  return GenerateKernels();
}

ScheduledKernelSpec ScheduledSums::KernelSpec(int vectors, ScheduledKernelSpec::Rows rows) const {
  return {isa_, vectors, tile_rows() / lanes_, strip_columns(), MostInGroup(data_.weights, variant_.spec),
          rows};
}

Error ScheduledSums::GenerateKernels() {
  using Rows = ScheduledKernelSpec::Rows;
  const Rows rows = IsPlanar() ? Rows::kPlanar : Rows::kPacked;
  const ScheduledKernelSpec spec = KernelSpec(variant_.vectors, rows);
  ASSIGN_OR_RETURN(kernel_, GetScheduledKernel(spec));
  kernel_name_ = spec.Name();
  if (CanPair()) paired_.spec = KernelSpec(1, Rows::kPaired);
  const auto tails = static_cast<size_t>(variant_.vectors - 1);
  tails_ = std::make_unique<TailKernel[]>(tails);
  for (size_t i = 0; i < tails; ++i) {
    tails_[i].spec = KernelSpec(static_cast<int>(i) + 1, rows);
    // A planar band may end behind the last vector of rows, so whole blocks must not run in its place.
    if (IsPlanar()) RETURN_IF_ERROR(Make(&tails_[i]));
  }
  tile_columns_ = TileColumns(isa_, data_.epilogue);
  const auto make = [&](const EpilogueSpec& of, int columns, TileEpilogueFunction* function) -> Error {
    ASSIGN_OR_RETURN(*function, GetTileEpilogue(isa_, of, tile_rows(), columns));
    return {};
  };
  Error error = make(data_.epilogue, tile_columns_, &epilogue_);
  if (error.status != INTACT_OK || data_.element_bytes() == 1) return error;
  if (tile_columns_ != lanes_) return make(data_.epilogue, lanes_, &vector_epilogue_);
  if (lanes_ != 16 || data_.element_bytes() != 4) return {};
  EpilogueSpec streaming = data_.epilogue;
  streaming.variant.streams = true;
  return make(streaming, tile_columns_, &streaming_epilogue_);
}

Error ScheduledSums::Make(TailKernel* kernel) const {
  using State = TailKernel::State;
  const std::lock_guard lock(generating_);
  if (kernel->state.load(std::memory_order_relaxed) == State::kMade) return {};
  Result<ScheduledKernelFunction> made = GetScheduledKernel(kernel->spec);
  Error error = made ? Error() : made.error();
  if (made) kernel->function = *std::move(made);
  kernel->state.store(error.ok() ? State::kMade : State::kFailed, std::memory_order_release);
  return error;
}

bool ScheduledSums::TryMake(TailKernel* kernel) const noexcept {
  try {
    [[maybe_unused]] const Error error = Make(kernel);
    assert(error.status != INTACT_CODEGEN_FAILED);
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(generating_);
    if (kernel->state == TailKernel::State::kNotMade) kernel->state = TailKernel::State::kFailed;
  }
  return kernel->state.load(std::memory_order_acquire) == TailKernel::State::kMade;
}

const ScheduledKernelFunction& ScheduledSums::KernelOf(int64_t tail) const noexcept {
  const int64_t vectors = CeilDivide(tail, lanes_);
  if (vectors == variant_.vectors) return kernel_;
  TailKernel& kernel = tails_[static_cast<size_t>(vectors - 1)];
  return IsMade(kernel) ? kernel.function : kernel_;
}

Error ScheduledSums::PrepareRows(int64_t rows, bool or_fewer) const {
  if (fallback_ != nullptr) RETURN_IF_ERROR(fallback_->PrepareRows(rows, or_fewer));
  const auto prepare = [&](int64_t tail) -> Error {
    if (tail == 0) return {};
    if (CanPair() && 2 * tail <= lanes_) return Make(&paired_);
    const int64_t vectors = CeilDivide(tail, lanes_);
    return vectors == variant_.vectors ? Error() : Make(&tails_[static_cast<size_t>(vectors - 1)]);
  };
  if (!or_fewer) return prepare(rows % block_rows());
  RETURN_IF_ERROR(prepare(std::min<int64_t>(rows, 1)));
  if (CanPair() && 2 * rows <= lanes_) return {};  // all tails are paired
  for (int64_t tail = lanes_; tail < std::min<int64_t>(rows + lanes_, block_rows()); tail += lanes_) {
    RETURN_IF_ERROR(prepare(tail));
  }
  return {};
}

bool ScheduledSums::CanPair() const {
  return !IsPlanar() && strip_columns() == 2 && UsesSchedule(isa_, INTACT_EXACT);
}

double ScheduledSums::Cost(int64_t m, double packing) const {
  // Costs are per vector of columns. A row costs `overhead` in addition to its items; a kernel call costs
  // `call`, and a run `run`.
  const auto quads = static_cast<double>(data_.weights.quads());
  const auto columns = static_cast<double>(data_.n);
  const auto vectors = static_cast<double>(CeilDivide(data_.n, lanes_));
  const ScheduleCosts& costs = this->costs();
  const double output = data_.element_bytes() == 1 ? costs.byte_output : costs.output;
  const LayoutLimits& layout = Costs().layout;
  const bool has_few = data_.n < layout.run_columns;
  const double edge = has_few ? costs.edge_row : 0;
  const double overhead = ((output * columns / lanes_ + edge) / quads + packing) / vectors;
  const bool is_learned = data_.n / strip_columns() <= layout.learned_strips;
  const double entry = costs.strip * (is_learned ? 1 : static_cast<double>(layout.new_strip));
  const double call = entry * columns / strip_columns() / vectors / quads;
  const double run = has_few ? costs.run / vectors / quads : 0;
  // Loads per product: an item loads its offset, the weights of its columns, and each vector of rows of A.
  const auto loads = [&](double row_vectors) {
    const double strip = strip_columns();
    return (1 + strip + row_vectors) / (strip * row_vectors);
  };
  // Lanes without a row cost as much as others. Blocks of few vectors share broadcasts less.
  // Statistics count whole panels, costs only the vectors that have columns.
  const double row_cost = variant_.QuadCost() * static_cast<double>(data_.weights.panels() * kPanelColumns) /
                          static_cast<double>(RoundUp(data_.n, lanes_));
  const auto block_cost = [&](int64_t rows) {
    if (CanPair() && 2 * rows <= lanes_) return lanes_ * (row_cost * costs.paired_share + overhead);
    const int64_t padded_rows = RoundUp(rows, lanes_);
    const double more_loads = loads(static_cast<double>(padded_rows) / lanes_) / loads(variant_.vectors) - 1;
    return static_cast<double>(padded_rows) * (row_cost * (1 + costs.load_share * more_loads) + overhead);
  };
  const double bytes = ScheduleBytes();
  const bool is_far = bytes > static_cast<double>(Caches().StreamedWeights());
  const double far = is_far ? bytes / 64 * costs.far_line / (vectors * quads) : 0;
  const int64_t tail = m % block_rows();
  const int64_t calls = CeilDivide(m - tail, tile_rows()) + (tail == 0 ? 0 : 1);
  return static_cast<double>(m - tail) * (row_cost + overhead) + (tail == 0 ? 0 : block_cost(tail)) +
         static_cast<double>(calls) * call + run + far;
}

// An item has an offset and the weights of its columns.
double ScheduledSums::ScheduleBytes() const {
  const auto quads = static_cast<double>(data_.weights.quads() * data_.n);
  return variant_.items * quads * kQuad * (1 + 1.0 / strip_columns());
}

int64_t ScheduledSums::PanelsPerChunk() const {
  const auto panel_bytes = static_cast<int64_t>(ScheduleBytes()) / data_.weights.panels();
  return std::clamp<int64_t>(Caches().ScheduledPanels() / std::max<int64_t>(panel_bytes, 1), 1, 32);
}

// ----- a tile ----------------------------------------------------------------------------------------------

void ScheduledSums::RunTile(const RunBuffers& buffers, const TileRows& rows, const uint8_t* a, bool is_paired,
                            int64_t column_begin, int64_t column_end, uint8_t* scratch) const noexcept {
  alignas(64) std::array<int32_t, size_t{kPanelColumns} * kMaxTileRows> of_panel;
  int32_t* const accumulators = windows_ == 1 ? of_panel.data() : reinterpret_cast<int32_t*>(scratch);
  const int64_t panel_end = CeilDivide(column_end, kPanelColumns);
  for (int64_t panel = column_begin / kPanelColumns; panel < panel_end; panel += PanelsAtOnce()) {
    const int64_t end = std::min(panel_end, panel + PanelsAtOnce());
    Accumulate(buffers, a, rows.count, is_paired, panel, end, accumulators);
    Store(buffers, rows, panel * kPanelColumns, std::min(column_end, end * kPanelColumns), accumulators,
          scratch);
  }
}

void ScheduledSums::Accumulate(const RunBuffers& buffers, const uint8_t* a, int64_t rows, bool is_paired,
                               int64_t panel_begin, int64_t panel_end, int32_t* accumulators) const noexcept {
  const int64_t panel_size = int64_t{kPanelColumns} * tile_rows();
  const int64_t window_bytes = IsPlanar() ? 0 : variant_.spec.window_quads * kQuad * tile_rows();
  ScheduledKernelArgs args;
  const ScheduledWeights& schedule = schedule_->made();
  for (int64_t window = 0; window < windows_; ++window, a += window_bytes) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      args.strips = schedule.Strips(window, panel);
      const int64_t columns = std::min<int64_t>(kPanelColumns, data_.n - panel * kPanelColumns);
      args.strip_count = (columns + strip_columns() - 1) / strip_columns();
      args.compensation = window == 0 ? data_.CompensationOf(buffers) + panel * kPanelColumns : nullptr;
      args.a = a;
      args.accumulators = accumulators + (panel - panel_begin) * panel_size;
      args.blocks = rows / block_rows();
      if (args.blocks > 0) kernel_(&args);
      const int64_t tail = rows % block_rows();
      if (tail == 0) continue;
      args.a += (rows - tail) * kQuad;
      args.accumulators += rows - tail;
      args.blocks = 1;
      (is_paired ? paired_.function : KernelOf(tail))(&args);
    }
  }
}

void ScheduledSums::Store(const RunBuffers& buffers, const TileRows& rows, int64_t column_begin,
                          int64_t column_end, const int32_t* accumulators, uint8_t* scratch) const noexcept {
  TileEpilogueArgs args;
  args.rows = rows.count;
  args.c = rows.c.data();
  int64_t columns = 0;
  for (int64_t column = column_begin; column < column_end; column += columns) {
    const bool is_vector = vector_epilogue_ && column_end - column < tile_columns_;
    const int64_t most = is_vector ? lanes_ : tile_columns_;
    columns = std::min<int64_t>(most, column_end - column);
    args.accumulators = accumulators + (column - column_begin) * tile_rows();
    args.c_offset = column * data_.element_bytes();
    args.epilogue = data_.EpilogueAt(buffers, rows.row[0], column);
    if (columns != most) {
      StoreEdge(buffers, rows, column, columns, args, Edge(scratch));
      continue;
    }
    if (!rows.is_adjacent) {
      const auto row_of = [&](int64_t i) { return rows.At(i); };
      const ScratchTile residual(buffers.output, rows.count, tile_columns_, Edge(scratch));
      residual.LoadRows(row_of, column, columns);
      args.epilogue.residual = residual.map().residual;
      args.epilogue.residual_stride_bytes = residual.map().residual_stride_bytes;
    }
    const bool streams =
        streaming_epilogue_ && Streams(buffers, data_, isa_, Costs().layout.streaming_row_quads);
    (streams ? streaming_epilogue_ : is_vector ? vector_epilogue_ : epilogue_)(&args);
  }
}

// Stores whole vectors to scratch, EdgeRows() rows at a time, and copies the elements of C from there.
void ScheduledSums::StoreEdge(const RunBuffers& buffers, const TileRows& rows, int64_t column,
                              int64_t columns, TileEpilogueArgs args, uint8_t* scratch) const noexcept {
  args.c_offset = 0;
  for (int64_t first = 0; first < rows.count; first += args.rows) {
    args.rows = std::min(EdgeRows(), rows.count - first);
    const auto row_of = [&](int64_t i) { return rows.At(first + i); };
    const int64_t padded = RoundUp(args.rows, lanes_);
    const ScratchTile tile(buffers.output, padded, tile_columns_, scratch);
    tile.LoadRows(row_of, column, columns);
    std::array<uint8_t*, kMaxTileRows> c;
    for (int64_t i = 0; i < padded; ++i) c[static_cast<size_t>(i)] = tile.map().C(i, 0);
    args.c = c.data();
    args.epilogue.residual = tile.map().residual;
    args.epilogue.residual_stride_bytes = tile.map().residual_stride_bytes;
    (vector_epilogue_ ? vector_epilogue_ : epilogue_)(&args);
    if (rows.is_adjacent) {
      tile.StoreFirst(args.rows, rows.At(first), column, columns);
    } else {
      tile.StoreRows(row_of, column, columns);
    }
    args.accumulators += args.rows;
    if (args.epilogue.row_values == nullptr) continue;
    args.epilogue.row_values += args.rows * data_.epilogue.row_value_bytes();
  }
}

}  // namespace intact::kernels
