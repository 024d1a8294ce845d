// The fixed-point multiplications of gemmlowp, TensorFlow Lite and XNNPACK, which replace a float32 scale.
// Some of them round twice: first the high half of the doubled product, then the result of a shift. So the
// result may be off by 1. To explain an output, the verifier must round as the library did.
#ifndef INTACT_REFERENCE_MODELS_FIXED_POINT_H_
#define INTACT_REFERENCE_MODELS_FIXED_POINT_H_

#include <cstdint>

#include "reference/contract/requantize.h"

namespace intact::reference {

/// A finite scale above 0 as TensorFlow Lite's QuantizeMultiplier represents it: a multiplier in [2³⁰, 2³¹)
/// and a shift. The shift may have any size.
FixedPoint FixedPointOf(double scale, intact_fixed_point rule) noexcept;

/// y·scale, rounded twice: the high half of the doubled product, ties up; then a shift, ties by scale.rule.
int32_t MultiplyRoundedTwice(int32_t y, const FixedPoint& scale) noexcept;

/// y·scale, rounded once: the 64-bit product, shifted, ties up.
int32_t MultiplyRoundedOnce(int32_t y, const FixedPoint& scale) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_FIXED_POINT_H_
