// The requantization of the contract (include/intact/intact.h) in scalar code: the definition that every
// kernel must equal byte for byte. gemm.cc has the code, behind the loops over A and B. Each operation rounds
// separately: compile without floating-point contraction. The code assumes the floating-point environment that programs start with: rounding to nearest
// even, also to integers, and denormals are kept.
#ifndef INTACT_REFERENCE_CONTRACT_REQUANTIZE_H_
#define INTACT_REFERENCE_CONTRACT_REQUANTIZE_H_

#include <intact/intact.h>

#include <cmath>
#include <cstdint>
#include <optional>

#include "core/post_ops.h"

namespace intact::reference {

/// A framework layer's bias and scale, for models of engines that add the bias before scaling. FBGEMM
/// computes (y + bias)·scale, each step in float32.
struct FloatSteps {
  float bias = 0.0f;         // bias/(input scale · weight scale)
  float scale = 1.0f;        // (input scale · weight scale)/output scale
  double exact_scale = 1.0;  // the scale in double precision, from which fixed-point multipliers are made
};

/// y·multiplier·2^(shift − 31) in integer arithmetic, instead of a float32 scale.
struct FixedPoint {
  intact_fixed_point rule = INTACT_FIXED_POINT_NONE;
  std::optional<int32_t> multiplier;  // nullopt: only the shift
  int32_t shift = 0;                  // positive: to the left
};

/// How a sum becomes an output element. Functions take the sum as int64, because the oracle passes sums
/// beyond int32 unchanged. All other callers pass sums within int32.
struct Requantization {
  intact_type c_type = INTACT_S32;
  float scale = 1.0f;
  FixedPoint fixed;
  bool has_bias_f32 = false;
  float bias_f32 = 0.0f;
  std::optional<FloatSteps> float_steps;  // see Linear::float_steps
  core::PostOps post_ops;
  float residual = 0.0f;  // residual − its zero point, if post_ops add a residual
  int32_t zero_point = 0;
  const uint8_t* lookup_table = nullptr;  // 256 elements of c_type, or none
};

/// Multiplies y by a fixed point: the value v of include/intact/intact.h. `y` is within int32.
int64_t MultiplyFixed(int64_t y, const FixedPoint& fixed) noexcept;

/// Applies the post-operations to `f`, which includes the bias. A NaN counts as −∞.
float AfterBias(float f, const Requantization& q) noexcept;

/// float(y)·scale (+ bias), then the post-operations: the f32 output.
float Dequantize(int64_t y, const Requantization& q) noexcept;

/// The u8 or s8 output as an integer: clamp(rne(f) + zero_point) to the type's range, then the lookup table
/// if `q` has one.
int32_t Requantize(int64_t y, const Requantization& q) noexcept;

/// Writes one output element, BytesOf(q.c_type) bytes. An s32 output is y modulo 2³².
void StoreOutput(int64_t y, const Requantization& q, uint8_t* destination) noexcept;

/// Maps an 8-bit output through the lookup table of `q`; without a table, returns it unchanged.
int32_t LookUp(int32_t output, const Requantization& q) noexcept;

/// clamp(rne(f) + zero_point) to the range of `c_type`, u8 or s8; infinities clamp.
int32_t RoundToType(float f, intact_type c_type, int32_t zero_point) noexcept;

/// Rounds `f` to float type `type`; the result may be infinite. `round` rounds f in units of the last bit of
/// numbers of that type near f.
double RoundToFloat(float f, intact_type type, double (*round)(double) = std::nearbyint) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_REQUANTIZE_H_
