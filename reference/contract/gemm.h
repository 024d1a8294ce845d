// Scalar GEMM, written to be read at a glance: what the contract says. tests/reference/reference_test.cc
// compares the exact model with it; that model (reference/models/operands.h) is the oracle of the
// differential tests.
#ifndef INTACT_REFERENCE_CONTRACT_GEMM_H_
#define INTACT_REFERENCE_CONTRACT_GEMM_H_

#include <intact/intact.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/contract/linear.h"

namespace intact::reference {

/// The taps behind the depths of a lowered convolution (reference/models/lowering.h).
struct Taps {
  int64_t count = 1, channels = 1;
  std::vector<bool> outside;  // m×count: whether a tap of a row lies outside the input; empty: none does
};

/// A GEMM with its tensors, dense and row-major: A is m×k, B is k×n, per-column vectors have n elements. A
/// batch has `batch` items, one after the other in A, residual and outputs; in B too if it is passed to runs.
struct Gemm : Linear {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  bool has_runtime_b = false;
  // With runtime B these replace `scales` and b_zero_points: one per item, n per item, or empty.
  std::vector<float> item_scales;
  std::vector<int32_t> item_zero_points;
  std::optional<Taps> taps;  // set for a lowered convolution

  int64_t rows() const { return batch * m; }
};

/// Item `i` of a batch, with its zero points and scales.
Gemm Item(const Gemm& gemm, int64_t i);

/// B from its columns (n×k). With runtime B the items follow each other.
std::vector<int8_t> FromColumns(std::span<const int8_t> columns, int64_t n, int64_t k);

/// The contract as include/intact/intact.h states it: y[m,n] = Σ_k (a − za)·(b − zb) + bias_s32, batch·m·n
/// values modulo 2³². INTACT_OVERFLOW_WRAPS is defined so; without it, sums are within int32.
std::vector<int32_t> Multiply(const Gemm& gemm);

/// Output bytes, dense batch×m×n of c_type, from accumulators.
std::vector<uint8_t> Outputs(const Gemm& gemm, const std::vector<int32_t>& accumulators);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_GEMM_H_
