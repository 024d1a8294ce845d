// Grouped weights (include/intact/grouped.h) in scalar code: the definition that every engine must equal byte
// for byte. Like requantize.h, it assumes the default floating-point environment.
#ifndef INTACT_REFERENCE_CONTRACT_GROUPED_H_
#define INTACT_REFERENCE_CONTRACT_GROUPED_H_

#include <intact/grouped.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/post_ops.h"
#include "core/types.h"

namespace intact::reference {

/// A product with its tensors, dense: A is m×k, C is m×n, B of each expert has n columns of k depths.
struct Grouped {
  int64_t m = 0, n = 0, k = 0;
  int64_t experts = 1;
  int64_t item_rows = 0;             // rows of an item of a batch; 0: no batch. The contract needs no items
  std::vector<int64_t> expert_rows;  // rows of each expert, m in all; empty with one expert
  int64_t group = 32;                // 0: all depths are one group
  intact_type a_type = INTACT_S8;
  intact_type a_source_type = INTACT_F32;  // INTACT_TYPE_NONE: runs give a, a_zero_points and a_scales
  intact_granularity a_granularity = INTACT_GRANULARITY_ROWS;
  int32_t b_type = INTACT_U4;  // S8, U8, S4 or U4
  intact_type scale_type = INTACT_F16;
  intact_type c_type = INTACT_F32;
  core::PostOps post_ops;         // of an activation
  std::vector<uint8_t> a_source;  // elements of a_source_type; QuantizeActivations() fills the next three
  std::vector<uint8_t> a;         // of a_type
  // A value for each row, or for each group of each row. A scale of NaN: there is no scale.
  std::vector<int32_t> a_zero_points;
  std::vector<float> a_scales;
  std::vector<int16_t> b;              // [expert][n][k]: the values of the weights
  std::vector<int16_t> b_zero_points;  // [expert][n][groups]; empty: the middle of b_type
  std::vector<float> b_minimums;       // [expert][n][groups], or empty; then zero points are 0
  std::vector<uint8_t> b_scales;       // [expert][n][groups]: elements of scale_type
  std::vector<float> bias_f32;         // [expert][n], or empty

  int64_t depth() const { return group == 0 ? k : group; }
  int64_t groups() const { return (k + depth() - 1) / depth(); }
  /// The columns of all experts.
  int64_t columns() const { return experts * n; }
  /// The expert of row `row`.
  int64_t ExpertOf(int64_t row) const {
    int64_t expert = 0;
    for (; expert + 1 < experts && row >= expert_rows[static_cast<size_t>(expert)]; ++expert) {
      row -= expert_rows[static_cast<size_t>(expert)];
    }
    return expert;
  }
  bool Is4Bit() const { return b_type == INTACT_S4 || b_type == INTACT_U4; }
  bool IsSigned() const { return b_type == INTACT_S4 || b_type == INTACT_S8; }
  /// The zero point of weights without given zero points.
  int32_t Middle() const {
    return !b_minimums.empty() ? 0 : b_type == INTACT_U4 ? 8 : b_type == INTACT_U8 ? 128 : 0;
  }
  /// The least weight and the greatest weight.
  int32_t LowestWeight() const { return b_type == INTACT_S4 ? -8 : b_type == INTACT_S8 ? -128 : 0; }
  int32_t HighestWeight() const { return LowestWeight() + (Is4Bit() ? 15 : 255); }
};

/// Fills a, a_zero_points and a_scales from a_source.
void QuantizeActivations(Grouped* grouped);

/// B as the C interface takes it with strides of 0: bytes, or pairs of weights in a byte.
std::vector<uint8_t> BytesOfB(const Grouped& grouped);

/// acc_g of output (m, n), exactly.
int64_t GroupSum(const Grouped& grouped, int64_t m, int64_t n, int64_t g);

/// The sum of a − za over the depths of group g, exactly.
int64_t ActivationSum(const Grouped& grouped, int64_t m, int64_t g);

/// Output bytes, m×n elements of c_type.
std::vector<uint8_t> Outputs(const Grouped& grouped);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_CONTRACT_GROUPED_H_
