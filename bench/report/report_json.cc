#include "verify/report/report_json.h"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/report/report.h"

namespace intact::bench {
namespace {

using support::Json;

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json ToJson(const Row& row, const Timing& timing) {
  Json json = nlohmann::json(timing);
  if (!timing.IsTimed()) {
    json["microseconds"] = json["spread"] = json["over_static"] = nullptr;
    return json;
  }
  json["gops"] = Gops(row, timing);
  json["of_peak"] = Gops(row, timing) / row.peak_gops;
  json["of_bandwidth"] =
      1e-3 * static_cast<double>(row.shape.WeightBytes()) / timing.microseconds / row.read_gb_per_s;
  if (timing.over_static == 0) json["over_static"] = nullptr;
  if (timing.contender != kIntact) json["speed_up"] = OrNull(SpeedUp(row, timing.contender, timing.format));
  return json;
}

Json ToJson(const Row& row) {
  Json json = nlohmann::json(row);
  json.update(Json(json["shape"]));
  json.erase("shape");
  json["memory_bound"] = IsMemoryBound(row);
  json["intensity"] = Intensity(row);
  json["fused_cost"] =
      row.shape.is_dynamic || row.shape.blocks ? Json() : OrNull(CostOf(row, ScaledFormat(row)));
  json["timings"] = Json::array();
  for (const Timing& timing : row.timings) json["timings"].push_back(ToJson(row, timing));
  return json;
}

/// The mean of intact's speed over another contender's, of steady rows that timed both.
std::optional<Json> Mean(const Group& group, std::string_view other, const Format& format) {
  std::vector<double> speed_ups;
  for (const Row& row : group.rows) {
    if (row.IsUnsteady()) continue;
    if (const std::optional<double> value = SpeedUp(row, other, format)) speed_ups.push_back(*value);
  }
  if (speed_ups.empty()) return std::nullopt;
  return Json{{"isa", group.rows.front().isa},
              {"kind", group.name},
              {"contender", other},
              {"quantization", ToString(format.quantization)},
              {"c_type", verify::ToString(format.c_type)},
              {"rows", speed_ups.size()},
              {"speed_up", *GeometricMean(speed_ups)},
              {"worst", *WorstOf(group.rows, other, format)}};
}

std::optional<Json> Sum(std::span<const Row> rows, std::string_view contender, const Format& format) {
  const std::optional<double> milliseconds = NetworkMilliseconds(rows, contender, format);
  if (Layers(rows) == 0 || !milliseconds) return std::nullopt;
  return Json{{"isa", rows.front().isa},
              {"contender", contender},
              {"quantization", ToString(format.quantization)},
              {"c_type", verify::ToString(format.c_type)},
              {"layers", Layers(rows)},
              {"milliseconds", *milliseconds}};
}

void AddSummaries(const Results& results, Json* json) {
  Json& means = (*json)["means"] = Json::array();
  Json& sums = (*json)["sums"] = Json::array();
  for (const std::string& isa : results.Isas()) {
    const std::vector<Row> rows = results.RowsOf(isa);
    std::vector<std::string> contenders = OthersOf(rows);
    contenders.insert(contenders.begin(), std::string(kIntact));
    for (const std::string& contender : contenders) {
      for (const Format& format : kFormats) {
        if (std::optional<Json> sum = Sum(rows, contender, format)) sums.push_back(std::move(*sum));
        if (contender == kIntact) continue;
        for (const Group& group : GroupsOf(rows)) {
          if (std::optional<Json> mean = Mean(group, contender, format)) means.push_back(std::move(*mean));
        }
      }
    }
  }
}

}  // namespace

Json ToJson(const Results& results) {
  Json json = {{"schema", "intact-bench"},
               {"schema_version", 4},
               {"version", intact_version()},
               {"suite", results.suite},
               {"weights", results.weights},
               {"machine", verify::ToJson(results.machine)},
               {"isas", Json::array()},
               {"peaks", nlohmann::json(results.peaks)},
               {"reads", nlohmann::json(results.reads)},
               {"peers", nlohmann::json(results.peers)},
               {"not_measured", results.not_measured},
               {"rows", Json::array()},
               {"first_calls", nlohmann::json(results.first_calls)}};
  for (const support::IsaStatus& status : results.isas) json["isas"].push_back(verify::ToJson(status));
  for (const Row& row : results.rows) json["rows"].push_back(ToJson(row));
  AddSummaries(results, &json);
  return json;
}

}  // namespace intact::bench
