// The verifier's findings as JSON. What the fields of report.json mean is told in verify/report.h.
#ifndef INTACT_VERIFY_REPORT_JSON_H_
#define INTACT_VERIFY_REPORT_JSON_H_

#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "verify/audit.h"
#include "verify/cost.h"
#include "verify/layer_check.h"
#include "verify/mixture.h"
#include "verify/pairs.h"
#include "verify/place.h"
#include "verify/ramp.h"
#include "verify/random_sweep.h"
#include "verify/report.h"
#include "verify/saturation_map.h"
#include "verify/sweep.h"

namespace intact::verify {

using Json = nlohmann::ordered_json;

Json ToJson(const SaturatedPair& pair, const MaybeConv& conv);
Json ToJson(const Difference& difference, const MaybeConv& conv);
Json ToJson(const BoundAudit& audit, const MaybeConv& conv);
Json ToJson(const Audit& audit);
Json ToJson(const LayerCheck& check);
Json ToJson(const Cost& cost);
Json ToJson(const PairMap& map);
Json ToJson(const SaturationMap& map);
Json ToJson(const Kink& kink);
Json ToJson(const Ramp& ramp);

Json ToJson(const Machine& machine);
Json ToJson(const IsaStatus& status);
Json ToJson(const LayerAudit& audit);
/// How many outputs differ for each cause.
Json CausesJson(const std::array<int64_t, kCauseCount>& by_cause);
Json ToJson(const SweepCell& cell);
Json ToJson(const SweepFailure& failure);
Json ToJson(const SweepSkip& skip);
Json ToJson(const SweepResult& sweep);

Json ToJson(const std::vector<Mixture>& mixtures);
/// blocks[]: what each has met of so many edges, fills, types and combinations.
Json ToJson(const RandomSweepResult& random);
Json ToJson(const Report& report);

/// Writes a report's two files, each whole or not at all; neither appears before both are written.
std::optional<Error> WriteReportFiles(const Json& report, const std::string& page, const ReportFiles& files);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_JSON_H_
