#include "groups.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "blocks.h"
#include "graph.h"
#include "node.h"
#include "rules.h"

namespace intact::onnxruntime {
namespace {

// The DequantizeLinear that makes input i of `node`, for this node alone.
Ort::ConstNode DequantizerOf(Ort::ConstNode node, size_t i, const char* name) {
  const auto value = InputOf(node, i);
  const auto dequantizer = ProducerOf(value);
  if (!Is(dequantizer, "DequantizeLinear"))
    throw Refusal(std::string(name) + ": is float; expected the output of a DequantizeLinear");
  if (SoleConsumer(value) == nullptr)
    throw Refusal(std::string(name) + ": other nodes read it too; expected a DequantizeLinear of its own");
  return dequantizer;
}

// Whether the input of a DequantizeLinear is s8 in ONNX Runtime.
bool StaysS8(Ort::ConstNode dequantizer) {
  return IsS8(InputOf(dequantizer, 0)) && !HasMovedInput(dequantizer);
}

// Whether the output of a QuantizeLinear is s8 in ONNX Runtime.
bool OutputStaysS8(Ort::ConstNode quantizer) {
  const auto output = OutputOf(quantizer);
  return IsS8(output) && !IsMovedToU8(quantizer, SoleConsumer(output));
}

// Throws Refusal if the weights have several scales that do not belong to dimension `axis`.
void CheckAxis(Ort::ConstNode dequantizer, int64_t axis) {
  const Node node(dequantizer, {"x", "x_scale", "x_zero_point"});
  if (node.Integer("block_size", 0) != 0)
    throw Refusal("block_size: is given; expected scales without blocks");
  if (CountOf(node.ShapeOf(1)) == 1) return;
  const auto dimensions = static_cast<int64_t>(node.ShapeOf(0).size());
  int64_t given = node.Integer("axis", 1);
  if (given < 0) given += dimensions;
  if (given != axis)
    throw Refusal("axis: is " + std::to_string(given) + " for the scales of the weights; expected " +
                  std::to_string(axis));
}

// An operator of floats, and its quantized operator between DequantizeLinear and QuantizeLinear.
struct FloatOperator {
  const char* type;
  const char* domain;     // of both operators below
  const char* quantized;  // with a quantized output
  bool has_bias_last;     // among the inputs of `quantized`; else behind the weights
};
constexpr FloatOperator kFloatOperators[] = {
    {"Add", kMicrosoft, "QLinearAdd", true}, {"Conv", "", "QLinearConv", true},
    {"Gemm", kMicrosoft, "QGemm", false},    {"MatMul", "", "QLinearMatMul", true},
    {"Mul", kMicrosoft, "QLinearMul", true},
};

bool IsSumOrProduct(Ort::ConstNode node) { return Is(node, "Add") || Is(node, "Mul"); }

const FloatOperator* FindFloatOperator(Ort::ConstNode node) {
  for (const FloatOperator& each : kFloatOperators)
    if (Is(node, each.type)) return &each;
  return nullptr;
}

// Throws Refusal if ONNX Runtime computes floats because of the types that tensors have when it has moved some of them to
// u8. `quantizer`: null if the output stays float.
void CheckMovedTypes(const Rule& rule, Ort::ConstNode a, Ort::ConstNode b, Ort::ConstNode quantizer) {
  const bool a_is_s8 = StaysS8(a);
  if (quantizer != nullptr && OutputStaysS8(quantizer) != a_is_s8)
    throw Refusal(
        "output: has another type than A in ONNX Runtime, which computes floats; expected one type");
  if (rule.one_type) {
    if (StaysS8(b) != a_is_s8)
      throw Refusal("B: has another type than A in ONNX Runtime, which computes floats; expected one type");
  } else if (rule.s8_input) {
    if (a_is_s8 && !IsS8(InputOf(b, 0)))
      throw Refusal(
          "A: is int8 and B is uint8, where ONNX Runtime computes floats; expected int8 weights or uint8 "
          "activations");
  } else if (a_is_s8) {
    throw Refusal(
        "A: is int8, and ONNX Runtime does not move it to uint8 but computes floats; expected uint8, or a "
        "QuantizeLinear before this DequantizeLinear alone");
  }
}

// Throws Refusal if ONNX Runtime computes floats because of the nodes behind the float output of a product.
void CheckFloatOutput(Ort::ConstValueInfo output) {
  const auto consumers = output.GetConsumers();
  if (std::ranges::any_of(consumers, [](const auto& each) { return Is(each.node, "QuantizeLinear"); }))
    throw Refusal("output: other nodes than a QuantizeLinear read it too; expected one reader");
  const auto next = SoleConsumer(output);
  if ((Is(next, "Relu") || Is(next, "Clip")) && SoleConsumer(OutputOf(next)) != nullptr)
    throw Refusal("output: one node reads it behind a " + next.GetOperatorType() +
                  ", where ONNX Runtime computes floats; expected none or several");
}

// An operator of dequantized values, and what follows. `checks_axis`: refuses weights whose scales are of another axis than the
// outputs', or in blocks.
Group DequantizedGroup(Ort::ConstNode node, const FloatOperator& of_floats, const Rule& rule,
                       bool checks_axis = true) {
  const bool is_elementwise = IsSumOrProduct(node), is_conv = Is(node, "Conv"), is_gemm = Is(node, "Gemm");
  Group group{.domain = of_floats.domain, .type = of_floats.quantized, .inputs = {}, .nodes = {node}};
  const auto add_inputs = [&group](Ort::ConstNode dequantizer) {
    for (size_t i = 0; i < 3; ++i) group.inputs.push_back(InputOf(dequantizer, i));
    group.nodes.push_back(dequantizer);
  };
  const auto a = DequantizerOf(node, 0, "A"), b = DequantizerOf(node, 1, "B");
  add_inputs(a);
  add_inputs(b);
  group.is_moved_to_u8 = HasMovedInput(a);
  group.is_b_moved_to_u8 = HasMovedInput(b);
  // ONNX Runtime has moved the node to NHWC, so intact has taken it before. Transpositions may hide that A is moved.
  const bool is_taken_before = node.GetDomain() == kNhwcDomain;
  const Node attributes(node, {});
  if (!is_elementwise && checks_axis)
    CheckAxis(b, is_conv || (is_gemm && attributes.Integer("transB", 0) != 0) ? 0 : 1);
  std::vector<Ort::ConstValueInfo> bias(1);  // with its scale and its zero point if they are its own
  if (InputOf(node, 2) != nullptr) {
    for (const char* factor : {"alpha", "beta"})
      if (is_gemm && attributes.Float(factor, 1) != 1)
        throw Refusal(std::string(factor) +
                      ": is not 1 with a bias, where ONNX Runtime computes floats; expected 1");
    const auto dequantizer = DequantizerOf(node, 2, "bias");
    bias[0] = InputOf(dequantizer, 0);
    const BiasFit fit = FitBias(rule, a, b, dequantizer);
    group.note = fit.note;
    if (fit.is_own) bias.insert(bias.end(), {InputOf(dequantizer, 1), InputOf(dequantizer, 2)});
    group.nodes.push_back(dequantizer);
  }

  group.output = OutputOf(node);
  auto quantizer = SoleConsumer(group.output);
  Ort::ConstNode relu;
  if (Is(quantizer, "Relu")) relu = std::exchange(quantizer, SoleConsumer(OutputOf(quantizer)));
  if (!Is(quantizer, "QuantizeLinear")) {
    if (!rule.float_output) throw Refusal("output: stays float; expected a QuantizeLinear behind it");
    CheckFloatOutput(group.output);
    CheckMovedTypes(rule, a, b, {});
    CheckQuantization(rule, a, b, {});
    if (is_gemm) {
      group.inputs.push_back(bias[0]);
      if (bias.size() > 1) group.inputs.insert(group.inputs.end(), {{}, {}, bias[1], bias[2]});
    } else {
      const auto given = std::exchange(group.inputs, {});
      group.domain = kMicrosoft;
      group.type = "MatMulIntegerToFloat";
      group.inputs = {given[0], given[3], given[1], given[4], given[2], given[5]};
    }
    return group;
  }
  group.output = OutputOf(quantizer);
  const Node quantized(quantizer, {"x", "y_scale", "y_zero_point"});
  if (relu != nullptr) {
    // With a zero point at the end of the range, quantizing clamps as Relu does.
    if (!quantized.Has(2)) throw Refusal("y_zero_point: is not given; expected one behind a Relu");
    const bool is_signed = IsS8(group.output);
    if (quantized.ZeroPoint(2, is_signed ? INTACT_S8 : INTACT_U8) != (is_signed ? -128 : 0))
      throw Refusal("y_zero_point: is not the lowest value; expected that behind a Relu");
    group.nodes.push_back(relu);
  }
  group.nodes.push_back(quantizer);
  if (!of_floats.has_bias_last) group.inputs.push_back(bias[0]);
  group.inputs.push_back(InputOf(quantizer, 1));
  group.inputs.push_back(InputOf(quantizer, 2));
  if (of_floats.has_bias_last) group.inputs.push_back(bias[0]);
  group.inputs.insert(group.inputs.end(), bias.begin() + 1, bias.end());
  CheckQuantization(rule, a, b, quantizer);
  if (!is_taken_before) CheckMovedTypes(rule, a, b, quantizer);
  return group;
}

// MaxPool(DequantizeLinear(x)) and a QuantizeLinear with the scale and the zero point of x.
Group PoolGroup(Ort::ConstNode node) {
  const auto outputs = node.GetOutputs();
  const auto dequantizer = DequantizerOf(node, 0, "X"), quantizer = SoleConsumer(outputs.at(0));
  if (!Is(quantizer, "QuantizeLinear"))
    throw Refusal("output: stays float; expected a QuantizeLinear behind it");
  if (outputs.size() > 1 && IsRead(outputs[1])) throw Refusal("Indices: are read; expected one output");
  const auto x = InputOf(dequantizer, 0), y = OutputOf(quantizer);
  const intact_type type = IsS8(x) ? INTACT_S8 : INTACT_U8;
  const Node before(dequantizer, {"X", "x_scale", "x_zero_point"}),
      behind(quantizer, {"Y", "y_scale", "y_zero_point"});
  if (ElementTypeOf(x) != ElementTypeOf(y) || before.Scale(1) != behind.Scale(1) ||
      before.ZeroPoint(2, type) != behind.ZeroPoint(2, type))
    throw Refusal("output: is quantized in another way than X; expected one type, scale and zero point");
  return {
      .domain = "", .type = "MaxPool", .inputs = {x}, .output = y, .nodes = {node, dequantizer, quantizer}};
}

// How many elements a Softmax normalizes together; −1 if the model does not state it.
int64_t SoftmaxElementsOf(Ort::ConstNode softmax) {
  const Node node(softmax, {"X"});
  const Shape shape = node.ShapeOf(0);
  const bool is_of_one_axis = node.SinceVersion() >= 13;
  const auto dimensions = static_cast<int64_t>(shape.size());
  int64_t axis = node.Integer("axis", is_of_one_axis ? -1 : 1);
  if (axis < 0) axis += dimensions;
  if (axis < 0 || axis >= dimensions) return -1;
  const auto from =
      std::span(shape).subspan(static_cast<size_t>(axis), is_of_one_axis ? 1 : std::dynamic_extent);
  return std::ranges::any_of(from, [](int64_t extent) { return extent < 0; }) ? -1 : CountOf(from);
}

// Softmax(DequantizeLinear(x)) and the QuantizeLinear behind it.
Group SoftmaxGroup(Ort::ConstNode node) {
  const auto dequantizer = DequantizerOf(node, 0, "X"), quantizer = SoleConsumer(OutputOf(node));
  Group group{.domain = kMicrosoft,
              .type = "QLinearSoftmax",
              .inputs = {},
              .output = OutputOf(quantizer),
              .nodes = {node, dequantizer, quantizer}};
  for (size_t i = 0; i < 3; ++i) group.inputs.push_back(InputOf(dequantizer, i));
  for (size_t i = 1; i < 3; ++i) group.inputs.push_back(InputOf(quantizer, i));
  if (SoftmaxElementsOf(node) == 1)
    group.note = "ONNX Runtime before 1.32 makes the softmax of one element 0";
  group.is_moved_to_u8 = HasMovedInput(dequantizer);
  group.is_output_moved_to_u8 = IsMovedToU8(quantizer, SoleConsumer(group.output));
  return group;
}

// Whether an operator only moves elements, so that ONNX Runtime moves a DequantizeLinear forward or a QuantizeLinear back through it.
bool MovesElements(Ort::ConstNode node) {
  constexpr const char* kMoving[] = {"Dropout", "Identity", "MaxPool",   "Reshape",
                                     "Slice",   "Squeeze",  "Transpose", "Unsqueeze"};
  return std::ranges::any_of(kMoving, [&](const char* type) { return Is(node, type); });
}

// Whether ONNX Runtime may make a Softmax one of bytes: between a DequantizeLinear and a QuantizeLinear, of any domain, there are only
// operators that move elements, and behind it a Relu or a Clip.
bool IsBetweenBytes(Ort::ConstNode softmax) {
  auto before = ProducerOf(InputOf(softmax, 0)), behind = SoleConsumer(OutputOf(softmax));
  while (MovesElements(before)) before = ProducerOf(InputOf(before, 0));
  while (MovesElements(behind) || Is(behind, "Relu") || Is(behind, "Clip"))
    behind = SoleConsumer(OutputOf(behind));
  return before != nullptr && before.GetOperatorType() == "DequantizeLinear" && behind != nullptr &&
         behind.GetOperatorType() == "QuantizeLinear";
}

// Whether a value is a constant that has one element for each column of a product, for each channel of a
// convolution with weights of `dimensions`, or one for all, and does not change the shape that it is
// broadcast to.
bool IsOfColumns(Ort::ConstValueInfo value, bool is_conv, size_t dimensions) {
  if (value == nullptr || !value.IsConstantInitializer()) return false;
  const Shape shape = value.TypeInfo().GetTensorTypeAndShapeInfo().GetShape();
  if (!is_conv) return shape.size() <= 1;
  // Behind the channels, which are dimension 1, each other extent is 1.
  return shape.size() <= dimensions &&
         (CountOf(shape) == 1 ||
          (shape.size() + 1 >= dimensions && shape[shape.size() + 1 - dimensions] == CountOf(shape)));
}

// The input of a node of two that is not `value`.
Ort::ConstValueInfo OtherInput(Ort::ConstNode node, Ort::ConstValueInfo value) {
  return InputOf(node, InputOf(node, 0).GetName() == value.GetName() ? 1 : 0);
}

// MatMulInteger or ConvInteger of DynamicQuantizeLinear's output, the product of both scales, and a bias:
//     Add(Mul(Cast(MatMulInteger(a, B, a_zero_point, b_zero_point)), Mul(a_scale, b_scale)), bias)
std::optional<Group> DynamicGroup(Ort::ConstNode node) {
  const auto a = InputOf(node, 0);
  const auto quantizer = ProducerOf(a);
  const auto cast = SoleConsumer(OutputOf(node));
  if (!Is(quantizer, "DynamicQuantizeLinear") || !Is(cast, "Cast")) return {};
  if (Node(cast, {}).Integer("to", 0) != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) return {};
  const auto mul = SoleConsumer(OutputOf(cast));
  if (!Is(mul, "Mul")) return {};
  const auto factor = OtherInput(mul, OutputOf(cast));
  const auto scales = ProducerOf(factor);
  const auto a_scale = OutputOf(quantizer, 1), a_zero_point = OutputOf(quantizer, 2);
  if (!Is(scales, "Mul") || SoleConsumer(factor) == nullptr) return {};
  const auto b_scale = OtherInput(scales, a_scale);
  const bool has_scale =
      InputOf(scales, 0).GetName() == a_scale.GetName() || InputOf(scales, 1).GetName() == a_scale.GetName();
  const auto zero_point = InputOf(node, 2);
  const bool is_conv = Is(node, "ConvInteger");
  const auto is_of_columns = [&, dimensions = Node(node, {}).ShapeOf(1).size()](Ort::ConstValueInfo value) {
    return IsOfColumns(value, is_conv, dimensions);
  };
  if (!has_scale || !is_of_columns(b_scale) || zero_point == nullptr ||
      zero_point.GetName() != a_zero_point.GetName())
    return {};

  Group group{.domain = is_conv ? kGroupDomain : kMicrosoft,
              .type = "",
              .inputs = {},
              .output = OutputOf(mul),
              .nodes = {node, cast, scales, mul}};
  Ort::ConstValueInfo bias;
  const auto add = SoleConsumer(group.output);
  if (Is(add, "Add") && is_of_columns(OtherInput(add, group.output))) {
    bias = OtherInput(add, group.output);
    group.output = OutputOf(add);
    group.nodes.push_back(add);
  }
  const auto b = InputOf(node, 1), b_zero_point = InputOf(node, 3);
  const bool is_alone = b.IsConstantInitializer() && SoleConsumer(a) != nullptr &&
                        SoleConsumer(a_scale) != nullptr && SoleConsumer(a_zero_point) != nullptr;
  if (is_alone) {
    group.nodes.push_back(quantizer);
    group.type = is_conv ? "DynamicQuantizeConv" : "DynamicQuantizeMatMul";
    group.inputs = {InputOf(quantizer, 0), b, b_scale, b_zero_point, bias};
  } else {
    group.type = is_conv ? "ConvIntegerToFloat" : "MatMulIntegerToFloat";
    group.inputs = {a, b, a_scale, b_scale, a_zero_point, b_zero_point, bias};
  }
  return group;
}

// Whether ONNX Runtime makes an integer operator of a node with weights in blocks, which fails in each run.
bool FailsBehindBlocks(Ort::ConstNode dequantizer) {
  const auto weights = OutputOf(dequantizer);
  const auto next = SoleConsumer(weights);
  if (Node(dequantizer, {}).Integer("block_size", 0) == 0 || (!Is(next, "Conv") && !Is(next, "MatMul")))
    return false;
  const auto b = InputOf(next, 1);
  if (b == nullptr || b.GetName() != weights.GetName()) return false;
  const auto a = ProducerOf(InputOf(next, 0));
  if (!Is(a, "DequantizeLinear")) return false;
  const Node given(dequantizer, {"x", "x_scale"});
  const Shape shape = given.ShapeOf(0);
  if (Is(next, "MatMul") && shape.size() == 2 && given.ShapeOf(1) == Shape{1, shape[1]})
    return false;  // each column is one block, and runs as a column with a scale
  for (const auto& stored : {InputOf(a, 0), InputOf(dequantizer, 0)})
    if (!IsS8(stored) && ElementTypeOf(stored) != ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8) return false;
  try {
    const Group group = DequantizedGroup(next, *FindFloatOperator(next), *FindRule(next), false);
    const auto output = ElementTypeOf(group.output);
    if (output == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16 || output == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16)
      return false;  // ONNX Runtime computes floats
    return group.type != "QLinearMatMul" || RuntimeMinor() < kChecksScalesOfQLinearMatMul;
  } catch (const Refusal&) {
    return false;  // ONNX Runtime computes floats
  }
}

}  // namespace

bool DependsOnMoves(Ort::ConstNode node) {
  if (FindFloatOperator(node) == nullptr && !Is(node, "Softmax")) return false;
  const auto has_s8_input = [&](size_t i) {
    const auto dequantizer = ProducerOf(InputOf(node, i));
    return Is(dequantizer, "DequantizeLinear") && IsS8(InputOf(dequantizer, 0));
  };
  auto next = SoleConsumer(OutputOf(node));
  if (Is(next, "Relu")) next = SoleConsumer(OutputOf(next));
  return has_s8_input(0) || (IsSumOrProduct(node) && has_s8_input(1)) ||
         (Is(next, "QuantizeLinear") && IsS8(OutputOf(next)));
}

Group NodeAlone(Ort::ConstNode node) {
  auto outputs = node.GetOutputs();
  Group group{.domain = DomainOf(node),
              .type = node.GetOperatorType(),
              .inputs = node.GetInputs(),
              .output = outputs.at(0),
              .nodes = {node}};
  group.more_outputs.assign(outputs.begin() + 1, outputs.end());
  return group;
}

namespace {

// The tensors of an operator between DequantizeLinear and QuantizeLinear whose types decide in which arithmetic ONNX Runtime
// computes it. A node is null if it is of another type.
struct TypedTensors {
  std::array<Ort::ConstNode, 2> dequantizers;  // of A and B
  Ort::ConstNode quantizer;                    // behind the operator, or behind its Relu or Clip
};

TypedTensors TypedTensorsOf(Ort::ConstNode node) {
  TypedTensors tensors;
  for (size_t i = 0; i < 2; ++i)
    if (const auto maker = ProducerOf(InputOf(node, i)); Is(maker, "DequantizeLinear"))
      tensors.dequantizers[i] = maker;
  auto next = SoleConsumer(OutputOf(node));
  if (Is(next, "Relu") || Is(next, "Clip")) next = SoleConsumer(OutputOf(next));
  if (Is(next, "QuantizeLinear")) tensors.quantizer = next;
  return tensors;
}

// Whether a node is a Softmax between DequantizeLinear and QuantizeLinear that ONNX Runtime computes in floats, because its input and
// its output differ in type.
bool IsFloatSoftmax(Ort::ConstNode node) {
  if (!Is(node, "Softmax")) return false;
  const TypedTensors tensors = TypedTensorsOf(node);
  return tensors.dequantizers[0] != nullptr && tensors.quantizer != nullptr &&
         StaysS8(tensors.dequantizers[0]) != OutputStaysS8(tensors.quantizer);
}

}  // namespace

std::vector<Ort::ConstNode> NodesAcrossMoves(Ort::ConstNode node) {
  std::vector<Ort::ConstNode> nodes;
  if (node == nullptr || FindFloatOperator(node) == nullptr) return nodes;
  const TypedTensors tensors = TypedTensorsOf(node);
  if (tensors.dequantizers[0] == nullptr || tensors.dequantizers[1] == nullptr) return nodes;
  for (const auto& dequantizer : tensors.dequantizers)
    if (HasMovedInput(dequantizer)) nodes.push_back(ProducerOf(InputOf(dequantizer, 0)));
  if (tensors.quantizer != nullptr) {
    const auto reader = SoleConsumer(OutputOf(tensors.quantizer));
    if (IsMovedToU8(tensors.quantizer, reader)) nodes.push_back(reader);
  }
  return nodes;
}

std::string HarmOfIntegers(Ort::ConstNode node) {
  const auto a = ProducerOf(InputOf(node, 0)), b = ProducerOf(InputOf(node, 1));
  if (const auto bias = ProducerOf(InputOf(node, 2)); Is(node, "Gemm") && Is(bias, "DequantizeLinear")) {
    try {
      if (!FitBias(*FindRule(node), a, b, bias).is_own) return "";
    } catch (const Refusal&) {  // a run gives its scale
    }
    return "it would ignore the scale of the bias; expected a bias of scale a_scale·b_scale";
  }
  if (!IsSumOrProduct(node) ||
      RuntimeMinor() >= (Is(node, "Add") ? kChecksScalesOfQLinearAdd : kChecksScalesOfQLinearMul))
    return "";
  try {
    CheckQuantization(*FindRule(node), a, b, TypedTensorsOf(node).quantizer);
    return "";
  } catch (const Refusal&) {
    return "it would refuse a scale or a zero point with dimensions; expected scalars";
  }
}

bool IsOfIntegers(Ort::ConstNode node, const std::vector<Ort::ConstNode>& hidden) {
  const auto is_hidden = [&](Ort::ConstNode across) {
    return across != nullptr &&
           std::ranges::any_of(hidden, [&](const auto& each) { return each.GetId() == across.GetId(); });
  };
  const TypedTensors tensors = TypedTensorsOf(node);
  std::array<bool, 2> is_s8;
  for (size_t i = 0; i < 2; ++i)
    is_s8[i] =
        StaysS8(tensors.dequantizers[i]) || (HasMovedInput(tensors.dequantizers[i]) &&
                                             is_hidden(ProducerOf(InputOf(tensors.dequantizers[i], 0))));
  const Rule& rule = *FindRule(node);
  if (tensors.quantizer == nullptr) {
    if (!rule.float_output) return false;
  } else {
    const bool is_output_s8 =
        OutputStaysS8(tensors.quantizer) ||
        (IsS8(OutputOf(tensors.quantizer)) && is_hidden(SoleConsumer(OutputOf(tensors.quantizer))));
    if (is_output_s8 != is_s8[0]) return false;
  }
  return rule.one_type ? is_s8[0] == is_s8[1] : !is_s8[0] || (rule.s8_input && is_s8[1]);
}

namespace {

// A product of floats and dequantized weights, if ONNX Runtime makes a MatMulNBits of it.
Group WeightOnlyGroup(Ort::ConstNode node) {
  const auto refuse_unless = [](bool fits, const char* what) {
    if (!fits)
      throw Refusal(
          std::string("A: comes from no DequantizeLinear, and B does: ONNX Runtime 1.26 and newer makes a "
                      "MatMulNBits of most such nodes, which quantizes A too; intact takes those with ") +
          what);
  };
  const auto dequantizer = ProducerOf(InputOf(node, 1));
  const Node of_weights(dequantizer, {"x", "x_scale", "x_zero_point"}), product(node, {"A", "B", "C"});
  const int64_t block = of_weights.Integer("block_size", 0);
  constexpr std::array kTypes = {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4,
                                 ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8};
  refuse_unless(RuntimeMinor() == 0 || RuntimeMinor() >= kMakesMatMulNBits, "ONNX Runtime 1.26 or newer");
  refuse_unless(std::ranges::find(kTypes, of_weights.ElementType(0)) != kTypes.end(),
                "weights of 4 or 8 bits");
  refuse_unless(of_weights.FindConstant(0) && of_weights.FindConstant(1) && !of_weights.IsFromRun(2),
                "constant weights, scales and zero points");
  const Shape scales = of_weights.ShapeOf(1), weights = of_weights.ShapeOf(0);
  refuse_unless(weights.size() == 2, "weights of two dimensions");
  if (block == 0) {
    refuse_unless(scales.empty() || (of_weights.Integer("axis", 1) == 1 && scales == Shape{weights[1]}),
                  "a scale for all weights, or one for each column");
  } else {
    refuse_unless(of_weights.Integer("axis", 1) == 0 && block >= 16 && (block & (block - 1)) == 0,
                  "blocks of 16, 32, … depths");
  }
  refuse_unless(SoleConsumer(OutputOf(dequantizer)) != nullptr, "one reader of the weights");
  CheckFloatOutput(OutputOf(node));
  const auto is_quantized = [](Ort::ConstValueInfo value) {
    return std::ranges::any_of(value.GetConsumers(),
                               [](const auto& each) { return Is(each.node, "QuantizeLinear"); });
  };
  const auto next = SoleConsumer(OutputOf(node));
  refuse_unless((!Is(next, "Relu") && !Is(next, "Clip")) || !is_quantized(OutputOf(next)),
                "no QuantizeLinear behind a Relu or Clip");
  if (Is(node, "Gemm")) {
    refuse_unless(product.Integer("transA", 0) == 0 && product.Integer("transB", 0) == 0 &&
                      product.Float("alpha", 1) == 1 && (!product.Has(2) || product.Float("beta", 1) == 1),
                  "no transposition, alpha 1 and beta 1");
    refuse_unless(!product.Has(2) || (product.FindConstant(2) && product.ShapeOf(2) == Shape{weights[1]}),
                  "a constant bias of one number for each column");
  }
  return {.domain = kGroupDomain,
          .type = kProductOfBlocks,
          .inputs = {InputOf(node, 0), InputOf(dequantizer, 0), InputOf(dequantizer, 1),
                     InputOf(dequantizer, 2), InputOf(node, 2)},
          .output = OutputOf(node),
          .nodes = {dequantizer, node}};
}

// Whether A of a product is float, and B dequantized.
bool IsWeightOnly(Ort::ConstNode node) {
  return (Is(node, "MatMul") || Is(node, "Gemm")) && !Is(ProducerOf(InputOf(node, 0)), "DequantizeLinear") &&
         Is(ProducerOf(InputOf(node, 1)), "DequantizeLinear");
}

}  // namespace

bool IsPoolOfIntegers(Ort::ConstNode node) {
  if (!Is(node, "AveragePool") && !Is(node, "GlobalAveragePool")) return false;
  const auto input = InputOf(node, 0);
  const auto dequantizer = ProducerOf(input), quantizer = SoleConsumer(OutputOf(node));
  if (!Is(dequantizer, "DequantizeLinear") || SoleConsumer(input) == nullptr ||
      !Is(quantizer, "QuantizeLinear"))
    return false;
  // An s8 tensor may become u8 in ONNX Runtime, or not if intact takes the node on its other side.
  constexpr auto kU8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
  return ElementTypeOf(InputOf(dequantizer, 0)) == kU8 && ElementTypeOf(OutputOf(quantizer)) == kU8;
}

namespace {

bool IsTranspose(Ort::ConstNode node, const Shape& permutation) {
  return Is(node, "Transpose") && Node(node, {}).Integers("perm") == permutation;
}

// The bounds of a Relu or a Clip with constant bounds; none for other nodes.
std::optional<std::pair<float, float>> ClampOf(Ort::ConstNode node) {
  constexpr float kMost = std::numeric_limits<float>::max();
  if (Is(node, "Relu")) return std::pair(0.0f, std::numeric_limits<float>::infinity());
  if (!Is(node, "Clip")) return {};
  const Node clip(node, {"input", "min", "max"});
  std::pair bounds(clip.Float("min", -kMost), clip.Float("max", kMost));
  for (const size_t input : {size_t{1}, size_t{2}}) {
    if (!clip.Has(input)) continue;
    const auto constant = clip.FindConstant(input);
    if (!constant || constant->type != INTACT_F32 || constant->count != 1) return {};
    (input == 1 ? bounds.first : bounds.second) = constant->As<float>()[0];
  }
  if (!(bounds.first <= bounds.second)) return {};
  return bounds;
}

// A Conv of floats in two dimensions, with the Relu or Clip behind it, and with the transpositions that ONNX Runtime has put around it
// to move it to NHWC.
Group FloatConvGroup(Ort::ConstNode node) {
  Group group = NodeAlone(node);
  ConvNeighbors& neighbors = group.neighbors;
  const Node conv(node, {"X", "W", "B"});
  const auto padding = conv.String("auto_pad", "NOTSET");
  // Other padding depends on the extents of the input, which a Transpose has in another order.
  const bool may_have_transposes = conv.IsChannelsLast() && (padding == "NOTSET" || padding == "VALID");
  if (const auto before = ProducerOf(group.inputs[0]);
      may_have_transposes && IsTranspose(before, {0, 2, 3, 1}) && SoleConsumer(group.inputs[0]) != nullptr) {
    neighbors.has_input_transpose = true;
    group.inputs[0] = InputOf(before, 0);
    group.nodes.push_back(before);
  }
  for (auto next = SoleConsumer(group.output); next != nullptr; next = SoleConsumer(group.output)) {
    const auto clamp = neighbors.clamp ? std::nullopt : ClampOf(next);
    const bool is_transpose =
        may_have_transposes && !neighbors.has_output_transpose && IsTranspose(next, {0, 3, 1, 2});
    if (!clamp && !is_transpose) break;
    if (clamp) neighbors.clamp = clamp;
    neighbors.has_output_transpose |= is_transpose;
    group.output = OutputOf(next);
    group.nodes.push_back(next);
  }
  return group;
}

}  // namespace

Group GroupOf(Ort::ConstNode node) {
  if (std::ranges::none_of(node.GetOutputs(), IsRead)) throw Refusal("output: nothing reads it");
  const auto weights = InputOf(node, 1);
  const bool is_float_conv = Is(node, "Conv") && weights.IsConstantInitializer() &&
                             ElementTypeOf(weights) == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  if (Is(node, "Conv") && !is_float_conv && !Is(ProducerOf(InputOf(node, 0)), "DequantizeLinear") &&
      !Is(ProducerOf(weights), "DequantizeLinear") &&
      ElementTypeOf(weights) == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
    throw Refusal(
        "X, W: are floats, and each run gives W; expected outputs of DequantizeLinear, or a constant W");
  if (const FloatOperator* found = FindFloatOperator(node);
      found != nullptr && !is_float_conv &&
      ElementTypeOf(OutputOf(node)) == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
    return IsWeightOnly(node) ? WeightOnlyGroup(node) : DequantizedGroup(node, *found, *FindRule(node));
  if (Is(node, "ConvTranspose"))
    throw Refusal("operator: ONNX Runtime computes ConvTranspose in floats; expected another one");
  if (is_float_conv && Node(node, {}).ShapeOf(1).size() == 4) return FloatConvGroup(node);
  if (Is(node, "MaxPool") && ElementTypeOf(OutputOf(node)) == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
    return PoolGroup(node);
  if (IsFloatSoftmax(node)) return NodeAlone(node);
  if (IsPoolOfIntegers(node))
    throw Refusal(
        "operator: ONNX Runtime computes it in integers, with the same bytes on every CPU; expected floats");
  if (Is(node, "Softmax") && Is(ProducerOf(InputOf(node, 0)), "DequantizeLinear") &&
      Is(SoleConsumer(OutputOf(node)), "QuantizeLinear"))
    return SoftmaxGroup(node);
  if (Is(node, "Softmax") && IsBetweenBytes(node))
    throw Refusal(
        "Softmax: is between quantized tensors, with other operators between, where ONNX Runtime computes "
        "bytes; expected DequantizeLinear before it and QuantizeLinear behind it");
  if (Is(node, "DequantizeLinear") && FailsBehindBlocks(node))
    return {.domain = kGroupDomain,
            .type = kDequantizeBlocks,
            .inputs = node.GetInputs(),
            .output = OutputOf(node),
            .nodes = {node},
            .note = "ONNX Runtime's integer operator behind weights in blocks fails in each run"};
  if (Is(node, "MatMulInteger") || Is(node, "ConvInteger"))
    if (auto group = DynamicGroup(node)) return *std::move(group);
  Group group = NodeAlone(node);
  if (Is(node, "MaxPool") && std::ranges::any_of(group.more_outputs, IsRead))
    throw Refusal("Indices: are read; expected one output");
  return group;
}

}  // namespace intact::onnxruntime
