// Finds out why a target in a process of its own fails: because of the problem alone, because of earlier
// calls, or by chance.
#ifndef INTACT_VERIFY_SWEEP_EARLIER_CALLS_H_
#define INTACT_VERIFY_SWEEP_EARLIER_CALLS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "verify/explain/judge.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

struct FailureAlone {
  std::string note;  // "" if the problem fails by itself; otherwise what else the failure needs
  // Makes a target on which a problem that runs next fails in the same way; nullptr if the target keeps
  // nothing between runs. `fresh` makes a target that has run nothing.
  using Fresh = std::function<std::unique_ptr<Target>()>;
  std::function<std::unique_ptr<Target>(const Fresh& fresh, const Problem&)> prepare;
  Failure failure;  // as HowFails() returns it; if kHang, Fails() waits less than the whole deadline

  bool hangs() const { return failure.kind == FailureKind::kHang; }
  /// Whether `candidate` in the problem's place fails in the same way, with a failure that is alike.
  /// `target`: as in ReproduceAlone(). `oracle`: the candidate's; only the number of threads may differ.
  bool Fails(const Target& target, const Problem& candidate, const Oracle& oracle) const;
  /// How `candidate` fails; "" if it does not fail. `of_larger`: as in Judge().
  std::string Reason(const Target& target, const Problem& candidate, const Oracle& oracle,
                     const Causes* of_larger) const;
};

/// How many problems before the failing one are tried.
inline constexpr size_t kMostEarlierCalls = 32;
/// How many fresh processes must get the problem right before earlier calls are blamed.
inline constexpr int kFreshProcesses = 5;
/// How often the problem must be wrong after the call that is blamed.
inline constexpr int kTimesBlamed = 3;

/// `problem`, of `oracle`, failed on `target` just now. `failure`: as HowFails() returns it. `before`: the
/// problems that ran before `problem`, in order. No earlier problem is tried after `end`.
FailureAlone ReproduceAlone(const Target& target, const Problem& problem, const Oracle& oracle,
                            const Failure& failure, std::span<const Problem> before,
                            std::chrono::steady_clock::time_point end);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_EARLIER_CALLS_H_
