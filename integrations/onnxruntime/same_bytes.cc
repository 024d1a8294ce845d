#include "same_bytes.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "graph.h"
#include "node.h"

namespace intact::onnxruntime {
namespace {

struct Row {
  std::string_view type;  // with its domain, unless that is ONNX's
  const char* depends_on;  // "": nothing
};

#include "same_bytes_table.inc"

// What the table was measured for.
enum class Elements { kIntegers, kFloats, kOthers };

Elements ElementsOf(Ort::ConstNode node) {
  Elements found = Elements::kIntegers;
  const auto add = [&](Ort::ConstValueInfo value) {
    if (value == nullptr) return;
    switch (ElementTypeOf(value)) {
      case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
        if (found == Elements::kIntegers) found = Elements::kFloats;
        break;
      case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
        found = Elements::kOthers;
        break;
      default:
        break;
    }
  };
  for (const auto& value : node.GetInputs()) add(value);
  for (const auto& value : node.GetOutputs()) add(value);
  return found;
}

// Whether ONNX Runtime may compute the product in integers, which clamp on CPUs without VNNI.
bool IsBehindDequantizeLinear(Ort::ConstNode node) {
  const std::vector<Ort::ConstValueInfo> inputs = node.GetInputs();
  return std::ranges::any_of(inputs, [](const Ort::ConstValueInfo& input) {
    const auto producer = ProducerOf(input);
    return producer != nullptr && producer.GetOperatorType() == "DequantizeLinear";
  });
}

}  // namespace

std::string WhyBytesMayDiffer(Ort::ConstNode node, const std::string& version) {
  if (std::ranges::find(kVersions, std::string_view(version)) == std::end(kVersions))
    return "its bytes were not measured in ONNX Runtime " + version;
  const std::string domain = DomainOf(node), type = node.GetOperatorType();
  const std::string name = domain.empty() ? type : domain + "." + type;
  if (std::ranges::find(kExact, name) != std::end(kExact)) return "";
  const auto row = std::ranges::find(kRows, name, &Row::type);
  if (row == std::end(kRows)) return "its bytes were not measured";
  if (*row->depends_on != '\0') return std::string("its bytes depend on ") + row->depends_on;
  if (ElementsOf(node) == Elements::kOthers) return "its bytes were measured with float32 only";
  if ((type == "MatMul" || type == "Gemm" || type == "FusedMatMul") && IsBehindDequantizeLinear(node))
    return "ONNX Runtime may compute it in integers, and these sums depend on the CPU";
  return "";
}

}  // namespace intact::onnxruntime
