// The largest value of a window, of bytes: MaxPool in two dimensions.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_POOL_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_POOL_H_

#include <array>
#include <cstdint>
#include <string>

#include "node.h"
#include "operators.h"

namespace intact::onnxruntime {

/// MaxPool of NCHW tensors, or NHWC ones. A DequantizeLinear before it and a QuantizeLinear behind it with one scale and
/// zero point change nothing.
class MaxPool : public Layer {
 public:
  explicit MaxPool(const Node& node);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return "max_pool"; }

 private:
  // NHWC: outputs of row `y` of an image of `extents` pixels.
  template <class Element>
  void ComputeRow(const Element* image, std::array<int64_t, 2> extents, int64_t channels, int64_t y,
                  int64_t width, Element* outputs) const;

  std::array<int64_t, 2> kernel_, strides_, dilations_;
  std::array<int64_t, 4> pads_;
  bool channels_last_, is_signed_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_POOL_H_
