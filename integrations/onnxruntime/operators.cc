#include "operators.h"

#include <array>
#include <memory>
#include <span>
#include <string>

#include "blocks.h"
#include "byte_function.h"
#include "convolution.h"
#include "elementwise.h"
#include "float_conv.h"
#include "float_conv_transpose.h"
#include "float_function.h"
#include "float_matmul.h"
#include "float_matrix_conv.h"
#include "float_pool.h"
#include "float_reduce.h"
#include "float_softmax.h"
#include "linear.h"
#include "lstm.h"
#include "matmul.h"
#include "matmul_nbits.h"
#include "node.h"
#include "pool.h"
#include "qmoe.h"
#include "softmax.h"

namespace intact::onnxruntime {
namespace {

// Of each operator, as the operator's definition names its inputs. The scale and the zero point of a bias, behind them, are
// those of a group (groups.h).
constexpr std::array kMatMulInteger = {"A", "B", "a_zero_point", "b_zero_point"};
constexpr std::array kQLinearMatMul = {"a",       "a_scale",      "a_zero_point", "b",
                                       "b_scale", "b_zero_point", "y_scale",      "y_zero_point"};
constexpr std::array kQGemm = {"A", "a_scale", "a_zero_point", "B",       "b_scale",     "b_zero_point",
                               "C", "y_scale", "y_zero_point", "C_scale", "C_zero_point"};
constexpr std::array kDynamicQuantizeMatMul = {"A", "B", "b_scale", "b_zero_point", "bias"};
constexpr std::array kMatMulIntegerToFloat = {
    "A", "B", "a_scale", "b_scale", "a_zero_point", "b_zero_point", "bias"};
// Convolutions of a group, for which ONNX Runtime has no operators: as DynamicQuantizeMatMul and
// MatMulIntegerToFloat.
constexpr std::array kDynamicQuantizeConv = {"x", "w", "w_scale", "w_zero_point", "bias"};
constexpr std::array kConvIntegerToFloat = {"x",   "w", "x_scale", "w_scale", "x_zero_point", "w_zero_point",
                                            "bias"};
constexpr std::array kConvInteger = {"x", "w", "x_zero_point", "w_zero_point"};
constexpr std::array kQLinearElementwise = {"A",       "A_scale",      "A_zero_point", "B",
                                            "B_scale", "B_zero_point", "C_scale",      "C_zero_point"};
constexpr std::array kMatMulNBits = {"A", "B", "scales", "zero_points", "g_idx", "bias"};
constexpr std::array kProductOfBlocksInputs = {"A", "x", "x_scale", "x_zero_point", "bias"};
constexpr std::array kQLinearConv = {"x",       "x_scale",      "x_zero_point", "w",
                                     "w_scale", "w_zero_point", "y_scale",      "y_zero_point",
                                     "B",       "B_scale",      "B_zero_point"};

std::unique_ptr<Layer> MakeQLinearAdd(const Node& node, const Context& context) {
  return std::make_unique<QLinearAdd>(node, context);
}

std::unique_ptr<Layer> MakeQLinearMul(const Node& node, const Context& context) {
  return std::make_unique<QLinearMul>(node, context);
}

std::unique_ptr<Layer> MakeDequantizedBlocks(const Node& node, const Context&) {
  return std::make_unique<DequantizedBlocks>(node);
}

template <bool is_mean>
std::unique_ptr<Layer> MakeFloatReduce(const Node& node, const Context& context) {
  return std::make_unique<FloatReduce>(node, context, is_mean);
}

std::unique_ptr<Layer> MakeMaxPool(const Node& node, const Context& context) {
  if (node.IsOfType(0, INTACT_F32)) return std::make_unique<FloatPool>(node, context, "MaxPool");
  return std::make_unique<MaxPool>(node);
}

// A layer of floats that is made for several operators.
template <class OfFloats, const char* type>
std::unique_ptr<Layer> Make(const Node& node, const Context& context) {
  return std::make_unique<OfFloats>(node, context, type);
}
constexpr char kAveragePool[] = "AveragePool", kGlobalAveragePool[] = "GlobalAveragePool",
               kGlobalMaxPool[] = "GlobalMaxPool", kCelu[] = "Celu", kElu[] = "Elu",
               kFusedMatMul[] = "FusedMatMul", kGemm[] = "Gemm", kLog[] = "Log", kMatMul[] = "MatMul",
               kSelu[] = "Selu", kSoftplus[] = "Softplus";

std::unique_ptr<Layer> MakeQLinearSoftmax(const Node& node, const Context& context) {
  return std::make_unique<QLinearSoftmax>(node, context, node.Integer("opset", node.SinceVersion()));
}

std::unique_ptr<Layer> MakeFloatConvTranspose(const Node& node, const Context& context) {
  return std::make_unique<FloatConvTranspose>(node, context);
}

std::unique_ptr<Layer> MakeFloatConv(const Node& node, const Context& context) {
  if (node.ShapeOf(1).size() == 4) return std::make_unique<FloatConv>(node, context);
  return std::make_unique<FloatMatrixConv>(node, context);
}

template <bool is_log>
std::unique_ptr<Layer> MakeFloatSoftmax(const Node& node, const Context& context) {
  return std::make_unique<FloatSoftmax>(node, context, is_log);
}

std::unique_ptr<Layer> MakeDynamicQuantizeLstm(const Node& node, const Context& context) {
  return std::make_unique<DynamicQuantizeLstm>(node, context);
}

std::unique_ptr<Layer> MakeQMoE(const Node& node, const Context& context) {
  return std::make_unique<QMoE>(node, context);
}

struct Operator {
  const char* domain;
  const char* type;
  std::span<const char* const> inputs;  // as the operator's definition names them
  std::unique_ptr<Layer> (*make)(const Node& node, const Context& context);
  bool may_have_constant_a = false;
};

const std::array kOperators = {
    Operator{"", "MatMulInteger", kMatMulInteger, MakeMatMulInteger},
    Operator{"", "QLinearMatMul", kQLinearMatMul, MakeQLinearMatMul},
    Operator{"", "ConvInteger", kConvInteger, MakeConvInteger},
    Operator{"", "QLinearConv", kQLinearConv, MakeQLinearConv},
    Operator{"", "MaxPool", FloatPool::kInputs, MakeMaxPool},
    Operator{"", kAveragePool, FloatPool::kInputs, Make<FloatPool, kAveragePool>},
    Operator{"", kGlobalAveragePool, FloatPool::kInputs, Make<FloatPool, kGlobalAveragePool>},
    Operator{"", kGlobalMaxPool, FloatPool::kInputs, Make<FloatPool, kGlobalMaxPool>},
    Operator{"", "Conv", FloatConv::kInputs, MakeFloatConv},
    Operator{"", "ConvTranspose", FloatConvTranspose::kInputs, MakeFloatConvTranspose},
    Operator{"", kMatMul, FloatMatMul::kInputs, Make<FloatMatMul, kMatMul>},
    Operator{"", kGemm, FloatMatMul::kInputs, Make<FloatMatMul, kGemm>},
    Operator{"com.microsoft", kFusedMatMul, FloatMatMul::kInputs, Make<FloatMatMul, kFusedMatMul>},
    Operator{"", "ReduceSum", FloatReduce::kInputs, MakeFloatReduce<false>},
    Operator{"", "ReduceMean", FloatReduce::kInputs, MakeFloatReduce<true>},
    Operator{"", kCelu, FloatFunction::kInputs, Make<FloatFunction, kCelu>},
    Operator{"", kElu, FloatFunction::kInputs, Make<FloatFunction, kElu>},
    Operator{"", kLog, FloatFunction::kInputs, Make<FloatFunction, kLog>},
    Operator{"", kSelu, FloatFunction::kInputs, Make<FloatFunction, kSelu>},
    Operator{"", kSoftplus, FloatFunction::kInputs, Make<FloatFunction, kSoftplus>},
    Operator{"", "Softmax", FloatSoftmax::kInputs, MakeFloatSoftmax<false>},
    Operator{"", "LogSoftmax", FloatSoftmax::kInputs, MakeFloatSoftmax<true>},
    Operator{kGroupDomain, "DynamicQuantizeConv", kDynamicQuantizeConv, MakeDynamicQuantizeConv},
    Operator{kGroupDomain, "ConvIntegerToFloat", kConvIntegerToFloat, MakeConvIntegerToFloat},
    Operator{kGroupDomain, kProductOfBlocks, kProductOfBlocksInputs, MakeProductOfBlocks},
    Operator{kGroupDomain, kDequantizeBlocks, DequantizedBlocks::kInputs, MakeDequantizedBlocks, true},
    Operator{"com.microsoft", "QLinearConv", kQLinearConv, MakeQLinearConv},
    Operator{"com.microsoft", "DynamicQuantizeLSTM", DynamicQuantizeLstm::kInputs, MakeDynamicQuantizeLstm},
    Operator{"com.microsoft", "QLinearAdd", kQLinearElementwise, MakeQLinearAdd, true},
    Operator{"com.microsoft", "QLinearMul", kQLinearElementwise, MakeQLinearMul, true},
    Operator{"com.microsoft", "QLinearSoftmax", QLinearSoftmax::kInputs, MakeQLinearSoftmax},
    Operator{"com.microsoft", "MatMulNBits", kMatMulNBits, MakeMatMulNBits},
    Operator{"com.microsoft", "QMoE", QMoE::kInputs, MakeQMoE},
    Operator{"com.microsoft", "QGemm", kQGemm, MakeQGemm},
    Operator{"com.microsoft", "DynamicQuantizeMatMul", kDynamicQuantizeMatMul, MakeDynamicQuantizeMatMul},
    Operator{"com.microsoft", "MatMulIntegerToFloat", kMatMulIntegerToFloat, MakeMatMulIntegerToFloat},
};

bool IsByteFunction(const Group& group) {
  return group.domain == kGroupDomain && group.type == kByteFunction;
}

// Null if there is none.
const Operator* FindOperator(const Group& group) {
  const auto found = std::ranges::find_if(kOperators, [&](const Operator& each) {
    return group.domain == each.domain && group.type == each.type;
  });
  return found == kOperators.end() ? nullptr : &*found;
}

}  // namespace

bool HasOperator(const Group& group) { return IsByteFunction(group) || FindOperator(group) != nullptr; }

std::unique_ptr<Layer> MakeLayer(const Group& group, const Settings& settings) {
  if (IsByteFunction(group)) return std::make_unique<ByteFunction>(group, settings);
  const Operator* const found = FindOperator(group);
  if (found == nullptr) throw Refusal(kNoOperator);
  const Node node(group.nodes.front(), group.inputs, group.output,
                  {found->inputs.begin(), found->inputs.end()});
  if (!node.IsFromRun(0) && !found->may_have_constant_a)
    throw Refusal(std::string(found->inputs[0]) + ": is a constant; expected one that each run gives");
  return found->make(node, {settings, group.is_moved_to_u8, group.is_b_moved_to_u8,
                            group.is_output_moved_to_u8, group.neighbors});
}

}  // namespace intact::onnxruntime
