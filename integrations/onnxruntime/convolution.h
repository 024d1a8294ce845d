// Layers of convolutions. Each throws Refusal if the node is to stay with ONNX Runtime.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_CONVOLUTION_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_CONVOLUTION_H_

#include <memory>

#include "linear.h"
#include "node.h"
#include "operators.h"

namespace intact::onnxruntime {

std::unique_ptr<Layer> MakeConvInteger(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeDynamicQuantizeConv(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeConvIntegerToFloat(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeQLinearConv(const Node& node, const Context& context);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_CONVOLUTION_H_
