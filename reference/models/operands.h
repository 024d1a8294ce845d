// A GEMM's operands as instructions see them, and its sums under a model of instructions.
#ifndef INTACT_REFERENCE_MODELS_OPERANDS_H_
#define INTACT_REFERENCE_MODELS_OPERANDS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/contract/gemm.h"
#include "reference/models/models.h"

namespace intact::reference {

/// a[m,k] as the u8 operand of a u8×s8 instruction: s8 is shifted by +128.
uint8_t ShiftedActivation(const Gemm& gemm, int64_t m, int64_t k) noexcept;
/// b[k,n] as the s8 operand: u8 is shifted by −128.
int8_t ShiftedWeight(const Gemm& gemm, int64_t k, int64_t n) noexcept;

/// The operands of one item, or of a whole batch with one B, as a u8×s8 instruction gets them. Each output's
/// depths are contiguous.
///
///   a  m×k, row m at m·k         ShiftedActivation(m, k); zero points are shifted too
///   w  n×k, column n at n·k      ShiftedWeight(k, n); zero points are shifted too
struct Operands {
  explicit Operands(const Gemm& gemm);
  std::span<const uint8_t> Row(int64_t row) const noexcept;
  /// The row's activations that `model` multiplies.
  std::span<const uint8_t> Row(const Model& model, int64_t row) const noexcept;
  std::span<const int8_t> Column(int64_t column) const noexcept;
  /// bias_s32 − za·Σ_k (w − zw) − zw·Σ_k a, modulo 2³². y = Σ_k a·w + Compensation().
  int32_t Compensation(int64_t row, int64_t column) const noexcept;
  /// y of an output, modulo 2³², as `model` accumulates it. `in_pairs` is InPairs(model, depths).
  int32_t Accumulator(const Model& model, std::span<const int64_t> in_pairs, int64_t row,
                      int64_t column) const;
  /// The products of an output by the contract, (a − za)·(w − zw), in the order of `in_pairs`. kNoDepth has
  /// the product 0.
  std::vector<int32_t> Products(std::span<const int64_t> in_pairs, int64_t row, int64_t column) const;
  /// w − zw of a column: the integers that the contract multiplies activations with.
  std::vector<int32_t> CenteredColumn(int64_t column) const;

  int64_t m, n, k;
  Depths depths;
  std::vector<uint8_t> a;
  std::vector<uint8_t> a_inside;  // `a` with 0 in the padding; empty if `a` has only 0 there
  std::vector<int8_t> w;
  std::vector<int32_t> a_zero_points;  // m
  std::vector<int32_t> w_zero_points;  // n
  std::vector<int32_t> bias;           // n
  std::vector<int64_t> row_sums;       // Σ_k a
  std::vector<int64_t> column_sums;    // Σ_k w
};

/// y[m,n] = Σ_k (a − za)·(b − zb) + bias_s32, batch·m·n values modulo 2³², as `model` accumulates them
/// (Operands::Accumulator()). kExact is the contract.
std::vector<int32_t> Accumulators(const Gemm& gemm, const Model& model);
/// Accumulators of a prepared GEMM.
std::vector<int32_t> Accumulators(const Operands& operands, const Model& model);
/// Accumulators of several GEMMs with equal m and depths. Rows of the result have the columns of all
/// `groups`, in order.
std::vector<int32_t> Accumulators(std::span<const Operands> groups, const Model& model);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_OPERANDS_H_
