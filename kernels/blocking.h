// How a GEMM is cut: among threads, and into blocks that fit the caches.
#ifndef INTACT_KERNELS_BLOCKING_H_
#define INTACT_KERNELS_BLOCKING_H_

#include <cstdint>

namespace intact::kernels {

struct CacheSizes {
  int64_t l1d_bytes = 0;
  int64_t l2_bytes = 0;
};

/// Per core, as the operating system tells them; 32 KiB and 512 KiB where it does not.
const CacheSizes& Caches();

/// Rows of A per block, a multiple of mr: their packed panels stay in half of L2 while B streams by.
int64_t RowsPerBlock(int64_t k, int mr);

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
#endif  // INTACT_KERNELS_BLOCKING_H_
