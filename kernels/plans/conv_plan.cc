#include "kernels/plans/conv_plan.h"

#include <algorithm>
#include <utility>

#include "core/types.h"
#include "kernels/plans/depthwise_conv.h"
#include "kernels/plans/unit_conv.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {

Result<std::unique_ptr<ConvPlan>> ConvPlan::Create(std::shared_ptr<const ConvLayout> layout,
                                                   const ConvGeometry& geometry, const OutputGrid& grid) {
  std::unique_ptr<ConvPlan> plan(new ConvPlan(std::move(layout), geometry, grid));
  const ConvLayout& own = *plan->layout_;
  ASSIGN_OR_RETURN(plan->kernels_, own.IsDepthwise() ? DepthwiseConv::Create(own, geometry)
                                                     : UnitConv::Create(own, geometry, plan->grid_));
  plan->kernel_name_ = plan->kernels_->KernelName();
  return plan;
}

// ----- how a run is cut ------------------------------------------------------------------------------------

ConvRun ConvPlan::Decide(int64_t batch, const EngineChoice& choice) const {
  ConvRun run;
  run.rows = batch * geometry_.output[kDepth] * geometry_.plane_pixels();
  run.chunk_rows = run.rows;
  run.output.m = run.rows;
  run.output.n = run.output.column_step = geometry_.output_channels;
  run.output.line_columns = LineColumns(geometry_.output_channels, core::BytesOf(output().c_type));
  run.is_by_line = !grid_.IsEven(batch) && kernels_->RunsByLine();
  if (!grid_.IsEven(batch) && !run.is_by_line) {
    run.chunk_rows = std::min(run.rows, MostSpreadRows());
    run.spread_bytes = RoundUp(run.chunk_rows * SpreadRowBytes(), 64);
  }
  kernels_->Decide(choice, &run);
  return run;
}

int64_t ConvPlan::SpreadRowBytes() const {
  const int residual_bytes = output().has_residual() ? core::BytesOf(output().residual_type) : 0;
  return geometry_.output_channels * (core::BytesOf(output().c_type) + residual_bytes);
}

// The number of rows that stay in half of L1 until they are copied: whole lines, as in bands, unless a line
// is longer.
int64_t ConvPlan::MostSpreadRows() const {
  const int64_t rows = std::max<int64_t>(Caches().SpreadRows() / SpreadRowBytes(), 1);
  const int64_t line = geometry_.output[kWidth];
  return rows < line ? std::max(rows, kernels_->LeastChunkRows()) : rows / line * line;
}

Partition ConvPlan::Cut(const ConvRun& run, int parts) const {
  const auto cost = [&](int64_t rows) { return kernels_->RowsCost(run, rows); };
  return Partition::Choose(run.output, parts, RowCostOf(cost));
}

// ----- candidates ------------------------------------------------------------------------------------------

Result<std::vector<EngineChoice>> ConvPlan::MakeCandidates() {
  ASSIGN_OR_RETURN(std::vector<EngineChoice> candidates, kernels_->MakeCandidates());
  const EngineChoice model = ModelChoice();
  if (std::ranges::find(candidates, model) == candidates.end()) candidates.push_back(model);
  return candidates;
}

Error ConvPlan::Choose(const EngineChoice& choice) {
  RETURN_IF_ERROR(kernels_->Keep(choice));
  choice_ = choice;
  kernel_name_ = kernels_->KernelNameOf(choice);
  return {};
}

// ----- a run -----------------------------------------------------------------------------------------------

RunBuffers ConvPlan::BuffersOf(const PerRunColumnConstants* columns, const OutputMap& output,
                               const ConvRun& run) const {
  RunBuffers buffers;
  buffers.output = output;
  buffers.columns = columns;
  if (run.spread_bytes == 0 && !run.is_by_line) {
    if (kernels_->CanStream())
      SetStreaming(run.rows, geometry_.output_channels * output.c_bytes, 0, &buffers);
    buffers.output = output.EveryRow(row_step_, first_pixel_);
  }
  return buffers;
}

bool ConvPlan::Bind(const ConvInput& input, const OutputMap& output, const ConvRun& run, const Range& share,
                    uint8_t* scratch, std::vector<std::unique_ptr<BoundCalls>>* calls) const {
  if (share.Empty() || run.spread_bytes != 0 || run.is_by_line ||
      share.row_end - share.row_begin > kMostBoundRows) {
    return false;
  }
  const RunBuffers buffers = BuffersOf(nullptr, output, run);
  bool is_bound = true;
  size_t count = 0;
  ForEachChunk(run, share, [&](const Range& chunk) {
    if (!is_bound) return;
    auto of_chunk = kernels_->Bind(input, buffers, run, chunk, scratch);
    is_bound = of_chunk != nullptr && (count += of_chunk->count()) <= kMostBoundCalls;
    if (is_bound) calls->push_back(std::move(of_chunk));
  });
  return is_bound;
}

void ConvPlan::RunShare(const ConvInput& input, const PerRunColumnConstants* columns, const OutputMap& output,
                        const ConvRun& run, const Range& range, uint8_t* scratch) const {
  if (range.Empty()) return;
  const RunBuffers buffers = BuffersOf(columns, output, run);
  ForEachChunk(run, range, [&](const Range& chunk) {
    if (run.spread_bytes > 0) {
      RunSpread(input, buffers, run, chunk, scratch);
    } else {
      kernels_->Run(input, buffers, run, chunk, scratch);
    }
  });
}

// Of 2³¹ rows in small chunks, to cut all would take seconds. So the chunks after the first ones may have any rows.
Error ConvPlan::PrepareShare(const ConvRun& run, const Range& share, bool or_fewer) const {
  constexpr int64_t kMostCut = 4096;
  Error error;
  int64_t prepared = 0;
  const auto prepare = [&](const Range& chunk) {
    const int64_t rows = chunk.row_end - chunk.row_begin;
    if (error.ok() && rows != prepared) error = kernels_->PrepareRows(run, rows, or_fewer);
    prepared = rows;
  };
  const Range left = ForEachChunk(run, share, prepare, kMostCut);
  if (!error.ok() || left.Empty()) return error;
  return kernels_->PrepareRows(run, std::min(run.chunk_rows, left.row_end - left.row_begin), true);
}

InputPixels ConvPlan::PixelsOf(const Range& range) const {
  if (range.Empty()) return {};
  const Spatial& input = geometry_.input;
  const int64_t planes = geometry_.output[kDepth];
  const auto clamped = [&](Dimension dimension, int64_t position) {
    return std::clamp<int64_t>(position - geometry_.pad_begin[dimension], 0, input[dimension] - 1);
  };
  const auto first = [&](Dimension dimension, int64_t output) {
    return clamped(dimension, output * geometry_.stride[dimension]);
  };
  const auto last = [&](Dimension dimension, int64_t output) {
    return clamped(dimension, output * geometry_.stride[dimension] + geometry_.Span(dimension, 1) - 1);
  };
  const auto line_at = [&](int64_t image, int64_t z, int64_t y) {
    return ((image * input[kDepth] + z) * input[kHeight] + y) * input[kWidth];
  };
  const int64_t line = range.row_begin / geometry_.output[kWidth];
  const int64_t end_line = (range.row_end - 1) / geometry_.output[kWidth];
  const int64_t plane = line / geometry_.output[kHeight];
  const int64_t end_plane = end_line / geometry_.output[kHeight];
  const bool is_one_plane = plane == end_plane;
  const int64_t y = is_one_plane ? first(kHeight, line % geometry_.output[kHeight]) : 0;
  const int64_t end_y =
      is_one_plane ? last(kHeight, end_line % geometry_.output[kHeight]) : input[kHeight] - 1;
  return {line_at(plane / planes, first(kDepth, plane % planes), y),
          line_at(end_plane / planes, last(kDepth, end_plane % planes), end_y) + input[kWidth]};
}

void ConvPlan::RunSpread(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run,
                         const Range& chunk, uint8_t* scratch) const {
  const OutputMap& output = buffers.output;
  const int64_t columns = chunk.column_end - chunk.column_begin;
  const int64_t step = row_step_;
  OutputMap dense = output;
  dense.c_stride_bytes = geometry_.output_channels * output.c_bytes;
  dense.residual_stride_bytes = geometry_.output_channels * output.residual_bytes;
  dense.c = scratch;
  uint8_t* const residual = scratch + run.chunk_rows * dense.c_stride_bytes;
  if (output.residual != nullptr) {
    dense.residual = residual;
    grid_.ForEachLine(chunk.row_begin, chunk.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
      const int64_t place = (row - chunk.row_begin) * dense.residual_stride_bytes;
      CopyTile(output.Residual(pixel, chunk.column_begin), step * output.residual_stride_bytes, rows,
               columns * output.residual_bytes, residual + place + chunk.column_begin * output.residual_bytes,
               dense.residual_stride_bytes);
    });
  }
  RunBuffers own = buffers;
  own.output = dense.EveryRow(1, 0, chunk.row_begin);
  kernels_->Run(input, own, run, chunk, scratch + run.spread_bytes);
  grid_.ForEachLine(chunk.row_begin, chunk.row_end, [&](int64_t row, int64_t pixel, int64_t rows) {
    CopyTile(dense.C(row - chunk.row_begin, chunk.column_begin), dense.c_stride_bytes, rows,
             columns * output.c_bytes, output.C(pixel, chunk.column_begin), step * output.c_stride_bytes);
  });
}

}  // namespace intact::kernels
