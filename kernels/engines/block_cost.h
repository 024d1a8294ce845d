// The cost model of a register block: the tiles that the block cuts rows into, and the time of these tiles.
//
//   rows of a GEMM           tile | tile | tile | …                      evenly, or whole tiles first
//   rows of a convolution    line 0: tile | tile   line 1: tile | tile   the tiles at the ends of lines leave
//                                                                        padding out (microkernel.h)
//
// A tile takes, in dot products of a vector,
//
//   Σ over quads of max(rows × vectors, latency, loads of weights from L2)  +  a constant per tile
//
// Variants without VNNI have separate costs for products and for vectors of weights. The scheduled variant
// counts the items and groups of its schedule instead of quads. The models add costs for 8-bit outputs, for
// kernel calls, for staged rows and for weights that L2 does not hold. The scheduled variant takes at least
// the time of loading these weights.
#ifndef INTACT_KERNELS_ENGINES_BLOCK_COST_H_
#define INTACT_KERNELS_ENGINES_BLOCK_COST_H_

#include <array>
#include <cstdint>

#include "kernels/codegen/dispatch.h"
#include "kernels/engines/cost_table.h"
#include "kernels/engines/engine.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// The most tiles, one below the other, that one kernel call runs.
inline constexpr int kMaxTiles = 16;

/// Tiles of one height, one below the other.
struct EqualTiles {
  int64_t count, rows;
};
/// The first tiles that `block` cuts `rows` rows into.
EqualTiles FirstTiles(const KernelBlock& block, int64_t rows);

/// The cost of packing a runtime B, in the unit of Engine::Cost(). 0 if B is constant.
double RuntimePackingCost(const GemmData& data, core::Isa isa);

/// The cost model of one register block, for the weights of one plan.
class BlockCost {
 public:
  /// `statistics`: the statistics of the scheduled variant's schedule; empty for other variants.
  BlockCost(const KernelBlock& block, const GemmData& data, const ScheduleStatistics& statistics = {});

  /// The cost of a row of tiles, by the rows of a tile; 0: not known yet.
  using TileRows = std::array<double, 17>;
  /// Time for `m` rows. The unit is the time of the ISA's dot products of one row, without other costs.
  /// `known`: null, or what calls remember while Costs() does not change.
  double Of(int64_t m, TileRows* known = nullptr) const;
  /// The number of rows, a whole number of lines, after which a new tile begins. 0: tiles continue across
  /// lines.
  int64_t run_rows() const { return run_rows_; }

  /// Whether kernels of `block` multiply s8 activations without a shift. False if there are constants for
  /// skipped padding: these constants assume the shift. Only bands have these constants, and bands hold u8.
  static bool IsSigned(const KernelBlock& block, const GemmData& data);
  /// Whether kernels of `block` cannot read A in place. Most variants need shifted s8, and a depth that is a
  /// multiple of four. The wide and split variants read other bytes. The scheduled variant reads a single
  /// tap.
  static bool IsStaged(const KernelBlock& block, const GemmData& data);
  /// Tiles of fewer rows wait for loads. Measured on Zen 5 with 24 and 40 columns.
  static constexpr int kLeastPairedRows = 4;
  /// Whether the rows of such tiles share the last vector in pairs (MicrokernelSpec::pairs_rows).
  static bool PairsRows(const KernelBlock& block, const GemmData& data);

 private:
  double OfRows(int64_t rows, TileRows* known = nullptr) const;
  double OfTileRow(int64_t rows, TileRows* known) const;
  /// The block's constants, passed to `visit`.
  template <class Visit>
  double WithCosts(const Visit& visit) const {
    const VectorCosts& costs = Costs().Of(block_.isa);
    return std::visit([&](auto member) -> double { return visit(costs.*member); }, block_.costs);
  }
  struct Tile {
    int64_t rows = 0, vectors = 0;
    bool pairs_rows = false;  // see PairsRows()
  };
  double OfTile(const Tile& tile) const;
  double OfTile(const VnniCosts& costs, const Tile& tile) const;
  double OfTile(const PanelCosts& costs, const Tile& tile) const;
  double OfTile(const ScheduledPanelCosts& costs, const Tile& tile) const;
  double OfCall() const;
  double OfStagedRow() const;
  void CutAtLines(const Taps& taps);

  KernelBlock block_;
  bool stores_bytes_, is_staged_, pairs_rows_;
  double packing_ = 0;  // of a runtime B
  int64_t taps_ = 1;
  bool lies_in_band_ = false;
  int64_t vectors_ = 0;  // vectors of columns
  double quads_ = 0;
  double tile_quads_ =
      0;  // quads that tiles multiply: the wide variant leaves out padding at the ends of taps
  double items_ = 0, groups_ = 0;  // items and groups of the schedule, per quad
  bool streams_weights_ = false;   // each tile reads the weights from L2 or beyond
  int64_t row_calls_ = 0;          // calls for a row of tiles
  int64_t run_rows_ = 0;
  double saved_of_run_ = 0;  // the time that run_rows_ rows save by leaving padding out
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_BLOCK_COST_H_
