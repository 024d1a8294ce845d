#include "kernels/panel_engine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace intact::kernels {
namespace {

constexpr int kMaxRows = 16;  // of a tile

int Lanes(jit::Isa isa) { return jit::VectorBytes(isa) / 4; }

// Walks through a region that is to be fetched, a call's share at a time.
class PrefetchRegion {
 public:
  PrefetchRegion() = default;
  PrefetchRegion(const void* begin, int64_t bytes)
      : next_(static_cast<const uint8_t*>(begin)), remaining_bytes_(bytes) {}
  bool IsDone() const { return remaining_bytes_ <= 0; }
  const void* Take(int64_t bytes) {
    const uint8_t* const share = next_;
    next_ += bytes;
    remaining_bytes_ -= bytes;
    return share;
  }

 private:
  const uint8_t* next_ = nullptr;
  int64_t remaining_bytes_ = 0;
};

// The taps that some of the rows need.
TapRange NeededTaps(std::span<const TapRange> line_taps, const RowMap& a, int64_t row_begin,
                    int64_t row_end) {
  const int64_t begin = row_begin / a.line_rows;
  const int64_t end = (row_end - 1) / a.line_rows;
  TapRange needed = line_taps[static_cast<size_t>(begin % a.plane_lines)];
  for (int64_t line = begin + 1; line <= end; ++line) {
    const TapRange& range = line_taps[static_cast<size_t>(line % a.plane_lines)];
    needed = {std::min(needed.first, range.first), std::max(needed.end, range.end)};
  }
  return needed;
}

// Cuts rows into tiles, evenly: the first ones have a row more. With `run_rows`, tiles begin and end with a
// line wherever rows [line begin, line begin + run_rows) allow.
class TileCutter {
 public:
  TileCutter(int64_t row_begin, int64_t row_end, int mr, int64_t run_rows, int64_t line_rows)
      : row_(row_begin), row_end_(row_end), mr_(mr), run_rows_(run_rows), line_rows_(line_rows) {}

  // Of the next tile.
  int64_t NextRows() {
    if (tiles_ == 0) BeginRun();
    const int64_t rows = (run_end_ - row_ + tiles_ - 1) / tiles_;
    row_ += rows;
    --tiles_;
    return rows;
  }

 private:
  void BeginRun() {
    run_end_ = row_end_;
    if (run_rows_ != 0) run_end_ = std::min(row_end_, row_ / line_rows_ * line_rows_ + run_rows_);
    tiles_ = (run_end_ - row_ + mr_ - 1) / mr_;
  }

  int64_t row_, row_end_, mr_, run_rows_, line_rows_;
  int64_t run_end_ = 0, tiles_ = 0;
};

}  // namespace

struct PanelEngine::Tile {
  int64_t row_begin = 0, row_end = 0;
  bool begins_line = false, ends_line = false;
  const Functions* functions = nullptr;

  int64_t rows() const { return row_end - row_begin; }
  MicrokernelFunction Function(bool streams, bool is_edge, bool prefetches) const {
    return functions->at[streams][is_edge][prefetches][begins_line][ends_line];
  }
};

void CopyTile(const uint8_t* from, int64_t from_stride_bytes, int64_t rows, int64_t row_bytes, uint8_t* to,
              int64_t to_stride_bytes) noexcept {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * to_stride_bytes, from + i * from_stride_bytes, static_cast<size_t>(row_bytes));
  }
}

void CopyResidual(const GemmData& data, int64_t rows, int64_t columns, int64_t padded_columns,
                  uint8_t* scratch, EpilogueArgs* args) noexcept {
  if (args->residual == nullptr) return;
  const int64_t bytes = columns * data.residual_bytes();
  const int64_t stride_bytes = padded_columns * data.residual_bytes();
  // What lay in scratch may be denormal floats, which cost time.
  std::memset(scratch, 0, static_cast<size_t>(rows * stride_bytes));
  CopyTile(args->residual, args->residual_stride_bytes, rows, bytes, scratch, stride_bytes);
  args->residual = scratch;
  args->residual_stride_bytes = stride_bytes;
}

PanelEngine::PanelEngine(const GemmData& data, const KernelBlock& block)
    : data_(data),
      block_(block),
      lanes_(Lanes(block.isa)),
      nr_(lanes_ * block.vectors),
      is_staged_(BlockCost::IsStaged(block, data)),
      cost_(block, data) {}

Result<std::unique_ptr<Engine>> PanelEngine::Create(const GemmData& data, const KernelBlock& block) {
  std::unique_ptr<PanelEngine> engine(new PanelEngine(data, block));
  Error error = engine->GenerateKernels();
  if (error.status != INTACT_OK) return error;
  return std::unique_ptr<Engine>(std::move(engine));
}

Error PanelEngine::GenerateKernels() {
  functions_.resize(static_cast<size_t>(block_.mr));
  const auto edge_vectors = static_cast<int>((data_.n % nr_ + lanes_ - 1) / lanes_);
  for (const bool is_edge : {false, true}) {
    MicrokernelSpec spec;
    spec.isa = block_.isa;
    spec.dot = block_.dot;
    spec.mr = block_.mr;
    spec.vectors = is_edge ? edge_vectors : block_.vectors;
    spec.vector_step = static_cast<int>(data_.taps.vector_step);
    spec.epilogue = data_.epilogue;
    if (is_edge ? edge_vectors == 0 : data_.n < nr_) continue;
    if (kernel_name_.empty()) kernel_name_ = spec.Name();
    for (spec.mr = 1; spec.mr <= block_.mr; ++spec.mr) {
      Error error = GenerateKernels(spec, is_edge);
      if (error.status != INTACT_OK) return error;
    }
  }
  return {};
}

// Of one height.
Error PanelEngine::GenerateKernels(MicrokernelSpec spec, bool is_edge) {
  Functions& functions = functions_[static_cast<size_t>(spec.mr - 1)];
  for (unsigned variant = 0; variant < 16; ++variant) {
    spec.epilogue.streams = (variant & 8) != 0;
    spec.prefetches = (variant & 4) != 0;
    spec.begins_line = (variant & 2) != 0;
    spec.ends_line = (variant & 1) != 0;
    if ((spec.epilogue.streams && !CanStream()) || (spec.prefetches && is_edge)) continue;
    if ((spec.begins_line && !CanSkip(data_.taps.head, spec.mr)) ||
        (spec.ends_line && !CanSkip(data_.taps.tail, spec.mr))) {
      continue;
    }
    const Result<MicrokernelFunction> function = GetMicrokernel(spec);
    if (!function) return function.error();
    functions.at[spec.epilogue.streams][is_edge][spec.prefetches][spec.begins_line][spec.ends_line] =
        *function;
  }
  return {};
}

// Whether tiles of `rows` rows can leave one out.
bool PanelEngine::CanSkip(int64_t padding, int64_t rows) const {
  return cost_.run_rows() != 0 && padding != 0 && rows > 1;
}

int64_t PanelEngine::StagedTapBytes() const {
  return RoundUp(data_.taps.depth, kQuad) / kQuad * jit::ActivationQuadBytes(block_.dot);
}

int64_t PanelEngine::StagedStride() const {
  // A line more than the row, so that the rows of a tile do not meet in the same sets of L1.
  return RoundUp(data_.taps.count() * StagedTapBytes(), 64) + 64;
}

int64_t PanelEngine::ScratchBytes(int64_t rows) const {
  return EdgeBytes() + (is_staged_ ? std::min(rows, BlockRows()) * StagedStride() : 0);
}

void PanelEngine::RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept {
  uint8_t* const staged = scratch + EdgeBytes();
  const int64_t block_rows = BlockRows();
  const int64_t chunk = ColumnsPerChunk(data_.weights.panel_stride_bytes() / kPanelColumns, nr_);
  for (int64_t block = range.row_begin; block < range.row_end; block += block_rows) {
    const int64_t block_end = std::min(range.row_end, block + block_rows);
    RowMap a = buffers.a;
    if (is_staged_) {
      Stage(a, block, block_end, staged);
      a = RowMap(staged, StagedStride());
      a.origin -= static_cast<uintptr_t>(block * StagedStride());
    }
    for (int64_t column = range.column_begin; column < range.column_end; column += chunk) {
      const int64_t chunk_end = std::min(range.column_end, column + chunk);
      const int64_t next_end = std::min(range.column_end, chunk_end + chunk);
      RunChunk(buffers, {block, block_end, column, chunk_end}, a, next_end, scratch);
    }
  }
}

void PanelEngine::Stage(const RowMap& a, int64_t row_begin, int64_t row_end, uint8_t* staged) const noexcept {
  const auto stage = block_.dot == jit::DotKind::kWide ? StageWide : StageRow;
  RowCursor cursor(a, row_begin);
  for (int64_t row = row_begin; row < row_end; ++row, staged += StagedStride()) {
    const uint8_t* const from = cursor.Next();
    uint8_t* to = staged;
    for (const int64_t tap : data_.taps.offsets) {
      stage(from + tap, data_.taps.depth, data_.a_flip(), to);
      to += StagedTapBytes();
    }
  }
}

// Sets taps, and for them the depth's beginning in `b` and the columns' constants: all at column 0.
void PanelEngine::SetTaps(const RowMap& a, const Tile& tile, MicrokernelArgs* call) const {
  static constexpr int64_t kOneTap = 0;
  call->b = data_.weights.data;
  call->initial = data_.initial.data();
  if (is_staged_) {
    call->taps = &kOneTap;
    call->taps_end = call->taps + 1;
    call->tap_bytes = data_.taps.count() * StagedTapBytes();
    return;
  }
  TapRange range{0, data_.taps.count()};
  if (!data_.skipping_initial.empty()) {
    const SkippingInitial* initial = &data_.skipping_initial.front();
    if (!data_.taps.line_taps.empty()) {
      initial = FindInitial(NeededTaps(data_.taps.line_taps, a, tile.row_begin, tile.row_end));
    }
    range = initial->taps;
    call->initial = initial->columns.data();
  }
  call->taps = data_.taps.offsets.data() + range.first;
  call->taps_end = data_.taps.offsets.data() + range.end;
  call->tap_bytes = data_.taps.depth;
  call->head_end = data_.taps.head;
  call->tail_begin = data_.taps.depth - data_.taps.tail;
  call->b += range.first * data_.taps.depth * kPanelColumns;
}

// Those of all taps if none were made for `range`.
const SkippingInitial* PanelEngine::FindInitial(const TapRange& range) const {
  const auto found = std::find_if(data_.skipping_initial.begin(), data_.skipping_initial.end(),
                                  [&](const SkippingInitial& made) { return made.taps == range; });
  return found == data_.skipping_initial.end() ? &data_.skipping_initial.front() : &*found;
}

void PanelEngine::RunChunk(const RunBuffers& buffers, const Range& range, const RowMap& a, int64_t next_end,
                           uint8_t* scratch_tile) const noexcept {
  const int64_t element = data_.element_bytes();
  const bool streams = buffers.may_stream && CanStream();
  const int64_t edge_columns = (range.column_end - range.column_begin) % nr_;
  const int64_t whole_end = range.column_end - edge_columns;

  std::array<const uint8_t*, kMaxRows> row_pointers;
  MicrokernelArgs call;
  call.rows = row_pointers.data();
  call.b_panel_stride_bytes = data_.weights.panel_stride_bytes();
  call.c_stride_bytes = buffers.c_stride_bytes;
  call.initial_stride_bytes = static_cast<int64_t>(data_.initial.bytes());
  const int64_t b_step = call.b_panel_stride_bytes * nr_ / kPanelColumns;

  // A single row of tiles waits for its own weights: fetching others would only hold them up.
  const bool has_next = next_end > range.column_end && range.row_end - range.row_begin > block_.mr;
  PrefetchRegion region;
  if (has_next) {
    region = {Columns(range.column_end),
              Columns(RoundUp(next_end, kPanelColumns)) - Columns(range.column_end)};
  }
  RowCursor a_row(a, range.row_begin);
  uint8_t* c_row = buffers.c + range.row_begin * buffers.c_stride_bytes + range.column_begin * element;
  TileCutter cutter(range.row_begin, range.row_end, block_.mr, cost_.run_rows(), data_.taps.line_rows);
  Tile tile;
  for (int64_t row = range.row_begin; row < range.row_end; row = tile.row_end) {
    tile.row_begin = row;
    tile.row_end = row + cutter.NextRows();
    tile.begins_line = CanSkip(data_.taps.head, tile.rows()) && row % data_.taps.line_rows == 0;
    tile.ends_line = CanSkip(data_.taps.tail, tile.rows()) && tile.row_end % data_.taps.line_rows == 0;
    tile.functions = &functions_[static_cast<size_t>(tile.rows() - 1)];
    for (int64_t i = 0; i < tile.rows(); ++i) row_pointers[static_cast<size_t>(i)] = a_row.Next();
    if (!has_next && tile.row_end < range.row_end && a.IsEven() && a.stride < 2 * data_.k) {
      region = {a_row.Peek(), a.stride * tile.rows()};
    }
    SetTaps(a, tile, &call);
    call.b += Columns(range.column_begin) - data_.weights.data;
    call.initial += range.column_begin;
    call.a_offset = range.column_begin / lanes_ * data_.taps.vector_step;
    call.c = c_row;
    call.epilogue = data_.EpilogueAt(buffers, row, range.column_begin);
    for (int64_t column = range.column_begin; column < whole_end; column += nr_) {
      const bool prefetches = !region.IsDone();
      if (prefetches) call.prefetch = region.Take(data_.weights.quads() * kPrefetchQuadBytes);
      tile.Function(streams, false, prefetches)(&call);
      call.b += b_step;
      call.a_offset += block_.vectors * data_.taps.vector_step;
      call.c = static_cast<uint8_t*>(call.c) + nr_ * element;
      call.initial += nr_;
      call.epilogue.Advance(nr_, data_.residual_bytes());
    }
    if (edge_columns != 0) RunEdge(tile, streams, edge_columns, scratch_tile, &call);
    c_row += tile.rows() * buffers.c_stride_bytes;
  }
}

void PanelEngine::RunEdge(const Tile& tile, bool streams, int64_t columns, uint8_t* scratch_tile,
                          MicrokernelArgs* call) const noexcept {
  if (columns % lanes_ == 0) return tile.Function(streams, true, false)(call);
  auto* const c = static_cast<uint8_t*>(call->c);
  const int64_t c_stride_bytes = call->c_stride_bytes;
  call->c = scratch_tile;
  call->c_stride_bytes = int64_t{nr_} * data_.element_bytes();
  CopyResidual(data_, tile.rows(), columns, RoundUp(columns, lanes_), scratch_tile + TileBytes(),
               &call->epilogue);
  tile.Function(false, true, false)(call);
  CopyTile(scratch_tile, call->c_stride_bytes, tile.rows(), columns * data_.element_bytes(), c,
           c_stride_bytes);
  call->c_stride_bytes = c_stride_bytes;
}

}  // namespace intact::kernels
