// The checksum of a pack file, as kernels/weights/pack_file.h documents it, independent of the code that
// writes it. A forged image needs this checksum to be loaded. If a saved image has another checksum, the
// format has changed.
#ifndef INTACT_FUZZ_PACK_CHECKSUM_H_
#define INTACT_FUZZ_PACK_CHECKSUM_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace intact::fuzz {

inline constexpr size_t kChecksumAt = 24, kCoveredFrom = 32;

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

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_PACK_CHECKSUM_H_
