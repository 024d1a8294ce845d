// The range of numbers to be quantized, and the quantization that follows from the range: quantizer.h.
#ifndef INTACT_KERNELS_CODEGEN_NUMBER_RANGE_H_
#define INTACT_KERNELS_CODEGEN_NUMBER_RANGE_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>

#include "core/types.h"

namespace intact::kernels {

/// How a row, or a tensor, is quantized.
struct RowQuantization {
  float scale = 1.0f;  // NaN: no scale exists
  int32_t zero_point = 0;
};

/// The largest positive and the largest negative number (by magnitude), as bits of float32. Positive numbers
/// are compared as signed integers, negative numbers as unsigned integers. So NaNs and infinities are the
/// largest.
struct NumberRange {
  int32_t positive = 0;   // the bits of 0.0 if no number is positive
  uint32_t negative = 0;  // has no sign bit if no number is negative

  void Add(const NumberRange& other) {
    positive = std::max(positive, other.positive);
    negative = std::max(negative, other.negative);
  }
};

/// The scale of s8 is the largest magnitude over kS8Width. The scale of u8 is the range over kU8Width.
inline constexpr float kS8Width = core::HighestOf(INTACT_S8), kU8Width = core::HighestOf(INTACT_U8);
/// Scales from kLeastScale to kLargestScale have a reciprocal without underflow or overflow.
inline constexpr float kLeastScale = 0x1p-60f, kLargestScale = 0x1p60f;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_NUMBER_RANGE_H_
