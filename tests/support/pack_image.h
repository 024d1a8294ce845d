// Where the fields of a pack file's header lie, apart from the code that writes it
// (kernels/weights/pack_file.cc).
#ifndef INTACT_TESTS_SUPPORT_PACK_IMAGE_H_
#define INTACT_TESTS_SUPPORT_PACK_IMAGE_H_

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
inline constexpr size_t kAQuantizationAt = 108, kASourceTypeAt = 112;
inline constexpr size_t kHasBiasF32At = 116, kHasBiasS32At = 120;
inline constexpr size_t kSpatialDimsAt = 124, kTransposedAt = 128, kChoicesAt = 132;
// A convolution's; 0 in the file of a GEMM.
inline constexpr size_t kInputChannelsAt = 136, kOutputChannelsAt = 144, kGroupsAt = 152;
inline constexpr size_t kInputAt = 160, kKernelAt = 184, kStrideAt = 208, kDilationAt = 232;
inline constexpr size_t kPadBeginAt = 256, kPadEndAt = 280, kOutputPadAt = 304;
// The certificate.
inline constexpr size_t kPairsAt = 328, kFailingPairsAt = 336;
inline constexpr size_t kWorstColumnAt = 344, kWorstFailingPairsAt = 352;
inline constexpr size_t kHeaderBytes = 368, kWeightsAt = 384;

template <class T>
T Field(std::span<const uint8_t> image, size_t at) {
  T value;
  std::memcpy(&value, &image[at], sizeof(value));
  return value;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_PACK_IMAGE_H_
