#include "verify/report/expected_failures.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "verify/problem/problem.h"

namespace intact::verify {
namespace {

/// Adds `change` to the failures of the problem's cell.
void Count(const std::string& line, int64_t change, SweepResult* sweep) {
  const Result<Problem> problem = Problem::Parse(line);
  sweep->CellOf(problem->isa, problem->mode).failed += change;
}

}  // namespace

Result<ExpectedFailures> ExpectedFailures::Read(const std::string& path) {
  const auto refused = [&](const std::string& what) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", path, what)};
  };
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path)) return refused("cannot be read; expected a file");
  ExpectedFailures expected;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (const size_t comment = line.find('#'); comment != std::string::npos) line.resize(comment);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<Problem> problem = Problem::Parse(line);
    if (!problem) return refused(fmt::format("line {}: {}", number, problem.error().message));
    expected.lines_.insert(problem->ToString());
  }
  return expected;
}

void ExpectedFailures::Apply(SweepResult* sweep) {
  std::vector<SweepFailure> others;
  std::set<std::string> left = lines_;
  for (SweepFailure& failure : sweep->failures) {
    if (left.erase(failure.problem) == 0) {
      others.push_back(std::move(failure));
    } else {
      Count(failure.problem, -1, sweep);
      met_.push_back(failure.problem);
      ++sweep->expected_failures;
    }
  }
  for (const SweepDigest& run : sweep->digests) {
    if (left.erase(run.problem) == 0) continue;
    const char* const reason = "passed; expected a failure: remove the line from the list";
    others.push_back({run.problem, reason, "passed", "", ""});
    Count(run.problem, 1, sweep);
  }
  absent_ = left.size();
  sweep->failures = std::move(others);
}

std::string ExpectedFailures::ToText() const {
  std::string text =
      fmt::format("expected failures: {} of {} listed problems failed", met_.size(), lines_.size());
  if (absent_ > 0) text += fmt::format("; {} did not run or were skipped", absent_);
  return text + '\n';
}

}  // namespace intact::verify
