// The layout of a convolution's weights on one ISA: how input is read, how the depth is made of taps and
// channels, and the weights themselves, packed by unit. A layout serves inputs of any extents. Whatever
// depends on extents is in ConvPlan (conv_plan.h).
//
// Rows of A are output pixels, and the depth is made of taps (access.h): nothing is unrolled into a matrix.
//
// Input is read in place if a filter has one tap (1×1, any stride), there is no padding, and engines would
// not copy the rows (WantsBand()). Otherwise input is read from a band. Taps that lie side by side along the
// width are joined into one tap with more channels, so that layers of few channels fill their k-quads. The
// last quad of a tap may read bytes that follow the tap. The weights of these bytes contribute nothing. If taps of few
// channels lie apart, a band may join them: it holds the taps of each output pixel side by side.
//
// If pairs that saturate cross taps (INTACT_PAIRING_FLATTENED, an odd number of channels per group), all taps
// are joined: a row is the whole window of an output pixel (WindowSource). Exception: if a band gives the
// same pairs, the band is read.
//
// One UnitPlan computes one unit: a group, or several narrow groups side by side, so that their columns fill
// a vector. The weights of such a unit are block-diagonal.
//
//   weights of a unit of two groups      columns of group 0   columns of group 1
//     channels of group 0                w                    neutral
//     channels of group 1                neutral              w
//
// A neutral weight equals its column's zero point. So it contributes nothing, whatever the activation. In
// saturating mode a neutral weight must not make pairs clamp either, so kernels see the weight as 0. If its
// column has a zero point, the neutral weight must then meet only activations that equal A's zero point.
//
// Units whose columns fill exactly one vector share a single UnitPlan: each vector of a tile then reads its
// own channels (Taps::vector_step).
//
// Depthwise convolutions have their own kernels (depthwise_conv.h). Exception: if pairs cross taps and
// weights have zero points, depthwise convolutions read windows. A single group of one input channel and few
// outputs runs on the depthwise kernels too.
#ifndef INTACT_KERNELS_PLANS_CONV_LAYOUT_H_
#define INTACT_KERNELS_PLANS_CONV_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/plans/conv_weights.h"
#include "kernels/plans/unit_plan.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/linear_problem.h"
#include "kernels/staging/band.h"
#include "kernels/staging/planar_band.h"
#include "kernels/weights/linear_weights.h"

namespace intact::kernels {

/// Assumed minimum of output pixels per GEMM call (tails of lines and images are smaller).
inline constexpr int64_t kUsualPixels = 32;

class ConvLayout {
 public:
  /// How input is read; ToString() has a name for each.
  enum class Reading : uint8_t {
    kInPlace,
    kBand,         // a band of all channels
    kJoinedBand,   // a band of all channels that joins taps that lie apart (BandChannels::joins_taps)
    kBandPerUnit,  // a band of each unit's channels
    kWindows,      // for each unit, copies with all taps of a pixel side by side
    kPlanarBand,
    kDepthwise,  // see DepthwiseConv
  };
  /// The part of a layout that the cost model or tuning chooses. All variants of a convolution give the same
  /// bytes.
  struct Variant {
    Reading reading = Reading::kInPlace;
    int64_t unit_groups = 1;       // groups side by side in a unit
    bool has_whole_tiles = false;  // taps are padded to whole tiles, which then read them in place
    bool operator==(const Variant&) const = default;
    /// "in place", "band", "planar band"; "band, 4 groups, whole tiles".
    std::string ToString() const;
  };
  /// Whether pairs that saturate cross taps: INTACT_PAIRING_FLATTENED, several taps of an odd number of
  /// channels.
  static bool PairsCrossTaps(const LinearProblem& problem, const ConvGeometry& geometry);
  /// `geometry` as for Create(). `may_be_planar`: false if the caller knows that some extents do not fit a
  /// planar band.
  static Variant ModelVariant(const LinearProblem& problem, const ConvGeometry& geometry, core::Isa isa,
                              bool may_be_planar = true);
  /// All variants that compute the problem; the model's is the first.
  static std::vector<Variant> VariantsOf(const LinearProblem& problem, const ConvGeometry& geometry,
                                         core::Isa isa);

  /// `geometry` is not transposed. If extents are open, `geometry` has typical extents. `variant`: one of
  /// VariantsOf(). `saved`: all schedules of a file, which must stay in memory until LeaveImage(). The layout
  /// uses the schedules of `phase` and `variant`. Errors: as for creating a plan or reading a file.
  static Result<std::shared_ptr<const ConvLayout>> Create(const LinearProblem& problem, ConvWeights* weights,
                                                          const ConvGeometry& geometry, core::Isa isa,
                                                          const Variant& variant, int64_t phase = 0,
                                                          std::span<const SavedSchedule> saved = {});
  /// Afterwards, the layout needs nothing of the file's image. OUT_OF_MEMORY.
  Error LeaveImage() const;

  const Variant& variant() const { return variant_; }
  Reading reading() const { return variant_.reading; }
  bool IsJoined() const { return variant_.reading == Reading::kJoinedBand; }
  bool IsPlanar() const { return variant_.reading == Reading::kPlanarBand; }
  bool IsDepthwise() const { return variant_.reading == Reading::kDepthwise; }
  const LinearProblem& problem() const { return problem_; }
  /// The geometry that the layout was chosen for. Inputs of other sizes differ from it only in extents.
  const ConvGeometry& geometry() const { return geometry_; }
  core::Isa isa() const { return isa_; }

  /// Input channels that a column of a unit reads, and columns of a unit.
  int64_t unit_inputs() const { return variant_.unit_groups * geometry_.group_inputs(); }
  int64_t unit_outputs() const {
    const bool has_all = vector_step_ != 0 || IsPlanar() || IsDepthwise();
    return (has_all ? geometry_.groups : variant_.unit_groups) * geometry_.group_outputs();
  }
  int64_t unit_groups() const { return variant_.unit_groups; }
  int64_t units() const { return static_cast<int64_t>(weights_.size()); }
  const std::shared_ptr<const LinearWeights>& weights(int64_t unit) const {
    return weights_[static_cast<size_t>(unit)];
  }
  /// If extents are open: a plan of the unit. Plans for known extents share its schedules. Else null.
  const UnitPlan* model(int64_t unit) const {
    return models_.empty() ? nullptr : models_[static_cast<size_t>(unit)].get();
  }

  /// The channels of each pixel that a band copies.
  const BandChannels& channels() const { return channels_; }
  /// The order of a planar band's channels; empty: the input's order.
  const std::vector<int64_t>& channel_order() const { return channel_order_; }
  /// Whether taps along the width are joined into one.
  bool joins_width() const { return joins_width_; }
  /// Depths of a tap, and taps of a column's depth.
  int64_t tap_depth() const { return tap_depth_; }
  int64_t tap_count() const {
    if (variant_.reading == Reading::kWindows) return 1;
    return geometry_.taps() / (joins_width_ ? geometry_.kernel[kWidth] : 1);
  }
  /// See Taps::vector_step.
  int64_t vector_step() const { return vector_step_; }
  /// Whether kernels may skip padding.
  bool may_skip_padding() const { return may_skip_padding_; }

  using UnitPanels = std::vector<std::shared_ptr<const PackedWeights>>;
  /// LinearWeights::Panels() of each unit.
  Result<UnitPanels> Panels() const;
  /// Copies the weights of a column at a tap, as kernels see them, channel after channel for any layout.
  /// `panels`: Panels().
  void CopyTap(const UnitPanels& panels, int64_t column, int64_t tap, int8_t* to) const;
  int64_t packed_bytes() const;

 private:
  ConvLayout(LinearProblem problem, const ConvGeometry& geometry, core::Isa isa)
      : problem_(std::move(problem)), geometry_(geometry), isa_(isa) {}
  Variant ModelVariant(bool may_be_planar);
  /// How rows are read, if not from a planar band.
  Reading RowReading() const;
  bool IsDepthwiseOnly() const;
  bool HasOneInput() const;
  bool WantsDepthwise() const;
  bool TapsAreApart() const;
  bool MayJoinTaps() const;
  bool HasCostlyTaps() const;
  bool NeedsBand() const;
  bool ShiftsRows() const;
  bool WantsBand() const;
  bool NeedsOwnChannels() const;
  bool NeedsWindows() const;
  bool PlanesAreEven() const;
  bool HasFewOutputs() const;
  bool FillsLanes() const;
  /// With VNNI: the time of an item of a planar band's schedule, in products.
  double PlanarItem() const;
  int64_t NarrowDepth(int64_t tap_depth) const;
  double NarrowLineCost(int64_t tap_depth) const;
  bool WantsNarrow() const;
  bool FillsSteps() const;
  bool WantsPlanarForFewOutputs() const;
  bool MayBePlanar() const;
  bool WantsPlanar() const;
  bool MayJoinGroups() const;
  int64_t JoinedGroups() const;
  bool MayPadForTiles() const;
  bool WantsWholeTiles() const;
  void SetVariant(const Variant& variant);
  void OrderChannels(ConvWeights* weights);
  int64_t depth() const { return tap_count() * tap_depth_; }
  Error PackUnits(ConvWeights* weights);
  Error PackColumns(const WeightView& weights);
  LinearProblem UnitProblem() const;
  Naming NamingOf(int64_t first_column) const;
  void HoldSchedules(int64_t phase, std::span<const SavedSchedule> saved);
  Error MakeModels();
  std::vector<int8_t> UnitWeights(const WeightView& weights, int64_t unit) const;
  /// Whether a unit has the caller's depths, in the caller's order, without padding.
  bool HasGivenOrder() const;
  /// The depth of channel `channel` (within the group of column `n`) at `tap`, a number among all taps.
  int64_t DepthOf(int64_t tap, int64_t channel, int64_t n) const;
  /// Calls run(channel, depth, count) for the channels of the group of column `n` at a tap: `count` channels
  /// from `channel` on have adjacent depths from `depth` on.
  template <class Run>
  void ForEachRun(int64_t tap, int64_t n, const Run& run) const;

  LinearProblem problem_;
  ConvGeometry geometry_;
  core::Isa isa_;
  Variant variant_;
  BandChannels channels_;
  std::vector<int64_t> channel_order_, channel_places_;
  bool has_neutral_zeros_ = false;  // kernels see neutral weights as 0; else they equal the zero point
  bool joins_width_ = false;
  int64_t joined_step_ = 0;  // depths between joined taps
  int64_t tap_depth_ = 0, vector_step_ = 0;
  bool may_skip_padding_ = false;
  std::vector<std::shared_ptr<const LinearWeights>> weights_;  // [unit]
  std::vector<std::unique_ptr<UnitPlan>> models_;              // [unit], or empty
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_LAYOUT_H_
