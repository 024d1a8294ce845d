// What a GEMM and a convolution share, with the bytes of their tensors. A column is one of B, or an output
// channel.
#ifndef INTACT_REFERENCE_CONTRACT_LINEAR_H_
#define INTACT_REFERENCE_CONTRACT_LINEAR_H_

#include <intact/intact.h>

#include <cstdint>
#include <vector>

#include "core/operation.h"
#include "core/types.h"
#include "reference/contract/requantize.h"

namespace intact::reference {

/// Gemm and Conv, which are derived from this, say how `a` and `b` are laid out.
struct Linear : core::Linear {
  // Where runs have their own (intact_quantization), in place of a_zero_point, and beside scales: a value a
  // row, of a convolution one for all; else empty. A NaN is the scale of a row that has none.
  std::vector<int32_t> a_zero_points;
  std::vector<float> a_scales;
  std::vector<uint8_t> a;  // s8 in two's complement
  // What a dynamic quantization makes a, a_zero_points and a_scales of: elements of a_source_type, shaped as
  // A. See quantize.h.
  std::vector<uint8_t> a_source;
  std::vector<int8_t> b;  // u8 in the same bits
  // For engines that add the bias before scaling; N, or empty: bias_f32/scale and scale stand for them.
  std::vector<FloatSteps> float_steps;
  std::vector<uint8_t> residual;  // elements of its type, shaped as C; empty if none is added

  /// A as runs are given it, and the bytes of an element.
  const std::vector<uint8_t>& GivenA() const { return IsDynamic() ? a_source : a; }
  int GivenABytes() const { return IsDynamic() ? core::BytesOf(a_source_type) : 1; }
};

/// u8×s8 instructions take s8 activations and u8 weights shifted by these, zero points included.
constexpr int32_t ActivationShift(const Linear& linear) noexcept {
  return linear.a_type == INTACT_S8 ? 128 : 0;
}
constexpr int32_t WeightShift(const Linear& linear) noexcept { return linear.b_type == INTACT_U8 ? -128 : 0; }

/// The zero point of row `row` of A, of a convolution that of all.
int32_t ActivationZeroPoint(const Linear& linear, int64_t row = 0) noexcept;

/// Its scale, which counts beside the columns'; 1 where it has none of its own.
float ActivationScale(const Linear& linear, int64_t row = 0) noexcept;

/// The zero point of column n.
int32_t WeightZeroPoint(const Linear& linear, int64_t n) noexcept;

/// The requantization of column n, without a residual and a row's scale.
Requantization RequantizationOf(const Linear& linear, int64_t n);
/// The requantization of one output, number `output` of C's: `q`, which is its column's, with the scale of
/// its row and the residual, if there are such.
Requantization AtOutput(Requantization q, const Linear& linear, int64_t columns, int64_t output);

/// Writes one output element, BytesOf(q.c_type) bytes. An s32 output is y modulo 2³².
void StoreOutput(int64_t y, const Requantization& q, uint8_t* destination) noexcept;

/// Output bytes, rows of `columns` elements of c_type, from their accumulators.
std::vector<uint8_t> Outputs(const Linear& linear, int64_t columns, const std::vector<int32_t>& accumulators);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_LINEAR_H_
