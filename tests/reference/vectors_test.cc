// The test vectors of docs/arithmetic.md. The reference makes them from problem lines:
//
//   INTACT_WRITE_VECTORS=1 build/release/tests/vectors_test
//
// writes tests/data/arithmetic again. The tests compare the files with what the reference makes now, and with the
// outputs of the kernels on each ISA.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "reference/contract/grouped.h"
#include "reference/contract/operation.h"
#include "reference/contract/version.h"
#include "support/fnv1a.h"
#include "tests/support/require_isas.h"
#include "verify/problem/problem.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/intact_target.h"

namespace intact {
namespace {

using Json = nlohmann::ordered_json;
using verify::Problem;

struct File {
  const char* name;
  std::vector<std::string_view> lines;
};

// Each problem is small; together they reach the clauses of their sections.
const std::vector<File>& Files() {
  static const std::vector<File> files = {
      {"products",
       {
           "gemm u8s8s32 m=3 n=4 k=7",
           "gemm u8s8s32 m=2 n=3 k=5 fill=extremes wmax=128",
           "gemm s8s8s32 m=3 n=4 k=6 za=-5 zb=3",
           "gemm u8u8s32 m=2 n=5 k=4 za=200 zb=9 zbper=channel bias=s32",
           "gemm s8u8s32 m=2 n=3 k=3 za=7",
           "gemm u8s8s32 m=2 n=3 k=4 bias=s32 overflow=wraps fill=extremes",
           "gemm s8u8s32 m=2 n=3 k=4 za=-128 bias=s32 overflow=wraps fill=extremes",
           "gemm u8s8s32 m=2 n=3 k=4 batch=2 za=3",
           "gemm u8s8s32 m=2 n=3 k=4 batch=2 runtimeb=yes zb=5 zbper=item",
           "gemm s8u8f32 m=2 n=3 k=4 batch=2 runtimeb=yes zb=9 zbper=item_column scale=item_column",
           "gemm u8s8s32 m=2 n=3 k=4 quant=rows zaper=row",
           "gemm u8s8s32 m=2 n=3 k=4 quant=tensor za=9",
       }},
      {"requantization",
       {
           "gemm u8s8f32 m=3 n=4 k=5",
           "gemm u8s8f32 m=3 n=4 k=5 scale=channel bias=f32",
           "gemm u8s8f32 m=3 n=4 k=5 scale=pruned",
           "gemm u8s8f32 m=3 n=4 k=5 scale=tiny bias=s32",
           "gemm s8s8f32 m=3 n=4 k=5 quant=rows scale=huge",
           "gemm s8s8s8 m=3 n=4 k=5 quant=rows scale=huge act=relu zc=-3",
           "gemm u8s8f32 m=3 n=4 k=5 quant=rows zaper=row scale=channel bias=f32",
           "gemm u8s8f32 m=3 n=4 k=5 quant=tensor za=4 bias=f32",
           "gemm u8s8bf16 m=3 n=4 k=5 scale=channel bias=f32",
           "gemm u8s8f16 m=3 n=4 k=5 scale=channel bias=f32",
           "gemm u8s8f16 m=3 n=4 k=5 quant=rows scale=huge",
           "gemm u8s8f16 m=3 n=4 k=5 scale=tiny",
           "gemm u8s8bf16 m=3 n=4 k=5 scale=tiny",
           "gemm u8s8bf16 m=4 n=4 k=5 fill=ties",
           "gemm u8s8u8 m=4 n=6 k=5 zc=12",
           "gemm u8s8s8 m=4 n=6 k=5 zc=-12 scale=channel bias=f32",
           "gemm u8s8u8 m=6 n=6 k=8 fill=ties zc=3",
           "gemm u8s8s8 m=6 n=6 k=8 fill=ties zc=-2 bias=s32",
           "gemm u8s8u8 m=4 n=5 k=6 act=relu zc=100",
           "gemm u8s8s8 m=4 n=5 k=6 act=clamp bias=f32",
           "gemm u8s8f32 m=4 n=5 k=6 act=relu scale=pruned",
           "gemm u8s8f32 m=4 n=5 k=6 act=clamp scale=channel",
           "gemm u8s8f32 m=3 n=4 k=5 res=f32",
           "gemm u8s8u8 m=3 n=4 k=5 res=u8 zres=7 act=relu zc=5 bias=f32",
           "gemm u8s8s8 m=3 n=4 k=5 res=s8 zres=-7 scale=channel",
           "gemm u8s8u8 m=3 n=4 k=5 table=yes zc=9",
           "gemm u8s8s8 m=3 n=4 k=5 table=yes zc=-9 res=s8 act=clamp",
           "gemm u8s8f32 m=4 n=4 k=1 quant=rows scale=huge wmax=1",
           "gemm s8s8s8 m=4 n=4 k=1 quant=rows scale=huge wmax=1 zc=-3",
           "gemm u8s8f32 m=4 n=4 k=2 quant=rows scale=huge wmax=1 res=f32",
           "gemm u8s8f32 m=1 n=2 k=521 fill=extremes",
           "gemm u8s8f32 m=1 n=2 k=523 fill=extremes",
           "gemm u8s8f32 m=3 n=4 k=5 bias=s32 overflow=wraps scale=channel",
       }},
      {"fixed_point",
       {
           "gemm u8s8s8 m=4 n=6 k=5 fixed=away zc=-3",
           "gemm u8s8u8 m=4 n=6 k=5 fixed=up zc=3 scale=channel bias=s32",
           "gemm u8s8s8 m=4 n=6 k=5 fixed=away scale=channel",
           "gemm u8s8s8 m=4 n=6 k=5 fixed=up scale=channel",
           "gemm u8s8s8 m=6 n=6 k=8 fixed=away fill=ties",
           "gemm u8s8s8 m=6 n=6 k=8 fixed=up fill=ties",
           "gemm u8s8s8 m=6 n=6 k=8 fixed=away_shift fill=ties",
           "gemm u8s8s8 m=6 n=6 k=8 fixed=up_shift fill=ties",
           "gemm s8s8u8 m=4 n=6 k=5 fixed=away_shift scale=channel act=relu zc=128",
           "gemm s8u8s8 m=4 n=6 k=5 fixed=up_shift scale=channel act=clamp",
           "gemm u8s8u8 m=4 n=6 k=5 fixed=away table=yes zc=128",
           "gemm u8s8s8 m=4 n=6 k=5 fixed=away bias=s32 overflow=wraps fill=extremes scale=channel",
           "gemm u8s8s8 m=4 n=6 k=5 fixed=up bias=s32 overflow=wraps fill=extremes scale=channel",
           "gemm u8s8s8 m=4 n=6 k=8 fixed=away scale=channel fill=ties",
           "gemm u8s8s8 m=4 n=6 k=8 fixed=up scale=channel fill=ties",
           "gemm u8s8s8 m=4 n=6 k=8 fixed=away_shift scale=channel fill=ties",
           "gemm u8s8s8 m=4 n=6 k=8 fixed=up_shift scale=channel fill=ties",
           "gemm u8s8s8 m=4 n=6 k=5 fixed=away scale=pruned zc=5",
       }},
      {"dynamic",
       {
           "gemm u8s8f32 m=4 n=3 k=6 quant=dynamic_rows",
           "gemm s8s8f32 m=4 n=3 k=6 quant=dynamic_rows x=normal bias=f32",
           "gemm u8s8f32 m=4 n=3 k=6 quant=dynamic_tensor x=normal",
           "gemm s8u8f32 m=2 n=3 k=6 batch=2 quant=dynamic_tensor x=outlier zb=4",
           "gemm u8s8f32 m=4 n=3 k=8 quant=dynamic_rows x=halves",
           "gemm s8s8f32 m=4 n=3 k=8 quant=dynamic_rows x=halves",
           "gemm u8s8f32 m=4 n=3 k=6 quant=dynamic_rows x=constant",
           "gemm s8s8f32 m=4 n=3 k=6 quant=dynamic_rows x=constant",
           "gemm u8s8f32 m=4 n=3 k=6 quant=dynamic_rows x=zeros",
           "gemm u8s8f32 m=6 n=3 k=6 quant=dynamic_rows x=tiny",
           "gemm s8s8f32 m=6 n=3 k=6 quant=dynamic_rows x=tiny",
           "gemm u8s8f32 m=8 n=3 k=6 quant=dynamic_rows x=nonfinite",
           "gemm s8s8bf16 m=8 n=3 k=6 quant=dynamic_rows x=nonfinite src=bf16",
           "gemm u8s8f16 m=8 n=3 k=6 quant=dynamic_rows x=nonfinite src=f16",
           "gemm u8s8u8 m=8 n=3 k=6 quant=dynamic_rows x=nonfinite zc=9 act=relu",
           "gemm u8s8s8 m=8 n=3 k=6 quant=dynamic_rows x=nonfinite zc=9",
           "gemm u8s8f32 m=4 n=3 k=6 quant=dynamic_rows src=f16 x=normal",
           "gemm u8s8f32 m=4 n=3 k=6 quant=dynamic_rows src=bf16 x=outlier scale=channel",
           "conv u8s8f32 in=3x3 c=2 o=3 kernel=2x2 pad=1x1 batch=2 quant=dynamic_tensor x=normal",
       }},
      {"convolutions",
       {
           "conv u8s8s32 in=4x4 c=2 o=3 kernel=3x3",
           "conv u8s8s32 in=4x5 c=2 o=3 kernel=3x3 pad=1x1 za=9",
           "conv s8s8s32 in=5x4 c=3 o=2 kernel=3x2 stride=2x1 pad=1x0:2x1 za=-7 zb=5",
           "conv u8u8s32 in=6x6 c=1 o=2 kernel=2x3 dilation=3x2 pad=2x2 zb=3 bias=s32",
           "conv u8s8u8 in=4x4 c=4 o=6 kernel=3x3 pad=1x1 groups=2 batch=2 za=3 zc=4",
           "conv u8s8s8 in=4x4 c=5 o=5 kernel=3x3 pad=1x1 groups=5 za=200 scale=channel",
           "conv u8s8s32 in=3x3 c=2 o=6 kernel=2x2 groups=2",
           "conv u8s8s32 in=7 c=3 o=2 kernel=3 stride=2 pad=1 za=3",
           "conv u8s8f32 in=3x2x3 c=2 o=2 kernel=2x2x2 pad=1x0x1 za=3 bias=f32",
           "conv u8s8f32 in=3x3 c=2 o=3 kernel=2x2 quant=tensor za=7 pad=1x1",
           "conv u8s8s8 in=3x3 c=2 o=3 kernel=2x2 fixed=away scale=channel za=7 pad=1x1",
           "conv u8s8s32 in=3x3 c=2 o=2 kernel=3x3 transposed=yes za=5",
           "conv u8s8s32 in=3x2 c=2 o=3 kernel=3x3 stride=2x2 pad=1x1 outpad=1x1 transposed=yes za=5 "
           "bias=s32",
           "conv s8s8u8 in=2x3 c=4 o=4 kernel=2x3 stride=3x1 dilation=1x2 pad=0x1:1x0 groups=2 "
           "transposed=yes "
           "za=-5 zc=9",
           "conv u8s8u8 in=3x3 c=3 o=4 kernel=2x2 res=u8 zres=3 act=relu pad=1x1 za=4",
       }},
      {"blocks",
       {
           "grouped s8u4f32 m=2 n=3 k=64",
           "grouped s8u4f32 m=2 n=3 k=37 group=16 zb=yes",
           "grouped u8u4f32 m=2 n=3 k=37 group=16 per=group zb=yes gscale=f32",
           "grouped s8s4bf16 m=2 n=3 k=33 group=16 gscale=bf16 bias=yes",
           "grouped s8s8f16 m=2 n=3 k=32 group=16 per=group act=relu",
           "grouped u8u8f32 m=2 n=3 k=20 group=0 zb=yes act=clamp bias=yes",
           "grouped s8u4f32 m=2 n=3 k=48 group=16 min=yes",
           "grouped u8s8f32 m=2 n=3 k=48 group=16 min=yes per=group bias=yes",
           "grouped u8s8f32 m=3 n=2 k=40 group=16 src=none",
           "grouped s8u4f32 m=3 n=2 k=40 group=16 src=none per=group min=yes",
           "grouped s8s8f32 m=3 n=2 k=40 group=16 src=none za=no per=group",
           "grouped s8u4f32 m=3 n=2 k=48 group=16 fill=spread gscale=f32",
           "grouped s8u4f32 m=3 n=2 k=48 group=16 fill=huge gscale=f32 per=group",
           "grouped s8u4f16 m=3 n=2 k=48 group=16 fill=huge act=relu",
           "grouped s8u4f32 m=3 n=2 k=48 group=16 fill=tiny",
           "grouped s8u4f32 m=4 n=2 k=48 group=16 fill=nonfinite per=group",
           "grouped u8s8bf16 m=4 n=2 k=32 group=16 fill=nonfinite src=bf16",
           "grouped u8s8f16 m=4 n=2 k=32 group=16 fill=nonfinite src=f16",
           "grouped u8u8f32 m=2 n=2 k=600 group=0 fill=bounds src=none",
           "grouped s8u4f32 m=5 n=2 k=32 group=16 experts=3 bias=yes",
           "grouped s8u4f32 m=3 n=3 k=48 group=16 src=none fill=huge gscale=f32 per=group",
           "grouped s8s8bf16 m=3 n=3 k=48 group=16 src=none fill=huge gscale=f32 per=group min=yes",
           "grouped u8u8f32 m=3 n=2 k=48 group=16 src=none fill=huge gscale=f32 bias=yes seed=6",
       }},
  };
  return files;
}

Problem Parsed(std::string_view line) {
  const Result<Problem> problem = Problem::Parse(line);
  EXPECT_TRUE(problem) << line << ": " << problem.error().message;
  return problem ? *problem : Problem();
}

// A tensor: its type, its extents, and its elements as hexadecimal digits of little-endian bytes.
Json Tensor(intact_type type, const std::vector<int64_t>& shape, std::span<const uint8_t> bytes) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  EXPECT_EQ(elements * core::BytesOf(type), std::ssize(bytes)) << core::NameOf(type);
  return {
      {"type", core::NameOf(type)}, {"shape", shape}, {"hex", fmt::format("{:02x}", fmt::join(bytes, ""))}};
}

template <class Element>
Json Tensor(intact_type type, const std::vector<int64_t>& shape, const std::vector<Element>& elements) {
  const auto bytes = std::as_bytes(std::span(elements));
  return Tensor(type, shape, std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}
Json Scalar(float value) { return Tensor(INTACT_F32, {}, std::vector{value}); }

// Adds a vector with a value for each column, or one; nothing if it is empty.
template <class Element>
void AddVector(Json* to, const char* name, intact_type type, const std::vector<Element>& values) {
  if (!values.empty()) (*to)[name] = Tensor(type, {std::ssize(values)}, values);
}

void AddActivation(Json* to, const core::PostOps& ops) {
  if (ops.Has<core::Relu>()) (*to)["activation"] = "relu";
  if (const auto* clamp = ops.Find<core::Clamp>()) {
    (*to)["activation"] = "clamp";
    (*to)["clamp_min"] = Scalar(clamp->low);
    (*to)["clamp_max"] = Scalar(clamp->high);
  }
}

const char* NameOf(intact_quantization quantization) {
  switch (quantization) {
    case INTACT_QUANTIZATION_ROWS:
      return "rows";
    case INTACT_QUANTIZATION_DYNAMIC_ROWS:
      return "dynamic_rows";
    case INTACT_QUANTIZATION_DYNAMIC_TENSOR:
      return "dynamic_tensor";
    case INTACT_QUANTIZATION_TENSOR:
      return "tensor";
    default:
      return "static";
  }
}

using Shape = std::vector<int64_t>;

// What a GEMM and a convolution share.
void AddLinear(Json* to, const reference::Linear& linear, const Shape& a, const Shape& b, const Shape& c,
               const std::vector<int32_t>& accumulators, const std::vector<uint8_t>& outputs) {
  Json& json = *to;
  Json expected;
  json["quantization"] = NameOf(linear.a_quantization);
  Json& quantized = linear.IsDynamic() ? expected : json;
  if (linear.IsDynamic()) {
    json["x"] = Tensor(linear.a_source_type, a, linear.a_source);
    json["a_type"] = core::NameOf(linear.a_type);
  }
  quantized["a"] = Tensor(linear.a_type, a, linear.a);
  if (linear.a_quantization == INTACT_QUANTIZATION_STATIC) json["a_zero_point"] = linear.a_zero_point;
  AddVector(&quantized, "a_zero_points", INTACT_S32, linear.a_zero_points);
  AddVector(&quantized, "a_scales", INTACT_F32, linear.a_scales);
  json["b"] = Tensor(linear.b_type, b, linear.b);
  AddVector(&json, "b_zero_points", INTACT_S32, linear.b_zero_points);
  AddVector(&json, "bias_s32", INTACT_S32, linear.bias_s32);
  if (linear.overflow == INTACT_OVERFLOW_WRAPS) json["wraps"] = true;
  AddVector(&json, "scales", INTACT_F32, linear.scales);
  if (linear.fixed_point != INTACT_FIXED_POINT_NONE) {
    json["fixed_point"] = linear.fixed_point == INTACT_FIXED_POINT_HALF_UP ? "half_up" : "half_away";
  }
  AddVector(&json, "multipliers", INTACT_S32, linear.multipliers);
  AddVector(&json, "shifts", INTACT_S32, linear.shifts);
  AddVector(&json, "bias_f32", INTACT_F32, linear.bias_f32);
  if (const auto* residual = linear.post_ops.Find<core::AddResidual>()) {
    json["residual"] = Tensor(residual->type, c, linear.residual);
    json["residual_scale"] = Scalar(residual->scale);
    json["residual_zero_point"] = residual->zero_point;
  }
  AddActivation(&json, linear.post_ops);
  json["c_zero_point"] = linear.c_zero_point;
  AddVector(&json, "lookup_table", linear.c_type, linear.lookup_table);
  expected["accumulators"] = Tensor(INTACT_S32, c, accumulators);
  expected["c"] = Tensor(linear.c_type, c, outputs);
  json["expected"] = std::move(expected);
}

std::vector<uint8_t> BytesOf(const Json& vector) {
  const auto hex = vector["expected"]["c"]["hex"].get<std::string>();
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Json VectorOf(const reference::Gemm& gemm) {
  Json json = {{"operation", "gemm"}, {"m", gemm.m}, {"n", gemm.n}, {"k", gemm.k}, {"batch", gemm.batch}};
  json["runtime_b"] = gemm.has_runtime_b;
  if (gemm.has_runtime_b) {
    AddVector(&json, "item_scales", INTACT_F32, gemm.item_scales);
    AddVector(&json, "item_zero_points", INTACT_S32, gemm.item_zero_points);
  }
  const Shape b = gemm.has_runtime_b ? Shape{gemm.batch, gemm.k, gemm.n} : Shape{gemm.k, gemm.n};
  const std::vector<int32_t> accumulators = Multiply(gemm);
  AddLinear(&json, gemm, {gemm.batch, gemm.m, gemm.k}, b, {gemm.batch, gemm.m, gemm.n}, accumulators,
            Outputs(gemm, accumulators));
  return json;
}

Json VectorOf(const reference::Conv& conv) {
  const reference::ConvGeometry& geometry = conv.geometry;
  Json json = {{"operation", "conv"}, {"transposed", geometry.IsTransposed()}, {"groups", geometry.groups}};
  Shape input = {geometry.batch}, weights = {geometry.output_channels}, output = {geometry.batch};
  const std::span axes = std::span(geometry.axes).last(static_cast<size_t>(geometry.dims));
  for (const reference::Axis& axis : axes) {
    input.push_back(axis.input);
    weights.push_back(axis.kernel);
    output.push_back(axis.Output());
    json["stride"].push_back(axis.stride);
    json["dilation"].push_back(axis.dilation);
    json["pad_begin"].push_back(axis.pad_begin);
    json["pad_end"].push_back(axis.pad_end);
    json["output_pad"].push_back(axis.output_pad);
  }
  input.push_back(geometry.input_channels);
  weights.push_back(geometry.GroupInputs());
  output.push_back(geometry.output_channels);
  const std::vector<int32_t> accumulators = Convolve(conv);
  AddLinear(&json, conv, input, weights, output, accumulators, Outputs(conv, accumulators));
  return json;
}

Json VectorOf(const reference::Grouped& grouped) {
  Json json = {{"operation", "grouped"}, {"m", grouped.m}, {"n", grouped.n}, {"k", grouped.k}};
  Json expected;
  json["group"] = grouped.group;
  json["experts"] = grouped.experts;
  if (!grouped.expert_rows.empty()) json["expert_rows"] = grouped.expert_rows;
  json["granularity"] = grouped.HasGroupScales() ? "groups" : "rows";
  const bool is_dynamic = grouped.a_source_type != INTACT_TYPE_NONE;
  if (is_dynamic) {
    json["x"] = Tensor(grouped.a_source_type, {grouped.m, grouped.k}, grouped.a_source);
    json["a_type"] = core::NameOf(grouped.a_type);
  }
  Json& quantized = is_dynamic ? expected : json;
  const Shape of_a = grouped.HasGroupScales() ? Shape{grouped.m, grouped.groups()} : Shape{grouped.m};
  quantized["a"] = Tensor(grouped.a_type, {grouped.m, grouped.k}, grouped.a);
  quantized["a_zero_points"] = Tensor(INTACT_S32, of_a, grouped.a_zero_points);
  quantized["a_scales"] = Tensor(INTACT_F32, of_a, grouped.a_scales);
  const Shape of_groups = {grouped.experts, grouped.n, grouped.groups()};
  json["b_type"] = core::NameOf(grouped.b_type);
  json["b"] =
      Tensor(INTACT_U8, {grouped.experts, grouped.n, grouped.ColumnBytes(grouped.k)}, BytesOfB(grouped));
  json["b_scales"] = Tensor(grouped.scale_type, of_groups, grouped.b_scales);
  if (grouped.has_b_zero_points) {
    json["b_zero_points"] =
        Tensor(INTACT_S32, of_groups,
               std::vector<int32_t>(grouped.b_zero_points.begin(), grouped.b_zero_points.end()));
  }
  if (grouped.has_b_minimums) json["b_minimums"] = Tensor(INTACT_F32, of_groups, grouped.b_minimums);
  if (!grouped.bias_f32.empty()) {
    json["bias_f32"] = Tensor(INTACT_F32, {grouped.experts, grouped.n}, grouped.bias_f32);
  }
  AddActivation(&json, grouped.post_ops);
  expected["c"] = Tensor(grouped.c_type, {grouped.m, grouped.n}, Outputs(grouped));
  json["expected"] = std::move(expected);
  return json;
}

Json VectorOf(std::string_view line) {
  const Problem problem = Parsed(line);
  Json json = {{"problem", line}};
  json.update(std::visit([](const auto& one) { return VectorOf(one); }, verify::Materialize(problem)));
  return json;
}

std::string PathOf(const File& file) {
  return fmt::format("{}/arithmetic/{}.json", INTACT_TEST_DATA, file.name);
}

// A line for each vector.
std::string TextOf(const File& file) {
  std::vector<std::string> vectors;
  for (const std::string_view line : file.lines) vectors.push_back(VectorOf(line).dump());
  return fmt::format("{{\"arithmetic\": {}, \"vectors\": [\n{}\n]}}\n", reference::kArithmeticVersion,
                     fmt::join(vectors, ",\n"));
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Vectors, AreWhatTheReferenceMakes) {
  for (const File& file : Files()) {
    const std::string text = TextOf(file), path = PathOf(file);
    if (std::getenv("INTACT_WRITE_VECTORS") != nullptr) std::ofstream(path) << text;
    EXPECT_TRUE(Contents(path) == text) << path << " differs from the reference";
  }
}

TEST(Vectors, AreWhatTheKernelsOfEachIsaMake) {
  for (const intact_isa isa : core::kIsaLadder) {
    if (intact_isa_available(isa) == 0) continue;  // the differential tests count it
    std::vector<Problem> problems;
    std::vector<uint64_t> digests;
    for (const File& file : Files()) {
      const Json json = Json::parse(Contents(PathOf(file)));
      ASSERT_EQ(json["vectors"].size(), file.lines.size());
      for (const Json& vector : json["vectors"]) {
        problems.push_back(Parsed(vector["problem"].get<std::string>()));
        problems.back().isa = isa;
        digests.push_back(support::Fnv1a(BytesOf(vector)));
      }
    }
    const verify::SweepResult result =
        verify::RunSweep(problems, verify::IntactTarget(), [](int64_t, int64_t) {});
    ASSERT_EQ(result.digests.size(), problems.size()) << intact_isa_name(isa);
    for (size_t i = 0; i < problems.size(); ++i) {
      EXPECT_EQ(result.digests[i].digest, digests[i]) << problems[i].ToString();
    }
  }
}

}  // namespace
}  // namespace intact
