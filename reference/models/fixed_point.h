// The multiplications by a fixed-point multiplier that gemmlowp, TensorFlow Lite and XNNPACK have in place of
// a float32 one. Of rounding twice, the high half of a doubled product and then a shift, the result is 1 off
// now and then, and what explains such an output must compute it.
#ifndef INTACT_REFERENCE_MODELS_FIXED_POINT_H_
#define INTACT_REFERENCE_MODELS_FIXED_POINT_H_

#include <cstdint>

namespace intact::reference {

/// y·scale for a finite scale above 0, in its 31-bit mantissa: halves up the first time, away from zero the
/// second.
int32_t MultiplyRoundedTwice(int32_t y, float scale) noexcept;

/// The same by the product of 64 bits, which is rounded once, halves up.
int32_t MultiplyRoundedOnce(int32_t y, float scale) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_FIXED_POINT_H_
