#include "verify/studies/layer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "reference/contract/quantize.h"
#include "support/json_file.h"
#include "support/npy.h"
#include "support/printable.h"
#include "support/random.h"
#include "verify/problem/problem_size.h"
#include "verify/studies/grouped_layer.h"
#include "verify/studies/layer_fields.h"

namespace intact::verify {
namespace {

using nlohmann::json;

using Fields = LayerFields;

struct Tensors {
  support::NpyArray activations, weights;
};

/// Reads 8-bit tensors of `rank` dimensions. The last dimension is the depth; the activations' depth is
/// `groups` times the weights' depth. With `are_real`, activations are real numbers that are still to be
/// quantized.
Result<Tensors> ReadTensors(const std::string& folder, size_t rank, int64_t groups,
                            std::string_view activation_shape, std::string_view weight_shape,
                            bool are_real = false) {
  const auto is_int8 = [rank](const support::NpyArray& tensor) {
    return (tensor.type == INTACT_U8 || tensor.type == INTACT_S8) && tensor.shape.size() == rank;
  };
  const std::string weights_path = folder + "/weights.npy";
  ASSIGN_OR_RETURN(support::NpyArray weights, support::ReadNpy(weights_path));
  if (!is_int8(weights)) {
    return WrongTensor(weights_path, weights, fmt::format("i1 or u1 {}", weight_shape));
  }
  const std::string activations_path = folder + "/activations.npy";
  ASSIGN_OR_RETURN(support::NpyArray activations, support::ReadNpy(activations_path));
  const int64_t depth = weights.shape.back() * groups;
  const bool is_right_type =
      are_real ? activations.type == INTACT_F32 && activations.shape.size() == rank : is_int8(activations);
  if (!is_right_type || activations.shape.back() != depth) {
    return WrongTensor(activations_path, activations,
                       fmt::format("{} {}", are_real ? "f4" : "u1 or i1",
                                   fmt::format(fmt::runtime(activation_shape), depth)));
  }
  return Tensors{std::move(activations), std::move(weights)};
}

void SetTensors(const Tensors& tensors, reference::Linear* operation) {
  if (tensors.activations.type == INTACT_F32) {
    operation->a_source = tensors.activations.bytes;
  } else {
    operation->a_type = tensors.activations.type;
    operation->a = tensors.activations.bytes;
  }
  operation->b_type = tensors.weights.type;
  operation->b.assign(tensors.weights.bytes.begin(), tensors.weights.bytes.end());
}

std::optional<Error> ReadLinear(const std::string& folder, bool is_dynamic, reference::Gemm* gemm) {
  ASSIGN_OR_RETURN(const Tensors tensors,
                   ReadTensors(folder, 2, 1, "(M, {}), K as in weights.npy", "(N, K)", is_dynamic));
  SetTensors(tensors, gemm);
  gemm->m = tensors.activations.shape[0];
  gemm->n = tensors.weights.shape[0];
  gemm->k = tensors.weights.shape[1];
  gemm->b = reference::FromColumns(gemm->b, gemm->n, gemm->k);
  return std::nullopt;
}

/// Padding as a word: none, or the padding with which the output has ⌈input/stride⌉ pixels. If this padding
/// is odd, the larger half is behind the input (upper) or before the input (lower).
enum class Padding : uint8_t { kValid, kSameUpper, kSameLower };

/// The word in "padding"; nullopt if the field is an array or missing, or if `transposed`.
std::optional<Padding> ReadPaddingWord(bool transposed, Fields* fields) {
  if (transposed || !fields->Has("padding") || fields->IsArray("padding")) return std::nullopt;
  const std::string word =
      fields->OneOf("padding", {"SAME", "SAME_UPPER", "SAME_LOWER", "VALID"}, "an array of integers");
  if (word == "SAME_LOWER") return Padding::kSameLower;
  return word == "VALID" ? Padding::kValid : Padding::kSameUpper;
}

void Pad(std::optional<Padding> padding, reference::Axis* axis) {
  if (!padding || padding == Padding::kValid) return;
  const int64_t outputs = (axis->input + axis->stride - 1) / axis->stride;
  const int64_t window = (axis->kernel - 1) * axis->dilation + 1;
  const int64_t total = std::max<int64_t>((outputs - 1) * axis->stride + window - axis->input, 0);
  axis->pad_begin = (total + (padding == Padding::kSameLower ? 1 : 0)) / 2;
  axis->pad_end = total - axis->pad_begin;
}

/// The geometry of a convolution in layer.json, except for the parts that depend on its tensors' extents,
/// such as padding given as a word.
reference::ConvGeometry ReadGeometry(size_t dims, bool transposed, bool has_padding_word, Fields* fields) {
  reference::ConvGeometry geometry;
  geometry.dims = static_cast<int>(dims);
  const std::vector<int64_t> stride = fields->Extents("stride", dims, 1);
  const std::vector<int64_t> dilation = fields->Extents("dilation", dims, 1);
  std::vector<int64_t> begin(dims, 0);
  if (!has_padding_word) begin = fields->Extents("padding", dims, 0);
  const bool has_end = !has_padding_word && fields->Has("padding_end");
  const std::vector<int64_t> end = has_end ? fields->Extents("padding_end", dims, 0) : begin;
  const std::vector<int64_t> output_pad = fields->Extents("output_padding", dims, 0);
  if (fields->error()) return geometry;
  const auto axes = std::span(geometry.axes).last(dims);
  for (size_t i = 0; i < dims; ++i) {
    axes[i] = {1, 1, stride[i], dilation[i], begin[i], end[i], transposed, output_pad[i]};
    const int64_t most = transposed ? std::max(stride[i], dilation[i]) - 1 : 0;
    if (output_pad[i] <= most) continue;
    fields->Fail(fmt::format("output_padding[{}]", i),
                 fmt::format("is {}; expected 0 to {}{}", output_pad[i], most,
                             transposed ? ", less than stride or dilation"
                                        : " for a convolution that is not transposed"));
  }
  if (fields->Has("groups")) geometry.groups = fields->Count("groups", 1);
  return geometry;
}

/// Reads the tensors of a convolution, and the part of its geometry that depends on their extents.
std::optional<Error> ReadConv(const std::string& folder, bool is_dynamic, std::optional<Padding> padding,
                              reference::Conv* conv) {
  static constexpr const char* kInputs[] = {"(batch, W, {})", "(batch, H, W, {})", "(batch, D, H, W, {})"};
  static constexpr const char* kFilters[] = {"(N, KW, C/groups)", "(N, KH, KW, C/groups)",
                                             "(N, KD, KH, KW, C/groups)"};
  reference::ConvGeometry& geometry = conv->geometry;
  const auto dims = static_cast<size_t>(geometry.dims);
  ASSIGN_OR_RETURN(
      const Tensors tensors,
      ReadTensors(folder, dims + 2, geometry.groups, std::string(kInputs[dims - 1]) + ", C as in weights.npy",
                  kFilters[dims - 1], is_dynamic));
  SetTensors(tensors, conv);
  const std::vector<int64_t>& input = tensors.activations.shape;
  const std::vector<int64_t>& filter = tensors.weights.shape;
  geometry.batch = input.front();
  geometry.input_channels = input.back();
  geometry.output_channels = filter.front();
  if (geometry.output_channels % geometry.groups != 0) {
    return WrongTensor(folder + "/weights.npy", tensors.weights,
                       fmt::format("N to be a multiple of groups, {}", geometry.groups));
  }
  const auto axes = std::span(geometry.axes).last(dims);
  for (size_t i = 0; i < dims; ++i) {
    axes[i].input = input[i + 1];
    axes[i].kernel = filter[i + 1];
    Pad(padding, &axes[i]);
    if (axes[i].Output() > 0) continue;
    return WrongTensor(folder + "/weights.npy", tensors.weights,
                       axes[i].transposed
                           ? fmt::format("a kernel so large that padding of {} pixels leaves an output",
                                         axes[i].pad_begin + axes[i].pad_end)
                           : fmt::format("a kernel that fits into the padded input of {} pixels",
                                         axes[i].input + axes[i].pad_begin + axes[i].pad_end));
  }
  std::optional<Error> error = CheckSizes(geometry, 0, 0);
  if (error) error->message = fmt::format("{}/layer.json: {}", folder, error->message);
  return error;
}

/// The scales of a layer. `weights` has one scale, or one for each column.
struct LayerScales {
  double input = 1.0;
  std::vector<double> weights;
  double output = 1.0;
  // Whether the input's scale is computed from the activations. The other scales are then combined into one
  // float32 first.
  bool is_dynamic = false;
};

/// bias_s32 from `path`.
std::optional<Error> ReadIntegerBias(const std::string& path, int64_t columns, reference::Linear* operation) {
  ASSIGN_OR_RETURN(const support::NpyArray bias, support::ReadNpy(path));
  if (bias.type != INTACT_S32 || bias.shape != std::vector<int64_t>{columns}) {
    return WrongTensor(path, bias, fmt::format("i4 ({},), N as in weights.npy", columns));
  }
  operation->bias_s32 = bias.Values<int32_t>();
  return std::nullopt;
}

/// The layer's bias as real numbers, one for each column; empty if there is none.
Result<std::vector<float>> ReadBias(const std::string& folder, int64_t columns) {
  const std::string path = folder + "/bias.npy";
  if (!std::filesystem::exists(path)) return std::vector<float>();
  ASSIGN_OR_RETURN(const support::NpyArray bias, support::ReadNpy(path));
  if (bias.type != INTACT_F32 || bias.shape != std::vector<int64_t>{columns}) {
    return WrongTensor(path, bias,
                       fmt::format("f4 ({},), N as in weights.npy{}", columns,
                                   bias.type == INTACT_S32 ? "; a bias of the sums is bias_int32.npy" : ""));
  }
  return bias.Values<float>();
}

/// bias_f32[n] = bias[n]/so, rounded to float32 once.
std::optional<Error> SetBias(const std::string& folder, const std::vector<float>& bias, double output_scale,
                             reference::Linear* operation) {
  for (const float value : bias) {
    const auto scaled = static_cast<float>(value / output_scale);
    if (!std::isfinite(scaled)) {
      return Invalid(
          fmt::format("{}/bias.npy: entry {} is {}, {} in the output's scale; expected finite values", folder,
                      operation->bias_f32.size(), value, scaled));
    }
    operation->bias_f32.push_back(scaled);
  }
  return std::nullopt;
}

/// Bias and scale as FBGEMM computes them.
void SetFloatSteps(const LayerScales& scales, const std::vector<float>& bias, int64_t columns,
                   reference::Linear* operation) {
  for (size_t n = 0; n < static_cast<size_t>(columns); ++n) {
    const double weight_scale = scales.weights[scales.weights.size() == 1 ? 0 : n];
    const float of_sums = static_cast<float>(scales.input) * static_cast<float>(weight_scale);
    operation->float_steps.push_back({bias.empty() ? 0.0f : bias[n] / of_sums,
                                      of_sums / static_cast<float>(scales.output),
                                      scales.input * weight_scale / scales.output});
  }
}

/// scale[n] = si·sw[n]/so in double precision, rounded to float32 once; for a dynamic layer sw[n]/so is
/// rounded first.
void SetScales(const LayerScales& scales, Fields* fields, reference::Linear* operation) {
  for (const double weight_scale : scales.weights) {
    const double exact = scales.is_dynamic
                             ? scales.input * double{static_cast<float>(weight_scale / scales.output)}
                             : scales.input * weight_scale / scales.output;
    const auto scale = static_cast<float>(exact);
    if (!std::isfinite(scale) || (scale == 0 && weight_scale != 0)) {
      fields->Fail(
          fmt::format("weight.scales[{}]", operation->scales.size()),
          fmt::format("makes input.scale*scale/output.scale {} in float32; expected a finite scale above 0",
                      scale));
    }
    operation->scales.push_back(scale);
  }
}

/// Reads bias_int32.npy, or bias.npy if bias_int32.npy does not exist. Returns the real numbers of bias.npy.
Result<std::vector<float>> ReadAnyBias(const std::string& folder, int64_t columns, double output_scale,
                                       reference::Linear* operation) {
  const std::string integers = folder + "/bias_int32.npy";
  if (std::filesystem::exists(integers)) {
    if (std::optional<Error> error = ReadIntegerBias(integers, columns, operation)) return *error;
    return std::vector<float>();
  }
  ASSIGN_OR_RETURN(std::vector<float> bias, ReadBias(folder, columns));
  if (!bias.empty() && operation->c_type == INTACT_S32) {
    return Invalid(folder + "/bias.npy: exists; expected bias_int32.npy, because the output is s32");
  }
  if (std::optional<Error> error = SetBias(folder, bias, output_scale, operation)) return *error;
  return bias;
}

/// Reads the residual, which is added in units of the output.
std::optional<Error> ReadResidual(const std::string& folder, const std::vector<int64_t>& shape,
                                  double output_scale, Fields* fields, reference::Linear* operation) {
  const std::string path = folder + "/residual.npy";
  const bool has_file = std::filesystem::exists(path);
  if (!has_file && !fields->Has("residual")) return std::nullopt;
  if (operation->c_type == INTACT_S32) {
    return Invalid(path +
                   ": exists or layer.json has \"residual\"; expected none, because the output is s32");
  }
  ASSIGN_OR_RETURN(support::NpyArray residual, support::ReadNpy(path));
  if ((!core::IsInt8(residual.type) && residual.type != INTACT_F32) || residual.shape != shape) {
    return WrongTensor(path, residual,
                       fmt::format("u1, i1 or f4 {}, the output's shape", support::ShapeString(shape)));
  }
  core::AddResidual added;
  added.type = residual.type;
  added.scale = static_cast<float>(fields->Scale("residual.scale") / output_scale);
  if (core::IsInt8(residual.type)) added.zero_point = fields->ZeroPoint("residual.zero_point", residual.type);
  if (!std::isfinite(added.scale) || added.scale <= 0) {
    fields->Fail("residual.scale", fmt::format("divided by output.scale is {} in float32; expected a finite "
                                               "scale above 0",
                                               added.scale));
  }
  operation->post_ops.Add(added);
  operation->residual = std::move(residual.bytes);
  return fields->error();
}

/// Adds a clamp with bounds in real numbers, converted to units of the output: whole steps for an 8-bit
/// output.
void AddClamp(double low, double high, double output_scale, Fields* fields, reference::Linear* operation) {
  const auto in_steps = [&](double bound) {
    const double steps = bound / output_scale;
    return static_cast<float>(core::IsInt8(operation->c_type) ? std::nearbyint(steps) : steps);
  };
  const core::Clamp clamp = {in_steps(low), in_steps(high)};
  const bool are_finite = std::isfinite(clamp.low) && std::isfinite(clamp.high);
  if (!are_finite || clamp.low > clamp.high || (clamp.low == 0 && clamp.high == 0)) {
    fields->Fail("activation", fmt::format("has the bounds {} and {} in units of the output; expected finite "
                                           "bounds in ascending order, not both 0",
                                           clamp.low, clamp.high));
  }
  operation->post_ops.Add(clamp);
}

/// Reads "activation", or "relu" instead. An s32 output needs neither.
void ReadActivation(double output_scale, Fields* fields, reference::Linear* operation) {
  const bool is_s32 = operation->c_type == INTACT_S32;
  const bool has_activation = fields->Has("activation");
  if (fields->Has("relu")) {
    const bool relu = fields->Boolean("relu");
    if (has_activation) fields->Fail("relu", "is given together with activation; expected one of the two");
    if (relu && is_s32) fields->Fail("relu", "is true; expected false, because the output is s32");
    if (relu) operation->post_ops.Add(core::Relu{});
    return;
  }
  if (is_s32) {
    if (has_activation) fields->OneOf("activation", {"none"});
    return;
  }
  if (fields->Has("activation.min") || fields->Has("activation.max")) {
    const double low = fields->Number("activation.min");
    const double high = fields->Number("activation.max");
    if (!fields->error()) AddClamp(low, high, output_scale, fields, operation);
    return;
  }
  const std::string name = fields->OneOf("activation", {"none", "relu", "relu6"},
                                         R"({"min": number, "max": number}, or relu in its place)");
  if (name == "relu") operation->post_ops.Add(core::Relu{});
  if (name == "relu6") AddClamp(0.0, 6.0, output_scale, fields, operation);
}

/// Reads the zero points of weights and output, the scales, and all fields of the requantization.
std::optional<Error> ReadEpilogue(const std::string& folder, const std::vector<int64_t>& shape,
                                  LayerScales scales, Fields* fields, reference::Linear* operation) {
  const int64_t columns = shape.back();
  operation->b_zero_points = fields->ZeroPoints("weight.zero_points", columns, operation->b_type);
  const bool has_scales = operation->c_type != INTACT_S32;
  if (has_scales) {
    if (!scales.is_dynamic) scales.input = fields->Scale("input.scale");
    scales.weights = fields->Scales("weight.scales", columns);
  }
  if (core::IsInt8(operation->c_type)) {
    operation->c_zero_point = fields->ZeroPoint("output.zero_point", operation->c_type);
    scales.output = fields->Scale("output.scale");
  }
  SetScales(scales, fields, operation);
  if (fields->error()) return fields->error();
  if (auto error = ReadResidual(folder, shape, scales.output, fields, operation)) return error;
  ReadActivation(scales.output, fields, operation);
  if (fields->error()) return fields->error();
  ASSIGN_OR_RETURN(const std::vector<float> bias, ReadAnyBias(folder, columns, scales.output, operation));
  if (has_scales && operation->a_scales.empty()) SetFloatSteps(scales, bias, columns, operation);
  return std::nullopt;
}

/// Quantizes a_source as one tensor, like a run of a dynamic layer. Stores the zero point in the layer, and
/// returns the scale.
Result<float> QuantizeTensor(const std::string& folder, reference::Linear* operation) {
  std::vector<float> x(operation->a_source.size() / sizeof(float));
  std::memcpy(x.data(), operation->a_source.data(), operation->a_source.size());
  const reference::Quantization q = reference::ChooseQuantization(operation->a_type, x);
  if (std::isnan(q.scale)) {
    return Invalid(folder +
                   "/activations.npy: cannot be quantized; expected finite numbers with a finite range");
  }
  operation->a_zero_point = q.zero_point;
  for (const float value : x) {
    operation->a.push_back(static_cast<uint8_t>(reference::Quantize(value, operation->a_type, q)));
  }
  operation->a_source.clear();
  return q.scale;
}

/// Reads how the activations of a dynamic layer are quantized. If the outputs have scales, the library
/// quantizes them; if the outputs are sums, this function does.
Result<LayerScales> ReadDynamicInput(const std::string& folder, Fields* fields, Layer* layer) {
  reference::Linear& operation = LinearOf(layer->operation);
  operation.a_type = fields->OneOf("input.type", {"u8", "s8"}) == "s8" ? INTACT_S8 : INTACT_U8;
  LayerScales scales;
  scales.is_dynamic = true;
  const bool has_sums = operation.c_type == INTACT_S32;
  const bool may_have_rows = layer->conv() == nullptr && !has_sums;
  const std::string per =
      may_have_rows ? fields->OneOf("input.per", {"tensor", "row"}) : fields->OneOf("input.per", {"tensor"});
  if (fields->error()) return *fields->error();
  if (has_sums) {
    ASSIGN_OR_RETURN(scales.input, QuantizeTensor(folder, &operation));
    return scales;
  }
  operation.a_quantization =
      per == "row" ? INTACT_QUANTIZATION_DYNAMIC_ROWS : INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  operation.a_source_type = INTACT_F32;
  reference::VisitLinear([](auto& one) { reference::QuantizeActivations(&one); }, layer->operation);
  return scales;
}

/// The operators of 1, 2 and 3 spatial dimensions, then the transposed ones.
constexpr std::string_view kConvolutions[] = {"conv1d",           "conv2d",           "conv3d",
                                              "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"};

/// The shape of the output and of a residual.
std::vector<int64_t> OutputShape(const Layer& layer) {
  if (layer.conv() == nullptr) return {OutputOf(layer.operation).rows, OutputOf(layer.operation).columns};
  const reference::ConvGeometry& geometry = layer.conv()->geometry;
  std::vector<int64_t> shape = {geometry.batch};
  for (const reference::Axis& axis : std::span(geometry.axes).last(static_cast<size_t>(geometry.dims))) {
    shape.push_back(axis.Output());
  }
  shape.push_back(geometry.output_channels);
  return shape;
}

constexpr std::string_view kDynamic = "_dynamic";  // ends the operators that quantize their input

/// Reads operator, geometry and tensors.
std::optional<Error> ReadTensorsOf(const std::string& folder, bool is_dynamic, Fields* fields, Layer* layer) {
  const std::string_view name =
      std::string_view(layer->op).substr(0, layer->op.size() - (is_dynamic ? kDynamic.size() : 0));
  if (name == "linear") return ReadLinear(folder, is_dynamic, &layer->gemm());
  const auto* op = std::ranges::find(kConvolutions, name);
  if (op == std::end(kConvolutions)) {
    fields->Fail("operator",
                 fmt::format(R"(is {}; expected "linear", "{}", or one of these followed by "{}")",
                             ExcerptOf(layer->op), fmt::join(kConvolutions, R"(", ")"), kDynamic));
    return fields->error();
  }
  reference::Conv& conv = layer->operation.emplace<reference::Conv>();
  const auto number = static_cast<size_t>(op - kConvolutions);
  const bool transposed = number >= INTACT_MAX_SPATIAL;
  const std::optional<Padding> padding = ReadPaddingWord(transposed, fields);
  conv.geometry = ReadGeometry(number % INTACT_MAX_SPATIAL + 1, transposed, padding.has_value(), fields);
  if (fields->error()) return fields->error();
  return ReadConv(folder, is_dynamic, padding, &conv);
}

/// The type of the outputs; `usual` if layer.json does not give it.
intact_type ReadOutputType(intact_type usual, Fields* fields) {
  if (!fields->Has("output.type")) return usual;
  std::vector<std::string_view> names;
  for (const intact_type type : {INTACT_U8, INTACT_S8, INTACT_S32, INTACT_F32, INTACT_F16}) {
    names.push_back(core::NameOf(type));
  }
  const std::string name = fields->OneOf("output.type", names);
  const auto* row = std::ranges::find(core::kElementTypes, name, &core::ElementType::name);
  return row == core::kElementTypes.end() ? usual : row->type;
}

std::optional<Error> ReadOperation(const std::string& folder, bool is_dynamic, Fields* fields, Layer* layer) {
  if (std::optional<Error> error = ReadTensorsOf(folder, is_dynamic, fields, layer)) return error;
  reference::Linear& operation = LinearOf(layer->operation);
  operation.c_type = ReadOutputType(is_dynamic ? INTACT_F32 : operation.a_type, fields);
  if (fields->Has("overflow") && fields->OneOf("overflow", {"refused", "wraps"}) == "wraps") {
    operation.overflow = INTACT_OVERFLOW_WRAPS;
  }
  LayerScales scales;
  if (is_dynamic) {
    ASSIGN_OR_RETURN(scales, ReadDynamicInput(folder, fields, layer));
  } else {
    operation.a_zero_point = fields->ZeroPoint("input.zero_point", operation.a_type);
  }
  return ReadEpilogue(folder, OutputShape(*layer), std::move(scales), fields, &operation);
}

struct RampSpec {
  const char* name;
  intact_type a_type;
  int low, high;  // activations
  int wmax;       // weights in [−wmax, wmax]
  bool reduce_range;
};

Layer MakeRampLayer(const RampSpec& spec) {
  Layer layer;
  layer.name = spec.name;
  layer.op = "linear";
  layer.reduce_range = spec.reduce_range;
  layer.is_ramp = true;
  reference::Gemm& gemm = layer.gemm();
  gemm.m = spec.high - spec.low + 1;
  gemm.n = 10;
  gemm.k = 64;
  gemm.a_type = gemm.c_type = spec.a_type;
  gemm.a_zero_point = (spec.low + spec.high + 1) / 2;
  gemm.c_zero_point = spec.a_type == INTACT_S8 ? 0 : 128;
  for (int a = spec.low; a <= spec.high; ++a) {
    gemm.a.insert(gemm.a.end(), static_cast<size_t>(gemm.k), static_cast<uint8_t>(a));
  }
  support::Random random(/*seed=*/1, /*stream=*/0, /*index=*/0);
  std::vector<int32_t> column_sums(static_cast<size_t>(gemm.n));
  for (int64_t i = 0; i < gemm.k * gemm.n; ++i) {
    gemm.b.push_back(static_cast<int8_t>(random.Integer(-spec.wmax, spec.wmax)));
    column_sums[static_cast<size_t>(i % gemm.n)] += gemm.b.back();
  }
  // The steepest column of the exact layer just fills the output's range.
  int32_t steepest = 1;
  for (const int32_t sum : column_sums) steepest = std::max(steepest, std::abs(sum));
  gemm.scales = {127.0f / static_cast<float>(steepest * (spec.high - gemm.a_zero_point + 1))};
  return layer;
}

// Why a folder without layer.json is no layer.
std::string WhyNoLayer(const std::string& folder) {
  std::string why = fmt::format("{}: has no layer.json; expected the folder of a layer", folder);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".onnx") continue;
    return why + fmt::format("; {} is a model: `intact audit` and `intact compare` read it",
                             entry.path().filename().string());
  }
  return why;
}

}  // namespace

Result<Layer> ReadLayer(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return Invalid(fmt::format("{}: is not a folder; expected one with layer.json and .npy tensors", folder));
  }
  const std::string path = folder + "/layer.json";
  if (!std::filesystem::exists(path, ignored)) return Invalid(WhyNoLayer(folder));
  ASSIGN_OR_RETURN(const json root, support::ReadJson(path));

  Fields fields(path, root);
  Layer layer;
  layer.folder = folder;
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(folder);
  layer.name = canonical.filename().empty() ? canonical.string() : canonical.filename().string();
  layer.op = fields.String("operator");
  if (fields.error()) return *fields.error();
  if (layer.op == kGroupedOperator) {
    reference::Grouped& grouped = layer.operation.emplace<reference::Grouped>();
    if (std::optional<Error> error = ReadGrouped(folder, &fields, &grouped)) return *error;
    return layer;
  }
  const bool is_dynamic = layer.op.ends_with(kDynamic);
  if (std::optional<Error> error = ReadOperation(folder, is_dynamic, &fields, &layer)) return *error;
  layer.reduce_range = fields.Has("reduce_range") && fields.Boolean("reduce_range");
  if (!is_dynamic) {
    layer.is_ramp = fields.Has("ramp");
    for (const char* for_people : {"ramp.from", "ramp.to", "ramp.step"}) (void)fields.Has(for_people);
  }
  fields.RefuseOthers();
  if (fields.error()) return *fields.error();
  return layer;
}

Result<std::vector<uint8_t>> ReadExpected(const Layer& layer, const std::string& file) {
  const std::string path = (std::filesystem::path(layer.folder) / file).string();  // an absolute `file` wins
  ASSIGN_OR_RETURN(const support::NpyArray expected, support::ReadNpy(path));
  const intact_type type =
      layer.grouped() != nullptr ? layer.grouped()->c_type : LinearOf(layer.operation).c_type;
  const std::vector<int64_t> shape = OutputShape(layer);
  if (expected.type != type || expected.shape != shape) {
    return WrongTensor(path, expected,
                       fmt::format("{} {}, the output of layer {}", core::TraitsOf(type).npy,
                                   support::ShapeString(shape), layer.name));
  }
  return expected.bytes;
}

std::vector<Layer> BuiltinLayers() {
  return {MakeRampLayer({"builtin_u8", INTACT_U8, 0, 255, 127, false}),
          MakeRampLayer({"builtin_u7", INTACT_U8, 0, 127, 127, true}),
          MakeRampLayer({"builtin_u8_7bit_weights", INTACT_U8, 0, 255, 64, false}),
          MakeRampLayer({"builtin_s7", INTACT_S8, -64, 63, 127, true})};
}

}  // namespace intact::verify
