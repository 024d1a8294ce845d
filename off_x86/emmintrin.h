// The operations of SSE2 that compiled code uses, on the compiler's vectors. Each has the result of the instruction.
#ifndef INTACT_OFF_X86_EMMINTRIN_H_
#define INTACT_OFF_X86_EMMINTRIN_H_

#include "off_x86/xmmintrin.h"

#include <cstdint>
#include <cstring>

using __m128i = int64_t __attribute__((vector_size(16), may_alias));

namespace intact::off_x86 {

using Bytes = int8_t __attribute__((vector_size(16)));
using Words = int16_t __attribute__((vector_size(16)));
using Dwords = int32_t __attribute__((vector_size(16)));

// Lanes [first, first + kCount/2) of a and of b, in turn.
template <class Lanes, int kCount>
inline __m128i Interleave(__m128i a, __m128i b, int first) {
  const auto from_a = (Lanes)a, from_b = (Lanes)b;
  Lanes to = {};
  for (int i = 0; i < kCount / 2; ++i) {
    to[2 * i] = from_a[first + i];
    to[2 * i + 1] = from_b[first + i];
  }
  return (__m128i)to;
}

}  // namespace intact::off_x86

inline __m128i _mm_setzero_si128() { return __m128i{}; }
inline __m128i _mm_set1_epi8(char value) {
  return (__m128i)(intact::off_x86::Bytes{} + static_cast<int8_t>(value));
}
inline __m128i _mm_set1_epi16(short value) { return (__m128i)(intact::off_x86::Words{} + value); }
inline __m128i _mm_set1_epi32(int value) { return (__m128i)(intact::off_x86::Dwords{} + value); }

inline __m128i _mm_loadu_si128(const __m128i* from) {
  __m128i value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline __m128i _mm_load_si128(const __m128i* from) { return *from; }
inline void _mm_storeu_si128(__m128i* to, __m128i value) { std::memcpy(to, &value, sizeof(value)); }
inline void _mm_store_si128(__m128i* to, __m128i value) { *to = value; }
inline int _mm_cvtsi128_si32(__m128i a) { return ((intact::off_x86::Dwords)a)[0]; }
inline int64_t _mm_cvtsi128_si64(__m128i a) { return a[0]; }

// Additions and subtractions are modulo 2^16, 2^32 or 2^64.
inline __m128i _mm_add_epi16(__m128i a, __m128i b) {
  using Unsigned = uint16_t __attribute__((vector_size(16)));
  return (__m128i)((Unsigned)a + (Unsigned)b);
}
inline __m128i _mm_sub_epi16(__m128i a, __m128i b) {
  using Unsigned = uint16_t __attribute__((vector_size(16)));
  return (__m128i)((Unsigned)a - (Unsigned)b);
}
inline __m128i _mm_add_epi32(__m128i a, __m128i b) {
  using Unsigned = uint32_t __attribute__((vector_size(16)));
  return (__m128i)((Unsigned)a + (Unsigned)b);
}
inline __m128i _mm_add_epi64(__m128i a, __m128i b) {
  using Unsigned = uint64_t __attribute__((vector_size(16)));
  return (__m128i)((Unsigned)a + (Unsigned)b);
}
inline __m128i _mm_xor_si128(__m128i a, __m128i b) { return a ^ b; }
inline __m128i _mm_slli_epi16(__m128i a, int count) {
  using Unsigned = uint16_t __attribute__((vector_size(16)));
  return (__m128i)((Unsigned)a << count);
}
inline __m128i _mm_srai_epi16(__m128i a, int count) { return (__m128i)((intact::off_x86::Words)a >> count); }
inline __m128i _mm_cmpgt_epi16(__m128i a, __m128i b) {
  return (__m128i)((intact::off_x86::Words)a > (intact::off_x86::Words)b);
}
inline __m128i _mm_cmpgt_epi32(__m128i a, __m128i b) {
  return (__m128i)((intact::off_x86::Dwords)a > (intact::off_x86::Dwords)b);
}
inline __m128i _mm_max_epi16(__m128i a, __m128i b) {
  const __m128i mask = _mm_cmpgt_epi16(a, b);
  return (a & mask) | (b & ~mask);
}

// The two products of a lane are added modulo 2^32.
inline __m128i _mm_madd_epi16(__m128i a, __m128i b) {
  const auto x = (intact::off_x86::Words)a, y = (intact::off_x86::Words)b;
  intact::off_x86::Dwords sums = {};
  for (int i = 0; i < 4; ++i) {
    const auto product = [&](int j) { return static_cast<uint32_t>(x[j] * y[j]); };
    sums[i] = static_cast<int32_t>(product(2 * i) + product(2 * i + 1));
  }
  return (__m128i)sums;
}
// The sums of each eight bytes.
inline __m128i _mm_sad_epu8(__m128i a, __m128i b) {
  using Unsigned = uint8_t __attribute__((vector_size(16)));
  const auto x = (Unsigned)a, y = (Unsigned)b;
  __m128i sums = {};
  for (int i = 0; i < 16; ++i) sums[i / 8] += x[i] > y[i] ? x[i] - y[i] : y[i] - x[i];
  return sums;
}
inline __m128i _mm_packs_epi32(__m128i a, __m128i b) {
  const auto low = (intact::off_x86::Dwords)a, high = (intact::off_x86::Dwords)b;
  const auto clamp = [](int32_t value) {
    return static_cast<int16_t>(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
  };
  intact::off_x86::Words packed = {};
  for (int i = 0; i < 4; ++i) {
    packed[i] = clamp(low[i]);
    packed[i + 4] = clamp(high[i]);
  }
  return (__m128i)packed;
}

inline __m128i _mm_unpacklo_epi8(__m128i a, __m128i b) {
  return intact::off_x86::Interleave<intact::off_x86::Bytes, 16>(a, b, 0);
}
inline __m128i _mm_unpackhi_epi8(__m128i a, __m128i b) {
  return intact::off_x86::Interleave<intact::off_x86::Bytes, 16>(a, b, 8);
}
inline __m128i _mm_unpacklo_epi16(__m128i a, __m128i b) {
  return intact::off_x86::Interleave<intact::off_x86::Words, 8>(a, b, 0);
}
inline __m128i _mm_unpackhi_epi16(__m128i a, __m128i b) {
  return intact::off_x86::Interleave<intact::off_x86::Words, 8>(a, b, 4);
}
inline __m128i _mm_unpacklo_epi32(__m128i a, __m128i b) {
  return intact::off_x86::Interleave<intact::off_x86::Dwords, 4>(a, b, 0);
}
inline __m128i _mm_unpackhi_epi32(__m128i a, __m128i b) {
  return intact::off_x86::Interleave<intact::off_x86::Dwords, 4>(a, b, 2);
}
inline __m128i _mm_unpackhi_epi64(__m128i a, __m128i b) { return __m128i{a[1], b[1]}; }

#endif  // INTACT_OFF_X86_EMMINTRIN_H_
