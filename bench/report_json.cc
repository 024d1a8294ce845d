#include "verify/report_json.h"
#include "bench/report.h"

namespace intact::bench {
namespace {

using verify::Json;

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json ToJson(const Row& row, const Timing& timing) {
  Json json = nlohmann::json(timing);
  if (!timing.IsTimed()) {
    json["microseconds"] = json["spread"] = nullptr;
    return json;
  }
  json["gops"] = Gops(row, timing);
  json["of_peak"] = Gops(row, timing) / row.peak_gops;
  json["of_bandwidth"] =
      1e-3 * static_cast<double>(row.shape().WeightBytes()) / timing.microseconds / row.read_gb_per_s;
  if (timing.contender != kIntact) json["speed_up"] = OrNull(SpeedUp(row, timing.contender, timing.c_type));
  return json;
}

Json ToJson(const Row& row) {
  Json json = nlohmann::json(row);
  json["memory_bound"] = IsMemoryBound(row);
  json["intensity"] = Intensity(row);
  json["fused_cost"] = OrNull(FusedCost(row));
  json["timings"] = Json::array();
  for (const Timing& timing : row.timings) json["timings"].push_back(ToJson(row, timing));
  return json;
}

}  // namespace

Json ToJson(const Results& results) {
  Json json = {{"schema", "intact-bench"},
               {"schema_version", 1},
               {"version", intact_version()},
               {"suite", results.suite},
               {"weights", results.weights},
               {"machine", verify::ToJson(results.machine)},
               {"isas", Json::array()},
               {"peaks", nlohmann::json(results.peaks)},
               {"reads", nlohmann::json(results.reads)},
               {"peers", nlohmann::json(results.peers)},
               {"rows", Json::array()},
               {"first_calls", nlohmann::json(results.first_calls)}};
  for (const verify::IsaStatus& status : results.isas) json["isas"].push_back(verify::ToJson(status));
  for (const Row& row : results.rows) json["rows"].push_back(ToJson(row));
  return json;
}

}  // namespace intact::bench
