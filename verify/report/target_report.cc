#include "verify/report/target_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "support/counted.h"
#include "support/html.h"
#include "support/origin.h"
#include "verify/report/report_html.h"
#include "verify/report/report_terminal.h"
#include "verify/report/schemas.h"

namespace intact::verify {
namespace {

// ----- text -----------------------------------------------------------------------------------------------

std::string Described(const TargetFindings& findings) {
  return findings.claims == "any"
             ? fmt::format("{}: {}", findings.target, findings.name)
             : fmt::format("{}: {}, which claims: {}", findings.target, findings.name, findings.claims);
}

std::string ToText(const TargetFindings& findings) {
  std::string text = Described(findings) + "\n" + ToText(findings.fitted, "  ");
  text += ToText(findings.computes);
  for (const SweepCell& cell : findings.sweep.cells) {
    text += fmt::format("  {} run, {} failed, {} skipped; {} not exact, {} unexplained\n",
                        support::Counted(cell.problems, "problem"), cell.failed, cell.skipped,
                        support::PartOf(cell.differing, cell.outputs, "output"), cell.Unexplained());
  }
  if (findings.ramp) {
    text += fmt::format(
        "  ramp: {} the wrong way\n",
        support::PartOf(findings.ramp->NonMonotonic(), findings.ramp->steps * findings.ramp->columns,
                        "output", "steps", "step"));
  }
  text += SkipsText(findings.sweep.skips) + FailuresText(findings.sweep, findings.target);
  text += NotRunText(findings.sweep);
  if (findings.is_unfinished) {
    text += fmt::format("  NOT RUN: {}, {}: {}\n", kSaturationMap, kRamp, support::kTimeIsOver);
  }
  return text + "  " + VerdictText(findings.sweep);
}

// ----- JSON -----------------------------------------------------------------------------------------------

template <class T>
Json JsonOr(const Result<T>& found) {
  return found ? ToJson(*found) : Json(found.error().message);
}

Json ToJson(const FittedProblems& fitted) {
  Json lacking = Json::object();
  for (const LackingFeature& feature : fitted.lacking) lacking[feature.name] = feature.problems;
  return {{"of", fitted.of},
          {"unchanged", fitted.unchanged},
          {"rounded", fitted.rounded},
          {"left_out", fitted.left_out},
          {"lacking", std::move(lacking)}};
}

Json ToJson(const TargetFindings& findings) {
  Json json = {{"target", findings.target},
               {"name", findings.name},
               {"claims", findings.claims},
               {"fitted", ToJson(findings.fitted)},
               {"passed", findings.sweep.Passed()},
               {"computes", ToJson(findings.computes)},
               {"sweep", ToJson(findings.sweep)},
               {"failures", Json::array()},
               {"saturation_map", JsonOr(findings.map)},
               {"ramp", JsonOr(findings.ramp)}};
  for (const SweepFailure& failure : findings.sweep.failures) json["failures"].push_back(ToJson(failure));
  return json;
}

// ----- HTML -----------------------------------------------------------------------------------------------

support::html::Cell MixtureCell(const Mixture* mixture) {
  if (mixture == nullptr) return "–";
  const bool is_bad = mixture->unexplained.problems > 0 || mixture->without_outputs.problems > 0 ||
                      mixture->not_explained > 0;
  const support::html::Tone tone = is_bad                               ? support::html::Tone::kBad
                                   : mixture->exact < mixture->problems ? support::html::Tone::kDoubtful
                                                                        : support::html::Tone::kGood;
  return {InWords(*mixture), tone};
}

std::string ComputesSection(const TargetReport& report) {
  std::vector<std::string> operations;
  for (const TargetFindings& findings : report.targets) {
    for (const Mixture& mixture : findings.computes) {
      if (std::ranges::find(operations, mixture.operation) == operations.end()) {
        operations.push_back(mixture.operation);
      }
    }
  }
  support::html::Row head = {"operation"};
  for (const TargetFindings& findings : report.targets) head.push_back(findings.target);
  std::vector<support::html::Row> rows;
  for (const std::string& operation : operations) {
    support::html::Row row = {operation};
    for (const TargetFindings& findings : report.targets) {
      const auto found = std::ranges::find(findings.computes, operation, &Mixture::operation);
      row.push_back(MixtureCell(found == findings.computes.end() ? nullptr : &*found));
    }
    rows.push_back(std::move(row));
  }
  return "<h2>What they compute</h2>\n<p>The arithmetics that reproduce every output byte for byte, and how "
         "many problems of the sweep they reproduce.</p>\n" +
         support::html::Table(head, rows, head.size());
}

std::string SweepSection(const TargetReport& report) {
  std::vector<SweepRow> rows;
  for (const TargetFindings& findings : report.targets) {
    for (const SweepCell& cell : findings.sweep.cells) {
      rows.push_back({{findings.target, findings.name, findings.claims}, &cell});
    }
  }
  return "<h2>Sweep</h2>\n<p>GEMMs around the blocks and convolutions around the edges, all fills, against "
         "the scalar reference.</p>\n" +
         SweepTable({"target", "name", "claims"}, rows);
}

std::string FailureSection(const TargetReport& report) {
  std::vector<support::html::Row> rows;
  for (const TargetFindings& findings : report.targets) {
    for (const SweepFailure& failure : findings.sweep.failures) {
      rows.push_back({findings.target, failure.Reason(), ReplayCommand(failure.Line(), findings.target)});
    }
  }
  if (rows.empty()) return "<h2>Failures</h2>\n<p>None.</p>\n";
  return "<h2>Failures</h2>\n" + support::html::FilteredTable("failures", {"target", "what", "again"}, rows);
}

std::string SkipSection(const TargetReport& report) {
  std::vector<support::html::Row> rows;
  for (const TargetFindings& findings : report.targets) {
    for (const LackingFeature& feature : findings.fitted.lacking) {
      rows.push_back({findings.target, "unchanged, because they have " + feature.name,
                      fmt::format("{}", feature.problems)});
    }
    for (const auto& [reason, problems, example] : SkipReasons(findings.sweep.skips)) {
      rows.push_back(
          {findings.target, fmt::format("{}; e.g. {}", reason, example), fmt::format("{}", problems)});
    }
    const SweepResult& sweep = findings.sweep;
    if (sweep.not_run == 0) continue;
    rows.push_back({findings.target, sweep.why_not_run,
                    support::html::Cell(fmt::format("{}", sweep.not_run), support::html::Tone::kBad)});
  }
  if (rows.empty()) return "";
  return "<h2>Not run</h2>\n" + support::html::FilteredTable("skips", {"target", "why", "problems"}, rows);
}

std::string PictureSection(const TargetReport& report) {
  std::string text = "<h2>Saturation maps and ramps</h2>\n<div class=\"beside\">\n";
  for (size_t i = 0; i < report.targets.size(); ++i) {
    const TargetFindings& findings = report.targets[i];
    text += fmt::format("<section><h3>{}</h3>\n", support::html::Escape(findings.target));
    text += findings.map ? MapFigure(*findings.map, fmt::format("map{}", i))
                         : fmt::format("<p class=\"note\">No map: {}.</p>\n",
                                       support::html::Escape(findings.map.error().message));
    text += findings.ramp
                ? RampFigure(*findings.ramp, fmt::format("ramp{}", i), ", exact and as the target has it.")
                : fmt::format("<p class=\"note\">No ramp: {}.</p>\n",
                              support::html::Escape(findings.ramp.error().message));
    text += "</section>\n";
  }
  return text + "</div>\n";
}

}  // namespace

SweepVerdict TargetReport::Verdict() const {
  SweepVerdict verdict = SweepVerdict::kPassed;
  for (const TargetFindings& findings : targets) {
    SweepVerdict own = findings.sweep.Verdict();
    if (own == SweepVerdict::kFailed) return own;
    if (own == SweepVerdict::kPassed && findings.is_unfinished) own = SweepVerdict::kUnfinished;
    if (own == SweepVerdict::kNothingCompared || verdict == SweepVerdict::kPassed) verdict = own;
  }
  return verdict;
}

TargetFindings Examine(const Target& target, const std::string& named, std::span<const Problem> problems,
                       const Progress& progress, const support::Deadline& deadline) {
  TargetFindings findings;
  findings.target = named;
  findings.name = target.Name();
  findings.claims = target.Arithmetic();
  findings.sweep = RunSweep(problems, target, progress, deadline);
  findings.computes = Mixtures(findings.sweep);
  if (deadline.IsOver()) {
    findings.is_unfinished = true;
    findings.map = Error{INTACT_UNSUPPORTED, support::kTimeIsOver};
    findings.ramp = Error{INTACT_UNSUPPORTED, support::kTimeIsOver};
    return findings;
  }
  findings.map = MapSaturation(target);
  findings.ramp = RunRamp(target, BuiltinLayers().front(), INTACT_EXACT, INTACT_ISA_ANY);
  return findings;
}

std::string ToText(const TargetReport& report) {
  std::string text = ToText(report.machine);
  for (const TargetFindings& findings : report.targets) {
    text += '\n';
    text += ToText(findings);
  }
  switch (report.Verdict()) {
    case SweepVerdict::kPassed:
      return text + "\nPASSED: every target computes what it claims\n";
    case SweepVerdict::kNothingCompared:
      return text + "\nNOTHING WAS COMPARED on some target: see above\n";
    case SweepVerdict::kUnfinished:
      return text + fmt::format("\nUNFINISHED: {}; see above\n", support::kTimeIsOver);
    case SweepVerdict::kFailed:
      break;
  }
  return text + "\nFAILED: see above\n";
}

Json ToJson(const TargetReport& report) {
  Json json = {{"schema", kTargetReportSchema.name},
               {"schema_version", kTargetReportSchema.version},
               {"version", intact_version()},
               {"date", report.origin.date},
               {"command", report.origin.command},
               {"machine", ToJson(report.machine)},
               {"targets", Json::array()}};
  for (const TargetFindings& findings : report.targets) json["targets"].push_back(ToJson(findings));
  return json;
}

std::string ToHtml(const TargetReport& report) {
  const support::Machine& machine = report.machine;
  return support::html::Page(
      "intact target report", report.origin,
      fmt::format("<p>{}, {} · intact {}</p>\n<p>{}</p>\n", support::html::Escape(CpuText(machine)),
                  CoresText(machine), intact_version(),
                  support::html::Judged(report.Passed(), "Every target computes what it claims.",
                                        report.Verdict() == SweepVerdict::kFailed
                                            ? "Some target does not compute what it claims; see below."
                                        : report.Verdict() == SweepVerdict::kUnfinished
                                            ? "Unfinished: the time of --time was over; see below."
                                            : "Nothing was compared on some target; see below.")) +
          ComputesSection(report) + SweepSection(report) + FailureSection(report) + PictureSection(report) +
          SkipSection(report));
}

}  // namespace intact::verify
