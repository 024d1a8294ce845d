#include "verify/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "verify/json_file.h"
#include "verify/npy.h"
#include "verify/random.h"

namespace intact::verify {
namespace {

using nlohmann::json;

Error Invalid(std::string message) { return {INTACT_INVALID_ARGUMENT, std::move(message)}; }

/// What `value` is, for a message: short, and without control characters.
std::string Excerpt(const json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

/// Reads typed fields of layer.json by dotted names. The first error sticks, later reads then return
/// defaults, so that the caller checks once at the end.
class Fields {
 public:
  Fields(std::string path, const json& root) : path_(std::move(path)), root_(root) {}

  const std::optional<Error>& error() const { return error_; }
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  void Fail(std::string_view name, std::string_view what) {
    if (!error_) error_ = Invalid(fmt::format("{}: {}: {}", path_, name, what));
  }

  std::string String(std::string_view name) {
    const json* value = Require(name, &json::is_string, "a string");
    return value ? value->get<std::string>() : std::string();
  }

  bool Boolean(std::string_view name) {
    const json* value = Require(name, &json::is_boolean, "true or false");
    return value != nullptr && value->get<bool>();
  }

  int32_t ZeroPoint(std::string_view name, intact_type type) {
    const json* value = Require(name, &json::is_number_integer, "an integer");
    return value ? CheckedZeroPoint(name, *value, type) : 0;
  }

  double Scale(std::string_view name) {
    const json* value = Require(name, &json::is_number, "a number");
    return value ? CheckedScale(name, *value) : 1.0;
  }

  std::vector<double> Scales(std::string_view name, int64_t channels) {
    std::vector<double> scales;
    for (const json& element : PerChannel(name, channels)) {
      const std::string label = fmt::format("{}[{}]", name, scales.size());
      if (!element.is_number()) Fail(label, fmt::format("is {}; expected a number", Excerpt(element)));
      scales.push_back(element.is_number() ? CheckedScale(label, element) : 1.0);
    }
    return scales;
  }

  /// None where all are 0.
  std::vector<int32_t> ZeroPoints(std::string_view name, int64_t channels, intact_type type) {
    std::vector<int32_t> zero_points;
    for (const json& element : PerChannel(name, channels)) {
      const std::string label = fmt::format("{}[{}]", name, zero_points.size());
      if (!element.is_number_integer())
        Fail(label, fmt::format("is {}; expected an integer", Excerpt(element)));
      zero_points.push_back(element.is_number_integer() ? CheckedZeroPoint(label, element, type) : 0);
    }
    if (std::ranges::count(zero_points, 0) == std::ssize(zero_points)) zero_points.clear();
    return zero_points;
  }

 private:
  const json* Find(std::string_view name) const {
    const json* value = &root_;
    while (!name.empty()) {
      const size_t dot = std::min(name.find('.'), name.size());
      const auto member = value->is_object() ? value->find(name.substr(0, dot)) : value->end();
      if (!value->is_object() || member == value->end()) return nullptr;
      value = &*member;
      name.remove_prefix(std::min(dot + 1, name.size()));
    }
    return value;
  }

  const json* Require(std::string_view name, bool (json::*is_right)() const noexcept,
                      std::string_view wanted) {
    const json* value = Find(name);
    if (value == nullptr) {
      Fail(name, fmt::format("is missing; expected {}", wanted));
    } else if (!(value->*is_right)()) {
      Fail(name, fmt::format("is {}; expected {}", Excerpt(*value), wanted));
      value = nullptr;
    }
    return value;
  }

  json PerChannel(std::string_view name, int64_t channels) {
    const json* values = Require(name, &json::is_array, "an array");
    if (values == nullptr) return json::array();
    if (values->size() != 1 && values->size() != static_cast<size_t>(channels)) {
      Fail(name,
           fmt::format("has {} entries; expected 1 or {} (rows of weights.npy)", values->size(), channels));
      return json::array();
    }
    return *values;
  }

  int32_t CheckedZeroPoint(std::string_view name, const json& value, intact_type type) {
    const int64_t low = type == INTACT_S8 ? -128 : 0;
    const double zero_point = value.get<double>();  // any JSON integer, also one beyond int64
    if (zero_point < static_cast<double>(low) || zero_point > static_cast<double>(low + 255)) {
      Fail(name, fmt::format("is {}; expected {} to {}", Excerpt(value), low, low + 255));
      return 0;
    }
    return static_cast<int32_t>(zero_point);
  }

  double CheckedScale(std::string_view name, const json& value) {
    const double scale = value.get<double>();
    if (!std::isfinite(scale) || scale <= 0) {
      Fail(name, fmt::format("is {}; expected a finite scale above 0", Excerpt(value)));
      return 1.0;
    }
    return scale;
  }

  std::string path_;
  const json& root_;
  std::optional<Error> error_;
};

Error WrongTensor(const std::string& path, const NpyArray& tensor, std::string_view expected) {
  const char* type = tensor.type == INTACT_U8    ? "u1"
                     : tensor.type == INTACT_S8  ? "i1"
                     : tensor.type == INTACT_S32 ? "i4"
                                                 : "f4";
  return Invalid(fmt::format("{}: is {} {}; expected {}", path, type, ShapeString(tensor.shape), expected));
}

/// weights.npy is [N, K]; the GEMM's B is k×n.
std::vector<int8_t> Transposed(const std::vector<uint8_t>& weights, int64_t n, int64_t k) {
  std::vector<int8_t> b(weights.size());
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t depth = 0; depth < k; ++depth) {
      b[static_cast<size_t>(depth * n + row)] =
          static_cast<int8_t>(weights[static_cast<size_t>(row * k + depth)]);
    }
  }
  return b;
}

/// Reads activations and weights into `gemm` and sets its sizes and types.
std::optional<Error> ReadTensors(const std::string& folder, reference::Gemm* gemm) {
  const std::string weights_path = folder + "/weights.npy";
  const Result<NpyArray> weights = ReadNpy(weights_path);
  if (!weights) return weights.error();
  if ((weights->type != INTACT_S8 && weights->type != INTACT_U8) || weights->shape.size() != 2) {
    return WrongTensor(weights_path, *weights, "i1 or u1 (N, K)");
  }
  const std::string activations_path = folder + "/activations.npy";
  const Result<NpyArray> activations = ReadNpy(activations_path);
  if (!activations) return activations.error();
  gemm->n = weights->shape[0];
  gemm->k = weights->shape[1];
  if ((activations->type != INTACT_U8 && activations->type != INTACT_S8) || activations->shape.size() != 2 ||
      activations->shape[1] != gemm->k) {
    return WrongTensor(activations_path, *activations,
                       fmt::format("u1 or i1 (M, {}), K as in weights.npy", gemm->k));
  }
  gemm->m = activations->shape[0];
  gemm->a_type = gemm->c_type = activations->type;
  gemm->a = activations->bytes;
  gemm->b_type = weights->type;
  gemm->b = Transposed(weights->bytes, gemm->n, gemm->k);
  return std::nullopt;
}

/// bias_f32[n] = bias[n]/so, rounded to float32 once, where the layer has a bias.
std::optional<Error> ReadBias(const std::string& folder, double output_scale, reference::Gemm* gemm) {
  const std::string path = folder + "/bias.npy";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Result<NpyArray> bias = ReadNpy(path);
  if (!bias) return bias.error();
  if (bias->type != INTACT_F32 || bias->shape != std::vector<int64_t>{gemm->n}) {
    return WrongTensor(path, *bias, fmt::format("f4 ({},), N as in weights.npy", gemm->n));
  }
  for (const float value : bias->Values<float>()) {
    const auto scaled = static_cast<float>(value / output_scale);
    if (!std::isfinite(scaled)) {
      return Invalid(fmt::format("{}: entry {} is {}, {} in the output's scale; expected finite values", path,
                                 gemm->bias_f32.size(), value, scaled));
    }
    gemm->bias_f32.push_back(scaled);
  }
  return std::nullopt;
}

/// scale[n] = si·sw[n]/so in double precision, rounded to float32 once.
void SetScales(double input_scale, const std::vector<double>& weight_scales, double output_scale,
               Fields* fields, reference::Gemm* gemm) {
  for (const double weight_scale : weight_scales) {
    const auto scale = static_cast<float>(input_scale * weight_scale / output_scale);
    if (!std::isfinite(scale) || scale <= 0) {
      fields->Fail(
          fmt::format("weight.scales[{}]", gemm->scales.size()),
          fmt::format("makes input.scale*scale/output.scale {} in float32; expected a finite scale above 0",
                      scale));
    }
    gemm->scales.push_back(scale);
  }
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
  reference::Gemm& gemm = layer.gemm;
  gemm.m = spec.high - spec.low + 1;
  gemm.n = 10;
  gemm.k = 64;
  gemm.a_type = gemm.c_type = spec.a_type;
  gemm.a_zero_point = (spec.low + spec.high + 1) / 2;
  gemm.c_zero_point = spec.a_type == INTACT_S8 ? 0 : 128;
  for (int a = spec.low; a <= spec.high; ++a) {
    gemm.a.insert(gemm.a.end(), static_cast<size_t>(gemm.k), static_cast<uint8_t>(a));
  }
  Random random(/*seed=*/1, /*stream=*/0, /*index=*/0);
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

}  // namespace

Result<Layer> ReadLayer(const std::string& folder) {
  if (!std::filesystem::is_directory(folder)) {
    return Invalid(fmt::format("{}: is not a folder; expected one with layer.json and .npy tensors", folder));
  }
  const std::string path = folder + "/layer.json";
  const Result<json> root = ReadJson(path);
  if (!root) return root.error();

  Fields fields(path, *root);
  Layer layer;
  layer.folder = folder;
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(folder);
  layer.name = canonical.filename().empty() ? canonical.string() : canonical.filename().string();
  layer.op = fields.String("operator");
  if (fields.error()) return *fields.error();
  if (layer.op == "conv2d") {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format(R"({}: operator: is "conv2d": convolutions are not supported yet)", path)};
  }
  if (layer.op != "linear")
    fields.Fail("operator", fmt::format(R"(is {}; expected "linear")", Excerpt(layer.op)));
  if (fields.error()) return *fields.error();

  reference::Gemm& gemm = layer.gemm;
  if (std::optional<Error> error = ReadTensors(folder, &gemm)) return *error;
  gemm.a_zero_point = fields.ZeroPoint("input.zero_point", gemm.a_type);
  gemm.c_zero_point = fields.ZeroPoint("output.zero_point", gemm.c_type);
  const double input_scale = fields.Scale("input.scale");
  const double output_scale = fields.Scale("output.scale");
  SetScales(input_scale, fields.Scales("weight.scales", gemm.n), output_scale, &fields, &gemm);
  gemm.b_zero_points = fields.ZeroPoints("weight.zero_points", gemm.n, gemm.b_type);
  gemm.activation = fields.Boolean("relu") ? INTACT_ACTIVATION_RELU : INTACT_ACTIVATION_NONE;
  layer.reduce_range = fields.Has("reduce_range") && fields.Boolean("reduce_range");
  layer.is_ramp = fields.Has("ramp");
  if (fields.error()) return *fields.error();
  if (std::optional<Error> error = ReadBias(folder, output_scale, &gemm)) return *error;
  return layer;
}

Result<std::vector<uint8_t>> ReadExpected(const Layer& layer, const std::string& file) {
  const std::string path = (std::filesystem::path(layer.folder) / file).string();  // an absolute `file` wins
  const Result<NpyArray> expected = ReadNpy(path);
  if (!expected) return expected.error();
  const reference::Gemm& gemm = layer.gemm;
  if (expected->type != gemm.c_type || expected->shape != std::vector<int64_t>{gemm.m, gemm.n}) {
    return WrongTensor(path, *expected,
                       fmt::format("{} ({}, {}), the output of layer {}",
                                   gemm.c_type == INTACT_U8 ? "u1" : "i1", gemm.m, gemm.n, layer.name));
  }
  return expected->bytes;
}

std::vector<Layer> BuiltinLayers() {
  return {MakeRampLayer({"builtin_u8", INTACT_U8, 0, 255, 127, false}),
          MakeRampLayer({"builtin_u7", INTACT_U8, 0, 127, 127, true}),
          MakeRampLayer({"builtin_u8_7bit_weights", INTACT_U8, 0, 255, 64, false}),
          MakeRampLayer({"builtin_s7", INTACT_S8, -64, 63, 127, true})};
}

}  // namespace intact::verify
