// The largest value of a window, of bytes: MaxPool in two dimensions.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_POOL_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "layer.h"
#include "node.h"

namespace intact::onnxruntime {

/// The window of a pool in two dimensions.
struct PoolWindow {
  /// Throws Refusal unless the node states all extents.
  explicit PoolWindow(const Node& node);

  /// How many outputs dimension `i` has. Throws std::invalid_argument if `extent` is too small for one.
  int64_t OutputExtent(size_t i, int64_t extent) const;

  std::array<int64_t, 2> kernel, strides, dilations;
  std::array<int64_t, 4> pads;
};

/// What a run gives a pool: images of two dimensions.
struct PooledImages {
  /// Throws std::invalid_argument if X does not have four dimensions, or if images have an extent of 0.
  PooledImages(const Run& run, bool channels_last);
  /// The shape of X with other extents.
  Shape With(const std::array<int64_t, 2>& other_extents) const;

  const void* data;
  Shape shape;
  size_t first_extent;  ///< its place in the shape
  int64_t batch, channels;
  std::array<int64_t, 2> extents;
};

/// MaxPool of NCHW tensors, or NHWC ones. A DequantizeLinear before it and a QuantizeLinear behind it with one scale and
/// zero point change nothing.
class MaxPool : public Layer {
 public:
  explicit MaxPool(const Node& node);
  ElementOrder GetOrder() const override {
    return channels_last_ ? ElementOrder::kChannelsFirst : ElementOrder::kEither;
  }
  void Compute(Run& run) const override;
  std::string Kernel() const override { return "max_pool"; }

 private:
  // NHWC: outputs of row `y` of an image of `extents` pixels.
  template <class Element>
  void ComputeRow(const Element* image, std::array<int64_t, 2> extents, int64_t channels, int64_t y,
                  int64_t width, Element* outputs) const;

  const bool channels_last_, is_signed_;
  const PoolWindow window_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_POOL_H_
