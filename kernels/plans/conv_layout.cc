#include "kernels/plans/conv_layout.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/amx_blocking.h"
#include "kernels/engines/cost_table.h"
#include "kernels/engines/narrow_engine.h"
#include "kernels/runtime/caches.h"
#include "kernels/weights/channel_order.h"

namespace intact::kernels {
namespace {

constexpr int64_t kPanelRows = 8;  // of a tile of panels, about

int64_t LargestDivisor(int64_t number, int64_t limit) {
  for (int64_t divisor = std::min(number, limit); divisor > 1; --divisor) {
    if (number % divisor == 0) return divisor;
  }
  return 1;
}

}  // namespace

std::string ConvLayout::Variant::ToString() const {
  constexpr std::array kReadings = {"in place", "band",        "joined band", "bands of units",
                                    "windows",  "planar band", "depthwise"};
  std::string text = kReadings[static_cast<size_t>(reading)];
  if (unit_groups != 1) text += ", " + std::to_string(unit_groups) + " groups";
  if (has_whole_tiles) text += ", whole tiles";
  return text;
}

Result<std::shared_ptr<const ConvLayout>> ConvLayout::Create(const LinearProblem& problem,
                                                             ConvWeights* weights,
                                                             const ConvGeometry& geometry, core::Isa isa,
                                                             const Variant& variant, int64_t phase,
                                                             std::span<const SavedSchedule> saved) {
  std::shared_ptr<ConvLayout> layout(new ConvLayout(problem, geometry, isa));
  layout->SetVariant(variant);
  if (layout->IsPlanar()) layout->OrderChannels(weights);
  RETURN_IF_ERROR(layout->PackUnits(weights));
  layout->HoldSchedules(phase, saved);
  if (geometry.IsOpen()) RETURN_IF_ERROR(layout->MakeModels());
  return std::shared_ptr<const ConvLayout>(std::move(layout));
}

// ----- which variant ---------------------------------------------------------------------------------------

bool ConvLayout::PairsCrossTaps(const LinearProblem& problem, const ConvGeometry& geometry) {
  return problem.mode == INTACT_SATURATING && problem.pairing == INTACT_PAIRING_FLATTENED &&
         geometry.taps() > 1 && geometry.group_inputs() % 2 != 0;
}

ConvLayout::Variant ConvLayout::ModelVariant(const LinearProblem& problem, const ConvGeometry& geometry,
                                             core::Isa isa, bool may_be_planar) {
  return ConvLayout(problem, geometry, isa).ModelVariant(may_be_planar);
}

ConvLayout::Variant ConvLayout::ModelVariant(bool may_be_planar) {
  if (IsDepthwiseOnly() || WantsDepthwise()) return {Reading::kDepthwise};
  if (may_be_planar && WantsPlanar() && MayBePlanar()) return {Reading::kPlanarBand};
  Variant variant = {RowReading()};
  // Without VNNI, rows fill the lanes, not columns.
  if (!UsesSchedule(isa_, problem_.mode) && MayJoinGroups()) variant.unit_groups = JoinedGroups();
  SetVariant(variant);
  variant.has_whole_tiles = NeedsBand() && MayPadForTiles() && WantsWholeTiles();
  return variant;
}

std::vector<ConvLayout::Variant> ConvLayout::VariantsOf(const LinearProblem& problem,
                                                        const ConvGeometry& geometry, core::Isa isa) {
  ConvLayout layout(problem, geometry, isa);
  std::vector<Variant> variants = {layout.ModelVariant(true)};
  // In saturating mode, variants may pair other products and so differ in their bytes.
  if (layout.IsDepthwiseOnly() || problem.mode == INTACT_SATURATING) return variants;
  const auto add = [&](const Variant& variant) {
    if (std::find(variants.begin(), variants.end(), variant) == variants.end()) variants.push_back(variant);
  };
  std::vector<int64_t> unit_groups = {1};
  if (layout.MayJoinGroups()) unit_groups.push_back(layout.JoinedGroups());
  for (const Reading reading : {Reading::kInPlace, Reading::kBand}) {
    if (reading == Reading::kInPlace && layout.NeedsBand()) continue;
    for (const int64_t groups : unit_groups) {
      Variant variant = {reading, groups};
      add(variant);
      layout.SetVariant(variant);
      variant.has_whole_tiles = true;
      if (layout.MayPadForTiles()) add(variant);
    }
  }
  if (layout.MayJoinTaps()) add({Reading::kJoinedBand});
  if (layout.MayBePlanar()) add({Reading::kPlanarBand});
  if (layout.HasOneInput()) add({Reading::kDepthwise});
  return variants;
}

// Depthwise kernels subtract zero points from weights, which would change where pairs clamp.
bool ConvLayout::IsDepthwiseOnly() const {
  const bool has_other_pairs = PairsCrossTaps(problem_, geometry_) && problem_.HasWeightZeroPoints();
  return geometry_.group_inputs() == 1 && geometry_.groups > 1 && !has_other_pairs;
}

// Whether a depthwise convolution may compute a single group, if it repeats the only input channel for each
// output. In saturating mode its pairs would differ.
bool ConvLayout::HasOneInput() const {
  return geometry_.groups == 1 && geometry_.input_channels == 1 && problem_.mode == INTACT_EXACT;
}

// Rows of adjacent pixels then fill the vectors, whatever the number of outputs. But a band of one output
// line must stay in L2, and threads cannot divide a line. Lines of an open width may have any length.
bool ConvLayout::WantsDepthwise() const {
  if (!HasOneInput() || geometry_.stride[kWidth] != 1 || problem_.output.has_residual()) return false;
  if (geometry_.is_open[kWidth]) return false;
  const int64_t outputs = geometry_.output_channels;
  const int64_t filter_lines = geometry_.kernel[kDepth] * geometry_.kernel[kHeight];
  const int64_t line_bytes = geometry_.Span(kWidth, geometry_.output[kWidth]) * outputs;
  if (filter_lines * line_bytes > Caches().BandLines()) return false;
  const LayoutLimits& limits = Costs().layout;
  const bool has_vnni = !UsesSchedule(isa_, problem_.mode);
  // With VNNI, panels are as fast for the taps of a single line.
  if (TapsAreApart() && (!has_vnni || filter_lines > 1 || HasCostlyTaps())) {
    return outputs <= limits.most_apart_repeats;
  }
  return outputs <= limits.most_repeats &&
         (has_vnni || outputs * geometry_.taps() <= limits.most_repeated_weights);
}

// Whether panels cannot join the taps along the width, so that each tap of few channels needs quads of its
// own.
bool ConvLayout::TapsAreApart() const {
  return geometry_.kernel[kWidth] > 1 && geometry_.dilation[kWidth] > 1 && !MayJoinTaps();
}

// Whether a band may join taps that lie apart, and joined taps take fewer products: of quads, or of pairs without
// VNNI. In saturating mode, pairs would differ.
bool ConvLayout::MayJoinTaps() const {
  const int64_t inputs = geometry_.input_channels, width = geometry_.kernel[kWidth];
  const int64_t depths = UsesSchedule(isa_, problem_.mode) ? 2 : kQuad;
  return geometry_.dilation[kWidth] > 1 && geometry_.groups == 1 && problem_.mode == INTACT_EXACT &&
         !core::IsCompiled(isa_) && geometry_.Span(kWidth, 1) * inputs <= TapJoiner::kMostSpan &&
         CeilDivide(width * inputs, depths) < width * CeilDivide(inputs, depths);
}

// If taps lie apart, sums of rows take long, and tiles copy each tap.
bool ConvLayout::HasCostlyTaps() const {
  return TapsAreApart() && (problem_.HasWeightZeroPoints() || UsesTiles(isa_));
}

bool ConvLayout::NeedsBand() const {
  return geometry_.taps() > 1 || geometry_.HasPadding() || !PlanesAreEven();
}

// Whether a unit needs its own channels: a neutral weight that counts as −zb must meet the activations' zero
// point. This does not depend on the ISA, so that all ISAs form the same pairs and refuse the same problems.
bool ConvLayout::NeedsOwnChannels() const {
  return NeedsBand() && problem_.mode == INTACT_SATURATING && problem_.HasWeightZeroPoints() &&
         geometry_.group_inputs() % kQuad != 0;
}

// Whether pairs cross taps and a band does not hold these pairs: their taps are not side by side, or the
// values behind a tap would meet zero points of weights.
bool ConvLayout::NeedsWindows() const {
  if (!PairsCrossTaps(problem_, geometry_)) return false;
  const int64_t width = geometry_.kernel[kWidth];
  const bool is_even = width % 2 == 0 || geometry_.taps() == width;  // filter lines begin with a pair
  return !is_even || geometry_.dilation[kWidth] != 1 || geometry_.groups > 1 ||
         problem_.HasWeightZeroPoints();
}

// Whether vector kernels would copy rows that are read in place because s8 is shifted to u8. Schedules shift
// s8 while they pack rows.
bool ConvLayout::ShiftsRows() const {
  return problem_.a_shift() != 0 && !UsesSchedule(isa_, problem_.mode) &&
         core::TraitsOf(VectorIsa(isa_)).dot_products != core::DotProducts::kAllSigns;
}

// Whether a band costs less than rows in place because engines would copy the rows: they are shifted, or
// their channels do not fill the last quad. A band is copied line by line, rows one by one. Tiles copy rows
// fast if channels fill tiles. Narrow kernels copy none. Not in saturating mode, where the variant decides the pairs.
bool ConvLayout::WantsBand() const {
  const int64_t inputs = geometry_.input_channels;
  const bool copies_rows =
      inputs % kQuad != 0 || (ShiftsRows() && !(UsesTiles(isa_) && inputs % kTileDepth == 0));
  const bool is_narrow = !UsesSchedule(isa_, problem_.mode) && !UsesTiles(isa_) &&
                         NarrowEngine::TakesRows(problem_, geometry_.output_channels, inputs, isa_);
  return copies_rows && !is_narrow && problem_.mode == INTACT_EXACT && geometry_.groups == 1 &&
         geometry_.input == geometry_.output && !core::IsCompiled(isa_);
}

ConvLayout::Reading ConvLayout::RowReading() const {
  if (!NeedsBand()) return WantsBand() ? Reading::kBand : Reading::kInPlace;
  if (NeedsWindows()) return Reading::kWindows;
  if (MayJoinTaps()) return Reading::kJoinedBand;
  return NeedsOwnChannels() && geometry_.groups > 1 ? Reading::kBandPerUnit : Reading::kBand;
}

bool ConvLayout::MayJoinGroups() const {
  const bool saturates = problem_.mode == INTACT_SATURATING;
  return !(saturates && (problem_.HasWeightZeroPoints() || geometry_.group_inputs() % 2 != 0));
}

// The number of groups whose columns together fill a vector.
int64_t ConvLayout::JoinedGroups() const {
  const int64_t lanes = jit::VectorBytes(isa_) / 4;
  return LargestDivisor(geometry_.groups, lanes / geometry_.group_outputs());
}

bool ConvLayout::MayBePlanar() const {
  return !core::IsCompiled(isa_) && problem_.mode == INTACT_EXACT &&
         (geometry_.groups > 1 || HasFewOutputs()) && !IsDepthwiseOnly() &&
         PlanarBand(geometry_, problem_.a_shift()).IsSmall();
}

// Whether the output channels of a single group do not exceed a vector of columns. Schedules fill the lanes
// with rows.
bool ConvLayout::HasFewOutputs() const {
  return geometry_.groups == 1 && geometry_.output_channels <= jit::VectorBytes(isa_) / 4 &&
         !UsesSchedule(isa_, problem_.mode);
}

// Whether rows should fill the lanes, from a planar band.
bool ConvLayout::WantsPlanar() const {
  if (problem_.mode == INTACT_SATURATING) return false;
  if (geometry_.groups == 1) {
    return HasFewOutputs() && FillsLanes() && WantsPlanarForFewOutputs() && !WantsNarrow();
  }
  const int64_t outputs = geometry_.group_outputs();
  if (UsesSchedule(isa_, problem_.mode)) {
    // Few pixels fill the lanes worse than the columns of a group do.
    const int64_t pixels = geometry_.output[kDepth] * geometry_.plane_pixels();
    return geometry_.IsOpen() || outputs < std::max<int64_t>(2 * kPanelColumns, 2 * pixels);
  }
  if (!problem_.HasWeightZeroPoints() && !FillsLanes()) return false;
  const int64_t lanes = jit::VectorBytes(isa_) / 4;
  const bool fills_vectors =
      outputs % lanes == 0 || (lanes % outputs == 0 && geometry_.groups % (lanes / outputs) == 0);
  // A planar band also needs no sums of rows. These take long if each group has its own sums.
  const int64_t most_lanes =
      UsesTiles(isa_) ? lanes : Costs().layout.planar_vectors * lanes;  // tiles are many times as fast
  if (!fills_vectors || problem_.HasWeightZeroPoints()) return outputs < most_lanes;
  // Without a planar band, each of several groups that share a vector costs as much as if it filled the
  // vector. With a planar band, inputs and outputs are transposed.
  const int64_t strides = geometry_.stride[kHeight] * geometry_.stride[kWidth];
  return NeedsBand() && outputs < lanes && outputs * strides < Costs().layout.planar_outputs;
}

// With VNNI: whether pixels in the lanes take less time than columns. Blocks of one vector of pixels take
// about as long as blocks of two. Of columns, the tiles of each group cost time in addition to their
// products.
bool ConvLayout::FillsLanes() const {
  const int64_t lanes = jit::VectorBytes(isa_) / 4, outputs = geometry_.group_outputs();
  const int64_t pixels =
      geometry_.IsOpen() ? kUsualPixels : geometry_.output[kDepth] * geometry_.plane_pixels();
  const int64_t quads = geometry_.taps() * CeilDivide(geometry_.group_inputs(), kQuad);
  return static_cast<double>(quads * CeilDivide(pixels, 2 * lanes) * 2 * outputs) * PlanarItem() <
         static_cast<double>(quads * pixels * CeilDivide(outputs, lanes)) +
             static_cast<double>(CeilDivide(pixels, kPanelRows)) * Costs().Of(isa_).vnni.tile;
}

double ConvLayout::PlanarItem() const {
  const ScheduleCosts& costs = Costs().Of(isa_).schedule;
  const bool has_strips = PlanarBand::GroupColumns(geometry_) % 4 == 0;
  return (has_strips ? costs.planar_vnni_columns : costs.planar_vnni_column).item;
}

// The depth of a row if taps of `tap_depth` are padded to whole steps of narrow kernels.
int64_t ConvLayout::NarrowDepth(int64_t tap_depth) const {
  return geometry_.kernel[kDepth] * geometry_.kernel[kHeight] *
         RoundUp(tap_depth, NarrowEngine::StepBytes(isa_, geometry_.output_channels));
}

// The time of an output line with narrow kernels for such a row, in half cycles. Infinite if these kernels cannot read the taps.
double ConvLayout::NarrowLineCost(int64_t tap_depth) const {
  const int64_t outputs = geometry_.output_channels, rows = geometry_.output[kWidth];
  const int64_t k = NarrowDepth(tap_depth), taps = geometry_.kernel[kDepth] * geometry_.kernel[kHeight];
  const bool is_possible = NarrowEngine::TakesRows(problem_, outputs, k, isa_) &&
                           NarrowEngine::TakesTaps(isa_, outputs, k / taps, rows);
  return is_possible ? NarrowEngine::LineCost(isa_, outputs, k, rows)
                     : std::numeric_limits<double>::infinity();
}

// Whether narrow kernels for taps that are padded to whole steps take less time than a panel for the taps as they are.
bool ConvLayout::FillsSteps() const {
  if (!HasFewOutputs() || core::IsCompiled(isa_) || UsesTiles(isa_) || geometry_.is_open[kWidth])
    return false;
  if (tap_depth_ % NarrowEngine::StepBytes(isa_, geometry_.output_channels) == 0) return false;
  const VnniCosts& costs = Costs().Of(isa_).vnni;
  const int64_t quads = geometry_.kernel[kDepth] * geometry_.kernel[kHeight] * tap_depth_ / kQuad;
  const double tile = static_cast<double>(quads * (kPanelRows + 1)) + costs.tile;
  return NarrowLineCost(tap_depth_) < static_cast<double>(geometry_.output[kWidth]) * tile / kPanelRows;
}

// With VNNI and few outputs: whether narrow kernels take less time than a planar band for a line of a band with joined taps.
bool ConvLayout::WantsNarrow() const {
  if (UsesTiles(isa_) || geometry_.IsOpen() || geometry_.dilation[kWidth] != 1) return false;
  const int64_t tap_depth = geometry_.kernel[kWidth] * geometry_.input_channels;
  const int64_t products = NarrowDepth(tap_depth) * geometry_.output_channels / jit::VectorBytes(isa_);
  const double pixel =
      static_cast<double>(products) * PlanarItem() + static_cast<double>(Costs().layout.planar_pixel);
  return NarrowLineCost(tap_depth) < static_cast<double>(geometry_.output[kWidth]) * pixel;
}

// Each pixel is transposed once, which pays if several taps read it, or if it would be copied anyway. Tiles
// are faster if channels fill them. A planar band takes much scratch.
bool ConvLayout::WantsPlanarForFewOutputs() const {
  if (!geometry_.IsOpen() && geometry_.MultiplyAdds(1) < kFewMultiplyAdds) return false;
  const int64_t lanes = jit::VectorBytes(isa_) / 4;
  const int64_t strides = geometry_.stride[kHeight] * geometry_.stride[kWidth];
  const int64_t inputs = geometry_.input_channels;
  if (geometry_.taps() == 1 && !ShiftsRows()) return false;
  if (inputs < Costs().layout.least_planar_inputs && !HasCostlyTaps()) return false;
  if (!UsesTiles(isa_)) return geometry_.output_channels * strides < lanes;
  return inputs < kTileDepth && geometry_.output_channels * strides < lanes / 2;
}

// Whether planes of the input that are read in place are one stride apart, for all extents.
bool ConvLayout::PlanesAreEven() const {
  if (geometry_.is_open[kDepth]) return geometry_.stride[kDepth] == 1;
  return geometry_.input[kDepth] == geometry_.output[kDepth] * geometry_.stride[kDepth];
}

// Whether tiles could read whole taps of variant_ in place if the taps were padded.
bool ConvLayout::MayPadForTiles() const {
  // In saturating mode, values behind a tap must not meet zero points.
  const bool clamps = problem_.mode == INTACT_SATURATING && problem_.HasWeightZeroPoints();
  const bool is_whole = variant_.reading == Reading::kInPlace || variant_.reading == Reading::kWindows;
  if (!UsesTiles(isa_) || is_whole || clamps) return false;
  const int64_t padded = RoundUp(tap_depth_, kTileDepth);
  return padded != tap_depth_ && (tap_count() * padded <= Costs().layout.few_padded_depths ||
                                  padded <= Costs().layout.most_padded_growth * tap_depth_);
}

bool ConvLayout::WantsWholeTiles() const {
  const int64_t panels = CeilDivide(unit_outputs(), kPanelColumns);
  const int64_t row_stride = (IsJoined() ? 1 : geometry_.stride[kWidth]) * channels_.pitch;
  return ReadsLinesInPlace(geometry_.output[kWidth], row_stride, panels, tap_count(), tap_depth_);
}

// Sets the members that follow from the variant.
void ConvLayout::SetVariant(const Variant& variant) {
  variant_ = variant;
  const bool saturates = problem_.mode == INTACT_SATURATING;
  const bool has_zero_points = problem_.HasWeightZeroPoints();
  const bool reads_band = variant.reading == Reading::kBand || variant.reading == Reading::kBandPerUnit ||
                          variant.reading == Reading::kJoinedBand;
  const int64_t inputs = geometry_.group_inputs();
  has_neutral_zeros_ = saturates;
  vector_step_ = 0;
  if (IsDepthwise()) {
    tap_depth_ = 1;
    return;
  }
  if (IsPlanar()) {
    tap_depth_ = RoundUp(inputs, kQuad);
    return;
  }
  if (variant.reading == Reading::kWindows) {
    channels_ = {inputs, 1, inputs};
    tap_depth_ = RoundUp(geometry_.taps() * inputs, kQuad);
    return;
  }
  if (!UsesSchedule(isa_, problem_.mode) && MayJoinGroups()) {
    const bool fills_vector =
        unit_outputs() == jit::VectorBytes(isa_) / 4 && variant.unit_groups < geometry_.groups;
    // Copied rows hold a single unit's channels.
    const bool copies_rows = !reads_band && (ShiftsRows() || unit_inputs() % kQuad != 0);
    if (fills_vector && !copies_rows && !has_zero_points && !UsesTiles(isa_)) vector_step_ = unit_inputs();
  }
  channels_ = {geometry_.input_channels, 1, geometry_.input_channels};
  if (NeedsOwnChannels()) channels_ = {inputs, 1, RoundUp(inputs, kQuad)};
  joins_width_ = reads_band && (IsJoined() || geometry_.dilation[kWidth] == 1) &&
                 channels_.count == unit_inputs() &&
                 (!saturates || channels_.pitch % 2 == 0 || PairsCrossTaps(problem_, geometry_));
  joined_step_ = channels_.pitch;
  tap_depth_ = unit_inputs() + (joins_width_ ? (geometry_.kernel[kWidth] - 1) * joined_step_ : 0);
  if (reads_band) tap_depth_ = RoundUp(tap_depth_, kQuad);
  if (IsJoined()) channels_ = {inputs, 1, tap_depth_, true};
  if (variant.has_whole_tiles) tap_depth_ = RoundUp(tap_depth_, kTileDepth);
  if (reads_band && joins_width_ && FillsSteps()) {
    tap_depth_ = RoundUp(tap_depth_, NarrowEngine::StepBytes(isa_, unit_outputs()));
  }
  // Padding that clamps must be computed. With weight zero points, padding counts in the rows' sums.
  may_skip_padding_ = !saturates && !has_zero_points;
}

void ConvLayout::OrderChannels(ConvWeights* weights) {
  const PlanarBand band(geometry_, problem_.a_shift());
  if (!UsesSchedule(isa_, problem_.mode) || !band.CanOrderChannels()) return;
  channel_order_ = PairChannels(problem_, weights->Dense(), geometry_);
  channel_places_.resize(channel_order_.size());
  for (size_t place = 0; place < channel_order_.size(); ++place) {
    channel_places_[static_cast<size_t>(channel_order_[place])] = static_cast<int64_t>(place);
  }
}

// ----- weights ---------------------------------------------------------------------------------------------

int64_t ConvLayout::DepthOf(int64_t tap, int64_t channel, int64_t n) const {
  if (IsDepthwise()) return tap;
  if (IsPlanar()) {
    const int64_t first = n / geometry_.group_outputs() * geometry_.group_inputs();
    const int64_t place =
        channel_places_.empty() ? channel : channel_places_[static_cast<size_t>(first + channel)] - first;
    return (place / kQuad * geometry_.taps() + tap) * kQuad + place % kQuad;
  }
  if (variant_.reading == Reading::kWindows) return tap * geometry_.group_inputs() + channel;
  channel += n / geometry_.group_outputs() % variant_.unit_groups * geometry_.group_inputs();
  if (!joins_width_) return tap * tap_depth_ + channel;
  const int64_t width = geometry_.kernel[kWidth];
  return tap / width * tap_depth_ + tap % width * joined_step_ + channel;
}

template <class Run>
void ConvLayout::ForEachRun(int64_t tap, int64_t n, const Run& run) const {
  const int64_t inputs = geometry_.group_inputs();
  int64_t adjacent = inputs;
  if (IsPlanar()) adjacent = channel_order_.empty() ? kQuad : 1;
  for (int64_t channel = 0; channel < inputs; channel += adjacent) {
    run(channel, DepthOf(tap, channel, n), std::min(adjacent, inputs - channel));
  }
}

bool ConvLayout::HasGivenOrder() const {
  const bool has_given_columns = IsDepthwise() || unit_outputs() == geometry_.group_outputs();
  return has_given_columns && !IsPlanar() && depth() == geometry_.taps() * geometry_.group_inputs();
}

Error ConvLayout::PackUnits(ConvWeights* weights) {
  const bool is_one_unit = unit_outputs() == geometry_.output_channels;
  if (weights->panels() == nullptr || !is_one_unit || !HasGivenOrder()) return PackColumns(weights->Dense());
  PackedWeights panels(weights->panels()->k, weights->panels()->n);
  panels.data = weights->panels()->data;
  Certificate certificate = Certify(panels, problem_.range);
  ASSIGN_OR_RETURN(auto packed, LinearWeights::Borrow(UnitProblem(), std::move(panels),
                                                      std::move(certificate), weights->mapping(), NamingOf(0),
                                                      PairsSaturate(isa_, problem_.mode)));
  weights_.push_back(std::move(packed));
  return {};
}

LinearProblem ConvLayout::UnitProblem() const {
  return variant_.reading == Reading::kInPlace ? problem_ : problem_.WithShiftedActivations();
}

Naming ConvLayout::NamingOf(int64_t first_column) const {
  return {"output channel", "weights", first_column, geometry_.taps() * geometry_.group_inputs()};
}

Error ConvLayout::PackColumns(const WeightView& weights) {
  const LinearProblem problem = UnitProblem();
  for (int64_t first = 0; first < geometry_.output_channels; first += unit_outputs()) {
    std::vector<int8_t> own;
    WeightView view{
        weights.data + first * weights.stride_n, depth(), unit_outputs(), 1, weights.stride_n, weights.shift};
    if (!HasGivenOrder()) {
      own = UnitWeights(weights, first / unit_outputs());
      view.data = own.data();
      view.stride_n = depth();
    }
    ASSIGN_OR_RETURN(auto packed, LinearWeights::Pack(problem.Slice(first, unit_outputs()), view,
                                                      NamingOf(first), PairsSaturate(isa_, problem_.mode)));
    weights_.push_back(std::move(packed));
  }
  return {};
}

void ConvLayout::HoldSchedules(int64_t phase, std::span<const SavedSchedule> saved) {
  const std::string name = variant_.ToString();
  for (const SavedSchedule& schedule : saved) {
    if (schedule.phase != phase || schedule.layout != name || schedule.unit >= units()) continue;
    weights(schedule.unit)->schedules().Hold(schedule.record);
  }
}

Error ConvLayout::LeaveImage() const {
  for (const auto& unit : weights_) {
    unit->schedules().ForgetHeld();
    RETURN_IF_ERROR(unit->OwnPanels());
  }
  return {};
}

// A planar model has no offsets. Other models are ordinary plans for typical extents; only their schedules
// are used.
Error ConvLayout::MakeModels() {
  const bool has_schedule = IsPlanar() || (UsesSchedule(isa_, problem_.mode) && !IsDepthwise());
  if (!has_schedule) return {};
  for (const std::shared_ptr<const LinearWeights>& weights : weights_) {
    Access access = Taps{};
    if (IsPlanar()) {
      PlanarAccess planar;
      planar.group_columns = PlanarBand::GroupColumns(geometry_);
      access = std::move(planar);
    } else {
      std::get<Taps>(access).depth = depth();
    }
    ASSIGN_OR_RETURN(std::unique_ptr<UnitPlan> model,
                     UnitPlan::Create(weights, std::move(access), isa_, {kUsualPixels}));
    models_.push_back(std::move(model));
  }
  return {};
}

// [output channel][depth], in the caller's type.
std::vector<int8_t> ConvLayout::UnitWeights(const WeightView& weights, int64_t unit) const {
  const int64_t inputs = geometry_.group_inputs();
  std::vector<int8_t> own(static_cast<size_t>(unit_outputs() * depth()));
  for (int64_t n = 0; n < unit_outputs(); ++n) {
    const int64_t column = unit * unit_outputs() + n;
    const int32_t neutral = has_neutral_zeros_ ? 0 : problem_.WeightZeroPoint(column);
    int8_t* const to = &own[static_cast<size_t>(n * depth())];
    std::fill_n(to, depth(), static_cast<int8_t>(static_cast<uint8_t>(neutral) ^ weights.shift));
    for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
      const int8_t* const from = weights.data + column * weights.stride_n + tap * inputs;
      ForEachRun(tap, n, [&](int64_t channel, int64_t depth_begin, int64_t count) {
        std::copy_n(from + channel, count, to + depth_begin);
      });
    }
  }
  return own;
}

Result<ConvLayout::UnitPanels> ConvLayout::Panels() const {
  UnitPanels panels;
  for (const auto& unit : weights_) {
    ASSIGN_OR_RETURN(std::shared_ptr<const PackedWeights> own, unit->Panels());
    panels.push_back(std::move(own));
  }
  return panels;
}

void ConvLayout::CopyTap(const UnitPanels& panels, int64_t column, int64_t tap, int8_t* to) const {
  const PackedWeights& packed = *panels[static_cast<size_t>(column / unit_outputs())];
  const int64_t n = column % unit_outputs();
  ForEachRun(tap, n, [&](int64_t channel, int64_t depth, int64_t count) {
    CopyDepths(packed, depth, n, count, to + channel);
  });
}

int64_t ConvLayout::packed_bytes() const {
  int64_t bytes = 0;
  for (const auto& weights : weights_) bytes += weights->bytes();
  for (const auto& model : models_) bytes += model->packed_bytes() - model->weights().bytes();
  return bytes;
}

}  // namespace intact::kernels
