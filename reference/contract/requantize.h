// The requantization of the contract (include/intact/intact.h), in scalar code: the definition that every
// kernel must equal byte for byte. Separate roundings: compile without floating-point contraction. Every
// operation here, the rounding to an integer included, assumes the default floating-point environment (to
// nearest even, denormals kept), as programs start with it.
#ifndef INTACT_REFERENCE_CONTRACT_REQUANTIZE_H_
#define INTACT_REFERENCE_CONTRACT_REQUANTIZE_H_

#include <intact/intact.h>

#include <cstdint>
#include <optional>

#include "core/post_ops.h"

namespace intact::reference {

/// Of a framework's layer, what engines work with: FBGEMM with (y + bias)·scale, each step in float32.
struct FloatSteps {
  float bias = 0.0f;         // bias/(input scale · weight scale)
  float scale = 1.0f;        // (input scale · weight scale)/output scale
  double exact_scale = 1.0;  // the same in double precision: what fixed-point multipliers are made of
};

/// y·multiplier·2^(shift − 31) in whole numbers, in place of float32 ones.
struct FixedPoint {
  intact_fixed_point rule = INTACT_FIXED_POINT_NONE;
  std::optional<int32_t> multiplier;  // nothing: the shift alone
  int32_t shift = 0;                  // above 0: to the left
};

/// How the requantization turns a sum into an output element. Sums are within int32; an oracle of sums that left it
/// passes them whole.
struct Requantization {
  intact_type c_type = INTACT_S32;
  float scale = 1.0f;
  FixedPoint fixed;
  bool has_bias_f32 = false;
  float bias_f32 = 0.0f;
  std::optional<FloatSteps> float_steps;  // see Linear
  core::PostOps post_ops;
  float residual = 0.0f;  // the output's element, less its zero point, if one is added
  int32_t zero_point = 0;
  const uint8_t* lookup_table = nullptr;  // 256 elements of c_type, or none
};

/// v of fixed point, from a y within int32.
int64_t MultiplyFixed(int64_t y, const FixedPoint& fixed) noexcept;

/// What follows the bias: the post-operations. A NaN counts as −∞.
float AfterBias(float f, const Requantization& q) noexcept;

/// float(y)·scale (+ bias), then the post-operations: the f32 output.
float Dequantize(int64_t y, const Requantization& q) noexcept;

/// The u8 or s8 output as an integer: clamp(rne(f) + zero_point) to the type's range, or what the table has in
/// its place.
int32_t Requantize(int64_t y, const Requantization& q) noexcept;

/// What the table of `q`, if there is one, has in the place of an 8-bit output.
int32_t LookUp(int32_t output, const Requantization& q) noexcept;

/// clamp(rne(f) + zero_point) to the range of `c_type`, u8 or s8; infinities clamp.
int32_t RoundToType(float f, intact_type c_type, int32_t zero_point) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_REQUANTIZE_H_
