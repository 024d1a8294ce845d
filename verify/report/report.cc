#include "verify/report/report.h"

#include <algorithm>
#include <array>

#include "core/isas.h"
#include "core/result.h"
#include "verify/studies/layer.h"

namespace intact::verify {

bool Report::Parity() const {
  return pairs.Agrees() && map.Agrees() && sweep.Passed() && grouped.Passed() &&
         std::ranges::all_of(ramps, [](const Ramp& ramp) { return ramp.Passed(); }) &&
         std::ranges::all_of(costs, [](const Cost& cost) { return cost.AllRight(); });
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
