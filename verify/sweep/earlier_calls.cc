#include "verify/sweep/earlier_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "verify/explain/judge.h"

namespace intact::verify {
namespace {

using Fresh = FailureAlone::Fresh;

std::unique_ptr<Target> Alone(const Fresh& fresh, const Problem& /*candidate*/) { return fresh(); }

// A fresh process that ran `first`.
std::unique_ptr<Target> After(const Fresh& fresh, const Problem& first) {
  std::unique_ptr<Target> target = fresh();
  if (target != nullptr) (void)RunChecked(*target, Oracle(first), InAllPlaces(first));
  return target;
}

// Calls after which a problem may fail that is right in a fresh process: the problem itself, the last one
// that ran, the one before, and so on.
std::vector<FailureAlone> Suspects(std::span<const Problem> before, const Failure& failure) {
  std::vector<FailureAlone> suspects = {
      {"right in a fresh process, wrong when called again: it depends on earlier calls", After, failure}};
  const size_t tried = std::min(before.size(), kMostEarlierCalls);
  for (size_t i = 1; i <= tried; ++i) {
    const Problem& first = before[before.size() - i];
    suspects.push_back(
        {fmt::format("right in a fresh process, wrong after '{}': it depends on earlier calls",
                     first.ToString()),
         [first](const Fresh& fresh, const Problem& /*candidate*/) { return After(fresh, first); }, failure});
  }
  return suspects;
}

}  // namespace

bool FailureAlone::Fails(const Target& target, const Problem& candidate, const Oracle& oracle) const {
  const std::unique_ptr<Target> own =
      prepare([&] { return hangs() ? target.FreshForHangs() : target.Fresh(); }, candidate);
  const std::optional<Failure> how = HowFails(own ? *own : target, oracle, InAllPlaces(candidate));
  return how && AreAlike(*how, failure);
}

std::string FailureAlone::Reason(const Target& target, const Problem& candidate, const Oracle& oracle,
                                 const Causes* of_larger) const {
  const std::unique_ptr<Target> own = prepare([&] { return target.Fresh(); }, candidate);
  const Result<Judgement> judgement = Judge(own ? *own : target, oracle, InAllPlaces(candidate), of_larger);
  return judgement ? judgement->failure : MessageOf(judgement.error());
}

FailureAlone ReproduceAlone(const Target& target, const Problem& problem, const Oracle& oracle,
                            const Failure& failure, std::span<const Problem> before,
                            std::chrono::steady_clock::time_point end) {
  FailureAlone alone = {"", Alone, failure};
  if (failure.kind == FailureKind::kChangesFromRunToRun || target.Fresh() == nullptr) return alone;
  // How many times in a row, up to `most`, the problem fails (or does not fail, if `fails` is false).
  const auto times_in_a_row = [&](const FailureAlone& tried, bool fails, int most) {
    int times = 0;
    while (times < most && tried.Fails(target, problem, oracle) == fails) ++times;
    return times;
  };
  const int right = times_in_a_row(alone, false, kFreshProcesses);
  if (right == 0) return alone;
  const FailureAlone changing = {"right in a fresh process now and then: it changes from run to run", Alone,
                                 failure};
  if (right < kFreshProcesses) return changing;
  for (FailureAlone& suspect : Suspects(before, failure)) {
    if (std::chrono::steady_clock::now() >= end) break;
    const int wrong = times_in_a_row(suspect, true, kTimesBlamed);
    if (wrong == kTimesBlamed) return std::move(suspect);
    if (wrong > 0) return changing;
  }
  alone.note = "right in a fresh process: it depends on earlier calls, or changes from run to run";
  return alone;
}

}  // namespace intact::verify
