// How AMX cuts a range of C: into tiles, blocks and chunks.
//
// All row tiles of a range have one number of rows, so that tiles are configured once. If a line is no
// multiple of this number, its last tile begins earlier and computes some rows of the previous tile again.
//
//   a line of 20 rows     tile 0  rows 0 to 9     a line of 25    tile 0  rows  0 to 12
//                         tile 1  rows 10 to 19                   tile 1  rows 12 to 24, row 12 again
//
// A line is a run of rows at one stride: all rows of a GEMM, or a line of output pixels. Tiles are loaded
// from a line in place. A convolution loads tiles from its band or its input, one tap after the other.
//
// If only a few rows lie between a line's end and the next line, as padding does in a band, tiles may run on
// into the next line. The rows between the lines are computed too, but not stored.
//
//   two lines of 20 rows, 2 rows apart     tile 0  rows 0 to 14, tile 1  rows 15 to 19, 2 between the lines, …
//
// A is staged, that is copied into dense rows, only if loading it in place is impossible or slow:
//   - the last depths of a row, if they are not a whole tile: a load would read beyond the row. Exception: rows
//     without gaps, where the load reads the next rows of the range, if panels are so few that copies cost more
//     than loads that cross cache lines;
//   - all of A, if a block's rows at the caller's stride do not fit in L1 together. Exception: tiles are
//     loaded in place, from L2, if L1 could not hold the staged block at its whole depth, and L2 holds A or
//     many panels;
//   - all of A, if lines are much shorter than tiles, or if taps are not whole tiles: !ReadsLinesInPlace().
//
// If a block of A outgrows L1, the depth is cut into blocks, and the sums wait in scratch for the last block.
// Rows in place are cut only if the hits in L1 save more time than storing and reloading the sums costs. A chunk of
// rows is one block of row tiles. Exception: if L2 holds only a few panels at full depth beside staged rows,
// up to 256 rows pass one depth block of the panels before the next one. A chunk then holds more panels. Without this exception, A would be
// read from far memory, and staged, for every few panels.
#ifndef INTACT_KERNELS_ENGINES_AMX_BLOCKING_H_
#define INTACT_KERNELS_ENGINES_AMX_BLOCKING_H_

#include <algorithm>
#include <cstdint>

#include "kernels/engines/engine.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {

/// The rows of A that a rectangle of C needs.
struct AmxRows {
  int64_t count = 0;
  int64_t stride = 0;  // bytes between rows of a line
  int64_t line = 0;    // rows per line
  int64_t first = 0;   // number of the first row; row 0 begins a line
  int64_t pitch = 0;   // rows from a line's begin to the next line's begin, if tiles may run on; else 0
  /// If tiles run on: the number of rows before row `row`, with the rows between lines.
  int64_t Place(int64_t row) const { return row / line * pitch + row % line; }
  /// The first row at or behind a place.
  int64_t RowAt(int64_t place) const { return place / pitch * line + std::min(place % pitch, line); }
};

/// The rows of a range.
AmxRows RowsOf(const RowMap& rows, const Range& range);

/// How a rectangle of C is cut into tiles, blocks and chunks.
struct AmxBlocking {
  int64_t tile_rows = 0;       // 1 to 16, and at most AmxRows::count and AmxRows::line
  int64_t row_tiles = 0;       // row tiles per block: 1, 2 or 4; leftover tiles: in pairs, then singly
  int64_t depth = 0;           // depths per depth block, a multiple of 64; at least k if there is one block
  bool runs_on = false;        // tiles run on into the next line
  bool stages_a = false;       // stages all of A, not only the ends of rows; then all rows are one line
  bool shares_depths = false;  // several blocks of row tiles share a depth block
  int64_t chunk_rows = 0;      // rows that share a depth block; 1: each block of row tiles has its own
  int64_t chunk_panels = 0;    // panels of B that stay in L2; if shares_depths, a depth block of each
  bool a_stays = false;        // A stays in L2. If true, kernels prefetch B's next chunk, else A's next rows
  bool b_stays = false;        // blocks of 1×4 tiles, for which L1 keeps B: AmxKernelSpec::b_stays
  int64_t in_place_rows =
      0;  // the range's first rows: tiles of these rows may be loaded in place at all depths
};

AmxBlocking ChooseAmxBlocking(const AmxRows& rows, int64_t panels, const Taps& taps,
                              const CacheSizes& caches);

/// Estimates whether loading tiles in place, tap by tap, from lines of `line` rows is faster than staging the
/// lines. Rows are `row_stride` bytes apart. If there are several taps, reading in place needs taps that are
/// whole tiles. So the estimate for reading in place assumes padded taps, the estimate for staging does not.
bool ReadsLinesInPlace(int64_t line, int64_t row_stride, int64_t panels, int64_t tap_count,
                       int64_t tap_depth);
/// The value of Taps::stages_tiles for a convolution with lines of `line` rows.
bool StagesLines(int64_t line, int64_t row_stride, int64_t panels, const Taps& taps);

/// Whether L1 keeps the four panels of a block of one row tile.
bool PanelsStayInL1(int64_t k, const CacheSizes& caches);

/// The maximum number of blocks of sums that wait for their next depths. `rows`: of a range. `panels`: of the
/// weights.
int64_t MaxWaitingBlocks(int64_t rows, int64_t panels, const Taps& taps, const CacheSizes& caches);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_AMX_BLOCKING_H_
