#include "verify/report/report_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "core/result.h"
#include "support/json_file.h"
#include "support/printable.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/report/schemas.h"

namespace intact::verify {
namespace {

/// The runs of a problem in two reports, one for each digest.
using Runs = std::vector<DigestedRun>;
using RunsByProblem = std::map<std::string, ProblemDifference>;

Error Invalid(std::string_view path, std::string_view what) {
  return {INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", path, what)};
}

/// The field of a report; null if the report lacks it.
nlohmann::json FieldOf(const nlohmann::json& report, const std::string& pointer) {
  const nlohmann::json::json_pointer field(pointer);
  return report.contains(field) ? report.at(field) : nlohmann::json();
}

std::string TextOf(const nlohmann::json& report, const std::string& pointer) {
  const nlohmann::json text = FieldOf(report, pointer);
  return text.is_string() ? text.get<std::string>() : std::string();
}

bool Has(const nlohmann::json& report, const Schema& schema) {
  return FieldOf(report, "/schema") == schema.name && FieldOf(report, "/schema_version") == schema.version;
}

/// Where a file has digests; and the fields with the target's name, for people and for --target.
struct Digests {
  std::string field, name_field, target_field;
};

/// Empty for a file of another schema.
std::vector<Digests> DigestsIn(const nlohmann::json& report) {
  if (Has(report, kReportSchema)) return {{"/sweep/digests", "", ""}};
  if (Has(report, kSweepSchema)) return {{"/digests", "/target/name", "/target/text"}};
  std::vector<Digests> all;
  if (!Has(report, kTargetReportSchema)) return all;
  for (size_t i = 0; i < FieldOf(report, "/targets").size(); ++i) {
    const std::string target = fmt::format("/targets/{}", i);
    all.push_back({target + "/sweep/digests", target + "/name", target + "/target"});
  }
  return all;
}

/// The problem without the fields that do not change its output.
std::string KeyOf(Problem problem) {
  problem.mode = Saturates(problem.mode, problem.isa) ? INTACT_SATURATING : INTACT_EXACT;
  if (problem.mode == INTACT_EXACT) problem.pairing = INTACT_PAIRING_WITHIN_TAP;
  problem.isa = INTACT_ISA_ANY;
  return problem.ToString();
}

/// If a report has several targets, only runs of equal targets are compared.
bool HasSeveralTargets(const ReportDigests& report) {
  return std::ranges::any_of(
      report.runs, [&](const DigestedRun& run) { return run.target != report.runs.front().target; });
}

std::optional<Error> Gather(const ReportDigests& report, bool by_target, Runs ProblemDifference::*side,
                            RunsByProblem* all) {
  for (const DigestedRun& run : report.runs) {
    const Result<Problem> problem = Problem::Parse(run.problem);
    if (!problem) {
      return Invalid(report.path, fmt::format("{}: '{}': {}", report.field, support::Excerpt(run.problem),
                                              support::Excerpt(problem.error().message)));
    }
    Runs& runs = (*all)[KeyOf(*problem) + (by_target ? " --target " + run.target : "")].*side;
    if (std::ranges::find(runs, run.digest, &DigestedRun::digest) == runs.end()) runs.push_back(run);
  }
  return std::nullopt;
}

bool Agree(const ProblemDifference& runs) {
  return runs.a.size() == 1 && runs.b.size() == 1 && runs.a[0].digest == runs.b[0].digest;
}

}  // namespace

Result<ReportDigests> ReadDigests(const std::string& path) {
  ASSIGN_OR_RETURN(const nlohmann::json report, support::ReadJson(path));
  const std::vector<Digests> all = DigestsIn(report);
  if (all.empty()) {
    std::string expected;
    for (const Schema& schema : {kReportSchema, kTargetReportSchema, kSweepSchema}) {
      expected += fmt::format("{}\"{}\", schema_version {}", expected.empty() ? "" : "; ", schema.name,
                              schema.version);
    }
    return Invalid(path, "is neither a report of intact nor a sweep's JSON; expected schema " + expected);
  }
  ReportDigests read{path, "unknown CPU", "", {}};
  if (const std::string cpu = TextOf(report, "/machine/cpu"); !cpu.empty()) read.machine = cpu;
  std::string names;
  for (const auto& [field, name_field, target_field] : all) {
    read.field = field.substr(1);
    std::ranges::replace(read.field, '/', '.');
    const nlohmann::json digests = FieldOf(report, field);
    if (!digests.is_object()) return Invalid(path, read.field + ": expected an object");
    const std::string name = name_field.empty() ? "" : TextOf(report, name_field);
    if (!name.empty()) names += (names.empty() ? "" : ", ") + name;
    const std::string target = target_field.empty() ? "" : TextOf(report, target_field);
    for (const auto& [problem, digest] : digests.items()) {
      if (!digest.is_string()) {
        return Invalid(path,
                       fmt::format("{}: '{}': expected a string", read.field, support::Excerpt(problem)));
      }
      read.runs.push_back({problem, digest.get<std::string>(), target});
    }
  }
  if (!names.empty()) read.machine = fmt::format("{} on {}", names, read.machine);
  return read;
}

Result<ReportComparison> CompareReports(const ReportDigests& a, const ReportDigests& b) {
  RunsByProblem all;
  const bool by_target = HasSeveralTargets(a) || HasSeveralTargets(b);
  if (const std::optional<Error> error = Gather(a, by_target, &ProblemDifference::a, &all)) return *error;
  if (const std::optional<Error> error = Gather(b, by_target, &ProblemDifference::b, &all)) return *error;
  ReportComparison comparison;
  for (const auto& [problem, runs] : all) {
    if (runs.b.empty()) {
      ++comparison.only_a;
    } else if (runs.a.empty()) {
      ++comparison.only_b;
    } else {
      ++comparison.problems;
      if (!Agree(runs)) comparison.differences.push_back(runs);
    }
  }
  if (comparison.problems == 0)
    return Invalid(b.path, fmt::format("has no problem in common with {}", a.path));
  return comparison;
}

}  // namespace intact::verify
