#include "kernels/engines/scheduled_engine.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/cost_constants.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

constexpr int kMaxTileRows = 128;  // a whole number of vectors
constexpr int32_t kDropped = -1;   // a row between two lines of a planar band

using costs::Forms;
using costs::StripForm;

// They depend on what an ISA's vectors are, so that every ISA has some.
const Forms& FormsOf(core::Isa isa, bool planar) {
  const bool is_zmm = jit::VectorBytes(isa) == 64;
  if (!planar) return is_zmm ? costs::kZmmForms : costs::kYmmForms;
  if (UsesSchedule(isa, INTACT_EXACT)) return is_zmm ? costs::kPlanarZmmForms : costs::kPlanarYmmForms;
  return is_zmm ? costs::kPlanarZmmVnniForms : costs::kPlanarYmmVnniForms;
}

Error OutOfMemory() { return {INTACT_OUT_OF_MEMORY, "no memory for scheduled weights"}; }

double PredictedCost(const StripForm& form, const ScheduleStatistics& statistics) {
  const auto quads = static_cast<double>(std::max<int64_t>(statistics.quads, 1));
  return (form.item_cost * static_cast<double>(statistics.items) +
          form.group_cost * static_cast<double>(statistics.groups)) /
         quads;
}

}  // namespace

/// Where the rows of a tile of accumulators go.
struct ScheduledEngine::TileRows {
  int64_t count = 0;
  std::array<int32_t, kMaxTileRows> row;  // of C, or kDropped
  std::array<uint8_t*, kMaxTileRows> c;   // column 0; whole vectors of them

  void Add(int32_t first, int64_t rows, uint8_t* to, int64_t stride) {
    int32_t* const to_row = row.data() + count;
    uint8_t** const to_c = c.data() + count;
    for (int32_t i = 0; i < rows; ++i) to_row[i] = first + i;
    for (int64_t i = 0; i < rows; ++i) to_c[i] = to + i * stride;
    count += rows;
  }
  void AddDropped(int64_t rows, uint8_t* to) {
    std::fill_n(row.data() + count, rows, kDropped);
    std::fill_n(c.data() + count, rows, to);
    count += rows;
  }
  void FillVector(int lanes, uint8_t* to) {
    std::fill_n(c.data() + count, RoundUp(count, lanes) - count, to);
  }
};

// The row of C that row i of a tile is; less than 0 if it is none.
class ScheduledEngine::RowOf {
 public:
  explicit RowOf(const TileRows& rows) : rows_(rows) {}
  int64_t operator()(int64_t i) const {
    return i < rows_.count ? rows_.row[static_cast<size_t>(i)] : kDropped;
  }

 private:
  const TileRows& rows_;
};

ScheduledEngine::ScheduledEngine(const GemmData& data, core::Isa isa, int amax,
                                 std::unique_ptr<ScheduledEngine> fallback)
    : data_(data),
      isa_(isa),
      amax_(amax),
      fallback_(std::move(fallback)),
      lanes_(jit::VectorBytes(isa) / 4) {}

Result<std::unique_ptr<ScheduledEngine>> ScheduledEngine::Create(const GemmData& data, core::Isa isa,
                                                                 const ScheduledEngine* like) {
  std::unique_ptr<ScheduledEngine> fallback;
  const LinearProblem& problem = data.problem;
  if (UsesSchedule(isa, problem.mode) && problem.range.high < 255 && problem.IsRangeChecked()) {
    ASSIGN_OR_RETURN(fallback,
                     CreateFor(data, isa, 255, nullptr, like == nullptr ? nullptr : like->fallback_.get()));
  }
  return CreateFor(data, isa, problem.range.high, std::move(fallback), like);
}

Result<std::unique_ptr<ScheduledEngine>> ScheduledEngine::CreateFor(const GemmData& data, core::Isa isa,
                                                                    int amax,
                                                                    std::unique_ptr<ScheduledEngine> fallback,
                                                                    const ScheduledEngine* like) {
  std::unique_ptr<ScheduledEngine> engine(new ScheduledEngine(data, isa, amax, std::move(fallback)));
  if (like != nullptr) {
    engine->ChooseLike(*like);
    return engine;
  }
  RETURN_IF_ERROR(engine->Choose());
  return engine;
}

int ScheduledEngine::BlocksOf(const StripForm& form) const {
  if (data_.IsPlanar()) return form.blocks;
  const int64_t rows = int64_t{form.vectors} * lanes_;
  const int64_t in_l1 = Caches().ScheduledBlocks() / (rows * data_.k);
  return static_cast<int>(std::clamp<int64_t>(in_l1, 1, kMaxTileRows / rows));
}

Error ScheduledEngine::Choose() {
  const auto spec_for = [&](const StripForm& form) {
    const int rows = form.vectors * lanes_ * BlocksOf(form);
    const int64_t window_quads =
        std::clamp<int64_t>(Caches().ScheduledWindow() / (rows * kQuad), 16, (kMostWindowOffset - 1) / rows);
    ScheduleSpec spec{form.columns, rows, window_quads, amax_};
    spec.saturates = UsesSchedule(isa_, INTACT_EXACT);
    const bool is_shallow = std::min(data_.weights.quads(), window_quads) <= costs::kShallowQuads;
    if (spec.saturates && is_shallow) spec.largest_group = costs::kShallowGroup;
    if (data_.IsPlanar()) {
      spec.group_columns = data_.planar().group_columns;
      if (data_.problem.HasWeightZeroPoints()) spec.zero_points = data_.problem.b_zero_points.data();
    }
    return spec;
  };
  const auto& forms = FormsOf(isa_, data_.IsPlanar());
  const StripForm* best = &forms.back();  // of one column: it suits any weights
  row_cost_ = std::numeric_limits<double>::infinity();
  for (const StripForm& form : forms) {
    if (data_.IsPlanar() && data_.planar().group_columns % form.columns != 0) continue;
    const std::optional<ScheduleStatistics> statistics = EstimateSchedule(data_.weights, spec_for(form));
    if (!statistics) return OutOfMemory();
    const double cost = PredictedCost(form, *statistics);
    if (cost >= row_cost_) continue;
    row_cost_ = cost;
    best = &form;
  }
  // Statistics are of whole panels, costs of the vectors that there are.
  row_cost_ *= static_cast<double>(data_.weights.panels() * kPanelColumns) /
               static_cast<double>(RoundUp(data_.n, lanes_));
  spec_ = spec_for(*best);
  block_vectors_ = best->vectors;
  rows_ = best->vectors * lanes_;
  tile_rows_ = spec_.rows;
  return {};
}

void ScheduledEngine::ChooseLike(const ScheduledEngine& like) {
  like_ = &like;
  spec_ = like.spec_;
  block_vectors_ = like.block_vectors_;
  rows_ = like.rows_;
  tile_rows_ = like.tile_rows_;
  row_cost_ = like.row_cost_;
}

Error ScheduledEngine::Build() {
  if (fallback_ != nullptr) {
    RETURN_IF_ERROR(fallback_->Build());
  }
  const ScheduledEngine* const like = std::exchange(like_, nullptr);
  if (like != nullptr && !data_.IsPlanar()) {
    schedule_ = like->schedule_;
  } else {
    auto made = std::make_shared<ScheduledWeights>();
    if (!(like == nullptr ? made->Build(data_.weights, spec_) : made->CopyFrom(*like->schedule_))) {
      return OutOfMemory();
    }
    if (data_.IsPlanar() && !data_.planar().IsModel()) made->Relocate(data_.planar());
    schedule_ = std::move(made);
  }
  return GenerateKernels();
}

Error ScheduledEngine::GenerateKernels() {
  for (int vectors = 1; vectors <= block_vectors_; ++vectors) {
    const ScheduledKernelSpec spec{isa_,
                                   vectors,
                                   tile_rows_ / lanes_,
                                   spec_.strip_columns,
                                   schedule_->largest_group(),
                                   data_.IsPlanar()};
    ASSIGN_OR_RETURN(const ScheduledKernelFunction kernel, GetScheduledKernel(spec));
    kernels_.push_back(kernel);
    kernel_name_ = spec.Name();
  }
  if (CanPair()) {
    ScheduledKernelSpec spec{isa_, 1, tile_rows_ / lanes_, spec_.strip_columns, schedule_->largest_group()};
    spec.is_paired = true;
    ASSIGN_OR_RETURN(paired_kernel_, GetScheduledKernel(spec));
  }
  tile_columns_ = TileColumns(isa_, data_.epilogue);
  const auto make = [&](const EpilogueSpec& spec, int columns, TileEpilogueFunction* function) -> Error {
    ASSIGN_OR_RETURN(*function, GetTileEpilogue(isa_, spec, tile_rows_, columns));
    return {};
  };
  Error error = make(data_.epilogue, tile_columns_, &epilogue_);
  if (error.status != INTACT_OK || data_.element_bytes() == 1) return error;
  if (tile_columns_ != lanes_) return make(data_.epilogue, lanes_, &vector_epilogue_);
  if (lanes_ != 16 || data_.element_bytes() != 4) return {};
  EpilogueSpec streaming = data_.epilogue;
  streaming.form.streams = true;
  return make(streaming, tile_columns_, &streaming_epilogue_);
}

bool ScheduledEngine::CanPair() const {
  return !data_.IsPlanar() && spec_.strip_columns == 2 && UsesSchedule(isa_, INTACT_EXACT);
}

double ScheduledEngine::Cost(int64_t m) const {
  // Costs are told for a vector of columns: `overhead` is what a row costs beside its items, `call` what a
  // kernel call does.
  const auto quads = static_cast<double>(data_.weights.quads());
  const auto columns = static_cast<double>(data_.n);
  const auto vectors = static_cast<double>(CeilDivide(data_.n, lanes_));
  const double output = data_.element_bytes() == 1 ? costs::kTurnedByteOutputs : costs::kTurnedOutputs;
  const double packing = data_.IsPlanar() ? 0 : costs::kPackedQuad;
  const double overhead = (output * columns / lanes_ / quads + packing) / vectors;
  const double call = costs::kStripTurn * columns / spec_.strip_columns / vectors / quads;
  // An item loads its offset, the weights of its columns, and a vector of A for each of rows.
  const auto loads = [&](double row_vectors) {
    const double strip = spec_.strip_columns;
    return (1 + strip + row_vectors) / (strip * row_vectors);
  };
  // Lanes without a row cost as much as others, and blocks of few vectors share the broadcasts among fewer.
  const auto block_cost = [&](int64_t rows) {
    if (CanPair() && 2 * rows <= lanes_) return lanes_ * (row_cost_ * costs::kPairedShare + overhead);
    const int64_t padded_rows = RoundUp(rows, lanes_);
    const double more_loads = loads(static_cast<double>(padded_rows) / lanes_) / loads(block_vectors_) - 1;
    const double load_share = lanes_ == 16 ? costs::kZmmLoadShare : costs::kLoadShare;
    return static_cast<double>(padded_rows) * (row_cost_ * (1 + load_share * more_loads) + overhead);
  };
  const int64_t rest = m % rows_;
  const int64_t calls = CeilDivide(m - rest, tile_rows_) + (rest == 0 ? 0 : 1);
  return static_cast<double>(m - rest) * (row_cost_ + overhead) + (rest == 0 ? 0 : block_cost(rest)) +
         static_cast<double>(calls) * call;
}

// Packed rows are read again by each chunk; where there is but one, they are still in L1.
int64_t ScheduledEngine::RowsPerBlock() const {
  if (data_.weights.panels() <= PanelsPerChunk()) return tile_rows_;
  return std::max<int64_t>(Caches().ScheduledRows() / std::max<int64_t>(data_.k, 1) / tile_rows_, 1) *
         tile_rows_;
}

int64_t ScheduledEngine::PanelsPerChunk() const {
  const int64_t panel_bytes = std::max<int64_t>(schedule_->bytes() / data_.weights.panels(), 1);
  return std::clamp<int64_t>(Caches().ScheduledPanels() / panel_bytes, 1, 32);
}

int64_t ScheduledEngine::ScratchBytes(int64_t rows) const {
  const int64_t block = std::min(RoundUp(rows, tile_rows_), RowsPerBlock());
  const int64_t panels = data_.IsPlanar() ? 0 : RoundUp(ActivationPanelBytes(block, data_.k), 64);
  const int64_t bytes = FixedBytes() + panels;
  return fallback_ == nullptr ? bytes : std::max(bytes, fallback_->ScratchBytes(rows));
}

void ScheduledEngine::RunRange(const RunBuffers& buffers, const Range& range,
                               uint8_t* scratch) const noexcept {
  if (data_.IsPlanar()) return RunPlanar(buffers, range, scratch);
  uint8_t* const panels = PackedRows(scratch);
  for (int64_t block = range.row_begin; block < range.row_end; block += RowsPerBlock()) {
    const int64_t block_end = std::min(range.row_end, block + RowsPerBlock());
    uint8_t largest = 0;
    RowCursor cursor(buffers.rows(), block);
    for (int64_t row = block; row < block_end; row += tile_rows_) {
      const int64_t rows = std::min<int64_t>(tile_rows_, block_end - row);
      largest = std::max(largest, Pack(&cursor, rows, panels + ActivationPanelBytes(row - block, data_.k)));
    }
    const Range block_range{block, block_end, range.column_begin, range.column_end};
    if (largest > amax_ && fallback_ != nullptr) {
      fallback_->RunRange(buffers, block_range, scratch);
    } else {
      RunBlock(buffers, block_range, panels, scratch);
    }
  }
}

void ScheduledEngine::RunPlanar(const RunBuffers& buffers, const Range& range,
                                uint8_t* scratch) const noexcept {
  if (buffers.planar().largest > amax_ && fallback_ != nullptr) {
    return fallback_->RunPlanar(buffers, range, scratch);
  }
  const auto position_of = [&](int64_t row) {
    const int64_t from_first = row - buffers.planar().first_row;
    const PlanarAccess& planar = data_.planar();
    return from_first / planar.line_rows * planar.line_positions + from_first % planar.line_rows;
  };
  auto* const accumulators = reinterpret_cast<int32_t*>(scratch);
  const int64_t position_end = position_of(range.row_end - 1) + 1;
  const int64_t panel_end = (range.column_end + kPanelColumns - 1) / kPanelColumns;
  for (int64_t position = position_of(range.row_begin); position < position_end; position += tile_rows_) {
    const int64_t positions = std::min<int64_t>(tile_rows_, position_end - position);
    const uint8_t* const a =
        RowMap::Pointer(buffers.planar().origin + static_cast<uintptr_t>(position * kQuad));
    const TileRows rows = RowsOfPositions(buffers, position, positions, scratch);
    for (int64_t panel = range.column_begin / kPanelColumns; panel < panel_end; panel += PanelsAtOnce()) {
      const int64_t end = std::min(panel_end, panel + PanelsAtOnce());
      Accumulate(a, positions, panel, end, accumulators);
      Range columns = range;
      columns.column_begin = panel * kPanelColumns;
      columns.column_end = std::min(range.column_end, end * kPanelColumns);
      Store(buffers, columns, rows, accumulators, scratch);
    }
  }
}

ScheduledEngine::TileRows ScheduledEngine::RowsOfPositions(const RunBuffers& buffers, int64_t position,
                                                           int64_t positions,
                                                           uint8_t* scratch) const noexcept {
  const PlanarAccess& planar = data_.planar();
  TileRows rows;
  int64_t line = position / planar.line_positions;
  int64_t x = position % planar.line_positions;
  for (int64_t left = positions; left > 0; left = positions - rows.count, ++line, x = 0) {
    const int64_t valid = std::clamp<int64_t>(planar.line_rows - x, 0, left);
    const int64_t row = buffers.planar().first_row + line * planar.line_rows + x;
    rows.Add(static_cast<int32_t>(row), valid, buffers.output.C(row, 0), buffers.output.c_stride_bytes);
    rows.AddDropped(std::min(planar.line_positions - x, left) - valid, Drop(scratch));
  }
  rows.FillVector(lanes_, Drop(scratch));
  return rows;
}

ScheduledEngine::TileRows ScheduledEngine::AdjacentRows(const RunBuffers& buffers, int64_t row, int64_t rows,
                                                        uint8_t* scratch) const noexcept {
  TileRows all;
  all.Add(static_cast<int32_t>(row), rows, buffers.output.C(row, 0), buffers.output.c_stride_bytes);
  all.FillVector(lanes_, Drop(scratch));
  return all;
}

// The next `rows` rows, tap by tap; returns the largest activation.
uint8_t ScheduledEngine::Pack(RowCursor* cursor, int64_t rows, uint8_t* panel) const noexcept {
  std::array<const uint8_t*, kMaxTileRows> pointers;
  const int64_t rest = rows % rows_;
  const int64_t paired = ArePaired(rest) ? rest : 0;
  const uint8_t** next = pointers.data();
  for (int64_t i = 0; i < rows - paired; ++i) *next++ = cursor->Next();
  for (int64_t i = 0; i < paired; ++i, next += 2) next[0] = next[1] = cursor->Next();
  rows += paired;
  uint8_t largest = 0;
  for (const int64_t tap : data_.taps().offsets) {
    largest = std::max(largest, PackActivations({pointers.data(), static_cast<size_t>(rows)}, tap,
                                                data_.taps().depth, data_.a_flip(), tile_rows_, panel));
    panel += ActivationPanelBytes(tile_rows_, data_.taps().depth);
  }
  return largest;
}

void ScheduledEngine::RunBlock(const RunBuffers& buffers, const Range& range, const uint8_t* panels,
                               uint8_t* scratch) const noexcept {
  auto* const accumulators = reinterpret_cast<int32_t*>(scratch);
  const int64_t panel_end = (range.column_end + kPanelColumns - 1) / kPanelColumns;
  for (int64_t panel = range.column_begin / kPanelColumns; panel < panel_end; panel += PanelsPerChunk()) {
    const int64_t chunk_end = std::min(panel_end, panel + PanelsPerChunk());
    for (int64_t row = range.row_begin; row < range.row_end; row += tile_rows_) {
      const int64_t rows = std::min<int64_t>(tile_rows_, range.row_end - row);
      const uint8_t* const a = panels + ActivationPanelBytes(row - range.row_begin, data_.k);
      const TileRows tile = AdjacentRows(buffers, row, rows, scratch);
      for (int64_t at = panel; at < chunk_end; at += PanelsAtOnce()) {
        const int64_t end = std::min(chunk_end, at + PanelsAtOnce());
        Accumulate(a, rows, at, end, accumulators);
        Range columns = range;
        columns.column_begin = at * kPanelColumns;
        columns.column_end = std::min(range.column_end, end * kPanelColumns);
        Store(buffers, columns, tile, accumulators, scratch);
      }
    }
  }
}

void ScheduledEngine::Accumulate(const uint8_t* a, int64_t rows, int64_t panel_begin, int64_t panel_end,
                                 int32_t* accumulators) const noexcept {
  const int64_t panel_size = int64_t{kPanelColumns} * tile_rows_;
  const bool planar = data_.IsPlanar();
  ScheduledKernelArgs args;
  for (int64_t window = 0; window < schedule_->windows(); ++window) {
    const uint8_t* const from = planar ? a : a + window * spec_.window_quads * kQuad * tile_rows_;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      args.strips = schedule_->Strips(window, panel);
      const int64_t columns = std::min<int64_t>(kPanelColumns, data_.n - panel * kPanelColumns);
      args.strip_count = (columns + spec_.strip_columns - 1) / spec_.strip_columns;
      args.initial = window == 0 ? data_.initial.data() + panel * kPanelColumns : nullptr;
      args.a = from;
      args.accumulators = accumulators + (panel - panel_begin) * panel_size;
      args.blocks = rows / rows_;
      if (args.blocks > 0) kernels_.back()(&args);
      const int64_t rest = rows % rows_;
      if (rest == 0) continue;
      args.a += (rows - rest) * kQuad;
      args.accumulators += rows - rest;
      args.blocks = 1;
      ArePaired(rest) ? paired_kernel_(&args) : kernels_[static_cast<size_t>((rest - 1) / lanes_)](&args);
    }
  }
}

void ScheduledEngine::Store(const RunBuffers& buffers, const Range& range, const TileRows& rows,
                            const int32_t* accumulators, uint8_t* scratch) const noexcept {
  TileEpilogueArgs args;
  args.rows = rows.count;
  args.c = rows.c.data();
  int64_t columns = 0;
  for (int64_t column = range.column_begin; column < range.column_end; column += columns) {
    const bool is_vector = vector_epilogue_ && range.column_end - column < tile_columns_;
    const int64_t most = is_vector ? lanes_ : tile_columns_;
    columns = std::min<int64_t>(most, range.column_end - column);
    args.accumulators = accumulators + (column - range.column_begin) * tile_rows_;
    args.c_offset = column * data_.element_bytes();
    args.epilogue = data_.EpilogueAt(buffers, rows.row[0], column);
    if (columns != most) {
      StoreEdge(buffers, rows, column, columns, args, Edge(scratch));
      continue;
    }
    if (data_.IsPlanar()) {
      const ScratchTile residual(buffers.output, rows.count, tile_columns_, Edge(scratch));
      residual.LoadRows(RowOf(rows), column, columns);
      args.epilogue.residual = residual.map().residual;
      args.epilogue.residual_stride_bytes = residual.map().residual_stride_bytes;
    }
    const bool streams = buffers.may_stream && streaming_epilogue_;
    (streams ? streaming_epilogue_ : is_vector ? vector_epilogue_ : epilogue_)(&args);
  }
}

// Whole vectors to scratch, and what is of C from there.
void ScheduledEngine::StoreEdge(const RunBuffers& buffers, const TileRows& rows, int64_t column,
                                int64_t columns, TileEpilogueArgs args, uint8_t* scratch) const noexcept {
  const ScratchTile tile(buffers.output, RoundUp(rows.count, lanes_), tile_columns_, scratch);
  tile.LoadRows(RowOf(rows), column, columns);
  std::array<uint8_t*, kMaxTileRows> c;
  for (int64_t i = 0; i < RoundUp(rows.count, lanes_); ++i) c[static_cast<size_t>(i)] = tile.map().C(i, 0);
  args.c = c.data();
  args.c_offset = 0;
  args.epilogue.residual = tile.map().residual;
  args.epilogue.residual_stride_bytes = tile.map().residual_stride_bytes;
  (vector_epilogue_ ? vector_epilogue_ : epilogue_)(&args);
  tile.StoreRows(RowOf(rows), column, columns);
}

}  // namespace intact::kernels
