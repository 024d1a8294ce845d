#include "float_reduce.h"

#include <algorithm>
#include <span>
#include <stdexcept>

namespace intact::onnxruntime {
namespace {

// Constant axes as the node has them; none: all axes, or axes that each run gives.
std::vector<int64_t> ConstantAxes(const Node& node) {
  if (const auto constant = node.FindConstant(1)) {
    const auto values = constant->As<int64_t>();
    return {values.begin(), values.end()};
  }
  return node.Integers("axes");
}

// The axes in a tensor of so many dimensions; none if they are not adjacent, or if the tensor does not have them.
std::optional<AdjacentAxes> AxesIn(std::vector<int64_t> axes, int64_t dimensions) {
  for (int64_t& axis : axes) axis += axis < 0 ? dimensions : 0;
  std::ranges::sort(axes);
  if (axes.empty() || axes.front() < 0 || axes.back() >= dimensions) return {};
  for (size_t i = 1; i < axes.size(); ++i)
    if (axes[i] != axes[i - 1] + 1) return {};
  return AdjacentAxes{axes.front(), axes.back() + 1};
}

// The sum of n elements, the last axes of a tensor. `place`: of the first one in the tensor.
float SumOfLast(const float* x, int64_t n, int64_t place) {
  const int64_t first = std::min(n, (4 - place % 4) % 4);
  const int64_t fours = (n - first) / 4;
  if (fours == 0) {
    float sum = n > 0 ? x[0] : 0;
    for (int64_t i = 1; i < n; ++i) sum += x[i];
    return sum;
  }
  const float* const from = x + first;
  std::array<float, 4> four;
  std::copy_n(from, 4, four.begin());
  if (fours > 1) {
    std::array<float, 4> others;
    std::copy_n(from + 4, 4, others.begin());
    for (int64_t i = 2; i + 1 < fours; i += 2)
      for (int64_t l = 0; l < 4; ++l) {
        four[static_cast<size_t>(l)] += from[4 * i + l];
        others[static_cast<size_t>(l)] += from[4 * i + 4 + l];
      }
    for (size_t l = 0; l < 4; ++l) four[l] += others[l];
    if (fours % 2 != 0)
      for (int64_t l = 0; l < 4; ++l) four[static_cast<size_t>(l)] += from[4 * (fours - 1) + l];
  }
  float sum = (four[0] + four[2]) + (four[1] + four[3]);
  for (int64_t i = 0; i < first; ++i) sum += x[i];
  for (int64_t i = first + 4 * fours; i < n; ++i) sum += x[i];
  return sum;
}

// The sums of `count` columns of a matrix of `rows` rows that are `columns` apart.
void AddRows(const float* x, float* y, int64_t rows, int64_t columns, int64_t count) {
  std::fill_n(y, count, 0.0f);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t j = 0; j < count; ++j) y[j] = y[j] + x[row * columns + j];
}

}  // namespace

ReducedAxes AxesOf(const Node& node) {
  const auto dimensions = static_cast<int64_t>(node.ShapeOf(0).size());
  const auto found = AxesIn(ConstantAxes(node), dimensions);
  if (!found) return {};
  if (found->end == dimensions) return {.depends_on_threads = false};
  return {.adjacent = found};
}

FloatReduce::FloatReduce(const Node& node, const Context& context, bool is_mean)
    : is_mean_(is_mean),
      keeps_dimensions_(node.Integer("keepdims", 1) != 0),
      dimensions_(node.ShapeOf(0).size()),
      axes_(ConstantAxes(node)) {
  node.Type(0, {INTACT_F32});
  context.RequireReproducible();
  const ReducedAxes axes = AxesOf(node);
  if (!axes.depends_on_threads)
    throw Refusal("operator: has the same bytes in ONNX Runtime for every number of threads");
  if (!axes.adjacent && (dimensions_ > 0 || axes_.empty()))
    throw Refusal("axes: are no adjacent constant axes; expected them");
}

void FloatReduce::Compute(Run& run) const {
  const auto input = run.Input(0);
  const Shape shape = input.GetTensorTypeAndShapeInfo().GetShape();
  const auto dimensions = static_cast<int64_t>(shape.size());
  if (dimensions_ > 0 && shape.size() != dimensions_)
    throw std::invalid_argument("data: has " + std::to_string(dimensions) + " dimensions; expected " +
                                std::to_string(dimensions_));
  const auto axes = AxesIn(axes_, dimensions);
  if (!axes)
    throw std::invalid_argument("axes: are no adjacent ones of the input's " + std::to_string(dimensions) +
                                " dimensions; expected them");
  const std::span extents(shape);
  const auto begin = static_cast<size_t>(axes->begin), end = static_cast<size_t>(axes->end);
  const int64_t items = CountOf(extents.first(begin)), inner = CountOf(extents.subspan(end));
  const int64_t count = CountOf(extents.subspan(begin, end - begin));
  Shape reduced(shape.begin(), shape.begin() + axes->begin);
  if (keeps_dimensions_) reduced.insert(reduced.end(), end - begin, 1);
  reduced.insert(reduced.end(), shape.begin() + axes->end, shape.end());
  const auto* const x = static_cast<const float*>(input.GetTensorRawData());
  auto* const y = static_cast<float*>(run.Output(reduced));
  if (CountOf(reduced) == 0) return;
  // A task computes some items, or some columns of one item.
  constexpr int64_t kWork = int64_t{1} << 15;
  const bool is_last = axes->end == dimensions;
  const int64_t width =
      is_last ? 1 : std::min(inner, std::max<int64_t>(kWork / std::max<int64_t>(count, 1), 16));
  const int64_t parts = is_last ? 1 : (inner + width - 1) / width;
  const int64_t together = std::max<int64_t>(kWork / std::max<int64_t>(count * width, 1), 1);
  const int64_t all = items * parts, tasks = (all + together - 1) / together;
  run.ForEach(tasks, [&](int64_t task) {
    for (int64_t part = task * together; part < std::min(all, (task + 1) * together); ++part) {
      const int64_t item = part / parts, column = part % parts * width;
      const int64_t columns = std::min(width, inner - column);
      const float* const from = x + item * count * inner + column;
      float* const to = y + item * inner + column;
      if (is_last) {
        *to = SumOfLast(from, count, item * count);
      } else {
        AddRows(from, to, count, inner, columns);
      }
      if (is_mean_)
        for (int64_t j = 0; j < columns; ++j) to[j] /= static_cast<float>(count);
    }
  });
}

}  // namespace intact::onnxruntime
