#include "verify/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "verify/minimise.h"
#include "verify/sweep_problems.h"

namespace intact::verify {
namespace {

std::string Describe(const Comparison& comparison, const Difference& d) {
  return fmt::format("output {} is {} instead of {}: {}, {}", PlaceOf(comparison, d), d.actual, d.expected,
                     ToString(d.cause), d.detail);
}

// Why a target that is to saturate as the triple model says did not; empty if it did.
std::string FailureOfSaturating(const Comparison& comparison) {
  if (comparison.off_triple == 0) return {};
  for (const Difference& difference : comparison.listed) {
    if (difference.cause != Cause::kInt16Saturation) return Describe(comparison, difference);
  }
  return fmt::format("{} of {} outputs are not what pairs clamped to int16 make", comparison.off_triple,
                     comparison.outputs);
}

std::string FailureOf(const Problem& problem, const Comparison& comparison) {
  const bool saturates = ExpectedModel(problem.mode, problem.isa) == reference::Model::kTriple;
  if (saturates && !(problem.isa == INTACT_ISA_ANY && comparison.Parity())) {
    return FailureOfSaturating(comparison);
  }
  return comparison.Parity() ? std::string() : Describe(comparison, comparison.listed.at(0));
}

// Gathers the outcome of each problem.
class Sweeper {
 public:
  explicit Sweeper(const Target& target) : target_(target) {}

  void Run(const Problem& problem) {
    const std::string line = problem.ToString();
    SweepCell& cell = CellOf(problem);
    const Result<Judgement> judgement = Judge(target_, problem);
    if (!judgement && judgement.error().status == INTACT_UNSUPPORTED) {
      ++cell.skipped;
      result_.skips.push_back({line, judgement.error().message});
      return;
    }
    ++cell.problems;
    if (judgement) Count(line, judgement->comparison, &cell);
    const std::string reason = judgement ? judgement->failure : judgement.error().message;
    if (reason.empty()) return;
    ++cell.failed;
    const bool minimise = result_.failures.size() < kMaxMinimised;
    result_.failures.push_back({line, reason, minimise ? Minimised(problem) : std::string()});
  }

  SweepResult Take() { return std::move(result_); }

 private:
  SweepCell& CellOf(const Problem& problem) {
    const auto found = std::find_if(result_.cells.begin(), result_.cells.end(), [&](const SweepCell& cell) {
      return cell.isa == problem.isa && cell.mode == problem.mode;
    });
    if (found != result_.cells.end()) return *found;
    SweepCell& cell = result_.cells.emplace_back();
    cell.isa = problem.isa;
    cell.mode = problem.mode;
    return cell;
  }

  void Count(const std::string& line, const Comparison& comparison, SweepCell* cell) {
    cell->outputs += comparison.outputs;
    cell->differing += comparison.differing;
    for (size_t i = 0; i < kCauseCount; ++i) cell->by_cause[i] += comparison.by_cause[i];
    result_.digests.push_back({line, comparison.digest});
  }

  std::string Minimised(const Problem& problem) const {
    const auto fails = [this](const Problem& candidate) {
      const Result<Judgement> judgement = Judge(target_, candidate);
      return judgement ? !judgement->Passed() : judgement.error().status != INTACT_UNSUPPORTED;
    };
    return Minimise(problem, fails).ToString();
  }

  const Target& target_;
  SweepResult result_;
};

}  // namespace

bool SweepResult::Passed() const {
  return failures.empty() && !cells.empty() &&
         std::ranges::all_of(cells, [](const SweepCell& cell) { return cell.problems > 0; });
}

Result<Comparison> VerifyProblem(const Target& target, const Problem& problem) {
  const RunOptions options = RunOptionsOf(problem);
  return problem.conv ? Verify(target, MaterializeConv(problem), options)
                      : Verify(target, Materialize(problem), options);
}

Result<Judgement> Judge(const Target& target, const Problem& problem) {
  Result<Comparison> comparison = VerifyProblem(target, problem);
  if (!comparison) return comparison.error();
  std::string failure = FailureOf(problem, *comparison);
  return Judgement{std::move(*comparison), std::move(failure)};
}

std::vector<Problem> SweepProblems(std::span<const intact_isa> isas, std::span<const intact_mode> modes,
                                   Effort effort) {
  const uint64_t seeds = effort == Effort::kThorough ? 4 : 1;
  const size_t step = effort == Effort::kQuick ? 6 : 1;
  std::vector<Problem> problems;
  for (const intact_isa isa : isas) {
    for (const intact_mode mode : modes) {
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        std::vector<Problem> list = GemmProblems(seed);
        const std::vector<Problem> convs = ConvProblems(seed);
        list.insert(list.end(), convs.begin(), convs.end());
        for (size_t i = 0; i < list.size(); i += step) {
          problems.push_back(list[i]);
          problems.back().isa = isa;
          problems.back().mode = mode;
        }
      }
    }
  }
  return problems;
}

SweepResult RunSweep(std::span<const Problem> problems, const Target& target, const Progress& progress) {
  Sweeper sweeper(target);
  int64_t done = 0;
  for (const Problem& problem : problems) {
    sweeper.Run(problem);
    progress(++done, std::ssize(problems));
  }
  return sweeper.Take();
}

}  // namespace intact::verify
