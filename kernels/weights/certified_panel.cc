#include "kernels/weights/certified_panel.h"

#include <immintrin.h>

#include <algorithm>
#include <cstddef>

namespace intact::kernels {
namespace {

// Adds the two pairs of each of eight columns, which are int16.
[[gnu::target("avx2")]] inline void AddPairs(__m256i pairs, PanelSums::Columns* columns, size_t first) {
  alignas(32) std::array<int32_t, kPanelColumns / 2> sums;
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums.data()), _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  for (size_t i = 0; i < sums.size(); ++i) (*columns)[first + i] += sums[i];
}

}  // namespace

[[gnu::target("avx2")]] PanelSums SumPanelByAvx2(const PackedWeights& weights, int64_t panel, int16_t most,
                                                 int16_t least) {
  // The sums of these quads fit int16. The quads stay in L1.
  constexpr int64_t kQuadsAtOnce = 64;
  constexpr size_t kColumns = kPanelColumns / 2;
  const __m256i zero = _mm256_setzero_si256();
  const __m256i ones = _mm256_set1_epi8(1);
  const __m256i mosts = _mm256_set1_epi16(most);
  const __m256i leasts = _mm256_set1_epi16(least);
  PanelSums sums;
  for (int64_t begin = 0; begin < weights.quads(); begin += kQuadsAtOnce) {
    const int64_t end = std::min(weights.quads(), begin + kQuadsAtOnce);
    for (size_t first = 0; first < kPanelColumns; first += kColumns) {
      __m256i positive = zero, negative = zero, above = zero, below = zero;
      for (int64_t quad = begin; quad < end; ++quad) {
        const auto* const from = weights.Panel(panel) + quad * kPanelQuadBytes + first * kQuad;
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        const __m256i of_positive = _mm256_maddubs_epi16(ones, _mm256_max_epi8(bytes, zero));
        const __m256i of_negative = _mm256_maddubs_epi16(ones, _mm256_min_epi8(bytes, zero));
        positive = _mm256_add_epi16(positive, of_positive);
        negative = _mm256_add_epi16(negative, of_negative);
        above = _mm256_sub_epi16(above, _mm256_cmpgt_epi16(of_positive, mosts));
        below = _mm256_sub_epi16(below, _mm256_cmpgt_epi16(leasts, of_negative));
      }
      AddPairs(positive, &sums.positive, first);
      AddPairs(negative, &sums.negative, first);
      AddPairs(above, &sums.above, first);
      AddPairs(below, &sums.below, first);
    }
  }
  return sums;
}

}  // namespace intact::kernels
