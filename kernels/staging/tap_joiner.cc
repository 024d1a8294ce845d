#include "kernels/staging/tap_joiner.h"

#include <immintrin.h>

namespace intact::kernels {

[[gnu::target("avx2")]] void TapJoiner::Copy(const uint8_t* line, int64_t outputs,
                                             uint8_t* to) const noexcept {
  const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(order_.data()));
  for (int64_t i = 0; i < outputs; i += at_once_) {
    const __m128i loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line + i * output_bytes_));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * pitch_), _mm_shuffle_epi8(loaded, order));
  }
}

}  // namespace intact::kernels
