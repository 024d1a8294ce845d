// A convolution of known extents as GEMMs: a plan for each unit of its layout (conv_layout.h).
//
//   Run   a chunk of pixels × channels ─► staged input (input_source.h) ─► units ─► UnitPlan::RunShare()
#ifndef INTACT_KERNELS_PLANS_UNIT_CONV_H_
#define INTACT_KERNELS_PLANS_UNIT_CONV_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/plans/conv_kernels.h"
#include "kernels/plans/conv_layout.h"
#include "kernels/plans/unit_plan.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/output_grid.h"
#include "kernels/staging/input_source.h"

namespace intact::kernels {

class UnitConv final : public ConvKernels {
 public:
  /// `layout` and `grid` outlive the result. UNSUPPORTED if a planar layout cannot serve these extents.
  static Result<std::unique_ptr<ConvKernels>> Create(const ConvLayout& layout, const ConvGeometry& geometry,
                                                     const OutputGrid& grid);

  std::string KernelName() const override { return units_.front()->kernel_name(); }
  std::string KernelNameOf(const EngineChoice& choice) const override;
  int64_t packed_bytes() const override;
  ScheduleStatistics schedule_statistics() const override;
  void DropUnreadPanels() override;
  void RunAllAs(int64_t m) override;
  bool RunsByLine() const override;
  bool CanStream() const override { return HasOneUnit(); }
  void Decide(const EngineChoice& choice, ConvRun* run) const override;
  int64_t ChunkEnd(int64_t row, int64_t row_end) const override { return source_->EndFrom(row, row_end); }
  double RowsCost(const ConvRun& run, int64_t rows) const override;
  Error FindSchedules(const ConvRun& run, int threads) const override;
  Error PrepareRows(const ConvRun& run, int64_t rows, bool or_fewer) const override;
  int64_t RunColumnBytes() const override;
  const PerRunColumnConstants* MakePerRunColumnConstants(const RowQuantization& a,
                                                         uint8_t* to) const override;
  void Run(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run, const Range& chunk,
           uint8_t* scratch) const override;
  std::unique_ptr<BoundCalls> Bind(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run,
                                   const Range& chunk, uint8_t* scratch) const override;
  Result<std::vector<EngineChoice>> MakeCandidates() override;
  EngineChoice ModelChoice(int64_t rows) const override;
  Error Keep(const EngineChoice& choice) override;

 private:
  class BoundChunk;
  UnitConv(const ConvLayout& layout, const ConvGeometry& geometry, const OutputGrid& grid)
      : layout_(layout), geometry_(geometry), grid_(grid) {}
  Error MakeUnits();
  Result<Access> MakeSource();
  Taps MakeTaps(const Band& band) const;
  void SetStaging(Taps* taps) const;
  void SharePixels(const Band& band, Taps* taps) const;
  void SetLineTaps(Taps* taps) const;
  void SetLineEnds(const Band& band, Taps* taps) const;
  /// Whether the padding that `taps` skips is worth the smaller tiles.
  bool PaysToSkip(const Taps& taps) const;
  /// Whether line_taps pay, without the ends of lines.
  bool PaysToSkipTaps(const Taps& taps) const;
  /// The bytes of padding that line_taps leave out of all pixels of a plane.
  double SkippedByLines(const Taps& taps) const;
  /// The time that the products of `bytes` of a row take.
  double HalfCyclesOf(double bytes) const;
  /// Whether kernels that leave out the padding that `taps` skips can read the caller's input.
  bool MayReadInPlace(const Taps& taps) const;
  void SetInPlaceTaps(const Taps& taps);
  bool HasOneUnit() const { return units_.size() == 1; }
  /// Whether a chunk is staged at once and computed by one unit.
  bool IsOneGemm() const { return HasOneUnit() && source_->groups() == geometry_.groups; }
  /// Sets the rows and taps of `buffers` if the engine can read the chunk's input where it lies.
  bool ReadInPlace(const ConvInput& input, const ConvRun& run, const Range& chunk, RunBuffers* buffers) const;
  /// `buffers`, and the columns of `range`, are of unit `number` alone.
  void RunUnit(size_t number, const ConvRun& run, const RunBuffers& buffers, const Range& range,
               uint8_t* scratch) const;

  const ConvLayout& layout_;
  ConvGeometry geometry_;
  const OutputGrid& grid_;
  std::unique_ptr<InputSource> source_;
  // Taps of a band as offsets in a dense input. Empty if its rows must be staged.
  std::vector<int64_t> in_place_taps_;
  std::vector<std::unique_ptr<UnitPlan>> units_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_UNIT_CONV_H_
