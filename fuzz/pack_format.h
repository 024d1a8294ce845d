// What forged pack files need: the checksum that kernels/weights/pack_file.h documents, and activations within
// the header's range, independent of the code that writes files. An image is only loaded with the right
// checksum. If a saved image has another checksum, the format has changed.
#ifndef INTACT_FUZZ_PACK_FORMAT_H_
#define INTACT_FUZZ_PACK_FORMAT_H_

#include <intact/intact.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "support/random.h"

namespace intact::fuzz {

inline constexpr size_t kChecksumAt = 24, kCoveredFrom = 32;
inline constexpr size_t kAMinAt = 72, kAMaxAt = 76, kASourceTypeAt = 88;

/// Writes the checksum of the bytes from kCoveredFrom on into `image`, unless it is too short to have one.
inline void Seal(std::span<uint8_t> image) {
  if (image.size() < kCoveredFrom) return;
  const auto step = [](uint64_t hash, uint64_t word) {
    return std::rotl(hash ^ word, 29) * 0xff51afd7ed558ccdu;
  };
  constexpr uint64_t kStart = 0x9e3779b97f4a7c15u;
  uint64_t lanes[4] = {kStart, kStart, kStart, kStart};
  for (size_t i = 0; kCoveredFrom + 8 * i + 8 <= image.size(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, &image[kCoveredFrom + 8 * i], sizeof(word));
    lanes[i % 4] = step(lanes[i % 4], word);
  }
  uint64_t hash = kStart;
  for (const uint64_t lane : lanes) hash = step(hash, lane);
  std::memcpy(&image[kChecksumAt], &hash, sizeof(hash));
}

/// Fills `a` with activations within the range of an image that was loaded; with zeros if runs quantize A.
inline void FillActivations(std::span<const uint8_t> image, std::span<uint8_t> a) {
  const auto field = [image](size_t at) {
    int32_t value = 0;
    std::memcpy(&value, &image[at], sizeof(value));
    return value;
  };
  int32_t least = field(kAMinAt);
  int32_t most = field(kAMaxAt);
  if (least == 0 && most == 0) most = 255;  // any byte
  if (field(kASourceTypeAt) != INTACT_TYPE_NONE) least = most = 0;
  support::Random random(1, 0, a.size());
  for (uint8_t& activation : a) activation = static_cast<uint8_t>(random.Integer(least, most));
}

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_PACK_FORMAT_H_
