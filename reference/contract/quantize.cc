#include "reference/contract/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/types.h"
#include "reference/contract/requantize.h"

namespace intact::reference {

Quantization ChooseQuantization(intact_type type, std::span<const float> x) noexcept {
  float lo = 0.0f;
  float hi = 0.0f;
  for (const float value : x) {
    if (!std::isfinite(value)) return {std::numeric_limits<float>::quiet_NaN(), 0};
    lo = std::min(lo, value);
    hi = std::max(hi, value);
  }
  if (type == INTACT_S8) {
    const float scale = std::max(hi, -lo) / 127.0f;
    return {scale == 0.0f ? 1.0f : scale, 0};
  }
  const float range = hi - lo;
  if (!std::isfinite(range)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  float scale = range / 255.0f;
  if (scale == 0.0f) scale = 1.0f;
  return {scale, RoundToType(0.0f - lo / scale, type, 0)};
}

int32_t Quantize(float x, intact_type type, const Quantization& q) noexcept {
  if (std::isnan(q.scale)) return q.zero_point;
  return RoundToType(x / q.scale, type, q.zero_point);
}

double RoundToFloat(float f, intact_type type, double (*round)(double)) noexcept {
  if (type == INTACT_F32 || !std::isfinite(f) || f == 0) return f;
  const core::ElementType& traits = core::TraitsOf(type);
  const int last_bit = std::max(std::ilogb(f), traits.exponent) - traits.fraction;
  const double rounded = std::ldexp(round(std::ldexp(double{f}, -last_bit)), last_bit);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return std::fabs(rounded) > core::LargestOf(type) ? std::copysign(kInfinity, rounded) : rounded;
}

std::vector<float> SourceNumbers(const Gemm& gemm) {
  const auto size = static_cast<size_t>(core::BytesOf(gemm.a_source_type));
  std::vector<float> numbers(gemm.a_source.size() / size);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(core::Decode(gemm.a_source_type, &gemm.a_source[i * size]));
  }
  return numbers;
}

void QuantizeActivations(Gemm* gemm, const Quantizer& quantizer) {
  const std::vector<float> x = SourceNumbers(*gemm);
  const auto k = static_cast<size_t>(gemm->k);
  const size_t rows = x.size() / k;
  const size_t together = gemm->a_quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR ? rows : 1;
  gemm->a.clear();
  gemm->a_zero_points.clear();
  gemm->a_scales.clear();
  for (size_t row = 0; row < rows; row += together) {
    const std::span<const float> numbers = std::span(x).subspan(row * k, together * k);
    const Quantization q = quantizer.choose(gemm->a_type, numbers);
    for (const float value : numbers) {
      gemm->a.push_back(static_cast<uint8_t>(quantizer.quantize(value, gemm->a_type, q)));
    }
    gemm->a_zero_points.insert(gemm->a_zero_points.end(), together, q.zero_point);
    gemm->a_scales.insert(gemm->a_scales.end(), together, q.scale);
  }
}

}  // namespace intact::reference
