#include "kernels/engines/amx_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/result.h"
#include "kernels/engines/block_cost.h"
#include "kernels/engines/cost_table.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

/// Sums of a block, behind room for rows that its first tile computes again.
constexpr int64_t kSlotInts = 2 * kMaxBlockTiles * kTileBytes / 4;
constexpr int64_t kSlotBytes = kSlotInts * 4;

// The most steps of a shallow block. A kernel stores its sums to C at once, if they are C's elements. Deeper
// blocks have time to store the sums of the previous block meanwhile.
constexpr int64_t kFewSteps = 4;

// Copies `bytes` bytes of each tap of `rows` rows, from depth `begin` of the tap on. `bytes` is kChunk to 2·kChunk: two
// copies of fixed size, which may overlap, take less time than a call of memcpy().
template <int64_t kChunk>
void StageShortTaps(RowCursor a, const Taps& taps, int64_t rows, int64_t begin, int64_t bytes, int64_t width,
                    uint8_t* to) {
  const int64_t second = bytes - kChunk;  // where the second copy begins
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* const from = a.Next() + begin;
    uint8_t* tap = to + row * width;
    for (const int64_t offset : taps.offsets) {
      std::memcpy(tap, from + offset, kChunk);
      std::memcpy(tap + second, from + offset + second, kChunk);
      tap += bytes;
    }
  }
}

}  // namespace

void StageRows(RowCursor a, const Taps& taps, int64_t rows, int64_t begin, int64_t end, uint8_t* to) {
  const int64_t width = RoundUp(end - begin, kTileDepth);
  const bool is_whole = end - begin == taps.count() * taps.depth;
  const int64_t tap_bytes = is_whole || taps.count() == 1 ? std::min(taps.depth, end - begin) : 0;
  if (tap_bytes >= 8 && tap_bytes <= 128) {
    const auto stage = tap_bytes < 16    ? StageShortTaps<8>
                       : tap_bytes <= 32 ? StageShortTaps<16>
                       : tap_bytes <= 64 ? StageShortTaps<32>
                                         : StageShortTaps<64>;
    return stage(a, taps, rows, begin, tap_bytes, width, to);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* const from = a.Next();
    for (int64_t depth = begin; depth < end;) {
      const int64_t in_tap = depth % taps.depth;
      const int64_t bytes = std::min(end - depth, taps.depth - in_tap);
      std::memcpy(to + row * width + (depth - begin),
                  from + taps.offsets[static_cast<size_t>(depth / taps.depth)] + in_tap,
                  static_cast<size_t>(bytes));
      depth += bytes;
    }
  }
}

// The state of one RunRange().
class AmxEngine::Region {
 public:
  Region(const AmxEngine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch)
      : engine_(engine),
        data_(engine.data_),
        buffers_(buffers),
        range_(range),
        panel_end_(CeilDivide(range.column_end, kPanelColumns)),
        amx_rows_(RowsOf(buffers.rows(), range)),
        blocking_(ChooseAmxBlocking(amx_rows_, panel_end_ - range.column_begin / kPanelColumns, data_.taps(),
                                    Caches())),
        in_place_end_(range.row_begin + blocking_.in_place_rows),
        is_even_(buffers.rows().IsEven() && data_.taps().count() == 1),
        streams_(buffers.may_stream && engine.can_stream_),
        stores_sums_(engine.MakesSums() && !streams_),
        slots_(reinterpret_cast<int32_t*>(scratch)),
        edge_(scratch + MaxWaitingBlocks(range.row_end - range.row_begin, data_.weights.panels(),
                                         data_.taps(), Caches()) *
                            kSlotBytes),
        segments_(reinterpret_cast<AmxSegment*>(edge_ + engine.EdgeBytes())),
        staged_(edge_ + engine.EdgeBytes() + engine.SegmentBytes()) {}

  void Run() {
    if (blocking_.runs_on) {
      begin_place_ = amx_rows_.Place(range_.row_begin);
      end_place_ = amx_rows_.Place(range_.row_end - 1) + 1;
      first_row_ = buffers_.rows().At(range_.row_begin);
    }
    ScopedTiles tiles(engine_.tile_functions_);
    tiles.Configure(blocking_.tile_rows);
    for (int64_t panel = range_.column_begin / kPanelColumns; panel < panel_end_; panel = chunk_end_) {
      chunk_begin_ = panel;
      chunk_end_ = std::min(panel_end_, panel + blocking_.chunk_panels);
      next_b_ = Panel(panel) + (chunk_end_ - panel) * data_.weights.panel_stride_bytes();
      for (int64_t row = range_.row_begin; row < range_.row_end; row = row_) RunChunk(row);
    }
    StoreWaiting();
  }

 private:
  struct RowTile {
    int64_t first = 0;  // row of A
    int64_t sums = 0;  // first row of its sums, counted from row_: negative if it computes earlier rows again
    const uint8_t* a = nullptr;  // the row `first`, unless all of A is staged
  };
  // Row tiles that blocks multiply together.
  struct RowBlock {
    int64_t row = -1;  // of C
    int64_t rows = 0, tiles = 0;
    std::array<RowTile, kMaxBlockTiles> of;
  };
  struct Block {
    int64_t panel = 0, panels = 0;
    int64_t index = 0;       // among the blocks of its rows and chunk
    int64_t count = 1;       // adjacent blocks of one call, each with `panels` panels
    int64_t row_count = 1;   // rows of such blocks of one call
    bool is_direct = false;  // the kernel stores the sums to C
  };

  // The chunk of rows that begins at `row` × the chunk of panels. Moves row_ to the rows' end.
  void RunChunk(int64_t row) {
    chunk_row_ = row;
    chunk_row_end_ = std::min(row + blocking_.chunk_rows, range_.row_end);
    for (int64_t depth = 0; depth < data_.k; depth += blocking_.depth) {
      next_slot_ = 0;
      for (row_ = row; row_ < chunk_row_end_; row_ += rows_) {
        if (next_.row != row_) TakeTiles(row_, &next_);
        rows_ = next_.rows;
        row_tiles_ = next_.tiles;
        tiles_ = next_.of;
        if (row_ + rows_ < range_.row_end) TakeTiles(row_ + rows_, &next_);
        RunRows(depth, std::min(data_.k, depth + blocking_.depth));
      }
    }
  }

  // The tiles of a block of rows from `row` on.
  void TakeTiles(int64_t row, RowBlock* block) {
    *block = {row, 0, 0, {}};
    std::array<int64_t, kMaxBlockTiles> ends = {};  // in rows of the block
    const int64_t place = blocking_.runs_on ? amx_rows_.Place(row) : 0;
    while (block->tiles < blocking_.row_tiles && row + block->rows < range_.row_end) {
      const int64_t own_row = row + block->rows;
      const auto i = static_cast<size_t>(block->tiles++);
      if (blocking_.runs_on) {
        ends[i] = block->rows = TakeTileThatRunsOn(own_row, place, &block->of[i]) - row;
        continue;
      }
      FindLine(own_row);
      const int64_t first = std::min(own_row, line_end_ - blocking_.tile_rows);
      block->of[i] = {first, first - row, line_ + (first - line_begin_) * buffers_.rows().stride};
      block->rows = std::min(first + blocking_.tile_rows, range_.row_end) - row;
      ends[i] = block->rows;
    }
    if (block->tiles == 3) block->rows = ends[static_cast<size_t>(--block->tiles) - 1];
  }

  // A tile from `row` on, if tiles run on, of a block that begins at `block_place`. Returns the first row behind it.
  int64_t TakeTileThatRunsOn(int64_t row, int64_t block_place, RowTile* tile) const {
    const int64_t place = std::min(amx_rows_.Place(row), end_place_ - blocking_.tile_rows);
    *tile = {amx_rows_.RowAt(place), place - block_place,
             first_row_ + (place - begin_place_) * amx_rows_.stride};
    return std::min(amx_rows_.RowAt(place + blocking_.tile_rows), range_.row_end);
  }

  // Sets the line of `row`. All rows are one line if they are staged or one stride apart.
  void FindLine(int64_t row) {
    if (row >= line_begin_ && row < line_end_) return;
    const RowMap& rows = buffers_.rows();
    const bool is_one_line = blocking_.stages_a || rows.IsEven();
    line_begin_ = is_one_line ? range_.row_begin : row - row % rows.line_rows;
    line_end_ = is_one_line ? range_.row_end : line_begin_ + rows.line_rows;
    line_ = rows.At(line_begin_);
  }

  // One block of rows × the chunk, depths [depth, depth_end).
  void RunRows(int64_t depth, int64_t depth_end) {
    const int64_t width = kMaxBlockTiles / row_tiles_;
    SetSegments(depth, depth_end);
    Block block;
    block.panel = chunk_begin_;
    for (; block.panel < chunk_end_; block.panel += block.count * block.panels, block.index += block.count) {
      block.panels = std::min(width, chunk_end_ - block.panel);
      SetDestination(&block);
      RunBlock(block, depth, depth_end);
      rows_ *= block.row_count;
    }
  }

  // Decides whether kernels store the sums of `block` to C. Then a call runs the adjacent blocks too. Tiles must
  // not have rows of the line outside of the range: C may end there, or another thread may write these rows.
  void SetDestination(Block* block) const {
    const int64_t whole_panels = std::min(chunk_end_, range_.column_end / kPanelColumns) - block->panel;
    block->is_direct = stores_sums_ && !blocking_.runs_on && segments_end_ == segments_ + 1 &&
                       segments_->steps <= kFewSteps && blocking_.depth >= data_.k &&
                       whole_panels >= block->panels && tiles_.front().first >= range_.row_begin &&
                       tiles_[row_tiles() - 1].first + blocking_.tile_rows <= range_.row_end;
    block->count = block->is_direct ? whole_panels / block->panels : 1;
    // Rows in place at one stride, and one call for all panels: the call runs the next rows too.
    const int64_t rows = row_tiles_ * blocking_.tile_rows;
    if (block->is_direct && block->count * block->panels == chunk_end_ - chunk_begin_ &&
        blocking_.chunk_rows == 1 &&
        segments_->a.front() == tiles_.front().a + data_.taps().offsets.front() && buffers_.rows().IsEven() &&
        rows_ == rows) {
      block->row_count = (in_place_end_ - row_) / rows;
    }
  }

  // Depths [begin, end) of A: in place if tiles can be loaded there, else staged.
  void SetSegments(int64_t begin, int64_t end) {
    segments_end_ = segments_;
    if (!blocking_.stages_a) begin = AddTaps(begin, end);
    if (begin < end) AddStaged(begin, end);
    args_.segments_end = segments_end_;  // RunBlock() would load both ends at once: see MicrokernelArgs
  }

  // Adds the tiles of depths [begin, end) that are loaded in place; returns the depth where they end. If there are
  // several taps, these are all depths.
  int64_t AddTaps(int64_t begin, int64_t end) {
    const int64_t padding = IsInPlace(row_ + rows_) ? kTileDepth - 1 : 0;
    const int64_t steps = (std::min(end, data_.taps().depth) - begin + padding) / kTileDepth;
    if (steps == 0) return begin;
    for (const int64_t offset : data_.taps().offsets) {
      AmxSegment& segment = *segments_end_++;
      segment.a_stride_bytes = buffers_.rows().stride;
      segment.steps = steps;
      for (size_t i = 0; i < row_tiles(); ++i) segment.a[i] = tiles_[i].a + offset + begin;
    }
    return begin + data_.taps().count() * steps * kTileDepth;
  }

  void AddStaged(int64_t begin, int64_t end) {
    AmxSegment& segment = *segments_end_++;
    segment.a_stride_bytes = RoundUp(end - begin, kTileDepth);
    segment.steps = segment.a_stride_bytes / kTileDepth;
    uint8_t* to = staged_;
    for (size_t i = 0; i < row_tiles(); ++i) {
      segment.a[i] = to;
      StageRows(RowCursor(buffers_.rows(), tiles_[i].first), data_.taps(), blocking_.tile_rows, begin, end,
                to);
      to += blocking_.tile_rows * segment.a_stride_bytes;
    }
  }

  void RunBlock(const Block& block, int64_t depth, int64_t depth_end) {
    const auto panels = static_cast<size_t>(block.panels);
    const int64_t columns = block.panels * kPanelColumns;
    const bool has_other_depths = blocking_.depth < data_.k;
    const int64_t column = block.panel * kPanelColumns;
    const int32_t* const compensation = engine_.compensation(buffers_) + column;
    int32_t* sums = slots_ + (has_other_depths ? next_slot_++ * kSlotInts : 0) + kTileRows * columns;
    int64_t stride_bytes = columns * 4;
    if (block.is_direct) {
      sums = reinterpret_cast<int32_t*>(buffers_.output.C(row_, column));
      stride_bytes = buffers_.output.c_stride_bytes;
    }
    if (waiting_panels_ != panels || block.is_direct) StoreWaiting();
    // Kernels read the compensation of their panels, also if no sums wait.
    if (!IsWaiting()) args_.store.compensation = compensation;
    args_.blocks = args_.blocks_again = block.count;
    args_.row_blocks = block.row_count;
    args_.segment = segments_;
    args_.b = Panel(block.panel) + OffsetInPanel(depth, 0, data_.weights.quad_bytes());
    args_.b_panel_stride_bytes = data_.weights.panel_stride_bytes();
    args_.adds = depth != 0;
    args_.seed =
        block.is_direct && HasCompensation(compensation, block.count * columns) ? compensation : nullptr;
    args_.seed_block_bytes = args_.seed == nullptr ? 0 : columns * 4;
    args_.sums_stride_bytes = stride_bytes;
    if (block.row_count > 1) SetNextRows(block);
    for (size_t i = 0; i < row_tiles(); ++i) args_.sums[i] = sums + tiles_[i].sums * (stride_bytes / 4);
    if (AmxKernelPrefetches(static_cast<int>(row_tiles_), static_cast<int>(block.panels))) {
      SetPrefetch(block, depth, depth_end);
    }
    SetNext(block, depth, depth_end);
    (blocking_.b_stays ? engine_.staying_[streams_]
                       : engine_.kernels_[row_tiles()][streams_][panels])(&args_);
    SetStored();
    if (depth_end == data_.k && !block.is_direct) Finish(block, sums);
  }

  void SetNextRows(const Block& block) {
    const int64_t moved_panels = (block.count - 1) * block.panels;
    args_.next_rows_a = rows_ * buffers_.rows().stride;
    args_.next_rows_b = -moved_panels * data_.weights.panel_stride_bytes();
    args_.next_rows_seed = -(block.count - 1) * args_.seed_block_bytes;
    args_.next_rows_sums = rows_ * args_.sums_stride_bytes - moved_panels * kPanelColumns * 4;
  }

  // Sets the first operands of the next call, if it has the same numbers of row tiles and panels, and nothing is staged first.
  void SetNext(const Block& block, int64_t depth, int64_t depth_end) {
    args_.is_loaded = args_.next_b != nullptr ? 1 : 0;
    args_.next_b = nullptr;
    if (block.count > 1 || block.is_direct) return;
    const int64_t next_panel = block.panel + block.panels;
    if (next_panel + block.panels <= chunk_end_) {
      args_.next_a = segments_->a;
      args_.next_a_stride_bytes = segments_->a_stride_bytes;
      args_.next_b = Panel(next_panel) + OffsetInPanel(depth, 0, data_.weights.quad_bytes());
      return;
    }
    // The next block of rows, in place.
    const bool is_first = block.panels == std::min(kMaxBlockTiles / row_tiles_, chunk_end_ - chunk_begin_);
    if (next_panel < chunk_end_ || !is_first || depth != 0 || depth_end < data_.k || blocking_.stages_a ||
        (data_.taps().depth < kTileDepth && !IsInPlace(next_.row + next_.rows)) ||
        next_.row != row_ + rows_ || next_.tiles != row_tiles_) {
      return;
    }
    for (size_t i = 0; i < row_tiles(); ++i) args_.next_a[i] = next_.of[i].a + data_.taps().offsets.front();
    args_.next_a_stride_bytes = buffers_.rows().stride;
    args_.next_b = Panel(chunk_begin_);
  }

  static bool HasCompensation(const int32_t* values, int64_t count) {
    int32_t bits = 0;
    for (int64_t i = 0; i < count; ++i) bits |= values[i];
    return bits != 0;
  }

  // Sums of the whole depth wait for the next kernel to store them. Blocks with an edge within a panel are
  // stored at once.
  void Finish(const Block& block, const int32_t* sums) {
    const int64_t column = block.panel * kPanelColumns;
    const int64_t columns = std::min(range_.column_end - column, block.panels * kPanelColumns);
    AmxStoreArgs& waiting = args_.store;
    waiting_panels_ = static_cast<size_t>(block.panels);
    waiting.sums = sums;
    waiting.sums_end = sums + rows_ * block.panels * kPanelColumns;
    if (blocking_.runs_on) SetGap(block.panels * kPanelColumns);
    waiting.compensation = engine_.compensation(buffers_) + column;
    waiting.c = buffers_.output.C(row_, column);
    waiting.c_stride_bytes = buffers_.output.c_stride_bytes;
    waiting.epilogue = data_.EpilogueAt(buffers_, row_, column);
    if (columns % kPanelColumns == 0) return;
    const ScratchTile scratch(buffers_.output, rows_, block.panels * kPanelColumns, edge_);
    scratch.Load(row_, column, columns);
    waiting.c = scratch.map().c;
    waiting.c_stride_bytes = scratch.map().c_stride_bytes;
    waiting.epilogue.residual = scratch.map().residual;
    waiting.epilogue.residual_stride_bytes = scratch.map().residual_stride_bytes;
    engine_.stores_[false][waiting_panels_](&waiting);
    scratch.Store(row_, column, columns);
    SetStored();
  }

  // Sets the sums between lines, which are stored nowhere.
  void SetGap(int64_t columns) {
    AmxStoreArgs& waiting = args_.store;
    const int64_t begin = amx_rows_.Place(row_), line = amx_rows_.line;
    const int64_t line_end = begin + line - row_ % line;  // a place
    waiting.sums_end = waiting.sums + (amx_rows_.Place(row_ + rows_) - begin) * columns;
    waiting.gap = waiting.sums + (line_end - begin) * columns;
    waiting.gap_bytes = (amx_rows_.pitch - line) * columns * 4;
    waiting.line_bytes = line * columns * 4;
  }

  void StoreWaiting() {
    if (!IsWaiting()) return;
    engine_.stores_[streams_][waiting_panels_](&args_.store);
    SetStored();
  }
  bool IsWaiting() const { return args_.store.sums != args_.store.sums_end; }
  void SetStored() { args_.store.sums = args_.store.sums_end; }

  const int8_t* Panel(int64_t panel) const {
    return data_.PanelsOf(buffers_) + panel * data_.weights.panel_stride_bytes();
  }

  // Sets a share of the next chunk of B, or of the next block of A, to be prefetched: a line per dot product.
  void SetPrefetch(const Block& block, int64_t depth, int64_t depth_end) {
    constexpr int64_t kLines = kMaxBlockTiles;  // per step
    args_.prefetch = segments_->a[0];           // a line that is cached already
    args_.prefetch_stride_bytes = 0;
    args_.prefetch_step_bytes = 0;
    if (block.is_direct) return;
    if (blocking_.a_stays) {
      const int8_t* const end = Panel(panel_end_);
      if (next_b_ >= end) return;
      args_.prefetch = reinterpret_cast<const uint8_t*>(next_b_);
      args_.prefetch_stride_bytes = kPanelQuadBytes;
      next_b_ +=
          std::min(kLines * CeilDivide(depth_end - depth, kTileDepth) * kPanelQuadBytes, end - next_b_);
      return;
    }
    // The next block of A: same chunk of rows; else its next depth block; else the next chunk.
    int64_t row = row_ + rows_;
    if (row < chunk_row_end_) {
      // at the same depths
    } else if (depth_end < data_.k) {
      row = chunk_row_;
      depth = depth_end;
    } else {
      depth = 0;
    }
    const int64_t first = block.index * kLines;  // row, within the block of rows
    if (row >= range_.row_end || first >= rows_ || !is_even_) return;
    args_.prefetch = buffers_.rows().At(std::min(row + first, range_.row_end - 1)) + depth;
    args_.prefetch_stride_bytes = buffers_.rows().stride;
    args_.prefetch_step_bytes = kTileDepth - kLines * buffers_.rows().stride;
  }

  // Whether rows before `row_end` are loaded in place at all depths.
  bool IsInPlace(int64_t row_end) const { return row_end <= in_place_end_; }
  size_t row_tiles() const { return static_cast<size_t>(row_tiles_); }

  const AmxEngine& engine_;
  const GemmData& data_;
  const RunBuffers& buffers_;
  const Range& range_;
  int64_t panel_end_;
  AmxRows amx_rows_;
  AmxBlocking blocking_;
  int64_t in_place_end_;  // the row behind AmxBlocking::in_place_rows
  bool is_even_;          // all of A's rows are one stride apart and have a single tap
  bool streams_;
  bool stores_sums_;  // C's elements are the sums, and kernels store them to C
  int32_t* slots_;    // scratch for the sums of all blocks of a chunk of rows and of panels, or of one block
  uint8_t* edge_;     // a block of C, and one of the residual
  AmxSegment* segments_;
  uint8_t* staged_;  // staged rows of A

  int64_t chunk_begin_ = 0, chunk_end_ = 0;  // panels
  int64_t chunk_row_ = 0, chunk_row_end_ = 0;
  int64_t line_begin_ = 0, line_end_ = 0;    // rows of the current line
  const uint8_t* line_ = nullptr;            // the row line_begin_
  int64_t begin_place_ = 0, end_place_ = 0;  // if tiles run on: of the range, see AmxRows::Place()
  const uint8_t* first_row_ = nullptr;       // row begin_place_
  RowBlock next_;                            // the next block of rows
  int64_t row_ = 0, rows_ = 0;               // first row and number of rows of the block
  int64_t row_tiles_ = 0;
  std::array<RowTile, kMaxBlockTiles> tiles_;
  AmxSegment* segments_end_ = nullptr;
  AmxKernelArgs args_;  // its `store` waits for the next kernel, or has been stored
  size_t waiting_panels_ = 0;
  const int8_t* next_b_ = nullptr;
  int64_t next_slot_ = 0;  // of the next block, if the depth is cut
};

Result<std::unique_ptr<Engine>> AmxEngine::Create(const GemmData& data) {
  std::unique_ptr<AmxEngine> engine(new AmxEngine(data));
  RETURN_IF_ERROR(UnshiftCompensation(data, &engine->compensation_));
  RETURN_IF_ERROR(engine->GenerateKernels());
  return std::unique_ptr<Engine>(std::move(engine));
}

Error AmxEngine::GenerateKernels() {
  ASSIGN_OR_RETURN(tile_functions_, GetTileFunctions());
  can_stream_ = data_.element_bytes() == 4;
  AmxKernelSpec spec;
  spec.a_signed = data_.problem.a_type == INTACT_S8;
  spec.width = data_.weights.width;
  const int most_panels = spec.width == kPanelColumns ? kMaxBlockTiles : 1;
  for (const bool streams : {false, true}) {
    if (streams && !can_stream_) continue;
    spec.epilogue = data_.epilogue;
    spec.epilogue.variant.streams = streams;
    for (spec.panels = 1; spec.panels <= most_panels; ++spec.panels) {
      const auto panels = static_cast<size_t>(spec.panels);
      ASSIGN_OR_RETURN(stores_[streams][panels], GetAmxStore({spec.panels, spec.epilogue}));
      for (spec.row_tiles = 1; spec.row_tiles * spec.panels <= kMaxBlockTiles; spec.row_tiles *= 2) {
        ASSIGN_OR_RETURN(kernels_[static_cast<size_t>(spec.row_tiles)][streams][panels], GetAmxKernel(spec));
      }
    }
    if (data_.weights.panels() < kMaxBlockTiles || !PanelsStayInL1(data_.k, Caches())) continue;
    spec.row_tiles = 1;
    spec.panels = kMaxBlockTiles;
    spec.b_stays = true;
    ASSIGN_OR_RETURN(staying_[streams], GetAmxKernel(spec));
    spec.b_stays = false;
  }
  spec.row_tiles = 2;
  spec.panels = std::min(most_panels, 2);
  spec.epilogue = data_.epilogue;
  kernel_name_ = spec.Name();
  return {};
}

// Counts blocks of 2×2 tiles, and of 1×4 tiles for a single last row tile. ChooseAmxBlocking() may choose others.
double AmxEngine::Cost(int64_t m) const {
  const int64_t panels = data_.weights.panels();
  const int64_t steps = CeilDivide(data_.k, kTileDepth);
  const int64_t tiles = CeilDivide(m, kTileRows);
  const int64_t pairs = tiles / 2, single = tiles % 2;
  const int64_t blocks = pairs * CeilDivide(panels, 2) + single * CeilDivide(panels, kMaxBlockTiles);
  const auto products = static_cast<double>(tiles * panels * steps);
  const auto loads = static_cast<double>((pairs + single) * panels * steps);
  const bool is_far = panels * data_.weights.panel_stride_bytes() > Caches().StreamedWeights();
  const TileCosts& costs = Costs().tiles;
  double cost =
      costs.run + costs.block * static_cast<double>(blocks) + costs.product * products +
      (is_far ? costs.load_far : costs.load) * loads +
      (data_.element_bytes() == 1 ? costs.byte_output : costs.output) * static_cast<double>(m * panels);
  if (data_.k % kTileDepth != 0) cost += costs.staged_row * static_cast<double>(m * steps);
  return cost / static_cast<double>(panels * CeilDivide(data_.k, kQuad)) +
         RuntimePackingCost(data_, core::Isa::kAvx512Vnni);
}

int64_t AmxEngine::EdgeBytes() const {
  return data_.ScratchTileBytes(kMaxBlockTiles * kTileRows, kPanelColumns);
}

// One for each tap, and one for staged depths.
int64_t AmxEngine::SegmentBytes() const {
  return RoundUp((data_.taps().count() + 1) * static_cast<int64_t>(sizeof(AmxSegment)), 64);
}

int64_t AmxEngine::ScratchBytes(int64_t rows) const {
  const int64_t most = std::max(Caches().AmxRows(), int64_t{kMaxBlockTiles} * kTileRows * kTileDepth);
  const int64_t staged = std::min(most, RoundUp(rows, kTileRows) * RoundUp(data_.k, kTileDepth));
  return MaxWaitingBlocks(rows, data_.weights.panels(), data_.taps(), Caches()) * kSlotBytes + EdgeBytes() +
         SegmentBytes() + RoundUp(staged, 64);
}

void AmxEngine::RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept {
  Region(*this, buffers, range, scratch).Run();
}

}  // namespace intact::kernels
