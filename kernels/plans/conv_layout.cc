#include "kernels/plans/conv_layout.h"

#include <algorithm>
#include <utility>

#include "kernels/codegen/dispatch.h"
#include "kernels/engines/amx_engine.h"
#include "kernels/weights/channel_order.h"

namespace intact::kernels {
namespace {

int64_t LargestDivisor(int64_t number, int64_t limit) {
  for (int64_t divisor = std::min(number, limit); divisor > 1; --divisor) {
    if (number % divisor == 0) return divisor;
  }
  return 1;
}

}  // namespace

Result<std::shared_ptr<const ConvLayout>> ConvLayout::Create(const LinearProblem& problem,
                                                             const WeightView& weights,
                                                             const ConvGeometry& geometry, jit::Isa isa,
                                                             bool may_be_planar) {
  std::shared_ptr<ConvLayout> layout(new ConvLayout(problem, geometry, isa));
  layout->Choose(weights, may_be_planar);
  Error error = layout->PackUnits(weights);
  if (error.status == INTACT_OK && geometry.IsOpen()) error = layout->MakeModels();
  if (error.status != INTACT_OK) return error;
  return std::shared_ptr<const ConvLayout>(std::move(layout));
}

void ConvLayout::Choose(const WeightView& weights, bool may_be_planar) {
  // On any ISA, so that all have the same pairs and refuse the same problems.
  const bool saturates = problem_.mode == INTACT_SATURATING;
  const bool has_zero_points = problem_.HasWeightZeroPoints();
  const int64_t inputs = geometry_.group_inputs();
  has_neutral_zeros_ = saturates;
  const bool reads_band = geometry_.taps() > 1 || geometry_.HasPadding() || !PlanesAreEven();
  if (reads_band) reading_ = Reading::kBand;
  // Where a neutral weight counts as −zb, it must meet the zero point: in channels of its own.
  const bool has_own_channels = reads_band && saturates && has_zero_points && inputs % kQuad != 0;
  if (has_own_channels && geometry_.groups > 1) reading_ = Reading::kBandPerUnit;
  const bool may_join_groups =
      !UsesSchedule(isa_, problem_.mode) && !(saturates && (has_zero_points || inputs % 2 != 0));
  if (inputs == 1 && geometry_.groups > 1) {
    reading_ = Reading::kDepthwise;
    tap_depth_ = 1;
    return;
  }
  if (may_be_planar && WantsPlanar() &&
      PlanarBand(geometry_, static_cast<uint8_t>(problem_.a_zero_point), problem_.a_flip()).IsSmall()) {
    return ChoosePlanar(weights);
  }
  if (may_join_groups) {
    const int64_t lanes = jit::VectorBytes(isa_) / 4;
    unit_groups_ = LargestDivisor(geometry_.groups, lanes / geometry_.group_outputs());
    const bool fills_vector = unit_outputs() == lanes && unit_groups_ < geometry_.groups;
    if (fills_vector && reads_band && !has_zero_points && !UsesTiles(isa_)) vector_step_ = unit_inputs();
  }
  channels_ = {geometry_.input_channels, 1, geometry_.input_channels};
  if (has_own_channels) channels_ = {inputs, 1, RoundUp(inputs, kQuad)};
  joins_width_ = reads_band && geometry_.dilation[kWidth] == 1 && channels_.count == unit_inputs() &&
                 (!saturates || channels_.pitch % 2 == 0);
  tap_depth_ = unit_inputs() + (joins_width_ ? (geometry_.kernel[kWidth] - 1) * channels_.pitch : 0);
  if (reads_band) tap_depth_ = RoundUp(tap_depth_, kQuad);
  // What follows a tap must not meet zero points in saturating mode.
  if (UsesTiles(isa_) && reads_band && !(saturates && has_zero_points)) PadTapsForTiles();
  // Padding that clamps must be computed; with weight zero points it counts in the rows' sums.
  may_skip_padding_ = !saturates && !has_zero_points;
}

void ConvLayout::ChoosePlanar(const WeightView& weights) {
  reading_ = Reading::kPlanarBand;
  const PlanarBand band(geometry_, static_cast<uint8_t>(problem_.a_zero_point), problem_.a_flip());
  if (UsesSchedule(isa_, problem_.mode) && band.CanOrderChannels()) {
    channel_order_ = PairChannels(problem_, weights, geometry_);
    channel_places_.resize(channel_order_.size());
    for (size_t place = 0; place < channel_order_.size(); ++place) {
      channel_places_[static_cast<size_t>(channel_order_[place])] = static_cast<int64_t>(place);
    }
  }
  tap_depth_ = RoundUp(geometry_.group_inputs(), kQuad);
}

// Whether rows are to fill the lanes, from a planar band.
bool ConvLayout::WantsPlanar() const {
  if (problem_.mode == INTACT_SATURATING || geometry_.groups == 1) return false;
  if (UsesSchedule(isa_, problem_.mode)) return true;
  const int64_t lanes = jit::VectorBytes(isa_) / 4;
  const int64_t outputs = geometry_.group_outputs();
  const bool fills_vectors =
      outputs % lanes == 0 || (lanes % outputs == 0 && geometry_.groups % (lanes / outputs) == 0);
  // It needs no sums of rows either, which take long where each group has its own.
  const int64_t most_lanes = UsesTiles(isa_) ? lanes : 4 * lanes;  // tiles are many times as fast
  if (!fills_vectors || problem_.HasWeightZeroPoints()) return outputs < most_lanes;
  // Without it, groups that fill a vector only together cost as much as if each filled it; with it, each
  // pixel that outputs read is transposed, and outputs themselves.
  constexpr int64_t kMost = 16;
  const int64_t strides = geometry_.stride[kHeight] * geometry_.stride[kWidth];
  return reading_ == Reading::kBand && outputs < lanes && outputs * strides < kMost;
}

// Whether one stride leads from each plane of the input that is read in place to the next, whatever the
// extents.
bool ConvLayout::PlanesAreEven() const {
  if (geometry_.is_open[kDepth]) return geometry_.stride[kDepth] == 1;
  return geometry_.input[kDepth] == geometry_.output[kDepth] * geometry_.stride[kDepth];
}

// Tiles read whole taps in place: where that is worth it, they are made whole.
void ConvLayout::PadTapsForTiles() {
  constexpr int64_t kFewDepths = 4096;  // more may grow to kMostGrowth times as many
  constexpr int64_t kMostGrowth = 4;
  const int64_t padded = RoundUp(tap_depth_, kTileDepth);
  if (tap_count() * padded > kFewDepths && padded > kMostGrowth * tap_depth_) return;
  const int64_t panels = CeilDivide(unit_outputs(), kPanelColumns);
  if (ReadsLinesInPlace(geometry_.output[kWidth], panels, tap_count(), tap_depth_)) tap_depth_ = padded;
}

int64_t ConvLayout::DepthOf(int64_t tap, int64_t channel, int64_t n) const {
  if (IsDepthwise()) return tap;
  if (IsPlanar()) {
    const int64_t first = n / geometry_.group_outputs() * geometry_.group_inputs();
    const int64_t place =
        channel_places_.empty() ? channel : channel_places_[static_cast<size_t>(first + channel)] - first;
    return (place / kQuad * geometry_.taps() + tap) * kQuad + place % kQuad;
  }
  channel += n / geometry_.group_outputs() % unit_groups_ * geometry_.group_inputs();
  if (!joins_width_) return tap * tap_depth_ + channel;
  const int64_t width = geometry_.kernel[kWidth];
  return tap / width * tap_depth_ + tap % width * channels_.pitch + channel;
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

Error ConvLayout::PackUnits(const WeightView& weights) {
  const bool is_in_place = reading_ == Reading::kInPlace;
  const LinearProblem problem = is_in_place ? problem_ : problem_.WithShiftedActivations();
  for (int64_t first = 0; first < geometry_.output_channels; first += unit_outputs()) {
    const std::vector<int8_t> own = UnitWeights(weights, first / unit_outputs());
    const WeightView view{own.data(), depth(), unit_outputs(), 1, depth(), weights.flip};
    const Naming naming{"output channel", "weights", first, geometry_.taps() * geometry_.group_inputs()};
    auto packed = LinearWeights::Pack(problem.Slice(first, unit_outputs()), view, naming,
                                      PairsSaturate(isa_, problem_.mode));
    if (!packed) return packed.error();
    weights_.push_back(std::move(*packed));
  }
  return {};
}

// A planar model has no offsets; the others are ordinary plans for typical extents, of which only schedules
// are of use.
Error ConvLayout::MakeModels() {
  const bool has_schedule = IsPlanar() || (UsesSchedule(isa_, problem_.mode) && !IsDepthwise());
  if (!has_schedule) return {};
  for (const std::shared_ptr<const LinearWeights>& weights : weights_) {
    Access access = Taps{};
    if (IsPlanar()) {
      PlanarAccess planar;
      planar.group_columns = geometry_.group_outputs();
      access = std::move(planar);
    } else {
      std::get<Taps>(access).depth = depth();
    }
    Result<std::unique_ptr<GemmPlan>> model =
        GemmPlan::Create(weights, std::move(access), isa_, {kUsualPixels});
    if (!model) return model.error();
    models_.push_back(std::move(*model));
  }
  return {};
}

// [output channel][depth], as the caller's type has them.
std::vector<int8_t> ConvLayout::UnitWeights(const WeightView& weights, int64_t unit) const {
  const int64_t inputs = geometry_.group_inputs();
  std::vector<int8_t> own(static_cast<size_t>(unit_outputs() * depth()));
  for (int64_t n = 0; n < unit_outputs(); ++n) {
    const int64_t column = unit * unit_outputs() + n;
    const int32_t neutral = has_neutral_zeros_ ? 0 : problem_.WeightZeroPoint(column);
    int8_t* const to = &own[static_cast<size_t>(n * depth())];
    std::fill_n(to, depth(), static_cast<int8_t>(static_cast<uint8_t>(neutral) ^ weights.flip));
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
    Result<std::shared_ptr<const PackedWeights>> own = unit->Panels();
    if (!own) return own.error();
    panels.push_back(std::move(*own));
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
