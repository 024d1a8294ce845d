#include "node.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace intact::onnxruntime {
namespace {

// INTACT_TYPE_NONE: no type of intact's.
intact_type TypeOf(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
      return INTACT_U8;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
      return INTACT_S8;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
      return INTACT_S32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return INTACT_F32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return INTACT_F16;
    default:
      return INTACT_TYPE_NONE;
  }
}

const char* NameOf(intact_type type) {
  switch (type) {
    case INTACT_U8:
      return "uint8";
    case INTACT_S8:
      return "int8";
    case INTACT_S32:
      return "int32";
    case INTACT_F32:
      return "float";
    case INTACT_F16:
      return "float16";
    default:
      return "another type";
  }
}

intact_type TypeOf(const Ort::ConstValueInfo& value) { return TypeOf(ElementTypeOf(value)); }

intact_type CheckedType(const Ort::ConstValueInfo& value, const char* name,
                        std::initializer_list<intact_type> allowed) {
  const intact_type type = TypeOf(value);
  if (std::ranges::find(allowed, type) != allowed.end()) return type;
  std::string expected;
  for (const intact_type each : allowed)
    expected += (expected.empty() ? "" : " or ") + std::string(NameOf(each));
  throw Refusal(std::string(name) + ": is " + NameOf(type) + "; expected " + expected);
}

}  // namespace

int64_t CountOf(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
}

int32_t Constant::Integer(int64_t i) const {
  const auto place = static_cast<size_t>(i);
  return type == INTACT_U8   ? As<uint8_t>()[place]
         : type == INTACT_S8 ? As<int8_t>()[place]
                             : As<int32_t>()[place];
}

std::vector<float> Constant::Floats() const {
  if (type == INTACT_F32) return {As<float>().begin(), As<float>().end()};
  std::vector<float> floats;
  for (const uint16_t bits : As<uint16_t>()) floats.push_back(Ort::Float16_t::FromBits(bits).ToFloat());
  return floats;
}

ONNXTensorElementDataType ElementTypeOf(Ort::ConstValueInfo value) {
  const auto info = value.TypeInfo();
  return info.GetONNXType() == ONNX_TYPE_TENSOR ? info.GetTensorTypeAndShapeInfo().GetElementType()
                                                : ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

std::string DomainOf(Ort::ConstNode node) {
  std::string domain = node.GetDomain();
  if (domain == "ai.onnx" || domain == kNhwcDomain) domain.clear();
  return domain;
}

Node::Node(Ort::ConstNode node, std::vector<const char*> names)
    : Node(node, node.GetInputs(), node.GetOutputs().at(0), std::move(names)) {}

Node::Node(Ort::ConstNode node, std::vector<Ort::ConstValueInfo> inputs, Ort::ConstValueInfo output,
           std::vector<const char*> names)
    : node_(node), inputs_(std::move(inputs)), output_(output), names_(std::move(names)) {}

bool Node::Has(size_t input) const {
  return input < inputs_.size() && inputs_[input] != nullptr && !inputs_[input].GetName().empty();
}

std::optional<Constant> Node::FindConstant(size_t input) const {
  if (!Has(input) || !inputs_[input].IsConstantInitializer()) return {};
  Ort::ConstValue value;
  if (!inputs_[input].GetInitializer(value).IsOK() || value == nullptr) return {};
  const auto info = value.GetTensorTypeAndShapeInfo();
  Constant constant{TypeOf(info.GetElementType()), info.GetShape(), value.GetTensorRawData(), 0};
  constant.count = CountOf(constant.shape);
  return constant;
}

Constant Node::ConstantOf(size_t input, intact_type type) const {
  auto constant = FindConstant(input);
  const std::string name = names_[input];
  if (!constant) throw Refusal(name + ": is computed by each run; expected a constant");
  if (constant->type != type)
    throw Refusal(name + ": is " + NameOf(constant->type) + "; expected " + NameOf(type));
  return *std::move(constant);
}

Constant Node::Weights(size_t input, intact_type type) const {
  Constant constant = ConstantOf(input, type);
  const std::string name = names_[input];
  if (constant.shape.size() < 2)
    throw Refusal(name + ": has " + std::to_string(constant.shape.size()) +
                  " dimensions; expected at least 2");
  if (constant.count == 0) throw Refusal(name + ": is empty");
  return constant;
}

Constant Node::Values(size_t input, intact_type type, int64_t columns) const {
  Constant constant = ConstantOf(input, type);
  if (constant.count != 1 && constant.count != columns)
    throw Refusal(std::string(names_[input]) + ": has " + std::to_string(constant.count) +
                  " values; expected " + (columns == 1 ? "1" : "1 or " + std::to_string(columns)));
  return constant;
}

std::vector<float> Node::Scales(size_t input, int64_t columns) const {
  const Constant constant = Values(input, INTACT_F32, columns);
  const auto values = constant.As<float>();
  return {values.begin(), values.end()};
}

float Node::Scale(size_t input) const { return Scales(input, 1).front(); }

std::vector<int32_t> Node::ZeroPoints(size_t input, intact_type type, int64_t columns) const {
  if (!Has(input)) return {0};
  const Constant constant = Values(input, type, columns);
  std::vector<int32_t> values;
  for (int64_t i = 0; i < constant.count; ++i) values.push_back(constant.Integer(i));
  return values;
}

int32_t Node::ZeroPoint(size_t input, intact_type type) const { return ZeroPoints(input, type, 1).front(); }

intact_type Node::Type(size_t input, std::initializer_list<intact_type> allowed) const {
  return CheckedType(inputs_.at(input), names_[input], allowed);
}

bool Node::IsOfType(size_t input, intact_type type) const { return TypeOf(inputs_.at(input)) == type; }

intact_type Node::OutputType(std::initializer_list<intact_type> allowed) const {
  return CheckedType(output_, "output", allowed);
}

Shape Node::ShapeOf(size_t input) const {
  const auto info = inputs_.at(input).TypeInfo();
  return info.GetONNXType() == ONNX_TYPE_TENSOR ? info.GetTensorTypeAndShapeInfo().GetShape() : Shape();
}

Ort::ConstOpAttr Node::Attribute(const char* name) const {
  Ort::ConstOpAttr attribute;
  if (!node_.GetAttributeByName(name, attribute).IsOK()) return {};
  return attribute;
}

bool Node::IsChannelsLast() const {
  return node_.GetDomain() == kNhwcDomain || Integer("channels_last", 0) != 0;
}

int64_t Node::Integer(const char* attribute, int64_t otherwise) const {
  const auto found = Attribute(attribute);
  if (found != nullptr) Ort::ThrowOnError(found.GetValue(otherwise));
  return otherwise;
}

float Node::Float(const char* attribute, float otherwise) const {
  const auto found = Attribute(attribute);
  if (found != nullptr) Ort::ThrowOnError(found.GetValue(otherwise));
  return otherwise;
}

std::string Node::String(const char* attribute, const char* otherwise) const {
  std::string value = otherwise;
  const auto found = Attribute(attribute);
  if (found != nullptr) Ort::ThrowOnError(found.GetValue(value));
  return value;
}

std::vector<std::string> Node::Strings(const char* attribute) const {
  std::vector<std::string> values;
  const auto found = Attribute(attribute);
  if (found != nullptr) Ort::ThrowOnError(found.GetValueArray(values));
  return values;
}

Shape Node::Integers(const char* attribute) const {
  Shape values;
  if (const auto found = Attribute(attribute); found != nullptr)
    Ort::ThrowOnError(found.GetValueArray(values));
  return values;
}

Shape Node::Integers(const char* attribute, size_t count, int64_t otherwise) const {
  if (!HasAttribute(attribute)) return Shape(count, otherwise);
  Shape values = Integers(attribute);
  if (values.size() != count)
    throw Refusal(std::string(attribute) + ": has " + std::to_string(values.size()) + " values; expected " +
                  std::to_string(count));
  return values;
}

}  // namespace intact::onnxruntime
