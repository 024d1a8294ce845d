#include "kernels/staging/transpose.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

namespace intact::kernels {
namespace {

constexpr int kVector = 16;    // bytes of an SSE register
constexpr int64_t kLine = 64;  // bytes of a cache line

template <int kBytes>
__m128i InterleaveLow(__m128i a, __m128i b) {
  if constexpr (kBytes == 1) return _mm_unpacklo_epi8(a, b);
  if constexpr (kBytes == 2) return _mm_unpacklo_epi16(a, b);
  if constexpr (kBytes == 4) return _mm_unpacklo_epi32(a, b);
}

template <int kBytes>
__m128i InterleaveHigh(__m128i a, __m128i b) {
  if constexpr (kBytes == 1) return _mm_unpackhi_epi8(a, b);
  if constexpr (kBytes == 2) return _mm_unpackhi_epi16(a, b);
  if constexpr (kBytes == 4) return _mm_unpackhi_epi32(a, b);
}

// Transposes a square: one line for each element of a vector. Interleaving each vector of the first half with
// one of the second half rotates the bits of an element's place by one. After log2(kLines) rounds, line and
// element have changed places.
template <int kBytes>
void TransposeSquare(const uint8_t* from, int64_t line_stride, uint8_t* to, int64_t row_stride) {
  constexpr int kLines = kVector / kBytes;
  __m128i lines[kLines];  // NOLINT(*-avoid-c-arrays): the type has attributes, which std::array ignores
  for (int i = 0; i < kLines; ++i) {
    lines[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * line_stride));
  }
  for (int round = 1; round < kLines; round *= 2) {
    __m128i turned[kLines];  // NOLINT(*-avoid-c-arrays): as above
    for (int i = 0; i < kLines / 2; ++i) {
      turned[2 * i] = InterleaveLow<kBytes>(lines[i], lines[i + kLines / 2]);
      turned[2 * i + 1] = InterleaveHigh<kBytes>(lines[i], lines[i + kLines / 2]);
    }
    for (int i = 0; i < kLines; ++i) lines[i] = turned[i];
  }
  for (int i = 0; i < kLines; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * row_stride), lines[i]);
  }
}

// Transposes a part of a square, at the last rows and depths.
template <int kBytes>
void TransposePart(const uint8_t* from, int64_t line_stride, int64_t rows, int64_t depths, uint8_t* to,
                   int64_t row_stride) {
  constexpr int kLines = kVector / kBytes;
  uint8_t lines[kLines * kVector] = {}, turned[kLines * kVector];
  for (int64_t i = 0; i < depths; ++i) {
    std::memcpy(lines + i * kVector, from + i * line_stride, static_cast<size_t>(rows * kBytes));
  }
  TransposeSquare<kBytes>(lines, kVector, turned, kVector);
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * row_stride, turned + i * kVector, static_cast<size_t>(depths * kBytes));
  }
}

// Reads whole cache lines of each depth, one depth after the other.
template <int kBytes>
void TransposeAll(const uint8_t* from, int64_t line_stride, int64_t rows, int64_t depths, uint8_t* to,
                  int64_t row_stride) {
  constexpr int64_t kSide = kVector / kBytes;
  for (int64_t first = 0; first < rows; first += kLine / kBytes) {
    const int64_t end = std::min(rows, first + kLine / kBytes);
    for (int64_t depth = 0; depth < depths; depth += kSide) {
      for (int64_t row = first; row < end; row += kSide) {
        const uint8_t* const source = from + depth * line_stride + row * kBytes;
        uint8_t* const target = to + row * row_stride + depth * kBytes;
        const int64_t own_rows = std::min(end - row, kSide), own_depths = std::min(depths - depth, kSide);
        if (own_rows == kSide && own_depths == kSide) {
          TransposeSquare<kBytes>(source, line_stride, target, row_stride);
        } else {
          TransposePart<kBytes>(source, line_stride, own_rows, own_depths, target, row_stride);
        }
      }
    }
  }
}

}  // namespace

void Transpose(const uint8_t* from, int64_t line_stride, int64_t rows, int64_t depths, int element_bytes,
               uint8_t* to, int64_t row_stride) noexcept {
  const auto transpose = element_bytes == 1   ? TransposeAll<1>
                         : element_bytes == 2 ? TransposeAll<2>
                                              : TransposeAll<4>;
  transpose(from, line_stride, rows, depths, to, row_stride);
}

}  // namespace intact::kernels
