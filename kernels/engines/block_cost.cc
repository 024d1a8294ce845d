#include "kernels/engines/block_cost.h"

#include <algorithm>

#include "jit/isa.h"
#include "kernels/base/blocking.h"
#include "kernels/engines/cost_constants.h"

namespace intact::kernels {
namespace {

const costs::FormCosts& CostsHere() {
  static const bool kIsAmd = jit::HostCpu().vendor == "AuthenticAMD";
  return kIsAmd ? costs::kFormsOnAmd : costs::kFormsElsewhere;
}

}  // namespace

bool BlockCost::IsSigned(const KernelBlock& block, const GemmData& data) {
  return data.problem.a_type == INTACT_S8 && TakesSigned(block) && data.skipping_initial.empty();
}

bool BlockCost::IsStaged(const KernelBlock& block, const GemmData& data) {
  const bool is_shifted = data.a_flip() != 0 && !IsSigned(block, data);
  const bool has_taps = data.taps().count() > 1 || !data.skipping_initial.empty();
  return jit::ActivationQuadBytes(block.dot) != kQuad || is_shifted || data.taps().depth % kQuad != 0 ||
         (block.dot == jit::DotKind::kScheduled && has_taps);
}

BlockCost::BlockCost(const KernelBlock& block, const GemmData& data, const ScheduleStatistics& statistics)
    : block_(block) {
  const int64_t lanes = jit::VectorBytes(block.isa) / 4;
  const int64_t quads = CeilDivide(data.k, kQuad);
  vectors_ = CeilDivide(data.n, lanes);
  quads_ = static_cast<double>(quads);
  if (statistics.quads != 0) {
    items_ = static_cast<double>(statistics.items) / static_cast<double>(statistics.quads);
    groups_ = static_cast<double>(statistics.groups) / static_cast<double>(statistics.quads);
  }
  streams_weights_ = block.dot == jit::DotKind::kVnni &&
                     quads * block.vectors * jit::VectorBytes(block.isa) > Caches().l1d_bytes / 2;
  if (data.taps().shared) {
    run_rows_ = data.taps().line_rows;
    shares_pixels_ = true;
  } else if (!IsStaged(block, data) && data.taps().HasLineEnds()) {
    CutAtLines(data.taps());
  }
}

// Unless the smaller tiles cost more than what they leave out.
void BlockCost::CutAtLines(const Taps& taps) {
  const int64_t lines = std::max<int64_t>(block_.mr / taps.line_rows, 1);
  const int64_t run_rows = lines * taps.line_rows;
  // The first and the last row of a run leave a part of each tap out.
  const double saved_rows = static_cast<double>(taps.head + taps.tail) / static_cast<double>(taps.depth);
  const double saved = saved_rows * static_cast<double>(vectors_) * quads_;
  const double uncut = OfRows(block_.mr) / block_.mr * static_cast<double>(run_rows);
  if (OfRows(run_rows) - saved >= uncut) return;
  run_rows_ = run_rows;
  saved_rows_ = saved_rows;
}

double BlockCost::Of(int64_t m) const {
  const double row = quads_ * static_cast<double>(vectors_);
  double cost = 0;
  if (run_rows_ == 0) {
    cost = OfRows(m);
  } else {
    const int64_t runs = m / run_rows_;
    cost = static_cast<double>(runs) * (OfRows(run_rows_) - saved_rows_ * row) + OfRows(m % run_rows_);
  }
  return cost / row;
}

// Cut evenly.
double BlockCost::OfRows(int64_t rows) const {
  if (rows == 0) return 0;
  const int64_t tiles = CeilDivide(rows, block_.mr);
  const int64_t whole = vectors_ / block_.vectors;
  const int64_t rest = vectors_ % block_.vectors;
  const auto of_tiles = [&](int64_t count, int64_t tile_rows) {
    return static_cast<double>(count) *
           (static_cast<double>(whole) * OfTile(tile_rows, block_.vectors) + OfTile(tile_rows, rest));
  };
  return of_tiles(rows % tiles, rows / tiles + 1) + of_tiles(tiles - rows % tiles, rows / tiles);
}

double BlockCost::OfTile(int64_t rows, int64_t vectors) const {
  if (vectors == 0) return 0;
  if (block_.dot == jit::DotKind::kWide) {
    const double product = CostsHere().wide * (static_cast<double>(rows) + CostsHere().wide_vector);
    return quads_ * product * static_cast<double>(vectors) + costs::kTileCost;
  }
  if (block_.dot == jit::DotKind::kSplit) {
    const double product = CostsHere().split * static_cast<double>(rows) + CostsHere().split_vector;
    return quads_ * product * static_cast<double>(vectors) + costs::kTileCost;
  }
  if (block_.dot == jit::DotKind::kScheduled) {
    const double row = costs::kItemRow * items_ + costs::kGroupRow * groups_;
    return quads_ * static_cast<double>(vectors) * (row * static_cast<double>(rows) + costs::kItem * items_) +
           costs::kScheduledTile;
  }
  auto products = static_cast<double>(rows * vectors);
  const bool overflows = rows * vectors + vectors + 1 > jit::VectorCount(block_.isa);
  if (overflows && !shares_pixels_) products *= costs::kVectorFromMemory;
  if (streams_weights_) {
    const double loads = static_cast<double>(vectors * jit::VectorBytes(block_.isa)) / 64;
    products = std::max(products + loads * costs::kVectorPassing, loads * costs::kVectorFromL2);
  }
  return quads_ * std::max(products, costs::kInFlight) + costs::kTileCost;
}

}  // namespace intact::kernels
