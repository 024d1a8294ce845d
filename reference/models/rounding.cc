#include "reference/models/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <variant>

#include "core/types.h"
#include "reference/contract/linear.h"
#include "reference/contract/quantize.h"
#include "reference/models/fixed_point.h"

namespace intact::reference {
namespace {

template <class T>
void Store(T value, uint8_t* destination) noexcept {
  std::memcpy(destination, &value, sizeof value);
}

// ----- f, before it is rounded to the output's type -------------------------------------------------------

// A post-operation on f. add(f, r, s) is how an engine computes f + r·s.
template <class Add>
struct Applied {
  double f;
  float residual;
  const Add& add;
  double operator()(const core::AddResidual& op) const noexcept { return add(f, residual, op.scale); }
  double operator()(const core::Relu& /*op*/) const noexcept { return f > 0.0 ? f : 0.0; }
  double operator()(const core::Clamp& op) const noexcept { return std::clamp<double>(f, op.low, op.high); }
};

double WithoutNan(double f) noexcept { return std::isnan(f) ? -std::numeric_limits<double>::infinity() : f; }

// The post-operations in an engine's arithmetic.
template <class Add>
double AfterBiasBy(const Add& add, double f, const Requantization& q) noexcept {
  f = WithoutNan(f);
  for (const core::PostOp& op : q.post_ops) f = WithoutNan(std::visit(Applied<Add>{f, q.residual, add}, op));
  return f;
}

double AddFused(double f, float residual, float scale) noexcept {
  return std::fma(residual, scale, static_cast<float>(f));
}

double Fused(int32_t y, const Requantization& q) noexcept {
  return AfterBiasBy(AddFused, std::fma(static_cast<float>(y), q.scale, q.bias_f32), q);
}

double WithResidualFused(int32_t y, const Requantization& q) noexcept {
  if (!q.post_ops.Has<core::AddResidual>()) return Dequantize(y, q);
  const float scaled = static_cast<float>(y) * q.scale;
  return AfterBiasBy(AddFused, q.has_bias_f32 ? scaled + q.bias_f32 : scaled, q);
}

double InDouble(int32_t y, const Requantization& q) noexcept {
  const auto add = [](double f, double residual, double scale) { return f + residual * scale; };
  return AfterBiasBy(add, static_cast<double>(y) * q.scale + q.bias_f32, q);
}

float Flush(float f) noexcept { return std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f; }

double WithDenormalsFlushed(int32_t y, const Requantization& q, const Scales& scales) noexcept {
  const bool is_product = Flush(scales.row) == scales.row && Flush(scales.column) == scales.column;
  const float scale = is_product ? Flush(q.scale) : Flush(scales.row) * Flush(scales.column);
  float f = Flush(static_cast<float>(y) * scale);
  if (q.has_bias_f32) f = Flush(f + Flush(q.bias_f32));
  const auto add = [](double sum, float residual, float factor) {
    return Flush(static_cast<float>(sum) + Flush(Flush(residual) * Flush(factor)));
  };
  return Flush(static_cast<float>(AfterBiasBy(add, f, q)));
}

double WithEachStepRounded(int32_t y, const Requantization& q, const Scales& scales) noexcept {
  if (!core::IsHalfFloat(q.c_type)) return Dequantize(y, q);
  const auto rounded = [&q](double f) {
    return static_cast<float>(RoundToFloat(static_cast<float>(f), q.c_type));
  };
  float f = rounded(rounded(rounded(static_cast<float>(y)) * scales.row) * scales.column);
  if (q.has_bias_f32) f = rounded(f + q.bias_f32);
  const auto add = [](double sum, float residual, float scale) {
    return static_cast<float>(sum) + residual * scale;
  };
  f = static_cast<float>(WithoutNan(f));
  for (const core::PostOp& op : q.post_ops) {
    f = rounded(WithoutNan(std::visit(Applied<decltype(add)>{f, q.residual, add}, op)));
  }
  return f;
}

double WithNanAsZero(int32_t y, const Requantization& q) noexcept {
  const float scaled = static_cast<float>(y) * q.scale;
  const float f = q.has_bias_f32 ? scaled + q.bias_f32 : scaled;
  return AfterBias(std::isnan(f) ? 0.0f : f, q);
}

// The bias in units of the accumulator.
double BiasOverScale(const Requantization& q) noexcept {
  return q.has_bias_f32 ? static_cast<double>(q.bias_f32) / q.scale : 0.0;
}

double WithFloatScale(int32_t y, const Requantization& q) noexcept {
  Requantization with = q;
  if (q.float_steps) with.scale = q.float_steps->scale;
  return Dequantize(y, with);
}

double WithBiasFirst(int32_t y, const Requantization& q) noexcept {
  const FloatSteps steps =
      q.float_steps.value_or(FloatSteps{static_cast<float>(BiasOverScale(q)), q.scale, double{q.scale}});
  return AfterBias((static_cast<float>(y) + steps.bias) * steps.scale, q);
}

int32_t WithRoundedBias(int32_t y, const Requantization& q) noexcept {
  using Limits = std::numeric_limits<int32_t>;
  const double sum = y + std::nearbyint(BiasOverScale(q));
  if (std::isnan(sum)) return y;
  return static_cast<int32_t>(std::clamp<double>(sum, Limits::min(), Limits::max()));
}

double WithReluByFactor(int32_t y, const Requantization& q) noexcept {
  if (!q.post_ops.Has<core::Relu>()) return Dequantize(y, q);
  Requantization before = q;
  before.post_ops = q.post_ops.Without<core::Relu>();
  const float f = Dequantize(y, before);
  return f > 0.0f ? f : std::copysign(0.0f, f);
}

double WithResidualLast(int32_t y, const Requantization& q) noexcept {
  const bool has_residual = q.post_ops.Has<core::AddResidual>();
  if (!has_residual || q.post_ops.HasActivation() || !core::IsInt8(q.c_type)) return Dequantize(y, q);
  Requantization first = q;
  first.post_ops = q.post_ops.Without<core::AddResidual>();
  const int32_t rounded = RoundToType(Dequantize(y, first), q.c_type, 0);
  return AfterBias(static_cast<float>(rounded), q);
}

double Value(int32_t y, const Requantization& q, const Scales& scales, Rounding rounding) noexcept {
  const auto real = static_cast<float>(y);
  const auto scaled = [&q](float f) { return AfterBias(q.has_bias_f32 ? f + q.bias_f32 : f, q); };
  switch (rounding) {
    case Rounding::kFused:
      return Fused(y, q);
    case Rounding::kResidualFused:
      return WithResidualFused(y, q);
    case Rounding::kDouble:
      return InDouble(y, q);
    case Rounding::kFlushed:
      return WithDenormalsFlushed(y, q, scales);
    case Rounding::kEachStep:
      return WithEachStepRounded(y, q, scales);
    case Rounding::kNanIsZero:
      return WithNanAsZero(y, q);
    case Rounding::kDivision:
      return scaled(real / (1.0f / q.scale));
    case Rounding::kRowFirst:
      return scaled(real * scales.row * scales.column);
    case Rounding::kColumnFirst:
      return scaled(real * scales.column * scales.row);
    case Rounding::kFloatScale:
      return WithFloatScale(y, q);
    case Rounding::kBiasFirst:
      return WithBiasFirst(y, q);
    case Rounding::kBiasRounded:
      return AfterBias(static_cast<float>(WithRoundedBias(y, q)) * q.scale, q);
    case Rounding::kReluByFactor:
      return WithReluByFactor(y, q);
    case Rounding::kResidualLast:
      return WithResidualLast(y, q);
    default:
      return Dequantize(y, q);
  }
}

// ----- 8-bit integers -------------------------------------------------------------------------------------

double RoundToInteger(double f, Rounding rounding) noexcept {
  switch (rounding) {
    case Rounding::kBfloat16First:
      return std::nearbyint(RoundToFloat(static_cast<float>(f), INTACT_BF16));
    case Rounding::kFloat16First:
      return std::nearbyint(RoundToFloat(static_cast<float>(f), INTACT_F16));
    case Rounding::kHalfUp:
      return std::floor(f + 0.5);
    case Rounding::kHalfAway:
      return std::round(f);
    case Rounding::kTruncation:
      return std::trunc(f);
    default:
      return std::nearbyint(f);
  }
}

bool IsFixed(Rounding rounding) noexcept {
  return rounding == Rounding::kGemmlowp || rounding == Rounding::kGemmlowpUp ||
         rounding == Rounding::kFixedPoint;
}

// y scaled by the fixed-point arithmetic of `rounding`. The multiplier comes from the operation, or is made
// from the operation's scale.
int32_t MultiplyAsFixed(int32_t y, const Requantization& q, Rounding rounding) noexcept {
  const auto rule =
      rounding == Rounding::kGemmlowp ? INTACT_FIXED_POINT_HALF_AWAY : INTACT_FIXED_POINT_HALF_UP;
  FixedPoint fixed = q.fixed;
  fixed.rule = rule;
  if (q.fixed.rule == INTACT_FIXED_POINT_NONE) {
    fixed = FixedPointOf(q.float_steps ? q.float_steps->exact_scale : double{q.scale}, rule);
  }
  return rounding == Rounding::kFixedPoint ? MultiplyRoundedOnce(y, fixed) : MultiplyRoundedTwice(y, fixed);
}

double RoundedWithZeroPoint(int32_t y, const Requantization& q, const Scales& scales,
                            Rounding rounding) noexcept {
  if (rounding == Rounding::kZeroPointFirst) {
    return std::nearbyint(Dequantize(y, q) + static_cast<float>(q.zero_point));
  }
  if (!IsFixed(rounding) || q.post_ops.Has<core::AddResidual>() || !std::isfinite(q.scale)) {
    return RoundToInteger(Value(y, q, scales, rounding), rounding) + q.zero_point;
  }
  const int32_t integer = MultiplyAsFixed(WithRoundedBias(y, q), q, rounding);
  return RoundToInteger(AfterBias(static_cast<float>(integer), q), rounding) + q.zero_point;
}

uint8_t Int8(int32_t y, const Requantization& q, const Scales& scales, Rounding rounding) noexcept {
  const double low = q.c_type == INTACT_U8 ? 0.0 : -128.0;
  const double value = std::clamp(RoundedWithZeroPoint(y, q, scales, rounding), low, low + 255.0);
  return static_cast<uint8_t>(LookUp(static_cast<int32_t>(value), q));
}

// ----- other types ----------------------------------------------------------------------------------------

// Truncation turns no finite number into an infinity. An engine that flushes denormals writes none.
double RoundedToFloat(float f, intact_type type, Rounding rounding) noexcept {
  if (rounding == Rounding::kHalfAway) return RoundToFloat(f, type, std::round);
  if (rounding == Rounding::kTruncation) {
    const auto largest = static_cast<float>(core::LargestOf(type));
    return RoundToFloat(std::isinf(f) ? f : std::clamp(f, -largest, largest), type, std::trunc);
  }
  const double rounded = RoundToFloat(f, type);
  const bool is_flushed =
      rounding == Rounding::kFlushed && rounded != 0 && std::ilogb(rounded) < core::TraitsOf(type).exponent;
  return is_flushed ? std::copysign(0.0, rounded) : rounded;
}

int32_t ThroughFloat(int32_t y) noexcept {
  // 2³¹ is what VCVTPS2DQ makes INT32_MIN of.
  const auto rounded = static_cast<int64_t>(static_cast<float>(y));
  return static_cast<int32_t>(static_cast<uint32_t>(rounded));
}

}  // namespace

std::string_view ToString(Rounding rounding) {
  switch (rounding) {
    case Rounding::kContract:
      return "half to even";
    case Rounding::kHalfUp:
      return "half up";
    case Rounding::kHalfAway:
      return "half away from zero";
    case Rounding::kTruncation:
      return "truncation";
    case Rounding::kNanIsZero:
      return "a NaN taken for 0";
    case Rounding::kZeroPointFirst:
      return "zero point added before rounding";
    case Rounding::kBfloat16First:
      return "rounded to bfloat16, then to 8 bits";
    case Rounding::kFloat16First:
      return "rounded to float16, then to 8 bits";
    case Rounding::kEachStep:
      return "each step rounded to the output's 16 bits";
    case Rounding::kFused:
      return "fused multiply-add";
    case Rounding::kResidualFused:
      return "fused multiply-add of the residual";
    case Rounding::kDouble:
      return "double precision";
    case Rounding::kFlushed:
      return "denormals taken for 0";
    case Rounding::kDivision:
      return "division by the scale's reciprocal";
    case Rounding::kRowFirst:
      return "scales multiplied one after the other";
    case Rounding::kColumnFirst:
      return "scales multiplied one after the other, the column's first";
    case Rounding::kFloatScale:
      return "scale computed in float32 steps";
    case Rounding::kBiasFirst:
      return "bias added before scaling";
    case Rounding::kBiasRounded:
      return "bias rounded to int32";
    case Rounding::kGemmlowp:
      return "fixed-point multiplier, rounded twice";
    case Rounding::kGemmlowpUp:
      return "fixed-point multiplier, rounded twice, half up";
    case Rounding::kFixedPoint:
      return "fixed-point multiplier, rounded once";
    case Rounding::kReluByFactor:
      return "ReLU as a product with 0, which makes -0";
    case Rounding::kResidualLast:
      return "the residual added after rounding to 8 bits";
    case Rounding::kThroughFloat:
      return "float round trip";
  }
  return "unknown";
}

std::optional<Rounding> ParseRounding(std::string_view text) {
  for (const Rounding rounding : kAllRoundings) {
    if (ToString(rounding) == text) return rounding;
  }
  return std::nullopt;
}

void StoreRounded(int32_t y, const Requantization& q, const Scales& scales, Rounding rounding,
                  uint8_t* destination) noexcept {
  // Without a scale there is nothing to round.
  const bool is_of_floats = q.fixed.rule != INTACT_FIXED_POINT_NONE && !IsFixed(rounding);
  if (rounding == Rounding::kContract || is_of_floats || std::isnan(q.scale))
    return StoreOutput(y, q, destination);
  if (q.c_type == INTACT_S32) {
    return Store(rounding == Rounding::kThroughFloat ? ThroughFloat(y) : y, destination);
  }
  if (core::IsInt8(q.c_type)) return Store(Int8(y, q, scales, rounding), destination);
  const auto f = static_cast<float>(Value(y, q, scales, rounding));
  core::Encode(q.c_type, RoundedToFloat(f, q.c_type, rounding), destination);
}

}  // namespace intact::reference
