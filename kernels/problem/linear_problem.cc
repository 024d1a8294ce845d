#include "kernels/problem/linear_problem.h"

#include <algorithm>

namespace intact::kernels {
namespace {

template <class T>
void SliceColumns(int64_t first, int64_t count, std::vector<T>* values) {
  if (values->empty()) return;
  *values = std::vector<T>(values->begin() + first, values->begin() + first + count);
  PadColumns(values);
}

}  // namespace

LinearProblem LinearProblem::Slice(int64_t first, int64_t count) const {
  LinearProblem slice = *this;
  slice.n = count;
  SliceColumns(first, count, &slice.b_zero_points);
  SliceColumns(first, count, &slice.bias_s32);
  SliceColumns(first, count, &slice.bias_f32);
  SliceColumns(first, count, &slice.scales);
  SliceColumns(first, count, &slice.clamp_excess);
  const auto is_zero = [](int32_t zero_point) { return zero_point == 0; };
  if (std::all_of(slice.b_zero_points.begin(), slice.b_zero_points.end(), is_zero)) {
    slice.b_zero_points.clear();
  }
  return slice;
}

LinearProblem LinearProblem::WithShiftedActivations() const {
  LinearProblem shifted = *this;
  shifted.a_zero_point = ActivationZeroPoint();
  shifted.a_type = INTACT_U8;
  return shifted;
}

intact_linear_desc DescOf(const LinearProblem& problem, std::vector<int32_t>* b_zero_points) {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  desc.a_type = problem.a_type;
  desc.b_type = problem.b_type;
  desc.c_type = problem.output.c_type;
  desc.mode = problem.mode;
  desc.a_zero_point = problem.a_zero_point;
  desc.c_zero_point = problem.output.bounds.zero_point;
  if (problem.output.c_type != INTACT_S32) {
    desc.activation = INTACT_ACTIVATION_CLAMP;
    desc.clamp_min = problem.output.bounds.lo;
    desc.clamp_max = problem.output.bounds.hi;
  }
  b_zero_points->resize(static_cast<size_t>(problem.n));
  for (int64_t i = 0; i < problem.n; ++i) {
    (*b_zero_points)[static_cast<size_t>(i)] = problem.WeightZeroPoint(i) + problem.b_flip();
  }
  PadColumns(b_zero_points);
  desc.b_zero_points = b_zero_points->data();
  desc.b_zero_point_count = problem.n;
  if (!problem.bias_s32.empty()) desc.bias_s32 = problem.bias_s32.data();
  if (!problem.bias_f32.empty()) desc.bias_f32 = problem.bias_f32.data();
  if (!problem.scales.empty()) {
    desc.scales = problem.scales.data();
    desc.scale_count = problem.n;
  }
  if (!problem.range.IsFull()) {
    desc.a_min = problem.range.low - problem.a_flip();
    desc.a_max = problem.range.high - problem.a_flip();
  }
  desc.range_check = problem.is_range_checked ? INTACT_RANGE_CHECKED : INTACT_RANGE_UNCHECKED;
  desc.residual_type = problem.output.residual_type;
  desc.residual_scale = problem.output.residual.scale;
  desc.residual_zero_point = problem.output.residual.zero_point;
  desc.a_quantization = problem.quantization;
  desc.a_source_type = problem.a_source_type;
  return desc;
}

}  // namespace intact::kernels
