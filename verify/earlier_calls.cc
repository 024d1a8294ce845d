#include "verify/earlier_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "verify/judge.h"

namespace intact::verify {
namespace {

// A fresh process that ran `first`.
std::unique_ptr<Target> FreshAfter(const Target& target, const Problem& first) {
  std::unique_ptr<Target> fresh = target.Fresh();
  if (fresh != nullptr) (void)Fails(*fresh, first);
  return fresh;
}

}  // namespace

bool FailureAlone::Fails(const Target& target, const Problem& candidate) const {
  const std::unique_ptr<Target> own = prepare(candidate);
  return verify::Fails(own ? *own : target, candidate);
}

std::string FailureAlone::Reason(const Target& target, const Problem& candidate,
                                 Arithmetics preferred) const {
  const std::unique_ptr<Target> own = prepare(candidate);
  const Result<Judgement> judgement = Judge(own ? *own : target, candidate, preferred);
  return judgement ? judgement->failure : MessageOf(judgement.error());
}

FailureAlone ReproduceAlone(const Target& target, const Problem& problem, std::span<const Problem> before,
                            std::chrono::steady_clock::time_point end) {
  const std::unique_ptr<Target> fresh = target.Fresh();
  const auto alone = [&target](const Problem&) { return target.Fresh(); };
  if (fresh == nullptr || Fails(*fresh, problem)) return {"", alone};
  if (Fails(*fresh, problem)) {
    return {"right in a fresh process, wrong when called again: it depends on earlier calls",
            [&target](const Problem& candidate) { return FreshAfter(target, candidate); }};
  }
  const size_t tried = std::min(before.size(), kMostEarlierCalls);
  for (size_t i = 1; i <= tried && std::chrono::steady_clock::now() < end; ++i) {
    const Problem& first = before[before.size() - i];
    FailureAlone failure = {
        fmt::format("right in a fresh process, wrong after '{}': it depends on earlier calls",
                    first.ToString()),
        [&target, first](const Problem&) { return FreshAfter(target, first); }};
    if (failure.Fails(target, problem)) return failure;
  }
  return {"right in a fresh process: it depends on earlier calls, or changes from run to run", alone};
}

}  // namespace intact::verify
