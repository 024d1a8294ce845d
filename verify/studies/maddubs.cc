#include "verify/studies/maddubs.h"

#include <immintrin.h>

namespace intact::verify {
namespace {

// Minus the sum of 16 int16 lanes, which count in −1s.
[[gnu::target("avx2")]] int64_t MinusLaneSum(__m256i lanes) {
  const __m256i sums = _mm256_madd_epi16(lanes, _mm256_set1_epi16(-1));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

}  // namespace

bool HasMaddubs() { return __builtin_cpu_supports("avx2") != 0; }

[[gnu::target("avx2")]] ClampCount CountByInstruction(std::span<const uint8_t> pairs, int8_t w0, int8_t w1,
                                                      int64_t* mismatches) {
  const auto byte = [](int8_t w) { return static_cast<unsigned>(static_cast<uint8_t>(w)); };
  const auto half = [](int8_t w) { return static_cast<unsigned>(static_cast<uint16_t>(int16_t{w})); };
  const __m256i w8 = _mm256_set1_epi16(static_cast<int16_t>(byte(w0) | byte(w1) << 8));
  const __m256i w16 = _mm256_set1_epi32(static_cast<int32_t>(half(w0) | half(w1) << 16));
  const __m256i zero = _mm256_setzero_si256();
  const __m256i top = _mm256_set1_epi32(32767);
  const __m256i bottom = _mm256_set1_epi32(-32768);
  __m256i high = zero;
  __m256i low = zero;
  __m256i wrong = zero;
  for (size_t i = 0; i < pairs.size(); i += kPairsBlock) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&pairs[i]));
    const __m256i lanes = _mm256_maddubs_epi16(a, w8);
    // Four lanes of each half go to `first` and four to `second`; packing them restores the order.
    const __m256i first = _mm256_madd_epi16(_mm256_unpacklo_epi8(a, zero), w16);
    const __m256i second = _mm256_madd_epi16(_mm256_unpackhi_epi8(a, zero), w16);
    const __m256i lanes_first = _mm256_srai_epi32(_mm256_unpacklo_epi16(zero, lanes), 16);
    const __m256i lanes_second = _mm256_srai_epi32(_mm256_unpackhi_epi16(zero, lanes), 16);
    high = _mm256_add_epi16(high, _mm256_packs_epi32(_mm256_cmpgt_epi32(first, lanes_first),
                                                     _mm256_cmpgt_epi32(second, lanes_second)));
    low = _mm256_add_epi16(low, _mm256_packs_epi32(_mm256_cmpgt_epi32(lanes_first, first),
                                                   _mm256_cmpgt_epi32(lanes_second, second)));
    const __m256i right_first =
        _mm256_cmpeq_epi32(lanes_first, _mm256_max_epi32(_mm256_min_epi32(first, top), bottom));
    const __m256i right_second =
        _mm256_cmpeq_epi32(lanes_second, _mm256_max_epi32(_mm256_min_epi32(second, top), bottom));
    const __m256i right = _mm256_packs_epi32(right_first, right_second);
    wrong = _mm256_add_epi16(wrong, _mm256_cmpeq_epi16(right, zero));
  }
  *mismatches += MinusLaneSum(wrong);
  return {MinusLaneSum(high), MinusLaneSum(low)};
}

}  // namespace intact::verify
