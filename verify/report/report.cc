#include "verify/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "support/counted.h"
#include "verify/studies/layer.h"

namespace intact::verify {

namespace {

// Whether no part but the sweeps shows a fault. Missing parts show none.
bool IsRightBesideSweeps(const Report& report) {
  return report.pairs.Agrees() && report.map.Agrees() &&
         std::ranges::all_of(report.ramps, [](const Ramp& ramp) { return ramp.Passed(); }) &&
         std::ranges::all_of(report.costs, [](const Cost& cost) { return cost.AllRight(); });
}

}  // namespace

bool Report::Parity() const {
  return missing.empty() && IsRightBesideSweeps(*this) && sweep.Passed() && grouped.Passed();
}

bool Report::IsUnfinished() const {
  const auto can_pass = [](const SweepResult& result) {
    return result.Passed() || result.Verdict() == SweepVerdict::kUnfinished;
  };
  return !Parity() && IsRightBesideSweeps(*this) && can_pass(sweep) && can_pass(grouped);
}

bool Report::Has(std::string_view part) const { return std::ranges::find(missing, part) == missing.end(); }

std::string Report::MissingText() const {
  std::vector<std::string> parts = missing;
  for (const auto& [name, result] : {std::pair("sweep", &sweep), std::pair("grouped weights", &grouped)}) {
    if (result->IsOutOfTime())
      parts.push_back(fmt::format("{} of {}", support::Counted(result->not_run, "problem"), name));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

Result<std::vector<Ramp>> RunBuiltinRamps() {
  std::vector<Ramp> ramps;
  const std::vector<Layer> layers = BuiltinLayers();
  for (const intact_mode mode : {INTACT_SATURATING, INTACT_EXACT}) {
    for (const intact_isa isa : core::kIsaLadder) {
      for (const Layer& layer : layers) {
        Result<Ramp> ramp = RunRamp(layer, mode, isa);
        if (!ramp && ramp.error().status == INTACT_UNSUPPORTED) continue;  // not on this machine
        if (!ramp) return ramp.error();
        ramps.push_back(std::move(*ramp));
      }
    }
  }
  return ramps;
}

std::vector<LayerAudit> AuditBuiltinLayers() {
  std::vector<LayerAudit> audits;
  for (const Layer& layer : BuiltinLayers()) {
    audits.push_back({layer.name, AuditReduceRange(layer.gemm(), layer.reduce_range)});
  }
  return audits;
}

}  // namespace intact::verify
