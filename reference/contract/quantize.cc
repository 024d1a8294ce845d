#include "reference/contract/quantize.h"

#include <algorithm>
#include <bit>
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

uint16_t ToBfloat16(float f) noexcept {
  if (std::isnan(f)) return 0x7FC0;
  const auto bits = std::bit_cast<uint32_t>(f);
  const uint32_t is_odd = bits >> 16 & 1;
  return static_cast<uint16_t>((bits + 0x7FFF + is_odd) >> 16);
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
