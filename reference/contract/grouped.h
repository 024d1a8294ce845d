// Grouped weights (include/intact/grouped.h) in scalar code: the definition that every engine must equal byte
// for byte. Like requantize.h, it assumes the default floating-point environment.
//
// With minimums, a weight is scale·(code − zero point) + minimum, and f begins with the minimums:
//
//   f = +0, then for g = 0, 1, …: f = fma(u_g, mb[n,g], f)     one float32 rounding
//
// u_g is float(Σ_{k in g} (a[m,k] − za)), times the scale of A, rounded to float32, if A has a scale for each
// group. mb[n,g] is the minimum. The groups' sums acc_g follow, as in grouped.h.
#ifndef INTACT_REFERENCE_CONTRACT_GROUPED_H_
#define INTACT_REFERENCE_CONTRACT_GROUPED_H_

#include <intact/grouped.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/post_ops.h"
#include "core/types.h"
#include "core/weight_format.h"

namespace intact::reference {

/// A product with its tensors, dense: A is m×k, C is m×n, B of each expert has n columns of k depths.
struct Grouped : core::WeightFormat {
  int64_t m = 0, n = 0, k = 0;
  int64_t experts = 1;
  int64_t item_rows = 0;             // rows of an item of a batch; 0: no batch. The contract needs no items
  std::vector<int64_t> expert_rows;  // rows of each expert, m in all; empty with one expert
  intact_type a_type = INTACT_S8;
  intact_type a_source_type = INTACT_F32;  // INTACT_TYPE_NONE: runs give a, a_zero_points and a_scales
  intact_granularity a_granularity = INTACT_GRANULARITY_ROWS;
  intact_type c_type = INTACT_F32;
  core::PostOps post_ops;         // of an activation
  std::vector<uint8_t> a_source;  // elements of a_source_type; QuantizeActivations() fills the next three
  std::vector<uint8_t> a;         // of a_type
  // A value for each row, or for each group of each row. A scale of NaN: there is no scale.
  std::vector<int32_t> a_zero_points;
  std::vector<float> a_scales;
  std::vector<int16_t> b;              // [expert][n][k]: the values of the weights
  std::vector<int16_t> b_zero_points;  // [expert][n][groups], or empty
  std::vector<float> b_minimums;       // [expert][n][groups], or empty
  std::vector<uint8_t> b_scales;       // [expert][n][groups]: elements of scale_type
  std::vector<float> bias_f32;         // [expert][n], or empty

  int64_t depth() const { return Depth(k); }
  int64_t groups() const { return Groups(k); }
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
  /// The number of a group's zero point, minimum and scale. `column`: of all experts.
  size_t Place(int64_t column, int64_t g) const { return static_cast<size_t>(column * groups() + g); }
  int32_t ZeroPoint(int64_t column, int64_t g) const {
    return has_b_zero_points ? b_zero_points[Place(column, g)] : DefaultZeroPoint();
  }
  float Scale(int64_t column, int64_t g) const {
    const auto bytes = static_cast<size_t>(core::BytesOf(scale_type));
    return static_cast<float>(core::Decode(scale_type, &b_scales[Place(column, g) * bytes]));
  }
  void SetGroupScales(bool has_group_scales) {
    a_granularity = has_group_scales ? INTACT_GRANULARITY_GROUPS : INTACT_GRANULARITY_ROWS;
  }
  bool HasGroupScales() const { return a_granularity == INTACT_GRANULARITY_GROUPS; }
  /// The number of the scale and zero point of A of a row and group g.
  size_t APlace(int64_t row, int64_t g) const {
    return static_cast<size_t>(HasGroupScales() ? row * groups() + g : row);
  }
};

/// Calls visit(name, field) for each field.
template <class Visit, class GroupedOrConst>
requires std::is_same_v<std::remove_const_t<GroupedOrConst>, Grouped>
void ForEachField(Visit&& visit, GroupedOrConst& o) {
  visit("m", o.m);
  visit("n", o.n);
  visit("k", o.k);
  visit("experts", o.experts);
  visit("item_rows", o.item_rows);
  visit("expert_rows", o.expert_rows);
  visit("b_type", o.b_type);
  visit("group", o.group);
  visit("scale_type", o.scale_type);
  visit("has_b_zero_points", o.has_b_zero_points);
  visit("has_b_minimums", o.has_b_minimums);
  visit("a_type", o.a_type);
  visit("a_source_type", o.a_source_type);
  visit("a_granularity", o.a_granularity);
  visit("c_type", o.c_type);
  visit("post_ops", o.post_ops);
  visit("a_source", o.a_source);
  visit("a", o.a);
  visit("a_zero_points", o.a_zero_points);
  visit("a_scales", o.a_scales);
  visit("b", o.b);
  visit("b_zero_points", o.b_zero_points);
  visit("b_minimums", o.b_minimums);
  visit("b_scales", o.b_scales);
  visit("bias_f32", o.bias_f32);
}

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
