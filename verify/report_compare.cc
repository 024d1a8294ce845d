#include "verify/report_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "verify/compare.h"
#include "verify/json_file.h"
#include "verify/printable.h"
#include "verify/problem.h"

namespace intact::verify {
namespace {

/// The runs of a problem in two reports, one for each digest.
using Runs = std::vector<DigestedRun>;
using RunsByProblem = std::map<std::string, ProblemDifference>;

Error Invalid(std::string_view path, std::string_view what) {
  return {INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", path, what)};
}

/// null if there is none.
nlohmann::json FieldOf(const nlohmann::json& report, const char* pointer) {
  const nlohmann::json::json_pointer field(pointer);
  return report.contains(field) ? report.at(field) : nlohmann::json();
}

/// The problem without what its output does not depend on.
std::string KeyOf(Problem problem) {
  const bool saturates = ExpectedModel(problem.mode, problem.isa) == reference::Model::kTriple;
  problem.mode = saturates ? INTACT_SATURATING : INTACT_EXACT;
  problem.isa = INTACT_ISA_ANY;
  return problem.ToString();
}

std::optional<Error> Gather(const ReportDigests& report, Runs ProblemDifference::*side, RunsByProblem* all) {
  for (const DigestedRun& run : report.runs) {
    const Result<Problem> problem = Problem::Parse(run.problem);
    if (!problem) {
      return Invalid(report.path, fmt::format("{}: '{}': {}", report.field, Printable(run.problem),
                                              Printable(problem.error().message)));
    }
    Runs& runs = (*all)[KeyOf(*problem)].*side;
    if (std::ranges::find(runs, run.digest, &DigestedRun::digest) == runs.end()) runs.push_back(run);
  }
  return std::nullopt;
}

bool Agree(const ProblemDifference& runs) {
  return runs.a.size() == 1 && runs.b.size() == 1 && runs.a[0].digest == runs.b[0].digest;
}

}  // namespace

Result<ReportDigests> ReadDigests(const std::string& path) {
  const Result<nlohmann::json> report = ReadJson(path);
  if (!report) return report.error();
  const nlohmann::json schema = FieldOf(*report, "/schema");
  const bool is_sweep = schema == "intact-sweep";
  if ((!is_sweep && schema != "intact-report") || FieldOf(*report, "/schema_version") != 1) {
    return Invalid(path,
                   "is neither a report of intact nor a sweep's JSON; expected schema \"intact-report\" or "
                   "\"intact-sweep\", schema_version 1");
  }
  ReportDigests read{path, "unknown CPU", is_sweep ? "digests" : "sweep.digests", {}};
  const nlohmann::json digests = FieldOf(*report, is_sweep ? "/digests" : "/sweep/digests");
  if (!digests.is_object()) return Invalid(path, read.field + ": expected an object");
  if (const nlohmann::json cpu = FieldOf(*report, "/machine/cpu"); cpu.is_string()) read.machine = cpu;
  if (const nlohmann::json target = FieldOf(*report, "/target/name"); target.is_string()) {
    read.machine = fmt::format("{} on {}", target.get<std::string>(), read.machine);
  }
  const nlohmann::json named = FieldOf(*report, "/target/text");
  const std::string target = named.is_string() ? named.get<std::string>() : std::string();
  for (const auto& [problem, digest] : digests.items()) {
    if (!digest.is_string()) {
      return Invalid(path, fmt::format("{}: '{}': expected a string", read.field, Printable(problem)));
    }
    read.runs.push_back({problem, digest.get<std::string>(), target});
  }
  return read;
}

Result<ReportComparison> CompareReports(const ReportDigests& a, const ReportDigests& b) {
  RunsByProblem all;
  if (const std::optional<Error> error = Gather(a, &ProblemDifference::a, &all)) return *error;
  if (const std::optional<Error> error = Gather(b, &ProblemDifference::b, &all)) return *error;
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
