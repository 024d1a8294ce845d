#include "kernels/staging/repeater.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/isas.h"
#include "jit/isa.h"
#include "kernels/runtime/blocking.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
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
