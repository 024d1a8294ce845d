#include "verify/studies/layer.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "verify/explain/identify.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "support/npy.h"
#include "tests/support/npy_text.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_path.h"
#include "verify/explain/audit.h"
#include "verify/explain/compare.h"

namespace intact::verify {
namespace {

using nlohmann::json;
using reference::Model;
using testing::HasSubstr;

const std::string kLayers = INTACT_TEST_DATA "/torch-layers/";

std::vector<uint8_t> ModelOutputs(const reference::Gemm& gemm, Model model) {
  return reference::Outputs(gemm, reference::Accumulators(gemm, model));
}

// Identifies the engines' arithmetic from outputs in which sums saturate.
template <class Operation>
void ExpectIdentified(const Operation& operation, const std::vector<uint8_t>& exact,
                      const std::vector<uint8_t>& saturating) {
  const Identity of_exact = Identify(operation, exact);
  EXPECT_EQ(of_exact.arithmetic, reference::Arithmetic()) << InWords(of_exact);
  const Identity of_saturating = Identify(operation, saturating);
  const Model model = exact == saturating ? Model::kExact : Model::kMaddubs;
  EXPECT_EQ(of_saturating.arithmetic, reference::Arithmetic{model}) << InWords(of_saturating);
  EXPECT_EQ(of_exact.would_show_clamping, exact == saturating ? 0 : 1);
}

class GoldenLayer : public testing::TestWithParam<const char*> {};

// PyTorch's engines on a VNNI machine and limited to AVX2: each byte is predicted.
TEST_P(GoldenLayer, ModelsEqualPyTorch) {
  const Result<Layer> layer = ReadLayer(kLayers + GetParam());
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_EQ(layer->name, GetParam());
  const auto exact = ReadExpected(*layer, "output_onednn.npy");
  const auto saturating = ReadExpected(*layer, "output_avx2.npy");
  ASSERT_TRUE(exact) << exact.error().message;
  ASSERT_TRUE(saturating) << saturating.error().message;
  EXPECT_EQ(ModelOutputs(layer->gemm(), Model::kExact), *exact);
  EXPECT_EQ(ModelOutputs(layer->gemm(), Model::kMaddubs), *saturating);
  ExpectIdentified(layer->gemm(), *exact, *saturating);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenLayer,
                         testing::Values("u8_9", "u8_11", "u7_9", "u7_11", "u8_ramp_64x10", "u7_ramp_64x10"));

class GoldenConv : public testing::TestWithParam<const char*> {};

// Float ties may be rounded differently, on at most 0.01 % of outputs and by 1. Today there is none.
TEST_P(GoldenConv, ModelsEqualPyTorch) {
  if (tests::kSanitized && std::string_view(GetParam()) != "u8_0_0")
    GTEST_SKIP() << "sanitizers see one layer";
  const Result<Layer> layer = ReadLayer(kLayers + GetParam());
  ASSERT_TRUE(layer) << layer.error().message;
  ASSERT_NE(layer->conv(), nullptr);
  const reference::Conv& conv = *layer->conv();
  const auto exact = ReadExpected(*layer, "output_onednn.npy");
  const auto saturating = ReadExpected(*layer, "output_avx2.npy");
  ASSERT_TRUE(exact) << exact.error().message;
  ASSERT_TRUE(saturating) << saturating.error().message;
  const ByteComparison nest =
      CompareBytes(conv.c_type, *exact, reference::Outputs(conv, reference::Convolve(conv)));
  RecordProperty("differing", std::to_string(nest.differing));
  EXPECT_LE(nest.differing * 10000, nest.outputs);
  EXPECT_LE(nest.max_abs_difference, 1);
  EXPECT_EQ(nest.differing, 0);
  EXPECT_EQ(reference::Outputs(conv, reference::Accumulators(conv, Model::kMaddubs)), *saturating);
  ExpectIdentified(conv, *exact, *saturating);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenConv,
                         testing::Values("u8_0_0", "u8_1_0", "u8_2_0", "u8_3_0", "u8_4_0", "u8_5_0", "u8_6_0",
                                         "u7_0_0", "u7_1_0", "u7_2_0", "u7_3_0", "u7_4_0", "u7_5_0",
                                         "u7_6_0"));

// Explains each wrong output of PyTorch's AVX2 kernels by its pairs.
TEST(GoldenConv, EveryDifferenceOfTheFirstLayerHasItsPairs) {
  const Result<Layer> layer = ReadLayer(kLayers + "u8_0_0");
  ASSERT_TRUE(layer);
  const Comparison comparison = Compare(*layer->conv(), *ReadExpected(*layer, "output_avx2.npy"),
                                        std::nullopt, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(comparison.saturated_pairs, 2914);
  EXPECT_EQ(comparison.off_maddubs, 0);
  EXPECT_GT(comparison.differing, 1000);
  EXPECT_EQ(comparison.by_cause[static_cast<size_t>(Cause::kInt16Saturation)], comparison.differing);
  for (const Difference& difference : comparison.listed) {
    ASSERT_FALSE(difference.pairs.empty());
    for (const SaturatedPair& pair : difference.pairs) {
      EXPECT_LT(reference::TapChannelOf(*comparison.conv, pair.k).channel, 2) << "the third is alone";
    }
  }
}

/// A copy of a layer, for tests that change it.
class LayerCopy : public testing::Test {
 public:
  ~LayerCopy() override { std::filesystem::remove_all(folder_); }

 protected:
  explicit LayerCopy(const char* layer = "u8_11") {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(kLayers + layer, folder_);
    std::ifstream(folder_ + "/layer.json") >> json_;
  }

  void WriteText(const std::string& text) { std::ofstream(folder_ + "/layer.json") << text; }

  /// The error of layer.json with `value` at the JSON pointer `where`.
  std::string ErrorWith(const char* where, const json& value) {
    json changed = json_;
    changed[json::json_pointer(where)] = value;
    WriteText(changed.dump());
    return ErrorOf();
  }

  std::string ErrorOf() {
    const Result<Layer> layer = ReadLayer(folder_);
    if (layer) return "no error";
    EXPECT_EQ(layer.error().message.find('\n'), std::string::npos);
    EXPECT_THAT(layer.error().message, HasSubstr(folder_));
    return layer.error().message;
  }

  const std::string folder_ = tests::TempPath();
  json json_;
};

// A dynamic layer of ONNX Runtime in the verifier's format.
class DynamicLayer : public LayerCopy {
 protected:
  DynamicLayer() {
    const std::string from = INTACT_TEST_DATA "/onnxruntime-avx2/dynamic_linear_9x48x200_bias/";
    const auto copy = [&](const char* file, const char* to) {
      std::filesystem::copy_file(from + file, folder_ + "/" + to,
                                 std::filesystem::copy_options::overwrite_existing);
    };
    copy("x.npy", "activations.npy");
    copy("bias.npy", "bias.npy");
    copy("output_c.npy", "output.npy");
    // B is K×N; in Fortran order N×K has these bytes.
    std::ifstream in(from + "b.npy", std::ios::binary);
    std::string npy((std::istreambuf_iterator<char>(in)), {});
    const auto replace = [&npy](std::string_view what, std::string_view with) {
      const size_t at = npy.find(what);
      ASSERT_NE(at, std::string::npos);
      npy.replace(at, what.size(), with);
    };
    replace("'fortran_order': False,", "'fortran_order': True, ");
    replace("(200, 48)", "(48, 200)");
    std::ofstream(folder_ + "/weights.npy", std::ios::binary) << npy;
    json_ = {{"operator", "linear_dynamic"},
             {"relu", false},
             {"input", {{"type", "u8"}, {"per", "tensor"}}},
             {"weight",
              {{"scales", support::ReadNpy(from + "sb.npy")->Values<float>()},
               {"zero_points", json::array({0})}}}};
    WriteText(json_.dump());
  }
};

TEST_F(DynamicLayer, ModelsEqualOnnxRuntime) {
  const Result<Layer> layer = ReadLayer(folder_);
  ASSERT_TRUE(layer) << layer.error().message;
  const auto expected = ReadExpected(*layer, "output.npy");
  ASSERT_TRUE(expected) << expected.error().message;
  EXPECT_EQ(ModelOutputs(layer->gemm(), Model::kMaddubs), *expected);
  EXPECT_NE(ModelOutputs(layer->gemm(), Model::kExact), *expected);
}

TEST_F(DynamicLayer, WrongFields) {
  EXPECT_THAT(ErrorWith("/input/type", "u4"), HasSubstr(R"(input.type: is "u4"; expected "u8" or "s8")"));
  EXPECT_THAT(ErrorWith("/input/per", 3), HasSubstr(R"(input.per: is 3; expected "tensor" or "row")"));
  EXPECT_THAT(ErrorWith("/input/scale", 0.5), HasSubstr("input.scale: is unknown, or has no meaning"));
  EXPECT_THAT(ErrorWith("/ramp", {{"from", 0}}), HasSubstr("ramp: is unknown, or has no meaning"));
  EXPECT_THAT(ErrorWith("/operator", "linear"),
              HasSubstr("activations.npy: is f4 (9, 200); expected u1 or i1"));
}

/// The tensor of `path` in a file with another shape.
std::string Reshaped(const std::string& path, const std::string& shape) {
  const support::NpyArray npy = *support::ReadNpy(path);
  const std::string type = core::BytesOf(npy.type) == 1 ? "|" : "<";
  return tests::Npy(tests::Dict(type + std::string(core::TraitsOf(npy.type).npy), shape),
                    std::string(npy.bytes.begin(), npy.bytes.end()));
}

// A convolution of 1×1 pixels computes what the linear layer computes. The library quantizes its activations,
// unless outputs are sums.
TEST_F(DynamicLayer, ConvolutionEqualsOnnxRuntime) {
  const Result<Layer> linear = ReadLayer(folder_);
  ASSERT_TRUE(linear) << linear.error().message;
  const auto write = [&](const std::string& file, const std::string& shape) {
    const std::string npy = Reshaped(folder_ + "/" + file, shape);
    std::ofstream(folder_ + "/" + file, std::ios::binary) << npy;
  };
  write("activations.npy", "(1, 3, 3, 200)");
  write("weights.npy", "(48, 1, 1, 200)");
  write("output.npy", "(1, 3, 3, 48)");
  json_["operator"] = "conv2d_dynamic";
  WriteText(json_.dump());
  const Result<Layer> layer = ReadLayer(folder_);
  ASSERT_TRUE(layer) << layer.error().message;
  ASSERT_NE(layer->conv(), nullptr);
  EXPECT_EQ(layer->conv()->a, linear->gemm().a);
  EXPECT_EQ(layer->conv()->a_quantization, INTACT_QUANTIZATION_DYNAMIC_TENSOR);
  EXPECT_TRUE(layer->conv()->IsDynamic());
  EXPECT_EQ(layer->conv()->a_zero_points, std::vector<int32_t>{linear->gemm().a_zero_points[0]});
  EXPECT_EQ(layer->conv()->a_scales, std::vector<float>{linear->gemm().a_scales[0]});
  EXPECT_EQ(reference::Outputs(*layer->conv(), reference::Accumulators(*layer->conv(), Model::kMaddubs)),
            *ReadExpected(*layer, "output.npy"));
  EXPECT_THAT(ErrorWith("/input/per", "row"), HasSubstr("input.per: is \"row\"; expected \"tensor\""));
  // Only ConvInteger.
  json_["output"] = {{"type", "s32"}};
  json_["weight"].erase("scales");
  std::filesystem::remove(folder_ + "/bias.npy");
  WriteText(json_.dump());
  const Result<Layer> sums = ReadLayer(folder_);
  ASSERT_TRUE(sums) << sums.error().message;
  EXPECT_FALSE(sums->conv()->IsDynamic());
  EXPECT_EQ(sums->conv()->a_zero_point, linear->gemm().a_zero_points[0]);
  EXPECT_EQ(reference::Accumulators(*sums->conv(), Model::kExact),
            reference::Accumulators(linear->gemm(), Model::kExact));
  EXPECT_THAT(ErrorWith("/input/per", "row"), HasSubstr("input.per: is \"row\"; expected \"tensor\""));
}

TEST_F(DynamicLayer, SumsAreThoseOfTheScaledOutputs) {
  const Result<Layer> scaled = ReadLayer(folder_);
  ASSERT_TRUE(scaled) << scaled.error().message;
  json_["output"] = {{"type", "s32"}};
  json_["weight"].erase("scales");
  WriteText(json_.dump());
  EXPECT_THAT(ErrorOf(), HasSubstr("bias.npy: exists; expected bias_int32.npy, because the output is s32"));
  std::filesystem::remove(folder_ + "/bias.npy");
  const Result<Layer> layer = ReadLayer(folder_);
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_FALSE(layer->gemm().IsDynamic());
  EXPECT_EQ(reference::Accumulators(layer->gemm(), Model::kMaddubs),
            reference::Accumulators(scaled->gemm(), Model::kMaddubs));
}

TEST_F(DynamicLayer, NumbersWithoutAScale) {
  json_["output"] = {{"type", "s32"}};
  json_["weight"].erase("scales");
  std::filesystem::remove(folder_ + "/bias.npy");
  WriteText(json_.dump());
  std::vector<float> x(9 * 200, 1.0f);
  x[7] = std::numeric_limits<float>::infinity();
  std::ofstream(folder_ + "/activations.npy", std::ios::binary)
      << tests::Npy(tests::Dict("<f4", "(9, 200)"),
                    std::string(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float)));
  EXPECT_THAT(ErrorOf(), HasSubstr("activations.npy: cannot be quantized; expected finite numbers"));
}

// MatMulInteger of ONNX Runtime on AVX2: pairs are exact if both operands are u8; others clamp.
class IntegerLayer : public LayerCopy {
 protected:
  void Copy(const std::string& of) {
    const std::string from = INTACT_TEST_DATA "/onnxruntime-avx2/" + of + "/";
    const auto copy = [&](const char* file, const char* to) {
      std::filesystem::copy_file(from + file, folder_ + "/" + to,
                                 std::filesystem::copy_options::overwrite_existing);
    };
    copy("a.npy", "activations.npy");
    copy("output_c.npy", "output.npy");
    const support::NpyArray b = *support::ReadNpy(from + "b.npy");
    std::string columns(b.bytes.size(), '\0');
    const auto depth = static_cast<size_t>(b.shape[0]), n = static_cast<size_t>(b.shape[1]);
    for (size_t i = 0; i < columns.size(); ++i) {
      columns[i] = static_cast<char>(b.bytes[i % depth * n + i / depth]);
    }
    std::ofstream(folder_ + "/weights.npy", std::ios::binary) << tests::Npy(
        tests::Dict(b.type == INTACT_U8 ? "|u1" : "|i1", fmt::format("({}, {})", n, depth)), columns);
    std::filesystem::remove(folder_ + "/bias.npy");
    const support::NpyArray za = *support::ReadNpy(from + "za.npy"), zb = *support::ReadNpy(from + "zb.npy");
    std::vector<int32_t> zero_points;
    for (const uint8_t byte : zb.bytes) zero_points.push_back(core::DecodeInt8(zb.type, byte));
    json_ = {{"operator", "linear"},
             {"input", {{"zero_point", core::DecodeInt8(za.type, za.bytes[0])}}},
             {"output", {{"type", "s32"}}},
             {"weight", {{"zero_points", zero_points}}}};
    WriteText(json_.dump());
  }
};

TEST_F(IntegerLayer, ModelsEqualOnnxRuntime) {
  for (const auto& [name, model] : {std::pair("matmul_integer_u8u8_6x40x192", Model::kExact),
                                    std::pair("matmul_integer_u8s8_16x48x255", Model::kMaddubs)}) {
    SCOPED_TRACE(name);
    Copy(name);
    const Result<Layer> layer = ReadLayer(folder_);
    ASSERT_TRUE(layer) << layer.error().message;
    EXPECT_EQ(layer->gemm().c_type, INTACT_S32);
    const auto expected = ReadExpected(*layer, "output.npy");
    ASSERT_TRUE(expected) << expected.error().message;
    EXPECT_EQ(ModelOutputs(layer->gemm(), model), *expected);
  }
}

TEST_F(IntegerLayer, TakesNoScales) {
  Copy("matmul_integer_u8s8_5x17x64");
  EXPECT_EQ(ErrorOf(), "no error");
  EXPECT_THAT(ErrorWith("/input/scale", 0.5), HasSubstr("input.scale: is unknown, or has no meaning"));
  EXPECT_THAT(ErrorWith("/weight/scales", {0.5}), HasSubstr("weight.scales: is unknown, or has no meaning"));
  EXPECT_EQ(ErrorWith("/relu", false), "no error");
  EXPECT_THAT(ErrorWith("/relu", true),
              HasSubstr("relu: is true; expected false, because the output is s32"));
  EXPECT_THAT(ErrorWith("/activation", "relu6"), HasSubstr("activation: is \"relu6\"; expected \"none\""));
  EXPECT_THAT(
      ErrorWith("/residual", {{"scale", 1}}),
      HasSubstr(
          "residual.npy: exists or layer.json has \"residual\"; expected none, because the output is s32"));
  EXPECT_THAT(ErrorWith("/output/type", "s16"),
              HasSubstr("output.type: is \"s16\"; expected \"u8\", \"s8\", \"s32\", \"f32\" or \"f16\""));
}

using BadLayer = LayerCopy;

/// A layer of PyTorch with other outputs.
class ChangedLayer : public LayerCopy {
 protected:
  Layer Changed() {
    WriteText(json_.dump());
    Result<Layer> layer = ReadLayer(folder_);
    EXPECT_TRUE(layer) << layer.error().message;
    return layer ? std::move(*layer) : Layer();
  }
  /// The outputs of PyTorch's exact engine as integers.
  std::vector<int32_t> Recorded() {
    const support::NpyArray npy = *support::ReadNpy(folder_ + "/output_onednn.npy");
    return std::vector<int32_t>(npy.bytes.begin(), npy.bytes.end());
  }
  std::vector<int32_t> Outputs(const Layer& layer) {
    std::vector<int32_t> outputs;
    for (const uint8_t byte : ModelOutputs(layer.gemm(), Model::kExact)) {
      outputs.push_back(core::DecodeInt8(layer.gemm().c_type, byte));
    }
    return outputs;
  }
};

// Bounds in real numbers clamp outputs to the integers that the bounds round to.
TEST_F(ChangedLayer, Activations) {
  const double scale = json_["output"]["scale"];
  const int32_t zero_point = json_["output"]["zero_point"];
  json_.erase("relu");
  json_["activation"] = "none";
  const std::vector<int32_t> plain = Outputs(Changed());
  EXPECT_EQ(plain, Recorded());
  const auto clamped = [&](double low, double high) {
    std::vector<int32_t> outputs;
    for (const int32_t output : plain) {
      outputs.push_back(std::clamp(output, zero_point + static_cast<int32_t>(std::nearbyint(low / scale)),
                                   zero_point + static_cast<int32_t>(std::nearbyint(high / scale))));
    }
    return outputs;
  };
  json_["activation"] = "relu";
  EXPECT_EQ(Outputs(Changed()), clamped(0, 1e6 * scale));
  json_["activation"] = "relu6";
  EXPECT_EQ(Outputs(Changed()), clamped(0, 6));
  const double step = 10.3 * scale;
  json_["activation"] = {{"min", -2 * step}, {"max", step}};
  EXPECT_EQ(Outputs(Changed()), clamped(-2 * step, step));
  EXPECT_NE(Outputs(Changed()), plain);
}

// Equal numbers with a zero point that is 128 lower.
TEST_F(ChangedLayer, OutputTypeOtherThanTheInputs) {
  json_["output"]["type"] = "s8";
  json_["output"]["zero_point"] = json_["output"]["zero_point"].get<int>() - 128;
  const Layer layer = Changed();
  EXPECT_EQ(layer.gemm().a_type, INTACT_U8);
  std::vector<int32_t> expected = Recorded();
  for (int32_t& output : expected) output -= 128;
  EXPECT_EQ(Outputs(layer), expected);
}

template <class T>
std::vector<T> ValuesOf(const std::vector<uint8_t>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// float(sum)·scale + bias, with bounds and bias unrounded; then rounded to float16.
TEST_F(ChangedLayer, RealOutputs) {
  const double input_scale = json_["input"]["scale"];
  const std::vector<double> weight_scales = json_["weight"]["scales"];
  const std::vector<float> bias = support::ReadNpy(folder_ + "/bias.npy")->Values<float>();
  json_["output"] = {{"type", "f32"}};
  json_["activation"] = "relu6";
  json_.erase("relu");
  const Layer layer = Changed();
  const std::vector<int32_t> sums = reference::Accumulators(layer.gemm(), Model::kExact);
  std::vector<float> expected;
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t n = i % bias.size();
    const auto scale = static_cast<float>(input_scale * weight_scales[weight_scales.size() == 1 ? 0 : n]);
    const float scaled = static_cast<float>(sums[i]) * scale;
    expected.push_back(std::clamp(scaled + bias[n], 0.0f, 6.0f));
  }
  EXPECT_EQ(ValuesOf<float>(ModelOutputs(layer.gemm(), Model::kExact)), expected);
  json_["output"] = {{"type", "f16"}};
  const std::vector<uint8_t> halves = ModelOutputs(Changed().gemm(), Model::kExact);
  ASSERT_EQ(halves.size(), 2 * expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(core::Decode(INTACT_F16, &halves[2 * i]), reference::RoundToFloat(expected[i], INTACT_F16))
        << i;
  }
  EXPECT_THAT(ErrorWith("/output/scale", 0.5), HasSubstr("output.scale: is unknown, or has no meaning"));
}

// A bias at the end of int32: sums wrap modulo 2³² if the layer says so.
TEST_F(ChangedLayer, SumsThatWrap) {
  json_ = {{"operator", "linear"},
           {"input", {{"zero_point", json_["input"]["zero_point"]}}},
           {"output", {{"type", "s32"}}},
           {"weight", {{"zero_points", {0}}}}};
  std::filesystem::remove(folder_ + "/bias.npy");
  const std::vector<int32_t> plain = reference::Accumulators(Changed().gemm(), Model::kExact);
  EXPECT_GT(*std::ranges::max_element(plain), 0);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  std::string bias;
  for (int i = 0; i < 10; ++i) bias.append(reinterpret_cast<const char*>(&kMost), sizeof kMost);
  std::ofstream(folder_ + "/bias_int32.npy", std::ios::binary)
      << tests::Npy(tests::Dict("<i4", "(10,)"), bias);
  EXPECT_EQ(Changed().gemm().overflow, INTACT_OVERFLOW_REFUSED);
  json_["overflow"] = "refused";
  EXPECT_EQ(Changed().gemm().overflow, INTACT_OVERFLOW_REFUSED);
  json_["overflow"] = "wraps";
  const Layer layer = Changed();
  EXPECT_EQ(layer.gemm().overflow, INTACT_OVERFLOW_WRAPS);
  std::vector<int32_t> expected;
  for (const int32_t sum : plain) {
    expected.push_back(static_cast<int32_t>(static_cast<uint32_t>(sum) + uint32_t{kMost}));
  }
  EXPECT_EQ(ValuesOf<int32_t>(ModelOutputs(layer.gemm(), Model::kExact)), expected);
  EXPECT_THAT(ErrorWith("/overflow", "clamps"),
              HasSubstr(R"(overflow: is "clamps"; expected "refused" or "wraps")"));
  EXPECT_THAT(ErrorWith("/overflow", 1), HasSubstr(R"(overflow: is 1; expected "refused" or "wraps")"));
}

// (r − zero point)·scale/output scale is added before the activation.
TEST_F(ChangedLayer, Residual) {
  const double output_scale = json_["output"]["scale"];
  const std::vector<int32_t> recorded = Recorded();
  const std::string shape = support::ShapeString(support::ReadNpy(folder_ + "/output_onednn.npy")->shape);
  const auto write = [&](const std::string& type, const std::string& elements) {
    std::ofstream(folder_ + "/residual.npy", std::ios::binary)
        << tests::Npy(tests::Dict(type, shape), elements);
  };
  // A residual of whole output steps shifts an output by that number of steps.
  std::string bytes, reals;
  std::vector<int32_t> expected;
  for (size_t i = 0; i < recorded.size(); ++i) {
    const auto steps = static_cast<int32_t>(i % 41) - 20;
    bytes += static_cast<char>(steps + 20);
    const auto real = static_cast<float>(steps);
    reals.append(reinterpret_cast<const char*>(&real), sizeof real);
    expected.push_back(std::clamp(recorded[i] + steps, 0, 255));
  }
  json_["residual"] = {{"scale", output_scale}, {"zero_point", 20}};
  for (const char* type : {"|u1", "|i1"}) {
    write(type, bytes);
    const Layer layer = Changed();
    EXPECT_EQ(layer.gemm().residual_type(), type[1] == 'u' ? INTACT_U8 : INTACT_S8);
    EXPECT_EQ(Outputs(layer), expected);
  }
  json_["activation"] = "relu";  // after the addition
  json_.erase("relu");
  std::vector<int32_t> positive = expected;
  for (int32_t& output : positive) output = std::max<int32_t>(output, json_["output"]["zero_point"]);
  EXPECT_EQ(Outputs(Changed()), positive);
  json_["activation"] = "none";
  write("<f4", reals);
  EXPECT_THAT(ErrorWith("/reduce_range", false),
              HasSubstr("residual.zero_point: is unknown, or has no meaning"));
  json_["residual"].erase("zero_point");
  EXPECT_EQ(Outputs(Changed()), expected);
}

TEST_F(ChangedLayer, WrongResiduals) {
  json_["residual"] = {{"scale", 1.0}, {"zero_point", 300}};
  WriteText(json_.dump());
  EXPECT_THAT(ErrorOf(), HasSubstr("residual.npy: no such file"));
  const auto write = [&](const std::string& from) {
    std::filesystem::copy_file(kLayers + from, folder_ + "/residual.npy",
                               std::filesystem::copy_options::overwrite_existing);
  };
  write("u8_9/output_onednn.npy");
  EXPECT_THAT(ErrorOf(),
              HasSubstr("residual.npy: is u1 (4, 160); expected u1, i1 or f4 (4, 10), the output's shape"));
  write("u8_11/output_onednn.npy");
  EXPECT_THAT(ErrorOf(), HasSubstr("residual.zero_point: is 300; expected 0 to 255"));
  json_["residual"]["zero_point"] = 3;
  EXPECT_THAT(ErrorWith("/residual/scale", -1),
              HasSubstr("residual.scale: is -1; expected a finite scale above 0"));
  EXPECT_THAT(ErrorWith("/residual/scale", 1e300),
              HasSubstr("residual.scale: divided by output.scale is inf"));
  json_.erase("residual");
  WriteText(json_.dump());
  EXPECT_THAT(ErrorOf(), HasSubstr("residual.scale: is missing; expected a number"));
}

TEST_F(ChangedLayer, WrongActivations) {
  EXPECT_THAT(ErrorWith("/activation", "relu"),
              HasSubstr("relu: is given together with activation; expected one of the two"));
  json_.erase("relu");
  EXPECT_THAT(
      ErrorWith("/activation", "gelu"),
      HasSubstr(
          R"(activation: is "gelu"; expected "none", "relu", "relu6" or {"min": number, "max": number})"));
  EXPECT_THAT(ErrorWith("/activation", 6), HasSubstr("activation: is 6; expected"));
  EXPECT_THAT(ErrorWith("/activation", {{"min", 0}}),
              HasSubstr("activation.max: is missing; expected a number"));
  EXPECT_THAT(ErrorWith("/activation", {{"min", 2}, {"max", "x"}}),
              HasSubstr("activation.max: is \"x\"; expected a number"));
  EXPECT_THAT(ErrorWith("/activation", {{"min", 2}, {"max", 1}}),
              HasSubstr("in units of the output; expected finite bounds in ascending order, not both 0"));
  EXPECT_THAT(ErrorWith("/activation", {{"min", 0}, {"max", 1e-9}}),
              HasSubstr("activation: has the bounds 0 and 0"));
  EXPECT_THAT(ErrorWith("/activation", {{"min", 0}, {"max", 1}, {"mid", 1}}),
              HasSubstr("activation.mid: is unknown"));
}

class BadConv : public LayerCopy {
 protected:
  BadConv() : LayerCopy("u8_3_0") {}  // 3×3, 4 groups of 16 channels
};

TEST_F(BadConv, TheCopyIsGood) { EXPECT_EQ(ErrorOf(), "no error"); }

TEST_F(BadConv, WrongGeometry) {
  EXPECT_THAT(ErrorWith("/stride", 2), HasSubstr("stride: is 2; expected an array"));
  EXPECT_THAT(ErrorWith("/stride", json::array({2})),
              HasSubstr("stride: has 1 entries; expected 2, one for each dimension"));
  EXPECT_THAT(ErrorWith("/stride/1", 0), HasSubstr("stride[1]: is 0; expected 1 to"));
  EXPECT_THAT(ErrorWith("/stride/0", 1.5), HasSubstr("stride[0]: is 1.5; expected an integer"));
  EXPECT_THAT(ErrorWith("/dilation/0", UINT64_MAX), HasSubstr("dilation[0]: is 18446744073709551615"));
  EXPECT_THAT(ErrorWith("/padding/0", -1), HasSubstr("padding[0]: is -1; expected 0 to"));
  EXPECT_THAT(ErrorWith("/padding_end", "none"), HasSubstr("padding_end: is \"none\"; expected an array"));
  EXPECT_THAT(ErrorWith("/groups", 0), HasSubstr("groups: is 0; expected 1 to"));
  EXPECT_THAT(ErrorWith("/groups", 3),
              HasSubstr("activations.npy: is u1 (4, 16, 16, 64); expected u1 or i1 (batch, H, W, 48)"));
  EXPECT_THAT(ErrorWith("/operator", "conv1d"), HasSubstr("stride: has 2 entries; expected 1"));
  EXPECT_THAT(ErrorWith("/output_padding", {0, 1}),
              HasSubstr("output_padding[1]: is 1; expected 0 to 0 for a convolution that is not transposed"));
  EXPECT_THAT(ErrorWith("/dilation", json::array({9, 1})),
              HasSubstr("expected a kernel that fits into the padded input of"));
}

// The layer's tensors as those of a transposed convolution, with the number of outputs of the formula.
TEST_F(BadConv, MayBeTransposed) {
  json_["operator"] = "conv_transpose2d";
  json_["stride"] = {2, 3};
  json_["padding"] = {1, 0};
  json_["output_padding"] = {0, 2};
  WriteText(json_.dump());
  const Result<Layer> layer = ReadLayer(folder_);
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_TRUE(layer->conv()->geometry.IsTransposed());
  EXPECT_EQ(layer->conv()->geometry.axes[1].Output(), 15 * 2 - 2 + 2 + 1);
  EXPECT_EQ(layer->conv()->geometry.axes[2].Output(), 15 * 3 + 2 + 2 + 1);
  EXPECT_THAT(ErrorWith("/output_padding/1", 3),
              HasSubstr("output_padding[1]: is 3; expected 0 to 2, less than stride or dilation"));
  EXPECT_THAT(ErrorWith("/output_padding", 1), HasSubstr("output_padding: is 1; expected an array"));
  EXPECT_THAT(ErrorWith("/padding/0", 17),
              HasSubstr("expected a kernel so large that padding of 34 pixels leaves an output"));
}

// More outputs than int64 can count, or than memory can hold.
TEST_F(BadConv, OutputBeyondWhatCanBeVerified) {
  json_["operator"] = "conv_transpose2d";
  EXPECT_THAT(ErrorWith("/stride", {1 << 20, 1 << 20}),
              HasSubstr("elements; at most 268435456 can be verified"));
  json_["operator"] = "conv2d";
  EXPECT_THAT(ErrorWith("/padding", {1 << 20, 1 << 20}), HasSubstr("layer.json: the output has"));
  EXPECT_THAT(ErrorWith("/padding", {1 << 8, 1 << 8}), HasSubstr("layer.json: the input under all taps has"));
}

// As defined by TensorFlow Lite and ONNX.
TEST_F(BadConv, PaddingInAWord) {
  struct Case {
    const char* word;
    int64_t stride, dilation, begin, end, output;
  };
  for (const auto& [word, stride, dilation, begin, end, output] :
       {Case{"SAME", 1, 1, 1, 1, 16}, Case{"SAME", 2, 1, 0, 1, 8}, Case{"SAME_UPPER", 2, 1, 0, 1, 8},
        Case{"SAME_LOWER", 2, 1, 1, 0, 8}, Case{"SAME", 3, 1, 1, 1, 6}, Case{"SAME_LOWER", 1, 3, 3, 3, 16},
        Case{"SAME", 2, 2, 1, 2, 8}, Case{"SAME", 5, 1, 1, 1, 4}, Case{"SAME", 16, 1, 0, 0, 1},
        Case{"VALID", 1, 1, 0, 0, 14}, Case{"VALID", 2, 1, 0, 0, 7}}) {
    json_["stride"] = {stride, 1};
    json_["dilation"] = {dilation, 1};
    json_["padding"] = word;
    WriteText(json_.dump());
    const Result<Layer> layer = ReadLayer(folder_);
    ASSERT_TRUE(layer) << layer.error().message;
    const reference::Axis& axis = layer->conv()->geometry.axes[1];
    EXPECT_EQ(axis.pad_begin, begin) << word << " " << stride;
    EXPECT_EQ(axis.pad_end, end) << word << " " << stride;
    EXPECT_EQ(axis.Output(), output) << word << " " << stride;
    EXPECT_EQ(layer->conv()->geometry.axes[2].Output(), word[0] == 'S' ? 16 : 14);
  }
  EXPECT_THAT(
      ErrorWith("/padding", "same"),
      HasSubstr(
          R"(padding: is "same"; expected "SAME", "SAME_UPPER", "SAME_LOWER", "VALID" or an array of integers)"));
  EXPECT_THAT(ErrorWith("/padding", 1), HasSubstr("padding: is 1; expected \"SAME\""));
  EXPECT_THAT(ErrorWith("/padding_end", {1, 1}), HasSubstr("padding_end: is unknown, or has no meaning"));
  EXPECT_THAT(ErrorWith("/operator", "conv_transpose2d"),
              HasSubstr("padding: is \"VALID\"; expected an array"));
}

// The f32 outputs, rounded.
TEST_F(BadConv, Float16Outputs) {
  const auto outputs = [this](const char* type) {
    json_["output"] = {{"type", type}};
    WriteText(json_.dump());
    const Result<Layer> layer = ReadLayer(folder_);
    EXPECT_TRUE(layer) << layer.error().message;
    if (!layer) return std::vector<uint8_t>();
    const reference::Conv& conv = *layer->conv();
    return reference::Outputs(conv, reference::Accumulators(conv, Model::kExact));
  };
  const std::vector<float> floats = ValuesOf<float>(outputs("f32"));
  const std::vector<uint8_t> halves = outputs("f16");
  ASSERT_EQ(halves.size(), 2 * floats.size());
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(core::Decode(INTACT_F16, &halves[2 * i]), reference::RoundToFloat(floats[i], INTACT_F16)) << i;
  }
}

TEST_F(BadConv, WrongTensors) {
  for (const char* file : {"activations.npy", "weights.npy"}) {
    std::filesystem::copy_file(kLayers + "u8_11/" + file, folder_ + "/" + file,
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_THAT(ErrorOf(), HasSubstr(file));
  }
  EXPECT_THAT(ErrorOf(), HasSubstr("expected i1 or u1 (N, KH, KW, C/groups)"));
}

TEST_F(BadConv, WrongExpectation) {
  const Result<Layer> layer = ReadLayer(folder_);
  ASSERT_TRUE(layer);
  EXPECT_THAT(ReadExpected(*layer, "weights.npy").error().message, HasSubstr("the output of layer"));
}

// The weights and their zero points as u8, 128 higher: equal outputs on every engine.
TEST_F(ChangedLayer, U8WeightsComputeTheSame) {
  const std::string path = folder_ + "/weights.npy";
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const Result<Layer> original = ReadLayer(folder_);
  ASSERT_TRUE(original) << original.error().message;
  bytes.replace(bytes.find("|i1"), 3, "|u1");
  for (size_t i = bytes.size() - original->gemm().b.size(); i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(bytes[i] ^ 0x80);
  }
  std::ofstream(path, std::ios::binary) << bytes;
  for (const json& zero_points : {json::array({128}), json(std::vector<int>(10, 128))}) {
    json_["weight"]["zero_points"] = zero_points;
    WriteText(json_.dump());
    const Result<Layer> layer = ReadLayer(folder_);
    ASSERT_TRUE(layer) << layer.error().message;
    EXPECT_EQ(layer->gemm().b_type, INTACT_U8);
    EXPECT_EQ(layer->gemm().b_zero_points.size(), zero_points.size());
    EXPECT_EQ(ModelOutputs(layer->gemm(), Model::kExact), *ReadExpected(*layer, "output_onednn.npy"));
    EXPECT_EQ(ModelOutputs(layer->gemm(), Model::kMaddubs), *ReadExpected(*layer, "output_avx2.npy"));
    const Audit audit = AuditReduceRange(layer->gemm(), false);
    const Audit expected = AuditReduceRange(original->gemm(), false);
    EXPECT_EQ(audit.max_weight, expected.max_weight);
    EXPECT_EQ(audit.largest_safe_activation, expected.largest_safe_activation);
    EXPECT_EQ(audit.sqnr_7bit_weights_db, expected.sqnr_7bit_weights_db);
    EXPECT_EQ(audit.sqnr_7bit_activations_db, expected.sqnr_7bit_activations_db);
  }
}

TEST_F(BadLayer, DeepJson) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  WriteText(R"({"operator":)" + nested(100000) + "}");
  EXPECT_THAT(ErrorOf(), HasSubstr("layer.json: is nested deeper than 32 levels"));
  WriteText(R"({"operator":)" + std::string(100000, '['));
  EXPECT_THAT(ErrorOf(), HasSubstr("malformed JSON"));
  WriteText(R"({"operator":)" + nested(31) + "}");
  EXPECT_THAT(ErrorOf(), HasSubstr("operator: is an array of 1; expected a string"));
  EXPECT_THAT(ErrorWith("/operator", {{"name", "linear"}}), HasSubstr("operator: is an object of 1;"));
}

TEST_F(BadLayer, ControlCharactersAreNotEchoed) {
  EXPECT_THAT(ErrorWith("/operator", "a\n\x1b[31m"), HasSubstr(R"(operator: is "a\n\u001b[31m";)"));
  WriteText("{\"operator\": \"\x1b[31m\"}");
  EXPECT_EQ(ErrorOf().find('\x1b'), std::string::npos);
}

TEST_F(BadLayer, TheCopyIsGood) { EXPECT_EQ(ErrorOf(), "no error"); }

TEST_F(BadLayer, MalformedJson) {
  for (const char* text :
       {"", "{", "[1, 2]", R"({"operator": "linear", "input": {"scale": NaN}})", "\xff\xfe"}) {
    WriteText(text);
    EXPECT_THAT(ErrorOf(), HasSubstr("layer.json: ")) << text;
    EXPECT_THAT(ErrorOf(), HasSubstr("JSON")) << text;
  }
}

TEST_F(BadLayer, UnknownKeys) {
  const auto is_unknown = [](const std::string& key) {
    return HasSubstr("layer.json: " + key + ": is unknown, or has no meaning for this operator");
  };
  EXPECT_THAT(ErrorWith("/reduce_rnage", true), is_unknown("reduce_rnage"));
  EXPECT_THAT(ErrorWith("/stride", {2, 2}), is_unknown("stride"));
  EXPECT_THAT(ErrorWith("/input/zero_points", {0}), is_unknown("input.zero_points"));
  EXPECT_THAT(ErrorWith("/input.scale", 1), is_unknown("input.scale"));
  EXPECT_THAT(ErrorWith("/ramp", {{"begin", 1}}), is_unknown("ramp.begin"));
  EXPECT_THAT(ErrorWith("/a\n\x1b[31m", 1), is_unknown("a\\x0a\\x1b[31m"));
  EXPECT_EQ(ErrorWith("/ramp", {{"from", -4.0}, {"to", 4.0}, {"step", 0.01}}), "no error");
}

TEST_F(BadConv, UnknownKeys) {
  EXPECT_THAT(ErrorWith("/strides", {2, 2}), HasSubstr("layer.json: strides: is unknown"));
  EXPECT_THAT(ErrorWith("/groups", 4), "no error");
}

TEST_F(BadLayer, DoubledKeys) {
  const std::string text = json_.dump();
  const auto with = [&](const std::string& before, const std::string& added) {
    std::string changed = text;
    changed.insert(changed.find(before) + before.size(), added);
    WriteText(changed);
    return ErrorOf();
  };
  EXPECT_THAT(with("{", R"("relu":true,)"),
              HasSubstr(R"(layer.json: has the key "relu" twice in an object)"));
  EXPECT_THAT(with(R"("input":{)", R"("scale":1,)"), HasSubstr(R"(has the key "scale" twice)"));
}

TEST_F(BadLayer, MissingKeys) {
  for (const char* key : {"operator", "relu", "input", "output", "weight"}) {
    json without = json_;
    without.erase(key);
    WriteText(without.dump());
    EXPECT_THAT(ErrorOf(), HasSubstr(key));
    EXPECT_THAT(ErrorOf(), HasSubstr("is missing"));
  }
}

TEST_F(BadLayer, WrongValues) {
  EXPECT_THAT(ErrorWith("/operator", "conv2d"), HasSubstr("expected i1 or u1 (N, KH, KW, C/groups)"));
  EXPECT_THAT(ErrorWith("/operator", "softmax"),
              HasSubstr("operator: is \"softmax\"; expected \"linear\", \"conv1d\", \"conv2d\", \"conv3d\", "
                        "\"conv_transpose1d\", \"conv_transpose2d\", \"conv_transpose3d\", or one of these "
                        "followed by \"_dynamic\""));
  EXPECT_THAT(ErrorWith("/operator", "_dynamic"), HasSubstr("operator: is \"_dynamic\"; expected"));
  EXPECT_THAT(ErrorWith("/operator", 3), HasSubstr("operator: is 3; expected a string"));
  EXPECT_THAT(ErrorWith("/relu", "yes"), HasSubstr("relu: is \"yes\"; expected true or false"));
  EXPECT_THAT(ErrorWith("/input", 1), HasSubstr("input.zero_point: is missing"));
  EXPECT_THAT(ErrorWith("/input/scale", -0.5),
              HasSubstr("input.scale: is -0.5; expected a finite scale above 0"));
  EXPECT_THAT(ErrorWith("/input/scale", 0), HasSubstr("input.scale"));
  EXPECT_EQ(ErrorWith("/weight/scales/0", 0), "no error");  // a pruned channel
  EXPECT_THAT(ErrorWith("/weight/scales/0", -1e-30),
              HasSubstr("weight.scales[0]: is -1e-30; expected a finite scale of at least 0"));
  EXPECT_THAT(ErrorWith("/weight/scales/0", 1e-60), HasSubstr("in float32; expected a finite scale above 0"));
  EXPECT_THAT(ErrorWith("/output/scale", "x"), HasSubstr("output.scale: is \"x\"; expected a number"));
  EXPECT_THAT(ErrorWith("/output/scale", 1e-300), HasSubstr("in float32; expected a finite scale"));
  EXPECT_THAT(ErrorWith("/input/zero_point", 256), HasSubstr("input.zero_point: is 256; expected 0 to 255"));
  EXPECT_THAT(ErrorWith("/output/zero_point", -1), HasSubstr("output.zero_point: is -1; expected 0 to 255"));
  EXPECT_THAT(ErrorWith("/output/zero_point", 1.5), HasSubstr("expected an integer"));
  EXPECT_THAT(ErrorWith("/output/zero_point", UINT64_MAX), HasSubstr("expected 0 to 255"));
  EXPECT_THAT(ErrorWith("/weight/scales", json::array({1.0, 2.0})),
              HasSubstr("has 2 entries; expected 1 or 10"));
  EXPECT_THAT(ErrorWith("/weight/scales", json::array()), HasSubstr("has 0 entries; expected 1 or 10"));
  EXPECT_THAT(ErrorWith("/weight/scales/3", nullptr),
              HasSubstr("weight.scales[3]: is null; expected a number"));
  EXPECT_THAT(ErrorWith("/weight/zero_points/2", 128),
              HasSubstr("weight.zero_points[2]: is 128; expected -128 to 127"));
  EXPECT_THAT(ErrorWith("/weight/zero_points/2", 1.5),
              HasSubstr("weight.zero_points[2]: is 1.5; expected an integer"));
}

TEST_F(BadLayer, WrongTensors) {
  const auto replace = [&](const char* to, const char* from) {
    std::filesystem::copy_file(kLayers + from, folder_ + "/" + to,
                               std::filesystem::copy_options::overwrite_existing);
    return ErrorOf();
  };
  EXPECT_THAT(replace("bias.npy", "u8_9/bias.npy"), HasSubstr("bias.npy: is f4 (160,); expected f4 (10,)"));
  EXPECT_THAT(replace("activations.npy", "u8_9/activations.npy"),
              HasSubstr("activations.npy: is u1 (4, 512); expected u1 or i1 (M, 160)"));
  EXPECT_THAT(replace("weights.npy", "u8_9/bias.npy"),
              HasSubstr("weights.npy: is f4 (160,); expected i1 or u1 (N, K)"));
  std::filesystem::remove(folder_ + "/weights.npy");
  EXPECT_THAT(ErrorOf(), HasSubstr("weights.npy: no such file"));
}

TEST_F(BadLayer, IntegerBiasUnderTheNameOfTheOther) {
  std::ofstream(folder_ + "/bias.npy", std::ios::binary)
      << tests::Npy(tests::Dict("<i4", "(10,)"), std::string(40, '\0'));
  EXPECT_THAT(ErrorOf(),
              HasSubstr("bias.npy: is i4 (10,); expected f4 (10,), N as in weights.npy; a bias of the "
                        "sums is bias_int32.npy"));
}

// Replaces bias.npy.
TEST_F(BadLayer, IntegerBias) {
  const auto write = [&](const std::string& type, const std::string& elements) {
    std::ofstream(folder_ + "/bias_int32.npy", std::ios::binary)
        << tests::Npy(tests::Dict(type, "(10,)"), elements);
  };
  write("<f4", std::string(40, '\0'));
  EXPECT_THAT(ErrorOf(), HasSubstr("bias_int32.npy: is f4 (10,); expected i4 (10,)"));
  std::string elements(40, '\0');
  elements[4] = 7;
  write("<i4", elements);
  const Result<Layer> layer = ReadLayer(folder_);
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_TRUE(layer->gemm().bias_f32.empty());
  EXPECT_THAT(layer->gemm().bias_s32, testing::ElementsAre(0, 7, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST_F(BadLayer, WrongExpectation) {
  const Result<Layer> layer = ReadLayer(folder_);
  ASSERT_TRUE(layer);
  EXPECT_TRUE(ReadExpected(*layer, kLayers + "u8_11/output_avx2.npy")) << "an absolute path";
  EXPECT_THAT(ReadExpected(*layer, "nothing.npy").error().message,
              HasSubstr(folder_ + "/nothing.npy: no such file"));
  EXPECT_THAT(ReadExpected(*layer, "bias.npy").error().message,
              HasSubstr("is f4 (10,); expected u1 (4, 10)"));
}

TEST(Layer, FolderMustExist) {
  EXPECT_THAT(ReadLayer("/nonexistent").error().message, HasSubstr("/nonexistent: is not a folder"));
}

TEST(BuiltinLayers, FillTheOutputRangeWithoutLeavingIt) {
  for (const Layer& layer : BuiltinLayers()) {
    SCOPED_TRACE(layer.name);
    const std::vector<int32_t> y = reference::Accumulators(layer.gemm(), Model::kExact);
    const auto [low, high] = std::ranges::minmax(y);
    const float widest = static_cast<float>(std::max(-low, high)) * layer.gemm().scales[0];
    EXPECT_GT(widest, 120.0f);
    EXPECT_LT(widest, 128.5f);
  }
}

}  // namespace
}  // namespace intact::verify
