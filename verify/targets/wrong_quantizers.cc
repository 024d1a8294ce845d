#include "verify/targets/wrong_quantizers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <variant>
#include <vector>

#include "reference/contract/quantize.h"

namespace intact::verify {
namespace {

using reference::Quantization;
using reference::RoundToType;

int32_t Truncate(float x, intact_type type, const Quantization& q) noexcept {
  return RoundToType(std::trunc(x / q.scale), type, q.zero_point);
}

int32_t RoundHalfAway(float x, intact_type type, const Quantization& q) noexcept {
  return RoundToType(std::round(x / q.scale), type, q.zero_point);
}

int32_t Multiply(float x, intact_type type, const Quantization& q) noexcept {
  return RoundToType(x * (1.0f / q.scale), type, q.zero_point);
}

int32_t AddZeroPointFirst(float x, intact_type type, const Quantization& q) noexcept {
  return RoundToType(x / q.scale + static_cast<float>(q.zero_point), type, 0);
}

int32_t AddZeroPointLast(float x, intact_type type, const Quantization& q) noexcept {
  return RoundToType(static_cast<float>(RoundToType(x / q.scale, type, 0)), type, q.zero_point);
}

// The range of the numbers, without 0.
Quantization LeaveOutZero(intact_type type, std::span<const float> x) noexcept {
  const Quantization right = reference::ChooseQuantization(type, x);
  if (type == INTACT_S8 || std::isnan(right.scale)) return right;
  const auto [lo, hi] = std::ranges::minmax(x);
  const float scale = (hi - lo) / 255.0f;
  if (scale == 0.0f) return {1.0f, 0};
  return {scale, RoundToType(0.0f - lo / scale, type, 0)};
}

// A range of 0 makes a scale of 0, and a zero point of 0/0.
Quantization DivideByZero(intact_type type, std::span<const float> x) noexcept {
  if (std::ranges::all_of(x, [](float value) { return value == 0.0f; })) {
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  return reference::ChooseQuantization(type, x);
}

void QuantizeWith(const reference::Quantizer& quantizer, reference::Operation* operation) {
  reference::VisitLinear([&](auto& one) { reference::QuantizeActivations(&one, quantizer); }, *operation);
}

// Leaves a row or tensor without a scale as it is.
template <int32_t (*kQuantize)(float, intact_type, const Quantization&) noexcept>
void QuantizeBy(reference::Operation* operation) {
  const auto quantize = [](float x, intact_type type, const Quantization& q) noexcept {
    return std::isnan(q.scale) ? q.zero_point : kQuantize(x, type, q);
  };
  QuantizeWith({reference::ChooseQuantization, quantize}, operation);
}

// For a GEMM, exchanges rows and tensor; a convolution has no rows.
void QuantizeOthersTogether(reference::Operation* operation) {
  auto* const gemm = std::get_if<reference::Gemm>(operation);
  if (gemm == nullptr) return QuantizeWith({}, operation);
  const intact_quantization right = gemm->a_quantization;
  gemm->a_quantization = right == INTACT_QUANTIZATION_DYNAMIC_ROWS ? INTACT_QUANTIZATION_DYNAMIC_TENSOR
                                                                   : INTACT_QUANTIZATION_DYNAMIC_ROWS;
  reference::QuantizeActivations(gemm);
  gemm->a_quantization = right;
}

int64_t ItemsOf(const reference::Gemm& gemm) { return gemm.batch; }
int64_t ItemsOf(const reference::Conv& conv) { return conv.geometry.batch; }

// Quantizes the tensor with the zero point and the scale of its first item or image.
void QuantizeByFirstItem(reference::Operation* operation) {
  const auto quantize = [](auto& one) {
    reference::QuantizeActivations(&one);
    if (one.a_quantization != INTACT_QUANTIZATION_DYNAMIC_TENSOR) return;
    const std::vector<float> x = reference::SourceNumbers(one);
    const size_t first = x.size() / static_cast<size_t>(ItemsOf(one));
    const Quantization q = reference::ChooseQuantization(one.a_type, std::span(x).first(first));
    for (size_t i = 0; i < x.size(); ++i) {
      one.a[i] = static_cast<uint8_t>(reference::Quantize(x[i], one.a_type, q));
    }
    std::ranges::fill(one.a_zero_points, q.zero_point);
    std::ranges::fill(one.a_scales, q.scale);
  };
  reference::VisitLinear(quantize, *operation);
}

constexpr WrongQuantizer kWrongQuantizers[] = {
    {"truncating_quantizer", "numbers are truncated instead of rounded", QuantizeBy<Truncate>},
    {"half_away_quantizer", "numbers are rounded half away from zero instead of to even",
     QuantizeBy<RoundHalfAway>},
    {"reciprocal_quantizer", "numbers are multiplied by the reciprocal of their scale", QuantizeBy<Multiply>},
    {"early_zero_point", "the zero point is added before numbers are rounded", QuantizeBy<AddZeroPointFirst>},
    {"late_zero_point", "the zero point is added after numbers are clamped", QuantizeBy<AddZeroPointLast>},
    {"range_without_zero", "the range of numbers need not include 0",
     [](reference::Operation* operation) {
       QuantizeWith({LeaveOutZero, reference::Quantize}, operation);
     }},
    {"zeros_without_scale", "numbers that are all 0 have no scale",
     [](reference::Operation* operation) {
       QuantizeWith({DivideByZero, reference::Quantize}, operation);
     }},
    {"rows_for_tensor", "the rows are quantized together instead of each, or each instead of together",
     QuantizeOthersTogether},
    {"range_of_first_item", "the tensor is quantized by the range of its first item or image",
     QuantizeByFirstItem},
};

}  // namespace

std::span<const WrongQuantizer> WrongQuantizers() { return kWrongQuantizers; }

}  // namespace intact::verify
