// Repeats the channels of pixels, for depthwise convolutions with a channel multiplier:
//
//   repeats 3:   c0 c1 c2 …   ─►   c0 c0 c0 c1 c1 c1 c2 c2 c2 …
//
// With AVX2, each 32 bytes of the output are a shuffle of 16 bytes of the input. The shuffles recur after a
// *period*, as the outputs of a channel begin at any place in a vector.
#ifndef INTACT_KERNELS_STAGING_REPEATER_H_
#define INTACT_KERNELS_STAGING_REPEATER_H_

#include <array>
#include <cstdint>
#include <vector>

namespace intact::kernels {

class Repeater {
 public:
  Repeater() = default;
  /// `shift`: ActivationShift().
  Repeater(int64_t repeats, uint8_t shift);

  /// Writes outputs [begin, end) of the channels at `from` to `to`, shifted to u8. Reads only the channels of
  /// these outputs. `begin` < `end`.
  void Copy(const uint8_t* from, int64_t begin, int64_t end, uint8_t* to) const noexcept;

 private:
  static constexpr int64_t kMostShuffled = 16;  // with more repeats, filling memory is as fast
  struct Shuffle {
    int64_t offset = 0;  // the first channel, from the period's first channel on
    alignas(32) std::array<uint8_t, 32> channels = {};
  };
  /// Whole periods of `count` channels. Returns the channels that were copied.
  int64_t CopyPeriods(const uint8_t* from, int64_t count, uint8_t* to) const noexcept;
  void CopyChannels(const uint8_t* from, int64_t count, uint8_t* to) const noexcept;

  int64_t repeats_ = 1;
  uint8_t shift_ = 0;
  std::vector<Shuffle> shuffles_;  // of a period; empty without AVX2
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_STAGING_REPEATER_H_
