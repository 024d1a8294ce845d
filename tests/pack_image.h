// Where the fields of a pack file's header lie, apart from the code that writes it
// (kernels/weights/pack_file.cc).
#ifndef INTACT_TESTS_PACK_IMAGE_H_
#define INTACT_TESTS_PACK_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fuzz/pack_checksum.h"

namespace intact::tests {

using fuzz::kChecksumAt;
using fuzz::kCoveredFrom;
using fuzz::Seal;

inline constexpr size_t kVersionAt = 8, kHeaderBytesAt = 12, kFileBytesAt = 16, kNAt = 32, kKAt = 40;
inline constexpr size_t kATypeAt = 48, kBTypeAt = 52, kCTypeAt = 56, kModeAt = 60;
inline constexpr size_t kAZeroPointAt = 64, kCZeroPointAt = 68, kActivationAt = 72, kRangeCheckAt = 76;
inline constexpr size_t kClampMinAt = 80, kClampMaxAt = 84, kAMinAt = 88, kAMaxAt = 92;
inline constexpr size_t kResidualTypeAt = 96, kResidualZeroPointAt = 100, kResidualScaleAt = 104;
inline constexpr size_t kHasBiasF32At = 108, kHasBiasS32At = 112;
inline constexpr size_t kSpatialDimsAt = 116, kTransposedAt = 120, kChoicesAt = 124;
// A convolution's; 0 in the file of a GEMM.
inline constexpr size_t kInputChannelsAt = 128, kOutputChannelsAt = 136, kGroupsAt = 144;
inline constexpr size_t kInputAt = 152, kKernelAt = 176, kStrideAt = 200, kDilationAt = 224;
inline constexpr size_t kPadBeginAt = 248, kPadEndAt = 272, kOutputPadAt = 296;
// The certificate.
inline constexpr size_t kPairsAt = 320, kFailingPairsAt = 328;
inline constexpr size_t kWorstColumnAt = 336, kWorstFailingPairsAt = 344;
inline constexpr size_t kHeaderBytes = 360, kWeightsAt = 384;

template <class T>
T Field(std::span<const uint8_t> image, size_t at) {
  T value;
  std::memcpy(&value, &image[at], sizeof(value));
  return value;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_PACK_IMAGE_H_
