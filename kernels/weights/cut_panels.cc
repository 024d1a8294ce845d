#include "kernels/weights/cut_panels.h"

#include <immintrin.h>

#include <algorithm>
#include <limits>

namespace intact::kernels {
namespace {

constexpr int64_t kHalf = kPanelQuadBytes / 2;

// The largest size of a pair sum of weights that is exact with activations up to `amax`.
int16_t Limit(int amax) {
  return static_cast<int16_t>(std::numeric_limits<int16_t>::max() / std::max(amax, 1));
}

[[gnu::target("avx2")]] inline __m256i PairSums(const int8_t* half) {
  return _mm256_maddubs_epi16(_mm256_set1_epi8(1),
                              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(half)));
}

// Whether no pair of a quad exceeds `limit`. Weights of different signs never do.
[[gnu::target("avx2")]] inline bool Fits(const int8_t* quad, __m256i limit) {
  const __m256i low = _mm256_abs_epi16(PairSums(quad));
  const __m256i high = _mm256_abs_epi16(PairSums(quad + kHalf));
  const __m256i exceeds = _mm256_cmpgt_epi16(_mm256_max_epi16(low, high), limit);
  return _mm256_testz_si256(exceeds, exceeds) != 0;
}

// Moves the excess of each pair from its first weight to `extra`.
[[gnu::target("avx2")]] inline void Cut(int8_t* quad, __m256i limit, int8_t* extra) {
  const __m256i least = _mm256_sub_epi16(_mm256_setzero_si256(), limit);
  for (int64_t half = 0; half < kPanelQuadBytes; half += kHalf) {
    const __m256i sums = PairSums(quad + half);
    const __m256i excess = _mm256_sub_epi16(sums, _mm256_max_epi16(_mm256_min_epi16(sums, limit), least));
    const __m256i moved = _mm256_and_si256(excess, _mm256_set1_epi16(0xff));
    auto* const from = reinterpret_cast<__m256i*>(quad + half);
    _mm256_storeu_si256(from, _mm256_sub_epi8(_mm256_loadu_si256(from), moved));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(extra + half), moved);
  }
}

}  // namespace

[[gnu::target("avx2")]] bool CutPanels(const PackedWeights& sizes, int amax, int64_t most, int8_t* panels,
                                       const ExtraQuads& extra) noexcept {
  const __m256i limit = _mm256_set1_epi16(Limit(amax));
  const int64_t stride = sizes.panel_stride_bytes();
  int64_t count = 0;
  for (int64_t panel = 0; panel < sizes.panels(); ++panel) {
    extra.begins[panel] = count;
    const int8_t* quad = panels + panel * stride;
    for (int64_t i = 0; i < sizes.quads(); ++i, quad += kPanelQuadBytes) {
      if (Fits(quad, limit)) continue;
      if (count == most) return false;
      extra.offsets[count++] = i * kQuad;
    }
  }
  extra.begins[sizes.panels()] = count;
  for (int64_t panel = 0; panel < sizes.panels(); ++panel) {
    for (int64_t i = extra.begins[panel]; i < extra.begins[panel + 1]; ++i) {
      Cut(panels + panel * stride + extra.offsets[i] * kPanelColumns, limit,
          extra.quads + i * kPanelQuadBytes);
    }
  }
  return true;
}

}  // namespace intact::kernels
