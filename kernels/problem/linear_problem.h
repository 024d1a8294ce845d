// The linear problem: what a GEMM and a convolution have in common, checked and owned. It is made once, from
// an intact_linear_desc (checks.h) or from a pack file, and everything after it reads it: weights, plans,
// files. The phases of a transposed convolution and groups of output channels are slices of it.
//
// Values of columns are padded to whole panels, the last one repeated: kernels compute the padding, and drop
// it.
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

/// How sums are scaled, as far as kernels are generated for it.
struct Scaling {
  bool has_addends = false;
  intact_fixed_point fixed_point = INTACT_FIXED_POINT_NONE;
  bool has_multipliers = false, has_left_shifts = false;  // of fixed point
  auto operator<=>(const Scaling&) const = default;
};

/// Vectors have a value for each column, padded as told above, or are empty. Zero points of weights are as
/// kernels see them. The activation range and the post-operations have one form: a_min and a_max are 0 for the
/// whole range, and an output that is not s32 ends with a Clamp to what the activation and the type leave.
struct LinearProblem : core::Linear {
  int64_t n = 0;                        // columns
  ActivationRange range;                // declared, as kernels see it
  bool has_runtime_b = false;           // each run gives the weights
  bool may_have_b_zero_points = false;  // and their zero points
  // Each run gives A's zero point, or its scale, which its own constants of columns take in (run_columns.h).
  bool has_run_zero_point = false, has_run_scale = false;
  Requantization output;  // c_type, c_zero_point and post_ops, as kernels are generated for them
  // What accumulators get beside, on ISAs where pairs saturate: the clamping of padding that is not computed
  // (conv_transposed.h). Empty, or a vector for each zero point that padding may have (PaddingZeroPoints()).
  std::vector<std::vector<int64_t>> clamp_excess;

  /// The problem of columns [first, first + count).
  LinearProblem Slice(int64_t first, int64_t count) const;
  /// The same problem of activations that were shifted to u8 on the way (a convolution's band).
  LinearProblem WithShiftedActivations() const;
  /// The problem that is left where runs quantize A as a whole beforehand, or get it so, and make constants
  /// of columns of its zero point and its scale.
  LinearProblem WithRunColumns() const;

  uint8_t a_shift() const { return ActivationShift(a_type); }
  uint8_t b_shift() const { return WeightShift(b_type); }
  /// As kernels see them: the zero point of activations, and a column's of weights.
  int32_t ActivationZeroPoint() const { return a_zero_point + a_shift(); }
  int32_t WeightZeroPoint(int64_t column) const {
    return b_zero_points.empty() ? 0 : b_zero_points[static_cast<size_t>(column)];
  }
  /// The zero points that A may have, as kernels see them: the plan's, or all.
  std::vector<int32_t> PaddingZeroPoints() const;
  bool HasWeightZeroPoints() const { return !b_zero_points.empty() || may_have_b_zero_points; }
  bool IsRangeChecked() const { return range_check == INTACT_RANGE_CHECKED; }
  /// Whether each row of A has a scale, or a zero point, of its own.
  bool HasRowScales() const { return a_quantization != INTACT_QUANTIZATION_STATIC && c_type != INTACT_S32; }
  bool HasRowZeroPoints() const {
    return a_quantization == INTACT_QUANTIZATION_ROWS || a_quantization == INTACT_QUANTIZATION_TENSOR ||
           (IsDynamic() && a_type == INTACT_U8);
  }
  /// Whether the zero point of A is known to runs alone.
  bool HasOpenZeroPoint() const { return HasRowZeroPoints() || has_run_zero_point; }
  /// What the epilogue reads of each column, 4 bytes a column: a factor (the scale or the multiplier) and an
  /// addend (the float32 bias or the shift). Null where there is none.
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
  /// Whether runs may give scales in place of the problem's.
  bool HasScales() const { return !scales.empty(); }
  /// The most that an output of `column` can be before its activation and its residual, of sums up to `sum`.
  double LargestOutput(size_t column, double sum) const {
    if (!shifts.empty()) return 0.0;  // integers already
    const double scaled = scales.empty() ? sum : sum * double{scales[column]};
    return bias_f32.empty() ? scaled : scaled + std::abs(double{bias_f32[column]});
  }
  /// Bytes of an element of A as runs give it.
  int a_bytes() const { return IsDynamic() ? core::BytesOf(a_source_type) : 1; }
};

/// The descriptor that CheckLinear() makes `problem` of; it points into `problem` and to `b_zero_points`,
/// which gets those of weights in their own type.
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
