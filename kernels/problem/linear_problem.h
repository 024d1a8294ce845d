// The linear problem: what a GEMM and a convolution have in common, checked and owned. The problem is made
// once, from an intact_linear_desc (checks.h) or from a pack file. Weights, plans and files read the problem.
// The phases of a transposed convolution and groups of output channels are slices of the problem.
//
// Values of columns are padded to whole panels with the last value. Kernels compute the padding columns and
// drop them.
#ifndef INTACT_KERNELS_PROBLEM_LINEAR_PROBLEM_H_
#define INTACT_KERNELS_PROBLEM_LINEAR_PROBLEM_H_

#include <intact/intact.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/operation.h"
#include "core/types.h"
#include "kernels/problem/operands.h"
#include "kernels/problem/requantization.h"

namespace intact::kernels {

/// How sums are scaled: the parts that kernels are generated for.
struct Scaling {
  bool has_addends = false;
  intact_fixed_point fixed_point = INTACT_FIXED_POINT_NONE;
  bool has_multipliers = false, has_left_shifts = false;  // of fixed point
  auto operator<=>(const Scaling&) const = default;
};

/// Vectors have a value for each column, padded as above, or are empty. Zero points of weights are as kernels
/// see them. a_min and a_max are 0 for the whole range. The post-operations of an output that is not s32 end
/// with a Clamp to the values that the activation and the type permit.
struct LinearProblem : core::Linear {
  int64_t n = 0;                        // columns
  ActivationRange range;                // the activation range, as kernels see it
  bool has_runtime_b = false;           // each run gives the weights
  bool may_have_b_zero_points = false;  // each run may give zero points of the weights
  // Each run gives A's zero point or scale. The run's own constants of columns include both
  // (per_run_column_constants.h).
  bool has_run_zero_point = false, has_run_scale = false;
  Requantization output;  // c_type, c_zero_point and post_ops, as kernels are generated for them
  // Added to accumulators on ISAs where pairs saturate: the clamping of padding that is not computed
  // (conv_transposed.h). Empty, or a vector for each zero point that padding may have (PaddingZeroPoints()).
  std::vector<std::vector<int64_t>> clamp_excess;

  /// The problem of columns [first, first + count).
  LinearProblem Slice(int64_t first, int64_t count) const;
  /// The problem for activations that staging has already shifted to u8 (a convolution's band).
  LinearProblem WithShiftedActivations() const;
  /// The static problem that remains if A as a whole is quantized before the kernels run. Each run then puts
  /// A's zero point and scale into constants of columns.
  LinearProblem WithPerRunColumnConstants() const;

  uint8_t a_shift() const { return ActivationShift(a_type); }
  uint8_t b_shift() const { return WeightShift(b_type); }
  /// The zero point of activations, and of a column's weights, as kernels see them.
  int32_t ActivationZeroPoint() const { return a_zero_point + a_shift(); }
  int32_t WeightZeroPoint(int64_t column) const {
    return b_zero_points.empty() ? 0 : b_zero_points[static_cast<size_t>(column)];
  }
  /// The zero points that A may have, as kernels see them: the plan's zero point, or all values.
  std::vector<int32_t> PaddingZeroPoints() const;
  bool HasWeightZeroPoints() const { return !b_zero_points.empty() || may_have_b_zero_points; }
  /// Whether the weights of all columns have one zero point that is not zero, and that the plan knows.
  bool HasOneWeightZeroPoint() const {
    const auto is_first = [this](int32_t zero_point) { return zero_point == b_zero_points.front(); };
    return !may_have_b_zero_points && !b_zero_points.empty() && std::ranges::all_of(b_zero_points, is_first);
  }
  bool IsRangeChecked() const { return range_check == INTACT_RANGE_CHECKED; }
  /// The activations for which results must be right. A checked range is a hint: runs accept any activation.
  ActivationRange AdmissibleRange() const { return IsRangeChecked() ? ActivationRange{} : range; }
  /// Whether rows of A have scales, or zero points, that only runs know: one for each row, or one for all.
  bool HasRowScales() const { return a_quantization != INTACT_QUANTIZATION_STATIC && c_type != INTACT_S32; }
  bool HasRowZeroPoints() const {
    return a_quantization == INTACT_QUANTIZATION_ROWS || a_quantization == INTACT_QUANTIZATION_TENSOR ||
           (IsDynamic() && a_type == INTACT_U8);
  }
  /// Whether outputs depend on values of rows: on sums, zero points or scales.
  bool HasRowValues() const { return HasWeightZeroPoints() || HasRowZeroPoints() || HasRowScales(); }
  /// Whether only runs know the zero point of A.
  bool HasOpenZeroPoint() const { return HasRowZeroPoints() || has_run_zero_point; }
  /// What the epilogue reads of each column, 4 bytes each: a factor (the scale or the multiplier) and an
  /// addend (the float32 bias or the shift). Null if absent.
  const void* Factors() const {
    if (!multipliers.empty()) return multipliers.data();
    return scales.empty() ? nullptr : scales.data();
  }
  const void* Addends() const {
    if (!shifts.empty()) return shifts.data();
    return bias_f32.empty() ? nullptr : bias_f32.data();
  }
  Scaling ScalingOf() const {
    const bool has_left = std::any_of(shifts.begin(), shifts.end(), [](int32_t shift) { return shift > 0; });
    return {Addends() != nullptr, fixed_point, !multipliers.empty(), has_left};
  }
  /// Whether runs may give scales that replace the scales of the problem.
  bool HasScales() const { return !scales.empty(); }
  /// The largest output of `column` before activation and residual, for sums up to `sum`.
  double LargestOutput(size_t column, double sum) const {
    if (!shifts.empty()) return 0.0;  // integers already
    const double scaled = scales.empty() ? sum : sum * double{scales[column]};
    return bias_f32.empty() ? scaled : scaled + std::abs(double{bias_f32[column]});
  }
  /// Bytes of an element of A, as the caller passes it.
  int a_bytes() const { return IsDynamic() ? core::BytesOf(a_source_type) : 1; }
};

/// The descriptor from which CheckLinear() would make `problem`. The descriptor points into `problem` and to
/// `b_zero_points`. Fills `b_zero_points` with the weights' zero points in b_type.
intact_linear_desc DescOf(const LinearProblem& problem, std::vector<int32_t>* b_zero_points);

/// Pads `values`, one for each of n columns, to whole panels.
template <class T>
void PadColumns(std::vector<T>* values) {
  if (values->empty()) return;
  const size_t padded = (values->size() + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  values->resize(padded, values->back());
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_LINEAR_PROBLEM_H_
