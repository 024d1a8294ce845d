// The part of repeater.h that uses AVX2.
#include <immintrin.h>

#include <algorithm>

#include "kernels/staging/repeater.h"

namespace intact::kernels {

[[gnu::target("avx2")]] int64_t Repeater::CopyPeriods(const uint8_t* from, int64_t count,
                                                      uint8_t* to) const noexcept {
  if (shuffles_.empty()) return 0;
  const int64_t outputs = std::ssize(shuffles_) * kStore;
  const int64_t channels = outputs / repeats_;
  const int64_t read = std::max(shuffles_.back().offset + kLoad, channels);  // in a period, or behind it
  const int64_t periods = count < read ? 0 : (count - read) / channels + 1;
  const __m256i shift = _mm256_set1_epi8(static_cast<char>(shift_));
  for (const Shuffle& shuffle : shuffles_) {
    const __m256i order = _mm256_load_si256(reinterpret_cast<const __m256i*>(shuffle.channels.data()));
    const uint8_t* x = from + shuffle.offset;
    uint8_t* stored = to;
    for (int64_t i = 0; i < periods; ++i, x += channels, stored += outputs) {
      const __m256i loaded =
          _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(stored),
                          _mm256_xor_si256(_mm256_shuffle_epi8(loaded, order), shift));
    }
    to += kStore;
  }
  return periods * channels;
}

}  // namespace intact::kernels
