// The operation of include/intact/grouped.h as kernels see it: checked, with the numbers of the descriptor;
// the weights as the caller holds them; and rows of A as engines read them.
#ifndef INTACT_KERNELS_PROBLEM_GROUPED_PROBLEM_H_
#define INTACT_KERNELS_PROBLEM_GROUPED_PROBLEM_H_

#include <intact/grouped.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/result.h"
#include "core/types.h"
#include "core/weight_format.h"
#include "kernels/problem/operands.h"
#include "kernels/problem/requantization.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {

/// `group` is k if all depths are one group.
struct GroupedProblem : core::WeightFormat {
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;  // NumbersOf() what was given
  int64_t experts = 1;                                  // matrices of weights, k×n each
  int64_t n = 0, k = 0;
  intact_type a_type = INTACT_S8;
  intact_type a_source_type = INTACT_TYPE_NONE;
  // Whether A has a scale for each (row, group). If not, A has a scale for each row.
  bool has_group_scales = false;
  intact_type c_type = INTACT_F32;
  OutputBounds bounds;          // of the activation; infinite without an activation
  std::vector<float> bias_f32;  // [expert][n], or empty

  /// The columns of all experts.
  int64_t columns() const { return experts * n; }
  int64_t groups() const { return Groups(k); }
  /// Bytes of a row of A as engines read it: whole groups and whole cache lines.
  int64_t padded_k() const { return RoundUp(groups() * group, 64); }
  int64_t GroupDepth(int64_t g) const { return WeightFormat::GroupDepth(k, g); }
  int64_t column_bytes() const { return ColumnBytes(k); }
  const float* Bias(int64_t expert) const {
    return bias_f32.empty() ? nullptr : bias_f32.data() + expert * n;
  }
  bool IsDynamic() const { return a_source_type != INTACT_TYPE_NONE; }
  /// Whether A may have zero points other than 0.
  bool HasAZeroPoints() const { return !IsDynamic() || a_type == INTACT_U8; }
  /// Scales of a row of A.
  int64_t row_values() const { return has_group_scales ? groups() : 1; }
  int a_bytes() const { return IsDynamic() ? core::BytesOf(a_source_type) : 1; }
};

/// The weights of one expert as the caller holds them, with their scales and zero points.
struct GroupedWeightView {
  core::WeightFormat format;
  const uint8_t* data = nullptr;
  int64_t stride_n = 0, stride_k = 0;  // bytes; stride_k only for 8 bits
  const uint8_t* scales = nullptr;
  const uint8_t* zero_points = nullptr;                // null: format.DefaultZeroPoint()
  int64_t scale_stride_n = 0, scale_stride_g = 0;      // elements of scales, of zero_points and of minimums
  int64_t stride_expert = 0, scale_stride_expert = 0;  // to the next expert: bytes; elements
  const float* minimums = nullptr;                     // null: there are none

  /// The weights of the expert that is `count` experts after this one.
  GroupedWeightView Expert(int64_t count) const {
    GroupedWeightView view = *this;
    const int64_t elements = count * scale_stride_expert;
    view.data += count * stride_expert;
    view.scales += elements * core::BytesOf(format.scale_type);
    if (zero_points != nullptr) view.zero_points += elements;
    if (minimums != nullptr) view.minimums += elements;
    return view;
  }
  int32_t At(int64_t k, int64_t n) const {
    const uint8_t* const column = data + n * stride_n;
    return format.IsPacked() ? format.Code(column, k) : format.codes().DecodeCode(column[k * stride_k]);
  }
  int32_t ZeroPoint(int64_t g, int64_t n) const {
    if (zero_points == nullptr) return format.DefaultZeroPoint();
    const uint8_t element = zero_points[n * scale_stride_n + g * scale_stride_g];
    return format.codes().is_signed() ? int32_t{static_cast<int8_t>(element)} : int32_t{element};
  }
  /// Only with minimums.
  float Minimum(int64_t g, int64_t n) const { return minimums[n * scale_stride_n + g * scale_stride_g]; }
  /// The scale as it is stored, in format.scale_type.
  uint32_t ScaleBits(int64_t g, int64_t n) const {
    const int64_t element = n * scale_stride_n + g * scale_stride_g;
    uint32_t bits = 0;
    if (format.scale_type == INTACT_F32) {
      std::memcpy(&bits, scales + element * 4, 4);
    } else {
      std::memcpy(&bits, scales + element * 2, 2);
    }
    return bits;
  }
  float Scale(int64_t g, int64_t n) const {
    const uint32_t bits = ScaleBits(g, n);
    return static_cast<float>(core::Decode(format.scale_type, reinterpret_cast<const uint8_t*>(&bits)));
  }
};

/// A group of a column.
struct GroupPlace {
  int64_t expert, n, g;
};

/// Whether holds(place, weights of the expert) for every group of every column. `view` is expert 0.
template <class Holds>
bool AllGroups(const GroupedProblem& problem, const GroupedWeightView& view, const Holds& holds) {
  for (int64_t expert = 0; expert < problem.experts; ++expert) {
    const GroupedWeightView own = view.Expert(expert);
    for (int64_t n = 0; n < problem.n; ++n) {
      for (int64_t g = 0; g < problem.groups(); ++g) {
        if (!holds(GroupPlace{expert, n, g}, own)) return false;
      }
    }
  }
  return true;
}

/// The weights of all experts, dense, as a descriptor with strides of 0 describes them.
struct GroupedColumns {
  std::vector<uint8_t> weights, scales, zero_points;  // zero_points: empty if the problem has none
  std::vector<float> minimums;                        // empty if the problem has none

  /// All bytes are 0. Throws std::bad_alloc.
  explicit GroupedColumns(const GroupedProblem& problem);
  GroupedWeightView View(const GroupedProblem& problem) const;
};

/// What a row of A has for each group.
struct GroupedValues {
  int32_t zero_point = 0;
  int32_t centered_sum = 0;  // Σ (a − zero_point) over the group
  float scale = 1.0f;        // 1 unless the problem has_group_scales
  float float_sum = 0.0f;    // float(Σ (a − zero_point))
};

/// Rows of A as engines read them. With b' and zb' as weights and zero points are packed,
///
///   acc_g = Σ a·b'  −  zero_point·Σ b'  −  zb'·centered_sum
///
/// where each sum may be computed modulo 2³², because acc_g is an int32.
struct GroupedRows {
  const uint8_t* a = nullptr;             // a_type; padded_k() bytes of each row: bytes beyond k are 0
  int64_t stride_bytes = 0;               // a multiple of 64
  const GroupedValues* values = nullptr;  // [row][groups()]
  const float* scales = nullptr;          // [row]; 1 if the problem has_group_scales
  int64_t count = 0;
};

/// The descriptor without pointers, strides and max_isa: they do not change the product.
intact_grouped_desc NumbersOf(const intact_grouped_desc& desc);
/// Checks `desc`. Errors name the field, its value and what was expected.
Result<GroupedProblem> CheckGrouped(const intact_grouped_desc& desc);
/// The weights `b` of expert 0 of `desc`, which CheckGrouped() accepted. Checks strides, and CheckGroups().
Result<GroupedWeightView> CheckGroupedWeights(const intact_grouped_desc& desc, const GroupedProblem& problem,
                                              const void* b);
/// Checks the scales, zero points and minimums of all experts. Errors: INVALID_ARGUMENT; OVERFLOW if some
/// activations could make a sum leave int32. `view` is expert 0.
Error CheckGroups(const GroupedProblem& problem, const GroupedWeightView& view);
/// Checks the scale, as it is stored, and the zero point of a group.
Error CheckGroupValues(const GroupedProblem& problem, const GroupPlace& place, uint32_t scale_bits,
                       int32_t zero_point);
Error CheckMinimum(const GroupedProblem& problem, const GroupPlace& place, float minimum);
/// Whether a sum acc_g may be beyond int32 for some weights. CheckGroupedWeights() must then read the
/// weights.
bool MayExceedInt32(const GroupedProblem& problem);
/// Checks a run's sizes and strides, except those of batches.
Error CheckGroupedSizes(const GroupedProblem& problem, const intact_grouped_args& args);
/// Checks A and C of an item, with m > 0.
Error CheckGroupedBuffers(const GroupedProblem& problem, const intact_grouped_args& args);
/// Checks the rows of experts, and the given scales and zero points of `rows` rows.
Error CheckGroupedValues(const GroupedProblem& problem, const intact_grouped_args& args, int64_t rows);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_GROUPED_PROBLEM_H_
