// A convolution of known extents: a layout of weights (conv_layout.h), the kernels for this layout
// (conv_kernels.h), and all decisions that depend on extents.
//
//   Decide:    once per batch size: steps, sizes of chunks, scratch, engines
//   RunShare:  a share of output pixels × channels ─► chunks of pixels ─► ConvKernels::Run()
//
// Output pixels may lie at uneven distances (output_grid.h). Within a line the distance is even. If distances
// are uneven, lines are run one by one, or a chunk of the output is computed in scratch and copied to its
// places.
#ifndef INTACT_KERNELS_PLANS_CONV_PLAN_H_
#define INTACT_KERNELS_PLANS_CONV_PLAN_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/plans/conv_kernels.h"
#include "kernels/plans/conv_layout.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/output_grid.h"
#include "kernels/problem/output_map.h"

namespace intact::kernels {

/// Pixels [begin, end) of the input, counted over all images.
struct InputPixels {
  int64_t begin = 0, end = 0;
};

class ConvPlan {
 public:
  /// `geometry`: the layout's geometry, with given extents. `grid`: the places of the output's pixels in the
  /// caller's output. UNSUPPORTED if the extents are too large for a planar layout.
  static Result<std::unique_ptr<ConvPlan>> Create(std::shared_ptr<const ConvLayout> layout,
                                                  const ConvGeometry& geometry, const OutputGrid& grid);

  /// Makes the decisions for all runs of `batch` images.
  ConvRun Decide(int64_t batch) const { return Decide(batch, choice_); }
  ConvRun Decide(int64_t batch, const EngineChoice& choice) const;
  /// Generates the kernels for RunShare() of `share`: see Engine::PrepareRows().
  Error PrepareShare(const ConvRun& run, const Range& share, bool or_fewer) const;
  /// Generates the kernels for a run of one image on one thread.
  Error PrepareImage(const ConvRun& run) const {
    return PrepareShare(run, {0, run.rows, 0, geometry_.output_channels}, false);
  }
  /// How a run is cut for `parts` threads.
  Partition Cut(const ConvRun& run, int parts) const;
  /// Computes share `range` of Cut(). `columns`: from ConvKernels::MakePerRunColumnConstants(); null for the plan's own.
  /// `output`: the caller's pixels.
  void RunShare(const ConvInput& input, const PerRunColumnConstants* columns, const OutputMap& output,
                const ConvRun& run, const Range& range, uint8_t* scratch) const;
  /// Appends the calls of RunShare(), chunk by chunk: see Engine::Bind(). False: they cannot all be bound.
  bool Bind(const ConvInput& input, const OutputMap& output, const ConvRun& run, const Range& share,
            uint8_t* scratch, std::vector<std::unique_ptr<BoundCalls>>* calls) const;
  /// A range that contains all input pixels that RunShare() of `range` may read.
  InputPixels PixelsOf(const Range& range) const;

  const ConvLayout& layout() const { return *layout_; }
  const std::shared_ptr<const ConvLayout>& shared_layout() const { return layout_; }
  const ConvGeometry& geometry() const { return geometry_; }
  /// The main kernel's name.
  const std::string& kernel_name() const { return kernel_name_; }
  const ConvKernels& kernels() const { return *kernels_; }
  ConvKernels* mutable_kernels() { return kernels_.get(); }

  /// The candidates for tuning, with the cost model's choice among them. Makes their engines.
  Result<std::vector<EngineChoice>> MakeCandidates();
  /// The candidate that the cost model chooses for a batch of one.
  EngineChoice ModelChoice() const { return kernels_->ModelChoice(Decide(1, {}).run_rows); }
  /// Makes runs of any batch use `choice`. UNSUPPORTED if no engine can run it.
  Error Choose(const EngineChoice& choice);

 private:
  ConvPlan(std::shared_ptr<const ConvLayout> layout, const ConvGeometry& geometry, const OutputGrid& grid)
      : layout_(std::move(layout)),
        geometry_(geometry),
        grid_(grid),
        row_step_(grid.RowStep()),
        first_pixel_(grid.FirstPixel()) {}
  const Requantization& output() const { return layout_->problem().output; }
  /// Bytes of a row of C and of the residual.
  int64_t SpreadRowBytes() const;
  int64_t MostSpreadRows() const;
  RunBuffers BuffersOf(const PerRunColumnConstants* columns, const OutputMap& output,
                       const ConvRun& run) const;
  /// Calls visit(chunk) for the chunks of `share` in their order, at most `most`. Returns the rows without a call.
  template <class Visit>
  Range ForEachChunk(const ConvRun& run, const Range& share, const Visit& visit,
                     int64_t most = std::numeric_limits<int64_t>::max()) const {
    Range chunk = share;
    for (; chunk.row_begin < share.row_end && most > 0; chunk.row_begin = chunk.row_end, --most) {
      chunk.row_end = std::min(share.row_end, chunk.row_begin + run.chunk_rows);
      chunk.row_end = kernels_->ChunkEnd(chunk.row_begin, chunk.row_end);
      visit(chunk);
    }
    chunk.row_end = share.row_end;
    return chunk;
  }
  /// Computes a chunk in scratch: copies the residual there, runs, and copies the outputs to their places.
  void RunSpread(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run, const Range& chunk,
                 uint8_t* scratch) const;

  std::shared_ptr<const ConvLayout> layout_;
  ConvGeometry geometry_;
  OutputGrid grid_;
  int64_t row_step_, first_pixel_;  // of grid_
  std::unique_ptr<ConvKernels> kernels_;
  EngineChoice choice_;  // made by tuning
  std::string kernel_name_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_PLAN_H_
