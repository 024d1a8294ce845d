#include "kernels/base/blocking.h"

#include <unistd.h>

#include <algorithm>

namespace intact::kernels {
namespace {

int64_t CacheSize(int name, int64_t fallback) {
  const int64_t bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

CacheSizes& MutableCaches() {
  static CacheSizes sizes{CacheSize(_SC_LEVEL1_DCACHE_SIZE, 32 << 10),
                          CacheSize(_SC_LEVEL2_CACHE_SIZE, 512 << 10)};
  return sizes;
}

struct Grid {
  int rows, columns;
};

// The rows × columns grid, at most `parts` cells, whose largest cell has the fewest tiles; among equals the
// one with more rows, since a column of cells packs the same rows of A again.
Grid ChooseGrid(int64_t tile_rows, int64_t tile_columns, int parts) {
  Grid best{1, 1};
  int64_t best_tiles = tile_rows * tile_columns;
  for (int rows = static_cast<int>(std::min<int64_t>(parts, tile_rows)); rows >= 1; --rows) {
    const int columns = static_cast<int>(std::min<int64_t>(parts / rows, tile_columns));
    const int64_t tiles = CeilDivide(tile_rows, rows) * CeilDivide(tile_columns, columns);
    if (tiles < best_tiles) {
      best = {rows, columns};
      best_tiles = tiles;
    }
  }
  return best;
}

// Cell `index` of `count` over `tiles` tiles of `size` elements, `extent` elements in all.
void Cut(int64_t tiles, int64_t size, int64_t extent, int64_t index, int64_t count, int64_t* begin,
         int64_t* end) {
  *begin = std::min(extent, tiles * index / count * size);
  *end = std::min(extent, tiles * (index + 1) / count * size);
}

}  // namespace

const CacheSizes& Caches() { return MutableCaches(); }

void SetCachesForTesting(const CacheSizes& sizes) { MutableCaches() = sizes; }

int64_t RowsPerBlock(int64_t row_bytes, int mr) {
  const int64_t rows = Caches().l2_bytes / 4 / std::max<int64_t>(row_bytes, 1);
  return std::max<int64_t>(rows / mr, 1) * mr;
}

int64_t ColumnsPerChunk(int64_t column_bytes, int nr) {
  const int64_t columns = Caches().l2_bytes / 8 / std::max<int64_t>(column_bytes, 1);
  return std::max<int64_t>(columns / nr, 1) * nr;
}

int64_t TileCount(int64_t m, int64_t n, int mr, int nr) { return CeilDivide(m, mr) * CeilDivide(n, nr); }

Range Partition(int64_t m, int64_t n, int mr, int nr, int part, int parts) {
  const int64_t tile_rows = CeilDivide(m, mr);
  const int64_t tile_columns = CeilDivide(n, nr);
  const Grid grid = ChooseGrid(tile_rows, tile_columns, parts);
  if (part >= grid.rows * grid.columns) return {};
  Range range;
  Cut(tile_rows, mr, m, part / grid.columns, grid.rows, &range.row_begin, &range.row_end);
  Cut(tile_columns, nr, n, part % grid.columns, grid.columns, &range.column_begin, &range.column_end);
  return range;
}

}  // namespace intact::kernels
