// VPMADDUBSW on this CPU, for the map of pairs (pairs.h).
#ifndef INTACT_VERIFY_STUDIES_MADDUBS_H_
#define INTACT_VERIFY_STUDIES_MADDUBS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace intact::verify {

/// How many inputs clamp, at either end.
struct ClampCount {
  int64_t high = 0;  // at +32767
  int64_t low = 0;   // at −32768
  int64_t Total() const { return high + low; }
  ClampCount& operator+=(const ClampCount& other) {
    high += other.high;
    low += other.low;
    return *this;
  }
  bool operator==(const ClampCount&) const = default;
};

/// Whether this CPU has the instruction, on ymm registers.
bool HasMaddubs();

inline constexpr size_t kPairsBlock = 32;  // bytes of a ymm register

/// The count by the instruction, and the number of lanes that are not the clamped sum. The clamped sum is
/// computed independently in 32 bits, by VPMADDWD of zero-extended activations and sign-extended weights.
/// `pairs`: activations (a0, a1) as adjacent bytes, whole blocks. Needs HasMaddubs().
ClampCount CountByInstruction(std::span<const uint8_t> pairs, int8_t w0, int8_t w1, int64_t* mismatches);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_MADDUBS_H_
