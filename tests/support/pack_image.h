// Offsets of the fields of a pack file's header, independent of the code that writes it
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
inline constexpr size_t kAZeroPointAt = 64, kCZeroPointAt = 68, kAMinAt = 72, kAMaxAt = 76;
inline constexpr size_t kRangeCheckAt = 80, kAQuantizationAt = 84, kASourceTypeAt = 88;
inline constexpr size_t kOverflowAt = 96;
inline constexpr size_t kActivationAt = 144, kClampMinAt = 148, kClampMaxAt = 152;
inline constexpr size_t kResidualTypeAt = 156, kResidualScaleAt = 160, kResidualZeroPointAt = 164;
// Bits: zero points of weights, bias_s32, bias_f32, scales.
inline constexpr size_t kVectorsAt = 208;
inline constexpr size_t kSpatialDimsAt = 212, kTransposedAt = 216, kChoicesAt = 220;
// For a convolution; 0 in the file of a GEMM.
inline constexpr size_t kInputChannelsAt = 224, kOutputChannelsAt = 232, kGroupsAt = 240;
inline constexpr size_t kInputAt = 248, kKernelAt = 272, kStrideAt = 296, kDilationAt = 320;
inline constexpr size_t kPadBeginAt = 344, kPadEndAt = 368, kOutputPadAt = 392;
// The certificate.
inline constexpr size_t kPairsAt = 416, kFailingPairsAt = 424;
inline constexpr size_t kWorstColumnAt = 432, kWorstFailingPairsAt = 440;
inline constexpr size_t kHeaderBytes = 456, kWeightsAt = 512;

template <class T>
T Field(std::span<const uint8_t> image, size_t at) {
  T value;
  std::memcpy(&value, &image[at], sizeof(value));
  return value;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_PACK_IMAGE_H_
