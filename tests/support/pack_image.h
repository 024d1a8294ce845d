// Offsets of the fields of a pack file's header, independent of the code that writes it
// (kernels/weights/pack_file.cc).
#ifndef INTACT_TESTS_SUPPORT_PACK_IMAGE_H_
#define INTACT_TESTS_SUPPORT_PACK_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "fuzz/pack_format.h"

namespace intact::tests {

using fuzz::FillActivations;
using fuzz::kAMaxAt;
using fuzz::kAMinAt;
using fuzz::kASourceTypeAt;
using fuzz::kChecksumAt;
using fuzz::kCoveredFrom;
using fuzz::Seal;

inline constexpr size_t kVersionAt = 8, kHeaderBytesAt = 12, kFileBytesAt = 16, kNAt = 32, kKAt = 40;
inline constexpr size_t kATypeAt = 48, kBTypeAt = 52, kCTypeAt = 56, kModeAt = 60;
inline constexpr size_t kAZeroPointAt = 64, kCZeroPointAt = 68;
inline constexpr size_t kRangeCheckAt = 80, kAQuantizationAt = 84, kOverflowAt = 96;
inline constexpr size_t kActivationAt = 144, kClampMinAt = 148, kClampMaxAt = 152;
inline constexpr size_t kResidualTypeAt = 156, kResidualScaleAt = 160, kResidualZeroPointAt = 164;
// Bits: zero points of weights, bias_s32, bias_f32, scales.
inline constexpr size_t kVectorsAt = 208;
inline constexpr size_t kSpatialDimsAt = 212, kTransposedAt = 216, kChoicesAt = 220;
// For a convolution; 0 in the file of a GEMM.
inline constexpr size_t kInputChannelsAt = 224, kOutputChannelsAt = 232, kGroupsAt = 240;
inline constexpr size_t kInputAt = 248, kKernelAt = 272, kStrideAt = 296, kDilationAt = 320;
inline constexpr size_t kPadBeginAt = 344, kPadEndAt = 368, kOutputPadAt = 392;
// The number of schedules, and the size of their section, the last one. In a schedule's description:
inline constexpr size_t kSchedulesAt = 416, kScheduleBytesAt = 424;
inline constexpr size_t kUnitAt = 8, kLayoutAt = 16, kKeyAt = 64, kEstimateAt = 96, kOrderBytesAt = 120;
inline constexpr size_t kOrderAt = 128;
inline constexpr size_t kHeaderBytes = 440, kWeightsAt = 448;

template <class T>
T Field(std::span<const uint8_t> image, size_t at) {
  T value;
  std::memcpy(&value, &image[at], sizeof(value));
  return value;
}

/// Where the description of each schedule begins.
inline std::vector<size_t> SchedulesIn(std::span<const uint8_t> image) {
  std::vector<size_t> schedules;
  size_t at = image.size() - (Field<size_t>(image, kScheduleBytesAt) + 63) / 64 * 64;
  for (size_t i = 0; i < Field<size_t>(image, kSchedulesAt); ++i) {
    schedules.push_back(at);
    at += kOrderAt + (Field<size_t>(image, at + kOrderBytesAt) + 7) / 8 * 8;
  }
  return schedules;
}

/// The image without its schedules, the only part that depends on the ISA.
inline std::vector<uint8_t> WithoutSchedules(std::vector<uint8_t> image) {
  const size_t size = image.size() - (Field<size_t>(image, kScheduleBytesAt) + 63) / 64 * 64;
  image.resize(size);
  std::memcpy(&image[kFileBytesAt], &size, sizeof(size));
  std::memset(&image[kSchedulesAt], 0, 16);
  Seal(image);
  return image;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_PACK_IMAGE_H_
