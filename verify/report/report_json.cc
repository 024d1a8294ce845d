#include "verify/report/report_json.h"

#include <fmt/format.h>

#include <cmath>

#include "core/isas.h"
#include "verify/explain/pairing.h"
#include "verify/report/schemas.h"

namespace intact::verify {
namespace {

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

/// JSON has no infinity.
Json Finite(double value) { return std::isfinite(value) ? Json(value) : Json(); }

template <class Range, class... Conv>
Json ArrayOf(const Range& values, const Conv&... conv) {
  Json array = Json::array();
  for (const auto& value : values) array.push_back(ToJson(value, conv...));
  return array;
}

/// Adds what row m means in a convolution.
void AddOutputPlace(const MaybeConv& conv, int64_t m, Json* json) {
  if (!conv) return;
  const reference::Pixel pixel = reference::PixelOf(*conv, m);
  (*json)["batch"] = pixel.batch;
  (*json)["output"] = OfItsDimensions(*conv, pixel.at);
}

/// Adds what depths k and k1 of column n mean in a convolution.
void AddPairPlace(const MaybeConv& conv, int64_t n, int64_t k, int64_t k1, Json* json) {
  if (!conv) return;
  const std::vector<int64_t> tap = OfItsDimensions(*conv, reference::TapChannelOf(*conv, k).tap);
  const std::vector<int64_t> tap1 = OfItsDimensions(*conv, reference::TapChannelOf(*conv, k1).tap);
  (*json)["tap"] = tap;
  if (tap1 != tap) (*json)["tap1"] = tap1;
  (*json)["channels"] = {InputChannel(*conv, n, k), InputChannel(*conv, n, k1)};
}

Json ToJson(const Witness& witness, const MaybeConv& conv) {
  Json json = {{"n", witness.n},   {"k", witness.k},   {"k1", witness.k1}, {"a0", witness.a0},
               {"a1", witness.a1}, {"w0", witness.w0}, {"w1", witness.w1}, {"sum", witness.sum}};
  AddPairPlace(conv, witness.n, witness.k, witness.k1, &json);
  return json;
}

/// What made a layer's outputs, and why they differ from exact outputs.
Json IdentityJson(const Identity& identity, const Comparison& exact) {
  Json others = Json::array();
  for (const reference::Model& model : identity.OtherModels()) others.push_back(reference::ToString(model));
  return {{"computes", InWords(identity, exact)},
          {"arithmetic", reference::ToString(identity.arithmetic)},
          {"saturation_shows", identity.would_show_clamping},
          {"unexplained_by_it", identity.unexplained},
          {"first_unexplained", identity.Found() ? Json() : Json(identity.first_place)},
          {"also_reproduced_by", identity.Found() ? others : Json::array()},
          {"differing_from_exact", exact.differing},
          {"max_abs_difference", Finite(exact.max_abs_difference)},
          {"causes", CausesJson(exact.by_cause)},
          {"differences", ArrayOf(exact.listed, exact.conv)}};
}

/// What to set reduce_range to, for each ISA and for this CPU.
Json Advice() {
  Json advice = {{"exact_mode", "irrelevant"}};
  for (const intact_isa isa : core::kIsaLadder) advice[intact_isa_name(isa)] = core::SaturatesInt16(isa);
  const intact_isa best = BestIsa();
  advice["this_cpu"] = best == INTACT_ISA_ANY ? Json() : Json(core::SaturatesInt16(best));
  return advice;
}

Json CountJson(const ClampCount& count) {
  return {{"high", count.high}, {"low", count.low}, {"total", count.Total()}};
}

Json ToJson(const intact_certificate& certificate) {
  return {{"pairing", NameOf(static_cast<intact_pairing>(certificate.pairing))},
          {"a_min", certificate.a_min},
          {"a_max", certificate.a_max},
          {"pairs", certificate.pairs},
          {"failing_pairs", certificate.failing_pairs},
          {"failing_share",
           static_cast<double>(certificate.failing_pairs) / static_cast<double>(certificate.pairs)},
          {"worst_channel", certificate.worst_column},
          {"worst_channel_failing_pairs", certificate.worst_column_failing_pairs},
          {"accumulator_min", certificate.accumulator_min},
          {"accumulator_max", certificate.accumulator_max}};
}

/// Counts over both widths in bits: activations in [0, 2^a − 1], weight magnitudes up to 2^(w−1).
Json WidthTable(const ClampTable& table) {
  Json rows = Json::array();
  for (int a = 1; a <= 8; ++a) {
    for (int w = 1; w <= 8; ++w) {
      rows.push_back({{"activation_bits", a},
                      {"weight_bits", w},
                      {"clamped", table.Within((1 << a) - 1, 1 << (w - 1)).Total()}});
    }
  }
  return rows;
}

}  // namespace

Json ToJson(const SaturatedPair& pair, const MaybeConv& conv) {
  Json json = {{"m", pair.m},
               {"n", pair.n},
               {"k", pair.k},
               {"k1", pair.k1},
               {"a0", pair.a0},
               {"a1", pair.a1},
               {"w0", pair.w0},
               {"w1", pair.w1},
               {"true_sum", pair.true_sum},
               {"clamped_sum", pair.clamped_sum}};
  AddOutputPlace(conv, pair.m, &json);
  AddPairPlace(conv, pair.n, pair.k, pair.k1, &json);
  return json;
}

Json ToJson(const Difference& difference, const MaybeConv& conv) {
  Json json = {{"m", difference.m},
               {"n", difference.n},
               {"expected", Finite(difference.expected)},
               {"actual", Finite(difference.actual)},
               {"accumulator", difference.accumulator},
               {"cause", ToString(difference.cause)},
               {"detail", difference.detail},
               {"saturated_pairs", difference.pair_count},
               {"pairs", ArrayOf(difference.pairs, conv)}};
  AddOutputPlace(conv, difference.m, &json);
  return json;
}

Json ToJson(const BoundAudit& audit, const MaybeConv& conv) {
  Json json = {{"premise", audit.premise},
               {"premise_holds", audit.premise_holds},
               {"activation_bound", {audit.bound.low, audit.bound.high}},
               {"pairs_at_risk", audit.pairs_at_risk},
               {"verdict", ToString(audit.verdict)}};
  json["witness"] = audit.witness ? ToJson(*audit.witness, conv) : Json();
  return json;
}

Json ToJson(const Kink& kink) {
  return {{"row", kink.m},
          {"n", kink.n},
          {"activations", {kink.activation_before, kink.activation}},
          {"outputs", {kink.output_before, kink.output}},
          {"explained", kink.explained},
          {"saturated_pairs", kink.pair_count},
          {"pairs", ArrayOf(kink.pairs, MaybeConv())}};
}

Json ToJson(const Audit& audit) {
  Json json = {{"pairing", NameOf(audit.pairs)},
               {"verdict", ToString(audit.verdict())},
               {"max_activation", audit.max_activation},
               {"min_activation", audit.min_activation},
               {"max_weight", audit.max_weight},
               {"weight_pairs", audit.weight_pairs},
               {"clamped_pairs", audit.clamped_pairs},
               {"largest_safe_activation", audit.largest_safe_activation},
               {"stated", ToJson(audit.stated, audit.conv)}};
  for (const BoundAudit& remedy : audit.remedies) json[remedy.name] = ToJson(remedy, audit.conv);
  json["set_reduce_range"] = Advice();
  json["sqnr_7bit_activations_db"] = OrNull(audit.sqnr_7bit_activations_db);
  json["sqnr_7bit_weights_db"] = OrNull(audit.sqnr_7bit_weights_db);
  return json;
}

Json ToJson(const LayerCheck& check) {
  const Comparison& exact = check.against_exact;
  Json json = {{"layer", check.layer}, {"operator", check.op}, {"outputs", exact.outputs}};
  if (check.identity) {
    json["target"] = check.target;
    json["computed"] = IdentityJson(*check.identity, exact);
    json["as_claimed"] = !check.is_broken;
  } else {
    json["isa"] = intact_isa_name(check.isa);
    json["mode"] = ToString(check.mode);
    json["model"] = reference::ToString(check.model);
    json["differing_from_model"] = check.against_model->differing;
  }
  json["expect"] = check.against_expected ? Json(check.expect_file) : Json();
  json["differing"] = check.against_expected ? check.against_expected->differing : exact.differing;
  json["max_abs_difference"] =
      Finite(check.against_expected ? check.against_expected->max_abs_difference : exact.max_abs_difference);
  json["differing_from_exact"] = exact.differing;
  json["saturated_accumulators"] = exact.saturated_accumulators;
  json["saturated_pairs"] = exact.saturated_pairs;
  json["explained"] = exact.Explained();
  json["unexplained"] = exact.Unexplained();
  json["causes"] = CausesJson(exact.by_cause);
  if (check.expected_identity) {
    json["expected"] = IdentityJson(*check.expected_identity, *check.expected_against_exact);
  }
  json["digest"] = fmt::format("{:016x}", exact.digest);
  json["recorded"] = Json::array();
  for (const Recorded& recorded : check.recorded) {
    Json entry = {{"file", recorded.file},
                  {"engines", EnginesInWords(recorded.identity.arithmetic, recorded.as_engines_see_it)}};
    entry.update(IdentityJson(recorded.identity, recorded.against_exact));
    json["recorded"].push_back(std::move(entry));
  }
  json["reduce_range"] = ArrayOf(check.audits);
  json["differences"] = ArrayOf(exact.listed, exact.conv);
  return json;
}

Json ToJson(const Cost& cost) {
  Json timings = Json::array();
  for (const Timing& timing : cost.timings) {
    const std::optional<Time>& time = timing.time;
    timings.push_back({{"isa", intact_isa_name(timing.isa)},
                       {"mode", ToString(timing.mode)},
                       {"seven_bits", timing.seven_bits},
                       {"kernel", timing.kernel},
                       {"right", time.has_value()},
                       {"microseconds", time ? Json(time->microseconds) : Json()},
                       {"spread", time ? Json(time->spread) : Json()},
                       {"speed_up", OrNull(cost.SpeedUp(timing))},
                       {"items_per_quad", OrNull(timing.ItemsPerQuad())},
                       {"groups_per_quad", OrNull(timing.GroupsPerQuad())}});
  }
  const intact_certificate* certificate = cost.FullRangeCertificate();
  return {{"layer", cost.layer},
          {"m", cost.m},
          {"n", cost.n},
          {"k", cost.k},
          {"threads", 1},
          {"why_not_seven_bits", cost.why_not_seven_bits},
          {"certificate", certificate == nullptr ? Json() : ToJson(*certificate)},
          {"timings", timings}};
}

Json ToJson(const PairMap& map) {
  const ClampTable& counts = map.instruction_available ? map.by_instruction : map.by_model;
  const auto whole = [](const ClampTable& table) {
    return table.Within(ClampTable::kActivations - 1, ClampTable::kMagnitudes - 1);
  };
  Json json = {{"inputs", map.inputs},
               {"clamped_high", whole(counts).high},
               {"clamped_low", whole(counts).low},
               {"counted_by", map.instruction_available ? "vpmaddubsw" : "model"},
               {"model", CountJson(whole(map.by_model))},
               {"instruction", map.instruction_available ? CountJson(whole(map.by_instruction)) : Json()},
               {"instruction_mismatches", map.instruction_mismatches},
               {"agrees", map.Agrees()},
               {"seconds", map.seconds}};
  for (int amax = 1; amax < ClampTable::kActivations; ++amax) {
    json["clamped_by_activation_max"][std::to_string(amax)] =
        counts.Within(amax, ClampTable::kMagnitudes - 1).Total();
  }
  for (int wmax = 1; wmax < ClampTable::kMagnitudes; ++wmax) {
    json["clamped_by_weight_magnitude_max"][std::to_string(wmax)] =
        counts.Within(ClampTable::kActivations - 1, wmax).Total();
  }
  json["clamped_by_widths"] = WidthTable(counts);
  return json;
}

Json ToJson(const SaturationMap& map) {
  Json cells = Json::array();
  for (const SaturationCell& cell : map.cells) {
    cells.push_back({{"amax", cell.problem.amax},
                     {"wmax", cell.problem.wmax},
                     {"problem", cell.problem.ToString()},
                     {"outputs", cell.outputs},
                     {"predicted", cell.predicted},
                     {"measured", OrNull(cell.measured)},
                     {"mispredicted", cell.mispredicted},
                     {"share", cell.Share()},
                     {"max_abs_error", Finite(cell.max_abs_error)},
                     {"witness", cell.witness ? ToJson(*cell.witness, std::nullopt) : Json()}});
  }
  return {{"isa", intact_isa_name(map.isa)},
          {"measured", map.measured},
          {"agrees", map.Agrees()},
          {"cells", cells}};
}

Json ToJson(const Ramp& ramp) {
  const int64_t column = ramp.ShownColumn();
  Json outputs = Json::array(), exact = Json::array();
  for (int64_t m = 0; m < ramp.steps; ++m) {
    const auto at = static_cast<size_t>(m * ramp.columns + column);
    outputs.push_back(ramp.outputs[at]);
    exact.push_back(ramp.exact[at]);
  }
  return {{"layer", ramp.layer},
          {"isa", intact_isa_name(ramp.isa)},
          {"mode", ToString(ramp.mode)},
          {"steps", ramp.steps},
          {"columns", ramp.columns},
          {"outputs", ramp.steps * ramp.columns},
          {"non_monotonic", ramp.NonMonotonic()},
          {"columns_with_kinks", ramp.ColumnsWithKinks()},
          {"explained", ramp.NonMonotonic() - ramp.Unexplained()},
          {"unexplained", ramp.Unexplained()},
          {"shown",
           {{"column", column}, {"activations", ramp.activations}, {"outputs", outputs}, {"exact", exact}}},
          {"kinks", ArrayOf(ramp.kinks)}};
}

Json ToJson(const support::Machine& machine) {
  return {{"cpu", machine.cpu},
          {"family", machine.family},
          {"model", machine.model},
          {"stepping", machine.stepping},
          {"microcode", machine.microcode},
          {"cores", machine.cores},
          {"threads", machine.threads},
          {"online_threads", machine.online_threads},
          {"threads_per_core", machine.threads_per_core},
          {"l1d_bytes", machine.l1d_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"l1d_threads", machine.l1d_threads},
          {"l2_threads", machine.l2_threads},
          {"l3_threads", machine.l3_threads}};
}

Json ToJson(const support::IsaStatus& status) {
  return {{"isa", intact_isa_name(status.isa)},
          {"available", status.available},
          {"reason", status.reason},
          {"saturates", core::SaturatesInt16(status.isa)},
          {"reduce_range", core::SaturatesInt16(status.isa)}};
}

Json ToJson(const LayerAudit& audit) {
  Json json = {{"layer", audit.layer}};
  json.update(ToJson(audit.audit));
  return json;
}

Json CausesJson(const std::array<int64_t, kCauseCount>& by_cause) {
  Json json = Json::object();
  for (size_t cause = 0; cause < by_cause.size(); ++cause) {
    json[std::string(ToString(static_cast<Cause>(cause)))] = by_cause[cause];
  }
  return json;
}

Json ToJson(const SweepCell& cell) {
  return {{"isa", intact_isa_name(cell.isa)},
          {"mode", ToString(cell.mode)},
          {"problems", cell.problems},
          {"skipped", cell.skipped},
          {"failed", cell.failed},
          {"outputs", cell.outputs},
          {"differing", cell.differing},
          {"explained", cell.differing - cell.Unexplained()},
          {"unexplained", cell.Unexplained()},
          {"causes", CausesJson(cell.by_cause)}};
}

Json ToJson(const SweepFailure& failure) {
  return {{"problem", failure.problem},
          {"reason", failure.reason},
          {"kind", failure.kind},
          {"minimised", failure.minimised},
          {"minimised_reason", failure.minimised_reason}};
}

Json ToJson(const SweepSkip& skip) { return {{"problem", skip.problem}, {"reason", skip.reason}}; }

Json ToJson(const Tried& tried) {
  return {{"m", tried.m},
          {"n", tried.n},
          {"k", tried.k},
          {"batch", tried.batch},
          {"threads", tried.threads},
          {"calls", tried.calls}};
}

Json ToJson(const SweepResult& sweep) {
  Json json = {
      {"cells", ArrayOf(sweep.cells)}, {"skipped", ArrayOf(sweep.skips)}, {"digests", Json::object()}};
  for (const SweepDigest& digest : sweep.digests) {
    json["digests"][digest.problem] = fmt::format("{:016x}", digest.digest);
  }
  json["tried"] = ToJson(sweep.tried);
  if (sweep.not_run > 0) json["not_run"] = {{"problems", sweep.not_run}, {"reason", sweep.why_not_run}};
  return json;
}

namespace {

Json ToJson(const Mixture::Sizes& sizes) { return {{"m", sizes[0]}, {"n", sizes[1]}, {"k", sizes[2]}}; }

Json ToJson(const Mixture::Others& others) {
  return {{"problems", others.problems},
          {"example", others.example},
          {"known", others.known},
          {"sizes", ToJson(others.sizes)}};
}

}  // namespace

Json ToJson(const std::vector<Mixture>& mixtures) {
  Json all = Json::array();
  for (const Mixture& mixture : mixtures) {
    Json parts = Json::array();
    for (const Mixture::Part& part : mixture.parts) {
      parts.push_back({{"arithmetic", reference::ToString(part.arithmetic)},
                       {"in_words", InWords(part.arithmetic)},
                       {"problems", part.problems},
                       {"sizes", ToJson(part.sizes)}});
    }
    all.push_back({{"operation", mixture.operation},
                   {"problems", mixture.problems},
                   {"exact", mixture.exact},
                   {"telling", mixture.would_show_clamping},
                   {"parts", std::move(parts)},
                   {"in_parts", ToJson(mixture.in_parts)},
                   {"unexplained", ToJson(mixture.unexplained)},
                   {"without_outputs", ToJson(mixture.without_outputs)},
                   {"not_explained", mixture.not_explained},
                   {"in_words", InWords(mixture)}});
  }
  return all;
}

Json ToJson(const RandomSweepResult& random) {
  return {{"seed", random.options.seed},          {"stream", random.options.stream},
          {"cells", ArrayOf(random.sweep.cells)}, {"failures", ArrayOf(random.sweep.failures)},
          {"problems", random.problems},          {"tried", ToJson(random.sweep.tried)}};
}

// Of grouped weights.
Json ToJson(const Judgement& judgement) {
  const GroupedNaming& naming = *judgement.comparison.grouped;
  return {{"outputs", judgement.comparison.outputs},
          {"differing", judgement.comparison.differing},
          {"arithmetic", naming.arithmetic},
          {"share_of_bound", naming.error ? Json(*naming.error) : Json()},
          {"failure", judgement.failure}};
}

Json ToJson(const GroupedLayerCheck& check) {
  const intact_pairs_certificate& certificate = check.certificate;
  Json json = {{"layer", check.layer},
               {"operation", check.operation},
               {"by", check.by},
               {"passed", check.Passed()},
               {"output", ToJson(check.judgement)},
               {"certificate",
                {{"pairs", certificate.pairs},
                 {"failing_pairs", certificate.failing_pairs},
                 {"largest_sum", certificate.largest_sum},
                 {"safe_activation", certificate.safe_activation}}},
               {"recorded", Json::object()}};
  for (const auto& [file, judgement] : check.recorded) json["recorded"][file] = ToJson(judgement);
  if (check.unexpected) json["unexpected"] = *check.unexpected;
  return json;
}

Json ToJson(const Report& report) {
  std::vector<SweepFailure> failures = report.sweep.failures;
  failures.insert(failures.end(), report.grouped.failures.begin(), report.grouped.failures.end());
  const auto of = [&](const char* part, Json json) { return report.Has(part) ? std::move(json) : Json(); };
  return {{"schema", kReportSchema.name},
          {"schema_version", kReportSchema.version},
          {"version", intact_version()},
          {"parity", report.Parity()},
          {"missing", report.missing},
          {"machine", ToJson(report.machine)},
          {"isas", ArrayOf(report.isas)},
          {"pair_map", ToJson(report.pairs)},
          {"saturation_map", of(kSaturationMap, ToJson(report.map))},
          {"ramp", of(kRamp, ArrayOf(report.ramps))},
          {"reduce_range", of(kReduceRange, ArrayOf(report.audits))},
          {"cost", of(kCost, ArrayOf(report.costs))},
          {"failures", ArrayOf(failures)},
          {"sweep", ToJson(report.sweep)},
          {"grouped_sweep", ToJson(report.grouped)}};
}

}  // namespace intact::verify
