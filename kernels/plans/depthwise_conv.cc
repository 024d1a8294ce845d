#include "kernels/plans/depthwise_conv.h"

#include <algorithm>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/cost_table.h"

namespace intact::kernels {

static_assert(Band::kSlackBytes >= DepthwiseEngine::kSlackBytes);

Result<std::unique_ptr<ConvKernels>> DepthwiseConv::Create(const ConvLayout& layout,
                                                           const ConvGeometry& geometry) {
  std::unique_ptr<DepthwiseConv> conv(new DepthwiseConv(layout, geometry));
  RETURN_IF_ERROR(conv->MakeLines());
  RETURN_IF_ERROR(conv->MakeInner());
  return std::unique_ptr<ConvKernels>(std::move(conv));
}

TapGrid DepthwiseConv::GridOf(const Band& band) const {
  TapGrid grid;
  grid.rows = {geometry_.kernel[kDepth], geometry_.kernel[kHeight]};
  grid.row_strides_bytes = {band.TapOffset(1, 0, 0), band.TapOffset(0, 1, 0)};
  for (int64_t width = 0; width < geometry_.kernel[kWidth]; ++width) {
    grid.columns.push_back(band.TapOffset(0, 0, width));
  }
  grid.pixel_stride_bytes = band.row_stride();
  return grid;
}

Error DepthwiseConv::MakeLines() {
  const int64_t repeats = geometry_.group_outputs();
  lines_.band = BandOf(geometry_, {geometry_.input_channels, repeats, data_.n});
  ASSIGN_OR_RETURN(lines_.engine, DepthwiseEngine::Create(data_, GridOf(lines_.band), layout_.isa(),
                                                          geometry_.output[kWidth]));
  return {};
}

DepthwiseConv::Inner DepthwiseConv::InnerOf(Dimension dimension) const {
  const int64_t stride = geometry_.stride[dimension];
  const int64_t pad = geometry_.pad_begin[dimension];
  const int64_t outputs = geometry_.output[dimension];
  Inner inner;
  inner.begin = std::clamp<int64_t>((pad + stride - 1) / stride, 0, outputs);
  // Ends with the last output whose last tap is inside.
  const int64_t room = geometry_.input[dimension] - 1 + pad -
                       (geometry_.kernel[dimension] - 1) * geometry_.dilation[dimension];
  inner.end = room < 0 ? inner.begin : std::clamp(room / stride + 1, inner.begin, outputs);
  return inner;
}

// Reading in place saves copies of the inner pixels' taps. But the columns at both sides need more calls.
bool DepthwiseConv::ReadsInPlace() const {
  if (inner_x_.size() == 0 || inner_y_.size() == 0) return false;
  const LayoutLimits& limits = Costs().layout;
  const int64_t columns = geometry_.output[kWidth] - inner_x_.size();
  const int64_t strides = geometry_.stride[kHeight] * geometry_.stride[kWidth];
  return inner_x_.size() * inner_y_.size() * strides * data_.n >=
         columns * (limits.column_call + limits.column_pixel * inner_y_.size());
}

Error DepthwiseConv::MakeInner() {
  inner_x_ = InnerOf(kWidth);
  inner_y_ = InnerOf(kHeight);
  const bool is_flat = geometry_.kernel[kDepth] == 1 && geometry_.input[kDepth] == 1 &&
                       geometry_.output[kDepth] == 1 && !geometry_.HasPadding(kDepth);
  if (!is_flat || layout_.problem().a_shift() != 0 || geometry_.group_outputs() != 1) return {};
  if (!ReadsInPlace()) return {};
  TapGrid grid = GridOf(lines_.band);
  grid.row_strides_bytes = {0, geometry_.dilation[kHeight] * geometry_.input[kWidth] * data_.n};
  // A band of few outputs has less between its taps than the input.
  for (size_t i = 0; i < grid.columns.size(); ++i) {
    grid.columns[i] = static_cast<int64_t>(i) * geometry_.dilation[kWidth] * data_.n;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DepthwiseEngine> engine,
                   DepthwiseEngine::Create(data_, grid, layout_.isa(), inner_x_.size()));
  if (!engine->ReadsOnlyTaps(inner_x_.size())) return {};
  inner_ = std::move(engine);
  RETURN_IF_ERROR(MakeColumns(0, inner_x_.begin, &left_));
  return MakeColumns(inner_x_.end, geometry_.output[kWidth] - inner_x_.end, &right_);
}

Error DepthwiseConv::MakeColumns(int64_t begin, int64_t count, Part* part) {
  if (count == 0) return {};
  ConvGeometry columns = geometry_;
  columns.output[kWidth] = count;
  columns.pad_begin[kWidth] -= begin * columns.stride[kWidth];
  part->band = BandOf(columns, {data_.n, 1, data_.n});
  TapGrid grid = GridOf(part->band);
  grid.pixel_stride_bytes = part->band.line_stride();
  if (left_.engine != nullptr && left_.engine->taps() == grid) {
    part->engine = left_.engine;
    return {};
  }
  ASSIGN_OR_RETURN(part->engine, DepthwiseEngine::Create(data_, grid, layout_.isa(), inner_y_.size()));
  return {};
}

int64_t DepthwiseConv::packed_bytes() const {
  int64_t bytes = layout_.packed_bytes();
  const auto engines = Engines();
  const bool shares_sides = left_.engine == right_.engine;
  const size_t count = kEngines - (shares_sides ? 1 : 0);
  for (size_t i = 0; i < count; ++i) {
    if (engines[i] != nullptr) bytes += engines[i]->packed_bytes();
  }
  return bytes;
}

int64_t DepthwiseConv::ScratchBytes(int64_t planes) const {
  int64_t bytes = lines_.band.Bytes(planes);
  for (const Part* part : {&left_, &right_}) {
    if (part->engine != nullptr) bytes = std::max(bytes, part->band.Bytes(planes));
  }
  return bytes;
}

void DepthwiseConv::Decide(const EngineChoice& /*choice*/, ConvRun* run) const {
  run->output.row_step = geometry_.output[kWidth];
  // A ragged last vector reads the residual of channels before it, which another thread may overwrite.
  const int64_t step = lines_.engine->channel_step();
  const bool is_ragged = geometry_.output_channels % step != 0;
  if (!is_ragged || !data_.problem.output.has_residual()) run->output.column_step = step;
  run->output.column_bytes = 0;  // lines are cut first, because a share reads only its own channels
  run->bytes = run->spread_bytes + RoundUp(ScratchBytes(run->rows / geometry_.plane_pixels()), 64);
}

void DepthwiseConv::Run(const ConvInput& input, const RunBuffers& buffers, const ConvRun& /*run*/,
                        const Range& chunk, uint8_t* scratch) const {
  const int64_t height = geometry_.output[kHeight];
  const int64_t line_end = chunk.row_end / geometry_.output[kWidth];  // over all planes
  const Call call{input,
                  buffers.output,
                  chunk.column_begin,
                  chunk.column_end,
                  scratch,
                  static_cast<const DepthwiseColumns*>(buffers.columns)};
  const bool is_in_place = IsInPlace(input);
  for (int64_t line = Quotient(chunk.row_begin, geometry_.output[kWidth]); line < line_end;) {
    const int64_t plane = Quotient(line, height), first = line - plane * height;
    const Inner all{first, std::min(height, first + line_end - line)};
    if (is_in_place) {
      const Inner inner{std::clamp(inner_y_.begin, all.begin, all.end),
                        std::clamp(inner_y_.end, all.begin, all.end)};
      RunLines(call, plane, {all.begin, inner.begin});
      RunInner(call, plane, inner);
      RunEdgeColumns(kLeft, left_, 0, call, plane, inner);
      RunEdgeColumns(kRight, right_, inner_x_.end, call, plane, inner);
      RunLines(call, plane, {inner.end, all.end});
    } else {
      RunLines(call, plane, all);
    }
    line += all.size();
  }
  if (call.columns != nullptr && !call.columns->has_scale)
    FillWithNan(buffers.output, chunk, data_.problem.output.c_type);
}

class DepthwiseConv::BoundLine final : public BoundCalls {
 public:
  BoundLine(const DepthwiseConv& conv, const ConvInput& input, const OutputMap& output, const Range& chunk,
            uint8_t* scratch)
      : conv_(conv), input_(input), chunk_(chunk), scratch_(scratch) {
    row_.pixel0 = Stage().At(chunk.row_begin);
    row_.pixels = chunk.row_end - chunk.row_begin;
    row_.output = output.EveryRow(1, chunk.row_begin);
  }
  void Run() const noexcept override {
    Stage();
    conv_.lines_.engine->RunRow(row_, chunk_.column_begin, chunk_.column_end);
  }
  size_t count() const override { return 1; }

 private:
  RowMap Stage() const noexcept {
    return conv_.lines_.band.StageSlice(input_, chunk_.column_begin, chunk_.column_end, chunk_.row_begin,
                                        chunk_.row_end, scratch_);
  }

  const DepthwiseConv& conv_;
  ConvInput input_;
  Range chunk_;
  uint8_t* scratch_;
  DepthwiseRow row_;
};

std::unique_ptr<BoundCalls> DepthwiseConv::Bind(const ConvInput& input, const RunBuffers& buffers,
                                                const ConvRun& /*run*/, const Range& chunk,
                                                uint8_t* scratch) const {
  if (chunk.row_end - chunk.row_begin != geometry_.output[kWidth] || IsInPlace(input)) return nullptr;
  return std::make_unique<BoundLine>(*this, input, buffers.output, chunk, scratch);
}

int64_t DepthwiseConv::RunColumnBytes() const {
  if (!data_.HasPerRunColumnConstants()) return 0;
  int64_t bytes = RoundUp(kEngines * sizeof(DepthwiseColumns), 64) + data_.RunColumnBytes();
  for (const DepthwiseEngine* const engine : Engines())
    bytes += engine == nullptr ? 0 : engine->RunColumnBytes();
  return bytes;
}

const PerRunColumnConstants* DepthwiseConv::MakePerRunColumnConstants(const RowQuantization& a,
                                                                      uint8_t* to) const {
  auto* const made = reinterpret_cast<DepthwiseColumns*>(to);
  to += RoundUp(kEngines * sizeof(DepthwiseColumns), 64);
  const PerRunColumnConstants columns = data_.MakePerRunColumnConstants(a, to);
  to += data_.RunColumnBytes();
  const auto engines = Engines();
  for (size_t i = 0; i < kEngines; ++i) {
    if (engines[i] == nullptr) continue;
    made[i] = engines[i]->MakePerRunColumnConstants(columns, to);
    to += engines[i]->RunColumnBytes();
  }
  return made;
}

void DepthwiseConv::RunEngine(Engine which, const Call& call, DepthwiseRow row) const noexcept {
  if (call.columns != nullptr) row.columns = call.columns + which;
  const auto engines = Engines();
  engines[which]->RunRow(row, call.channel_begin, call.channel_end);
}

DepthwiseRow DepthwiseConv::RowAt(const OutputMap& output, int64_t plane, int64_t line, int64_t x,
                                  int64_t stride) const {
  const int64_t row = (plane * geometry_.output[kHeight] + line) * geometry_.output[kWidth] + x;
  return {nullptr, 0, output.EveryRow(stride, row), nullptr};
}

void DepthwiseConv::RunLines(const Call& call, int64_t plane, const Inner& lines) const noexcept {
  const int64_t width = geometry_.output[kWidth];
  const int64_t first_row = plane * geometry_.plane_pixels();
  const int64_t row_end = first_row + lines.end * width;
  for (int64_t row = first_row + lines.begin * width; row < row_end;) {
    const int64_t band_end = lines_.band.EndFrom(row, row_end);
    const RowMap map =
        lines_.band.StageSlice(call.input, call.channel_begin, call.channel_end, row, band_end, call.scratch);
    for (; row < band_end; row += width) {
      DepthwiseRow to = RowAt(call.output, plane, Quotient(row - first_row, width), 0, 1);
      to.pixel0 = map.At(row);
      to.pixels = width;
      RunEngine(kLines, call, to);
    }
  }
}

void DepthwiseConv::RunInner(const Call& call, int64_t plane, const Inner& lines) const noexcept {
  const int64_t x = inner_x_.begin * geometry_.stride[kWidth] - geometry_.pad_begin[kWidth];
  for (int64_t line = lines.begin; line < lines.end; ++line) {
    const int64_t y = line * geometry_.stride[kHeight] - geometry_.pad_begin[kHeight];
    const int64_t pixel = (plane * geometry_.input[kHeight] + y) * geometry_.input[kWidth] + x;
    DepthwiseRow to = RowAt(call.output, plane, line, inner_x_.begin, 1);
    to.pixel0 = call.input.a + pixel * call.input.stride;
    to.pixels = inner_x_.size();
    RunEngine(kInner, call, to);
  }
}

void DepthwiseConv::RunEdgeColumns(Engine which, const Part& part, int64_t begin, const Call& call,
                                   int64_t plane, const Inner& lines) const noexcept {
  if (part.engine == nullptr) return;
  const int64_t columns = part.band.line_rows();
  const int64_t first_row = plane * geometry_.output[kHeight] * columns;
  const int64_t row_end = first_row + lines.end * columns;
  for (int64_t row = first_row + lines.begin * columns; row < row_end;) {
    const int64_t band_end = part.band.EndFrom(row, row_end);
    const RowMap map =
        part.band.StageSlice(call.input, call.channel_begin, call.channel_end, row, band_end, call.scratch);
    for (int64_t column = 0; column < columns; ++column) {
      DepthwiseRow to =
          RowAt(call.output, plane, (row - first_row) / columns, begin + column, geometry_.output[kWidth]);
      to.pixel0 = map.At(row + column);
      to.pixels = (band_end - row) / columns;
      RunEngine(which, call, to);
    }
    row = band_end;
  }
}

}  // namespace intact::kernels
