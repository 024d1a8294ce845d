// What a register block costs: which tiles it cuts rows into, and how long they take.
//
//   rows of a GEMM           tile | tile | tile | …                      evenly over all rows
//   rows of a convolution    line 0: tile | tile   line 1: tile | tile   the tiles at the ends of lines leave
//                                                                        padding out (microkernel.h)
//
// A tile takes, in dot products of a vector,
//
//   Σ over quads of max(rows × vectors, those that the latency or the weights' way from L2 take)  +  the tail
//
// The variants before VNNI count a product and a vector of weights apart, the scheduled one the items and groups
// of its schedule instead of quads; and beside these outputs of a byte, calls of several tiles, and rows that
// are staged.
#ifndef INTACT_KERNELS_ENGINES_BLOCK_COST_H_
#define INTACT_KERNELS_ENGINES_BLOCK_COST_H_

#include <cstdint>

#include "kernels/codegen/dispatch.h"
#include "kernels/engines/engine.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// Tiles one below the other that a call of a kernel runs, at most.
inline constexpr int kMaxTiles = 16;

/// The model of one block for one plan's weights.
class BlockCost {
 public:
  /// `statistics`: of the schedule that the scheduled variant runs; others have none.
  BlockCost(const KernelBlock& block, const GemmData& data, const ScheduleStatistics& statistics = {});

  /// Time for `m` rows, in times that the ISA's own sequence takes for a row.
  double Of(int64_t m) const;
  /// Rows from a line's begin on, whole lines, that whole tiles are to cover; 0: tiles go on over lines.
  int64_t run_rows() const { return run_rows_; }

  /// Whether kernels of `block` multiply s8 activations as they are. Constants for skipped padding assume the
  /// shift; they are there for bands alone, which hold u8.
  static bool IsSigned(const KernelBlock& block, const GemmData& data);
  /// Whether kernels of `block` cannot read A where it is: s8 must be shifted for most, a depth that is no
  /// multiple of four padded, the wide and split variants read it taken apart, the scheduled one as a single
  /// tap.
  static bool IsStaged(const KernelBlock& block, const GemmData& data);

 private:
  double OfRows(int64_t rows) const;
  double OfTile(int64_t rows, int64_t vectors) const;
  double OfCall() const;
  double OfStagedRow() const;
  void CutAtLines(const Taps& taps);

  KernelBlock block_;
  bool stores_bytes_, is_staged_;
  int64_t taps_ = 1;
  int64_t vectors_ = 0;  // of columns
  double quads_ = 0;
  double items_ = 0, groups_ = 0;  // of a quad, of a schedule
  bool streams_weights_ = false;   // from L2 or beyond, tile after tile
  bool shares_pixels_ = false;     // which vectors from memory cost nothing beside
  int64_t run_rows_ = 0;
  double saved_of_run_ = 0;  // by rows whose computation is left out
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_BLOCK_COST_H_
