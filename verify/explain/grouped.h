// Judges the outputs of a problem of grouped weights.
#ifndef INTACT_VERIFY_EXPLAIN_GROUPED_H_
#define INTACT_VERIFY_EXPLAIN_GROUPED_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/models/grouped.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// A problem's tensors, with the outputs of the contract.
struct GroupedOracle {
  explicit GroupedOracle(const Problem& problem);
  Problem problem;
  reference::Grouped grouped;
  std::vector<uint8_t> expected;
};

struct GroupedJudgement {
  int64_t outputs = 0, differing = 0;
  uint64_t digest = 0;  // FNV-1a of the target's bytes
  /// What computes every output: "exact", the phrase of an arithmetic or of a bound; "" if nothing explains
  /// the outputs.
  std::string arithmetic;
  /// The largest error of an output as a share of the bound; nullopt if `arithmetic` names no bound.
  std::optional<double> error;
  std::string failure;  // "" if the outputs are as claimed; else the first difference and what explains it
  bool Passed() const { return failure.empty(); }
  /// The arithmetic with `error`, or "unexplained".
  std::string InWords() const;
};

/// Compares `output`, the dense bytes of a target, with the contract: `expected` is
/// reference::Outputs(grouped). `claim`: "exact", or "any": then every arithmetic without a fault passes.
GroupedJudgement Compare(const reference::Grouped& grouped, const std::vector<uint8_t>& expected,
                         const std::vector<uint8_t>& output, std::string_view claim = "exact");
/// Runs the oracle's operation on `target` with `options`. Returns the target's error if it reports one.
Result<GroupedJudgement> Judge(const Target& target, const GroupedOracle& oracle, const RunOptions& options);
/// As Judge(), for `problem`, which has grouped weights.
Result<GroupedJudgement> JudgeGrouped(const Target& target, const Problem& problem);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_GROUPED_H_
