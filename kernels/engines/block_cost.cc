#include "kernels/engines/block_cost.h"

#include <algorithm>

#include "jit/isa.h"
#include "kernels/base/blocking.h"

namespace intact::kernels {
namespace {

// Dot products of vpdpbusd, two a cycle. What a tile costs is measured; those of vectors are set so that the
// blocks win that were faster on convolutions of 7 to 56 lines, and L2's rate is the one that AmxEngine
// assumes.
constexpr double kTileCost = 70;
constexpr double kInFlight = 10;
constexpr double kVectorFromL2 = 3.7;       // of 64 bytes: 34 B a cycle
constexpr double kVectorPassing = 0.3;      // what it costs beside where products hide that
constexpr double kVectorFromMemory = 1.02;  // per product, where a vector of weights is read for each row
// What the int16 and the split form take, in triples: a product, and a vector of weights, which a tile's rows
// share: its widening, its way from the caches.
struct FormCosts {
  double wide, wide_vector, split, split_vector;
};
// Measured in turns with the triple on Zen 3: 1 to 3136 rows, depths of 16 to 4096, Laplace, Gaussian and
// uniform weights.
constexpr FormCosts kAmd = {1.23, 0.8, 1.25, 0.45};
// Counted, for three vector ports of which two multiply and shift.
constexpr FormCosts kOthers = {1.33, 1.0, 1.4, 0.5};

const FormCosts& CostsHere() {
  static const bool kIsAmd = jit::HostCpu().vendor == "AuthenticAMD";
  return kIsAmd ? kAmd : kOthers;
}

// The scheduled form, likewise, measured on Zen 3: a row of an item and of a group, an item beside its rows,
// a tile.
constexpr double kItemRow = 0.68;
constexpr double kGroupRow = 0.42;
constexpr double kItem = 1.9;
constexpr double kScheduledTile = 20;

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
    return quads_ * product * static_cast<double>(vectors) + kTileCost;
  }
  if (block_.dot == jit::DotKind::kSplit) {
    const double product = CostsHere().split * static_cast<double>(rows) + CostsHere().split_vector;
    return quads_ * product * static_cast<double>(vectors) + kTileCost;
  }
  if (block_.dot == jit::DotKind::kScheduled) {
    const double row = kItemRow * items_ + kGroupRow * groups_;
    return quads_ * static_cast<double>(vectors) * (row * static_cast<double>(rows) + kItem * items_) +
           kScheduledTile;
  }
  auto products = static_cast<double>(rows * vectors);
  const bool overflows = rows * vectors + vectors + 1 > jit::VectorCount(block_.isa);
  if (overflows && !shares_pixels_) products *= kVectorFromMemory;
  if (streams_weights_) {
    const double loads = static_cast<double>(vectors * jit::VectorBytes(block_.isa)) / 64;
    products = std::max(products + loads * kVectorPassing, loads * kVectorFromL2);
  }
  return quads_ * std::max(products, kInFlight) + kTileCost;
}

}  // namespace intact::kernels
