// Whether a failure of a target in a process of its own is that of its problem alone, or has to do with the
// calls before it, or with the moment.
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
  std::string note;  // "" if the problem fails by itself; else after what it does
  // Makes a target that has run what it takes for a problem in its place to fail likewise; nullptr where the
  // target keeps nothing between runs. `fresh` makes one that has run nothing.
  using Fresh = std::function<std::unique_ptr<Target>()>;
  std::function<std::unique_ptr<Target>(const Fresh& fresh, const Problem&)> prepare;
  bool hangs = false;  // then Fails() does not wait the whole deadline

  /// Whether `candidate`, in the problem's place, fails likewise on `target`, which is the same. `oracle`: of
  /// the candidate, whatever its threads.
  bool Fails(const Target& target, const Problem& candidate, const Oracle& oracle) const;
  /// With what; "" if it does not. `preferred`: as Judge() has it.
  std::string Reason(const Target& target, const Problem& candidate, const Oracle& oracle,
                     Arithmetics preferred) const;
};

/// So many problems before the failing one are tried.
inline constexpr size_t kMostEarlierCalls = 32;
/// So often the problem must be right in fresh processes before earlier calls are blamed.
inline constexpr int kFreshProcesses = 5;
/// So often it must be wrong after the call that is blamed.
inline constexpr int kTimesBlamed = 3;

/// `problem`, of `oracle`, failed on `target`, just now, as `kind` says, after `before`, in this order. Of
/// these none is tried after `end`.
FailureAlone ReproduceAlone(const Target& target, const Problem& problem, const Oracle& oracle,
                            FailureKind kind, std::span<const Problem> before,
                            std::chrono::steady_clock::time_point end);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_EARLIER_CALLS_H_
