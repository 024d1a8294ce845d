#include "kernels/staging/repeater.h"

namespace intact::kernels {

Repeater::Repeater(int64_t repeats, uint8_t shift) : repeats_(repeats), shift_(shift) {}

void Repeater::Copy(const uint8_t* from, int64_t begin, int64_t end, uint8_t* to) const noexcept {
  for (int64_t i = begin; i < end; ++i) *to++ = from[i / repeats_] ^ shift_;
}

}  // namespace intact::kernels
