// Copies rows of a transposed A. In memory its depths are lines, and a row has one element of each line.
// Kernels read rows with adjacent depths, so some rows at a time are copied.
//
//   depth 0   r0 r1 r2 r3 …             row 0   d0 d1 d2 …
//   depth 1   r0 r1 r2 r3 …     ─►      row 1   d0 d1 d2 …
//   depth 2   …                         row 2   …
//
// Sixteen bytes of each line at a time are transposed in registers. The code is compiled for SSE2: wider
// vectors are no faster.
#ifndef INTACT_KERNELS_STAGING_TRANSPOSE_H_
#define INTACT_KERNELS_STAGING_TRANSPOSE_H_

#include <cstdint>

namespace intact::kernels {

/// Copies `rows` rows of `depths` elements of 1, 2 or 4 bytes. Successive elements of a row are `line_stride`
/// bytes apart at `from` and contiguous at `to`. Rows are `row_stride` bytes apart at `to`.
void Transpose(const uint8_t* from, int64_t line_stride, int64_t rows, int64_t depths, int element_bytes,
               uint8_t* to, int64_t row_stride) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_STAGING_TRANSPOSE_H_
