// Layers of the operators that multiply matrices. Each throws Refusal if the node is to stay with ONNX Runtime.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_H_

#include <memory>

#include "layer.h"
#include "linear.h"
#include "node.h"

namespace intact::onnxruntime {

std::unique_ptr<Layer> MakeMatMulInteger(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeQLinearMatMul(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeQGemm(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeDynamicQuantizeMatMul(const Node& node, const Context& context);
std::unique_ptr<Layer> MakeMatMulIntegerToFloat(const Node& node, const Context& context);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_H_
