#include "bench/report/results.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "core/types.h"

namespace intact::bench {
namespace {

double PeakMicroseconds(const Row& row) { return 1e-3 * row.shape.Operations() / row.peak_gops; }

double ReadMicroseconds(const Row& row) {
  return 1e-3 * static_cast<double>(row.shape.WeightBytes()) / row.read_gb_per_s;
}

}  // namespace

const Timing* Row::Find(std::string_view contender, const Format& format) const {
  const auto found = std::ranges::find_if(timings, [&](const Timing& timing) {
    return timing.contender == contender && timing.format == format && timing.IsTimed();
  });
  return found == timings.end() ? nullptr : &*found;
}

bool Row::IsUnsteady() const { return std::ranges::any_of(timings, &Timing::IsUnsteady); }

bool Results::AllRight() const {
  const auto is_right = [](const Timing& timing) {
    const bool is_ours = timing.contender == kIntact || timing.contender == kSaturating;
    return !is_ours || timing.IsTimed();
  };
  return std::ranges::all_of(rows,
                             [&](const Row& row) { return std::ranges::all_of(row.timings, is_right); }) &&
         std::ranges::all_of(first_calls, [](const FirstCall& call) { return call.error.empty(); });
}

std::vector<std::string> Results::Isas() const {
  std::vector<std::string> found;
  for (const Row& row : rows) {
    if (found.empty() || found.back() != row.isa) found.push_back(row.isa);
  }
  return found;
}

std::vector<Row> Results::RowsOf(std::string_view isa) const {
  std::vector<Row> found;
  std::ranges::copy_if(rows, std::back_inserter(found), [&](const Row& row) { return row.isa == isa; });
  return found;
}

double Gops(const Row& row, const Timing& timing) {
  return 1e-3 * row.shape.Operations() / timing.microseconds;
}

double RoofMicroseconds(const Row& row) { return std::max(PeakMicroseconds(row), ReadMicroseconds(row)); }

bool IsMemoryBound(const Row& row) { return ReadMicroseconds(row) > PeakMicroseconds(row); }

double OfRoof(const Row& row, const Timing& timing) { return RoofMicroseconds(row) / timing.microseconds; }

Format MainFormat(const Row& row) { return row.shape.blocks ? kByRow : row.shape.is_dynamic ? kF32 : kS32; }

Format ScaledFormat(const Row& row) { return row.shape.is_dynamic || row.shape.batch ? kF32 : kU8; }

Format OursBeside(const Row& row, const Format& format) {
  if (format != kFloat) return format;
  return row.shape.is_dynamic ? kByTensor : ScaledFormat(row);
}

std::optional<double> SpeedUp(const Row& row, std::string_view other, const Format& format) {
  const Timing* const ours = row.Find(kIntact, OursBeside(row, format));
  const Timing* const theirs = row.Find(other, format);
  if (ours == nullptr || theirs == nullptr) return std::nullopt;
  return theirs->microseconds / ours->microseconds;
}

std::optional<double> CostOf(const Row& row, const Format& format) {
  const Timing* const timing = row.Find(kIntact, format);
  const Timing* const main = row.Find(kIntact, MainFormat(row));
  if (timing == nullptr || main == nullptr) return std::nullopt;
  if (timing->over_static > 0) return timing->over_static - 1;
  return timing->microseconds / main->microseconds - 1;
}

double Intensity(const Row& row) {
  const Shape& shape = row.shape;
  const auto bytes =
      static_cast<double>(shape.InputElements() + shape.WeightBytes() + 4 * shape.Rows() * shape.n);
  return row.shape.Operations() / bytes;
}

std::optional<double> GeometricMean(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

std::vector<Group> GroupsOf(std::span<const Row> rows) {
  std::vector<Group> groups;
  const auto add = [&](std::string name, std::initializer_list<Kind> kinds) {
    Group group = {std::move(name), {}};
    std::ranges::copy_if(rows, std::back_inserter(group.rows), [&](const Row& row) {
      return std::ranges::find(kinds, KindOf(row.shape)) != kinds.end();
    });
    if (!group.rows.empty()) groups.push_back(std::move(group));
  };
  const auto has = [&](Kind kind) {
    return std::ranges::any_of(rows, [&](const Row& row) { return KindOf(row.shape) == kind; });
  };
  add("gemm", {Kind::kGemm});
  add("dynamic", {Kind::kDynamic});
  add("blocks", {Kind::kBlocks});
  add("batch", {Kind::kBatch});
  add("dense", {Kind::kDense, Kind::kFirstLayer});
  if (has(Kind::kDense) && has(Kind::kFirstLayer)) {
    add("first layer", {Kind::kFirstLayer});
    add("other dense", {Kind::kDense});
  }
  add("grouped", {Kind::kGrouped});
  add("depthwise", {Kind::kDepthwise});
  add("transposed", {Kind::kTransposed});
  const auto is_all = [&](const Group& group) { return group.rows.size() == rows.size(); };
  if (Layers(rows) > 0 && std::ranges::none_of(groups, is_all)) {
    groups.push_back({"all", {rows.begin(), rows.end()}});
  }
  return groups;
}

int Layers(std::span<const Row> rows) {
  const bool is_network = std::ranges::any_of(rows, [](const Row& row) { return row.times > 1; });
  int count = 0;
  for (const Row& row : rows) count += row.times;
  return is_network ? count : 0;
}

std::vector<std::string> OthersOf(std::span<const Row> rows) {
  std::vector<std::string> others;
  for (const Row& row : rows) {
    for (const Timing& timing : row.timings) {
      const bool is_new = std::ranges::find(others, timing.contender) == others.end();
      if (timing.contender != kIntact && is_new) others.push_back(timing.contender);
    }
  }
  return others;
}

bool HasTiming(std::span<const Row> rows, std::string_view contender, const Format& format) {
  return std::ranges::any_of(rows, [&](const Row& row) { return row.Find(contender, format) != nullptr; });
}

std::optional<double> WorstOf(std::span<const Row> rows, std::string_view other, const Format& format) {
  std::optional<double> worst;
  for (const Row& row : rows) {
    const std::optional<double> speed_up = row.IsUnsteady() ? std::nullopt : SpeedUp(row, other, format);
    if (speed_up && (!worst || *speed_up < *worst)) worst = speed_up;
  }
  return worst;
}

std::optional<double> NetworkMilliseconds(std::span<const Row> rows, std::string_view contender,
                                          const Format& format) {
  double microseconds = 0;
  for (const Row& row : rows) {
    const Timing* const timing = row.Find(contender, format);
    if (timing == nullptr) return std::nullopt;
    microseconds += row.times * timing->microseconds;
  }
  return 1e-3 * microseconds;
}

void to_json(nlohmann::json& json, const Extents& extents) { json = {extents.height, extents.width}; }

void from_json(const nlohmann::json& json, Extents& extents) { extents = {json.at(0), json.at(1)}; }

void to_json(nlohmann::json& json, const Blocks& blocks) {
  json = {{"b_type", core::NameOf(blocks.b_type)}, {"depth", blocks.depth}};
}

void from_json(const nlohmann::json& json, Blocks& blocks) {
  blocks = {json.at("b_type") == "u4" ? INTACT_U4 : INTACT_S8, json.at("depth")};
}

void to_json(nlohmann::json& json, const Batch& batch) {
  json = {{"items", batch.items},
          {"b_type", verify::ToString(batch.b_type)},
          {"b_order", batch.b_by_columns ? "nk" : "kn"}};
}

void from_json(const nlohmann::json& json, Batch& batch) {
  batch = {json.at("items"), json.at("b_type") == "u8" ? INTACT_U8 : INTACT_S8, json.at("b_order") == "nk"};
}

void to_json(nlohmann::json& json, const Shape& shape) {
  json = {{"m", shape.m},     {"n", shape.n},     {"k", shape.k},
          {"conv", nullptr},  {"batch", nullptr}, {"dynamic", shape.is_dynamic},
          {"blocks", nullptr}};
  if (shape.conv) json["conv"] = *shape.conv;
  if (shape.batch) json["batch"] = *shape.batch;
  if (shape.blocks) json["blocks"] = *shape.blocks;
}

void from_json(const nlohmann::json& json, Shape& shape) {
  shape = {json.at("m"), json.at("n"), json.at("k"), std::nullopt, std::nullopt, json.at("dynamic")};
  if (!json.at("conv").is_null()) shape.conv = json.at("conv").get<Geometry>();
  if (!json.at("batch").is_null()) shape.batch = json.at("batch").get<Batch>();
  if (!json.at("blocks").is_null()) shape.blocks = json.at("blocks").get<Blocks>();
}

void to_json(nlohmann::json& json, const Timing& timing) {
  json = {{"contender", timing.contender},
          {"quantization", ToString(timing.format.quantization)},
          {"c_type", verify::ToString(timing.format.c_type)},
          {"implementation", timing.implementation},
          {"result", timing.result},
          {"microseconds", timing.microseconds},
          {"spread", timing.spread},
          {"over_static", timing.over_static}};
}

void from_json(const nlohmann::json& json, Timing& timing) {
  const auto is_named = [&](const Format& format) {
    return json.at("quantization") == ToString(format.quantization) &&
           json.at("c_type") == verify::ToString(format.c_type);
  };
  timing = {json.at("contender"),      *std::ranges::find_if(kFormats, is_named),
            json.at("implementation"), json.at("result"),
            json.at("microseconds"),   json.at("spread"),
            json.at("over_static")};
}

}  // namespace intact::bench
