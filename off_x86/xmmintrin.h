// The operations of SSE that compiled code uses (emmintrin.h).
#ifndef INTACT_OFF_X86_XMMINTRIN_H_
#define INTACT_OFF_X86_XMMINTRIN_H_

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>

using __m128 = float __attribute__((vector_size(16), may_alias));

inline __m128 _mm_set_ss(float value) { return __m128{value, 0, 0, 0}; }
// Rounded as the environment says; of a NaN, and beyond int32, the least int32.
inline int _mm_cvtss_si32(__m128 a) {
  const float rounded = std::nearbyint(a[0]);
  if (!(rounded >= -0x1p31f && rounded < 0x1p31f)) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(rounded);
}
inline void _mm_sfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// There is no MXCSR; verify/targets/plugin_target.cc also compares the rounding that the C library reports.
constexpr unsigned _MM_EXCEPT_MASK = 0x3f;
inline unsigned _mm_getcsr() { return 0; }
inline void _mm_setcsr(unsigned /*value*/) {}

#endif  // INTACT_OFF_X86_XMMINTRIN_H_
