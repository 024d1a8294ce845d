// The operators that the provider takes: each node becomes a layer, a plan of intact and how a run feeds it.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_OPERATORS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_OPERATORS_H_

#include <memory>

#include "groups.h"
#include "layer.h"
#include "run.h"

namespace intact::onnxruntime {

/// Why MakeLayer() refuses a group without an operator.
inline constexpr char kNoOperator[] = "no operator of this provider";
/// Whether the provider has an operator for a group; it may still refuse it.
bool HasOperator(const Group& group);
/// The layer of an operator. Throws Refusal if its nodes are to stay with ONNX Runtime.
std::unique_ptr<Layer> MakeLayer(const Group& group, const Settings& settings);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_OPERATORS_H_
