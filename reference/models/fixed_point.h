// The multiplications by a fixed-point multiplier that gemmlowp, TensorFlow Lite and XNNPACK have in place of
// a float32 one. Rounding twice, first the high half of a doubled product and then a shift, makes the result 1
// off now and then. What explains such an output must compute it.
#ifndef INTACT_REFERENCE_MODELS_FIXED_POINT_H_
#define INTACT_REFERENCE_MODELS_FIXED_POINT_H_

#include <cstdint>

#include "reference/contract/requantize.h"

namespace intact::reference {

/// A finite scale above 0 as TensorFlow Lite's QuantizeMultiplier has it: a multiplier in [2³⁰, 2³¹), and a
/// shift, here of any size.
FixedPoint FixedPointOf(double scale, intact_fixed_point rule) noexcept;

/// y·scale: the high half of the doubled product, ties up, then a shift, ties as the rule says.
int32_t MultiplyRoundedTwice(int32_t y, const FixedPoint& scale) noexcept;

/// y·scale by the product of 64 bits, which is rounded once, ties up.
int32_t MultiplyRoundedOnce(int32_t y, const FixedPoint& scale) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_FIXED_POINT_H_
