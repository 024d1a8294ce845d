#include "float_pool.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace intact::onnxruntime {
namespace {

constexpr int64_t kLanes = 4;         // of a vector in ONNX Runtime's kernels for planes
constexpr int64_t kMostKernel = 32;   // of the windows that are reduced by columns
constexpr int64_t kMostWidth = 2045;  // of a line with its padding that is reduced by columns
constexpr int64_t kElementsOfTask = 1 << 14;

struct Sum {
  static constexpr float kFirst = 0;
  static float Vector(float a, float b) { return a + b; }
  static float Scalar(float a, float b) { return a + b; }
};

// The two differ if one operand is a NaN: vectors give the second operand, scalars the first one.
struct Largest {
  static constexpr float kFirst = std::numeric_limits<float>::lowest();
  static float Vector(float a, float b) { return a > b ? a : b; }
  static float Scalar(float a, float b) { return a < b ? b : a; }
};

template <class Operation>
float ReduceAll(const float* x, int64_t elements) {
  std::array<float, kLanes> lanes;
  lanes.fill(Operation::kFirst);
  const int64_t whole = elements / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j)
      lanes[j] = Operation::Vector(lanes[j], x[i + static_cast<int64_t>(j)]);
  float y = Operation::Vector(Operation::Vector(lanes[0], lanes[2]), Operation::Vector(lanes[1], lanes[3]));
  for (int64_t i = whole; i < elements; ++i) y = Operation::Scalar(y, x[i]);
  return y;
}

bool IsDilated(const PoolWindow& window) { return window.dilations[0] != 1 || window.dilations[1] != 1; }

// Whether ONNX Runtime reduces an image as a whole.
bool IsWhole(const PoolWindow& window, int64_t height, int64_t width) {
  return window.kernel == std::array{height, width} && window.strides == std::array<int64_t, 2>{1, 1} &&
         window.pads == std::array<int64_t, 4>{} && !IsDilated(window);
}

// Whether it reduces windows by columns.
bool HasColumns(const PoolWindow& window, int64_t width) {
  return !IsDilated(window) && window.strides[1] <= 2 && std::ranges::max(window.kernel) <= kMostKernel &&
         window.pads[1] + width + window.pads[3] <= kMostWidth;
}

}  // namespace

// An image of one channel, and its outputs.
struct FloatPool::Plane {
  int64_t height, width, out_height, out_width;
};

// The taps of an output.
struct FloatPool::Taps {
  int64_t h, w;                            // the first tap; may lie in the padding
  int64_t h_begin, h_end, w_begin, w_end;  // of the image; without dilation
};

FloatPool::FloatPool(const Node& node, const Context& context, const std::string& type)
    : is_average_(type.ends_with("AveragePool")),
      channels_last_(node.IsChannelsLast()),
      counts_padding_(node.Integer("count_include_pad", 0) != 0) {
  node.Type(0, {INTACT_F32});
  context.RequireReproducible();
  if (HasOneOrder(node, type)) throw Refusal("operator: has the same bytes in ONNX Runtime on every CPU");
  if (const size_t dimensions = node.ShapeOf(0).size(); dimensions != 4)
    throw Refusal("X: has " + std::to_string(dimensions) + " dimensions; expected 4");
  if (!type.starts_with("Global")) window_.emplace(node);
}

bool FloatPool::HasOneOrder(const Node& node, const std::string& type) {
  if (type == "AveragePool" && node.SinceVersion() >= 19) return true;  // another kernel
  const Shape x = node.ShapeOf(0);
  if (!x.empty() && x.size() != 4) return true;
  if (x.empty()) return false;
  const int64_t channels = x[node.IsChannelsLast() ? 3 : 1];
  return channels > 0 && (channels % 8 != 0 || channels % 16 == 0);
}

template <class Operation>
float FloatPool::ComputeWindow(const Plane& plane, const Taps& taps, const float* x) const {
  float y = Operation::kFirst;
  if (!IsDilated(*window_)) {
    for (int64_t h = taps.h_begin; h < taps.h_end; ++h)
      for (int64_t w = taps.w_begin; w < taps.w_end; ++w) y = Operation::Scalar(y, x[h * plane.width + w]);
    return y;
  }
  bool is_first = true;
  for (int64_t i = 0; i < window_->kernel[0]; ++i)
    for (int64_t j = 0; j < window_->kernel[1]; ++j) {
      const int64_t h = taps.h + i * window_->dilations[0], w = taps.w + j * window_->dilations[1];
      if (h < 0 || h >= plane.height || w < 0 || w >= plane.width) continue;
      const float tap = x[h * plane.width + w];
      y = std::exchange(is_first, false) ? tap : Operation::Scalar(y, tap);
    }
  return y;
}

template <class Operation>
void FloatPool::ComputeColumns(const Plane& plane, const float* x, float* y) const {
  const int64_t whole = plane.width / kLanes * kLanes, left = window_->pads[1], right = window_->pads[3];
  std::vector<float> line(static_cast<size_t>(left + plane.width + right), Operation::kFirst);
  float* const columns = line.data() + left;
  for (int64_t row = 0; row < plane.out_height; ++row) {
    const int64_t h = row * window_->strides[0] - window_->pads[0];
    const int64_t begin = std::max<int64_t>(h, 0), end = std::min(h + window_->kernel[0], plane.height);
    std::copy_n(x + begin * plane.width, plane.width, columns);
    for (int64_t i = begin + 1; i < end; ++i) {
      const float* const next = x + i * plane.width;
      for (int64_t j = 0; j < whole; ++j) columns[j] = Operation::Vector(columns[j], next[j]);
      for (int64_t j = whole; j < plane.width; ++j) columns[j] = Operation::Scalar(columns[j], next[j]);
    }
    for (int64_t i = 0; i < plane.out_width; ++i) {
      const float* const first = line.data() + i * window_->strides[1];
      float& reduced = y[row * plane.out_width + i] = *first;
      for (int64_t j = 1; j < window_->kernel[1]; ++j) reduced = Operation::Vector(reduced, first[j]);
    }
  }
}

template <class Operation>
void FloatPool::ComputePlane(const Plane& plane, const float* x, float* y) const {
  if (!window_ || IsWhole(*window_, plane.height, plane.width)) {
    *y = ReduceAll<Operation>(x, plane.height * plane.width);
    if (is_average_) *y /= static_cast<float>(plane.height * plane.width);
    return;
  }
  const auto& [kernel, strides, dilations, pads] = *window_;
  const bool has_columns = HasColumns(*window_, plane.width);
  if (has_columns) ComputeColumns<Operation>(plane, x, y);
  if (has_columns && !is_average_) return;
  for (int64_t row = 0; row < plane.out_height; ++row)
    for (int64_t column = 0; column < plane.out_width; ++column) {
      const int64_t h = row * strides[0] - pads[0], w = column * strides[1] - pads[1];
      const Taps taps{.h = h,
                      .w = w,
                      .h_begin = std::max<int64_t>(h, 0),
                      .h_end = std::min(h + kernel[0], plane.height),
                      .w_begin = std::max<int64_t>(w, 0),
                      .w_end = std::min(w + kernel[1], plane.width)};
      float& output = y[row * plane.out_width + column];
      if (!has_columns) output = ComputeWindow<Operation>(plane, taps, x);
      const int64_t count =
          counts_padding_ ? kernel[0] * kernel[1] : (taps.h_end - taps.h_begin) * (taps.w_end - taps.w_begin);
      if (is_average_) output /= static_cast<float>(count);
    }
}

FloatPool::Plane FloatPool::PlaneOf(int64_t height, int64_t width) const {
  if (!window_) return {height, width, 1, 1};
  return {height, width, window_->OutputExtent(0, height), window_->OutputExtent(1, width)};
}

void FloatPool::Compute(Run& run) const {
  const PooledImages images(run, channels_last_);
  const Plane plane = PlaneOf(images.extents[0], images.extents[1]);
  const Shape shape = images.With({plane.out_height, plane.out_width});
  const int64_t batch = images.batch, channels = images.channels;
  auto* const output = static_cast<float*>(run.Output(shape));
  if (CountOf(shape) == 0) return;
  const int64_t pixels = plane.height * plane.width, outputs = plane.out_height * plane.out_width;
  const auto* x = static_cast<const float*>(images.data);
  float* y = output;
  if (channels_last_) {
    auto* const planes =
        static_cast<float*>(run.Allocate(static_cast<size_t>(batch * channels * pixels) * sizeof(float)));
    run.Transpose(x, planes, sizeof(float), batch, pixels, channels);
    x = planes;
    y = static_cast<float*>(run.Allocate(static_cast<size_t>(batch * channels * outputs) * sizeof(float)));
  }
  const int64_t planes_of_task = std::max<int64_t>(1, kElementsOfTask / std::max<int64_t>(1, pixels));
  const int64_t planes = batch * channels;
  run.ForEach((planes + planes_of_task - 1) / planes_of_task, [&](int64_t task) {
    for (int64_t i = task * planes_of_task; i < std::min(planes, (task + 1) * planes_of_task); ++i) {
      if (is_average_) {
        ComputePlane<Sum>(plane, x + i * pixels, y + i * outputs);
      } else {
        ComputePlane<Largest>(plane, x + i * pixels, y + i * outputs);
      }
    }
  });
  if (channels_last_) run.Transpose(y, output, sizeof(float), batch, channels, outputs);
}

}  // namespace intact::onnxruntime
