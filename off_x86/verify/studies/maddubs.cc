#include "verify/studies/maddubs.h"

#include <cstdlib>

namespace intact::verify {

bool HasMaddubs() { return false; }

ClampCount CountByInstruction(std::span<const uint8_t> /*pairs*/, int8_t /*w0*/, int8_t /*w1*/,
                              int64_t* /*mismatches*/) {
  std::abort();
}

}  // namespace intact::verify
