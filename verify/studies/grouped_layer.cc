#include "verify/studies/grouped_layer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "core/result.h"
#include "core/types.h"
#include "support/npy.h"
#include "verify/problem/line.h"
#include "verify/problem/problem.h"

namespace intact::verify {
namespace {

namespace fs = std::filesystem;

// The tensor in `file`. `shape`: what it must have, in words too.
Result<support::NpyArray> ReadTensor(const std::string& folder, const char* file,
                                     std::initializer_list<intact_type> types,
                                     const std::vector<int64_t>& shape, std::string_view in_words) {
  const std::string path = folder + "/" + file;
  ASSIGN_OR_RETURN(support::NpyArray tensor, support::ReadNpy(path));
  const bool has_type = std::ranges::find(types, tensor.type) != types.end();
  if (has_type && tensor.shape == shape) return tensor;
  std::vector<std::string_view> names;
  for (const intact_type type : types) names.push_back(core::TraitsOf(type).npy);
  return WrongTensor(
      path, tensor,
      fmt::format("{} {}, {}", fmt::join(names, " or "), support::ShapeString(shape), in_words));
}

std::vector<int16_t> Decoded(const support::NpyArray& tensor) {
  std::vector<int16_t> values;
  for (const uint8_t byte : tensor.bytes) {
    values.push_back(static_cast<int16_t>(core::DecodeInt8(tensor.type, byte)));
  }
  return values;
}

// Checks that integers fit the type of the weights.
std::optional<Error> CheckValues(const std::string& path, const reference::Grouped& grouped,
                                 const std::vector<int16_t>& values) {
  for (const int16_t value : values) {
    if (value >= grouped.codes().lowest && value <= grouped.codes().highest) continue;
    return Invalid(fmt::format("{}: has the value {}; expected {} to {} for {}", path, value,
                               grouped.codes().lowest, grouped.codes().highest,
                               core::NameOf(grouped.b_type)));
  }
  return std::nullopt;
}

std::optional<Error> ReadWeights(const std::string& folder, reference::Grouped* grouped) {
  const std::string path = folder + "/weights.npy";
  ASSIGN_OR_RETURN(const support::NpyArray weights, support::ReadNpy(path));
  const intact_type type = grouped->codes().is_signed() ? INTACT_S8 : INTACT_U8;
  if (weights.type != type || weights.shape.size() != 2) {
    return WrongTensor(path, weights,
                       fmt::format("{} (N, K), for {} weights of one expert", core::TraitsOf(type).npy,
                                   core::NameOf(grouped->b_type)));
  }
  grouped->n = weights.shape[0];
  grouped->k = weights.shape[1];
  grouped->b = Decoded(weights);
  if (auto error = CheckValues(path, *grouped, grouped->b)) return error;
  const std::vector<int64_t> shape = {grouped->n, grouped->groups()};
  constexpr std::string_view kEach = "a value for each column and group";
  ASSIGN_OR_RETURN(support::NpyArray scales,
                   ReadTensor(folder, "scales.npy", {INTACT_F32, INTACT_F16}, shape, kEach));
  grouped->scale_type = scales.type;
  grouped->b_scales = std::move(scales.bytes);
  if (fs::exists(folder + "/zero_points.npy")) {
    ASSIGN_OR_RETURN(const support::NpyArray points,
                     ReadTensor(folder, "zero_points.npy", {type}, shape, kEach));
    grouped->has_b_zero_points = true;
    grouped->b_zero_points = Decoded(points);
    if (auto error = CheckValues(folder + "/zero_points.npy", *grouped, grouped->b_zero_points)) return error;
  }
  if (fs::exists(folder + "/bias.npy")) {
    ASSIGN_OR_RETURN(const support::NpyArray bias,
                     ReadTensor(folder, "bias.npy", {INTACT_F32}, {grouped->n}, "N as in weights.npy"));
    grouped->bias_f32 = bias.Values<float>();
  }
  return std::nullopt;
}

std::optional<Error> ReadActivations(const std::string& folder, reference::Grouped* grouped) {
  const std::string path = folder + "/activations.npy";
  ASSIGN_OR_RETURN(support::NpyArray a, support::ReadNpy(path));
  const bool is_given = a.type == grouped->a_type;
  const bool is_dynamic = a.type == INTACT_F32 || a.type == INTACT_F16;
  if ((!is_given && !is_dynamic) || a.shape.size() != 2 || a.shape[1] != grouped->k) {
    return WrongTensor(path, a,
                       fmt::format("f4, f2 or {} (M, {}), K as in weights.npy",
                                   core::TraitsOf(grouped->a_type).npy, grouped->k));
  }
  grouped->m = a.shape[0];
  grouped->a_source_type = is_given ? INTACT_TYPE_NONE : a.type;
  if (is_dynamic) {
    for (const char* const stray : {"/a_scales.npy", "/a_zero_points.npy"}) {
      if (!fs::exists(folder + stray)) continue;
      return Invalid(fmt::format("{}: belongs to {} activations; activations.npy has {}", folder + stray,
                                 core::TraitsOf(grouped->a_type).npy, core::TraitsOf(a.type).npy));
    }
    grouped->a_source = std::move(a.bytes);
    reference::QuantizeActivations(grouped);
    return std::nullopt;
  }
  grouped->a = std::move(a.bytes);
  std::vector<int64_t> shape = {grouped->m};
  if (grouped->HasGroupScales()) shape.push_back(grouped->groups());
  constexpr std::string_view kEach = "a value for each scale of activations";
  ASSIGN_OR_RETURN(const support::NpyArray scales,
                   ReadTensor(folder, "a_scales.npy", {INTACT_F32}, shape, kEach));
  grouped->a_scales = scales.Values<float>();
  for (const float scale : grouped->a_scales) {
    if (std::isfinite(scale) && scale >= 0) continue;
    return Invalid(
        fmt::format("{}/a_scales.npy: has the value {}; expected finite values ≥ 0", folder, scale));
  }
  grouped->a_zero_points.assign(grouped->a_scales.size(), 0);
  if (!fs::exists(folder + "/a_zero_points.npy")) return std::nullopt;
  ASSIGN_OR_RETURN(const support::NpyArray points,
                   ReadTensor(folder, "a_zero_points.npy", {INTACT_S32}, shape, kEach));
  grouped->a_zero_points = points.Values<int32_t>();
  const int32_t low = core::LowestOf(grouped->a_type), high = core::HighestOf(grouped->a_type);
  for (const int32_t point : grouped->a_zero_points) {
    if (point >= low && point <= high) continue;
    return Invalid(fmt::format("{}/a_zero_points.npy: has the value {}; expected {} to {} for {} activations",
                               folder, point, low, high, core::NameOf(grouped->a_type)));
  }
  return std::nullopt;
}

void ReadActivation(LayerFields* fields, reference::Grouped* grouped) {
  if (fields->Has("activation.min") || fields->Has("activation.max")) {
    const auto low = static_cast<float>(fields->Number("activation.min"));
    const auto high = static_cast<float>(fields->Number("activation.max"));
    if (!(low <= high) || (low == 0 && high == 0)) {
      fields->Fail(
          "activation",
          fmt::format("has the bounds {} and {}; expected bounds in ascending order, not both 0", low, high));
    }
    grouped->post_ops.Add(core::Clamp{low, high});
    return;
  }
  const std::string name = fields->OneOf("activation", {"none", "relu"}, R"({"min": number, "max": number})");
  if (name == "relu") grouped->post_ops.Add(core::Relu{});
}

// The fields that determine types; tensors are read afterwards.
void ReadFields(LayerFields* fields, reference::Grouped* grouped) {
  grouped->group = fields->Count("group", 0);
  if (std::ranges::find(kGroups, grouped->group) == kGroups.end()) {
    fields->Fail("group", fmt::format("is {}; expected one of {}", grouped->group, fmt::join(kGroups, ", ")));
  }
  const std::string weights = fields->OneOf("weight.type", {"u4", "s4", "u8", "s8"});
  for (const Name<intact_type>& type : kWeightTypes) {
    if (type.text == weights) grouped->b_type = type.value;
  }
  grouped->a_type = fields->OneOf("input.type", {"s8", "u8"}) == "u8" ? INTACT_U8 : INTACT_S8;
  grouped->SetGroupScales(fields->OneOf("input.per", {"row", "group"}) == "group");
  grouped->c_type = INTACT_F32;
  if (fields->Has("output.type") && fields->OneOf("output.type", {"f32", "f16"}) == "f16") {
    grouped->c_type = INTACT_F16;
  }
  ReadActivation(fields, grouped);
}

}  // namespace

std::optional<Error> ReadGrouped(const std::string& folder, LayerFields* fields,
                                 reference::Grouped* grouped) {
  ReadFields(fields, grouped);
  fields->RefuseOthers();
  if (fields->error()) return *fields->error();
  if (auto error = ReadWeights(folder, grouped)) return *error;
  return ReadActivations(folder, grouped);
}

}  // namespace intact::verify
