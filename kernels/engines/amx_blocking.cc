#include "kernels/engines/amx_blocking.h"

#include <numeric>

#include "kernels/codegen/amx_kernel.h"
#include "kernels/engines/cost_table.h"

namespace intact::kernels {
namespace {

// The smallest tile height that needs no more tiles than height kTileRows.
int64_t EvenTile(int64_t rows) { return CeilDivide(rows, CeilDivide(rows, kTileRows)); }

// The most rows between two lines if tiles run on. The sums of a block have room for those between its tiles.
constexpr int64_t kMostBetweenLines = 8;

// Rows from the first to the last one, with those between lines.
int64_t Places(const AmxRows& rows) {
  return rows.Place(rows.first + rows.count - 1) + 1 - rows.Place(rows.first);
}

// Whether tiles that run on are fewer than tiles that do not leave their lines.
bool RunsOn(const AmxRows& rows) {
  if (rows.pitch == 0 || rows.count <= rows.line) return false;
  const int64_t line_tiles = CeilDivide(rows.line, kTileRows);
  return CeilDivide(Places(rows), kTileRows) < CeilDivide(rows.count, rows.line) * line_tiles;
}

// At least the rows of every block in a range of `rows` rows.
int64_t MaxBlockRows(int64_t rows) {
  const int64_t most_tiles = rows <= 2 * kTileRows ? 2 : kMaxBlockTiles;
  return std::min<int64_t>(RoundUp(rows, most_tiles), kMaxBlockTiles * kTileRows);
}

int64_t MaxDepth(int64_t block_rows, const CacheSizes& caches) {
  return std::max<int64_t>(caches.AmxRows() / block_rows / kTileDepth * kTileDepth, kTileDepth);
}

// Cycles of a row in a block of two row tiles with all panels, `steps` tiles deep. A step has four dot
// products and loads two tiles of A and two of B. A product takes a cycle for each quad of the depth, also if
// the tile of A has fewer rows. Loads take a cycle for each row of a tile, or two if rows cross cache lines.
double RowCycles(int64_t tile_rows, int64_t panels, int64_t steps, bool crosses_lines) {
  constexpr double kProducts = kMaxBlockTiles * kTileDepth / kQuad;
  const auto rows = static_cast<double>(tile_rows);
  const double step = std::max(kProducts, 2 * (rows * (crosses_lines ? 2 : 1) + kTileRows));
  return static_cast<double>(CeilDivide(panels, 2) * steps) * step / (2 * rows);
}

// Addresses at this distance share a set of L1: 64 sets of 64-byte lines on every CPU with AMX.
constexpr int64_t kL1WayBytes = 4096;

// Panels of a chunk, in whole blocks.
int64_t MaxChunkPanels(int64_t k, const CacheSizes& caches) {
  const int64_t panels = caches.AmxPanels() / (RoundUp(k, kTileDepth) * kPanelColumns);
  return std::max<int64_t>(panels / kMaxBlockTiles, 1) * kMaxBlockTiles;
}

// Whether, if the depth is cut, a chunk of the whole depth would have only a few panels. If B has more
// panels, A would be read and staged again for each chunk. `stays`: see AmxBlocking::a_stays; then two chunks
// must fit.
bool SharesDepths(int64_t k, bool stays, const CacheSizes& caches) {
  return MaxChunkPanels(k, caches) / (stays ? 2 : 1) <= 2 * kMaxBlockTiles;
}

// If the depth is cut: sums of at most these rows and panels wait in scratch.
constexpr int64_t kMaxChunkRows = 256;
constexpr int64_t kMaxWaitingPanels = 32;

// Panels of a chunk if the depth is cut: a depth block of the chunk and the waiting sums of its rows fit.
int64_t MaxWaitingPanels(int64_t depth, int64_t rows, const CacheSizes& caches) {
  const int64_t panels = caches.AmxPanels() / ((depth + rows * 4) * kPanelColumns);
  return std::clamp(panels / kMaxBlockTiles * kMaxBlockTiles, int64_t{kMaxBlockTiles}, kMaxWaitingPanels);
}

// AmxBlocking::in_place_rows, if A is not staged. Each of `chunks` chunks of panels would copy the last depths.
int64_t InPlaceRows(const AmxRows& rows, int64_t panels, const Taps& taps, int64_t tile_rows,
                    int64_t chunks) {
  const int64_t padding = RoundUp(taps.depth, kTileDepth) - taps.depth;
  if (padding == 0) return rows.count;
  const bool has_gaps = rows.stride <= 0 || rows.stride > taps.depth || rows.first + rows.count > rows.line;
  const double loads = RowCycles(tile_rows, panels, 1, true) - RowCycles(tile_rows, panels, 1, false);
  const double copies = static_cast<double>(chunks) * (Costs().tiles.copy + Costs().tiles.copy_tile);
  if (has_gaps || loads > copies) return 0;
  return std::max<int64_t>(rows.count - CeilDivide(padding, rows.stride), 0);
}

}  // namespace

AmxRows RowsOf(const RowMap& rows, const Range& range) {
  AmxRows of = {range.row_end - range.row_begin, rows.stride, rows.line_rows, range.row_begin, 0};
  if (rows.IsEven() || of.count == 0 || rows.stride <= 0 || rows.line_stride % rows.stride != 0) return of;
  const int64_t pitch = rows.line_stride / rows.stride;
  const auto plane_of = [&](int64_t row) { return row / rows.line_rows / rows.plane_lines; };
  if (pitch < rows.line_rows || pitch > rows.line_rows + kMostBetweenLines ||
      plane_of(range.row_begin) != plane_of(range.row_end - 1)) {
    return of;
  }
  of.pitch = pitch;
  return of;
}

bool PanelsStayInL1(int64_t k, const CacheSizes& caches) {
  return kMaxBlockTiles * kPanelColumns * RoundUp(k, kTileDepth) <= caches.AmxBlockPanels();
}

bool ReadsLinesInPlace(int64_t line, int64_t row_stride, int64_t panels, int64_t tap_count,
                       int64_t tap_depth) {
  const int64_t tap_steps = CeilDivide(tap_depth, kTileDepth);
  const int64_t copies = CeilDivide(panels, MaxChunkPanels(tap_count * tap_depth, Caches()));
  const double in_place =
      RowCycles(EvenTile(line), panels, tap_count * tap_steps, row_stride % kTileDepth != 0);
  const double staged = RowCycles(kTileRows, panels, CeilDivide(tap_count * tap_depth, kTileDepth), false) +
                        static_cast<double>(copies * tap_count) *
                            (Costs().tiles.copy + Costs().tiles.copy_tile * static_cast<double>(tap_steps));
  return in_place <= staged;
}

bool StagesLines(int64_t line, int64_t row_stride, int64_t panels, const Taps& taps) {
  return (taps.count() > 1 && taps.depth % kTileDepth != 0) ||
         !ReadsLinesInPlace(line, row_stride, panels, taps.count(), taps.depth);
}

AmxBlocking ChooseAmxBlocking(const AmxRows& rows, int64_t panels, const Taps& taps,
                              const CacheSizes& caches) {
  const int64_t k = taps.count() * taps.depth;
  AmxBlocking blocking;
  const int64_t block_rows = std::min<int64_t>(rows.count, 2 * kTileRows);
  // Rows of one tap for many panels. L1's share for A cannot hold a block of them at their stride.
  const bool outgrows_l1 =
      taps.count() == 1 && panels > Costs().layout.few_panels && block_rows * rows.stride > caches.AmxRows();
  // Reading A from L2 for each block of columns is faster than staging it. If A comes from beyond L2, L2 keeps a
  // block of its rows: this pays if many panels share them, and if the rows do not map to one set of L1.
  const bool reads_l2 = outgrows_l1 && k > MaxDepth(block_rows, caches) &&
                        (rows.count * rows.stride <= caches.AmxStayingRows() ||
                         (!SharesDepths(k, false, caches) && rows.stride % kL1WayBytes != 0));
  blocking.stages_a = taps.stages_tiles || (outgrows_l1 && !reads_l2);
  blocking.runs_on = !blocking.stages_a && taps.depth % kTileDepth == 0 && RunsOn(rows);
  blocking.tile_rows = EvenTile(blocking.runs_on    ? Places(rows)
                                : blocking.stages_a ? rows.count
                                                    : std::min(rows.count, rows.line));
  const int64_t tiles = CeilDivide(blocking.runs_on ? Places(rows) : rows.count, blocking.tile_rows);
  // Rows that stay in L2 and are staged by rule, not because they are far apart.
  const bool stays = taps.stages_tiles && rows.count * k <= caches.AmxStayingRows();
  const bool shares_depths = blocking.stages_a && SharesDepths(k, stays, caches);
  // With four row tiles, B is read half as often.
  const bool is_far = panels * kPanelColumns * k > caches.StreamedWeights();
  const bool wants_four = tiles >= kMaxBlockTiles && (panels == 1 || (stays && shares_depths && is_far));
  // L1 keeps all panels, and each tile of A is loaded once. The first rows wait for B, so it takes many rows.
  constexpr int64_t kManyTiles = 8;
  blocking.b_stays =
      !wants_four && panels == kMaxBlockTiles && PanelsStayInL1(k, caches) && tiles >= kManyTiles;
  // Storing the sums of the shallowest blocks takes most of their time: a row of four panels is stored faster
  // than two rows of two panels.
  const bool wants_one = blocking.b_stays || (k <= 2 * kTileDepth && panels % kMaxBlockTiles == 0);
  blocking.row_tiles = wants_four ? kMaxBlockTiles : std::min<int64_t>(tiles, wants_one ? 1 : 2);
  const auto cut = [&] {
    const int64_t blocks = CeilDivide(k, MaxDepth(blocking.row_tiles * blocking.tile_rows, caches));
    return RoundUp(CeilDivide(k, blocks), kTileDepth);
  };
  blocking.depth = blocking.stages_a ? cut() : RoundUp(k, kTileDepth);
  blocking.shares_depths = blocking.depth < k && shares_depths;
  blocking.chunk_rows = blocking.shares_depths ? std::min(rows.count, kMaxChunkRows) : 1;
  blocking.chunk_panels = blocking.shares_depths
                              ? MaxWaitingPanels(blocking.depth, blocking.chunk_rows, caches)
                              : MaxChunkPanels(k, caches);
  blocking.a_stays = !blocking.shares_depths && rows.count * k <= caches.AmxStayingRows();
  if (blocking.a_stays && panels > blocking.chunk_panels) {
    // The next chunk is fetched while this one is used, so both must fit. 16 panels suffice to amortize
    // loading A into L1.
    constexpr int64_t kEnough = 16;
    blocking.chunk_panels = std::clamp<int64_t>(blocking.chunk_panels / 2 / kMaxBlockTiles * kMaxBlockTiles,
                                                kMaxBlockTiles, kEnough);
  }
  const int64_t chunks = CeilDivide(panels, blocking.chunk_panels);
  blocking.chunk_panels = RoundUp(CeilDivide(panels, chunks), kMaxBlockTiles);
  if (!blocking.stages_a) {
    blocking.in_place_rows = InPlaceRows(rows, panels, taps, blocking.tile_rows, chunks);
  }
  // The depth of rows in place is cut if
  //   - L1 cannot hold them, and at least four blocks of columns read each depth block: loading and storing
  //     the sums of earlier depths takes time,
  //   - B is in L2 or serves at least four blocks of rows. Else the kernels wait for B, and reading it in
  //     order is faster,
  //   - the rows' stride does not map a depth block to a few sets of L1.
  if (reads_l2 && !blocking.runs_on && block_rows * k > caches.l1d_bytes &&
      blocking.row_tiles * blocking.chunk_panels >= 4 * kMaxBlockTiles && (!is_far || tiles >= 8) &&
      block_rows * std::gcd(rows.stride, kL1WayBytes) <= caches.AmxRows()) {
    blocking.depth = cut();
  }
  return blocking;
}

int64_t MaxWaitingBlocks(int64_t rows, int64_t panels, const Taps& taps, const CacheSizes& caches) {
  const int64_t k = taps.count() * taps.depth;
  if (k <= MaxDepth(MaxBlockRows(rows), caches)) return 1;
  const auto blocks = [&](int64_t chunk_rows, int64_t chunk_panels) {
    return (CeilDivide(chunk_rows, 2 * kTileRows) + 1) * CeilDivide(std::min(panels, chunk_panels), 2);
  };
  if (SharesDepths(k, false, caches)) return blocks(std::min(rows, kMaxChunkRows), kMaxWaitingPanels);
  const int64_t one = blocks(0, MaxChunkPanels(k, caches));
  if (!taps.stages_tiles || !SharesDepths(k, true, caches)) return one;
  const int64_t staying = std::min(caches.AmxStayingRows() / k, kMaxChunkRows);
  return std::max(one, blocks(std::min(rows, staying), kMaxWaitingPanels));
}

}  // namespace intact::kernels
