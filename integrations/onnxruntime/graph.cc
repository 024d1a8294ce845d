#include "graph.h"

#include <cstring>
#include <optional>

#include "node.h"

namespace intact::onnxruntime {
namespace {

// The zero point of a QuantizeLinear or a DequantizeLinear, if it is one constant of s8.
std::optional<int32_t> S8ZeroPointOf(Ort::ConstNode node) {
  const auto zero_point = Node(node, {}).FindConstant(2);
  if (!zero_point || zero_point->type != INTACT_S8 || zero_point->count != 1) return {};
  return zero_point->Integer(0);
}

}  // namespace

bool Is(Ort::ConstNode node, const char* type) {
  if (node == nullptr) return false;
  const char* given = nullptr;  // GetOperatorType() would copy it
  Ort::ThrowOnError(Ort::GetApi().Node_GetOperatorType(node, &given));
  return std::strcmp(given, type) == 0 && DomainOf(node).empty();
}

Ort::ConstNode ProducerOf(Ort::ConstValueInfo value) {
  return value == nullptr ? Ort::ConstNode() : value.GetProducerNode().node;
}

Ort::ConstNode SoleConsumer(Ort::ConstValueInfo value) {
  if (value == nullptr || value.IsGraphOutput()) return {};
  const auto consumers = value.GetConsumers();
  return consumers.size() == 1 && consumers[0].index >= 0 ? consumers[0].node : Ort::ConstNode();
}

bool IsRead(Ort::ConstValueInfo value) {
  return value != nullptr && (value.IsGraphOutput() || !value.GetConsumers().empty());
}

Ort::ConstValueInfo InputOf(Ort::ConstNode node, size_t i) {
  const auto inputs = node.GetInputs();
  return i < inputs.size() ? inputs[i] : Ort::ConstValueInfo();
}

Ort::ConstValueInfo OutputOf(Ort::ConstNode node, size_t i) { return node.GetOutputs().at(i); }

std::vector<std::string> NamesOf(const std::vector<Ort::ConstValueInfo>& values) {
  std::vector<std::string> names;
  names.reserve(values.size());
  for (const auto& value : values) names.push_back(value == nullptr ? "" : value.GetName());
  return names;
}

bool IsS8(Ort::ConstValueInfo value) { return ElementTypeOf(value) == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8; }

bool IsMovedToU8(Ort::ConstNode quantizer, Ort::ConstNode dequantizer) {
  if (!Is(quantizer, "QuantizeLinear") || !Is(dequantizer, "DequantizeLinear") ||
      SoleConsumer(OutputOf(quantizer)) == nullptr)
    return false;
  const auto zero_point = S8ZeroPointOf(quantizer);
  return zero_point && zero_point == S8ZeroPointOf(dequantizer);
}

bool HasMovedInput(Ort::ConstNode dequantizer) {
  return IsMovedToU8(ProducerOf(InputOf(dequantizer, 0)), dequantizer);
}

}  // namespace intact::onnxruntime
