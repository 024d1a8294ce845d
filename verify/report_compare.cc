#include "verify/report_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "verify/compare.h"
#include "verify/json_file.h"
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
      return Invalid(report.path,
                     fmt::format("sweep.digests: '{}': {}", run.problem, problem.error().message));
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
  if (FieldOf(*report, "/schema") != "intact-report" || FieldOf(*report, "/schema_version") != 1) {
    return Invalid(path, R"(is not a report of intact; expected schema "intact-report", schema_version 1)");
  }
  const nlohmann::json digests = FieldOf(*report, "/sweep/digests");
  if (!digests.is_object()) return Invalid(path, "sweep.digests: expected an object");
  const nlohmann::json cpu = FieldOf(*report, "/machine/cpu");
  ReportDigests read{path, cpu.is_string() ? cpu.get<std::string>() : "unknown CPU", {}};
  for (const auto& [problem, digest] : digests.items()) {
    if (!digest.is_string()) {
      return Invalid(path, fmt::format("sweep.digests: '{}': expected a string", problem));
    }
    read.runs.push_back({problem, digest.get<std::string>()});
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
