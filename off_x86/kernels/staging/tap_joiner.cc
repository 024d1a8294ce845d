#include "kernels/staging/tap_joiner.h"

namespace intact::kernels {

void TapJoiner::Copy(const uint8_t* line, int64_t outputs, uint8_t* to) const noexcept {
  for (int64_t i = 0; i < outputs; i += at_once_) {
    for (int64_t byte = 0; byte < kBytes; ++byte) {
      to[i * pitch_ + byte] = line[i * output_bytes_ + order_[static_cast<size_t>(byte)]];
    }
  }
}

}  // namespace intact::kernels
