#include "bench/peers/engine_passes.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "core/isas.h"
#include "jit/emitters/emitter.h"

namespace intact::bench {
namespace {

struct Range {
  float low = 0, high = 0;  // 0 is in it
};

using RowQuantization = EnginePasses::RowQuantization;

[[gnu::target("avx2")]] Range FindRange(const float* x, int64_t count) {
  constexpr int64_t kLanes = 8;
  __m256 lows[4] = {}, highs[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (size_t j = 0; j < 4; ++j) {
      const __m256 numbers = _mm256_loadu_ps(x + i + static_cast<int64_t>(j) * kLanes);
      lows[j] = _mm256_min_ps(lows[j], numbers);
      highs[j] = _mm256_max_ps(highs[j], numbers);
    }
  }
  std::array<float, 4 *kLanes> low = {}, high = {};
  for (size_t j = 0; j < 4; ++j) {
    _mm256_storeu_ps(&low[j * kLanes], lows[j]);
    _mm256_storeu_ps(&high[j * kLanes], highs[j]);
  }
  Range range = {*std::ranges::min_element(low), *std::ranges::max_element(high)};
  for (; i < count; ++i) range = {std::min(range.low, x[i]), std::max(range.high, x[i])};
  return range;
}

RowQuantization Choose(const Range& range) {
  RowQuantization row;
  row.scale = (range.high - range.low) / 255.0f;
  if (row.scale == 0) row.scale = 1;
  row.zero_point = static_cast<int32_t>(std::nearbyint(0.0f - range.low / row.scale));
  return row;
}

// The smallest number becomes 0, because it and the zero point are rounded alike. The largest may become 256.
void QuantizeOneByOne(const float* x, int64_t count, const RowQuantization& row, uint8_t* a) {
  for (int64_t i = 0; i < count; ++i) {
    const auto steps = static_cast<int32_t>(std::nearbyint(x[i] / row.scale));
    a[i] = static_cast<uint8_t>(std::min(steps + row.zero_point, 255));
  }
}

[[gnu::target("avx2")]] void QuantizeInYmm(const float* x, int64_t count, const RowQuantization& row,
                                           uint8_t* a) {
  const __m256 scale = _mm256_set1_ps(row.scale);
  const __m256i zero_point = _mm256_set1_epi16(static_cast<int16_t>(row.zero_point));
  // Packing interleaves halves of vectors. This permutation restores the order of doublewords.
  const __m256i places = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m256i steps[4];
    for (size_t j = 0; j < 4; ++j) {
      const __m256 numbers = _mm256_loadu_ps(x + i + static_cast<int64_t>(8 * j));
      steps[j] = _mm256_cvtps_epi32(_mm256_div_ps(numbers, scale));
    }
    const __m256i low = _mm256_adds_epi16(_mm256_packs_epi32(steps[0], steps[1]), zero_point);
    const __m256i high = _mm256_adds_epi16(_mm256_packs_epi32(steps[2], steps[3]), zero_point);
    const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), places);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(a + i), packed);
  }
  QuantizeOneByOne(x + i, count - i, row, a + i);
}

[[gnu::target("avx512f")]] void QuantizeInZmm(const float* x, int64_t count, const RowQuantization& row,
                                              uint8_t* a) {
  constexpr __mmask16 kAll = 0xffff;  // GCC takes intrinsics without a mask for uninitialized
  const __m512 scale = _mm512_set1_ps(row.scale);
  const __m512i zero_point = _mm512_set1_epi32(row.zero_point);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i steps = _mm512_maskz_cvtps_epi32(kAll, _mm512_div_ps(_mm512_loadu_ps(x + i), scale));
    const __m512i values = _mm512_add_epi32(steps, zero_point);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(a + i), _mm512_maskz_cvtusepi32_epi8(kAll, values));
  }
  QuantizeOneByOne(x + i, count - i, row, a + i);
}

/// In place.
[[gnu::target("avx2")]] void DequantizeRow(std::span<const int32_t> column_sums, const float* scales,
                                           const RowQuantization& row, int32_t* c) {
  for (size_t n = 0; n < column_sums.size(); ++n) {
    const auto sum = static_cast<float>(c[n] - row.zero_point * column_sums[n]);
    c[n] = std::bit_cast<int32_t>(sum * (row.scale * scales[n]));
  }
}

}  // namespace

EnginePasses::EnginePasses(core::Isa isa, int64_t m, int64_t k, bool by_row,
                           std::span<const int64_t> column_sums, std::vector<float> scales)
    : isa_(isa),
      k_(k),
      by_row_(by_row),
      column_sums_(column_sums.begin(), column_sums.end()),
      scales_(std::move(scales)),
      rows_(static_cast<size_t>(m)) {}

void EnginePasses::Quantize(const float* x, uint8_t* a) {
  const auto quantize = jit::VectorBytes(isa_) == 64 ? QuantizeInZmm : QuantizeInYmm;
  const auto m = std::ssize(rows_);
  if (!by_row_) {
    std::ranges::fill(rows_, Choose(FindRange(x, m * k_)));
    return quantize(x, m * k_, rows_.front(), a);
  }
  for (RowQuantization& row : rows_) {
    row = Choose(FindRange(x, k_));
    quantize(x, k_, row, a);
    x += k_;
    a += k_;
  }
}

void EnginePasses::Dequantize(int32_t* c) const {
  for (const RowQuantization& row : rows_) {
    DequantizeRow(column_sums_, scales_.data(), row, c);
    c += column_sums_.size();
  }
}

}  // namespace intact::bench
