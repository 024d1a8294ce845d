// Scalar GEMM one can read at a glance: what the contract says. tests/reference/reference_test.cc holds the
// exact model against it; that model (reference/models/operands.h) is the oracle of the differential tests.
#ifndef INTACT_REFERENCE_CONTRACT_GEMM_H_
#define INTACT_REFERENCE_CONTRACT_GEMM_H_

#include <intact/intact.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/contract/linear.h"

namespace intact::reference {

/// How the depths of a convolution's lowered GEMM come about (reference/models/lowering.h).
struct Taps {
  int64_t count = 1, channels = 1;
  std::vector<bool> outside;  // m×count: of each row, the taps that read no pixel of the input; empty: none
};

/// A GEMM with its tensors, dense and row-major: A is m×k, B is k×n, per-column vectors have n elements. A
/// batch is `batch` such items one after the other: of A, of the residual and of outputs always; of B where
/// each has its own.
struct Gemm : Linear {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  bool has_runtime_b = false;
  std::vector<float>
      item_scales;  // of own Bs, in place of scales: one for each item, n for each item, or empty
  std::vector<int32_t> item_zero_points;  // in place of b_zero_points: the same
  std::optional<Taps> taps;               // it is a lowered convolution

  int64_t rows() const { return batch * m; }
};

/// Item `i` of a batch, quantized as it is there.
Gemm Item(const Gemm& gemm, int64_t i);

/// B from its columns, n×k; of own Bs one after the other.
std::vector<int8_t> FromColumns(std::span<const int8_t> columns, int64_t n, int64_t k);

/// The contract as include/intact/intact.h states it: y[m,n] = Σ_k (a − za)·(b − zb) + bias_s32, batch·m·n
/// values modulo 2³². That is the definition of INTACT_OVERFLOW_WRAPS; other sums are within int32.
std::vector<int32_t> Multiply(const Gemm& gemm);

/// Output bytes, dense batch×m×n of c_type, from accumulators.
std::vector<uint8_t> Outputs(const Gemm& gemm, const std::vector<int32_t>& accumulators);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_GEMM_H_
