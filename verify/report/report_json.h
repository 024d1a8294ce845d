// The verifier's findings as JSON. verify/report/report.h describes the fields of report.json.
#ifndef INTACT_VERIFY_REPORT_REPORT_JSON_H_
#define INTACT_VERIFY_REPORT_REPORT_JSON_H_

#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <nlohmann/json.hpp>

#include "support/json_file.h"
#include "verify/explain/audit.h"
#include "verify/problem/place.h"
#include "verify/report/report.h"
#include "verify/studies/cost.h"
#include "verify/studies/grouped_layer_check.h"
#include "verify/studies/layer_check.h"
#include "verify/studies/pairs.h"
#include "verify/studies/ramp.h"
#include "verify/studies/saturation_map.h"
#include "verify/sweep/mixture.h"
#include "verify/sweep/random_sweep.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {

using support::Json;

Json ToJson(const SaturatedPair& pair, const MaybeConv& conv);
Json ToJson(const Difference& difference, const MaybeConv& conv);
Json ToJson(const BoundAudit& audit, const MaybeConv& conv);
Json ToJson(const Audit& audit);
Json ToJson(const LayerCheck& check);
Json ToJson(const GroupedLayerCheck& check);
Json ToJson(const Cost& cost);
Json ToJson(const PairMap& map);
Json ToJson(const SaturationMap& map);
Json ToJson(const Kink& kink);
Json ToJson(const Ramp& ramp);

Json ToJson(const support::Machine& machine);
Json ToJson(const support::IsaStatus& status);
Json ToJson(const LayerAudit& audit);
/// How many outputs differ for each cause.
Json CausesJson(const std::array<int64_t, kCauseCount>& by_cause);
Json ToJson(const SweepCell& cell);
Json ToJson(const SweepFailure& failure);
Json ToJson(const SweepSkip& skip);
Json ToJson(const Tried& tried);
Json ToJson(const SweepResult& sweep);

Json ToJson(const std::vector<Mixture>& mixtures);
Json ToJson(const RandomSweepResult& random);
Json ToJson(const Report& report);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_JSON_H_
