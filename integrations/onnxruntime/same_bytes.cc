#include "same_bytes.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "float_conv.h"
#include "float_conv_transpose.h"
#include "float_matmul.h"
#include "float_matrix_conv.h"
#include "float_pool.h"
#include "float_reduce.h"
#include "graph.h"
#include "groups.h"
#include "node.h"
#include "rules.h"

namespace intact::onnxruntime {
namespace {

struct Row {
  std::string_view type;        // with its domain, unless that is ONNX's
  std::string_view depends_on;  // "": nothing
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

bool IsPool(const std::string& type) {
  return type == "AveragePool" || type == "GlobalAveragePool" || type == "MaxPool" || type == "GlobalMaxPool";
}

// Whether a node of an operator whose bytes depend on something is one whose bytes do not.
bool IsOfOneOrder(Ort::ConstNode node, const std::string& type) {
  if (IsPool(type))
    return node.GetOutputs().size() > 1 || IsPoolOfIntegers(node) ||
           FloatPool::HasOneOrder(Node(node, {FloatPool::kInputs.begin(), FloatPool::kInputs.end()}), type);
  if (type == "LSTM" || type == "GRU") {
    const Node recurrent(node, {"X", "W", "R"});
    return !recurrent.IsFromRun(1) && !recurrent.IsFromRun(2);
  }
  if (type == "Conv") {
    const Node convolution(node, {FloatConv::kInputs.begin(), FloatConv::kInputs.end()});
    const auto weights = convolution.FindConstant(1);
    const int64_t groups = convolution.Integer("group", 1);
    return weights && !convolution.IsFromRun(2) &&
           (FloatConv::HasOneOrder(weights->shape, groups) ||
            FloatMatrixConv::HasOneOrder(weights->shape, groups));
  }
  if (type == "ReduceSum" || type == "ReduceMean")
    return !AxesOf(Node(node, {FloatReduce::kInputs.begin(), FloatReduce::kInputs.end()})).depends_on_threads;
  if (type == "ConvTranspose")
    return FloatConvTranspose::HasOneOrder(
        Node(node, {FloatConvTranspose::kInputs.begin(), FloatConvTranspose::kInputs.end()}));
  if (type != "MatMul" && type != "Gemm" && type != "FusedMatMul") return false;
  return !FloatMatMul::DependsOnThreads(
      Node(node, {FloatMatMul::kInputs.begin(), FloatMatMul::kInputs.end()}));
}

}  // namespace

std::string WhyBytesMayDiffer(Ort::ConstNode node) {
  const std::string& version = RuntimeVersion();
  if (std::ranges::find(kVersions, version) == std::end(kVersions))
    return "its bytes were not measured in ONNX Runtime " + version;
  const std::string domain = DomainOf(node), type = node.GetOperatorType();
  const std::string name = domain.empty() ? type : domain + "." + type;
  if (std::ranges::find(kExact, name) != std::end(kExact)) return "";
  const auto row = std::ranges::find(kRows, name, &Row::type);
  if (row == std::end(kRows)) return "its bytes were not measured";
  const Elements elements = ElementsOf(node);
  const bool is_of_clamped_sums = row->depends_on.starts_with("the CPU") && !IsPool(type);
  if (elements == Elements::kIntegers && !is_of_clamped_sums) return "";
  if (!row->depends_on.empty() && !IsOfOneOrder(node, type))
    return "its bytes depend on " + std::string(row->depends_on);
  if (elements == Elements::kOthers) return "its bytes were measured with float32 only";
  if ((type == "MatMul" || type == "Gemm" || type == "FusedMatMul") && IsBehindDequantizeLinear(node))
    return "ONNX Runtime may compute it in integers, and these sums depend on the CPU";
  return "";
}

}  // namespace intact::onnxruntime
