// A sweep of random problems, until it is stopped.
//
// Problem number i follows from the seed, the stream, the ISAs and i alone. So parts of a sweep on several
// machines differ by their streams, and a run can be repeated.
#ifndef INTACT_VERIFY_SWEEP_RANDOM_SWEEP_H_
#define INTACT_VERIFY_SWEEP_RANDOM_SWEEP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "verify/sweep/sweep.h"
#include "verify/targets/fit.h"

namespace intact::verify {

struct RandomSweepOptions {
  uint64_t seed = 1;
  uint64_t stream = 0;  // the number of the shard
  intact_mode mode = INTACT_EXACT;
};

struct RandomSweepResult {
  RandomSweepOptions options;
  // Without digests and skips. `failures` has the first kMaxRandomFailures and all minimised failures.
  // `computed` has the problems of these failures, and the first kMaxRandomComputed other problems.
  SweepResult sweep;
  int64_t problems = 0;  // how many were run
};

inline constexpr size_t kMaxRandomFailures = 100;
inline constexpr size_t kMaxRandomComputed = 20000;

/// Problem number `number`. The problems run on `isas` in turn.
Problem RandomSweepProblem(const RandomSweepOptions& options, std::span<const intact_isa> isas,
                           uint64_t number);

/// Runs random problems on our own kernels until `goes_on` returns false. `goes_on` is called after each
/// problem.
RandomSweepResult RunRandomSweep(const RandomSweepOptions& options, std::span<const intact_isa> isas,
                                 const std::function<bool(const RandomSweepResult&)>& goes_on);

/// Runs random problems on a target, fitted to what the target takes. Also ends when the target is given up.
RandomSweepResult RunRandomSweep(const RandomSweepOptions& options, const Target& target, const Takes& takes,
                                 const std::function<bool(const RandomSweepResult&)>& goes_on);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_RANDOM_SWEEP_H_
