#include "kernels/pack.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

namespace intact::kernels {
namespace {

uint32_t LoadQuad(const uint8_t* from, int64_t bytes) {
  uint32_t quad = 0;
  std::memcpy(&quad, from, static_cast<size_t>(std::min<int64_t>(bytes, 4)));
  return quad;
}

// Four rows, sixteen depths at a time: a 4×4 transpose of quads.
void PackFourRows(const uint8_t* a, int64_t stride, int64_t depth, __m128i flip, int64_t quad_stride,
                  uint8_t* panel) {
  for (int64_t k = 0; k < depth; k += 16, panel += 4 * quad_stride) {
    const auto row = [&](int64_t i) {
      const auto* from = reinterpret_cast<const __m128i*>(a + i * stride + k);
      return _mm_xor_si128(_mm_loadu_si128(from), flip);
    };
    const __m128i low01 = _mm_unpacklo_epi32(row(0), row(1));
    const __m128i low23 = _mm_unpacklo_epi32(row(2), row(3));
    const __m128i high01 = _mm_unpackhi_epi32(row(0), row(1));
    const __m128i high23 = _mm_unpackhi_epi32(row(2), row(3));
    const auto store = [&](int64_t quad, __m128i value) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(panel + quad * quad_stride), value);
    };
    store(0, _mm_unpacklo_epi64(low01, low23));
    store(1, _mm_unpackhi_epi64(low01, low23));
    store(2, _mm_unpacklo_epi64(high01, high23));
    store(3, _mm_unpackhi_epi64(high01, high23));
  }
}

// The padding of a partial quad is multiplied by zero weights, so its value does not matter; it is flip or
// zero.
void PackOneRow(const uint8_t* a, int64_t begin, int64_t k, uint32_t flip, int64_t quad_stride,
                uint8_t* panel) {
  for (int64_t depth = begin; depth < k; depth += 4) {
    const uint32_t quad = LoadQuad(a + depth, k - depth) ^ flip;
    std::memcpy(panel + depth / 4 * quad_stride, &quad, sizeof(quad));
  }
}

}  // namespace

bool PackWeights(const WeightView& b, PackedWeights* packed) noexcept {
  packed->k = b.k;
  packed->n = b.n;
  if (!packed->data.Resize(static_cast<size_t>(packed->panels() * packed->panel_stride_bytes())))
    return false;
  std::memset(packed->data.data(), 0, packed->data.bytes());
  // Column by column or row by row, whichever reads the caller's memory in order.
  const bool columns_outer = b.stride_k < b.stride_n;
  for (int64_t panel = 0; panel < packed->panels(); ++panel) {
    int8_t* to = packed->data.data() + panel * packed->panel_stride_bytes();
    const int64_t first = panel * kPanelColumns;
    const int64_t columns = std::min<int64_t>(kPanelColumns, b.n - first);
    if (columns_outer) {
      for (int64_t n = 0; n < columns; ++n) {
        for (int64_t k = 0; k < b.k; ++k) to[OffsetInPanel(k, n)] = b.At(k, first + n);
      }
    } else {
      for (int64_t k = 0; k < b.k; ++k) {
        for (int64_t n = 0; n < columns; ++n) to[OffsetInPanel(k, n)] = b.At(k, first + n);
      }
    }
  }
  return true;
}

void PackActivations(const uint8_t* a, int64_t stride, int64_t rows, int64_t k, uint8_t flip,
                     int64_t panel_rows, uint8_t* panel) noexcept {
  const uint32_t flip_quad = flip * 0x01010101u;
  const int64_t quad_stride = panel_rows * kQuad;
  const int64_t whole = k / 16 * 16;
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    PackFourRows(a + row * stride, stride, whole, _mm_set1_epi32(static_cast<int>(flip_quad)), quad_stride,
                 panel + row * kQuad);
    for (int64_t i = row; i < row + 4; ++i) {
      PackOneRow(a + i * stride, whole, k, flip_quad, quad_stride, panel + i * kQuad);
    }
  }
  for (; row < rows; ++row) PackOneRow(a + row * stride, 0, k, flip_quad, quad_stride, panel + row * kQuad);
}

}  // namespace intact::kernels
