// How an accumulator becomes an output: by the contract's requantization (requantize.h), or by another
// engine's requantization.
#ifndef INTACT_REFERENCE_MODELS_ROUNDING_H_
#define INTACT_REFERENCE_MODELS_ROUNDING_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reference/contract/requantize.h"

namespace intact::reference {

/// Each rounding is the contract except for the difference described here. If the difference does not apply
/// (a type that is not rounded, no bias, no row scale, fixed point with a residual), the rounding equals the
/// contract.
enum class Rounding : uint8_t {
  kContract,
  // Rounding to an 8-bit integer. kHalfAway and kTruncation also round to 16-bit floats.
  kHalfUp,
  kHalfAway,
  kTruncation,
  kNanIsZero,       // a NaN becomes 0 instead of −∞ before the post-operations
  kZeroPointFirst,  // f + zero point is rounded: ties go to even outputs (oneDNN)
  kBfloat16First,   // f is rounded to bfloat16 first
  kFloat16First,    // f is rounded to float16 first
  // 16-bit floats: y, its product with the row's scale, its product with the column's scale, the sum with the
  // bias and each post-operation are rounded to the output's type (PyTorch: products of an integer sum and
  // 16-bit scales).
  kEachStep,
  // Steps before the rounding to an integer.
  kFused,          // scale and bias, residual and its scale by FMA
  kResidualFused,  // only the residual and its scale by FMA
  kDouble,         // in double precision
  kFlushed,      // denormal operands and results of each step are zeros of their sign (DAZ and FTZ of MXCSR)
  kDivision,     // f = y / (1/scale)
  kRowFirst,     // (y·scale of the row)·scale of the column
  kColumnFirst,  // (y·scale of the column)·scale of the row
  kFloatScale,   // a layer's scale, (input scale·weight scale)/output scale, in float32 steps (XNNPACK)
  kBiasFirst,    // (y + bias/scale)·scale in float32 steps; a layer's scale is in float32 steps too (FBGEMM;
                 // oneDNN before version 3)
  kBiasRounded,  // (y + rne(bias/scale))·scale: an int32 bias (QNNPACK)
  kGemmlowp,     // kBiasRounded with a 31-bit fixed-point scale: the high half of the doubled product is
                 // rounded, then shifted and rounded half away from zero (gemmlowp, TensorFlow Lite)
  kGemmlowpUp,   // kGemmlowp, but the shift rounds half up (TensorFlow Lite's optimized kernels)
  kFixedPoint,   // kGemmlowp, but the 64-bit product is rounded once, half up (XNNPACK)
  kReluByFactor,  // ReLU multiplies negative values by 0, which makes −0 (oneDNN's reference)
  kResidualLast,  // the residual is added after rounding to 8 bits, if there is no activation
  kThroughFloat,  // s32 outputs: int32(float(y))
};
inline constexpr std::array kAllRoundings = {
    Rounding::kContract,      Rounding::kHalfUp,       Rounding::kHalfAway,       Rounding::kTruncation,
    Rounding::kNanIsZero,     Rounding::kFloatScale,   Rounding::kBiasFirst,      Rounding::kFused,
    Rounding::kResidualFused, Rounding::kDouble,       Rounding::kZeroPointFirst, Rounding::kDivision,
    Rounding::kRowFirst,      Rounding::kColumnFirst,  Rounding::kBiasRounded,    Rounding::kGemmlowp,
    Rounding::kGemmlowpUp,    Rounding::kFixedPoint,   Rounding::kBfloat16First,  Rounding::kFloat16First,
    Rounding::kEachStep,      Rounding::kResidualLast, Rounding::kThroughFloat,   Rounding::kReluByFactor,
    Rounding::kFlushed};

/// "half up", "fused multiply-add", …
std::string_view ToString(Rounding rounding);
/// The inverse of ToString().
std::optional<Rounding> ParseRounding(std::string_view text);

/// The factors of q.scale; `row` is 1 if rows have no scales.
struct Scales {
  float row = 1.0f, column = 1.0f;
};

/// Writes one output element.
void StoreRounded(int32_t y, const Requantization& q, const Scales& scales, Rounding rounding,
                  uint8_t* destination) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_ROUNDING_H_
