#include "byte_table.h"

#include <immintrin.h>

#include <algorithm>

namespace intact::onnxruntime {
namespace {

[[gnu::target("avx512f,avx512bw,avx512vbmi")]] void LookUpAvx512(const ByteTable& table, const uint8_t* x,
                                                                 uint8_t* y, int64_t count) {
  const __m512i t0 = _mm512_loadu_si512(table.data()), t1 = _mm512_loadu_si512(table.data() + 64);
  const __m512i t2 = _mm512_loadu_si512(table.data() + 128), t3 = _mm512_loadu_si512(table.data() + 192);
  for (int64_t i = 0; i < count; i += 64) {
    const int64_t left = count - i;
    const __mmask64 mask = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i bytes = _mm512_maskz_loadu_epi8(mask, x + i);
    const __m512i low = _mm512_permutex2var_epi8(t0, bytes, t1),
                  high = _mm512_permutex2var_epi8(t2, bytes, t3);
    _mm512_mask_storeu_epi8(y + i, mask, _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high));
  }
}

void LookUpPortable(const ByteTable& table, const uint8_t* x, uint8_t* y, int64_t count) {
  std::transform(x, x + count, y, [&](uint8_t byte) { return table[byte]; });
}

// Row r of the table has the results of bytes 16·r to 16·r + 15. A byte whose high four bits are not r becomes a
// byte that shuffles to zero.
[[gnu::target("avx2")]] void LookUpAvx2(const ByteTable& table, const uint8_t* x, uint8_t* y, int64_t count) {
  constexpr int kRows = 16;
  const __m256i saturates = _mm256_set1_epi8(0x70);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    __m256i found = _mm256_setzero_si256();
    for (int r = 0; r < kRows; ++r) {
      const __m256i row = _mm256_broadcastsi128_si256(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(table.data() + static_cast<size_t>(16 * r))));
      const __m256i index =
          _mm256_adds_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(static_cast<char>(16 * r))), saturates);
      found = _mm256_or_si256(found, _mm256_shuffle_epi8(row, index));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), found);
  }
  LookUpPortable(table, x + i, y + i, count - i);
}

}  // namespace

LookUpFunction ChooseLookUp(const Settings& settings) {
  if (HasAvx512(settings) && __builtin_cpu_supports("avx512vbmi")) return LookUpAvx512;
  return HasAvx2(settings) ? LookUpAvx2 : LookUpPortable;
}

}  // namespace intact::onnxruntime
