#include "pool.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace intact::onnxruntime {
namespace {

// Throws a Refusal unless all values of `attribute` are from `least` to `most`.
template <size_t kCount>
void CheckValues(const char* attribute, const std::array<int64_t, kCount>& values, int64_t least,
                 const std::array<int64_t, 2>& most) {
  for (size_t i = 0; i < kCount; ++i) {
    if (values[i] >= least && values[i] <= most[i % 2]) continue;
    throw Refusal(std::string(attribute) + ": has " + std::to_string(values[i]) + "; expected " +
                  std::to_string(least) + " to " + std::to_string(most[i % 2]));
  }
}

}  // namespace

PoolWindow::PoolWindow(const Node& node) : kernel{}, strides{}, dilations{}, pads{} {
  if (const size_t dimensions = node.ShapeOf(0).size(); dimensions != 4)
    throw Refusal("X: has " + std::to_string(dimensions) + " dimensions; expected 4");
  if (const std::string automatic = node.String("auto_pad", "NOTSET"); automatic != "NOTSET")
    throw Refusal("auto_pad: is " + automatic + "; expected explicit pads");
  if (node.Integer("ceil_mode", 0) != 0) throw Refusal("ceil_mode: is not 0; expected 0");
  std::ranges::copy(node.Integers("kernel_shape", 2, 1), kernel.begin());
  std::ranges::copy(node.Integers("strides", 2, 1), strides.begin());
  std::ranges::copy(node.Integers("dilations", 2, 1), dilations.begin());
  std::ranges::copy(node.Integers("pads", 4, 0), pads.begin());
  if (!node.HasAttribute("kernel_shape")) throw Refusal("kernel_shape: is not given; expected two extents");
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  CheckValues("kernel_shape", kernel, 1, {kMost, kMost});
  CheckValues("strides", strides, 1, {kMost, kMost});
  CheckValues("dilations", dilations, 1, {kMost, kMost});
  CheckValues("pads", pads, 0, {kernel[0] - 1, kernel[1] - 1});
}

int64_t PoolWindow::OutputExtent(size_t i, int64_t extent) const {
  const int64_t reach = (kernel[i] - 1) * dilations[i] + 1, padded = extent + pads[i] + pads[i + 2];
  if (padded < reach)
    throw std::invalid_argument("X: has extent " + std::to_string(padded) +
                                " with its padding; expected at least " + std::to_string(reach));
  return (padded - reach) / strides[i] + 1;
}

PooledImages::PooledImages(const Run& run, bool channels_last) : first_extent(channels_last ? 1 : 2) {
  const auto input = run.Input(0);
  data = input.GetTensorRawData();
  shape = input.GetTensorTypeAndShapeInfo().GetShape();
  if (shape.size() != 4)
    throw std::invalid_argument("X: has " + std::to_string(shape.size()) + " dimensions; expected 4");
  batch = shape[0];
  channels = shape[channels_last ? 3 : 1];
  extents = {shape[first_extent], shape[first_extent + 1]};
  if (batch > 0 && (channels == 0 || extents[0] == 0 || extents[1] == 0))
    throw std::invalid_argument("X: has an extent of 0; expected 1 or more, as ONNX Runtime does");
}

Shape PooledImages::With(const std::array<int64_t, 2>& other_extents) const {
  Shape other = shape;
  std::ranges::copy(other_extents, other.begin() + static_cast<std::ptrdiff_t>(first_extent));
  return other;
}

MaxPool::MaxPool(const Node& node)
    : channels_last_(node.IsChannelsLast()),
      is_signed_(node.Type(0, {INTACT_U8, INTACT_S8}) == INTACT_S8),
      window_(node) {}

template <class Element>
void MaxPool::ComputeRow(const Element* image, std::array<int64_t, 2> extents, int64_t channels, int64_t y,
                         int64_t width, Element* outputs) const {
  for (int64_t x = 0; x < width; ++x) {
    Element* const target = outputs + x * channels;
    bool is_first = true;
    for (int64_t i = 0; i < window_.kernel[0]; ++i) {
      const int64_t row = y * window_.strides[0] - window_.pads[0] + i * window_.dilations[0];
      if (row < 0 || row >= extents[0]) continue;
      for (int64_t j = 0; j < window_.kernel[1]; ++j) {
        const int64_t column = x * window_.strides[1] - window_.pads[1] + j * window_.dilations[1];
        if (column < 0 || column >= extents[1]) continue;
        const Element* const source = image + (row * extents[1] + column) * channels;
        if (std::exchange(is_first, false)) {
          std::copy_n(source, channels, target);
        } else {
          for (int64_t c = 0; c < channels; ++c) target[c] = std::max(target[c], source[c]);
        }
      }
    }
    // With dilation all taps may lie in the padding.
    if (is_first) std::fill_n(target, channels, std::numeric_limits<Element>::lowest());
  }
}

void MaxPool::Compute(Run& run) const {
  const PooledImages images(run, channels_last_);
  const auto [in_height, in_width] = images.extents;
  const int64_t height = window_.OutputExtent(0, in_height), width = window_.OutputExtent(1, in_width);
  const Shape shape = images.With({height, width});
  const int64_t batch = images.batch, channels = images.channels, elements = CountOf(shape);
  const void* source = images.data;
  void* const result = run.Output(shape);
  if (elements == 0) return;
  void* target = result;
  const int64_t pixels = in_height * in_width;
  if (!channels_last_ && !run.IsChannelsLast(0)) {
    void* const transposed = run.Allocate(static_cast<size_t>(batch * pixels * channels));
    run.Transpose(source, transposed, 1, batch, channels, pixels);
    source = transposed;
  }
  const bool turns_y = !channels_last_ && !run.IsOutputChannelsLast();
  if (turns_y) target = run.Allocate(static_cast<size_t>(elements));
  const auto compute = [&]<class Element>(const Element* inputs, Element* outputs) {
    run.ForEach(batch * height, [&](int64_t row) {
      ComputeRow(inputs + row / height * pixels * channels, images.extents, channels, row % height, width,
                 outputs + row * width * channels);
    });
  };
  if (is_signed_) {
    compute(static_cast<const int8_t*>(source), static_cast<int8_t*>(target));
  } else {
    compute(static_cast<const uint8_t*>(source), static_cast<uint8_t*>(target));
  }
  if (turns_y) run.Transpose(target, result, 1, batch, height * width, channels);
}

}  // namespace intact::onnxruntime
