// The contract's GEMM in scalar code. gemm.cc is written to be read from top to bottom. tests/reference/reference_test.cc
// compares this GEMM with the exact model (reference/models/operands.h). The exact model is the oracle of the
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

/// The taps that the depths of a lowered convolution belong to (reference/models/lowering.h).
struct Taps {
  int64_t count = 1, channels = 1;
  int64_t height = 1, width = 1;  // taps of a column and of a row of the kernel
  // m×count: whether the row's tap lies outside the input. Empty: all taps lie inside.
  std::vector<bool> outside;
};

/// A GEMM with its tensors, dense and row-major: A is m×k, B is k×n, per-column vectors have n elements. A
/// batch has `batch` items. The items follow each other in A, in the residual, in C and in a runtime B.
struct Gemm : Linear {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  bool has_runtime_b = false;
  // With runtime B: values that replace `scales` and b_zero_points. One per item, n per item, or empty.
  std::vector<float> item_scales;
  std::vector<int32_t> item_zero_points;
  std::optional<Taps> taps;  // set for a lowered convolution

  int64_t rows() const { return batch * m; }
};

/// Item `i` of a batch, with its zero points and scales.
Gemm Item(const Gemm& gemm, int64_t i);

/// B from its columns (n×k). `columns` may hold the columns of several items of a runtime B, item after item.
std::vector<int8_t> FromColumns(std::span<const int8_t> columns, int64_t n, int64_t k);

/// The contract as include/intact/intact.h states it: y[m,n] = Σ_k (a − za)·(b − zb) + bias_s32, batch·m·n
/// values modulo 2³², as INTACT_OVERFLOW_WRAPS defines. Sums of other plans are within int32.
std::vector<int32_t> Multiply(const Gemm& gemm);

/// Output bytes, rows of `columns` elements of c_type, from their accumulators. Of a GEMM: dense batch×m×n.
std::vector<uint8_t> Outputs(const Linear& linear, int64_t columns, const std::vector<int32_t>& accumulators);
std::vector<uint8_t> Outputs(const Gemm& gemm, const std::vector<int32_t>& accumulators);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_GEMM_H_
