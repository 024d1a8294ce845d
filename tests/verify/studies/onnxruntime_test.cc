// Outputs of ONNX Runtime on an AVX2 machine (tests/data/onnxruntime-avx2): the reference predicts each
// output, and the library's saturating mode on AVX2 computes it. Layouts are NCHW and OIHW; MatMul's B is
// K×N.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "support/json_file.h"
#include "support/npy.h"
#include "tests/support/require_isas.h"
#include "verify/explain/identify.h"
#include "verify/problem/target.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

using reference::Model;
using support::NpyArray;
using Bytes = std::vector<uint8_t>;

const std::string kCases = INTACT_TEST_DATA "/onnxruntime-avx2/";

std::vector<std::string> CasesOf(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kCases)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

class OnnxRuntime : public testing::TestWithParam<std::string> {
 protected:
  static support::NpyArray Tensor(const std::string& name) {
    const Result<support::NpyArray> tensor = support::ReadNpy(kCases + GetParam() + "/" + name + ".npy");
    EXPECT_TRUE(tensor) << tensor.error().message;
    return tensor ? *tensor : support::NpyArray();
  }
  static bool Has(const std::string& name) {
    return std::filesystem::exists(kCases + GetParam() + "/" + name + ".npy");
  }

  // The zero points of an 8-bit tensor; none if all are 0.
  static std::vector<int32_t> ZeroPoints(const std::string& name) {
    const support::NpyArray tensor = Tensor(name);
    std::vector<int32_t> zero_points;
    for (const uint8_t byte : tensor.bytes) zero_points.push_back(core::DecodeInt8(tensor.type, byte));
    if (std::ranges::count(zero_points, 0) == std::ssize(zero_points)) zero_points.clear();
    return zero_points;
  }
  static int32_t ZeroPoint(const std::string& name) {
    const std::vector<int32_t> zero_points = ZeroPoints(name);
    return zero_points.empty() ? 0 : zero_points.front();
  }

  static void SetTypes(const support::NpyArray& a, const support::NpyArray& b, const support::NpyArray& c,
                       reference::Linear* operation) {
    operation->a_type = a.type;
    operation->b_type = b.type;
    operation->c_type = c.type;
    operation->b_zero_points = ZeroPoints("zb");
  }

  // The scales of QLinearMatMul and QLinearConv: s[n] = float(float(sa·sw[n])/so).
  static void SetScales(reference::Linear* operation) {
    const float input = Tensor("sa").Values<float>().front();
    const float output = Tensor("so").Values<float>().front();
    for (const float weight : Tensor("sb").Values<float>()) {
      operation->scales.push_back(input * weight / output);
    }
    operation->c_zero_point = ZeroPoint("zo");
  }

  static Model ModelOf(const reference::Linear& operation) {
    const bool saturates = operation.a_type == INTACT_U8 && operation.b_type == INTACT_S8;
    return saturates ? Model::kMaddubs : Model::kExact;
  }

  // The library's output, if pairs saturate as in ONNX Runtime, or if nothing saturates.
  template <class Operation>
  static void ExpectOfLibrary(Operation operation, const Bytes& expected) {
    if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
    verify::RunOptions options;
    options.isa = INTACT_ISA_AVX2;
    if (ModelOf(operation) == Model::kMaddubs) operation.mode = INTACT_SATURATING;
    const Result<Bytes> output = verify::IntactTarget().Run(operation, options);
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_EQ(*output, expected);
  }

  template <class Operation>
  static void ExpectIdentified(const Operation& operation, const Bytes& expected, const Model& model) {
    const verify::Identity identity = verify::Identify(operation, expected);
    EXPECT_EQ(identity.arithmetic, reference::Arithmetic{model}) << verify::InWords(identity);
    EXPECT_TRUE(identity.Found());
    EXPECT_EQ(reference::Predict(operation, {model}), expected);
  }

  static void ExpectOutput(const reference::Gemm& gemm, const Bytes& expected) {
    ExpectIdentified(gemm, expected, ModelOf(gemm));
    ExpectOfLibrary(gemm, expected);
  }
};

// ----- DynamicQuantizeLinear, and layers of it -------------------------------------------------------------

class DynamicQuantize : public OnnxRuntime {};

TEST_P(DynamicQuantize, EqualsTheQuantizer) {
  const std::vector<float> x = Tensor("x").Values<float>();
  const reference::Quantization q = reference::ChooseQuantization(INTACT_U8, x);
  const float scale = Tensor("output_ys").Values<float>().front();
  EXPECT_EQ(std::memcmp(&q.scale, &scale, sizeof scale), 0) << q.scale << " instead of " << scale;
  EXPECT_EQ(q.zero_point, Tensor("output_yz").bytes.front());
  Bytes y;
  for (const float value : x) y.push_back(static_cast<uint8_t>(reference::Quantize(value, INTACT_U8, q)));
  EXPECT_EQ(y, Tensor("output_y").bytes);
}

// An identity matrix shows each of the kernels' numbers: (y − zero point)·scale.
TEST_P(DynamicQuantize, EqualsTheKernelsQuantizer) {
  const support::NpyArray x = Tensor("x");
  reference::Gemm gemm;
  gemm.c_type = INTACT_F32;
  gemm.a_quantization = INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  gemm.a_source_type = INTACT_F32;
  gemm.a_source = x.bytes;
  gemm.k = gemm.n = x.shape.back();
  gemm.m = std::ssize(x.Values<float>()) / gemm.k;
  gemm.b.assign(static_cast<size_t>(gemm.k * gemm.n), 0);
  for (int64_t i = 0; i < gemm.k; ++i) gemm.b[static_cast<size_t>(i * gemm.n + i)] = 1;
  gemm.scales = {1.0f};
  const float scale = Tensor("output_ys").Values<float>().front();
  const int32_t zero_point = Tensor("output_yz").bytes.front();
  std::vector<float> expected;
  for (const uint8_t y : Tensor("output_y").bytes) {
    expected.push_back(static_cast<float>(y - zero_point) * scale);
  }
  Bytes bytes(expected.size() * sizeof(float));
  std::memcpy(bytes.data(), expected.data(), bytes.size());
  reference::QuantizeActivations(&gemm);
  ExpectOfLibrary(gemm, bytes);
}

INSTANTIATE_TEST_SUITE_P(All, DynamicQuantize, testing::ValuesIn(CasesOf("dynamic_quantize")),
                         [](const auto& name) { return name.param; });

class DynamicLinear : public OnnxRuntime {};

TEST_P(DynamicLinear, IsPredictedAndEqual) {
  const support::NpyArray x = Tensor("x");
  const support::NpyArray b = Tensor("b");
  const support::NpyArray c = Tensor("output_c");
  reference::Gemm gemm;
  SetTypes({INTACT_U8, {}, {}}, b, c, &gemm);
  gemm.m = x.shape[0];
  gemm.k = x.shape[1];
  gemm.n = b.shape[1];
  gemm.a_quantization = INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  gemm.a_source_type = INTACT_F32;
  gemm.a_source = x.bytes;
  gemm.b.assign(b.bytes.begin(), b.bytes.end());
  gemm.scales = Tensor("sb").Values<float>();
  if (Has("bias")) gemm.bias_f32 = Tensor("bias").Values<float>();
  reference::QuantizeActivations(&gemm);
  ExpectOutput(gemm, c.bytes);
}

INSTANTIATE_TEST_SUITE_P(All, DynamicLinear, testing::ValuesIn(CasesOf("dynamic_linear")),
                         [](const auto& name) { return name.param; });

// ----- MatMulInteger and QLinearMatMul ---------------------------------------------------------------------

class MatMul : public OnnxRuntime {};

TEST_P(MatMul, IsPredictedAndEqual) {
  const support::NpyArray a = Tensor("a");
  const support::NpyArray b = Tensor("b");
  const support::NpyArray c = Tensor("output_c");
  reference::Gemm gemm;
  SetTypes(a, b, c, &gemm);
  gemm.m = a.shape[0];
  gemm.k = a.shape[1];
  gemm.n = b.shape[1];
  gemm.a = a.bytes;
  gemm.b.assign(b.bytes.begin(), b.bytes.end());
  gemm.a_zero_point = ZeroPoint("za");
  if (c.type != INTACT_S32) SetScales(&gemm);
  ExpectOutput(gemm, c.bytes);
}

INSTANTIATE_TEST_SUITE_P(Integer, MatMul, testing::ValuesIn(CasesOf("matmul_integer")),
                         [](const auto& name) { return name.param; });
INSTANTIATE_TEST_SUITE_P(QLinear, MatMul, testing::ValuesIn(CasesOf("qlinear_matmul")),
                         [](const auto& name) { return name.param; });

// ----- convolutions ----------------------------------------------------------------------------------------

// [outer][channels][inner] → [outer][inner][channels], of elements of `size` bytes: NCHW → NHWC, OIHW → OHWI.
Bytes ChannelsLast(const support::NpyArray& tensor, size_t size) {
  const auto outer = static_cast<size_t>(tensor.shape[0]);
  const auto channels = static_cast<size_t>(tensor.shape[1]);
  const size_t inner = tensor.bytes.size() / (outer * channels * size);
  Bytes moved(tensor.bytes.size());
  for (size_t i = 0; i < outer * channels * inner; ++i) {
    const size_t to = (i / (channels * inner) * inner + i % inner) * channels + i / inner % channels;
    std::memcpy(&moved[to * size], &tensor.bytes[i * size], size);
  }
  return moved;
}

class Conv : public OnnxRuntime {
 protected:
  static reference::Conv Read() {
    const Result<nlohmann::json> root = support::ReadJson(kCases + GetParam() + "/case.json");
    EXPECT_TRUE(root) << root.error().message;
    const nlohmann::json attributes = (*root)["nodes"][0]["attributes"];
    const support::NpyArray a = Tensor("a");
    const support::NpyArray b = Tensor("b");
    reference::Conv conv;
    SetTypes(a, b, Tensor("output_c"), &conv);
    reference::ConvGeometry& geometry = conv.geometry;
    geometry.dims = 2;
    geometry.batch = a.shape[0];
    geometry.input_channels = a.shape[1];
    geometry.output_channels = b.shape[0];
    geometry.groups = attributes.value("group", int64_t{1});
    const std::vector<int64_t> pads = attributes["pads"];
    const std::vector<int64_t> strides = attributes.value("strides", std::vector<int64_t>{1, 1});
    for (size_t i = 0; i < 2; ++i) {
      geometry.axes[i + 1] = {a.shape[i + 2], b.shape[i + 2], strides[i], 1, pads[i], pads[i + 2]};
    }
    conv.a = ChannelsLast(a, 1);
    const Bytes weights = ChannelsLast(b, 1);
    conv.b.assign(weights.begin(), weights.end());
    conv.a_zero_point = ZeroPoint("za");
    if (conv.c_type != INTACT_S32) SetScales(&conv);
    return conv;
  }
};

// Pairs are of the flattened depth (kh, kw, channel of the group): they cross taps if channels are odd.
TEST_P(Conv, IsPredictedAndEqual) {
  reference::Conv conv = Read();
  const reference::ConvGeometry& g = conv.geometry;
  const Bytes expected = ChannelsLast(Tensor("output_c"), static_cast<size_t>(core::BytesOf(conv.c_type)));
  const bool is_depthwise = g.groups == g.input_channels;
  Model model = is_depthwise ? Model::kExact : ModelOf(conv);
  const bool pairs_cross_taps = model == Model::kMaddubs && g.GroupInputs() % 2 != 0;
  if (pairs_cross_taps) model.order = reference::DepthOrder::kFlattened;
  ExpectIdentified(conv, expected, model);
  if (model != Model::kExact) conv.pairing = INTACT_PAIRING_FLATTENED;
  ExpectOfLibrary(conv, expected);
}

INSTANTIATE_TEST_SUITE_P(Integer, Conv, testing::ValuesIn(CasesOf("conv_integer")),
                         [](const auto& name) { return name.param; });
INSTANTIATE_TEST_SUITE_P(QLinear, Conv, testing::ValuesIn(CasesOf("qlinear_conv")),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace intact::tests
