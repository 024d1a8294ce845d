// How an accumulator becomes an output: the contract's requantization (requantize.h) and those of others.
#ifndef INTACT_REFERENCE_MODELS_ROUNDING_H_
#define INTACT_REFERENCE_MODELS_ROUNDING_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reference/contract/requantize.h"

namespace intact::reference {

/// Each is the contract but for what it says; where that has no meaning (a type that is not rounded, no bias,
/// no scale of a row, fixed point with a residual) it is the contract.
enum class Rounding : uint8_t {
  kContract,
  // To an 8-bit integer, and of bfloat16 the second and third.
  kHalfUp,
  kHalfAway,
  kTruncation,
  kZeroPointFirst,  // f + zero point is rounded: ties go to even outputs (oneDNN)
  // Before that.
  kFused,          // scale and bias, residual and its scale by FMA
  kResidualFused,  // the latter alone
  kDouble,         // in double precision
  kFlushed,      // denormal operands and results of each step are zeros of their sign (DAZ and FTZ of MXCSR)
  kDivision,     // f = y / (1/scale)
  kRowFirst,     // (y·scale of the row)·scale of the column
  kColumnFirst,  // (y·scale of the column)·scale of the row
  kFloatScale,   // a layer's scale, (input scale·weight scale)/output scale, in float32 steps (XNNPACK)
  kBiasFirst,  // (y + bias/scale)·scale, in floats, such a scale too (FBGEMM; oneDNN before its third version)
  kBiasRounded,  // (y + rne(bias/scale))·scale: an int32 bias (QNNPACK)
  kGemmlowp,     // kBiasRounded; scale as fixed point of 31 bits, high half of the doubled product rounded,
                 // shifted and rounded half away from zero (gemmlowp, TensorFlow Lite)
  kGemmlowpUp,   // the same, the shift rounded half up (TensorFlow Lite's optimized kernels)
  kFixedPoint,   // kBiasRounded; the same fixed point, the product of 64 bits rounded once, half up (XNNPACK)
  kReluByFactor,  // ReLU is a product with 0 below 0, which makes −0 (oneDNN's reference)
  kResidualLast,  // the residual is added to what is already 8 bits, where there is no activation
  kThroughFloat,  // s32 outputs: int32(float(y))
};
inline constexpr std::array kAllRoundings = {
    Rounding::kContract,    Rounding::kHalfUp,         Rounding::kHalfAway,     Rounding::kTruncation,
    Rounding::kFloatScale,  Rounding::kBiasFirst,      Rounding::kFused,        Rounding::kResidualFused,
    Rounding::kDouble,      Rounding::kZeroPointFirst, Rounding::kDivision,     Rounding::kRowFirst,
    Rounding::kColumnFirst, Rounding::kBiasRounded,    Rounding::kGemmlowp,     Rounding::kGemmlowpUp,
    Rounding::kFixedPoint,  Rounding::kResidualLast,   Rounding::kThroughFloat, Rounding::kReluByFactor,
    Rounding::kFlushed};

/// "half up", "fused multiply-add", …
std::string_view ToString(Rounding rounding);
/// What ToString() gave.
std::optional<Rounding> ParseRounding(std::string_view text);

/// The factors of q.scale; the row's is 1 where rows have none.
struct Scales {
  float row = 1.0f, column = 1.0f;
};

/// Writes one output element.
void StoreRounded(int32_t y, const Requantization& q, const Scales& scales, Rounding rounding,
                  uint8_t* destination) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_ROUNDING_H_
