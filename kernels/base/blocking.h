// How a GEMM is cut: among threads, and into blocks that fit the caches.
#ifndef INTACT_KERNELS_BASE_BLOCKING_H_
#define INTACT_KERNELS_BASE_BLOCKING_H_

#include <cstdint>

namespace intact::kernels {

inline constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline constexpr int64_t RoundUp(int64_t value, int64_t unit) { return CeilDivide(value, unit) * unit; }

struct CacheSizes {
  int64_t l1d_bytes = 0;
  int64_t l2_bytes = 0;
};

/// Per core, as the operating system tells them; 32 KiB and 512 KiB where it does not.
const CacheSizes& Caches();

/// From now on Caches() are these. Plans are cut by the caches as they were when they were made: only while
/// there is none.
void SetCachesForTesting(const CacheSizes& sizes);

/// Rows of A, of `row_bytes` each, that a block holds: they stay in a quarter of L2. A multiple of mr, at
/// least mr.
int64_t RowsPerBlock(int64_t row_bytes, int mr);

/// Columns of B, of `column_bytes` each, that stay in an eighth of L2 while a block of rows passes them. A
/// multiple of nr, at least nr.
int64_t ColumnsPerChunk(int64_t column_bytes, int nr);

/// A rectangle of C: rows [row_begin, row_end) × columns [column_begin, column_end).
struct Range {
  int64_t row_begin = 0, row_end = 0;
  int64_t column_begin = 0, column_end = 0;
  bool Empty() const { return row_begin >= row_end || column_begin >= column_end; }
};

/// Tiles of mr×nr that cover m×n.
int64_t TileCount(int64_t m, int64_t n, int mr, int nr);

/// Share `part` of `parts` of an m×n output, cut between tiles of mr×nr. The shares are disjoint, cover all
/// of C and are as even as whole tiles allow; some may be empty.
Range Partition(int64_t m, int64_t n, int mr, int nr, int part, int parts);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_BASE_BLOCKING_H_
