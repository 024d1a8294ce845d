#include "kernels/weights/cut_panels.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
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

// The columns with an excess, as bits.
[[gnu::target("avx2")]] inline uint32_t ColumnsOf(const int8_t* excess) {
  const auto empty = [&](int64_t half) __attribute__((target("avx2"))) {
    const __m256i quads = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(excess + half));
    const __m256i is_zero = _mm256_cmpeq_epi32(quads, _mm256_setzero_si256());
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(is_zero)));
  };
  return ~(empty(0) | empty(kHalf) << 8) & 0xffff;
}

// Gives back the excess to the quads of `panel`.
void Restore(const ExtraQuad& extra, int64_t offset, int8_t* panel) {
  for (size_t column = 0; column < kPanelColumns; ++column) {
    const int64_t quad = offset / kQuad + extra.quads[column];
    for (size_t i = 0; i < kQuad; ++i) {
      int8_t& weight = panel[quad * kPanelQuadBytes + static_cast<int64_t>(column * kQuad + i)];
      weight = static_cast<int8_t>(weight + extra.weights[column * kQuad + i]);
    }
  }
}

// Cuts the quads of a window, from quad `begin` of `panel` on. False if there is no room for more than `most`
// extra quads; then the quads that are cut are in `extra`.
[[gnu::target("avx2")]] bool CutWindow(const PackedWeights& sizes, __m256i limit, int64_t begin, int64_t most,
                                       int8_t* panel, const ExtraQuads& extra, int64_t* count) {
  const int64_t window = std::min(begin, sizes.quads() - kWindowQuads);
  std::array<int64_t, kPanelColumns> next;  // of each column: the next extra quad without an excess
  next.fill(*count);
  for (int64_t i = begin; i < std::min(begin + kWindowQuads, sizes.quads()); ++i) {
    int8_t* const quad = panel + i * kPanelQuadBytes;
    if (Fits(quad, limit)) continue;
    if (*count == most) return false;
    alignas(32) std::array<int8_t, kPanelQuadBytes> excess;
    Cut(quad, limit, excess.data());
    for (uint32_t columns = ColumnsOf(excess.data()); columns != 0; columns &= columns - 1) {
      const auto column = static_cast<size_t>(std::countr_zero(columns));
      const int64_t place = next[column]++;
      if (place == *count) {
        extra.offsets[place] = window * kQuad;
        extra.quads[place] = {};
        ++*count;
      }
      ExtraQuad& to = extra.quads[place];
      std::memcpy(to.weights.data() + column * kQuad, excess.data() + column * kQuad, kQuad);
      to.quads[column] = static_cast<int32_t>(i - window);
    }
  }
  return true;
}

}  // namespace

[[gnu::target("avx2")]] bool CutPanels(const PackedWeights& sizes, int amax, int64_t most, int8_t* panels,
                                       const ExtraQuads& extra) noexcept {
  const __m256i limit = _mm256_set1_epi16(Limit(amax));
  constexpr int64_t kSlack = 2;
  int64_t count = 0;
  for (int64_t panel = 0; panel < sizes.panels(); ++panel) {
    extra.begins[panel] = count;
    int8_t* const quads = panels + panel * sizes.panel_stride_bytes();
    bool fits = true;
    for (int64_t begin = 0; begin < sizes.quads() && fits; begin += kWindowQuads) {
      fits = CutWindow(sizes, limit, begin, most, quads, extra, &count);
      // If most windows are like the first ones, there will be too many.
      const int64_t done = panel * sizes.quads() + begin + kWindowQuads;
      fits = fits && count <= most * done / (sizes.panels() * sizes.quads()) + kSlack;
    }
    extra.begins[panel + 1] = count;
    if (fits) continue;
    for (int64_t cut = 0; cut <= panel; ++cut) {
      for (int64_t i = extra.begins[cut]; i < extra.begins[cut + 1]; ++i) {
        Restore(extra.quads[i], extra.offsets[i], panels + cut * sizes.panel_stride_bytes());
      }
    }
    return false;
  }
  return true;
}

}  // namespace intact::kernels
