#include "float_reduce.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

namespace intact::onnxruntime {
namespace {

// Constant axes from 0 on, in order; none: all axes, or axes that each run gives.
std::vector<int64_t> ConstantAxes(const Node& node, int64_t dimensions) {
  std::vector<int64_t> axes;
  if (const auto constant = node.FindConstant(1)) {
    const auto values = constant->As<int64_t>();
    axes.assign(values.begin(), values.end());
  } else {
    axes = node.Integers("axes");
  }
  for (int64_t& axis : axes) axis += axis < 0 ? dimensions : 0;
  std::ranges::sort(axes);
  return axes;
}

}  // namespace

ReducedAxes AxesOf(const Node& node) {
  const auto dimensions = static_cast<int64_t>(node.ShapeOf(0).size());
  const std::vector<int64_t> axes = ConstantAxes(node, dimensions);
  if (axes.empty() || axes.front() < 0 || axes.back() >= dimensions) return {};
  for (size_t i = 1; i < axes.size(); ++i)
    if (axes[i] != axes[i - 1] + 1) return {};
  const InnerAxes found{axes.front(), axes.back() + 1};
  if (found.begin == 0 || found.end == dimensions) return {.depends_on_threads = false};
  return {.inner = found};
}

FloatReduce::FloatReduce(const Node& node, const Context& context, bool is_mean)
    : is_mean_(is_mean),
      keeps_dimensions_(node.Integer("keepdims", 1) != 0),
      dimensions_(node.ShapeOf(0).size()) {
  node.Type(0, {INTACT_F32});
  if (!context.settings.is_reproducible)
    throw Refusal("operator: is of floats; expected integers without the option reproducible");
  const ReducedAxes axes = AxesOf(node);
  if (!axes.depends_on_threads)
    throw Refusal("operator: has the same bytes in ONNX Runtime for every number of threads");
  if (!axes.inner)
    throw Refusal("axes: are no adjacent constant axes; expected them, and a known number of dimensions");
  axes_ = *axes.inner;
}

void FloatReduce::Compute(Run& run) const {
  const auto input = run.Input(0);
  const Shape shape = input.GetTensorTypeAndShapeInfo().GetShape();
  if (shape.size() != dimensions_)
    throw std::invalid_argument("data: has " + std::to_string(shape.size()) + " dimensions; expected " +
                                std::to_string(dimensions_));
  const std::span extents(shape);
  const auto begin = static_cast<size_t>(axes_.begin), end = static_cast<size_t>(axes_.end);
  const int64_t items = CountOf(extents.first(begin)), inner = CountOf(extents.subspan(end));
  const int64_t count = CountOf(extents.subspan(begin, end - begin));
  Shape reduced(shape.begin(), shape.begin() + axes_.begin);
  if (keeps_dimensions_) reduced.insert(reduced.end(), end - begin, 1);
  reduced.insert(reduced.end(), shape.begin() + axes_.end, shape.end());
  const auto* const x = static_cast<const float*>(input.GetTensorRawData());
  auto* const y = static_cast<float*>(run.Output(reduced));
  run.ForEach(items, [&](int64_t item) {
    const float* const from = x + item * count * inner;
    float* const to = y + item * inner;
    std::fill_n(to, inner, 0.0f);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < inner; ++j) to[j] = to[j] + from[i * inner + j];
    if (is_mean_)
      for (int64_t j = 0; j < inner; ++j) to[j] /= static_cast<float>(count);
  });
}

}  // namespace intact::onnxruntime
