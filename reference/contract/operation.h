// What a GEMM and a convolution have in common: the bytes of their tensors, types, zero points and epilogue.
// A column is one of B, or an output channel.
#ifndef INTACT_REFERENCE_CONTRACT_OPERATION_H_
#define INTACT_REFERENCE_CONTRACT_OPERATION_H_

#include <intact/intact.h>

#include <cstdint>
#include <vector>

#include "core/types.h"
#include "reference/contract/requantize.h"

namespace intact::reference {

/// How `a` and `b` are laid out is told where an operation is derived from this; N is its number of columns.
struct Operation {
  intact_type a_type = INTACT_U8;  // u8 or s8
  intact_type b_type = INTACT_S8;
  intact_type c_type = INTACT_S32;
  int32_t a_zero_point = 0;
  // Where rows have their own (intact_quantization), in place of a_zero_point, and beside scales: a value a
  // row; else empty. A NaN is the scale of a row that has none.
  std::vector<int32_t> a_zero_points;
  std::vector<float> a_scales;
  int32_t c_zero_point = 0;
  std::vector<int32_t> b_zero_points;  // N, 1, or empty (all 0)
  std::vector<uint8_t> a;              // s8 in two's complement
  std::vector<int8_t> b;               // u8 in the same bits
  std::vector<int32_t> bias_s32;       // N or empty
  std::vector<float> bias_f32;         // N or empty
  // For engines that add the bias before scaling; N, or empty: bias_f32/scale and scale stand for them.
  std::vector<FloatSteps> float_steps;
  std::vector<float> scales;  // N, 1, or empty (s32 output)
  intact_activation activation = INTACT_ACTIVATION_NONE;
  float clamp_min = 0.0f, clamp_max = 0.0f;
  intact_type residual_type = INTACT_TYPE_NONE;
  std::vector<uint8_t> residual;  // elements of residual_type, shaped as C; empty if there is none
  float residual_scale = 0.0f;
  int32_t residual_zero_point = 0;
};

/// u8×s8 instructions take s8 activations and u8 weights shifted by these, zero points included.
constexpr int32_t ActivationShift(const Operation& operation) noexcept {
  return operation.a_type == INTACT_S8 ? 128 : 0;
}
constexpr int32_t WeightShift(const Operation& operation) noexcept {
  return operation.b_type == INTACT_U8 ? -128 : 0;
}

/// The zero point of column n.
int32_t WeightZeroPoint(const Operation& operation, int64_t n) noexcept;

/// The requantization of column n, without a residual and a row's scale.
Requantization RequantizationOf(const Operation& operation, int64_t n);
/// The requantization of one output, number `output` of C's: `q`, which is its column's, with the scale of
/// its row and the residual, if there are such.
Requantization AtOutput(Requantization q, const Operation& operation, int64_t columns, int64_t output);

/// Writes one output element, BytesOf(q.c_type) bytes. An s32 output is y modulo 2³².
void StoreOutput(int64_t y, const Requantization& q, uint8_t* destination) noexcept;

/// Output bytes, rows of `columns` elements of c_type, from their accumulators.
std::vector<uint8_t> Outputs(const Operation& operation, int64_t columns,
                             const std::vector<int32_t>& accumulators);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_OPERATION_H_
