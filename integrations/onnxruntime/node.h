// A node of a model: its constants, types and attributes.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_NODE_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_NODE_H_

#include <intact/intact.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ort.h"

namespace intact::onnxruntime {

/// Why a node stays with ONNX Runtime's CPU provider.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The domain of ONNX Runtime's own operators on NHWC tensors, which it makes of ONNX's for providers that ask for it.
inline constexpr char kNhwcDomain[] = "com.ms.internal.nhwc";

/// The element type of a tensor; of other values, the undefined type.
ONNXTensorElementDataType ElementTypeOf(Ort::ConstValueInfo value);

/// The domain of a node's operator; "" for ONNX's, on NHWC tensors too.
std::string DomainOf(Ort::ConstNode node);

using Shape = std::vector<int64_t>;

/// The elements of a shape without unknown extents.
int64_t CountOf(std::span<const int64_t> shape);

/// A constant tensor. The model owns its data.
struct Constant {
  intact_type type;
  Shape shape;
  const void* data;
  int64_t count;

  /// The elements of a tensor of T.
  template <class T>
  std::span<const T> As() const {
    return {static_cast<const T*>(data), static_cast<size_t>(count)};
  }
  /// Element i of a tensor of integers.
  int32_t Integer(int64_t i) const;
  /// The elements of a tensor of float32 or float16.
  std::vector<float> Floats() const;
};

/// An operator as it is asked for: inputs by their place in the operator's definition. An error is a Refusal
/// that names the input or attribute.
class Node {
 public:
  /// `names`: what the operator's definition calls its inputs, in order.
  Node(Ort::ConstNode node, std::vector<const char*> names);
  /// The attributes of a node with other inputs and another output.
  Node(Ort::ConstNode node, std::vector<Ort::ConstValueInfo> inputs, Ort::ConstValueInfo output,
       std::vector<const char*> names);

  /// What the operator's definition calls an input.
  const char* Name(size_t input) const { return names_.at(input); }
  /// Whether the input is given. Optional ones need not be.
  bool Has(size_t input) const;
  /// Whether the input is given, and no constant.
  bool IsFromRun(size_t input) const { return Has(input) && !FindConstant(input); }
  /// The input's constant; none if it is computed by each run, or not given.
  std::optional<Constant> FindConstant(size_t input) const;
  /// As FindConstant(), where there must be one of `type`.
  Constant ConstantOf(size_t input, intact_type type) const;
  /// As ConstantOf(), where it must have elements and at least two dimensions.
  Constant Weights(size_t input, intact_type type) const;
  /// A constant of one float, or of one for each of `columns`.
  std::vector<float> Scales(size_t input, int64_t columns) const;
  /// A constant of one float.
  float Scale(size_t input) const;
  /// A constant of one integer of `type`, or of one for each of `columns`; {0} where the input is not given.
  std::vector<int32_t> ZeroPoints(size_t input, intact_type type, int64_t columns) const;
  /// A constant of one integer of `type`; 0 where the input is not given.
  int32_t ZeroPoint(size_t input, intact_type type) const;
  /// The element type of an input: one of `allowed`.
  intact_type Type(size_t input, std::initializer_list<intact_type> allowed) const;
  /// Whether the element type of an input is `type`.
  bool IsOfType(size_t input, intact_type type) const;
  /// The element type of the output: one of `allowed`.
  intact_type OutputType(std::initializer_list<intact_type> allowed) const;
  /// The element type of an input in ONNX Runtime's terms.
  ONNXTensorElementDataType ElementType(size_t input) const { return ElementTypeOf(inputs_.at(input)); }
  /// The extents of an input, −1 where unknown; empty if not even their number is known.
  Shape ShapeOf(size_t input) const;

  /// The version of the operator's definition: of ONNX's operators, the opset that brought it.
  int64_t SinceVersion() const { return node_.GetSinceVersion(); }
  /// Whether activations and outputs have their channels last.
  bool IsChannelsLast() const;
  bool HasAttribute(const char* name) const { return Attribute(name) != nullptr; }
  int64_t Integer(const char* attribute, int64_t otherwise) const;
  float Float(const char* attribute, float otherwise) const;
  std::string String(const char* attribute, const char* otherwise) const;
  /// No strings where the attribute is not given.
  std::vector<std::string> Strings(const char* attribute) const;
  /// No integers where the attribute is not given.
  Shape Integers(const char* attribute) const;
  /// `count` integers; all are `otherwise` where the attribute is not given.
  Shape Integers(const char* attribute, size_t count, int64_t otherwise) const;

 private:
  // As ConstantOf(), with one value or one for each of `columns`.
  Constant Values(size_t input, intact_type type, int64_t columns) const;
  Ort::ConstOpAttr Attribute(const char* name) const;

  Ort::ConstNode node_;
  std::vector<Ort::ConstValueInfo> inputs_;
  Ort::ConstValueInfo output_;
  std::vector<const char*> names_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_NODE_H_
