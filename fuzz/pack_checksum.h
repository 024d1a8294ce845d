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
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (size_t i = kCoveredFrom; i + 8 <= image.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, &image[i], sizeof(word));
    hash = std::rotl(hash ^ word, 29) * 0xff51afd7ed558ccdu;
  }
  std::memcpy(&image[kChecksumAt], &hash, sizeof(hash));
}

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_PACK_CHECKSUM_H_
