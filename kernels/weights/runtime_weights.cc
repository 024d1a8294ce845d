#include "kernels/weights/runtime_weights.h"

#include <algorithm>

namespace intact::kernels {
namespace {

constexpr int64_t kValues = 5;  // of a column, besides its weights

// The values of all columns that PackRuntimeB() writes.
struct Columns {
  int32_t *compensation, *unshifted_compensation, *sums, *zero_points;
  float* scales;
};

Columns Place(int64_t columns, uint8_t* at) {
  auto* const values = reinterpret_cast<int32_t*>(at);
  return {values, values + columns, values + 2 * columns, values + 3 * columns,
          reinterpret_cast<float*>(values + 4 * columns)};
}

// Writes the values of columns [first, last): values[0] for all, or each column's own. Columns from `end` on
// are a panel's padding.
template <class T>
void Spread(const T* values, bool are_of_columns, int64_t first, int64_t end, int64_t last, T* to) {
  if (are_of_columns) {
    std::copy(values + first, values + end, to + first);
    std::fill(to + end, to + last, values[end - 1]);
  } else {
    std::fill(to + first, to + last, values[0]);
  }
}

// Writes the values of one panel's columns, from `first` on: what LinearWeights has for constant weights.
// `to.sums` holds the sums of the columns' weights. All sums are modulo 2³².
void FillPanel(const LinearProblem& problem, int64_t k, const int32_t* bias, const int32_t* zero_points,
               int64_t first, const Columns& to) {
  const auto activation_zero_point = static_cast<uint32_t>(problem.ActivationZeroPoint());
  const uint32_t shift = problem.a_shift();
  const auto depth = static_cast<uint32_t>(k);
  for (int64_t n = first; n < first + kPanelColumns; ++n) {
    const auto sum = static_cast<uint32_t>(to.sums[n]);
    const uint32_t zero_point = zero_points == nullptr ? 0 : static_cast<uint32_t>(zero_points[n]);
    const uint32_t centered = sum - depth * zero_point;
    const uint32_t compensation = static_cast<uint32_t>(bias[n]) - activation_zero_point * centered;
    to.compensation[n] = static_cast<int32_t>(compensation);
    to.unshifted_compensation[n] = static_cast<int32_t>(compensation + shift * sum);
    to.sums[n] = static_cast<int32_t>(centered);
  }
}

}  // namespace

int64_t RuntimeWeightBytes(const LinearWeights& weights) {
  const int64_t columns = weights.packed().panels() * kPanelColumns;
  return weights.packed().bytes() + kValues * columns * static_cast<int64_t>(sizeof(int32_t));
}

RuntimeWeights PackRuntimeB(const LinearWeights& weights, const RuntimeB& b, int64_t begin, int64_t end,
                            uint8_t* scratch) noexcept {
  const LinearProblem& problem = weights.problem();
  const int64_t stride = weights.packed().panel_stride_bytes();
  const int64_t first = begin / kPanelColumns * kPanelColumns;
  WeightView view = weights.layout();
  view.data = b.data + first * view.stride_n;
  view.n = end - first;
  PackedWeights packed(view.k, view.n);
  packed.width = weights.packed().width;
  const int64_t last = first + packed.panels() * kPanelColumns;
  auto* const panels = reinterpret_cast<int8_t*>(scratch);
  int8_t* const from_first = panels + first / kPanelColumns * stride;
  PackPanels(view, packed, from_first);
  packed.data = from_first;

  const Columns to = Place(weights.packed().panels() * kPanelColumns, scratch + weights.packed().bytes());
  std::fill(to.sums + first, to.sums + last, 0);
  AddDepths(packed, 0, packed.quads() * kQuad, reinterpret_cast<uint32_t*>(to.sums + first));
  RuntimeWeights given;
  given.panels = panels;
  given.compensation = to.compensation;
  given.unshifted_compensation = to.unshifted_compensation;
  given.column_sums = to.sums;
  given.zero_points = problem.b_zero_points.empty() ? nullptr : problem.b_zero_points.data();
  if (b.zero_points != nullptr) {
    Spread(b.zero_points, b.has_column_zero_points, first, end, last, to.zero_points);
    for (int64_t n = first; n < last; ++n) to.zero_points[n] -= problem.b_shift();
    given.zero_points = to.zero_points;
  } else if (given.zero_points == nullptr && problem.HasWeightZeroPoints()) {
    std::fill(to.zero_points + first, to.zero_points + last, 0);
    given.zero_points = to.zero_points;
  }
  given.factors = problem.Factors();
  if (b.scales != nullptr) {
    Spread(b.scales, b.has_column_scales, first, end, last, to.scales);
    given.factors = to.scales;
  }
  for (int64_t n = first; n < last; n += kPanelColumns) {
    FillPanel(problem, view.k, weights.compensation().data(), given.zero_points, n, to);
  }
  return given;
}

}  // namespace intact::kernels
