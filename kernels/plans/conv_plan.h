// A convolution's plan: implicit GEMM on the engines of GemmPlan. (What the C ABI runs is told in
// convolution.h.)
//
//   Create:    choose how input is read → weights by unit → a GemmPlan each
//   RunShare:  a share of output pixels × units ─► bands of pixels (band.h) ─► units ─► Engine::RunRange()
//
// Rows of A are output pixels, and the depth is made of taps (rows.h): nothing is unrolled into a matrix.
//
// Input is read in place where a filter has one tap and there is no padding (1×1, any stride); else from a
// band. Taps that lie side by side along the width are one tap of more channels, so that layers of few
// channels fill their k-quads; quads at the end of a tap read into what follows it, against weights that
// contribute nothing.
//
// A unit is what one GemmPlan computes: a group, or several of few channels side by side, whose weights are
// then block-diagonal, so that their columns fill a vector.
//
//   weights of a unit of two groups      columns of group 0   columns of group 1
//     channels of group 0                w                    neutral
//     channels of group 1                neutral              w
//
// A neutral weight equals its column's zero point, so that it contributes nothing whatever the activation. In
// saturating mode it must not clamp either: it is 0 as kernels see it, and what it meets is the zero point.
//
// Depthwise convolutions have kernels of their own (depthwise_conv.h).
//
// Output pixels that do not lie at even distances (output_grid.h) do so within a line: lines are run one by
// one, or a piece of the output is computed in scratch and copied to its places.
//
// Units whose columns fill just one vector are a single GemmPlan all the same: each vector of a tile then
// reads its own channels (Taps::vector_step).
#ifndef INTACT_KERNELS_PLANS_CONV_PLAN_H_
#define INTACT_KERNELS_PLANS_CONV_PLAN_H_

#include <intact/intact.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/input/band.h"
#include "kernels/input/planar_band.h"
#include "kernels/plans/depthwise_conv.h"
#include "kernels/plans/gemm_plan.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/output_grid.h"

namespace intact::kernels {

/// The output and the residual of a run, whose rows are all pixels; without A.
RunBuffers OutputBuffers(const intact_conv_args& args, const GemmData& data, int64_t channels);

class ConvPlan {
 public:
  /// From a checked problem, whose columns are the output channels, and its geometry, which is not
  /// transposed. `grid`: the geometry's output among the caller's.
  static Result<std::unique_ptr<ConvPlan>> Create(const GemmProblem& problem, const ConvGeometry& geometry,
                                                  const OutputGrid& grid);

  /// How a run is cut.
  struct Shape {
    int64_t rows = 0;        // output pixels of the run
    int64_t piece_rows = 0;  // that a thread computes at a time, at most
    int64_t run_rows = 0;    // that an engine is told to run at a time, at most
    int mr = 1;
    int64_t columns = 0, nr = 1;  // what is cut among threads beside rows: columns of the unit, or units
    int64_t spread_bytes = 0;     // of a piece of C and the residual in scratch; 0: it lies in its places
    bool is_by_line = false;      // lines are run one by one
    int64_t band_bytes = 0;
    int64_t bytes = 0;  // scratch that a share needs, aligned to 64 bytes
    int64_t parts() const { return TileCount(rows, columns, mr, static_cast<int>(nr)); }
  };
  Shape ShapeOf(int64_t batch) const;
  /// Computes a share of a run, whose arguments are checked.
  void RunShare(const intact_conv_args& args, const Shape& shape, int part, int parts,
                uint8_t* scratch) const;

  const std::string& kernel_name() const { return kernel_name_; }
  int64_t packed_bytes() const;
  /// For tests: see GemmPlan::RunAllAs().
  void RunAllAs(int64_t m) {
    for (const auto& unit : units_) unit->RunAllAs(m);
  }
  int64_t taps() const { return geometry_.taps(); }
  /// Copies the weights of a column at a tap as kernels see them, channel after channel, whatever the layout.
  void CopyTap(int64_t column, int64_t tap, int8_t* to) const;
  int64_t accumulator_min() const;
  int64_t accumulator_max() const;
  ScheduleStatistics schedule_statistics() const;

 private:
  /// How input is read.
  enum class Reading : uint8_t {
    kInPlace,
    kBand,         // of all channels
    kBandPerUnit,  // of a unit's channels alone
    kPlanarBand,
    kDepthwise,  // as DepthwiseConv does it
  };

  ConvPlan() = default;
  void ChooseLayout(const GemmProblem& problem, jit::Isa isa);
  bool PlanesAreEven() const;
  /// Whether rows are to fill the lanes, from a planar band.
  bool WantsPlanar(const GemmProblem& problem, jit::Isa isa) const;
  void SetTaps();
  void PadTapsForTiles();
  void SharePixels();
  void SetLineTaps();
  void SetLineEnds();
  Error MakeUnits(const GemmProblem& problem);
  Result<std::unique_ptr<GemmPlan>> MakeUnit(const GemmProblem& conv, int64_t unit) const;
  std::vector<int8_t> UnitWeights(const GemmProblem& conv, int64_t unit) const;
  /// Where the channel number `channel` of the group of column `n` lies in the depth, at `tap` of all taps.
  int64_t DepthOf(int64_t tap, int64_t channel, int64_t n) const;
  /// Calls run(channel, depth, count) for the channels of the group of column `n` at a tap: `count` of them
  /// from number `channel` on are adjacent in the depth.
  template <class Run>
  void ForEachRun(int64_t tap, int64_t n, const Run& run) const;

  bool IsPlanar() const { return reading_ == Reading::kPlanarBand; }
  bool IsDepthwise() const { return reading_ == Reading::kDepthwise; }
  /// Channels that a column's depth is made of.
  int64_t unit_inputs() const { return unit_groups_ * geometry_.group_inputs(); }
  /// Columns of a plan.
  int64_t unit_outputs() const {
    const bool has_all = taps_.vector_step != 0 || IsPlanar() || IsDepthwise();
    return (has_all ? geometry_.groups : unit_groups_) * geometry_.group_outputs();
  }
  int64_t units() const { return static_cast<int64_t>(units_.size()); }
  int64_t RowCount(int64_t batch) const {
    return batch * geometry_.output[kDepth] * geometry_.plane_pixels();
  }
  /// Bytes of a row of C and of the residual.
  int64_t SpreadRowBytes() const;
  int64_t MostSpreadRows() const;
  bool RunsByLine() const;
  RunBuffers LineOf(const RunBuffers& pixels, int64_t row, int64_t pixel) const;
  int64_t PieceEnd(const Shape& shape, int64_t row, int64_t row_end) const;
  void RunPiece(const ConvInput& input, RunBuffers buffers, const Shape& shape, const Range& piece,
                uint8_t* scratch) const;
  /// The same in scratch, between copies from and to where `buffers` say.
  void RunSpread(const ConvInput& input, const RunBuffers& buffers, const Shape& shape, const Range& piece,
                 uint8_t* scratch) const;
  /// But for A. Rows of C are those of the grid if it is even, else the caller's pixels.
  RunBuffers BuffersOf(const intact_conv_args& args, const Shape& shape) const;
  void RunPlanar(const ConvInput& input, RunBuffers buffers, const Shape& shape, const Range& piece,
                 uint8_t* scratch) const;
  /// `buffers` are those of all units, but for A; `range` is of the unit's columns.
  void RunUnit(int64_t unit, const Shape& shape, RunBuffers buffers, const Range& range,
               uint8_t* scratch) const;
  ConvInput InputOf(const intact_conv_args& args) const;
  RowMap RowsInPlace(const ConvInput& input) const;

  ConvGeometry geometry_;
  OutputGrid grid_;
  int64_t unit_groups_ = 1;
  Reading reading_ = Reading::kInPlace;
  Band band_;
  PlanarBand planar_;
  std::unique_ptr<DepthwiseConv> depthwise_;
  bool has_neutral_zeros_ = false;  // neutral weights are 0 as kernels see them, not the zero point
  bool joins_width_ = false;        // taps along the width are one
  Taps taps_;                       // of a unit
  std::vector<std::unique_ptr<GemmPlan>> units_;
  std::string kernel_name_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_PLAN_H_
