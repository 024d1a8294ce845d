#include "kernels/engines/panel_engine.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/cost_table.h"
#include "kernels/engines/portable_engine.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

constexpr int kMaxRows = 16;                                // rows of a tile
constexpr size_t kCallRows = size_t{kMaxRows} * kMaxTiles;  // rows of a call
// Scratch of RunEdge(). It holds at least one tile: the vectors of a tile are registers, at most 32 of 16
// lanes.
constexpr int64_t kEdgeBytes = ScratchTile::Bytes(32, 16, 4 + 4);
// The distance in bytes at which kernels prefetch their own weights when M is small, a line per quad. Zen 3's
// hardware prefetchers do not keep up with few streams: measured there, 1.5 times as fast at 4×4096×4096, and
// 1.02 times at 8 rows. VNNI kernels read memory at 0.9 of its bandwidth anyway.
constexpr int64_t kOwnAhead = 1024;

// The least rows of a block, although L2 may not hold them: each block reads all weights. Measured on Zen 5
// at 128×4096×11008: 1.4 times as fast as with 16 rows.
constexpr int64_t kLeastBlockRows = 128;

int Lanes(core::Isa isa) { return jit::VectorBytes(isa) / 4; }

// Rows that compute the same taps.
struct RowsOfTaps {
  TapRange taps;
  int64_t rows = 0;
};

// The smallest range of taps that contains the taps of the next `rows` rows; and the number of rows, up to the
// line of row `most`, that need this range.
RowsOfTaps NextTaps(std::span<const TapRange> line_taps, const RowMap& a, const RowCursor& cursor,
                    int64_t rows, int64_t most) {
  auto line = static_cast<size_t>(cursor.line());
  RowsOfTaps next = {line_taps[line], cursor.rows_left()};
  for (; next.rows < most; next.rows += a.line_rows) {
    line = line + 1 == line_taps.size() ? 0 : line + 1;
    const TapRange& taps = line_taps[line];
    if (next.rows >= rows && taps != next.taps) break;
    next.taps = {std::min(next.taps.first, taps.first), std::max(next.taps.end, taps.end)};
  }
  return next;
}

}  // namespace

// A region to be prefetched, from which each call takes a share.
class PanelEngine::PrefetchRegion {
 public:
  PrefetchRegion() = default;
  PrefetchRegion(const void* begin, int64_t bytes)
      : next_(reinterpret_cast<uintptr_t>(begin)), remaining_bytes_(bytes) {}
  bool IsDone() const { return remaining_bytes_ <= 0; }
  int64_t remaining_bytes() const { return remaining_bytes_; }
  const void* Take(int64_t bytes) {
    const uintptr_t share = next_;
    next_ += static_cast<uintptr_t>(bytes);
    remaining_bytes_ -= bytes;
    return reinterpret_cast<const void*>(share);  // NOLINT(performance-no-int-to-ptr): may lie beyond the end
  }

 private:
  uintptr_t next_ = 0;
  int64_t remaining_bytes_ = 0;
};

// Cuts rows into tiles (FirstTiles()). With `run_rows`, each run of so many rows from the begin of a line on
// is cut separately.
class PanelEngine::TileCutter {
 public:
  TileCutter(const KernelBlock& block, int64_t row_begin, int64_t row_end, int64_t run_rows,
             int64_t line_rows)
      : block_(block), row_(row_begin), row_end_(row_end), run_rows_(run_rows), line_rows_(line_rows) {}

  int64_t row() const { return row_; }
  // The next tiles of one height. None after the last tile.
  EqualTiles Next() {
    if (row_ == row_end_) return {0, 0};
    if (row_ == run_end_ || run_end_ == 0) BeginRun();
    return FirstTiles(block_, run_end_ - row_);
  }
  void Take(int64_t tiles, int64_t rows) { row_ += tiles * rows; }

 private:
  void BeginRun() {
    run_end_ = row_end_;
    if (run_rows_ != 0) run_end_ = std::min(row_end_, row_ / line_rows_ * line_rows_ + run_rows_);
  }

  const KernelBlock& block_;
  int64_t row_, row_end_, run_rows_, line_rows_;
  int64_t run_end_ = 0;
};

PanelEngine::PanelEngine(const GemmData& data, const KernelBlock& block,
                         std::shared_ptr<const Schedule> schedule, std::shared_ptr<const WidePanels> wide,
                         int64_t most_rows)
    : data_(data),
      block_(block),
      lanes_(Lanes(block.isa)),
      nr_(lanes_ * block.vectors),
      is_signed_(BlockCost::IsSigned(block, data)),
      is_staged_(BlockCost::IsStaged(block, data)),
      pairs_rows_(BlockCost::PairsRows(block, data)),
      masks_edge_(lanes_ == 16 && data.n % lanes_ != 0),
      can_stream_(lanes_ == 16 && data.element_bytes() == 4),
      // Groups have few weights for each column, and a strip is one stream.
      can_prefetch_(data.taps().vector_step == 0 && schedule == nullptr),
      // The split variant always fetches its own weights. A line per quad suffices for one panel only.
      can_fetch_own_(nr_ == kPanelColumns && can_prefetch_ && block.dot != jit::DotKind::kVnni &&
                     block.dot != jit::DotKind::kSplit),
      schedule_(std::move(schedule)),
      wide_(std::move(wide)),
      cost_(block, data, schedule_ == nullptr ? ScheduleStatistics{} : schedule_->estimate()),
      has_lines_(!is_staged_ && !data.skipping_compensation.empty()),
      block_rows_(std::max(RowsPerBlock(is_staged_ ? StagedStride() : data.k, block.mr),
                           RoundUp(LeastBlockRows(), block.mr))),
      chunk_columns_(ColumnsPerChunk(ColumnBytes(), nr_)),
      has_row_kernel_(HasRowKernel()) {
  // The next columns are fetched if there are several chunks, the next rows if L1 does not hold all of them.
  // The rows of a band are not at equal distances (RowMap::IsEven()).
  const bool fetches_rows = !has_lines_ && most_rows * data.k > Caches().TileRows();
  if (data.n <= chunk_columns_ && !fetches_rows && !can_fetch_own_) can_prefetch_ = false;
  SetLineTiles();
  if (wide_ == nullptr) return;
  // Rows of a band share most of their taps.
  const int64_t l1_rows = Caches().TileRows() / StagedTapBytes() / block.mr * block.mr;
  if (l1_rows >= 8 * block.mr) block_rows_ = std::min(block_rows_, l1_rows);
  for (const int64_t tap : data.taps().offsets) wide_taps_.push_back(2 * tap);
}

Result<std::unique_ptr<Engine>> PanelEngine::Create(const GemmData& data, const KernelBlock& block,
                                                    std::shared_ptr<const Schedule> schedule,
                                                    std::shared_ptr<const WidePanels> wide,
                                                    int64_t most_rows) {
  std::unique_ptr<PanelEngine> engine(
      new PanelEngine(data, block, std::move(schedule), std::move(wide), most_rows));
  if (engine->is_signed_) RETURN_IF_ERROR(UnshiftCompensation(data, &engine->compensation_));
  engine->heights_ = std::vector<Height>(static_cast<size_t>(block.mr) + 1);
  if (!engine->IsPortable()) RETURN_IF_ERROR(engine->GenerateHeight(1));
  return std::unique_ptr<Engine>(std::move(engine));
}

std::vector<LineEnds> PanelEngine::LinesOf(int rows) const {
  std::vector<LineEnds> lines = {{}};
  if (joins_ends_) {
    if (rows == begin_rows_) lines.push_back({true, true});
    return lines;
  }
  if (rows == begin_rows_) lines.push_back({true, false});
  if (rows == end_rows_) lines.push_back({false, true});
  return lines;
}

// Only tiles of whole runs skip padding. The tiles of a part of a run, with other heights, compute it.
void PanelEngine::SetLineTiles() {
  const int64_t run = cost_.run_rows();
  if (!has_lines_ || run == 0) return;
  const EqualTiles first = FirstTiles(block_, run);
  EqualTiles last = first;
  for (int64_t rows = run - first.count * first.rows; rows != 0; rows -= last.count * last.rows) {
    last = FirstTiles(block_, rows);
  }
  if (data_.taps().head != 0 && first.rows > 1) begin_rows_ = first.rows;
  if (data_.taps().tail != 0 && last.rows > 1) end_rows_ = last.rows;
  joins_ends_ = first.rows == run && begin_rows_ != 0 && end_rows_ != 0;
}

int64_t PanelEngine::StagedTapBytes() const {
  if (wide_ != nullptr) return wide_->tap_pairs() * kQuad;
  return RoundUp(data_.taps().depth, kQuad) / kQuad * jit::ActivationQuadBytes(block_.dot);
}

// L2 holds staged rows, or scratch would grow with the depth.
int64_t PanelEngine::LeastBlockRows() const {
  if (!is_staged_) return kLeastBlockRows;
  return std::clamp<int64_t>(Caches().StreamedWeights() / StagedStride(), 1, kLeastBlockRows);
}

int64_t PanelEngine::StagedStride() const {
  const int64_t bytes = data_.taps().count() * StagedTapBytes();
  // One cache line more than the row, so that the rows of a tile map to different sets of L1. Short rows
  // follow each other.
  return bytes < 64 ? bytes : RoundUp(bytes, 64) + 64;
}

// Widen() keeps the padding of rows in a band. Staged rows have none.
int64_t PanelEngine::ScratchBytes(int64_t rows) const {
  if (!is_staged_) return 0;
  const bool widens = wide_ != nullptr && data_.taps().lies_in_band;
  const int64_t row_bytes = std::max(StagedStride(), widens ? 2 * data_.taps().depth : 0);
  return std::min(rows, block_rows_) * row_bytes + kQuad;
}

int64_t PanelEngine::BlockRows(int64_t rows) const {
  const int64_t blocks = std::max<int64_t>(CeilDivide(rows, block_rows_), 1);
  const int64_t run_rows = has_lines_ ? cost_.run_rows() : 0;  // tiles of whole runs skip padding
  return RoundUp(CeilDivide(rows, blocks), run_rows != 0 ? run_rows : block_.mr);
}

Error PanelEngine::PrepareRows(int64_t rows, bool or_fewer) const {
  if (or_fewer) {
    const int64_t least = has_row_kernel_ ? kRowKernel : 1;
    for (int64_t height = std::min<int64_t>(rows, block_.mr); height >= least; --height) {
      RETURN_IF_ERROR(MakeHeight(height));
    }
    return {};
  }
  if (rows == 0) return {};
  if (rows == 1 && has_row_kernel_) return MakeHeight(kRowKernel);
  const int64_t block_rows = BlockRows(rows);
  // All whole blocks have the same tiles, except with lines. A file may ask for 2^31 rows.
  const int64_t last = (rows - 1) / block_rows * block_rows;
  const int64_t step = cost_.run_rows() == 0 ? std::max(block_rows, last) : block_rows;
  if (rows / step > 4096) return PrepareRows(rows, true);
  for (int64_t block = 0; block < rows; block += step) {
    TileCutter cutter(block_, block, std::min(rows, block + block_rows), cost_.run_rows(),
                      data_.taps().line_rows);
    for (EqualTiles next = cutter.Next(); next.count != 0; next = cutter.Next()) {
      RETURN_IF_ERROR(MakeHeight(next.rows));
      cutter.Take(next.count, next.rows);
    }
  }
  return {};
}

// Only tiles of whole runs leave padding out, and tiles of two lines may read the padding of one of them.
bool PanelEngine::LeavesOutPadding(int64_t row_begin, int64_t row_end) const noexcept {
  const Taps& taps = data_.taps();
  const int64_t run = cost_.run_rows();
  if (!has_lines_ || run == 0 || run != taps.line_rows || taps.shared) return false;
  if (row_begin % run != 0 || row_end % run != 0) return false;
  if ((taps.head != 0 && begin_rows_ == 0) || (taps.tail != 0 && end_rows_ == 0)) return false;
  TileCutter cutter(block_, 0, run, 0, 0);
  for (EqualTiles next = cutter.Next(); next.count != 0; next = cutter.Next()) {
    if (!HasHeight(next.rows)) return false;
    cutter.Take(next.count, next.rows);
  }
  return true;
}

void PanelEngine::RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept {
  RunBy(buffers, range, scratch, nullptr);
}

void PanelEngine::RunBy(const RunBuffers& buffers, const Range& range, uint8_t* scratch, Calls* calls) const {
  MicrokernelArgs call = MakeCall();
  // Decided once: another thread may make the kernel at any time.
  const bool runs_row = RunsRow(range);
  const int64_t block_rows = BlockRows(range.row_end - range.row_begin);
  for (int64_t block = range.row_begin; block < range.row_end; block += block_rows) {
    const int64_t block_end = std::min(range.row_end, block + block_rows);
    Input a{buffers.rows(), buffers.taps.empty() ? data_.taps().offsets : buffers.taps, data_.taps().depth};
    if (Stages(runs_row)) a = Stage(a.rows, block, block_end, scratch);
    if (runs_row) return RunRow(buffers, range, a, &call, calls);
    for (int64_t column = range.column_begin; column < range.column_end; column += chunk_columns_) {
      const int64_t chunk_end = std::min(range.column_end, column + chunk_columns_);
      const int64_t next_end = std::min(range.column_end, chunk_end + chunk_columns_);
      RunChunk(buffers, {block, block_end, column, chunk_end}, a, next_end, &call, calls);
    }
  }
}

// The members that all tiles share. They are set once, because clearing the arguments takes as long as
// several quads of a tile.
MicrokernelArgs PanelEngine::MakeCall() const {
  MicrokernelArgs call;
  call.b_panel_stride_bytes = PanelStride();
  call.vector_step = data_.taps().vector_step;
  if (schedule_ != nullptr) call.windows = schedule_->made().windows();
  call.compensation_stride_bytes = static_cast<int64_t>(data_.compensation.bytes());
  return call;
}

PanelEngine::Input PanelEngine::Stage(const RowMap& a, int64_t row_begin, int64_t row_end,
                                      uint8_t* staged) const noexcept {
  static constexpr int64_t kOneTap = 0;
  if (RowMap rows; Widen(a, row_begin, row_end, staged, &rows)) return {rows, wide_taps_, StagedTapBytes()};
  const RowMap staged_rows = RowMap::From(row_begin, staged, StagedStride());
  const StageFunction stage = StageFor(block_.dot, block_.isa);
  const uint8_t shift = is_signed_ ? 0 : data_.a_shift();
  const int64_t tap_bytes = StagedTapBytes(), stride = StagedStride();
  const int64_t depth = wide_ == nullptr ? data_.taps().depth : std::min(data_.taps().depth, tap_bytes / 2);
  RowCursor cursor(a, row_begin);
  for (int64_t row = row_begin; row < row_end; ++row, staged += stride) {
    const uint8_t* const from = cursor.Next();
    uint8_t* to = staged;
    for (const int64_t tap : data_.taps().offsets) {
      stage(from + tap, depth, shift, to);
      to += tap_bytes;
    }
  }
  return {staged_rows, {&kOneTap, 1}, data_.taps().count() * tap_bytes};
}

// Widens all bytes from the first row to the last at once, if the rows leave no gaps: then the byte at p
// becomes the int16 at 2·p, and rows may overlap. In a band, gaps between lines may be read.
bool PanelEngine::Widen(const RowMap& a, int64_t row_begin, int64_t row_end, uint8_t* staged,
                        RowMap* rows) const noexcept {
  const Taps& taps = data_.taps();
  if (wide_ == nullptr || a.stride > taps.depth) return false;
  if (!a.IsEven() && !taps.lies_in_band && a.line_stride != a.line_rows * a.stride) return false;
  const uint8_t* const first = a.At(row_begin);
  const int64_t bytes = a.At(row_end - 1) - first + taps.offsets.back() + taps.depth;
  if (bytes * 2 + kQuad > ScratchBytes(row_end - row_begin)) return false;
  StageFor(block_.dot, block_.isa)(first, bytes, data_.a_shift(), staged);
  *rows = a;
  rows->stride *= 2;
  rows->line_stride *= 2;
  rows->plane_stride *= 2;
  rows->origin = reinterpret_cast<uintptr_t>(staged) - 2 * (reinterpret_cast<uintptr_t>(first) - a.origin);
  return true;
}

// Sets the members of `call` that depend on taps.
void PanelEngine::SetTaps(const Input& a, const SkippingCompensation* compensation,
                          MicrokernelArgs* call) const {
  call->taps = a.taps.data();
  call->taps_end = a.taps.data() + a.taps.size();
  call->tap_bytes = a.tap_bytes;
  if (is_staged_) return;
  if (compensation != nullptr) {
    call->taps_end = call->taps + compensation->taps.end;
    call->taps += compensation->taps.first;
  }
  call->head_end = data_.taps().head;
  call->tail_begin = data_.taps().depth - data_.taps().tail;
}

// The compensation for `range`; for all taps, if none was made for `range`.
const SkippingCompensation* PanelEngine::FindCompensation(const TapRange& range) const {
  const auto found = std::find_if(data_.skipping_compensation.begin(), data_.skipping_compensation.end(),
                                  [&](const SkippingCompensation& made) { return made.taps == range; });
  return found == data_.skipping_compensation.end() ? &data_.skipping_compensation.front() : &*found;
}

// Sets `tiles` to the next tiles of one kind, or to a single one, and `pointers` to their rows. Members are
// set one by one: see MicrokernelArgs.
void PanelEngine::NextTiles(const RowMap& a, TileCutter* cutter, RowCursor* cursor, const uint8_t** pointers,
                            Tiles* tiles) const noexcept {
  const EqualTiles next = cutter->Next();
  tiles->row_begin = cutter->row();
  tiles->rows = next.rows;
  tiles->gap = 0;
  tiles->count = std::min<int64_t>(next.count, kMaxTiles);
  if (tiles->count == 0) return;
  const Height& height = HeightOf(tiles->rows);
  if (has_lines_) {
    // Tiles at the ends of lines are taken one by one.
    if (cost_.run_rows() != 0) tiles->count = 1;
    tiles->compensation = &data_.skipping_compensation.front();
    if (!data_.taps().line_taps.empty()) {
      const RowsOfTaps rows = NextTaps(data_.taps().line_taps, a, *cursor, tiles->rows, tiles->all_rows());
      tiles->compensation = FindCompensation(rows.taps);
      tiles->count = std::clamp<int64_t>(rows.rows / tiles->rows, 1, tiles->count);
    }
    tiles->line.begins = tiles->rows == begin_rows_ && cursor->BeginsLine();
  }
  cutter->Take(tiles->count, tiles->rows);
  cursor->Take(tiles->all_rows(), pointers);
  if (has_lines_) tiles->line.ends = tiles->rows == end_rows_ && cursor->BeginsLine();
  tiles->kernels = &height.At(tiles->line);
  if (!HasHeight(tiles->rows)) CutToRows(tiles);
}

// Tiles of one row compute the padding of lines.
void PanelEngine::CutToRows(Tiles* tiles) const noexcept {
  tiles->count = tiles->all_rows();
  tiles->rows = 1;
  tiles->line = {};
  tiles->kernels = HasHeight(1) ? &HeightOf(1).at_line.front() : nullptr;
}

void PanelEngine::RunPortably(const RunBuffers& buffers, const Range& range,
                              const Tiles& tiles) const noexcept {
  const PortableEngine engine(data_);
  Range rows = range;
  for (int64_t i = 0; i < tiles.count; ++i) {
    rows.row_begin = tiles.row_begin + i * (tiles.rows + tiles.gap);
    rows.row_end = rows.row_begin + tiles.rows;
    engine.RunRange(buffers, rows, nullptr);
  }
}

// A chunk of one tile. Nothing is prefetched, because HasFewRows().
void PanelEngine::RunTile(const RunBuffers& buffers, const Range& range, const Input& a,
                          MicrokernelArgs* call, Calls* calls) const {
  std::array<const uint8_t*, kMaxRows> pointers;
  Tiles tile;
  tile.row_begin = range.row_begin;
  tile.rows = range.row_end - range.row_begin;
  tile.count = 1;
  tile.kernels = &HeightOf(tile.rows).at_line.front();
  RowCursor(a.rows, tile.row_begin).Take(tile.rows, pointers.data());
  if (!HasHeight(tile.rows)) CutToRows(&tile);
  PrefetchRegion region;
  RunTiles(buffers, range, tile, a, pointers.data(), &region, call, calls);
}

void PanelEngine::RunRow(const RunBuffers& buffers, const Range& range, const Input& a, MicrokernelArgs* call,
                         Calls* calls) const {
  const Kernels& kernels = HeightOf(kRowKernel).at_line.front();
  const uint8_t* const row = a.rows.At(range.row_begin);
  Tiles tile;
  tile.row_begin = range.row_begin;
  tile.rows = tile.count = 1;
  SetTaps(a, nullptr, call);
  const auto run = [&](const MicrokernelFunction& kernel, int64_t column, int64_t tiles) {
    if (tiles == 0) return;
    SetTile(buffers, tile, column, call);
    call->rows = &row;
    call->tiles = tiles;
    Call(kernel, 1, call, calls);
  };
  const int64_t columns = range.column_end - range.column_begin, edge_columns = columns % nr_;
  run(kernels.whole.front(), range.column_begin, columns / nr_);
  run(kernels.edge.front(), range.column_end - edge_columns, edge_columns == 0 ? 0 : 1);
}

void PanelEngine::RunChunk(const RunBuffers& buffers, const Range& range, const Input& a, int64_t next_end,
                           MicrokernelArgs* call, Calls* calls) const {
  if (IsTile(range)) return RunTile(buffers, range, a, call, calls);
  // The next chunk is not fetched if kernels wait for their own weights, which it would delay.
  const bool has_next = next_end > range.column_end && !HasFewRows(range) && can_prefetch_;
  PrefetchRegion region;
  if (has_next) {
    region = {Columns(buffers, range.column_end),
              Columns(buffers, RoundUp(next_end, kPanelColumns)) - Columns(buffers, range.column_end)};
  }
  if (has_lines_ && cost_.run_rows() != 0) return RunLines(buffers, range, a, &region, call, calls);
  RunRows(buffers, range, a, has_next ? &region : nullptr, call, calls);
}

int64_t PanelEngine::EqualRuns(const RowCursor& cursor, int64_t most) const noexcept {
  if (!cursor.BeginsLine()) return 0;
  const std::vector<TapRange>& line_taps = data_.taps().line_taps;
  if (line_taps.empty() || most < 2) return most;
  const auto lines = static_cast<size_t>(cost_.run_rows() / data_.taps().line_rows);
  const auto next = [&](size_t line) { return line + 1 == line_taps.size() ? 0 : line + 1; };
  auto first = static_cast<size_t>(cursor.line()), line = first;
  for (size_t i = 0; i < lines; ++i) line = next(line);
  for (int64_t runs = 1; runs < most; ++runs) {
    for (size_t i = 0; i < lines; ++i, line = next(line), first = next(first)) {
      if (line_taps[line] != line_taps[first]) return runs;
    }
  }
  return most;
}

void PanelEngine::RunLines(const RunBuffers& buffers, const Range& range, const Input& a,
                           PrefetchRegion* region, MicrokernelArgs* call, Calls* calls) const {
  const int64_t run_rows = cost_.run_rows(), line_rows = data_.taps().line_rows;
  const int64_t most = std::min<int64_t>(kMaxTiles, static_cast<int64_t>(kCallRows) / run_rows);
  std::array<const uint8_t*, kCallRows> rows, pointers;
  std::optional<RowCursor> cursor(std::in_place, a.rows, range.row_begin);
  for (Range run = range; run.row_begin < range.row_end; run.row_begin = run.row_end) {
    const int64_t runs = EqualRuns(*cursor, std::min(most, (range.row_end - run.row_begin) / run_rows));
    if (runs == 0) {
      // A part of a run, or a long run.
      run.row_end = std::min(range.row_end, run.row_begin / line_rows * line_rows + run_rows);
      RunRows(buffers, run, a, region, call, calls);
      if (run.row_end != range.row_end) cursor.emplace(a.rows, run.row_end);
      continue;
    }
    run.row_end = run.row_begin + runs * run_rows;
    RowCursor in_run = *cursor;
    cursor->Take(runs * run_rows, rows.data());
    TileCutter cutter(block_, run.row_begin, run.row_begin + run_rows, 0, 0);
    Tiles tiles;
    for (NextTiles(a.rows, &cutter, &in_run, pointers.data(), &tiles); tiles.count != 0;
         NextTiles(a.rows, &cutter, &in_run, pointers.data(), &tiles)) {
      const uint8_t** const place = &rows[static_cast<size_t>(tiles.row_begin - run.row_begin)];
      if (tiles.count != 1) {  // no kernel of their height
        for (int64_t i = 0; i < runs; ++i, tiles.row_begin += run_rows) {
          RunTiles(buffers, range, tiles, a, place + i * run_rows, region, call, calls);
        }
        continue;
      }
      for (int64_t i = 1; i < runs; ++i) {
        std::copy_n(place + i * run_rows, tiles.rows, &pointers[static_cast<size_t>(i * tiles.rows)]);
      }
      tiles.count = runs;
      tiles.gap = run_rows - tiles.rows;
      RunTiles(buffers, range, tiles, a, pointers.data(), region, call, calls);
    }
  }
}

void PanelEngine::RunRows(const RunBuffers& buffers, const Range& range, const Input& a,
                          PrefetchRegion* region, MicrokernelArgs* call, Calls* calls) const {
  std::array<const uint8_t*, 2 * kCallRows> pointers;  // rows of two groups of tiles
  PrefetchRegion next_rows;
  RowCursor cursor(a.rows, range.row_begin);
  TileCutter cutter(block_, range.row_begin, range.row_end, cost_.run_rows(), data_.taps().line_rows);
  std::array<Tiles, 2> both;
  Tiles* tiles = both.data();
  Tiles* next = &both[1];
  NextTiles(a.rows, &cutter, &cursor, pointers.data(), tiles);
  while (tiles->count != 0) {
    const uint8_t** next_pointers = &pointers[static_cast<size_t>(tiles->all_rows())];
    NextTiles(a.rows, &cutter, &cursor, next_pointers, next);
    while (next->count == 1 && tiles->count < kMaxTiles && tiles->IsLike(*next)) {
      ++tiles->count;
      next_pointers += next->rows;
      NextTiles(a.rows, &cutter, &cursor, next_pointers, next);
    }
    if (next->count != 0 && a.rows.IsEven() && a.rows.stride < 2 * data_.k) {
      next_rows = {*next_pointers, a.rows.stride * tiles->all_rows()};
    }
    RunTiles(buffers, range, *tiles, a, pointers.data(), region == nullptr ? &next_rows : region, call,
             calls);
    std::copy_n(next_pointers, next->all_rows(), pointers.data());
    std::swap(tiles, next);
  }
}

void PanelEngine::RunTiles(const RunBuffers& buffers, const Range& range, const Tiles& tiles, const Input& a,
                           const uint8_t* const* pointers, PrefetchRegion* region, MicrokernelArgs* call,
                           Calls* calls) const {
  if (tiles.kernels == nullptr) {
    return calls == nullptr ? RunPortably(buffers, range, tiles) : calls->LackKernel();
  }
  call->pixel_offsets = HeightOf(tiles.rows).pixel_offsets.data();
  SetTaps(a, tiles.compensation, call);
  const bool streams = can_stream_ && Streams(buffers, data_, block_.isa,
                                              nr_ == lanes_ ? Costs().layout.streaming_panel_quads : 0);
  const size_t stores = streams ? 1 : 0;  // in ByStores
  const bool fetches_own = can_fetch_own_ && HasFewRows(range);
  const int64_t columns = range.column_end - range.column_begin;
  const int64_t edge_columns = columns < nr_ ? columns : columns % nr_;
  const int64_t edge_begin = range.column_end - edge_columns;
  const int64_t steps = wide_ == nullptr ? data_.weights.quads() : data_.taps().count() * wide_->tap_pairs();
  const int64_t prefetched_bytes = steps * PrefetchQuadBytes(block_.dot, nr_);  // by a tile
  for (int64_t column = range.column_begin; column < edge_begin; column += nr_) {
    SetTile(buffers, tiles, column, call);
    call->rows = pointers;
    int64_t prefetching = 0;  // tiles
    if (fetches_own) {
      prefetching = tiles.count;
      call->prefetch = Columns(buffers, column) + kOwnAhead;
    } else if (can_prefetch_ && !region->IsDone()) {
      prefetching = std::min(tiles.count, CeilDivide(region->remaining_bytes(), prefetched_bytes));
      call->prefetch = region->Take(prefetching * prefetched_bytes);
    }
    if (prefetching != 0) {
      call->tiles = prefetching;
      Call(tiles.kernels->prefetching[stores], tiles.rows * call->tiles, call, calls);
    }
    // More prefetches would evict other data.
    if (prefetching == tiles.count) continue;
    if (prefetching != 0 && calls != nullptr) {  // a kernel sets `call` to the tiles that follow its own
      Tiles others = tiles;
      others.row_begin += prefetching * (tiles.rows + tiles.gap);
      SetTile(buffers, others, column, call);
      call->rows = pointers + prefetching * tiles.rows;
    }
    call->tiles = tiles.count - prefetching;
    Call(tiles.kernels->whole[stores], tiles.rows * call->tiles, call, calls);
  }
  if (edge_columns == 0) return;
  const auto last_columns = static_cast<unsigned>(edge_columns) % static_cast<unsigned>(lanes_);
  if (last_columns == 0 || masks_edge_) {
    SetTile(buffers, tiles, edge_begin, call);
    call->rows = pointers;
    call->tiles = tiles.count;
    return Call(tiles.kernels->edge[last_columns == 0 ? stores : 0], tiles.all_rows(), call, calls);
  }
  // RunEdge() runs several tiles at once, up to the room of its scratch.
  const int64_t tile_bytes = data_.ScratchTileBytes(tiles.rows, RoundUp(edge_columns, lanes_));
  const int64_t most = std::max<int64_t>(kEdgeBytes / tile_bytes, 1);
  Tiles some = tiles;
  for (int64_t tile = 0; tile < tiles.count; tile += some.count) {
    some.row_begin = tiles.row_begin + tile * (tiles.rows + tiles.gap);
    some.count = tiles.gap == 0 ? std::min(most, tiles.count - tile) : 1;
    SetTile(buffers, some, edge_begin, call);
    call->rows = pointers + tile * tiles.rows;
    if (calls == nullptr) {
      RunEdge(buffers, some, edge_begin, edge_columns, call);
    } else {
      calls->CallEdge(some, edge_begin, edge_columns, call);
    }
  }
}

// Sets the members of `call` that depend on where the tiles begin in C.
void PanelEngine::SetTile(const RunBuffers& buffers, const Tiles& tiles, int64_t column,
                          MicrokernelArgs* call) const {
  const int64_t first_tap = tiles.compensation == nullptr ? 0 : tiles.compensation->taps.first;
  const int32_t* const compensation = tiles.compensation == nullptr
                                          ? CompensationOf(buffers)
                                          : data_.SkippingCompensationOf(buffers, *tiles.compensation);
  call->b = Columns(buffers, column) + first_tap * data_.taps().depth * data_.weights.width;
  call->compensation = compensation + column;
  if (call->vector_step != 0) call->a_offset = column / lanes_ * call->vector_step;
  call->c = buffers.output.C(tiles.row_begin, column);
  call->c_stride_bytes = buffers.output.c_stride_bytes;
  call->c_gap_bytes = tiles.gap * buffers.output.c_stride_bytes;
  call->residual_gap_bytes = tiles.gap * buffers.output.residual_stride_bytes;
  call->epilogue = data_.EpilogueAt(buffers, tiles.row_begin, column);
  if (block_.packing != Packing::kCutPanels) return;
  const ExtraQuads& extra = buffers.weights->extra;
  const int64_t* const begin = extra.begins + column / kPanelColumns;
  call->extras = extra.offsets + begin[0];
  call->extras_end = extra.offsets + begin[1];
  call->extra_b = extra.quads + begin[0];
}

// Runs tiles with a partial last vector.
void PanelEngine::RunEdge(const RunBuffers& buffers, const Tiles& tiles, int64_t column, int64_t columns,
                          MicrokernelArgs* call) const noexcept {
  alignas(64) std::array<uint8_t, kEdgeBytes> bytes;
  const ScratchTile scratch(buffers.output, tiles.all_rows(), RoundUp(columns, lanes_), bytes.data());
  scratch.Load(tiles.row_begin, column, columns);
  call->tiles = tiles.count;
  call->c = scratch.map().c;
  call->c_stride_bytes = scratch.map().c_stride_bytes;
  call->epilogue.residual = scratch.map().residual;
  call->epilogue.residual_stride_bytes = scratch.map().residual_stride_bytes;
  tiles.kernels->edge.front()(call);
  scratch.Store(tiles.row_begin, column, columns);
}

}  // namespace intact::kernels
