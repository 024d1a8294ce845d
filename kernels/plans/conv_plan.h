// A convolution of given extents: a layout of weights (conv_layout.h), and all that extents decide.
//
//   Create:    the source of input and its taps → a GemmPlan for each unit of the layout
//   RunShare:  a share of output pixels × channels ─► bands of pixels (input_source.h) ─► units ─►
//              Engine::RunRange()
//
// Output pixels that do not lie at even distances (output_grid.h) do so within a line: lines are run one by
// one, or a piece of the output is computed in scratch and copied to its places.
#ifndef INTACT_KERNELS_PLANS_CONV_PLAN_H_
#define INTACT_KERNELS_PLANS_CONV_PLAN_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/plans/conv_layout.h"
#include "kernels/plans/depthwise_conv.h"
#include "kernels/plans/gemm_plan.h"
#include "kernels/plans/share.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/output_grid.h"
#include "kernels/problem/output_map.h"
#include "kernels/staging/input_source.h"

namespace intact::kernels {

class ConvPlan {
 public:
  /// `geometry`: the layout's, of given extents. `grid`: the geometry's output among the caller's.
  /// UNSUPPORTED if a planar layout cannot serve such extents; a depthwise kernel may not reach that far
  /// either.
  static Result<std::unique_ptr<ConvPlan>> Create(std::shared_ptr<const ConvLayout> layout,
                                                  const ConvGeometry& geometry, const OutputGrid& grid);
  /// Whether `layout` can serve `geometry`.
  static bool Fits(const ConvLayout& layout, const ConvGeometry& geometry);

  /// How a run is cut.
  struct Shape {
    int64_t rows = 0;          // output pixels of the run
    int64_t piece_rows = 0;    // that a thread computes at a time, at most
    int64_t run_rows = 0;      // that an engine is told to run at a time, at most
    SharedOutput output;       // as it is cut among threads
    int64_t spread_bytes = 0;  // of a piece of C and the residual in scratch; 0: it lies in its places
    bool is_by_line = false;   // lines are run one by one
    int64_t staged_bytes = 0;
    int64_t bytes = 0;                   // scratch that a share needs, aligned to 64 bytes
    std::vector<const Engine*> engines;  // of the units
  };
  Shape ShapeOf(int64_t batch) const { return ShapeOf(batch, chosen_); }
  /// How a run is cut for `parts` threads.
  Partition Cut(const Shape& shape, int parts) const;
  /// Computes a share of a run that is cut for `parts` threads. `output`: the caller's pixels.
  void RunShare(const ConvInput& input, const OutputMap& output, const Shape& shape, int part, int parts,
                uint8_t* scratch) const;

  /// Adds to `share` what RunShare() computes.
  void AddShare(const Shape& shape, int part, int parts, Share* share) const;

  const ConvLayout& layout() const { return *layout_; }
  const std::shared_ptr<const ConvLayout>& shared_layout() const { return layout_; }
  const ConvGeometry& geometry() const { return geometry_; }
  /// The main kernel's.
  const std::string& kernel_name() const { return kernel_name_; }
  /// The kernel that a run of `shape` is computed by.
  std::string KernelNameOf(const Shape& shape) const {
    return shape.engines.empty() ? kernel_name_ : shape.engines.front()->KernelName();
  }
  /// Memory of the weights in all forms.
  int64_t packed_bytes() const;
  /// For tests: see GemmPlan::RunAllAs().
  void RunAllAs(int64_t m) {
    for (const auto& unit : units_) unit->RunAllAs(m);
  }
  ScheduleStatistics schedule_statistics() const;
  /// See GemmPlan::DropUnreadPanels(): no other plan reads those of the layout.
  void DropUnreadPanels() {
    for (const auto& unit : units_) unit->DropUnreadPanels();
  }

  /// What a stopwatch may choose from: kernels that all units can run, and the choice of the cost model.
  struct Candidates {
    std::vector<GemmPlan::Candidates> units;
    std::vector<std::string> kernels;
    std::vector<Shape> shapes;  // of a batch of one, by kernel
  };
  Result<Candidates> MakeCandidates() const;
  /// What the cost model chooses for a batch of one.
  Shape ModelShape() const { return ShapeOf(1, {}); }
  /// Has runs of any batch take the kernel number `kernel` of the candidates.
  void Choose(size_t kernel, Candidates* candidates);

 private:
  ConvPlan(std::shared_ptr<const ConvLayout> layout, const ConvGeometry& geometry, const OutputGrid& grid)
      : layout_(std::move(layout)), geometry_(geometry), grid_(grid) {}
  Error MakeDepthwise();
  Error MakeUnits();
  /// `engines` of the units; empty: each unit's for so many rows.
  Shape ShapeOf(int64_t batch, const std::vector<const Engine*>& engines) const;
  Result<Access> MakeSource();
  Taps MakeTaps(const Band& band) const;
  void SharePixels(const Band& band, Taps* taps) const;
  void SetLineTaps(Taps* taps) const;
  void SetLineEnds(const Band& band, Taps* taps) const;

  int64_t units() const { return static_cast<int64_t>(units_.size()); }
  int64_t RowCount(int64_t batch) const {
    return batch * geometry_.output[kDepth] * geometry_.plane_pixels();
  }
  const Requantization& output() const { return layout_->problem().output; }
  /// Bytes of a row of C and of the residual.
  int64_t SpreadRowBytes() const;
  int64_t MostSpreadRows() const;
  bool RunsByLine() const;
  /// Calls run(piece) for the pieces that a thread computes one after the other.
  template <class Run>
  void ForEachPiece(const Shape& shape, const Range& share, const Run& run) const {
    Range piece = share;
    for (; piece.row_begin < share.row_end; piece.row_begin = piece.row_end) {
      piece.row_end = std::min(share.row_end, piece.row_begin + shape.piece_rows);
      if (source_ != nullptr) piece.row_end = source_->EndFrom(piece.row_begin, piece.row_end);
      run(piece);
    }
  }
  /// The time of `rows` rows, as Engine::Cost() tells it.
  double RowsCost(const Shape& shape, int64_t rows) const;
  /// What RunPiece() takes, see Share::work.
  double Work(const Shape& shape, const Range& piece) const;
  void RunPiece(const ConvInput& input, const RunBuffers& buffers, const Shape& shape, const Range& piece,
                uint8_t* scratch) const;
  /// The same in scratch, between copies from and to where `output` says.
  void RunSpread(const ConvInput& input, const OutputMap& output, const Shape& shape, const Range& piece,
                 uint8_t* scratch) const;
  /// `buffers` are those of the unit, and `range` is of its columns.
  void RunUnit(size_t number, const Shape& shape, const RunBuffers& buffers, const Range& range,
               uint8_t* scratch) const;

  std::shared_ptr<const ConvLayout> layout_;
  ConvGeometry geometry_;
  OutputGrid grid_;
  // A depthwise convolution has the first two, any other has the rest.
  std::unique_ptr<KernelData> depthwise_data_;
  std::unique_ptr<DepthwiseConv> depthwise_;
  std::unique_ptr<InputSource> source_;
  std::vector<std::unique_ptr<GemmPlan>> units_;
  std::vector<const Engine*> chosen_;  // by a stopwatch, of the units; empty: none is
  std::string kernel_name_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_PLAN_H_
