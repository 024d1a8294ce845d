#include "kernels/grouped_engine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/dispatch.h"

namespace intact::kernels {
namespace {

constexpr int kMaxRows = 64;  // of a register block
constexpr int kMaxLanes = 16;
constexpr int64_t kDropped = -1;  // a row between two lines of a planar band

/// A way to run a schedule: its register block, and what an item and a group cost, as shares of the time that
/// the triple takes for a quad. Fitted to this kernel's rates with Laplace, Gaussian and uniform weights on
/// Zen 4.
struct StripForm {
  int columns;
  int vectors;
  double item_cost;
  double group_cost;
};

struct IsaForms {
  jit::Isa isa;
  std::array<StripForm, 2> forms;
};

constexpr std::array kForms = {
    IsaForms{jit::Isa::kAvx2, {StripForm{2, 3, 0.70, 0.43}, StripForm{1, 4, 0.85, 0.43}}},
    IsaForms{jit::Isa::kAvx512, {StripForm{2, 4, 0.69, 0.55}, StripForm{1, 4, 0.78, 0.30}}},
    // With VPDPBUSD there is one item a quad, and as many registers as accumulators need.
    IsaForms{jit::Isa::kAvxVnni, {StripForm{4, 3, 1.0, 0.0}, StripForm{1, 4, 1.5, 0.0}}},
    IsaForms{jit::Isa::kAvx512Vnni, {StripForm{4, 4, 1.0, 0.0}, StripForm{1, 4, 1.5, 0.0}}},
};

double PredictedCost(const StripForm& form, const ScheduleStatistics& statistics) {
  const auto quads = static_cast<double>(std::max<int64_t>(statistics.quads, 1));
  return (form.item_cost * static_cast<double>(statistics.items) +
          form.group_cost * static_cast<double>(statistics.groups)) /
         quads;
}

}  // namespace

GroupedEngine::GroupedEngine(const GemmData& data, jit::Isa isa, int amax,
                             std::unique_ptr<GroupedEngine> fallback)
    : data_(data),
      isa_(isa),
      amax_(amax),
      fallback_(std::move(fallback)),
      lanes_(jit::VectorBytes(isa) / 4) {}

Result<std::unique_ptr<GroupedEngine>> GroupedEngine::Create(const GemmData& data, jit::Isa isa, int amax,
                                                             std::unique_ptr<GroupedEngine> fallback) {
  std::unique_ptr<GroupedEngine> engine(new GroupedEngine(data, isa, amax, std::move(fallback)));
  for (const auto step : {&GroupedEngine::Schedule, &GroupedEngine::GenerateKernels}) {
    Error error = (engine.get()->*step)();
    if (error.status != INTACT_OK) return error;
  }
  return engine;
}

Error GroupedEngine::Schedule() {
  const auto* forms =
      std::find_if(kForms.begin(), kForms.end(), [&](const IsaForms& f) { return f.isa == isa_; });
  for (const StripForm& form : forms->forms) {
    const int rows = form.vectors * lanes_;
    // A's window takes three quarters of L1: the schedule streams through the rest.
    const int64_t window_quads = std::max<int64_t>(Caches().l1d_bytes * 3 / 4 / (rows * kQuad), 16);
    const std::optional<PlanarDepth>& planar = data_.taps.planar;
    if (planar && planar->group_columns % form.columns != 0) continue;
    ScheduledWeights schedule;
    ScheduleShape shape{form.columns, rows, window_quads, amax_, UsesSchedule(isa_, INTACT_EXACT)};
    if (planar) {
      shape.planar = &*planar;
      if (data_.b_zero_points.size() != 0) shape.zero_points = data_.b_zero_points.data();
    }
    if (!schedule.Build(data_.weights, shape)) {
      return {INTACT_OUT_OF_MEMORY, "no memory for scheduled weights"};
    }
    const double cost = PredictedCost(form, schedule.statistics());
    if (rows_ != 0 && cost >= row_cost_) continue;
    row_cost_ = cost;
    block_vectors_ = form.vectors;
    rows_ = rows;
    schedule_ = std::move(schedule);
  }
  return {};
}

Error GroupedEngine::GenerateKernels() {
  for (int vectors = 1; vectors <= block_vectors_; ++vectors) {
    const GroupedKernelSpec spec{isa_, vectors, block_vectors_, schedule_.shape().strip_columns};
    const Result<GroupedKernelFunction> kernel = GetGroupedKernel(spec);
    if (!kernel) return kernel.error();
    kernels_.push_back(*kernel);
    kernel_name_ = spec.Name();
  }
  const Result<TileEpilogueFunction> epilogue = GetTileEpilogue(isa_, data_.epilogue);
  if (!epilogue) return epilogue.error();
  epilogue_ = *epilogue;
  if (lanes_ != 16 || data_.element_bytes() != 4) return {};
  EpilogueSpec streaming = data_.epilogue;
  streaming.streams = true;
  const Result<TileEpilogueFunction> streaming_epilogue = GetTileEpilogue(isa_, streaming);
  if (!streaming_epilogue) return streaming_epilogue.error();
  streaming_epilogue_ = *streaming_epilogue;
  return {};
}

double GroupedEngine::Cost(int64_t m) const {
  // Lanes without a row cost as much as others, and blocks of few vectors share the broadcasts among fewer:
  // measured 1.4 × for one vector, 1.1 × for two.
  const auto block_cost = [&](int64_t rows) {
    const int64_t padded_rows = RoundUp(rows, lanes_);
    const double vectors = static_cast<double>(padded_rows) / lanes_;
    return static_cast<double>(padded_rows) * row_cost_ * (1 + 0.4 / (vectors * vectors));
  };
  const int64_t rest = m % rows_;
  return static_cast<double>(m - rest) * row_cost_ + (rest == 0 ? 0 : block_cost(rest));
}

int64_t GroupedEngine::RowsPerBlock() const {
  return std::max<int64_t>(Caches().l2_bytes / std::max<int64_t>(data_.k, 1) / rows_, 1) * rows_;
}

int64_t GroupedEngine::PanelsPerChunk() const {
  const int64_t panel_bytes = std::max<int64_t>(schedule_.bytes() / data_.weights.panels(), 1);
  return std::clamp<int64_t>(Caches().l2_bytes / 2 / panel_bytes, 1, 32);
}

int64_t GroupedEngine::ScratchBytes(int64_t rows) const {
  const int64_t block = std::min(RoundUp(rows, rows_), RowsPerBlock());
  const int64_t panels = data_.taps.planar ? 0 : RoundUp(ActivationPanelBytes(block, data_.k), 64);
  const int64_t bytes = AccumulatorBytes() + EdgeBytes() + panels;
  return fallback_ == nullptr ? bytes : std::max(bytes, fallback_->ScratchBytes(rows));
}

void GroupedEngine::RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept {
  if (data_.taps.planar) return RunPlanar(buffers, range, scratch);
  uint8_t* const panels = scratch + AccumulatorBytes() + EdgeBytes();
  for (int64_t block = range.row_begin; block < range.row_end; block += RowsPerBlock()) {
    const int64_t block_end = std::min(range.row_end, block + RowsPerBlock());
    uint8_t largest = 0;
    RowCursor cursor(buffers.a, block);
    for (int64_t row = block; row < block_end; row += rows_) {
      const int64_t rows = std::min<int64_t>(rows_, block_end - row);
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

void GroupedEngine::RunPlanar(const RunBuffers& buffers, const Range& range,
                              uint8_t* scratch) const noexcept {
  if (buffers.planar.largest > amax_ && fallback_ != nullptr) {
    return fallback_->RunPlanar(buffers, range, scratch);
  }
  const auto position_of = [&](int64_t row) {
    const int64_t from_first = row - buffers.planar.first_row;
    const PlanarDepth& planar = *data_.taps.planar;
    return from_first / planar.line_rows * planar.line_positions + from_first % planar.line_rows;
  };
  auto* const accumulators = reinterpret_cast<int32_t*>(scratch);
  const int64_t position_end = position_of(range.row_end - 1) + 1;
  const int64_t panel_end = (range.column_end + kPanelColumns - 1) / kPanelColumns;
  const int64_t chunk = PanelsAtOnce();
  for (int64_t panel = range.column_begin / kPanelColumns; panel < panel_end; panel += chunk) {
    const int64_t chunk_end = std::min(panel_end, panel + chunk);
    const Range columns{range.row_begin, range.row_end, panel * kPanelColumns,
                        std::min(range.column_end, chunk_end * kPanelColumns)};
    for (int64_t position = position_of(range.row_begin); position < position_end; position += rows_) {
      const int64_t positions = std::min<int64_t>(rows_, position_end - position);
      const uint8_t* const a =
          RowMap::Pointer(buffers.planar.origin + static_cast<uintptr_t>(position * kQuad));
      Accumulate(a, (positions + lanes_ - 1) / lanes_, panel, chunk_end, accumulators);
      StorePositions(buffers, columns, position, positions, accumulators, scratch + AccumulatorBytes());
    }
  }
}

void GroupedEngine::StorePositions(const RunBuffers& buffers, const Range& range, int64_t position,
                                   int64_t positions, const int32_t* accumulators,
                                   uint8_t* scratch_tile) const noexcept {
  const PlanarDepth& planar = *data_.taps.planar;
  std::array<int64_t, kMaxRows> rows;
  int64_t line = position / planar.line_positions;
  int64_t x = position % planar.line_positions;
  int64_t* to = rows.data();
  for (int64_t left = positions; left > 0; ++line, x = 0) {
    const int64_t valid = std::min(left, std::max<int64_t>(planar.line_rows - x, 0));
    std::iota(to, to + valid, buffers.planar.first_row + line * planar.line_rows + x);
    const int64_t dropped = std::min(left, planar.line_positions - x) - valid;
    to = std::fill_n(to + valid, dropped, kDropped);
    left -= valid + dropped;
  }
  StoreTiles(buffers, range, {rows.data(), static_cast<size_t>(positions)}, accumulators, scratch_tile);
}

// The next `rows` rows, tap by tap; returns the largest activation.
uint8_t GroupedEngine::Pack(RowCursor* cursor, int64_t rows, uint8_t* panel) const noexcept {
  std::array<const uint8_t*, kMaxRows> pointers;
  std::generate_n(pointers.begin(), rows, [&] { return cursor->Next(); });
  uint8_t largest = 0;
  for (const int64_t tap : data_.taps.offsets) {
    largest = std::max(largest, PackActivations({pointers.data(), static_cast<size_t>(rows)}, tap,
                                                data_.taps.depth, data_.a_flip(), rows_, panel));
    panel += ActivationPanelBytes(rows_, data_.taps.depth);
  }
  return largest;
}

void GroupedEngine::RunBlock(const RunBuffers& buffers, const Range& range, const uint8_t* panels,
                             uint8_t* scratch) const noexcept {
  auto* const accumulators = reinterpret_cast<int32_t*>(scratch);
  uint8_t* const tile = scratch + AccumulatorBytes();
  const int64_t panel_end = (range.column_end + kPanelColumns - 1) / kPanelColumns;
  for (int64_t panel = range.column_begin / kPanelColumns; panel < panel_end; panel += PanelsPerChunk()) {
    const int64_t chunk_end = std::min(panel_end, panel + PanelsPerChunk());
    for (int64_t row = range.row_begin; row < range.row_end; row += rows_) {
      const int64_t rows = std::min<int64_t>(rows_, range.row_end - row);
      const uint8_t* const a = panels + ActivationPanelBytes(row - range.row_begin, data_.k);
      for (int64_t at = panel; at < chunk_end; at += PanelsAtOnce()) {
        const int64_t end = std::min(chunk_end, at + PanelsAtOnce());
        Accumulate(a, (rows + lanes_ - 1) / lanes_, at, end, accumulators);
        Store(buffers, {row, row + rows, at * kPanelColumns, std::min(range.column_end, end * kPanelColumns)},
              accumulators, tile);
      }
    }
  }
}

void GroupedEngine::Accumulate(const uint8_t* a, int64_t vectors, int64_t panel_begin, int64_t panel_end,
                               int32_t* accumulators) const noexcept {
  const int64_t panel_size = int64_t{kPanelColumns} * rows_;
  const ScheduleShape& shape = schedule_.shape();
  for (int64_t window = 0; window < schedule_.windows(); ++window) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      GroupedKernelArgs args;
      args.a = data_.taps.planar ? a : a + window * shape.window_quads * kQuad * rows_;
      args.strips = schedule_.Strips(window, panel);
      const int64_t columns = std::min<int64_t>(kPanelColumns, data_.n - panel * kPanelColumns);
      args.strip_count = (columns + shape.strip_columns - 1) / shape.strip_columns;
      args.initial = window == 0 ? data_.initial.data() + panel * kPanelColumns : nullptr;
      args.accumulators = accumulators + (panel - panel_begin) * panel_size;
      kernels_[static_cast<size_t>(vectors - 1)](&args);
    }
  }
}

void GroupedEngine::Store(const RunBuffers& buffers, const Range& range, const int32_t* accumulators,
                          uint8_t* scratch_tile) const noexcept {
  std::array<int64_t, kMaxRows> rows;
  const auto count = static_cast<size_t>(range.row_end - range.row_begin);
  std::iota(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), range.row_begin);
  StoreTiles(buffers, range, {rows.data(), count}, accumulators, scratch_tile);
}

// `rows`: those of C that the rows of the accumulators are; of `range` the columns count.
void GroupedEngine::StoreTiles(const RunBuffers& buffers, const Range& range, std::span<const int64_t> rows,
                               const int32_t* accumulators, uint8_t* scratch_tile) const noexcept {
  const int64_t element = data_.element_bytes();
  std::array<uint8_t*, kMaxLanes> c;
  for (int64_t column = range.column_begin; column < range.column_end; column += lanes_) {
    const int64_t columns = std::min<int64_t>(lanes_, range.column_end - column);
    for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(lanes_)) {
      const auto tile = rows.subspan(first, std::min(rows.size() - first, static_cast<size_t>(lanes_)));
      for (size_t i = 0; i < tile.size(); ++i) {
        const bool is_direct = tile[i] != kDropped && columns == lanes_;
        c[i] = is_direct ? buffers.c + tile[i] * buffers.c_stride_bytes + column * element
                         : scratch_tile + static_cast<int64_t>(i) * lanes_ * element;
      }
      TileEpilogueArgs args;
      args.accumulators = accumulators + (column - range.column_begin) * rows_ + static_cast<int64_t>(first);
      args.column_stride_bytes = int64_t{4} * rows_;
      args.rows = static_cast<int64_t>(tile.size());
      args.c = c.data();
      args.epilogue = data_.EpilogueAt(buffers, tile[0], column);
      if (buffers.residual != nullptr && (columns != lanes_ || data_.taps.planar)) {
        GatherResidual(buffers, tile, column, columns, scratch_tile + TileBytes(), &args.epilogue);
      }
      const bool streams = buffers.may_stream && streaming_epilogue_ != nullptr && columns == lanes_;
      (streams ? streaming_epilogue_ : epilogue_)(&args);
      if (columns == lanes_) continue;
      for (size_t i = 0; i < tile.size(); ++i) {
        if (tile[i] == kDropped) continue;
        std::memcpy(buffers.c + tile[i] * buffers.c_stride_bytes + column * element, c[i],
                    static_cast<size_t>(columns * element));
      }
    }
  }
}

// Whole vectors of the residual of a tile, which in C has neither whole vectors nor adjacent rows.
void GroupedEngine::GatherResidual(const RunBuffers& buffers, std::span<const int64_t> rows, int64_t column,
                                   int64_t columns, uint8_t* to, EpilogueArgs* args) const noexcept {
  const int64_t element = data_.residual_bytes();
  args->residual = to;
  args->residual_stride_bytes = lanes_ * element;
  std::memset(to, 0, static_cast<size_t>(std::ssize(rows) * args->residual_stride_bytes));
  for (const int64_t row : rows) {
    if (row != kDropped) {
      std::memcpy(to, buffers.residual + row * buffers.residual_stride_bytes + column * element,
                  static_cast<size_t>(columns * element));
    }
    to += args->residual_stride_bytes;
  }
}

}  // namespace intact::kernels
