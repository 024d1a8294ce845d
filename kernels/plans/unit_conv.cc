#include "kernels/plans/unit_conv.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/codegen/dispatch.h"
#include "kernels/engines/amx_blocking.h"
#include "kernels/engines/block_cost.h"
#include "kernels/engines/cost_table.h"

namespace intact::kernels {

Result<std::unique_ptr<ConvKernels>> UnitConv::Create(const ConvLayout& layout, const ConvGeometry& geometry,
                                                      const OutputGrid& grid) {
  std::unique_ptr<UnitConv> conv(new UnitConv(layout, geometry, grid));
  RETURN_IF_ERROR(conv->MakeUnits());
  return std::unique_ptr<ConvKernels>(std::move(conv));
}

Error UnitConv::MakeUnits() {
  ASSIGN_OR_RETURN(const Access access, MakeSource());
  const int64_t pixels = geometry_.output[kDepth] * geometry_.plane_pixels();
  UsualRows usual{.least = kUsualPixels};
  if (!layout_.geometry().IsOpen()) {
    usual.named = pixels;
    // A run of several small images may multiply their pixels at once.
    usual.most = std::max<int64_t>(pixels, 64);
  }
  for (int64_t i = 0; i < layout_.units(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<UnitPlan> unit,
                     UnitPlan::Create(layout_.weights(i), access, layout_.isa(), usual, layout_.model(i)));
    units_.push_back(std::move(unit));
  }
  return {};
}

// ----- how input is read -----------------------------------------------------------------------------------

Result<Access> UnitConv::MakeSource() {
  const LinearProblem& problem = layout_.problem();
  switch (layout_.reading()) {
    case ConvLayout::Reading::kPlanarBand: {
      PlanarBand band(geometry_, problem.a_shift());
      if (!layout_.channel_order().empty()) band.OrderChannels(layout_.channel_order());
      if (!band.IsSmall()) return Error{INTACT_UNSUPPORTED, "the input is too large for a planar band"};
      RETURN_IF_ERROR(band.GenerateKernel());
      Access access = band.MakeAccess();
      source_ = std::make_unique<PlanarSource>(std::move(band));
      return access;
    }
    case ConvLayout::Reading::kInPlace: {
      source_ = std::make_unique<InPlaceSource>(geometry_);
      Taps taps;
      taps.depth = layout_.tap_depth();
      taps.vector_step = layout_.vector_step();
      if (geometry_.input != geometry_.output) SetStaging(&taps);
      return Access(std::move(taps));
    }
    case ConvLayout::Reading::kWindows: {
      const Band band(geometry_, layout_.channels(), problem.a_shift());
      source_ = std::make_unique<WindowSource>(geometry_, band, layout_.tap_depth());
      Taps taps;
      taps.depth = layout_.tap_depth();
      return Access(std::move(taps));
    }
    default: {
      const Band band(geometry_, layout_.channels(), problem.a_shift());
      const bool is_per_unit = layout_.reading() == ConvLayout::Reading::kBandPerUnit;
      source_ = std::make_unique<BandSource>(band, is_per_unit ? layout_.unit_groups() : geometry_.groups,
                                             geometry_.group_inputs());
      Taps taps = MakeTaps(band);
      SetInPlaceTaps(taps);
      return Access(std::move(taps));
    }
  }
}

Taps UnitConv::MakeTaps(const Band& band) const {
  const Spatial& kernel = geometry_.kernel;
  Taps taps;
  taps.lies_in_band = true;
  taps.offsets.clear();
  for (int64_t depth = 0; depth < kernel[kDepth]; ++depth) {
    for (int64_t height = 0; height < kernel[kHeight]; ++height) {
      for (int64_t width = 0; width < (layout_.joins_width() ? 1 : kernel[kWidth]); ++width) {
        taps.offsets.push_back(band.TapOffset(depth, height, width));
      }
    }
  }
  taps.depth = layout_.tap_depth();
  taps.line_rows = geometry_.output[kWidth];
  taps.vector_step = layout_.vector_step();
  if (taps.vector_step != 0) SharePixels(band, &taps);
  SetStaging(&taps);
  if (layout_.may_skip_padding()) {
    SetLineTaps(&taps);
    SetLineEnds(band, &taps);
    if (!PaysToSkip(taps)) {
      taps.head = taps.tail = 0;
      if (!PaysToSkipTaps(taps)) taps.line_taps.clear();
    }
  }
  return taps;
}

// Tiles at the ends of lines have kernels and calls of their own, and fewer rows. Measured on Zen 5 with
// AVX-512-VNNI: a convolution 3×3 of 32×32 pixels and 16 channels is 1.1 times as fast if it computes the
// padding, and its plan takes half of the time to create.
bool UnitConv::PaysToSkip(const Taps& taps) const {
  const double pixels = static_cast<double>(taps.count() * (taps.head + taps.tail));
  const auto lines = static_cast<double>(std::max<size_t>(taps.line_taps.size(), 1));
  const double skipped =
      (pixels + SkippedByLines(taps) / lines) / static_cast<double>(geometry_.output[kWidth]);
  double saved = HalfCyclesOf(skipped);
  if (MayReadInPlace(taps)) {
    constexpr double kCopiedBytes = 12;  // of a half cycle
    const int64_t strides = geometry_.stride[kHeight] * geometry_.stride[kWidth];
    saved += static_cast<double>(geometry_.input_channels * strides) / kCopiedBytes;
  }
  return saved >= static_cast<double>(Costs().layout.least_skipped);
}

bool UnitConv::MayReadInPlace(const Taps& taps) const {
  const Spatial &input = geometry_.input, &output = geometry_.output, &pad = geometry_.pad_begin;
  const Spatial &kernel = geometry_.kernel, &stride = geometry_.stride;
  const bool is_dense = layout_.joins_width() && geometry_.groups == 1 && layout_.problem().a_shift() == 0 &&
                        layout_.channels().pitch == geometry_.input_channels;
  // Taps that are padded to whole tiles read beyond their pixels.
  if (!is_dense || !taps.HasLineEnds() || taps.depth != kernel[kWidth] * geometry_.input_channels)
    return false;
  if (kernel[kDepth] != 1 || geometry_.HasPadding(kDepth) || input[kDepth] != output[kDepth]) return false;
  // Only the first and the last pixel of a line read padding, and tiles leave out all of it.
  const int64_t pixels = output[kWidth], width = kernel[kWidth], pixel = layout_.channels().pitch;
  const auto begin = [&](int64_t x) { return x * stride[kWidth] - pad[kWidth]; };
  if (pixels < 2 || begin(1) < 0 || begin(pixels - 2) + width > input[kWidth]) return false;
  if (begin(0) * pixel + taps.head < 0 ||
      (begin(pixels - 1) + width) * pixel - taps.tail > input[kWidth] * pixel)
    return false;
  // The taps of a line lie in the input.
  const int64_t per_height = taps.count() / kernel[kHeight];
  const auto lies_inside = [&](int64_t line, const TapRange& range) {
    const int64_t first = line * stride[kHeight] - pad[kHeight];
    const int64_t dilation = geometry_.dilation[kHeight];
    return first + range.first / per_height * dilation >= 0 &&
           first + (range.end / per_height - 1) * dilation < input[kHeight];
  };
  if (taps.line_taps.empty()) {
    const TapRange all = {0, taps.count()};
    return lies_inside(0, all) && lies_inside(output[kHeight] - 1, all);
  }
  for (int64_t line = 0; line < output[kHeight]; ++line) {
    if (!lies_inside(line, taps.line_taps[static_cast<size_t>(line)])) return false;
  }
  return true;
}

void UnitConv::SetInPlaceTaps(const Taps& taps) {
  if (!MayReadInPlace(taps)) return;
  for (int64_t height = 0; height < geometry_.kernel[kHeight]; ++height) {
    const int64_t line = height * geometry_.dilation[kHeight] - geometry_.pad_begin[kHeight];
    in_place_taps_.push_back((line * geometry_.input[kWidth] - geometry_.pad_begin[kWidth]) *
                             geometry_.input_channels);
  }
}

// Without the ends of lines, only calls for the first and the last lines are added. Measured on Zen 5 with
// AVX-512-VNNI: 0.95 times as fast if 336 half cycles are saved, 1.01 times with 768, 1.02 times with 1536.
bool UnitConv::PaysToSkipTaps(const Taps& taps) const {
  constexpr double kLeastSaved = 700;  // half cycles of a plane
  return !UsesSchedule(layout_.isa(), layout_.problem().mode) &&
         HalfCyclesOf(SkippedByLines(taps)) >= kLeastSaved;
}

double UnitConv::SkippedByLines(const Taps& taps) const {
  double skipped = 0;
  for (const TapRange& range : taps.line_taps) {
    skipped += static_cast<double>((taps.count() - range.end + range.first) * taps.depth);
  }
  return skipped * static_cast<double>(geometry_.output[kWidth]);
}

double UnitConv::HalfCyclesOf(double bytes) const {
  const double panels = static_cast<double>(CeilDivide(layout_.unit_outputs(), kPanelColumns));
  return bytes / kQuad * panels * HalfCycles(VectorIsa(layout_.isa()));
}

// With a single line, all rows are one stride apart.
void UnitConv::SetStaging(Taps* taps) const {
  if (!UsesTiles(layout_.isa())) return;
  const bool has_lines = geometry_.output[kDepth] * geometry_.output[kHeight] > 1;
  const int64_t line = has_lines ? geometry_.output[kWidth] : std::numeric_limits<int32_t>::max();
  const int64_t row_stride = (layout_.IsJoined() ? 1 : geometry_.stride[kWidth]) * layout_.channels().pitch;
  taps->stages_tiles =
      StagesLines(line, row_stride, CeilDivide(layout_.unit_outputs(), kPanelColumns), *taps);
}

// Pays if output lines fill tiles, and filter lines have few taps, because kernels unroll these taps.
void UnitConv::SharePixels(const Band& band, Taps* taps) const {
  const int64_t width = geometry_.kernel[kWidth];
  const int64_t rows = geometry_.output[kWidth];
  const LayoutLimits& limits = Costs().layout;
  if (width == 1 || width * taps->depth / kQuad > limits.most_sharing_quads ||
      rows < limits.least_sharing_rows)
    return;
  taps->shared = {width, band.TapOffset(0, 0, 1), band.row_stride()};
}

// Taps above or below the input are padding for all pixels of an output line.
void UnitConv::SetLineTaps(Taps* taps) const {
  const int64_t heights = geometry_.kernel[kHeight];
  constexpr int64_t kMostLines = 4096;  // the plan has a range for each line
  constexpr int64_t kMostHeights = 16;  // and constants for each different range: more would save little
  if (geometry_.kernel[kDepth] > 1 || geometry_.HasPadding(kDepth)) return;
  if (geometry_.output[kHeight] > kMostLines || heights > kMostHeights) return;
  const int64_t per_height = taps->count() / heights;
  for (int64_t line = 0; line < geometry_.output[kHeight]; ++line) {
    TapRange range{taps->count(), 0};
    for (int64_t height = 0; height < heights; ++height) {
      const int64_t y = line * geometry_.stride[kHeight] - geometry_.pad_begin[kHeight] +
                        height * geometry_.dilation[kHeight];
      if (y < 0 || y >= geometry_.input[kHeight]) continue;
      range.first = std::min(range.first, height * per_height);
      range.end = (height + 1) * per_height;
    }
    // All taps are padding: the line keeps some, because kernels run at least one.
    if (range.end == 0) range = {0, per_height};
    taps->line_taps.push_back(range);
  }
  const auto is_whole = [&](const TapRange& range) { return range == TapRange{0, taps->count()}; };
  if (std::all_of(taps->line_taps.begin(), taps->line_taps.end(), is_whole)) taps->line_taps.clear();
}

// At the beginning of a line, the first pixels of its taps may lie before the input; at the end of a line,
// the last pixels of its taps may lie beyond the input.
void UnitConv::SetLineEnds(const Band& band, Taps* taps) const {
  if (!layout_.joins_width() || geometry_.input_channels % kQuad != 0) return;
  const int64_t width = geometry_.kernel[kWidth];
  const int64_t last =
      (geometry_.output[kWidth] - 1) * geometry_.stride[kWidth] - geometry_.pad_begin[kWidth];
  const int64_t head = std::clamp<int64_t>(geometry_.pad_begin[kWidth], 0, width - 1);
  const int64_t tail = std::clamp<int64_t>(last + width - geometry_.input[kWidth], 0, width - 1 - head);
  taps->head = head * band.pixel_bytes();
  taps->tail = tail == 0 ? 0 : taps->depth - (width - tail) * band.pixel_bytes();
}

// ----- how a run is cut ------------------------------------------------------------------------------------

void UnitConv::Decide(const EngineChoice& choice, ConvRun* run) const {
  run->chunk_rows = std::min(run->chunk_rows, source_->max_rows());
  run->staged_bytes = RoundUp(source_->Bytes(run->rows / geometry_.plane_pixels()), 64);
  run->run_rows = run->is_by_line ? geometry_.output[kWidth] : run->chunk_rows;
  for (const auto& unit : units_) {
    const EngineSet& engines = unit->engines();
    const Engine& engine = choice ? *engines.Find(*choice) : engines.For(run->run_rows);
    run->engines.push_back(&engine);
    run->bytes =
        std::max(run->bytes, run->spread_bytes + run->staged_bytes + unit->ShareBytes(engine, run->run_rows));
  }
  SharedOutput& output = run->output;
  units_.front()->engines().SetSteps(*run->engines.front(), &output);
  if (!HasOneUnit()) output.column_step = output.any_column_step = layout_.unit_outputs();
  const int64_t plane = geometry_.input[kHeight] * geometry_.input[kWidth];
  output.row_bytes = CeilDivide(geometry_.input_channels * plane, geometry_.plane_pixels());
  output.column_bytes = layout_.weights(0)->packed().k;
}

// Running line by line saves copies if a line fills the tiles. Scheduled weights need more rows.
bool UnitConv::RunsByLine() const {
  const core::Isa isa = layout_.isa();
  return !UsesSchedule(isa, layout_.problem().mode) && !UsesTiles(isa) && !layout_.IsPlanar() &&
         geometry_.output[kWidth] >= Costs().layout.least_line_rows;
}

// Assumes that the share begins with a line and with a chunk.
double UnitConv::RowsCost(const ConvRun& run, int64_t rows) const {
  const EngineSet& engines = units_.front()->engines();
  const Engine& engine = *run.engines.front();
  const int64_t tail = rows % run.run_rows;
  const double cost = tail == 0 ? 0 : engines.RowsCost(engine, tail);
  const int64_t whole_runs = rows / run.run_rows;
  if (whole_runs == 0) return cost;
  return cost + static_cast<double>(whole_runs) * engines.RowsCost(engine, run.run_rows);
}

// ----- a run -----------------------------------------------------------------------------------------------

Error UnitConv::FindSchedules(const ConvRun& run, int threads) const {
  for (size_t i = 0; i < units_.size(); ++i) {
    RETURN_IF_ERROR(units_[i]->engines().FindSchedules(*run.engines[i], threads));
  }
  return {};
}

Error UnitConv::PrepareRows(const ConvRun& run, int64_t rows, bool or_fewer) const {
  if (run.is_by_line) rows = std::min(rows, geometry_.output[kWidth]);
  for (size_t i = 0; i < units_.size(); ++i)
    RETURN_IF_ERROR(units_[i]->PrepareRows(*run.engines[i], rows, false, or_fewer));
  return {};
}

int64_t UnitConv::RunColumnBytes() const {
  if (!units_.front()->data().HasPerRunColumnConstants()) return 0;
  int64_t bytes = RoundUp(std::ssize(units_) * static_cast<int64_t>(sizeof(PerRunColumnConstants)), 64);
  for (const auto& unit : units_) bytes += unit->data().RunColumnBytes();
  return bytes;
}

const PerRunColumnConstants* UnitConv::MakePerRunColumnConstants(const RowQuantization& a,
                                                                 uint8_t* to) const {
  auto* const made = reinterpret_cast<PerRunColumnConstants*>(to);
  to += RoundUp(std::ssize(units_) * static_cast<int64_t>(sizeof(PerRunColumnConstants)), 64);
  for (size_t i = 0; i < units_.size(); ++i) {
    made[i] = units_[i]->data().MakePerRunColumnConstants(a, to);
    to += units_[i]->data().RunColumnBytes();
  }
  return made;
}

void UnitConv::Run(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run, const Range& chunk,
                   uint8_t* scratch) const {
  if (IsOneGemm()) {
    RunBuffers unit_buffers = buffers;
    if (!ReadInPlace(input, run, chunk, &unit_buffers)) {
      unit_buffers.a = source_->Stage(input, 0, chunk.row_begin, chunk.row_end, scratch);
    }
    return RunUnit(0, run, unit_buffers, chunk, scratch);
  }
  const int64_t group_outputs = geometry_.group_outputs();
  const int64_t unit_outputs = layout_.unit_outputs();
  const int64_t staged_columns = source_->groups() * group_outputs;
  for (int64_t first = 0; first < geometry_.output_channels; first += staged_columns) {
    Range staged = chunk;
    staged.column_begin = std::max(chunk.column_begin, first);
    staged.column_end = std::min(chunk.column_end, first + staged_columns);
    if (staged.Empty()) continue;
    RunBuffers unit_buffers = buffers;
    unit_buffers.a = source_->Stage(input, first / group_outputs, chunk.row_begin, chunk.row_end, scratch);
    if (HasOneUnit()) {
      RunUnit(0, run, unit_buffers, staged, scratch);
      continue;
    }
    const RowMap rows = unit_buffers.rows();
    for (int64_t column = staged.column_begin; column < staged.column_end; column += unit_outputs) {
      RowMap own = rows;
      own.origin += static_cast<uintptr_t>((column - first) / group_outputs * geometry_.group_inputs());
      unit_buffers.a = own;
      unit_buffers.output = buffers.output.FromColumn(column);
      const auto unit = static_cast<size_t>(column / unit_outputs);
      if (buffers.columns != nullptr) unit_buffers.columns = buffers.columns + unit;
      RunUnit(unit, run, unit_buffers, {chunk.row_begin, chunk.row_end, 0, unit_outputs}, scratch);
    }
  }
}

bool UnitConv::ReadInPlace(const ConvInput& input, const ConvRun& run, const Range& chunk,
                           RunBuffers* buffers) const {
  if (in_place_taps_.empty() || input.stride != geometry_.input_channels ||
      !run.engines.front()->LeavesOutPadding(chunk.row_begin, chunk.row_end)) {
    return false;
  }
  buffers->a = InPlaceSource::LinesOf(geometry_, input);
  buffers->taps = in_place_taps_;
  return true;
}

void UnitConv::RunUnit(size_t number, const ConvRun& run, const RunBuffers& buffers, const Range& range,
                       uint8_t* scratch) const {
  const UnitPlan& unit = *units_[number];
  const Engine& engine = *run.engines[number];
  if (!run.is_by_line) return unit.RunShare(engine, buffers, range, scratch + run.staged_bytes);
  grid_.ForEachLine(range.row_begin, range.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
    RunBuffers line_buffers = buffers;
    line_buffers.output = buffers.output.EveryRow(grid_.RowStep(), pixel, row);
    Range line = range;
    line.row_begin = row;
    line.row_end = row + rows;
    unit.RunShare(engine, line_buffers, line, scratch + run.staged_bytes);
  });
}

/// Stages a chunk and repeats the calls of its unit.
class UnitConv::BoundChunk final : public BoundCalls {
 public:
  BoundChunk(const InputSource& source, const ConvInput& input, const Range& chunk, uint8_t* scratch,
             std::unique_ptr<BoundCalls> calls)
      : source_(source), input_(input), chunk_(chunk), scratch_(scratch), calls_(std::move(calls)) {}
  void Run() const noexcept override {
    source_.Stage(input_, 0, chunk_.row_begin, chunk_.row_end, scratch_);
    calls_->Run();
  }
  size_t count() const override { return calls_->count(); }

 private:
  const InputSource& source_;
  ConvInput input_;
  Range chunk_;
  uint8_t* scratch_;
  std::unique_ptr<BoundCalls> calls_;
};

std::unique_ptr<BoundCalls> UnitConv::Bind(const ConvInput& input, const RunBuffers& buffers,
                                           const ConvRun& run, const Range& chunk, uint8_t* scratch) const {
  if (!IsOneGemm()) return nullptr;
  RunBuffers unit_buffers = buffers;
  const bool in_place = ReadInPlace(input, run, chunk, &unit_buffers);
  if (!in_place) unit_buffers.a = source_->Stage(input, 0, chunk.row_begin, chunk.row_end, scratch);
  auto calls = units_.front()->Bind(*run.engines.front(), unit_buffers, chunk, scratch + run.staged_bytes);
  if (calls == nullptr || in_place) return calls;
  return std::make_unique<BoundChunk>(*source_, input, chunk, scratch, std::move(calls));
}

// ----- candidates ------------------------------------------------------------------------------------------

Result<std::vector<EngineChoice>> UnitConv::MakeCandidates() {
  for (const auto& unit : units_) {
    if (const auto made = unit->mutable_engines()->MakeAll(); !made) return made.error();
  }
  std::vector<EngineChoice> candidates;
  for (const Engine* const engine : units_.front()->engines().Made()) candidates.emplace_back(engine->id());
  return candidates;
}

EngineChoice UnitConv::ModelChoice(int64_t rows) const {
  const EngineId first = units_.front()->engines().For(rows).id();
  const auto is_first = [&](const auto& unit) { return unit->engines().For(rows).id() == first; };
  return std::ranges::all_of(units_, is_first) ? EngineChoice(first) : EngineChoice();
}

Error UnitConv::Keep(const EngineChoice& choice) {
  for (const auto& unit : units_) {
    EngineSet* const engines = unit->mutable_engines();
    const Engine* kept = nullptr;
    if (choice) {
      ASSIGN_OR_RETURN(kept, engines->FindOrMake(*choice));
    }
    engines->DropUnchosen(kept);
  }
  return {};
}

std::string UnitConv::KernelNameOf(const EngineChoice& choice) const {
  const EngineSet& engines = units_.front()->engines();
  return choice ? engines.Find(*choice)->KernelName() : KernelName() + " and others, by unit";
}

void UnitConv::RunAllAs(int64_t m) {
  for (const auto& unit : units_) unit->mutable_engines()->RunAllAs(m);
}

void UnitConv::DropUnreadPanels() {
  for (const auto& unit : units_) unit->DropUnreadPanels();
}

int64_t UnitConv::packed_bytes() const {
  int64_t bytes = 0;
  for (const auto& unit : units_) bytes += unit->packed_bytes();
  return bytes;
}

ScheduleStatistics UnitConv::schedule_statistics() const {
  ScheduleStatistics all;
  for (const auto& unit : units_) all += unit->schedule_statistics();
  return all;
}

}  // namespace intact::kernels
