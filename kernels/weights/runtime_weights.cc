#include "kernels/weights/runtime_weights.h"

#include <algorithm>

#include "kernels/runtime/blocking.h"

namespace intact::kernels {
namespace {

constexpr int64_t kValues = 5;  // of a column, in addition to its weights

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

// Where an array begins that has `elements` elements before `at`. They may not exist.
template <class T>
T* Before(T* at, int64_t elements) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(at) - static_cast<uintptr_t>(elements) * sizeof(T);
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// The sizes of the panels of `columns` adjacent columns.
PackedWeights SizesOf(const LinearWeights& weights, int64_t columns) {
  PackedWeights sizes(weights.k(), columns);
  sizes.width = weights.packed().width;
  return sizes;
}

// The most extra quads. With more, kernels for panels that are not cut are as fast.
int64_t MostExtraQuads(const PackedWeights& sizes) { return sizes.panels() * sizes.quads() * 3 / 8; }

// Where the values of columns are: arrays of the plan, or of `scratch`.
RuntimeWeights ValuesIn(const LinearWeights& weights, const RuntimeB& b, const uint8_t* scratch) noexcept {
  const LinearProblem& problem = weights.problem();
  const int64_t columns = weights.packed().panels() * kPanelColumns;
  const auto* const values = reinterpret_cast<const int32_t*>(scratch);
  RuntimeWeights given;
  given.b = b.data;
  given.compensation = given.unshifted_compensation = weights.compensation().data();
  if (NeedsColumnSums(problem)) {
    given.compensation = values;
    given.unshifted_compensation = values + columns;
  }
  given.column_sums = values + 2 * columns;
  given.zero_points = problem.b_zero_points.empty() ? nullptr : problem.b_zero_points.data();
  const bool needs_zero_points = given.zero_points == nullptr && problem.HasWeightZeroPoints();
  if (b.zero_points != nullptr || needs_zero_points) given.zero_points = values + 3 * columns;
  given.factors = b.scales != nullptr ? values + 4 * columns : problem.Factors();
  return given;
}

// The result of PackRuntimeB() without panels.
RuntimeWeights Place(const LinearWeights& weights, const RuntimeB& b, int64_t begin, int64_t end,
                     uint8_t* scratch) noexcept {
  const LinearProblem& problem = weights.problem();
  const int64_t first = begin / kPanelColumns * kPanelColumns;
  const int64_t last = RoundUp(end, kPanelColumns);
  const int64_t columns = weights.packed().panels() * kPanelColumns;
  auto* const values = reinterpret_cast<int32_t*>(scratch);
  RuntimeWeights given = ValuesIn(weights, b, scratch);
  given.own_compensation = values;
  given.own_unshifted_compensation = values + columns;
  given.own_sums = values + 2 * columns;
  int32_t* const zero_points = values + 3 * columns;
  if (b.zero_points != nullptr) {
    Spread(b.zero_points, b.has_column_zero_points, first, end, last, zero_points);
    for (int64_t n = first; n < last; ++n) zero_points[n] -= problem.b_shift();
  } else if (given.zero_points == zero_points) {
    std::fill(zero_points + first, zero_points + last, 0);
  }
  if (b.scales != nullptr) {
    Spread(b.scales, b.has_column_scales, first, end, last, reinterpret_cast<float*>(values + 4 * columns));
  }
  return given;
}

}  // namespace

int64_t RuntimeWeightBytes(const LinearWeights& weights, RuntimeForm form, int64_t columns) {
  const int64_t values = kValues * weights.packed().panels() * kPanelColumns * int64_t{sizeof(int32_t)};
  if (form == RuntimeForm::kUnpacked) return values;
  const PackedWeights sizes = SizesOf(weights, columns);
  const int64_t bytes = values + RoundUp(sizes.bytes(), 64);
  if (form == RuntimeForm::kPanels) return bytes;
  const int64_t places = sizes.panels() + 1 + MostExtraQuads(sizes);
  return bytes + MostExtraQuads(sizes) * int64_t{sizeof(ExtraQuad)} +
         RoundUp(places * int64_t{sizeof(int64_t)}, 64);
}

// The values are what LinearWeights has for constant weights. All sums are modulo 2³².
void FinishColumns(const LinearWeights& weights, const RuntimeWeights& given, int64_t begin,
                   int64_t end) noexcept {
  const LinearProblem& problem = weights.problem();
  const int32_t* const bias = weights.compensation().data();
  const auto activation_zero_point = static_cast<uint32_t>(problem.ActivationZeroPoint());
  const uint32_t shift = problem.a_shift();
  const auto depth = static_cast<uint32_t>(weights.k());
  for (int64_t n = begin / kPanelColumns * kPanelColumns; n < RoundUp(end, kPanelColumns); ++n) {
    const auto sum = static_cast<uint32_t>(given.own_sums[n]);
    const uint32_t zero_point =
        given.zero_points == nullptr ? 0 : static_cast<uint32_t>(given.zero_points[n]);
    const uint32_t centered = sum - depth * zero_point;
    const uint32_t compensation = static_cast<uint32_t>(bias[n]) - activation_zero_point * centered;
    given.own_compensation[n] = static_cast<int32_t>(compensation);
    given.own_unshifted_compensation[n] = static_cast<int32_t>(compensation + shift * sum);
    given.own_sums[n] = static_cast<int32_t>(centered);
  }
}

RuntimeWeights PackRuntimeB(const LinearWeights& weights, const RuntimeB& b, RuntimeForm form, int64_t first,
                            int64_t begin, int64_t end, uint8_t* scratch) noexcept {
  RuntimeWeights given = Place(weights, b, begin, end, scratch);
  if (form == RuntimeForm::kUnpacked) return given;
  scratch += RuntimeWeightBytes(weights, RuntimeForm::kUnpacked, end - begin);
  PackedWeights packed = SizesOf(weights, end - begin);
  const int64_t panel = begin / kPanelColumns;
  auto* const panels =
      reinterpret_cast<int8_t*>(scratch) + (panel - first / kPanelColumns) * packed.panel_stride_bytes();
  given.panels = Before(panels, panel * packed.panel_stride_bytes());
  WeightView view = weights.layout();
  view.data = b.data + begin * view.stride_n;
  view.n = end - begin;
  PackPanels(view, packed, panels);
  packed.data = panels;
  if (NeedsColumnSums(weights.problem())) {
    std::fill(given.own_sums + begin, given.own_sums + begin + packed.panels() * kPanelColumns, 0);
    AddDepths(packed, 0, packed.quads() * kQuad, reinterpret_cast<uint32_t*>(given.own_sums + begin));
    FinishColumns(weights, given, begin, end);
  }
  if (form != RuntimeForm::kCutPanels) return given;
  const int64_t most = MostExtraQuads(packed);
  ExtraQuads& extra = given.extra;
  extra.quads = reinterpret_cast<ExtraQuad*>(panels + RoundUp(packed.bytes(), 64));
  extra.begins = reinterpret_cast<int64_t*>(extra.quads + most);
  extra.offsets = extra.begins + packed.panels() + 1;
  const int amax = weights.problem().AdmissibleRange().high;
  given.is_cut = CutPanels(packed, amax, most, panels, extra);
  extra.begins = Before(extra.begins, panel);
  return given;
}

RuntimeWeights PackedRuntimeB(const LinearWeights& weights, const RuntimeB& b,
                              const uint8_t* scratch) noexcept {
  RuntimeWeights given = ValuesIn(weights, b, scratch);
  given.panels =
      reinterpret_cast<const int8_t*>(scratch) + RuntimeWeightBytes(weights, RuntimeForm::kUnpacked, 0);
  return given;
}

}  // namespace intact::kernels
