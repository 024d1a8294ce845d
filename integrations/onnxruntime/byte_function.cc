#include "byte_function.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "graph.h"
#include "node.h"

namespace intact::onnxruntime {
namespace {

constexpr int64_t kBytes = 256;  // of a table

// Operators that compute each element by itself. Kernels of the CPU provider for these give an element the same result wherever
// it is in a tensor; its kernels of Exp and Log, for example, do not.
constexpr auto kElementwise = std::to_array<std::string_view>(
    {"Abs",         "Add",        "Ceil",      "Clip",    "Div",  "Erf",  "Floor", "Gelu",
     "HardSigmoid", "HardSwish",  "LeakyRelu", "Max",     "Min",  "Mul",  "Neg",   "Pow",
     "Relu",        "Reciprocal", "Round",     "Sigmoid", "Sign", "Sqrt", "Sub",   "Tanh"});
constexpr auto kElementwiseOfMicrosoft = std::to_array<std::string_view>({"FastGelu", "Gelu", "QuickGelu"});

bool IsElementwise(Ort::ConstNode node) {
  const auto contains = [type = node.GetOperatorType()](const auto& types) {
    return std::ranges::find(types, type) != types.end();
  };
  const std::string domain = DomainOf(node);
  return domain.empty() ? contains(kElementwise) : domain == kMicrosoft && contains(kElementwiseOfMicrosoft);
}

bool IsGiven(Ort::ConstValueInfo value) { return value != nullptr && !value.GetName().empty(); }

bool IsByte(Ort::ConstValueInfo value) {
  if (!IsGiven(value)) return false;
  const auto type = ElementTypeOf(value);
  return type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 || type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
}

Shape ShapeOf(Ort::ConstValueInfo value) { return value.TypeInfo().GetTensorTypeAndShapeInfo().GetShape(); }

bool IsOneConstant(Ort::ConstValueInfo value) {
  return value != nullptr && value.IsConstantInitializer() && CountOf(ShapeOf(value)) == 1;
}

// Whether a QuantizeLinear or DequantizeLinear has one scale and one zero point, both constant.
bool HasOneScale(Ort::ConstNode node) {
  const auto zero_point = InputOf(node, 2);
  return IsOneConstant(InputOf(node, 1)) && (zero_point == nullptr || IsOneConstant(zero_point));
}

// The quantized operands of an operator of com.microsoft that computes each element by itself; none of other operators.
std::vector<size_t> QuantizedOperands(Ort::ConstNode node) {
  if (node.GetDomain() != kMicrosoft) return {};
  const std::string type = node.GetOperatorType();
  if (type == "QLinearAdd" || type == "QLinearMul") return {0, 3};
  if (type == "QLinearSigmoid" || type == "QLinearLeakyRelu") return {0};
  return {};
}

using Order = std::map<size_t, size_t>;  // of nodes in topological order, by their ids

// Nodes that compute a quantized tensor from some others, element by element.
class Region {
 public:
  Region(const Order& order, const std::function<bool(Ort::ConstNode)>& is_taken)
      : order_(order), is_taken_(is_taken) {}

  // Adds `node`, whose output is quantized, and the nodes back to the next quantized tensors. Returns false if
  // one of the nodes is not elementwise. The region is then of no use.
  bool Add(Ort::ConstNode node) {
    if (!IsByte(OutputOf(node))) return false;
    nodes_.emplace(order_.at(node.GetId()), node);
    if (Is(node, "QuantizeLinear")) return HasOneScale(node) && AddFloat(InputOf(node, 0));
    const auto operands = QuantizedOperands(node);
    const auto inputs = node.GetInputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_operand = std::ranges::find(operands, i) != operands.end();
      if (is_operand ? !AddBytes(inputs[i]) : IsGiven(inputs[i]) && !IsOneConstant(inputs[i])) return false;
    }
    ++operators_;
    has_sum_ |= node.GetOperatorType() == "QLinearAdd";
    return !operands.empty();
  }

  // Adds the nodes that compute one input: the input that the model computes last. Returns false if that is not possible.
  bool Grow() {
    const auto place_of = [&](const auto& input) {
      const auto producer = ProducerOf(input.second);
      return producer == nullptr ? -1 : static_cast<int64_t>(order_.at(producer.GetId()));
    };
    const auto last = std::ranges::max_element(inputs_, {}, place_of);
    if (last == inputs_.end()) return false;
    const auto producer = ProducerOf(last->second);
    inputs_.erase(last);
    return producer != nullptr && Add(producer);
  }

  // The group of the nodes; one without nodes unless the region has one input and one output.
  Group ToGroup() const {
    if (inputs_.size() != 1 || operators_ == 0) return {};
    const Ort::ConstNode last = nodes_.rbegin()->second;
    const Ort::ConstValueInfo input = inputs_.begin()->second, output = OutputOf(last);
    const Shape shape = ShapeOf(input);
    // A constant of more dimensions would give the output more dimensions, too.
    if (shape.size() < dimensions_) return {};
    // ONNX Runtime adds tensors of one element in another order.
    if (has_sum_ && std::ranges::all_of(shape, [](int64_t extent) { return extent < 2; })) return {};
    Group group{
        .domain = kGroupDomain, .type = kByteFunction, .inputs = {input}, .output = output, .nodes = {}};
    for (const auto& [place, node] : nodes_) {
      for (const auto& value : node.GetOutputs())
        if (value != nullptr && value.GetName() != output.GetName() && IsReadElsewhere(value)) return {};
      if (Is(node, "DequantizeLinear") && InputOf(node, 0).GetName() == input.GetName()) {
        group.is_moved_to_u8 = HasMovedInput(node);
        if (group.is_moved_to_u8 && !IsTaken(OperatorBefore(ProducerOf(input)))) return {};
      }
      group.nodes.push_back(node);
    }
    const Ort::ConstNode reader = SoleConsumer(output);
    group.is_output_moved_to_u8 = IsMovedToU8(last, reader);
    if (group.is_output_moved_to_u8 && !IsTaken(SoleConsumer(OutputOf(reader)))) return {};
    return group;
  }

 private:
  // The node whose output a QuantizeLinear quantizes, or the node before a Relu.
  static Ort::ConstNode OperatorBefore(Ort::ConstNode quantizer) {
    const auto node = ProducerOf(InputOf(quantizer, 0));
    return Is(node, "Relu") ? ProducerOf(InputOf(node, 0)) : node;
  }

  bool IsTaken(Ort::ConstNode node) const {
    return node != nullptr && DependsOnMoves(node) && is_taken_(node);
  }

  bool AddFloat(Ort::ConstValueInfo value) {
    if (ElementTypeOf(value) != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) return false;
    if (AddConstant(value)) return true;
    const auto node = ProducerOf(value);
    if (node == nullptr) return false;
    if (!nodes_.emplace(order_.at(node.GetId()), node).second) return true;
    if (Is(node, "DequantizeLinear")) return HasOneScale(node) && AddBytes(InputOf(node, 0));
    ++operators_;
    has_sum_ |= Is(node, "Add");
    return IsElementwise(node) && std::ranges::all_of(node.GetInputs(), [&](const auto& input) {
             return !IsGiven(input) || AddFloat(input);
           });
  }

  bool AddBytes(Ort::ConstValueInfo x) {
    if (!IsByte(x)) return false;
    if (AddConstant(x)) return true;
    // Models have constants, too, that a QuantizeLinear quantizes.
    if (const auto quantizer = ProducerOf(x);
        Is(quantizer, "QuantizeLinear") && IsOneConstant(InputOf(quantizer, 0)))
      return Add(quantizer);
    inputs_.emplace(x.GetName(), x);
    return true;
  }

  bool AddConstant(Ort::ConstValueInfo value) {
    if (!IsOneConstant(value)) return false;
    dimensions_ = std::max(dimensions_, ShapeOf(value).size());
    return true;
  }

  bool IsReadElsewhere(Ort::ConstValueInfo value) const {
    return value.IsGraphOutput() || std::ranges::any_of(value.GetConsumers(), [&](const auto& consumer) {
             return consumer.index < 0 || !nodes_.contains(order_.at(consumer.node.GetId()));
           });
  }

  const Order& order_;
  const std::function<bool(Ort::ConstNode)>& is_taken_;
  std::map<size_t, Ort::ConstNode> nodes_;             // in topological order
  std::map<std::string, Ort::ConstValueInfo> inputs_;  // by their names
  size_t operators_ = 0;                               // except QuantizeLinear and DequantizeLinear
  bool has_sum_ = false;
  size_t dimensions_ = 0;  // the largest number of dimensions of a constant
};

// The group that ends with `node`; one without nodes if there is none.
Group FunctionBefore(Ort::ConstNode node, Region region) {
  Group largest;
  for (bool is_usable = region.Add(node); is_usable; is_usable = region.Grow())
    if (Group group = region.ToGroup(); !group.nodes.empty()) largest = std::move(group);
  return largest;
}

// The attributes of a node, copied.
std::vector<Ort::OpAttr> AttributesOf(Ort::ConstNode node) {
  std::vector<Ort::OpAttr> attributes;
  for (const auto& attribute : node.GetAttributes()) {
    const std::string name = attribute.GetName();
    const auto copy = [&]<class T>(T value, OrtOpAttrType type) {
      Ort::ThrowOnError(attribute.GetValue(value));
      if constexpr (std::is_same_v<T, std::string>) {
        attributes.emplace_back(name.c_str(), value.c_str(), static_cast<int>(value.size()), type);
      } else {
        attributes.emplace_back(name.c_str(), &value, 1, type);
      }
    };
    switch (attribute.GetType()) {
      case ORT_OP_ATTR_INT:
        copy(int64_t{}, ORT_OP_ATTR_INT);
        break;
      case ORT_OP_ATTR_FLOAT:
        copy(float{}, ORT_OP_ATTR_FLOAT);
        break;
      case ORT_OP_ATTR_STRING:
        copy(std::string(), ORT_OP_ATTR_STRING);
        break;
      default:
        throw Refusal(name + ": is no number or string; expected one");
    }
  }
  return attributes;
}

Ort::ValueInfo Described(const std::string& name, ONNXTensorElementDataType type, const Shape& shape) {
  return Ort::ValueInfo(
      name, Ort::TypeInfo::CreateTensorInfo(Ort::TensorTypeAndShapeInfo(type, shape).GetConst()).GetConst());
}

Ort::Value TensorOf(const Shape& shape, ONNXTensorElementDataType type, const void* elements) {
  Ort::AllocatorWithDefaultOptions allocator;
  Ort::Value value = Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), type);
  std::memcpy(value.GetTensorMutableRawData(), elements, value.GetTensorSizeInBytes());
  return value;
}

constexpr auto kFloat = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr const char *kFloatInput = "intact_float_input", *kFloatOutput = "intact_float_output",
                     *kUnitScale = "intact_unit_scale";

// The nodes of a group as a model. Its input and output have `shape`. If ONNX Runtime moves one of them from s8
// to u8, it is float here, and a QuantizeLinear or a DequantizeLinear of scale 1 stands between: ONNX Runtime
// then moves the tensor between these nodes.
Ort::Session SessionOf(const Ort::Env& env, const Group& group, const Shape& shape) {
  Ort::Graph graph;
  const auto add_node = [&](const std::string& type, const std::string& domain,
                            const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                            std::vector<Ort::OpAttr> attributes = {}) {
    Ort::Node node(type, domain, "", inputs, outputs, attributes);
    graph.AddNode(node);
  };
  const std::string x = group.inputs[0].GetName(), y = group.output.GetName();
  constexpr float kOne = 1;
  Ort::Value unit_scale = TensorOf({}, kFloat, &kOne);
  graph.AddInitializer(kUnitScale, unit_scale, false);
  std::set<std::string> constants;
  for (const auto& node : group.nodes) {
    for (const auto& value : node.GetInputs()) {
      if (value == nullptr || !value.IsConstantInitializer() || !constants.insert(value.GetName()).second)
        continue;
      Ort::ConstValue constant;
      Ort::ThrowOnError(value.GetInitializer(constant));
      Ort::Value copy = TensorOf(ShapeOf(value), ElementTypeOf(value), constant.GetTensorRawData());
      graph.AddInitializer(value.GetName(), copy, false);
    }
    const auto inputs = NamesOf(node.GetInputs());
    add_node(node.GetOperatorType(), DomainOf(node), inputs, NamesOf(node.GetOutputs()), AttributesOf(node));
    if (group.is_moved_to_u8 && inputs[0] == x)
      add_node("QuantizeLinear", "", {kFloatInput, kUnitScale, inputs[2]}, {x});
    if (group.is_output_moved_to_u8 && node == group.nodes.back())
      add_node("DequantizeLinear", "", {y, kUnitScale, inputs[2]}, {kFloatOutput});
  }
  std::vector<Ort::ValueInfo> inputs, outputs;
  inputs.push_back(group.is_moved_to_u8 ? Described(kFloatInput, kFloat, shape)
                                        : Described(x, ElementTypeOf(group.inputs[0]), shape));
  outputs.push_back(group.is_output_moved_to_u8 ? Described(kFloatOutput, kFloat, shape)
                                                : Described(y, ElementTypeOf(group.output), shape));
  graph.SetInputs(inputs);
  graph.SetOutputs(outputs);
  std::vector<Ort::Model::DomainOpsetPair> versions;
  for (const auto& [domain, version] : group.nodes[0].GetGraph().GetOperatorSets())
    versions.emplace_back(domain, static_cast<int>(version));
  Ort::Model model(versions);
  model.AddGraph(graph);
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(1).DisableCpuMemArena().SetLogSeverityLevel(ORT_LOGGING_LEVEL_FATAL);
  return Ort::Session(env, model, options);
}

// The zero point of a QuantizeLinear or DequantizeLinear of s8.
int32_t S8ZeroPointOf(Ort::ConstNode node) {
  return Node(node, {"x", "scale", "zero_point"}).ZeroPoint(2, INTACT_S8);
}

ByteTable TableOf(const Group& group) {
  const Ort::ConstValueInfo x = group.inputs[0];
  Shape shape(std::max<size_t>(ShapeOf(x).size(), 1), 1);
  shape.back() = kBytes;
  const Ort::Env env(ORT_LOGGING_LEVEL_FATAL, "intact");  // the process has one
  Ort::Session session = SessionOf(env, group, shape);

  ByteTable bytes;
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  std::array<float, kBytes> floats;
  const void* elements = bytes.data();
  if (group.is_moved_to_u8) {
    const auto reader = std::ranges::find_if(
        group.nodes, [&](const auto& node) { return InputOf(node, 0).GetName() == x.GetName(); });
    const int32_t zero_point = S8ZeroPointOf(*reader);
    for (size_t i = 0; i < floats.size(); ++i)
      floats[i] = static_cast<float>(static_cast<int8_t>(bytes[i]) - zero_point);
    elements = floats.data();
  }
  const Ort::Value input = TensorOf(shape, group.is_moved_to_u8 ? kFloat : ElementTypeOf(x), elements);
  const std::string y_name = group.output.GetName(), x_name = x.GetName();
  const char* const x_given = group.is_moved_to_u8 ? kFloatInput : x_name.c_str();
  const char* const y_given = group.is_output_moved_to_u8 ? kFloatOutput : y_name.c_str();
  const auto outputs = session.Run(Ort::RunOptions(nullptr), &x_given, &input, 1, &y_given, 1);
  if (outputs.at(0).GetTensorTypeAndShapeInfo().GetElementCount() != kBytes)
    throw Refusal("output: has another shape than the input; expected one shape");
  ByteTable table;
  if (group.is_output_moved_to_u8) {
    const int32_t zero_point = S8ZeroPointOf(group.nodes.back());
    const auto* const numbers = outputs[0].GetTensorData<float>();
    for (size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<uint8_t>(static_cast<int32_t>(numbers[i]) + zero_point);
  } else {
    std::memcpy(table.data(), outputs[0].GetTensorRawData(), table.size());
  }
  return table;
}

}  // namespace

std::vector<Group> FindByteFunctions(const std::vector<Ort::ConstNode>& nodes,
                                     const std::function<bool(Ort::ConstNode)>& is_taken) {
  Order order;
  for (const auto& node : nodes) order.emplace(node.GetId(), order.size());
  std::vector<Group> groups;
  std::set<size_t> grouped;  // ids
  for (size_t i = nodes.size(); i-- > 0;) {
    const Ort::ConstNode& node = nodes[i];
    if (grouped.contains(node.GetId())) continue;
    Group group = FunctionBefore(node, Region(order, is_taken));
    if (group.nodes.empty()) continue;
    for (const auto& each : group.nodes) grouped.insert(each.GetId());
    groups.push_back(std::move(group));
  }
  return groups;
}

ByteFunction::ByteFunction(const Group& group, const Settings& settings) : look_up_(ChooseLookUp(settings)) {
  try {
    table_ = TableOf(group);
  } catch (const Ort::Exception& error) {
    throw Refusal(std::string("output: ONNX Runtime does not compute its table: ") + error.what());
  }
}

void ByteFunction::Compute(Run& run) const {
  const auto x = run.Input(0);
  const Shape shape = x.GetTensorTypeAndShapeInfo().GetShape();
  const auto* const source = static_cast<const uint8_t*>(x.GetTensorRawData());
  auto* const target = static_cast<uint8_t*>(run.Output(shape));
  const int64_t elements = CountOf(shape);
  run.ForEach((elements + kElementsOfPart - 1) / kElementsOfPart, [&](int64_t part) {
    const int64_t begin = part * kElementsOfPart;
    look_up_(table_, source + begin, target + begin, std::min(kElementsOfPart, elements - begin));
  });
}

}  // namespace intact::onnxruntime
