#include "kernels/plans/conv_plan.h"

#include <algorithm>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/cost_constants.h"
#include "kernels/runtime/caches.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {
namespace {

PlanarBand PlanarBandOf(const ConvLayout& layout, const ConvGeometry& geometry) {
  PlanarBand band(geometry, static_cast<uint8_t>(layout.problem().a_zero_point), layout.problem().a_flip());
  if (!layout.channel_order().empty()) band.OrderChannels(layout.channel_order());
  return band;
}

}  // namespace

bool ConvPlan::Fits(const ConvLayout& layout, const ConvGeometry& geometry) {
  return !layout.IsPlanar() || PlanarBandOf(layout, geometry).IsSmall();
}

Result<std::unique_ptr<ConvPlan>> ConvPlan::Create(std::shared_ptr<const ConvLayout> layout,
                                                   const ConvGeometry& geometry, const OutputGrid& grid) {
  std::unique_ptr<ConvPlan> plan(new ConvPlan(std::move(layout), geometry, grid));
  RETURN_IF_ERROR(plan->layout_->IsDepthwise() ? plan->MakeDepthwise() : plan->MakeUnits());
  return plan;
}

Error ConvPlan::MakeDepthwise() {
  depthwise_data_ = std::make_unique<KernelData>(layout_->weights(0), layout_->isa(), false);
  ASSIGN_OR_RETURN(depthwise_, DepthwiseConv::Create(*depthwise_data_, geometry_, layout_->padding(),
                                                     layout_->problem().a_flip(), layout_->isa()));
  kernel_name_ = depthwise_->KernelName();
  return {};
}

Error ConvPlan::MakeUnits() {
  ASSIGN_OR_RETURN(const Access access, MakeSource());
  const UsualRows usual{kUsualPixels, layout_->geometry().IsOpen() ? 0 : RowCount(1)};
  for (int64_t i = 0; i < layout_->units(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<GemmPlan> unit,
                     GemmPlan::Create(layout_->weights(i), access, layout_->isa(), usual, layout_->model(i)));
    units_.push_back(std::move(unit));
  }
  kernel_name_ = units_.front()->kernel_name();
  return {};
}

Result<Access> ConvPlan::MakeSource() {
  const uint8_t flip = layout_->problem().a_flip();
  switch (layout_->reading()) {
    case ConvLayout::Reading::kPlanarBand: {
      PlanarBand band = PlanarBandOf(*layout_, geometry_);
      RETURN_IF_ERROR(band.GenerateKernel());
      Access access = band.MakeAccess();
      source_ = std::make_unique<PlanarSource>(std::move(band));
      return access;
    }
    case ConvLayout::Reading::kInPlace: {
      source_ = std::make_unique<InPlaceSource>(geometry_);
      Taps taps;
      taps.depth = layout_->tap_depth();
      return Access(std::move(taps));
    }
    default: {
      const Band band(geometry_, layout_->channels(), layout_->padding(), flip);
      const bool is_per_unit = layout_->reading() == ConvLayout::Reading::kBandPerUnit;
      source_ = std::make_unique<BandSource>(band, is_per_unit ? layout_->unit_groups() : geometry_.groups,
                                             geometry_.group_inputs());
      return Access(MakeTaps(band));
    }
  }
}

Taps ConvPlan::MakeTaps(const Band& band) const {
  const Spatial& kernel = geometry_.kernel;
  Taps taps;
  taps.offsets.clear();
  for (int64_t depth = 0; depth < kernel[kDepth]; ++depth) {
    for (int64_t height = 0; height < kernel[kHeight]; ++height) {
      for (int64_t width = 0; width < (layout_->joins_width() ? 1 : kernel[kWidth]); ++width) {
        taps.offsets.push_back(band.TapOffset(depth, height, width));
      }
    }
  }
  taps.depth = layout_->tap_depth();
  taps.vector_step = layout_->vector_step();
  if (taps.vector_step != 0) SharePixels(band, &taps);
  if (layout_->may_skip_padding()) {
    SetLineTaps(&taps);
    SetLineEnds(band, &taps);
  }
  return taps;
}

// Worth it where lines fill tiles, and the taps of a line of the filter, which kernels unroll, are few.
void ConvPlan::SharePixels(const Band& band, Taps* taps) const {
  const int64_t width = geometry_.kernel[kWidth];
  const int64_t rows = geometry_.output[kWidth];
  if (width == 1 || width * taps->depth / kQuad > costs::kMostSharingQuads || rows < costs::kLeastSharingRows)
    return;
  taps->shared = {width, band.TapOffset(0, 0, 1), band.row_stride()};
  taps->line_rows = geometry_.output[kWidth];
}

// Lines above the input and below it are padding for all their pixels.
void ConvPlan::SetLineTaps(Taps* taps) const {
  const int64_t heights = geometry_.kernel[kHeight];
  constexpr int64_t kMostLines = 4096;  // a range is kept for each
  constexpr int64_t kMostHeights = 16;  // and constants for each that differs: more save little
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
    // A line of padding alone: taps all the same, since kernels run some.
    if (range.end == 0) range = {0, per_height};
    taps->line_taps.push_back(range);
  }
  const auto is_whole = [&](const TapRange& range) { return range == TapRange{0, taps->count()}; };
  if (std::all_of(taps->line_taps.begin(), taps->line_taps.end(), is_whole)) taps->line_taps.clear();
}

// Where a line begins, the first pixels of its taps may lie before the input; where it ends, the last beyond.
void ConvPlan::SetLineEnds(const Band& band, Taps* taps) const {
  if (!layout_->joins_width() || geometry_.input_channels % kQuad != 0) return;
  const int64_t width = geometry_.kernel[kWidth];
  const int64_t last =
      (geometry_.output[kWidth] - 1) * geometry_.stride[kWidth] - geometry_.pad_begin[kWidth];
  const int64_t head = std::clamp<int64_t>(geometry_.pad_begin[kWidth], 0, width - 1);
  const int64_t tail = std::clamp<int64_t>(last + width - geometry_.input[kWidth], 0, width - 1 - head);
  taps->head = head * band.pixel_bytes();
  taps->tail = tail == 0 ? 0 : taps->depth - (width - tail) * band.pixel_bytes();
  taps->line_rows = geometry_.output[kWidth];
}

// ----- how a run is cut ------------------------------------------------------------------------------------

int64_t ConvPlan::packed_bytes() const {
  if (depthwise_ != nullptr) return layout_->packed_bytes() + depthwise_->packed_bytes();
  int64_t bytes = 0;
  for (const auto& unit : units_) bytes += unit->packed_bytes();
  return bytes;
}

ScheduleStatistics ConvPlan::schedule_statistics() const {
  ScheduleStatistics all;
  for (const auto& unit : units_) all += unit->schedule_statistics();
  return all;
}

ConvPlan::Shape ConvPlan::ShapeOf(int64_t batch, const std::vector<const Engine*>& engines) const {
  Shape shape;
  shape.rows = RowCount(batch);
  shape.piece_rows = shape.rows;
  shape.output.m = shape.rows;
  shape.output.n = shape.output.column_step = geometry_.output_channels;
  shape.output.line_columns = LineColumns(geometry_.output_channels, core::BytesOf(output().c_type));
  shape.is_by_line = !grid_.IsEven(batch) && RunsByLine();
  if (!grid_.IsEven(batch) && !shape.is_by_line) {
    shape.piece_rows = std::min(shape.rows, MostSpreadRows());
    shape.spread_bytes = RoundUp(shape.piece_rows * SpreadRowBytes(), 64);
  }
  if (depthwise_ != nullptr) {
    shape.output.row_step = geometry_.output[kWidth];
    const bool is_ragged = geometry_.output_channels % depthwise_->channel_step() != 0;
    // A ragged vector reads the residual of channels before it, which another thread may be overwriting.
    if (!is_ragged || !output().has_residual()) shape.output.column_step = depthwise_->channel_step();
    shape.output.column_bytes = 0;  // a share reads its own channels alone: lines are cut first
    shape.bytes = shape.spread_bytes + RoundUp(depthwise_->ScratchBytes(), 64);
    return shape;
  }
  shape.piece_rows = std::min(shape.piece_rows, source_->max_rows());
  shape.staged_bytes = RoundUp(source_->bytes(), 64);
  shape.run_rows = shape.is_by_line ? geometry_.output[kWidth] : shape.piece_rows;
  shape.engines = engines;
  for (size_t i = shape.engines.size(); i < units_.size(); ++i) {
    shape.engines.push_back(&units_[i]->EngineFor(shape.run_rows));
  }
  const Engine& engine = *shape.engines.front();
  shape.output.row_step = engine.row_step();
  shape.output.least_row_step = engine.least_row_step();
  shape.output.any_column_step = units() == 1 ? units_.front()->AnyColumnStep() : layout_->unit_outputs();
  shape.output.column_step = units() == 1 ? engine.nr() : layout_->unit_outputs();
  const int64_t plane = geometry_.input[kHeight] * geometry_.input[kWidth];
  shape.output.row_bytes = CeilDivide(geometry_.input_channels * plane, geometry_.plane_pixels());
  shape.output.column_bytes = layout_->weights(0)->packed().k;
  for (size_t i = 0; i < units_.size(); ++i) {
    const int64_t bytes = units_[i]->ShareBytes(*shape.engines[i], shape.run_rows);
    shape.bytes = std::max(shape.bytes, shape.spread_bytes + shape.staged_bytes + bytes);
  }
  return shape;
}

int64_t ConvPlan::SpreadRowBytes() const {
  const int residual_bytes = output().has_residual() ? core::BytesOf(output().residual_type) : 0;
  return geometry_.output_channels * (core::BytesOf(output().c_type) + residual_bytes);
}

// As many as stay in half of L1, from where they are copied; whole lines, as bands hold them, unless those
// are longer.
int64_t ConvPlan::MostSpreadRows() const {
  const int64_t rows = std::max<int64_t>(Caches().SpreadRows() / SpreadRowBytes(), 1);
  const int64_t line = geometry_.output[kWidth];
  return rows < line && depthwise_ == nullptr ? rows : std::max<int64_t>(rows / line, 1) * line;
}

// A line at a time saves the copies where it fills the tiles: scheduled weights want more rows.
bool ConvPlan::RunsByLine() const {
  const core::Isa isa = layout_->isa();
  return !UsesSchedule(isa, layout_->problem().mode) && !UsesTiles(isa) && !layout_->IsPlanar() &&
         depthwise_ == nullptr && geometry_.output[kWidth] >= costs::kLeastLineRows;
}

// ----- candidates ------------------------------------------------------------------------------------------

Result<ConvPlan::Candidates> ConvPlan::MakeCandidates() const {
  Candidates candidates;
  if (depthwise_ != nullptr) {
    candidates.kernels = {kernel_name_};
    candidates.shapes = {ShapeOf(1)};
    return candidates;
  }
  for (const auto& unit : units_) {
    ASSIGN_OR_RETURN(GemmPlan::Candidates of_unit, unit->MakeCandidates());
    candidates.units.push_back(std::move(of_unit));
  }
  const auto has = [&](const Shape& shape) {
    return std::ranges::find(candidates.shapes, shape.engines, &Shape::engines) != candidates.shapes.end();
  };
  for (const Engine* const first : candidates.units.front().all) {
    std::vector<const Engine*> engines;
    for (const GemmPlan::Candidates& of_unit : candidates.units) {
      const auto like = std::ranges::find(of_unit.all, first->KindName(), &Engine::KindName);
      if (like != of_unit.all.end()) engines.push_back(*like);
    }
    if (engines.size() < units_.size()) continue;
    candidates.kernels.push_back(first->KernelName());
    candidates.shapes.push_back(ShapeOf(1, engines));
  }
  Shape model = ModelShape();
  if (!has(model)) {
    candidates.kernels.push_back(model.engines.front()->KernelName() + " and others, by unit");
    candidates.shapes.push_back(std::move(model));
  }
  return candidates;
}

void ConvPlan::Choose(size_t kernel, Candidates* candidates) {
  if (depthwise_ != nullptr) return;
  chosen_ = candidates->shapes[kernel].engines;
  for (size_t i = 0; i < units_.size(); ++i) units_[i]->Keep(chosen_[i], &candidates->units[i]);
  kernel_name_ = candidates->kernels[kernel];
}

// ----- a run -----------------------------------------------------------------------------------------------

void ConvPlan::RunShare(const ConvInput& input, const OutputMap& output, const Shape& shape, int part,
                        int parts, uint8_t* scratch) const {
  const Range share = Cut(shape, parts).Share(part);
  if (share.Empty()) return;
  RunBuffers buffers;
  buffers.output = output;
  if (shape.spread_bytes == 0 && !shape.is_by_line) {
    buffers.may_stream =
        units() == 1 && MayStream(output, shape.rows, layout_->unit_outputs() * output.c_bytes);
    buffers.output = output.EveryRow(grid_.RowStep(), grid_.FirstPixel());
  }
  ForEachPiece(shape, share, [&](const Range& piece) {
    if (shape.spread_bytes > 0) {
      RunSpread(input, output, shape, piece, scratch);
    } else {
      RunPiece(input, buffers, shape, piece, scratch);
    }
  });
}

void ConvPlan::AddShare(const Shape& shape, int part, int parts, Share* share) const {
  const Range all = Cut(shape, parts).Share(part);
  if (all.Empty()) return;
  ForEachPiece(shape, all, [&](const Range& piece) {
    share->work += Work(shape, piece);
    grid_.ForEachLine(piece.row_begin, piece.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
      share->Add(pixel, grid_.RowStep(), {row, row + rows, piece.column_begin, piece.column_end});
    });
  });
}

// As if the share began with a line and with a piece.
double ConvPlan::RowsCost(const Shape& shape, int64_t rows) const {
  if (depthwise_ != nullptr) return static_cast<double>(rows);
  const GemmPlan& unit = *units_.front();
  const Engine& engine = *shape.engines.front();
  const int64_t most = shape.is_by_line ? geometry_.output[kWidth] : shape.piece_rows;
  const int64_t rest = rows % most;
  const double cost = rest == 0 ? 0 : unit.RowsCost(engine, rest);
  return rows < most ? cost : cost + static_cast<double>(rows / most) * unit.RowsCost(engine, most);
}

Partition ConvPlan::Cut(const Shape& shape, int parts) const {
  class Cost final : public RowCost {
   public:
    Cost(const ConvPlan& plan, const Shape& shape) : plan_(plan), shape_(shape) {}
    double Of(int64_t rows) const override { return plan_.RowsCost(shape_, rows); }

   private:
    const ConvPlan& plan_;
    const Shape& shape_;
  };
  return Partition::Choose(shape.output, parts, Cost(*this, shape));
}

double ConvPlan::Work(const Shape& shape, const Range& piece) const {
  if (depthwise_ != nullptr) return depthwise_->Work(piece);
  const auto of_unit = [&](size_t number, const Range& range) {
    const GemmPlan& unit = *units_[number];
    const Engine& engine = *shape.engines[number];
    if (!shape.is_by_line) return unit.Work(engine, range);
    double work = 0;
    grid_.ForEachLine(range.row_begin, range.row_end, [&](int64_t row, int64_t /*pixel*/, int64_t rows) {
      work += unit.Work(engine, {row, row + rows, range.column_begin, range.column_end});
    });
    return work;
  };
  if (units() == 1) return of_unit(0, piece);
  double work = 0;
  const int64_t columns = layout_->unit_outputs();
  for (int64_t unit = piece.column_begin / columns; unit * columns < piece.column_end; ++unit) {
    work += of_unit(static_cast<size_t>(unit), {piece.row_begin, piece.row_end, 0, columns});
  }
  return work;
}

void ConvPlan::RunSpread(const ConvInput& input, const OutputMap& output, const Shape& shape,
                         const Range& piece, uint8_t* scratch) const {
  const int64_t columns = piece.column_end - piece.column_begin;
  const int64_t step = grid_.RowStep();
  OutputMap dense = output;
  dense.c_stride_bytes = geometry_.output_channels * output.c_bytes;
  dense.residual_stride_bytes = geometry_.output_channels * output.residual_bytes;
  dense.c = scratch;
  uint8_t* const residual = scratch + shape.piece_rows * dense.c_stride_bytes;
  if (output.residual != nullptr) {
    dense.residual = residual;
    grid_.ForEachLine(piece.row_begin, piece.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
      const int64_t place = (row - piece.row_begin) * dense.residual_stride_bytes;
      CopyTile(output.Residual(pixel, piece.column_begin), step * output.residual_stride_bytes, rows,
               columns * output.residual_bytes, residual + place + piece.column_begin * output.residual_bytes,
               dense.residual_stride_bytes);
    });
  }
  RunBuffers buffers;
  buffers.output = dense.EveryRow(1, 0, piece.row_begin);
  RunPiece(input, buffers, shape, piece, scratch + shape.spread_bytes);
  grid_.ForEachLine(piece.row_begin, piece.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
    CopyTile(dense.C(row - piece.row_begin, piece.column_begin), dense.c_stride_bytes, rows,
             columns * output.c_bytes, output.C(pixel, piece.column_begin), step * output.c_stride_bytes);
  });
}

void ConvPlan::RunPiece(const ConvInput& input, const RunBuffers& buffers, const Shape& shape,
                        const Range& piece, uint8_t* scratch) const {
  if (depthwise_ != nullptr) {
    return depthwise_->Run(input, buffers.output, piece, scratch);
  }
  const int64_t group_outputs = geometry_.group_outputs();
  const int64_t unit_outputs = layout_->unit_outputs();
  const int64_t staged_columns = source_->groups() * group_outputs;
  for (int64_t first = 0; first < geometry_.output_channels; first += staged_columns) {
    Range staged = piece;
    staged.column_begin = std::max(piece.column_begin, first);
    staged.column_end = std::min(piece.column_end, first + staged_columns);
    if (staged.Empty()) continue;
    RunBuffers unit_buffers = buffers;
    unit_buffers.a = source_->Stage(input, first / group_outputs, piece.row_begin, piece.row_end, scratch);
    if (units() == 1) {
      RunUnit(0, shape, unit_buffers, staged, scratch);
      continue;
    }
    const RowMap rows = unit_buffers.rows();
    for (int64_t column = staged.column_begin; column < staged.column_end; column += unit_outputs) {
      RowMap own = rows;
      own.origin += static_cast<uintptr_t>((column - first) / group_outputs * geometry_.group_inputs());
      unit_buffers.a = own;
      unit_buffers.output = buffers.output.FromColumn(column);
      RunUnit(static_cast<size_t>(column / unit_outputs), shape, unit_buffers,
              {piece.row_begin, piece.row_end, 0, unit_outputs}, scratch);
    }
  }
}

void ConvPlan::RunUnit(size_t number, const Shape& shape, const RunBuffers& buffers, const Range& range,
                       uint8_t* scratch) const {
  const GemmPlan& unit = *units_[number];
  const Engine& engine = *shape.engines[number];
  if (!shape.is_by_line) return unit.RunShare(engine, buffers, range, scratch + shape.staged_bytes);
  grid_.ForEachLine(range.row_begin, range.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
    RunBuffers line_buffers = buffers;
    line_buffers.output = buffers.output.EveryRow(grid_.RowStep(), pixel, row);
    Range line = range;
    line.row_begin = row;
    line.row_end = row + rows;
    unit.RunShare(engine, line_buffers, line, scratch + shape.staged_bytes);
  });
}

}  // namespace intact::kernels
