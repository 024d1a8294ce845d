#include "verify/report/report_terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include "core/isas.h"
#include "support/counted.h"
#include "support/origin.h"
#include "verify/explain/pairing.h"
#include "verify/problem/problem.h"

namespace intact::verify {
namespace {

constexpr int64_t kListedInTerminal = 8;
constexpr size_t kPairsInTerminal = 2;

/// Lines of "  label    text", aligned.
class Lines {
 public:
  template <class... Args>
  void Add(std::string_view label, fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), "  {:<30} ", label);
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

std::string Percent(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string DifferenceCount(int64_t differing, int64_t outputs, double max_abs_difference) {
  if (differing == 0) return "equal, " + support::AllOf(outputs, "output");
  return fmt::format("{} ({}), by up to {}",
                     support::PartOf(differing, outputs, "output", "differs", "differ"),
                     Percent(differing, outputs), max_abs_difference);
}

std::string Causes(const Comparison& comparison) {
  std::string text;
  for (int cause = 0; cause < kCauseCount; ++cause) {
    const int64_t count = comparison.by_cause[static_cast<size_t>(cause)];
    if (count == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, ToString(static_cast<Cause>(cause)));
  }
  return text;
}

std::string PairList(const std::vector<SaturatedPair>& pairs, int64_t pair_count, const MaybeConv& conv,
                     std::string_view indent) {
  std::string text;
  for (size_t i = 0; i < std::min(pairs.size(), kPairsInTerminal); ++i) {
    text += fmt::format("{}{}\n", indent, Describe(pairs[i], conv));
  }
  const int64_t rest = pair_count - static_cast<int64_t>(std::min(pairs.size(), kPairsInTerminal));
  if (rest > 0) text += fmt::format("{}and {}\n", indent, support::Counted(rest, "more pair"));
  return text;
}

/// Why outputs differ, and the first differences.
std::string DifferenceList(const Comparison& comparison, int64_t max_listed) {
  if (comparison.differing == 0) return {};
  Lines lines;
  lines.Add("why", "{}", Causes(comparison));
  std::string text = std::move(lines).text();
  const int64_t listed = std::min(max_listed, static_cast<int64_t>(comparison.listed.size()));
  for (int64_t i = 0; i < listed; ++i) {
    const Difference& difference = comparison.listed[static_cast<size_t>(i)];
    text +=
        fmt::format("    [{}] {} instead of {}: {}; {}\n", PlaceOf(comparison, difference), difference.actual,
                    difference.expected, ToString(difference.cause), difference.detail);
    text += PairList(difference.pairs, difference.pair_count, comparison.conv, "      ");
  }
  const int64_t rest = comparison.differing - listed;
  if (rest > 0) text += fmt::format("    and {} more\n", rest);
  return text;
}

/// How the expected output compares with exact, except for the line that says what made it.
std::string ExpectedText(const LayerCheck& check) {
  const Comparison& exact = *check.expected_against_exact;
  Lines lines;
  lines.Add(check.expect_file + " against exact", "{}",
            DifferenceCount(exact.differing, exact.outputs, exact.max_abs_difference));
  // An output equal to ours has our differences, which are listed below.
  const int64_t listed = check.against_expected->differing == 0 ? 0 : kListedInTerminal;
  return std::move(lines).text() + (listed == 0 ? std::string() : DifferenceList(exact, listed));
}

std::string Decibels(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f} dB", *value) : "nothing";
}

void AddBound(const BoundAudit& audit, const MaybeConv& conv, Lines* lines) {
  lines->Add(fmt::format("  {}", audit.name), "{:<13}  {}; {} weight pairs at risk", InWords(audit.verdict),
             audit.premise, audit.pairs_at_risk);
  if (!audit.witness) return;
  const Witness& w = *audit.witness;
  lines->Add("", "{:<13}  e.g. {} {} {}: {}*{} + {}*{} = {}", "", conv ? "oc" : "n", w.n,
             PairPlace(conv, w.n, w.k, w.k1), w.a0, w.w0, w.a1, w.w1, w.sum);
}

std::string Optional(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "-";
}

std::string CertificateLine(const intact_certificate& certificate) {
  if (certificate.failing_pairs == 0) return "no weight pair can saturate";
  return fmt::format("{} of {} weight pairs can saturate ({}), {} of them in channel {}",
                     certificate.failing_pairs, certificate.pairs,
                     Percent(certificate.failing_pairs, certificate.pairs),
                     certificate.worst_column_failing_pairs, certificate.worst_column);
}

/// A layer's line, and one per ISA.
std::string CostRows(const Cost& cost) {
  const intact_certificate* certificate = cost.FullRangeCertificate();
  std::string text = fmt::format("  {} (M {}, N {}, K {}){}{}\n", cost.layer, cost.m, cost.n, cost.k,
                                 certificate == nullptr ? "" : ": ",
                                 certificate == nullptr ? "" : CertificateLine(*certificate));
  for (const Timing& exact : cost.timings) {
    if (exact.mode != INTACT_EXACT || exact.seven_bits) continue;
    text += fmt::format("    {:<13} {:>18} {:>24} {:>24} {:>11} {:>12}\n", intact_isa_name(exact.isa),
                        Describe(cost, cost.Find(exact.isa, INTACT_SATURATING, false)),
                        Describe(cost, &exact), Describe(cost, cost.Find(exact.isa, INTACT_EXACT, true)),
                        Optional(exact.ItemsPerQuad()), Optional(exact.GroupsPerQuad()));
  }
  if (cost.why_not_seven_bits.empty()) return text;
  return text + fmt::format("    7 bits do not apply: {}\n", cost.why_not_seven_bits);
}

/// A line for each run: its digest, and the command that repeats it.
std::string RunList(std::string_view report, const std::vector<DigestedRun>& runs) {
  std::string text;
  for (const DigestedRun& run : runs) {
    text += fmt::format("  {} {}  {}\n", report, run.digest, ReplayCommand(run.problem, run.target));
  }
  return text;
}

/// One cell of the map: a dot, or a block. It is darker if more outputs differ.
std::string_view Shade(double share) {
  if (share == 0) return ". ";
  if (share < 0.05) return "░░";
  if (share < 0.25) return "▒▒";
  if (share < 0.75) return "▓▓";
  return "██";
}

}  // namespace

std::string Describe(const SaturatedPair& pair, const MaybeConv& conv) {
  return fmt::format("{} {}: {}*{} + {}*{} = {}, clamped to {}", OutputPlace(conv, pair.m, pair.n),
                     PairPlace(conv, pair.n, pair.k, pair.k1), pair.a0, pair.w0, pair.a1, pair.w1,
                     pair.true_sum, pair.clamped_sum);
}

std::string Describe(const Cost& cost, const Timing* timing) {
  if (timing == nullptr) return "-";
  if (!timing->time) return "WRONG: not timed";
  const std::optional<double> speed_up = cost.SpeedUp(*timing);
  const bool has_ratio = speed_up && timing->mode == INTACT_EXACT;
  return fmt::format("{:.1f} us {:3.0f} %{}", timing->time->microseconds, 100 * timing->time->spread,
                     has_ratio ? fmt::format(" {:6.2f}x", *speed_up) : "");
}

std::string ToText(const Comparison& comparison, int64_t max_listed) {
  if (comparison.grouped) {
    return fmt::format("{}: {}\n", support::Counted(comparison.outputs, "output"),
                       comparison.grouped->InWords());
  }
  Lines lines;
  lines.Add("against the exact reference", "{}",
            DifferenceCount(comparison.differing, comparison.outputs, comparison.max_abs_difference));
  lines.Add("int16 intermediates", "{} of {} would clamp ({})", comparison.saturated_accumulators,
            support::Counted(comparison.outputs, "accumulator"),
            support::Counted(comparison.saturated_pairs, "pair sum"));
  return std::move(lines).text() + DifferenceList(comparison, max_listed);
}

std::string BytesText(int64_t bytes) {
  if (bytes == 0) return "unknown";
  return bytes % (1 << 20) == 0 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

std::string CpuText(const support::Machine& machine) {
  return fmt::format("{}, family {}, model {}, stepping {}{}", machine.cpu, machine.family, machine.model,
                     machine.stepping,
                     machine.microcode.empty() ? std::string() : ", microcode " + machine.microcode);
}

std::string CoresText(const support::Machine& machine) {
  const auto count = [](int64_t number, std::string_view noun) { return support::Counted(number, noun); };
  if (machine.threads == 0) return "cores unknown";
  std::string text = machine.cores == 0 ? "cores unknown" : count(machine.cores, "core");
  const bool are_all = machine.threads >= machine.online_threads;
  text += are_all ? ", " + count(machine.threads, "thread")
                  : fmt::format(", {} of {} online threads", machine.threads, machine.online_threads);
  if (machine.threads_per_core != 0) {
    const bool are_alike = machine.cores * machine.threads_per_core == machine.threads;
    text += fmt::format(" ({}{} per core)", are_alike ? "" : "up to ", machine.threads_per_core);
  }
  return text;
}

std::string CachesText(const support::Machine& machine) {
  const auto cache = [](std::string_view name, int64_t bytes, int64_t threads) {
    const bool is_shared = bytes != 0 && threads > 1;
    return fmt::format("{} {}{}", name, BytesText(bytes),
                       is_shared ? fmt::format(" per {} threads", threads) : "");
  };
  return cache("L1d", machine.l1d_bytes, machine.l1d_threads) + ", " +
         cache("L2", machine.l2_bytes, machine.l2_threads) + ", " +
         cache("L3", machine.l3_bytes, machine.l3_threads);
}

std::string ToText(const support::Machine& machine) {
  Lines lines;
  lines.Add("CPU", "{}", CpuText(machine));
  lines.Add("this process may use", "{}", CoresText(machine));
  lines.Add("caches", "{}", CachesText(machine));
  lines.Add("table of the cost models", "{}", machine.costs);
  return std::move(lines).text();
}

std::string ToText(const std::vector<support::IsaStatus>& isas) {
  std::string text =
      fmt::format("\n  {:<13} {:<5} {:<38} {}\n", "ISA", "here", "int8 dot product", "reduce_range");
  for (const support::IsaStatus& status : isas) {
    const bool saturates = core::SaturatesInt16(status.isa);
    text += fmt::format(
        "  {:<13} {:<5} {:<38} {:<6}{}\n", intact_isa_name(status.isa), status.available ? "yes" : "no",
        saturates ? "vpmaddubsw: saturates in int16" : "int32 accumulation: does not saturate",
        saturates ? "True" : "False",
        status.available ? std::string() : fmt::format("  ({})", status.reason));
  }
  return text +
         "\n  Libraries that saturate need reduce_range as above; intact's exact mode needs none on any "
         "ISA.\n";
}

// "adjacent channels of a tap (oneDNN, OpenVINO)"
std::string PairingText(const Audit& audit) {
  return fmt::format("{} ({})", InWords(audit.pairs), InWords(EnginesWith(audit.pairs, audit.layer)));
}

std::string ToText(const Audit& audit) {
  Lines lines;
  lines.Add("pairs", "{}", PairingText(audit));
  lines.Add("reduce_range", "{} ({}; activations seen {} to {}, {} of {} at risk)", InWords(audit.verdict()),
            audit.stated.premise, audit.min_activation, audit.max_activation, audit.stated.pairs_at_risk,
            support::Counted(audit.weight_pairs, "weight pair"));
  for (const BoundAudit& remedy : audit.remedies) AddBound(remedy, audit.conv, &lines);
  lines.Add("  no u8 input can saturate up to", "{}", audit.largest_safe_activation);
  lines.Add("  7 bits would cost", "activations: {}, weights: {} (noise below the output)",
            Decibels(audit.sqnr_7bit_activations_db), Decibels(audit.sqnr_7bit_weights_db));
  if (audit.verdict() == Verdict::kProven) {
    lines.Add("  reduce_range is", "not needed on any CPU: no input within the premise can saturate");
    return std::move(lines).text();
  }
  const intact_isa best = BestIsa();
  lines.Add("  set reduce_range to", "{} on this CPU ({}); True on avx2 and avx512, False on VNNI and AMX;",
            core::SaturatesInt16(best) ? "True" : "False", intact_isa_name(best));
  lines.Add("", "in exact mode it does not matter");
  return std::move(lines).text();
}

// One audit for each pairing: another pairing may give another verdict.
std::string AuditsText(const std::vector<Audit>& audits) {
  std::string text;
  for (const Audit& audit : audits) text += ToText(audit);
  return text;
}

namespace {

// "; as FBGEMM on CPUs with AVX2 and no AVX-512 or VNNI", or "".
std::string Engines(const Recorded& recorded) {
  if (!recorded.identity.Found() || recorded.against_exact.differing == 0) return {};
  const std::string engines = EnginesInWords(recorded.identity.arithmetic, recorded.as_engines_see_it);
  return engines.empty() ? "" : "; " + engines;
}

std::string WhatComputed(const Recorded& recorded) {
  return InWords(recorded.identity, recorded.against_exact) + Engines(recorded);
}

std::string ArithmeticWithEngines(const Recorded& recorded) {
  return InWords(recorded.identity.arithmetic) + Engines(recorded);
}

}  // namespace

std::string ToText(std::span<const Recorded> recorded) {
  std::string text;
  for (const Recorded& output : recorded) text += fmt::format("{}: {}\n", output.file, WhatComputed(output));
  return text;
}

std::string RecordedTable(std::span<const Recorded> recorded) {
  size_t layer_width = 0;
  size_t file_width = 0;
  for (const Recorded& output : recorded) {
    layer_width = std::max(layer_width, output.layer.size());
    file_width = std::max(file_width, output.file.size());
  }
  std::string text;
  int64_t named = 0;
  for (const Recorded& output : recorded) {
    named += output.identity.Found() ? 1 : 0;
    text += fmt::format("  {:<{}}  {:<{}}  {:>8} of {:>8} not exact  {}\n", output.layer, layer_width,
                        output.file, file_width, output.against_exact.differing, output.against_exact.outputs,
                        output.identity.Found() ? ArithmeticWithEngines(output) : WhatComputed(output));
  }
  return text + support::PartOf(named, std::ssize(recorded), "output", "matches", "match") +
         " a named arithmetic\n";
}

namespace {

// What saturation does to the layer in engines without an exact kernel. `worst`: the audit of the worst pairing.
std::string SaturationInShort(const Audit& worst) {
  const std::string engines = InWords(EnginesWith(worst.pairs, worst.layer));
  switch (worst.verdict()) {
    case Verdict::kProven:
      return fmt::format("safe: {} cannot make a wrong sum", worst.stated.premise);
    case Verdict::kHoldsOnData:
      return fmt::format("right on this data, but {} of {} of weights can make wrong sums in {}",
                         worst.stated.pairs_at_risk, support::Counted(worst.weight_pairs, "pair"), engines);
    case Verdict::kViolated:
      return fmt::format(
          "wrong on this data: {} sums of two products are clamped in {}; remedy: 7-bit weights "
          "or activations (reduce_range), or exact kernels",
          worst.clamped_pairs, engines);
  }
  return {};
}

}  // namespace

std::string ToText(const LayerCheck& check) {
  std::string text = ToText(std::span<const Recorded>(check.recorded));
  if (check.identity)
    text += fmt::format("{}: {}\n", check.target, InWords(*check.identity, check.against_exact));
  if (check.expected_identity) {
    text += fmt::format("{}: {}\n", check.expect_file,
                        InWords(*check.expected_identity, *check.expected_against_exact));
  }
  const std::string how = check.identity
                              ? "by " + check.target
                              : fmt::format("{}, {} mode", intact_isa_name(check.isa), ToString(check.mode));
  text += fmt::format("layer {}: {}, {}\n", check.layer, check.op, how);
  if (check.expected_identity) text += ExpectedText(check);
  Lines lines;
  if (!check.audits.empty()) {
    lines.Add("on CPUs without VNNI", "{}", SaturationInShort(check.audits.front()));
  }
  if (check.against_expected) {
    const ByteComparison& expected = *check.against_expected;
    lines.Add("against " + check.expect_file, "{}",
              DifferenceCount(expected.differing, expected.outputs, expected.max_abs_difference));
  }
  if (check.against_model) {
    const ByteComparison& model = *check.against_model;
    lines.Add(fmt::format("against the {} model", reference::ToString(check.model)), "{}",
              DifferenceCount(model.differing, model.outputs, model.max_abs_difference));
  }
  return text + std::move(lines).text() + ToText(check.against_exact, kListedInTerminal) +
         AuditsText(check.audits);
}

std::string ToText(std::span<const Cost> costs) {
  std::string text = fmt::format(
      "cost of exactness: one thread, medians and their spread (interquartile range over median); 1.20x is "
      "1.2 times as fast as the saturating kernel\n"
      "    {:<13} {:>18} {:>24} {:>24} {:>11} {:>12}\n",
      "ISA", "saturating", "exact", "exact, 7 bits", "items/quad", "groups/quad");
  for (const Cost& cost : costs) text += CostRows(cost);
  return text;
}

std::string ToText(const PairMap& map) {
  const ClampTable& counts = map.instruction_available ? map.by_instruction : map.by_model;
  const ClampCount all = counts.Within(255, 128);
  std::string text = fmt::format("pair map: vpmaddubsw over all {} inputs (a0 a1 w0 w1), {:.1f} s\n",
                                 map.inputs, map.seconds);
  Lines lines;
  lines.Add("counted by", "{}",
            map.instruction_available ? "the instruction itself, and by the scalar model"
                                      : "the scalar model alone: this CPU has no AVX2");
  lines.Add("clamped at +32767", "{:>10}", all.high);
  lines.Add("clamped at -32768", "{:>10}  together {}", all.low, Percent(all.Total(), map.inputs));
  for (const int amax : {127, 128, 129, 160, 192, 224, 255}) {
    lines.Add(fmt::format("activations up to {}", amax), "{:>10}  clamp", counts.Within(amax, 128).Total());
  }
  for (const int wmax : {64, 65, 96, 128}) {
    lines.Add(fmt::format("weights within +-{}", wmax), "{:>10}  clamp", counts.Within(255, wmax).Total());
  }
  if (map.instruction_available) {
    lines.Add("instruction against model", "{}",
              map.Agrees()
                  ? "equal on every input"
                  : fmt::format("DIFFERENT: {} lanes are not the clamped sum", map.instruction_mismatches));
  }
  return text + std::move(lines).text();
}

std::string ToText(const SaturationMap& map) {
  std::string text = fmt::format(
      "saturation map: share of outputs that clamped int16 sums change ({}, {})\n"
      "  wmax\n",
      intact_isa_name(map.isa), map.measured ? "measured" : "predicted only: this CPU cannot run it");
  for (size_t w = map.wmax.size(); w-- > 0;) {
    text += fmt::format("  {:>4} |", map.wmax[w]);
    for (size_t a = 0; a < map.amax.size(); ++a) text += Shade(map.At(w, a).Share());
    text += '\n';
  }
  text += "       +" + std::string(2 * map.amax.size(), '-') + "\n        ";
  for (size_t a = 0; a < map.amax.size(); a += 2) text += fmt::format("{:<4}", map.amax[a]);
  text +=
      fmt::format("{} amax\n  . none  ░ below 5 %  ▒ below 25 %  ▓ below 75 %  █ more\n", map.amax.back());
  if (map.measured) {
    text += fmt::format("  measured against predicted: {}\n",
                        map.Agrees() ? "equal, every output of every cell" : "DIFFERENT");
  }
  return text;
}

std::string ToText(const Ramp& ramp) {
  std::string text = fmt::format(
      "ramp {}: {}, {}, {}, {} mode\n", ramp.layer, support::Counted(ramp.steps, "constant input"),
      support::Counted(ramp.columns, "column"), intact_isa_name(ramp.isa), ToString(ramp.mode));
  if (ramp.kinks.empty()) return text + "  every column is monotonic\n";
  Lines lines;
  lines.Add("non-monotonic outputs", "{} of {}, in {} of {} columns", ramp.NonMonotonic(),
            ramp.steps * ramp.columns, ramp.ColumnsWithKinks(), ramp.columns);
  lines.Add("explained by clamped pairs", "{}", ramp.NonMonotonic() - ramp.Unexplained());
  lines.Add("unexplained", "{}", ramp.Unexplained());
  text += std::move(lines).text();
  const auto listed = static_cast<size_t>(std::min(kListedInTerminal, ramp.NonMonotonic()));
  for (size_t i = 0; i < listed; ++i) {
    const Kink& kink = ramp.kinks[i];
    text += fmt::format("    column {}: activation {} -> {} takes the output {} -> {}\n", kink.n,
                        kink.activation_before, kink.activation, kink.output_before, kink.output);
    text += PairList(kink.pairs, kink.pair_count, std::nullopt, "      ");
  }
  if (ramp.kinks.size() > listed) text += fmt::format("    and {} more\n", ramp.kinks.size() - listed);
  return text;
}

std::string ToText(const std::vector<Mixture>& mixtures) {
  std::string text;
  for (const Mixture& mixture : mixtures) {
    std::string_view operation = mixture.operation;
    for (const std::string& phrase : Phrases(mixture)) {
      text += fmt::format("  {:<20} {}\n", operation, phrase);
      operation = {};
    }
  }
  return text;
}

namespace {

// Failures with equal lines.
struct LikeFailures {
  const SweepFailure* first;
  int64_t others;
  enum class Rank : uint8_t { kFirstOfItsKind, kMinimised, kOther };
  Rank rank = Rank::kOther;
};

// Ordered: first the first minimised failure of each kind, then other minimised ones, then all others.
std::vector<LikeFailures> Grouped(const std::vector<SweepFailure>& failures) {
  std::vector<LikeFailures> groups;
  std::map<std::string, size_t> places;
  for (const SweepFailure& failure : failures) {
    const auto [place, is_new] = places.emplace(failure.Line(), groups.size());
    if (is_new) {
      groups.push_back({&failure, 0, LikeFailures::Rank::kOther});
    } else {
      ++groups[place->second].others;
    }
  }
  std::set<std::string> kinds;
  for (LikeFailures& group : groups) {
    if (group.first->minimised.empty()) continue;
    const bool is_first = kinds.insert(group.first->kind).second;
    group.rank = is_first ? LikeFailures::Rank::kFirstOfItsKind : LikeFailures::Rank::kMinimised;
  }
  std::ranges::stable_sort(groups, {}, &LikeFailures::rank);
  return groups;
}

}  // namespace

std::string ReplayCommand(const std::string& problem, const std::string& target) {
  std::string command = fmt::format("intact verify replay '{}'", problem);
  if (!target.empty()) command += " --target " + support::ShellLine(std::span(&target, 1));
  return command;
}

std::string FailuresText(const SweepResult& sweep, const std::string& target) {
  std::string text;
  const std::vector<LikeFailures> groups = Grouped(sweep.failures);
  const auto kinds = std::ranges::count(groups, LikeFailures::Rank::kFirstOfItsKind, &LikeFailures::rank);
  const auto listed = static_cast<size_t>(std::max<int64_t>(kListedInTerminal, kinds));
  int64_t left = sweep.Failed();
  for (const auto& [failure, others, rank] : std::span(groups).first(std::min(groups.size(), listed))) {
    text += fmt::format("  FAILED: {}\n    {}\n", failure->Reason(), ReplayCommand(failure->Line(), target));
    if (failure->Line() != failure->problem) {
      text += fmt::format("    seen in '{}': {}\n", failure->problem, failure->reason);
    }
    if (others > 0)
      text +=
          fmt::format("    and {} that this command reproduces\n", support::Counted(others, "more failure"));
    left -= 1 + others;
  }
  return left == 0 ? text : text + fmt::format("  and {} more\n", left);
}

std::string SkipsText(const std::vector<SweepSkip>& skips) {
  std::string text;
  const std::vector<SkipReason> reasons = SkipReasons(skips);
  const size_t listed = std::min<size_t>(reasons.size(), kListedInTerminal);
  for (const auto& [reason, problems, example] : std::span(reasons).first(listed)) {
    text +=
        fmt::format("  skipped {}: {}; {}'{}'\n", problems, reason, problems == 1 ? "" : "e.g. ", example);
  }
  if (reasons.size() > listed)
    text += fmt::format("  and for {}\n", support::Counted(reasons.size() - listed, "more reason"));
  return text;
}

std::string CellsText(const SweepResult& sweep, const std::string& target) {
  const auto named = [&](std::string_view isa, std::string_view mode) {
    return target.empty() ? fmt::format("{:<13} {:<11} ", isa, mode) : std::string();
  };
  std::string text = fmt::format("  {}{:>9} {:>8} {:>8} {:>11} {:>11} {:>11}\n", named("ISA", "mode"),
                                 "problems", "skipped", "failed", "outputs", "not exact", "unexplained");
  for (const SweepCell& cell : sweep.cells) {
    text += fmt::format("  {}{:>9} {:>8} {:>8} {:>11} {:>11} {:>11}\n",
                        named(intact_isa_name(cell.isa), ToString(cell.mode)), cell.problems, cell.skipped,
                        cell.failed, cell.outputs, cell.differing, cell.Unexplained());
  }
  return text;
}

std::string ToText(const SweepResult& sweep, const std::string& target) {
  const bool is_grouped = std::ranges::any_of(
      sweep.digests, [](const SweepDigest& digest) { return IsGroupedLine(digest.problem); });
  std::string arithmetics = ToText(Mixtures(sweep));
  for (const auto& [arithmetic, problems] : GroupedArithmetics(sweep)) {
    arithmetics +=
        fmt::format("  grouped weights  {}: {}\n", support::Counted(problems, "problem"), arithmetic);
  }
  return (is_grouped ? "grouped weights: all types, groups and fills\n"
                     : "sweep: GEMMs around the blocks, convolutions around the edges, all fills\n") +
         CellsText(sweep, target) + arithmetics + SkipsText(sweep.skips) + FailuresText(sweep, target) +
         NotRunText(sweep);
}

namespace {

std::string VerdictAlone(const SweepResult& sweep, const SweepResult* random) {
  int64_t problems = sweep.Problems(), failed = sweep.Failed(), in_parts = sweep.InParts();
  if (random != nullptr) {
    problems += random->Problems();
    failed += random->Failed();
    in_parts += random->InParts();
  }
  switch (sweep.VerdictWith(random)) {
    case SweepVerdict::kFailed:
      return failed == 0 ? "FAILED: not all problems were run\n"
                         : fmt::format("FAILED: {} of {}\n", failed, support::Counted(problems, "problem"));
    case SweepVerdict::kNothingCompared:
      break;
    case SweepVerdict::kUnfinished:
      return fmt::format(
          "UNFINISHED: {} passed, {}{} not run: {}\n",
          support::Counted(problems - sweep.expected_failures, "problem"),
          sweep.expected_failures == 0 ? "" : fmt::format("{} failed as expected, ", sweep.expected_failures),
          sweep.not_run, sweep.why_not_run);
    case SweepVerdict::kPassed:
      return in_parts == 0
                 ? fmt::format("PASSED: {}\n", support::Counted(problems, "problem"))
                 : fmt::format("PASSED, MIXED: {}; in {} of them, no single arithmetic makes all outputs\n",
                               support::Counted(problems, "problem"), in_parts);
  }
  for (const SweepCell& cell : sweep.cells) {
    if (cell.problems > 0 || problems == 0) continue;
    return fmt::format("NOTHING WAS COMPARED on {} in {} mode: {} skipped\n", intact_isa_name(cell.isa),
                       ToString(cell.mode), support::Counted(cell.skipped, "problem"));
  }
  return sweep.skips.empty() ? "NOTHING WAS COMPARED: there are no problems\n"
                             : fmt::format("NOTHING WAS COMPARED: {} skipped\n",
                                           support::Counted(sweep.skips.size(), "problem"));
}

}  // namespace

std::string TriedText(const Tried& tried) {
  if (tried.calls == 0) return {};
  return fmt::format("not tried: beyond m {}, n {}, k {}, batches of {}, {}, {} of one plan\n", tried.m,
                     tried.n, tried.k, tried.batch, support::Counted(tried.threads, "thread"),
                     support::Counted(tried.calls, "call"));
}

std::string VerdictText(const SweepResult& sweep, const SweepResult* random) {
  Tried tried = sweep.tried;
  if (random != nullptr) tried.Add(random->tried);
  return VerdictAlone(sweep, random) + TriedText(tried);
}

std::string NotRunText(const SweepResult& sweep) {
  if (sweep.not_run == 0) return {};
  return fmt::format("  NOT RUN: {}: {}\n", support::Counted(sweep.not_run, "problem"), sweep.why_not_run);
}

std::string ToText(const RandomSweepResult& random, const std::string& target) {
  std::string text = fmt::format("random problems: {}\n", random.problems);
  text += CellsText(random.sweep, target);
  if (random.sweep.computed.size() >= kMaxRandomComputed) {
    text += fmt::format("  of the first {} problems, and of the failed ones that are kept:\n",
                        kMaxRandomComputed);
  }
  return text + ToText(Mixtures(random.sweep)) + FailuresText(random.sweep, target);
}

std::string ToText(std::span<const Ramp> ramps) {
  std::string text = fmt::format(
      "ramp: outputs that step the wrong way under a rising constant\n  {:<13} {:<11} {:<24} {:>13} {:>12}\n",
      "ISA", "mode", "layer", "non-monotonic", "unexplained");
  for (const Ramp& ramp : ramps) {
    text += fmt::format("  {:<13} {:<11} {:<24} {:>13} {:>12}\n", intact_isa_name(ramp.isa),
                        ToString(ramp.mode), ramp.layer, ramp.NonMonotonic(), ramp.Unexplained());
  }
  return text;
}

std::string ToText(std::span<const LayerAudit> audits) {
  std::string text = "reduce_range of the built-in layers\n";
  for (const LayerAudit& layer : audits) {
    text +=
        fmt::format("  {:<24} {:<14} {}; activations {} to {}\n", layer.layer, InWords(layer.audit.verdict()),
                    layer.audit.stated.premise, layer.audit.min_activation, layer.audit.max_activation);
  }
  return text;
}

std::string ParityText(const Report& report) {
  if (report.IsUnfinished()) {
    return fmt::format("UNFINISHED: {}; missing: {}\n", support::kTimeIsOver, report.MissingText()) +
           TriedText(report.sweep.tried);
  }
  std::string text = report.Parity() ? "PARITY: every kernel computes what its mode promises\n"
                                     : "DIFFERENCE: see FAILED, DIFFERENT and unexplained above\n";
  if (!report.MissingText().empty()) {
    text += fmt::format("missing: {}: {}\n", report.MissingText(), support::kTimeIsOver);
  }
  return text + TriedText(report.sweep.tried);
}

std::string ToText(const ReportComparison& comparison) {
  std::string text;
  const auto listed = std::min(comparison.differences.size(), static_cast<size_t>(kListedInTerminal));
  for (size_t i = 0; i < listed; ++i) {
    const ProblemDifference& difference = comparison.differences[i];
    text += fmt::format("DIFFERENT:\n{}{}", RunList("A", difference.a), RunList("B", difference.b));
  }
  if (comparison.differences.size() > listed) {
    text += fmt::format("and {} more\n", comparison.differences.size() - listed);
  }
  return text + fmt::format("{} in both reports, {} different; {} only in A, {} only in B\n{}\n",
                            support::Counted(comparison.problems, "problem"), comparison.differences.size(),
                            comparison.only_a, comparison.only_b,
                            comparison.Same() ? "SAME BYTES" : "DIFFERENCE");
}

}  // namespace intact::verify
