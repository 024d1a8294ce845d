#include "kernels/staging/repeater.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/isas.h"
#include "jit/isa.h"
#include "kernels/runtime/blocking.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
namespace {

constexpr int64_t kLoad = 16;   // bytes of the input that a shuffle reads
constexpr int64_t kStore = 32;  // bytes that it writes

}  // namespace

Repeater::Repeater(int64_t repeats, uint8_t shift) : repeats_(repeats), shift_(shift) {
  const bool shuffles = repeats > 1 && repeats <= kMostShuffled;
  if (!shuffles || !jit::HardwareIsas().Has(core::Isa::kAvx2)) return;
  for (int64_t output = 0; output < std::lcm(repeats, kStore); output += kStore) {
    Shuffle& shuffle = shuffles_.emplace_back();
    shuffle.offset = output / repeats;
    for (int64_t i = 0; i < kStore; ++i) {
      shuffle.channels[static_cast<size_t>(i)] =
          static_cast<uint8_t>((output + i) / repeats - shuffle.offset);
    }
  }
}

void Repeater::Copy(const uint8_t* from, int64_t begin, int64_t end, uint8_t* to) const noexcept {
  if (repeats_ == 1) return CopyActivations(from + begin, end - begin, shift_, to);
  const int64_t first = CeilDivide(begin, repeats_);  // the first channel with all its outputs
  const int64_t head = std::min(first * repeats_, end) - begin;
  if (head > 0) std::memset(to, from[first - 1] ^ shift_, static_cast<size_t>(head));
  const int64_t whole = (end - begin - head) / repeats_;
  const int64_t tail = end - begin - head - whole * repeats_;
  to += head;
  const int64_t done = CopyPeriods(from + first, whole, to);
  CopyChannels(from + first + done, whole - done, to + done * repeats_);
  if (tail > 0) {
    std::memset(to + whole * repeats_, from[first + whole] ^ shift_, static_cast<size_t>(tail));
  }
}

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

// A store of eight outputs may reach into the next channels, whose stores follow.
void Repeater::CopyChannels(const uint8_t* from, int64_t count, uint8_t* to) const noexcept {
  constexpr int64_t kOutputs = 8;
  const uint8_t* const end = to + count * repeats_;
  for (int64_t i = 0; i < count; ++i, to += repeats_) {
    const uint8_t value = from[i] ^ shift_;
    if (repeats_ > kOutputs || end - to < kOutputs) {
      std::memset(to, value, static_cast<size_t>(repeats_));
      continue;
    }
    const uint64_t outputs = value * uint64_t{0x0101010101010101};
    std::memcpy(to, &outputs, sizeof(outputs));
  }
}

}  // namespace intact::kernels
