// What a GEMM and a convolution share, with the bytes of their tensors. "Column" means a column of B, or an
// output channel.
#ifndef INTACT_REFERENCE_CONTRACT_LINEAR_H_
#define INTACT_REFERENCE_CONTRACT_LINEAR_H_

#include <intact/intact.h>

#include <cstdint>
#include <vector>

#include "core/operation.h"
#include "core/types.h"
#include "reference/contract/requantize.h"

namespace intact::reference {

/// Base of Gemm and Conv, which define the layouts of `a` and `b`.
struct Linear : core::Linear {
  // The quantization of A, if runs provide it (intact_quantization). a_zero_points replaces a_zero_point;
  // a_scales multiply `scales`. Each vector has one value per row, or one for the whole tensor; otherwise it
  // is empty. A scale of NaN means that the row has no scale.
  std::vector<int32_t> a_zero_points;
  std::vector<float> a_scales;
  std::vector<uint8_t> a;  // s8 in two's complement
  // The input of a dynamic quantization: elements of a_source_type, shaped as A. The quantization computes a,
  // a_zero_points and a_scales from it. See quantize.h.
  std::vector<uint8_t> a_source;
  std::vector<int8_t> b;  // u8 weights are stored with unchanged bits
  // For models of engines that add the bias before scaling: N elements. If it is empty, these models use
  // bias_f32/scale and scale.
  std::vector<FloatSteps> float_steps;
  std::vector<uint8_t> residual;  // elements of residual_type(), shaped as C; empty if no residual is added

  /// A as it is passed to runs, and the size of its elements.
  const std::vector<uint8_t>& GivenA() const { return IsDynamic() ? a_source : a; }
  int GivenABytes() const { return IsDynamic() ? core::BytesOf(a_source_type) : 1; }
};

/// u8×s8 instructions take s8 activations and u8 weights shifted by these values; zero points are shifted
/// too.
constexpr int32_t ActivationShift(const Linear& linear) noexcept {
  return linear.a_type == INTACT_S8 ? 128 : 0;
}
constexpr int32_t WeightShift(const Linear& linear) noexcept { return linear.b_type == INTACT_U8 ? -128 : 0; }

/// The zero point of row `row` of A; a convolution has one for all rows.
int32_t ActivationZeroPoint(const Linear& linear, int64_t row = 0) noexcept;

/// The scale of row `row`, a factor in addition to the columns' scales; 1 if A has no scales.
float ActivationScale(const Linear& linear, int64_t row = 0) noexcept;

/// The zero point of column n.
int32_t WeightZeroPoint(const Linear& linear, int64_t n) noexcept;

/// The requantization of column n, without the residual and the row's scale.
Requantization RequantizationOf(const Linear& linear, int64_t n);
/// The requantization of output number `output` of C: `q`, the requantization of its column, with the row's
/// scale and the residual if there are any.
Requantization AtOutput(Requantization q, const Linear& linear, int64_t columns, int64_t output);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_LINEAR_H_
