#include "kernels/plans/conv_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/base/threads.h"
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

Result<std::unique_ptr<ConvPlan>> ConvPlan::Create(const GemmProblem& problem, const ConvGeometry& geometry,
                                                   const OutputGrid& grid) {
  const Result<jit::Isa> isa = ChooseIsa(problem.isas);
  if (!isa) return isa.error();
  std::unique_ptr<ConvPlan> plan(new ConvPlan);
  plan->geometry_ = geometry;
  plan->grid_ = grid;
  plan->ChooseLayout(problem, *isa);
  Error error;
  if (plan->IsPlanar()) error = plan->planar_.GenerateKernel();
  if (error.status != INTACT_OK) return error;
  error = plan->MakeUnits(problem);
  if (error.status != INTACT_OK) return error;
  return plan;
}

void ConvPlan::ChooseLayout(const GemmProblem& problem, jit::Isa isa) {
  // On any ISA, so that all have the same pairs and refuse the same problems.
  const bool saturates = problem.mode == INTACT_SATURATING;
  const bool has_zero_points = problem.HasWeightZeroPoints();
  const int64_t inputs = geometry_.group_inputs();
  const uint8_t flip = ActivationFlip(problem.a_type);
  const auto padding = static_cast<uint8_t>(problem.a_zero_point + flip);
  has_neutral_zeros_ = saturates;
  const bool reads_band = geometry_.taps() > 1 || geometry_.HasPadding() || !PlanesAreEven();
  if (reads_band) reading_ = Reading::kBand;
  // Where a neutral weight counts as −zb, it must meet the zero point: in channels of its own.
  const bool has_own_channels = reads_band && saturates && has_zero_points && inputs % kQuad != 0;
  if (has_own_channels && geometry_.groups > 1) reading_ = Reading::kBandPerUnit;
  const bool may_join_groups =
      !UsesSchedule(isa, problem.mode) && !(saturates && (has_zero_points || inputs % 2 != 0));
  if (inputs == 1 && geometry_.groups > 1) {
    reading_ = Reading::kDepthwise;
    taps_.depth = geometry_.taps();
    taps_.is_depthwise = true;
    return;
  }
  if (WantsPlanar(problem, isa)) {
    planar_ = PlanarBand(geometry_, static_cast<uint8_t>(problem.a_zero_point), flip);
    if (planar_.IsSmall()) {
      reading_ = Reading::kPlanarBand;
      if (UsesSchedule(isa, problem.mode) && planar_.CanOrderChannels()) {
        planar_.OrderChannels(PairChannels(problem, geometry_));
      }
      taps_.planar = planar_.MakeDepth();
      taps_.depth = static_cast<int64_t>(taps_.planar->quad_offsets.size()) * kQuad;
      return;
    }
  }
  if (may_join_groups) {
    const int64_t lanes = jit::VectorBytes(isa) / 4;
    unit_groups_ = LargestDivisor(geometry_.groups, lanes / geometry_.group_outputs());
    const bool fills_vector = unit_outputs() == lanes && unit_groups_ < geometry_.groups;
    if (fills_vector && reads_band && !has_zero_points && !UsesTiles(isa)) taps_.vector_step = unit_inputs();
  }
  BandChannels channels{geometry_.input_channels, 1, geometry_.input_channels};
  if (has_own_channels) channels = {inputs, 1, RoundUp(inputs, kQuad)};
  band_ = Band(geometry_, channels, padding, flip);
  joins_width_ = reads_band && geometry_.dilation[kWidth] == 1 && channels.count == unit_inputs() &&
                 (!saturates || channels.pitch % 2 == 0);
  SetTaps();
  if (taps_.vector_step != 0) SharePixels();
  // What follows a tap must not meet zero points in saturating mode.
  if (UsesTiles(isa) && reads_band && !(saturates && has_zero_points)) PadTapsForTiles();
  // Padding that clamps must be computed; with weight zero points it counts in the rows' sums.
  if (!saturates && !has_zero_points) {
    SetLineTaps();
    SetLineEnds();
  }
}

bool ConvPlan::WantsPlanar(const GemmProblem& problem, jit::Isa isa) const {
  if (problem.mode == INTACT_SATURATING || geometry_.groups == 1) return false;
  if (UsesSchedule(isa, problem.mode)) return true;
  const int64_t lanes = jit::VectorBytes(isa) / 4;
  const int64_t outputs = geometry_.group_outputs();
  const bool fills_vectors =
      outputs % lanes == 0 || (lanes % outputs == 0 && geometry_.groups % (lanes / outputs) == 0);
  // It needs no sums of rows either, which take long where each group has its own.
  const int64_t most_lanes = UsesTiles(isa) ? lanes : 4 * lanes;  // tiles are many times as fast
  if (!fills_vectors || problem.HasWeightZeroPoints()) return outputs < most_lanes;
  // Without it, groups that fill a vector only together cost as much as if each filled it; with it, each
  // pixel that outputs read is transposed, and outputs themselves.
  constexpr int64_t kMost = 16;
  const int64_t strides = geometry_.stride[kHeight] * geometry_.stride[kWidth];
  return reading_ == Reading::kBand && outputs < lanes && outputs * strides < kMost;
}

// Whether one stride leads from each plane of the input that is read in place to the next.
bool ConvPlan::PlanesAreEven() const {
  return geometry_.input[kDepth] == geometry_.output[kDepth] * geometry_.stride[kDepth];
}

void ConvPlan::SetTaps() {
  const Spatial& kernel = geometry_.kernel;
  taps_.offsets.clear();
  for (int64_t depth = 0; depth < kernel[kDepth]; ++depth) {
    for (int64_t height = 0; height < kernel[kHeight]; ++height) {
      for (int64_t width = 0; width < (joins_width_ ? 1 : kernel[kWidth]); ++width) {
        taps_.offsets.push_back(band_.TapOffset(depth, height, width));
      }
    }
  }
  taps_.depth = unit_inputs() + (joins_width_ ? (kernel[kWidth] - 1) * band_.pixel_bytes() : 0);
  if (reading_ != Reading::kInPlace) taps_.depth = RoundUp(taps_.depth, kQuad);
}

// Tiles read whole taps in place: where that is worth it, they are made whole.
void ConvPlan::PadTapsForTiles() {
  constexpr int64_t kFewDepths = 4096;  // more may grow to kMostGrowth times as many
  constexpr int64_t kMostGrowth = 4;
  const int64_t padded = RoundUp(taps_.depth, kTileDepth);
  if (taps_.count() * padded > kFewDepths && padded > kMostGrowth * taps_.depth) return;
  const int64_t panels = CeilDivide(unit_outputs(), kPanelColumns);
  if (ReadsLinesInPlace(geometry_.output[kWidth], panels, taps_)) taps_.depth = padded;
}

// Worth it where lines fill tiles, and the taps of a line of the filter, which kernels unroll, are few.
void ConvPlan::SharePixels() {
  constexpr int64_t kLeastRows = 4;
  constexpr int64_t kMostQuads = 32;
  const int64_t taps = geometry_.kernel[kWidth];
  const int64_t rows = geometry_.output[kWidth];
  if (taps == 1 || taps * taps_.depth / kQuad > kMostQuads || rows < kLeastRows) return;
  taps_.shared = {taps, geometry_.dilation[kWidth] * band_.pixel_bytes(), band_.row_stride()};
  taps_.line_rows = geometry_.output[kWidth];
}

// Lines above the input and below it are padding for all their pixels.
void ConvPlan::SetLineTaps() {
  const int64_t heights = geometry_.kernel[kHeight];
  constexpr int64_t kMostLines = 4096;  // a range is kept for each
  constexpr int64_t kMostHeights = 16;  // and constants for each that differs: more save little
  if (geometry_.kernel[kDepth] > 1 || geometry_.HasPadding(kDepth)) return;
  if (geometry_.output[kHeight] > kMostLines || heights > kMostHeights) return;
  const int64_t per_height = taps_.count() / heights;
  for (int64_t line = 0; line < geometry_.output[kHeight]; ++line) {
    TapRange range{taps_.count(), 0};
    for (int64_t height = 0; height < heights; ++height) {
      const int64_t y = line * geometry_.stride[kHeight] - geometry_.pad_begin[kHeight] +
                        height * geometry_.dilation[kHeight];
      if (y < 0 || y >= geometry_.input[kHeight]) continue;
      range.first = std::min(range.first, height * per_height);
      range.end = (height + 1) * per_height;
    }
    // A line of padding alone: taps all the same, since kernels run some.
    if (range.end == 0) range = {0, per_height};
    taps_.line_taps.push_back(range);
  }
  const auto is_whole = [&](const TapRange& range) { return range == TapRange{0, taps_.count()}; };
  if (std::all_of(taps_.line_taps.begin(), taps_.line_taps.end(), is_whole)) taps_.line_taps.clear();
}

// Where a line begins, the first pixels of its taps may lie before the input; where it ends, the last beyond.
void ConvPlan::SetLineEnds() {
  if (!joins_width_ || geometry_.input_channels % kQuad != 0) return;
  const int64_t width = geometry_.kernel[kWidth];
  const int64_t last =
      (geometry_.output[kWidth] - 1) * geometry_.stride[kWidth] - geometry_.pad_begin[kWidth];
  const int64_t head = std::clamp<int64_t>(geometry_.pad_begin[kWidth], 0, width - 1);
  const int64_t tail = std::clamp<int64_t>(last + width - geometry_.input[kWidth], 0, width - 1 - head);
  taps_.head = head * band_.pixel_bytes();
  taps_.tail = tail == 0 ? 0 : taps_.depth - (width - tail) * band_.pixel_bytes();
  taps_.line_rows = geometry_.output[kWidth];
}

int64_t ConvPlan::DepthOf(int64_t tap, int64_t channel, int64_t n) const {
  if (IsDepthwise()) return tap;
  if (IsPlanar()) {
    const int64_t first = n / geometry_.group_outputs() * geometry_.group_inputs();
    const int64_t place = planar_.PlaceOf(first + channel) - first;
    return (place / kQuad * geometry_.taps() + tap) * kQuad + place % kQuad;
  }
  channel += n / geometry_.group_outputs() % unit_groups_ * geometry_.group_inputs();
  if (!joins_width_) return tap * taps_.depth + channel;
  const int64_t width = geometry_.kernel[kWidth];
  return tap / width * taps_.depth + tap % width * band_.pixel_bytes() + channel;
}

template <class Run>
void ConvPlan::ForEachRun(int64_t tap, int64_t n, const Run& run) const {
  const int64_t inputs = geometry_.group_inputs();
  int64_t adjacent = inputs;
  if (IsPlanar()) adjacent = planar_.HasOrder() ? 1 : kQuad;
  for (int64_t channel = 0; channel < inputs; channel += adjacent) {
    run(channel, DepthOf(tap, channel, n), std::min(adjacent, inputs - channel));
  }
}

Error ConvPlan::MakeUnits(const GemmProblem& problem) {
  for (int64_t unit = 0; unit < geometry_.output_channels / unit_outputs(); ++unit) {
    Result<std::unique_ptr<GemmPlan>> plan = MakeUnit(problem, unit);
    if (!plan) return plan.error();
    units_.push_back(std::move(*plan));
  }
  kernel_name_ = units_.front()->kernel_name();
  if (!IsDepthwise()) return {};
  const uint8_t flip = ActivationFlip(problem.a_type);
  Result<std::unique_ptr<DepthwiseConv>> depthwise =
      DepthwiseConv::Create(units_.front()->data(), geometry_,
                            static_cast<uint8_t>(problem.a_zero_point + flip), flip, units_.front()->isa());
  if (!depthwise) return depthwise.error();
  depthwise_ = std::move(*depthwise);
  kernel_name_ = depthwise_->KernelName();
  return {};
}

Result<std::unique_ptr<GemmPlan>> ConvPlan::MakeUnit(const GemmProblem& conv, int64_t unit) const {
  const int64_t first = unit * unit_outputs();
  GemmProblem problem = conv;
  problem.n = unit_outputs();
  problem.k = taps_.count() * taps_.depth;
  if (reading_ != Reading::kInPlace) {
    problem.a_zero_point += ActivationFlip(conv.a_type);
    problem.a_type = INTACT_U8;
  }
  if (conv.b_zero_point_count > 1) {
    problem.b_zero_points += first;
    problem.b_zero_point_count = problem.n;
  }
  if (conv.clamp_excess != nullptr) problem.clamp_excess += first;
  problem.naming = {"output channel", "weights", first, geometry_.taps() * geometry_.group_inputs()};
  if (conv.scale_count > 1) {
    problem.scales += first;
    problem.scale_count = problem.n;
  }
  if (conv.bias_s32 != nullptr) problem.bias_s32 += first;
  if (conv.bias_f32 != nullptr) problem.bias_f32 += first;
  const std::vector<int8_t> weights = UnitWeights(conv, unit);
  problem.b = {weights.data(), problem.k, problem.n, 1, problem.k, conv.b.flip};
  return GemmPlan::Create(problem, taps_);
}

// [output channel][depth], as the caller's type has them.
std::vector<int8_t> ConvPlan::UnitWeights(const GemmProblem& conv, int64_t unit) const {
  const int64_t depth = taps_.count() * taps_.depth;
  const int64_t inputs = geometry_.group_inputs();
  std::vector<int8_t> weights(static_cast<size_t>(unit_outputs() * depth));
  for (int64_t n = 0; n < unit_outputs(); ++n) {
    const int64_t column = unit * unit_outputs() + n;
    const int32_t neutral = has_neutral_zeros_ ? 0 : conv.WeightZeroPoint(column);
    int8_t* const to = &weights[static_cast<size_t>(n * depth)];
    std::fill_n(to, depth, static_cast<int8_t>(static_cast<uint8_t>(neutral) ^ conv.b.flip));
    for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
      const int8_t* const from = conv.b.data + (column * geometry_.taps() + tap) * inputs;
      ForEachRun(tap, n, [&](int64_t channel, int64_t depth_begin, int64_t count) {
        std::copy_n(from + channel, count, to + depth_begin);
      });
    }
  }
  return weights;
}

int64_t ConvPlan::packed_bytes() const {
  return std::accumulate(units_.begin(), units_.end(),
                         depthwise_ == nullptr ? int64_t{0} : depthwise_->packed_bytes(),
                         [](int64_t bytes, const auto& unit) { return bytes + unit->packed_bytes(); });
}

ScheduleStatistics ConvPlan::schedule_statistics() const {
  ScheduleStatistics all;
  for (const auto& unit : units_) all += unit->schedule_statistics();
  return all;
}

void ConvPlan::CopyTap(int64_t column, int64_t tap, int8_t* to) const {
  const PackedWeights& packed = units_[static_cast<size_t>(column / unit_outputs())]->data().weights;
  const int64_t n = column % unit_outputs();
  ForEachRun(tap, n, [&](int64_t channel, int64_t depth, int64_t count) {
    CopyDepths(packed, depth, n, count, to + channel);
  });
}

int64_t ConvPlan::accumulator_min() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& unit : units_) least = std::min(least, unit->data().certificate.accumulator_min);
  return least;
}

int64_t ConvPlan::accumulator_max() const {
  int64_t most = std::numeric_limits<int64_t>::min();
  for (const auto& unit : units_) most = std::max(most, unit->data().certificate.accumulator_max);
  return most;
}

ConvPlan::Shape ConvPlan::ShapeOf(int64_t batch) const {
  Shape shape;
  shape.rows = RowCount(batch);
  shape.piece_rows = shape.rows;
  shape.is_by_line = !grid_.IsEven(batch) && RunsByLine();
  if (!grid_.IsEven(batch) && !shape.is_by_line) {
    shape.piece_rows = std::min(shape.rows, MostSpreadRows());
    shape.spread_bytes = RoundUp(shape.piece_rows * SpreadRowBytes(), 64);
  }
  if (IsDepthwise()) {
    shape.mr = static_cast<int>(geometry_.output[kWidth]);
    shape.columns = 1;
    shape.bytes = shape.spread_bytes + RoundUp(depthwise_->ScratchBytes(), 64);
    return shape;
  }
  if (IsPlanar()) {
    shape.piece_rows = std::min(shape.piece_rows, planar_.max_rows());
    shape.band_bytes = RoundUp(planar_.bytes(), 64);
  } else if (reading_ != Reading::kInPlace) {
    shape.piece_rows = std::min(shape.piece_rows, band_.max_rows());
    shape.band_bytes = RoundUp(band_.bytes(), 64);
  }
  shape.run_rows = shape.is_by_line ? geometry_.output[kWidth] : shape.piece_rows;
  const Engine& engine = units_.front()->EngineFor(shape.run_rows);
  shape.mr = engine.mr();
  shape.columns = units() == 1 ? unit_outputs() : units();
  shape.nr = units() == 1 ? engine.nr() : 1;
  for (const auto& unit : units_) {
    const int64_t bytes = unit->ShareBytes(unit->EngineFor(shape.run_rows), shape.run_rows);
    shape.bytes = std::max(shape.bytes, shape.spread_bytes + shape.band_bytes + bytes);
  }
  return shape;
}

RowMap ConvPlan::RowsInPlace(const ConvInput& input) const {
  const auto& [depth, height, width] = geometry_.stride;
  RowMap map(input.a, width * input.stride);
  if (geometry_.input == geometry_.output) return map;
  map.line_rows = geometry_.output[kWidth];
  map.line_stride = height * geometry_.input[kWidth] * input.stride;
  map.plane_lines = geometry_.output[kHeight];
  map.plane_stride = depth * geometry_.input[kHeight] * geometry_.input[kWidth] * input.stride;
  return map;
}

RunBuffers OutputBuffers(const intact_conv_args& args, const GemmData& data, int64_t channels) {
  RunBuffers buffers;
  buffers.c = static_cast<uint8_t*>(args.c);
  buffers.c_stride_bytes = (args.c_stride == 0 ? channels : args.c_stride) * data.element_bytes();
  buffers.residual = static_cast<const uint8_t*>(args.residual);
  buffers.residual_stride_bytes =
      (args.residual_stride == 0 ? channels : args.residual_stride) * data.residual_bytes();
  return buffers;
}

RunBuffers ConvPlan::BuffersOf(const intact_conv_args& args, const Shape& shape) const {
  const GemmData& data = units_.front()->data();
  RunBuffers buffers = OutputBuffers(args, data, geometry_.output_channels);
  if (shape.spread_bytes > 0 || shape.is_by_line) return buffers;
  buffers.may_stream = units() == 1 && MayStream(buffers, shape.rows, unit_outputs() * data.element_bytes());
  return LineOf(buffers, 0, grid_.FirstPixel());
}

int64_t ConvPlan::SpreadRowBytes() const {
  const GemmData& data = units_.front()->data();
  return geometry_.output_channels * (data.element_bytes() + data.residual_bytes());
}

// As many as stay in half of L1, from where they are copied; whole lines, as bands hold them, unless those
// are longer.
int64_t ConvPlan::MostSpreadRows() const {
  const int64_t rows = std::max<int64_t>(Caches().l1d_bytes / 2 / SpreadRowBytes(), 1);
  const int64_t line = geometry_.output[kWidth];
  return rows < line && !IsDepthwise() ? rows : std::max<int64_t>(rows / line, 1) * line;
}

// A line at a time saves the copies where it fills the tiles: scheduled weights want more rows.
bool ConvPlan::RunsByLine() const {
  constexpr int64_t kLeastRows = 12;
  const jit::Isa isa = units_.front()->isa();
  return !UsesSchedule(isa, units_.front()->data().mode) && !UsesTiles(isa) && !IsPlanar() &&
         !IsDepthwise() && geometry_.output[kWidth] >= kLeastRows;
}

// Rows of C and the residual from `row` on, RowStep() pixels apart from `pixel` on.
RunBuffers ConvPlan::LineOf(const RunBuffers& pixels, int64_t row, int64_t pixel) const {
  RunBuffers line = pixels;
  line.c_stride_bytes *= grid_.RowStep();
  line.c += pixel * pixels.c_stride_bytes - row * line.c_stride_bytes;
  line.residual_stride_bytes *= grid_.RowStep();
  if (line.residual == nullptr) return line;
  line.residual += pixel * pixels.residual_stride_bytes - row * line.residual_stride_bytes;
  return line;
}

void ConvPlan::RunSpread(const ConvInput& input, const RunBuffers& buffers, const Shape& shape,
                         const Range& piece, uint8_t* scratch) const {
  const GemmData& data = units_.front()->data();
  const int64_t channels = geometry_.output_channels;
  Range columns = piece;
  if (IsDepthwise()) {
    columns.column_end = channels;
  } else if (units() > 1) {
    columns.column_begin *= unit_outputs();
    columns.column_end *= unit_outputs();
  }
  const int64_t row_elements = columns.column_end - columns.column_begin;
  const int64_t step = grid_.RowStep();
  RunBuffers dense;  // row 0 lies piece.row_begin rows before what is there
  dense.c_stride_bytes = channels * data.element_bytes();
  dense.residual_stride_bytes = channels * data.residual_bytes();
  uint8_t* const residual = scratch + shape.piece_rows * dense.c_stride_bytes;
  const auto place = [&](int64_t row, int64_t row_bytes) {
    return (row - piece.row_begin) * row_bytes + columns.column_begin * (row_bytes / channels);
  };
  dense.c = scratch - piece.row_begin * dense.c_stride_bytes;
  if (buffers.residual != nullptr) {
    dense.residual = residual - piece.row_begin * dense.residual_stride_bytes;
    const int64_t bytes = data.residual_bytes();
    grid_.ForEachLine(piece.row_begin, piece.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
      CopyTile(buffers.residual + pixel * buffers.residual_stride_bytes + columns.column_begin * bytes,
               step * buffers.residual_stride_bytes, rows, row_elements * bytes,
               residual + place(row, dense.residual_stride_bytes), dense.residual_stride_bytes);
    });
  }
  RunPiece(input, dense, shape, piece, scratch + shape.spread_bytes);
  const int64_t bytes = data.element_bytes();
  grid_.ForEachLine(piece.row_begin, piece.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
    CopyTile(scratch + place(row, dense.c_stride_bytes), dense.c_stride_bytes, rows, row_elements * bytes,
             buffers.c + pixel * buffers.c_stride_bytes + columns.column_begin * bytes,
             step * buffers.c_stride_bytes);
  });
}

void ConvPlan::RunPiece(const ConvInput& input, RunBuffers buffers, const Shape& shape, const Range& piece,
                        uint8_t* scratch) const {
  switch (reading_) {
    case Reading::kDepthwise:
      return depthwise_->Run(input, buffers, piece.row_begin, piece.row_end, scratch);
    case Reading::kPlanarBand:
      return RunPlanar(input, buffers, shape, piece, scratch);
    case Reading::kInPlace:
      buffers.a = RowsInPlace(input);
      break;
    case Reading::kBand:
      buffers.a = band_.Stage(input, 0, piece.row_begin, piece.row_end, scratch);
      break;
    case Reading::kBandPerUnit:
      break;  // below
  }
  if (units() == 1) return RunUnit(0, shape, buffers, piece, scratch);
  const uintptr_t origin = buffers.a.origin;
  for (int64_t unit = piece.column_begin; unit < piece.column_end; ++unit) {
    if (reading_ == Reading::kBandPerUnit) {
      buffers.a = band_.Stage(input, unit * unit_inputs(), piece.row_begin, piece.row_end, scratch);
    } else {
      buffers.a.origin = origin + static_cast<uintptr_t>(unit * unit_inputs());
    }
    RunUnit(unit, shape, buffers, {piece.row_begin, piece.row_end, 0, unit_outputs()}, scratch);
  }
}

void ConvPlan::RunPlanar(const ConvInput& input, RunBuffers buffers, const Shape& shape, const Range& piece,
                         uint8_t* scratch) const {
  for (int64_t group = 0; group < geometry_.groups; group += planar_.groups()) {
    Range range = piece;
    range.column_begin = std::max(range.column_begin, group * geometry_.group_outputs());
    range.column_end = std::min(range.column_end, (group + planar_.groups()) * geometry_.group_outputs());
    if (range.Empty()) continue;
    buffers.planar = planar_.Stage(input, group, range.row_begin, range.row_end, scratch);
    RunUnit(0, shape, buffers, range, scratch);
  }
}

void ConvPlan::RunUnit(int64_t unit, const Shape& shape, RunBuffers buffers, const Range& range,
                       uint8_t* scratch) const {
  const GemmPlan& plan = *units_[static_cast<size_t>(unit)];
  buffers.c += unit * unit_outputs() * plan.data().element_bytes();
  if (buffers.residual != nullptr) buffers.residual += unit * unit_outputs() * plan.data().residual_bytes();
  const Engine& engine = plan.EngineFor(shape.run_rows);
  if (!shape.is_by_line) return plan.RunShare(engine, buffers, range, scratch + shape.band_bytes);
  grid_.ForEachLine(range.row_begin, range.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
    Range line = range;
    line.row_begin = row;
    line.row_end = row + rows;
    plan.RunShare(engine, LineOf(buffers, row, pixel), line, scratch + shape.band_bytes);
  });
}

ConvInput ConvPlan::InputOf(const intact_conv_args& args) const {
  return {static_cast<const uint8_t*>(args.a), args.a_stride == 0 ? geometry_.input_channels : args.a_stride};
}

int64_t ConvPlan::PieceEnd(const Shape& shape, int64_t row, int64_t row_end) const {
  row_end = std::min(row_end, row + shape.piece_rows);
  if (reading_ == Reading::kInPlace || IsDepthwise()) return row_end;
  return IsPlanar() ? planar_.EndFrom(row, row_end) : band_.EndFrom(row, row_end);
}

void ConvPlan::RunShare(const intact_conv_args& args, const Shape& shape, int part, int parts,
                        uint8_t* scratch) const {
  const Range share = Partition(shape.rows, shape.columns, shape.mr, static_cast<int>(shape.nr), part, parts);
  if (share.Empty()) return;
  const ConvInput input = InputOf(args);
  const RunBuffers buffers = BuffersOf(args, shape);
  Range piece = share;
  for (; piece.row_begin < share.row_end; piece.row_begin = piece.row_end) {
    piece.row_end = PieceEnd(shape, piece.row_begin, share.row_end);
    if (shape.spread_bytes > 0) {
      RunSpread(input, buffers, shape, piece, scratch);
    } else {
      RunPiece(input, buffers, shape, piece, scratch);
    }
  }
}

}  // namespace intact::kernels
