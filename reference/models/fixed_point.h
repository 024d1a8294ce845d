// The fixed-point multiplications of gemmlowp, TensorFlow Lite and XNNPACK, which replace a float32 scale.
// Some round twice: the high half of a doubled product, then a shift. Their result is sometimes off by 1. An
// explanation of such an output must compute it the same way.
#ifndef INTACT_REFERENCE_MODELS_FIXED_POINT_H_
#define INTACT_REFERENCE_MODELS_FIXED_POINT_H_

#include <cstdint>

#include "reference/contract/requantize.h"

namespace intact::reference {

/// A finite scale above 0 as TensorFlow Lite's QuantizeMultiplier represents it: a multiplier in [2³⁰, 2³¹)
/// and a shift. The shift is not limited here.
FixedPoint FixedPointOf(double scale, intact_fixed_point rule) noexcept;

/// y·scale: the high half of the doubled product, ties up; then a shift, ties as the rule says.
int32_t MultiplyRoundedTwice(int32_t y, const FixedPoint& scale) noexcept;

/// y·scale: the 64-bit product, rounded once, ties up.
int32_t MultiplyRoundedOnce(int32_t y, const FixedPoint& scale) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_FIXED_POINT_H_
