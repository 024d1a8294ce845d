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

}  // namespace

namespace {

// A call of memcpy costs more than the copy of a short row.
inline void CopyShortRow(const uint8_t* from, int64_t bytes, uint8_t* to) {
  for (; bytes >= 16; bytes -= 16, from += 16, to += 16) std::memcpy(to, from, 16);
  for (const int64_t part : {8, 4, 2, 1}) {
    if ((bytes & part) == 0) continue;
    std::memcpy(to, from, static_cast<size_t>(part));
    from += part;
    to += part;
  }
}

}  // namespace

void CopyTile(const uint8_t* from, int64_t from_stride_bytes, int64_t rows, int64_t row_bytes, uint8_t* to,
              int64_t to_stride_bytes) noexcept {
  constexpr int64_t kShort = 128;
  for (int64_t i = 0; i < rows; ++i, from += from_stride_bytes, to += to_stride_bytes) {
    if (row_bytes < kShort) {
      CopyShortRow(from, row_bytes, to);
    } else {
      std::memcpy(to, from, static_cast<size_t>(row_bytes));
    }
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
      is_staged_(block.dot == jit::DotKind::kWide || data.a_flip() != 0 || data.taps.depth % kQuad != 0) {}

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
    MicrokernelSpec spec{block_.isa,    block_.dot,
                         block_.mr,     is_edge ? edge_vectors : block_.vectors,
                         false,         static_cast<int>(data_.taps.vector_step),
                         data_.epilogue};
    if (is_edge ? edge_vectors == 0 : data_.n < nr_) continue;
    if (kernel_name_.empty()) kernel_name_ = spec.Name();
    for (spec.mr = 1; spec.mr <= block_.mr; ++spec.mr) {
      for (const bool streams : {false, true}) {
        for (const bool prefetches : {false, true}) {
          if ((streams && !CanStream()) || (prefetches && is_edge)) continue;
          spec.epilogue.streams = streams;
          spec.prefetches = prefetches;
          const Result<MicrokernelFunction> function = GetMicrokernel(spec);
          if (!function) return function.error();
          functions_[static_cast<size_t>(spec.mr - 1)].at[streams][is_edge][prefetches] = *function;
        }
      }
    }
  }
  return {};
}

// Per tile: a dot product for each vector and quad, or the latency of the accumulators where they are few,
// and what a call costs beside. In dot products, and as a multiple of those that cannot be avoided.
double PanelEngine::BlockCost(const KernelBlock& block, int64_t m, int64_t n, int64_t k) {
  constexpr double kWideCost = 1.4;  // of the int16 form, in triples; measured from M = 4 on
  constexpr double kTileCost = 70;
  constexpr double kInFlight = 10;
  const int64_t lanes = Lanes(block.isa);
  const int64_t whole_quads = (k + kQuad - 1) / kQuad;
  const auto quads = static_cast<double>(whole_quads);
  const int64_t vectors = (n + lanes - 1) / lanes;
  const int64_t whole_tiles = vectors / block.vectors;
  const int64_t row_tiles = (m + block.mr - 1) / block.mr;
  const double rows = static_cast<double>(m) / static_cast<double>(row_tiles);
  const auto tile_row_cost = [&](int64_t tile_vectors) {
    if (tile_vectors == 0) return 0.0;
    return quads * std::max(rows * static_cast<double>(tile_vectors), kInFlight) + kTileCost;
  };
  const double cost =
      static_cast<double>(row_tiles) * (static_cast<double>(whole_tiles) * tile_row_cost(block.vectors) +
                                        tile_row_cost(vectors % block.vectors));
  return (block.dot == jit::DotKind::kWide ? kWideCost : 1.0) * cost / (quads * static_cast<double>(vectors));
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

// Sets taps, and for them the depth's beginning in `b` and the columns' constants: both at column 0.
void PanelEngine::SetTaps(const RowMap& a, int64_t row_begin, int64_t row_end, MicrokernelArgs* call) const {
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
    const TapRange needed = NeededTaps(data_.taps.line_taps, a, row_begin, row_end);
    const int32_t* const initial = InitialOf(needed);
    if (initial != nullptr) {
      range = needed;
      call->initial = initial;
    }
  }
  call->taps = data_.taps.offsets.data() + range.first;
  call->taps_end = data_.taps.offsets.data() + range.end;
  call->tap_bytes = data_.taps.depth;
  call->b += range.first * data_.taps.depth * kPanelColumns;
}

// Null if no constants were made for `range`.
const int32_t* PanelEngine::InitialOf(const TapRange& range) const {
  const auto found = std::find_if(data_.skipping_initial.begin(), data_.skipping_initial.end(),
                                  [&](const auto& made) { return made.first == range; });
  return found == data_.skipping_initial.end() ? nullptr : found->second.data();
}

void PanelEngine::RunChunk(const RunBuffers& buffers, const Range& range, const RowMap& a, int64_t next_end,
                           uint8_t* scratch_tile) const noexcept {
  const int64_t element = data_.element_bytes();
  const bool streams = buffers.may_stream && CanStream();
  // Rows are spread evenly over the tiles: the first ones have one more.
  const int64_t rows = range.row_end - range.row_begin;
  const int64_t tiles = (rows + block_.mr - 1) / block_.mr;
  const int64_t rows_per_tile = rows / tiles;
  const int64_t longer_tiles = rows % tiles;
  const int64_t edge_columns = (range.column_end - range.column_begin) % nr_;
  const int64_t whole_end = range.column_end - edge_columns;

  std::array<const uint8_t*, kMaxRows> row_pointers;
  MicrokernelArgs call;
  call.rows = row_pointers.data();
  call.b_panel_stride_bytes = data_.weights.panel_stride_bytes();
  call.c_stride_bytes = buffers.c_stride_bytes;
  const int64_t b_step = call.b_panel_stride_bytes * nr_ / kPanelColumns;

  // A single row of tiles waits for its own weights: fetching others would only hold them up.
  const bool has_next = next_end > range.column_end && tiles > 1;
  PrefetchRegion region;
  if (has_next) {
    region = {Columns(range.column_end),
              Columns(RoundUp(next_end, kPanelColumns)) - Columns(range.column_end)};
  }
  RowCursor a_row(a, range.row_begin);
  uint8_t* c_row = buffers.c + range.row_begin * buffers.c_stride_bytes + range.column_begin * element;
  int64_t row = range.row_begin;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t tile_rows = rows_per_tile + (tile < longer_tiles ? 1 : 0);
    for (int64_t i = 0; i < tile_rows; ++i) row_pointers[static_cast<size_t>(i)] = a_row.Next();
    if (!has_next && tile + 1 < tiles && a.IsEven() && a.stride < 2 * data_.k) {
      region = {a_row.Peek(), a.stride * tile_rows};
    }
    const Functions& functions = functions_[static_cast<size_t>(tile_rows - 1)];
    SetTaps(a, row, row + tile_rows, &call);
    call.b += Columns(range.column_begin) - data_.weights.data;
    call.initial += range.column_begin;
    call.a_offset = range.column_begin / lanes_ * data_.taps.vector_step;
    call.c = c_row;
    call.epilogue = data_.EpilogueAt(buffers, row, range.column_begin);
    for (int64_t column = range.column_begin; column < whole_end; column += nr_) {
      const bool prefetches = !region.IsDone();
      if (prefetches) call.prefetch = region.Take(data_.weights.quads() * kPrefetchQuadBytes);
      functions.at[streams][false][prefetches](&call);
      call.b += b_step;
      call.a_offset += block_.vectors * data_.taps.vector_step;
      call.c = static_cast<uint8_t*>(call.c) + nr_ * element;
      call.initial += nr_;
      call.epilogue.Advance(nr_, data_.residual_bytes());
    }
    if (edge_columns != 0) RunEdge(call, functions, streams, tile_rows, edge_columns, scratch_tile);
    c_row += tile_rows * buffers.c_stride_bytes;
    row += tile_rows;
  }
}

void PanelEngine::RunEdge(MicrokernelArgs call, const Functions& functions, bool streams, int64_t rows,
                          int64_t columns, uint8_t* scratch_tile) const noexcept {
  if (columns % lanes_ == 0) return functions.at[streams][true][false](&call);
  auto* const c = static_cast<uint8_t*>(call.c);
  const int64_t c_stride_bytes = call.c_stride_bytes;
  call.c = scratch_tile;
  call.c_stride_bytes = int64_t{nr_} * data_.element_bytes();
  CopyResidual(data_, rows, columns, RoundUp(columns, lanes_), scratch_tile + TileBytes(), &call.epilogue);
  functions.at[false][true][false](&call);
  CopyTile(scratch_tile, call.c_stride_bytes, rows, columns * data_.element_bytes(), c, c_stride_bytes);
}

}  // namespace intact::kernels
