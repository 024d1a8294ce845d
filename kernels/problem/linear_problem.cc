#include "kernels/problem/linear_problem.h"

#include <algorithm>
#include <numeric>

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
  core::ForEachColumnVector([=](auto, auto& values) { SliceColumns(first, count, &values); }, slice);
  for (std::vector<int64_t>& excess : slice.clamp_excess) SliceColumns(first, count, &excess);
  const auto is_zero = [](int32_t zero_point) { return zero_point == 0; };
  if (std::all_of(slice.b_zero_points.begin(), slice.b_zero_points.end(), is_zero)) {
    slice.b_zero_points.clear();
  }
  return slice;
}

LinearProblem LinearProblem::WithShiftedActivations() const {
  LinearProblem shifted = *this;
  shifted.a_zero_point = ActivationZeroPoint();
  if (a_min != 0 || a_max != 0) {
    shifted.a_min += a_shift();
    shifted.a_max += a_shift();
  }
  shifted.a_type = INTACT_U8;
  return shifted;
}

LinearProblem LinearProblem::WithPerRunColumnConstants() const {
  LinearProblem by_columns = *this;
  by_columns.has_run_zero_point = HasRowZeroPoints();
  by_columns.has_run_scale = HasRowScales();
  by_columns.a_quantization = INTACT_QUANTIZATION_STATIC;
  by_columns.a_source_type = INTACT_TYPE_NONE;
  return by_columns;
}

std::vector<int32_t> LinearProblem::PaddingZeroPoints() const {
  if (!has_run_zero_point) return {ActivationZeroPoint()};
  std::vector<int32_t> all(kActivationValues);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

intact_linear_desc DescOf(const LinearProblem& problem, std::vector<int32_t>* b_zero_points) {
  intact_linear_desc desc = core::DescOf(problem);
  b_zero_points->resize(static_cast<size_t>(problem.n));
  for (int64_t i = 0; i < problem.n; ++i) {
    (*b_zero_points)[static_cast<size_t>(i)] = problem.WeightZeroPoint(i) + problem.b_shift();
  }
  PadColumns(b_zero_points);
  desc.b_zero_points = b_zero_points->data();
  desc.b_zero_point_count = problem.n;
  if (desc.scale_count != 0) desc.scale_count = problem.n;
  return desc;
}

}  // namespace intact::kernels
