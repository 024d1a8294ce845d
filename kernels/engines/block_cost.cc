#include "kernels/engines/block_cost.h"

#include <algorithm>

#include "kernels/codegen/microkernel.h"
#include "kernels/engines/cost_table.h"
#include "kernels/runtime/blocking.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {

double RuntimePackingCost(const GemmData& data, core::Isa isa) {
  if (!data.problem.has_runtime_b) return 0;
  const bool has_columns = data.linear->layout().stride_k == 1;
  const bool is_far = data.weights.bytes() > Caches().StreamedWeights();
  const RuntimeCosts& costs = Costs().runtime;
  const double rows = is_far ? costs.packed_far_rows : costs.packed_rows;
  return (has_columns ? costs.packed_columns : rows) / HalfCycles(isa);
}

bool BlockCost::IsSigned(const KernelBlock& block, const GemmData& data) {
  return data.problem.a_type == INTACT_S8 && block.a == Activations::kAnySigns &&
         data.skipping_compensation.empty();
}

bool BlockCost::IsStaged(const KernelBlock& block, const GemmData& data) {
  const bool is_shifted = data.a_shift() != 0 && !IsSigned(block, data);
  const bool has_taps = data.taps().count() > 1 || !data.skipping_compensation.empty();
  return jit::ActivationQuadBytes(block.dot) != kQuad || is_shifted || data.taps().depth % kQuad != 0 ||
         (block.packing == Packing::kStrips && has_taps);
}

bool BlockCost::PairsRows(const KernelBlock& block, const GemmData& data) {
  const int64_t lanes = jit::VectorBytes(block.isa) / 4, last = data.n % lanes;
  return block.dot == jit::DotKind::kVnni && lanes == 16 && last != 0 &&
         last <= std::min(Costs().layout.shared_columns, lanes / 2) && data.weights.width == kPanelColumns &&
         data.taps().vector_step == 0 && !data.taps().shared;
}

// Rows are cut evenly, so that no tile has few rows. But a block of few accumulators is cut into whole tiles:
// half of it could not hide the latency of products. With 6×2, a quad of four rows takes as long as a quad of
// five. Measured on Zen 5 with 1 to 6 rows: 1.8, 2.3, 3.2, 4.8, 5.6 and 6.2 cycles.
EqualTiles FirstTiles(const KernelBlock& block, int64_t rows) {
  const int64_t whole_tiles = Quotient(rows, block.mr), tail = rows - whole_tiles * block.mr;
  if (block.dot == jit::DotKind::kVnni && block.mr * block.vectors < 2 * kInFlight && rows > block.mr) {
    const int64_t whole = whole_tiles - (tail == 1 ? 1 : 0);
    if (whole != 0) return {whole, block.mr};
    return {1, block.mr - 1};  // then two rows
  }
  const int64_t tiles = whole_tiles + (tail == 0 ? 0 : 1);
  if (tiles == 1) return {1, rows};
  const int64_t least = rows / tiles, higher = rows - least * tiles;
  return higher == 0 ? EqualTiles{tiles, least} : EqualTiles{higher, least + 1};
}

BlockCost::BlockCost(const KernelBlock& block, const GemmData& data, const ScheduleStatistics& statistics)
    : block_(block),
      stores_bytes_(data.element_bytes() == 1),
      is_staged_(IsStaged(block, data)),
      pairs_rows_(PairsRows(block, data)) {
  const int64_t lanes = jit::VectorBytes(block.isa) / 4;
  const int64_t quads = CeilDivide(data.k, kQuad);
  packing_ = RuntimePackingCost(data, block.isa);
  taps_ = data.taps().count();
  lies_in_band_ = data.taps().lies_in_band;
  vectors_ = CeilDivide(data.n, lanes);
  quads_ = tile_quads_ = static_cast<double>(quads);
  if (block.packing == Packing::kWidePanels && data.weights.data != nullptr) {
    tile_quads_ = static_cast<double>(taps_ * WidePanels::TapPairs(data.weights, data.taps().depth)) / 2;
  }
  if (statistics.quads != 0) {
    items_ = static_cast<double>(statistics.items) / static_cast<double>(statistics.quads);
    groups_ = static_cast<double>(statistics.groups) / static_cast<double>(statistics.quads);
  }
  const bool is_wide = block.packing == Packing::kWidePanels;
  streams_weights_ =
      (block.dot == jit::DotKind::kVnni || is_wide) &&
      quads * block.vectors * jit::VectorBytes(block.isa) * (is_wide ? 2 : 1) > Caches().StayingWeights();
  row_calls_ = CeilDivide(vectors_, block.vectors);
  if (data.taps().shared) {
    run_rows_ = data.taps().line_rows;
  } else if (!is_staged_ && data.taps().HasLineEnds()) {
    CutAtLines(data.taps());
  }
}

// Cuts tiles at lines, unless the smaller tiles cost more than the skipped padding saves. Tiles at the begin
// of a run, at its end, and between, are separate calls.
void BlockCost::CutAtLines(const Taps& taps) {
  const int64_t lines = std::max<int64_t>(block_.mr / taps.line_rows, 1);
  const int64_t run_rows = lines * taps.line_rows;
  // The first and the last row of a run skip a part of each tap.
  const double saved_rows = static_cast<double>(taps.head + taps.tail) / static_cast<double>(taps.depth);
  const auto product = [](const auto& costs) {
    if constexpr (requires { costs.product; }) return costs.product;
    return 1.0;
  };
  const double saved = saved_rows * static_cast<double>(vectors_) * quads_ * WithCosts(product);
  const int64_t call_rows = int64_t{block_.mr} * kMaxTiles;
  const double uncut = OfRows(call_rows) / static_cast<double>(call_rows) * static_cast<double>(run_rows);
  const auto more_calls = static_cast<double>(std::min<int64_t>(CeilDivide(run_rows, block_.mr), 3) - 1);
  const double all_saved = saved - more_calls * static_cast<double>(row_calls_) * OfCall();
  if (OfRows(run_rows) - all_saved >= uncut) return;
  run_rows_ = run_rows;
  saved_of_run_ = all_saved;
}

double BlockCost::Of(int64_t m, TileRows* known) const {
  const double row = quads_ * static_cast<double>(vectors_);
  double cost = 0;
  if (run_rows_ == 0) {
    cost = OfRows(m, known);
  } else {
    const int64_t runs = m / run_rows_;
    cost =
        static_cast<double>(runs) * (OfRows(run_rows_, known) - saved_of_run_) + OfRows(m % run_rows_, known);
  }
  const double weight_bytes = row * jit::VectorBytes(block_.isa) * (items_ == 0 ? 1 : items_);
  if (weight_bytes > static_cast<double>(Caches().StreamedWeights())) {
    const VectorCosts& costs = Costs().Of(block_.isa);
    const double lines = weight_bytes / 64 / HalfCycles(block_.isa);
    cost += lines * costs.far_line;
    if (items_ != 0) cost = std::max(cost, lines * costs.scheduled_panels.far_line);
  }
  return cost / row + packing_;
}

double BlockCost::OfRows(int64_t rows, TileRows* known) const {
  double cost = static_cast<double>(rows) * OfStagedRow();
  int64_t tiles = 0;
  while (rows != 0) {
    const EqualTiles next = FirstTiles(block_, rows);
    cost += static_cast<double>(next.count) * OfTileRow(next.rows, known);
    tiles += next.count;
    rows -= next.count * next.rows;
  }
  const int64_t calls = CeilDivide(tiles, kMaxTiles) * row_calls_;
  return cost + static_cast<double>(calls) * OfCall();
}

double BlockCost::OfTileRow(int64_t rows, TileRows* known) const {
  double* const cost = known == nullptr ? nullptr : &known->at(static_cast<size_t>(rows));
  if (cost != nullptr && *cost != 0) return *cost;
  const int64_t whole = (vectors_ - (pairs_rows_ ? 1 : 0)) / block_.vectors;
  const double computed = static_cast<double>(whole) * OfTile({rows, block_.vectors}) +
                          OfTile({rows, vectors_ - whole * block_.vectors, pairs_rows_});
  if (cost != nullptr) *cost = computed;
  return computed;
}

// VnniCosts::tile includes it.
double BlockCost::OfCall() const {
  const VectorCosts& all = Costs().Of(block_.isa);
  if (std::holds_alternative<PanelCosts VectorCosts::*>(block_.costs)) return all.panel_call;
  return block_.packing == Packing::kStrips ? all.scheduled_panels.call : 0;
}

// Variants without their own constants copy rows as the in-place variant does. The wide variant widens the
// rows of a band, which share most of their taps, at once.
double BlockCost::OfStagedRow() const {
  if (!is_staged_ || block_.dot == jit::DotKind::kVnni) return 0;
  const VectorCosts& all = Costs().Of(block_.isa);
  const auto* const own = std::get_if<PanelCosts VectorCosts::*>(&block_.costs);
  const PanelCosts& costs = own == nullptr ? all.in_place : all.*(*own);
  const int64_t copies = block_.packing == Packing::kWidePanels && lies_in_band_ ? 0 : taps_;
  return costs.row * static_cast<double>(copies) + costs.row_quad * quads_;
}

double BlockCost::OfTile(const Tile& tile) const {
  if (tile.vectors == 0) return 0;
  return WithCosts([&](const auto& costs) { return OfTile(costs, tile); });
}

// Vectors of wide weights that come from L2 take twice as long. Measured on Zen 5 with AVX-512 at 768×768.
double BlockCost::OfTile(const PanelCosts& costs, const Tile& tile) const {
  const auto rows = static_cast<double>(tile.rows);
  const double vector = streams_weights_ ? 2 * costs.vector : costs.vector;
  const double quad = costs.product * rows + vector;
  const double output = stores_bytes_ ? costs.output * rows : 0;
  return (tile_quads_ * quad + output) * static_cast<double>(tile.vectors) + costs.tile;
}

double BlockCost::OfTile(const ScheduledPanelCosts& costs, const Tile& tile) const {
  const auto rows = static_cast<double>(tile.rows);
  const double row = costs.item_row * items_ + costs.group_row * groups_;
  const double quad = row * rows + costs.item * items_;
  const double output = stores_bytes_ ? costs.byte_output : costs.output;
  return (quads_ * quad + output * rows) * static_cast<double>(tile.vectors) + costs.tile;
}

double BlockCost::OfTile(const VnniCosts& costs, const Tile& tile) const {
  const int64_t rows = tile.rows, vectors = tile.vectors;
  // Rows and vectors are loaded, as fast as vectors are multiplied.
  const int64_t saved = tile.pairs_rows && rows >= kLeastPairedRows ? rows / 2 : 0;
  auto products = static_cast<double>(std::max(rows * vectors - saved, rows + vectors));
  if (streams_weights_) {
    const double loads = static_cast<double>(vectors * jit::VectorBytes(block_.isa)) / 64;
    products = std::max(products + loads * costs.vector_passing, loads * costs.vector_from_l2);
  }
  const double output =
      (stores_bytes_ ? costs.byte_output : costs.output) * static_cast<double>(rows * vectors);
  return quads_ * std::max(products, costs.in_flight) + output + costs.tile;
}

}  // namespace intact::kernels
