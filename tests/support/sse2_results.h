// What the operations of SSE2 that compiled code uses make of two vectors. For the instructions, and for their twins of
// off_x86: include this after the header with the operations.
#ifndef INTACT_TESTS_SUPPORT_SSE2_RESULTS_H_
#define INTACT_TESTS_SUPPORT_SSE2_RESULTS_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace intact::tests {

using Sse2Operand = std::array<uint8_t, 16>;
using Sse2Results = std::vector<Sse2Operand>;

// Both are defined by INTACT_SSE2_RESULTS, each in its own source.
Sse2Results ResultsOfInstructions(const Sse2Operand& x, const Sse2Operand& y);
Sse2Results ResultsOfTwins(const Sse2Operand& x, const Sse2Operand& y);

}  // namespace intact::tests

#define INTACT_SSE2_RESULTS(Name)                                                              \
  intact::tests::Sse2Results intact::tests::Name(const Sse2Operand& x, const Sse2Operand& y) { \
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x.data()));             \
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(y.data()));             \
    float number = 0;                                                                          \
    std::memcpy(&number, x.data(), sizeof(number));                                            \
    const __m128i vectors[] = {_mm_add_epi16(a, b),                                            \
                               _mm_add_epi32(a, b),                                            \
                               _mm_add_epi64(a, b),                                            \
                               _mm_sub_epi16(a, b),                                            \
                               _mm_xor_si128(a, b),                                            \
                               _mm_slli_epi16(a, 8),                                           \
                               _mm_srai_epi16(a, 8),                                           \
                               _mm_cmpgt_epi16(a, b),                                          \
                               _mm_cmpgt_epi32(a, b),                                          \
                               _mm_max_epi16(a, b),                                            \
                               _mm_madd_epi16(a, b),                                           \
                               _mm_sad_epu8(a, b),                                             \
                               _mm_packs_epi32(a, b),                                          \
                               _mm_unpacklo_epi8(a, b),                                        \
                               _mm_unpackhi_epi8(a, b),                                        \
                               _mm_unpacklo_epi16(a, b),                                       \
                               _mm_unpackhi_epi16(a, b),                                       \
                               _mm_unpacklo_epi32(a, b),                                       \
                               _mm_unpackhi_epi32(a, b),                                       \
                               _mm_unpackhi_epi64(a, b),                                       \
                               _mm_setzero_si128(),                                            \
                               _mm_set1_epi8(static_cast<char>(x[0])),                         \
                               _mm_set1_epi16(static_cast<short>(-x[0])),                      \
                               _mm_set1_epi32(-x[0]),                                          \
                               _mm_set1_epi32(_mm_cvtsi128_si32(a)),                           \
                               _mm_set1_epi32(static_cast<int>(_mm_cvtsi128_si64(a) >> 32)),   \
                               _mm_set1_epi32(_mm_cvtss_si32(_mm_set_ss(number)))};            \
    Sse2Results results;                                                                       \
    for (const __m128i& vector : vectors) {                                                    \
      _mm_storeu_si128(reinterpret_cast<__m128i*>(results.emplace_back().data()), vector);     \
    }                                                                                          \
    return results;                                                                            \
  }

#endif  // INTACT_TESTS_SUPPORT_SSE2_RESULTS_H_
