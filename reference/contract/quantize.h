// The dynamic quantization of the contract (include/intact/intact.h), in scalar code, and float types. All
// of it assumes the default floating-point environment, as requantize.h does.
#ifndef INTACT_REFERENCE_CONTRACT_QUANTIZE_H_
#define INTACT_REFERENCE_CONTRACT_QUANTIZE_H_

#include <intact/intact.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/contract/conv.h"
#include "reference/contract/gemm.h"

namespace intact::reference {

/// How numbers x stand as 8-bit integers: x ≙ (a − zero_point)·scale.
struct Quantization {
  float scale = 1.0f;  // NaN: there is none
  int32_t zero_point = 0;
};

/// The quantization of `x` to u8 or s8.
Quantization ChooseQuantization(intact_type type, std::span<const float> x) noexcept;
/// sat(rne(x/scale) + zero_point); zero_point where there is no scale.
int32_t Quantize(float x, intact_type type, const Quantization& q) noexcept;

/// The multiple of the last bit of a float type's numbers about `f` that `round` makes of f: a number of that
/// type, or infinite. `round` takes f in units of the last bit.
double RoundToFloat(float f, intact_type type, double (*round)(double) = std::nearbyint) noexcept;

/// The two steps of a dynamic quantization. Any but these are faulty.
struct Quantizer {
  Quantization (*choose)(intact_type type, std::span<const float> x) noexcept = ChooseQuantization;
  int32_t (*quantize)(float x, intact_type type, const Quantization& q) noexcept = Quantize;
};

/// The numbers of a_source.
std::vector<float> SourceNumbers(const Linear& linear);

/// Fills a, a_zero_points and a_scales from a_source, which a dynamic quantization takes by rows or all
/// together.
void QuantizeActivations(Gemm* gemm, const Quantizer& quantizer = {});
void QuantizeActivations(Conv* conv, const Quantizer& quantizer = {});

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_QUANTIZE_H_
