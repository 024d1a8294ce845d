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

std::vector<float> SourceNumbers(const Linear& linear) {
  const auto size = static_cast<size_t>(core::BytesOf(linear.a_source_type));
  std::vector<float> numbers(linear.a_source.size() / size);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(core::Decode(linear.a_source_type, &linear.a_source[i * size]));
  }
  return numbers;
}

namespace {

// Quantizes units of `unit` numbers. Each unit's zero point and scale are stored for `rows` rows.
void QuantizeUnits(size_t unit, size_t rows, const Quantizer& quantizer, Linear* linear) {
  const std::vector<float> x = SourceNumbers(*linear);
  linear->a.clear();
  linear->a_zero_points.clear();
  linear->a_scales.clear();
  for (size_t first = 0; first < x.size(); first += unit) {
    const std::span<const float> numbers = std::span(x).subspan(first, unit);
    const Quantization q = quantizer.choose(linear->a_type, numbers);
    for (const float value : numbers) {
      linear->a.push_back(static_cast<uint8_t>(quantizer.quantize(value, linear->a_type, q)));
    }
    linear->a_zero_points.insert(linear->a_zero_points.end(), rows, q.zero_point);
    linear->a_scales.insert(linear->a_scales.end(), rows, q.scale);
  }
}

}  // namespace

void QuantizeActivations(Gemm* gemm, const Quantizer& quantizer) {
  const bool is_together = gemm->a_quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  const auto k = static_cast<size_t>(gemm->k);
  const size_t rows = gemm->a_source.size() / static_cast<size_t>(core::BytesOf(gemm->a_source_type)) / k;
  const size_t together = is_together ? rows : 1;
  QuantizeUnits(together * k, together, quantizer, gemm);
}

void QuantizeActivations(Conv* conv, const Quantizer& quantizer) {
  const ConvGeometry& g = conv->geometry;
  QuantizeUnits(static_cast<size_t>(g.InputPixels() * g.input_channels), 1, quantizer, conv);
}

}  // namespace intact::reference
