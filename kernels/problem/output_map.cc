#include "kernels/problem/output_map.h"

#include <cstring>
#include <initializer_list>

namespace intact::kernels {
namespace {

// A call of memcpy costs more than the copy of a short row.
void CopyShortRow(const uint8_t* from, int64_t bytes, uint8_t* to) {
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

void ScratchTile::Clear() const noexcept {
  std::memset(residual(), 0, static_cast<size_t>(rows_ * tile_.residual_stride_bytes));
}

}  // namespace intact::kernels
