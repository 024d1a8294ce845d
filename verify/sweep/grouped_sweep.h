// The sweep of grouped weights: every combination of types, groups and fills, and random problems. All ISAs
// get the same problems, so their digests must be equal.
#ifndef INTACT_VERIFY_SWEEP_GROUPED_SWEEP_H_
#define INTACT_VERIFY_SWEEP_GROUPED_SWEEP_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "verify/problem/grouped.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/grouped_target.h"

namespace intact::verify {

/// What a sweep found for one ISA.
struct GroupedCell {
  intact_isa isa = INTACT_ISA_ANY;
  int64_t problems = 0, skipped = 0, failed = 0;
  int64_t outputs = 0, differing = 0, unexplained = 0;
  uint64_t digest = 0;                              // of all outputs
  std::map<std::string, int64_t> arithmetics = {};  // problems of each arithmetic
  double error = 0;                                 // the largest, as a share of the bound of other orders
  int64_t changed = 0;                              // problems that a target refused, and ran after a change
  std::map<std::string, int64_t> refusals = {};     // skipped problems of each reason
};

struct GroupedSweepResult {
  std::vector<GroupedCell> cells;
  /// SweepFailure::kind is unused. At most kMostFailures.
  std::vector<SweepFailure> failures;
  static constexpr size_t kMostFailures = 20;
  int64_t not_run = 0;  // problems that were left when the target was given up
  std::string why_not_run;
  /// Passed only if each ISA ran more problems than it skipped.
  SweepVerdict Verdict() const;
  bool Passed() const { return Verdict() == SweepVerdict::kPassed; }
};

/// The problems of a sweep for one ISA.
std::vector<GroupedProblem> GroupedSweepProblems(intact_isa isa, Effort effort, uint64_t seed = 1);

/// `problem`, changed so that it needs only `features` where a change can do that.
GroupedProblem Fitted(GroupedProblem problem, uint64_t features);

/// A smaller problem that `target` fails in the same way, with the same cause; `problem` itself if there is
/// none.
GroupedProblem Minimise(const GroupedTarget& target, const GroupedProblem& problem);

/// Runs the problems, fitted to the target, on each of `isas`.
GroupedSweepResult RunGroupedSweep(std::span<const intact_isa> isas, Effort effort, uint64_t seed,
                                   const GroupedTarget& target, const Progress& progress);

/// A line for each cell, the arithmetics and refusals of a target, and the failures.
std::string CellsText(const GroupedSweepResult& result);
/// CellsText() and the verdict.
std::string ToText(const GroupedSweepResult& result);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_GROUPED_SWEEP_H_
