// Scalar GEMM one can read at a glance: the oracle of every differential test.
#ifndef INTACT_REFERENCE_CONTRACT_GEMM_H_
#define INTACT_REFERENCE_CONTRACT_GEMM_H_

#include <intact/intact.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/models/models.h"
#include "reference/contract/operation.h"

namespace intact::reference {

/// How the depths of a convolution's lowered GEMM come about (reference/contract/conv.h).
struct Taps {
  int64_t count = 1, channels = 1;
  std::vector<bool> outside;  // m×count: of each row, the taps that read no pixel of the input; empty: none
};

/// A GEMM with its tensors, dense and row-major: A is m×k, B is k×n, per-column vectors have n elements. A
/// batch is `batch` such items one after the other: of A, of the residual and of outputs always; of B where
/// each has its own.
struct Gemm : Operation {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  bool has_own_b = false;
  std::vector<float> item_scales;         // of own Bs, in place of scales: one for each item; or empty
  std::vector<int32_t> item_zero_points;  // likewise in place of b_zero_points
  intact_quantization quantization = INTACT_QUANTIZATION_STATIC;
  // What a dynamic quantization makes a, a_zero_points and a_scales of: see quantize.h.
  intact_type a_source_type = INTACT_TYPE_NONE;
  std::vector<uint8_t> a_source;  // elements of a_source_type, shaped as A
  std::optional<Taps> taps;       // it is a lowered convolution

  int64_t rows() const { return batch * m; }
  bool is_dynamic() const { return a_source_type != INTACT_TYPE_NONE; }
};

/// Item `i` of a batch, quantized as it is there.
Gemm Item(const Gemm& gemm, int64_t i);

/// B from its columns, n×k; of own Bs one after the other.
std::vector<int8_t> FromColumns(std::span<const int8_t> columns, int64_t n, int64_t k);

/// a[m,k] as the u8 operand that a u8×s8 instruction gets: s8 is shifted by +128.
uint8_t ShiftedActivation(const Gemm& gemm, int64_t m, int64_t k) noexcept;
/// b[k,n] as its s8 operand: u8 is shifted by −128.
int8_t ShiftedWeight(const Gemm& gemm, int64_t k, int64_t n) noexcept;

/// The operands of a batch's item, or of all items of a batch with one B, as a u8×s8 instruction gets them,
/// with each output's depth contiguous.
///
///   a  m×k, row m at m·k         ShiftedActivation(m, k), with their zero points shifted likewise
///   w  n×k, column n at n·k      ShiftedWeight(k, n), with their zero points shifted likewise
struct Operands {
  explicit Operands(const Gemm& gemm);
  std::span<const uint8_t> Row(int64_t row) const noexcept;
  /// What `model` multiplies of it.
  std::span<const uint8_t> Row(const Model& model, int64_t row) const noexcept;
  std::span<const int8_t> Column(int64_t column) const noexcept;
  /// bias_s32 − za·Σ_k (w − zw) − zw·Σ_k a, modulo 2³²: y = Σ_k a·w + this.
  int32_t Compensation(int64_t row, int64_t column) const noexcept;
  /// y of an output, modulo 2³², as `model` accumulates Σ_k a·w from zero; the compensation is added last.
  /// `in_pairs` is InPairs(model, depths).
  int32_t Accumulator(const Model& model, std::span<const int64_t> in_pairs, int64_t row,
                      int64_t column) const;
  /// Column's w − zw, the integers that the contract multiplies activations with.
  std::vector<int32_t> CenteredColumn(int64_t column) const;

  int64_t m, n, k;
  Depths depths;
  std::vector<uint8_t> a;
  std::vector<uint8_t> a_inside;  // the same with 0 in the padding; empty if there is none, or it is 0
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
/// The same from operands already prepared.
std::vector<int32_t> Accumulators(const Operands& operands, const Model& model);
/// The same for GEMMs that share their rows, each with its columns beside those of the one before.
std::vector<int32_t> Accumulators(std::span<const Operands> groups, const Model& model);

/// Output bytes, dense batch×m×n of c_type, from accumulators.
std::vector<uint8_t> Outputs(const Gemm& gemm, const std::vector<int32_t>& accumulators);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_GEMM_H_
