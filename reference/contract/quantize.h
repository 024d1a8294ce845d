// The dynamic quantization of the contract (include/intact/intact.h) in scalar code. Like
// requantize.h, it assumes the default floating-point environment.
#ifndef INTACT_REFERENCE_CONTRACT_QUANTIZE_H_
#define INTACT_REFERENCE_CONTRACT_QUANTIZE_H_

#include <intact/intact.h>

#include <cstdint>
#include <span>
#include <vector>

#include "reference/contract/conv.h"
#include "reference/contract/gemm.h"

namespace intact::reference {

/// Maps numbers x to 8-bit integers a: x ≙ (a − zero_point)·scale.
struct Quantization {
  float scale = 1.0f;  // NaN: no valid scale
  int32_t zero_point = 0;
};

/// The quantization of `x` to u8 or s8.
Quantization ChooseQuantization(intact_type type, std::span<const float> x) noexcept;
/// sat(rne(x/scale) + zero_point); zero_point if the scale is NaN.
int32_t Quantize(float x, intact_type type, const Quantization& q) noexcept;

/// The two steps of a dynamic quantization. The defaults follow the contract; other functions plant faults.
struct Quantizer {
  Quantization (*choose)(intact_type type, std::span<const float> x) noexcept = ChooseQuantization;
  int32_t (*quantize)(float x, intact_type type, const Quantization& q) noexcept = Quantize;
};

/// The elements of a_source as floats.
std::vector<float> SourceNumbers(const Linear& linear);

/// Fills a, a_zero_points and a_scales from a_source, row by row or for the whole tensor, depending on
/// a_quantization.
void QuantizeActivations(Gemm* gemm, const Quantizer& quantizer = {});
void QuantizeActivations(Conv* conv, const Quantizer& quantizer = {});

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_QUANTIZE_H_
