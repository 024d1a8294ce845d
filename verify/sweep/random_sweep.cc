#include "verify/sweep/random_sweep.h"

#include <optional>
#include <string>

#include "core/isas.h"
#include "verify/explain/audit.h"
#include "verify/targets/blocks.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

// Adds `outcome`, and drops what RandomSweepResult does not keep: there may be millions of problems.
void Add(const SweepOutcome& outcome, SweepResult* all) {
  all->Add(outcome);
  all->skips.clear();
  all->digests.clear();
  const bool failed = !outcome.failure.empty();
  const bool is_one_more = failed && all->failures.size() > kMaxRandomFailures;
  const bool is_dropped = is_one_more && all->failures.back().minimised.empty();
  if (is_dropped) all->failures.pop_back();
  const bool is_computed_of_it = outcome.outputs && outcome.outputs->naming;
  const bool is_kept = failed && !is_dropped;
  if (is_computed_of_it && !is_kept && all->computed.size() > kMaxRandomComputed) all->computed.pop_back();
}

void RunOne(const Problem& problem, Sweeper* sweeper, RandomSweepResult* result) {
  const SweepOutcome outcome = sweeper->Run(problem, problem.ToString());
  Add(outcome, &result->sweep);
  result->problems += outcome.skipped.empty() ? 1 : 0;
}

}  // namespace

Problem RandomSweepProblem(const RandomSweepOptions& options, std::span<const intact_isa> isas,
                           uint64_t number) {
  const intact_isa isa = isas[number % isas.size()];
  support::Random random(options.seed, options.stream, number);
  Problem problem = DrawProblem(BlocksOf(isa), options.mode, &random);
  problem.isa = isa;
  return problem;
}

RandomSweepResult RunRandomSweep(const RandomSweepOptions& options, std::span<const intact_isa> isas,
                                 const std::function<bool(const RandomSweepResult&)>& goes_on) {
  RandomSweepResult result;
  result.options = options;
  const IntactTarget target;
  Sweeper sweeper(target);
  for (uint64_t number = 0; !isas.empty(); ++number) {
    RunOne(RandomSweepProblem(options, isas, number), &sweeper, &result);
    if (!goes_on(result)) break;
  }
  return result;
}

RandomSweepResult RunRandomSweep(const RandomSweepOptions& options, const Target& target, const Takes& takes,
                                 const std::function<bool(const RandomSweepResult&)>& goes_on) {
  RandomSweepResult result;
  result.options = options;
  Sweeper sweeper(target);
  for (uint64_t number = 0; target.WhyGivenUp().empty(); ++number) {
    // Shapes that are hard for the kernels of one of our ISAs, in turn.
    const intact_isa isa = core::kIsaLadder[number % core::kIsaLadder.size()];
    support::Random random(options.seed, options.stream, number);
    const Problem drawn = DrawProblem(BlocksOf(isa), options.mode, &random);
    const std::optional<Problem> problem = Fit(drawn, takes);
    if (problem) RunOne(*problem, &sweeper, &result);
    if (!goes_on(result)) break;
  }
  return result;
}

}  // namespace intact::verify
