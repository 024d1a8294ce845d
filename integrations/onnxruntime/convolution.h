// Layers of convolutions. Each throws Refusal if the node is to stay with ONNX Runtime.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_CONVOLUTION_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_CONVOLUTION_H_

#include <intact/intact.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "layer.h"
#include "linear.h"
#include "node.h"

namespace intact::onnxruntime {

/// The geometry of a node's convolution.
struct ConvGeometry {
  /// `weights`: the shape OI…. Throws Refusal if no convolution has this geometry before its input is known.
  ConvGeometry(const Node& node, const Shape& weights);

  /// The place of the first spatial extent in the shapes of X and Y.
  size_t FirstExtent() const { return channels_last ? 1 : 2; }
  /// Throws std::invalid_argument if X does not fit.
  Shape OutputShape(const Shape& x) const;

  intact_conv_desc desc = INTACT_CONV_DESC_INIT;  ///< without types; its input has any extents
  bool channels_last;

 private:
  // The extent of the kernel with its dilation.
  int64_t Reach(size_t i) const { return desc.dilation[i] * (desc.kernel[i] - 1) + 1; }
  void SetPadding(const Node& node, size_t dims);
};

std::unique_ptr<Layer> MakeConvInteger(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeDynamicQuantizeConv(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeConvIntegerToFloat(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeQLinearConv(const Node& node, const Context& context);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_CONVOLUTION_H_
