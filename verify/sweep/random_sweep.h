// A sweep that goes on with random problems for as long as is asked.
//
// Problem number i follows from the seed, the stream, the ISAs and i alone, so that parts of a sweep on
// machines of their own differ by their streams, and a run can be done again.
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
  // Without digests and skips; of failures the first kMaxRandomFailures and the minimised, and of what is
  // computed that of those and of the first kMaxRandomComputed problems.
  SweepResult sweep;
  int64_t problems = 0;  // that were run
};

inline constexpr size_t kMaxRandomFailures = 100;
inline constexpr size_t kMaxRandomComputed = 20000;

/// Problem number `number`, on the ISA of `isas` whose turn it is.
Problem RandomSweepProblem(const RandomSweepOptions& options, std::span<const intact_isa> isas,
                           uint64_t number);

/// Runs one problem after the other on our own kernels until `goes_on`, called after each, says no.
RandomSweepResult RunRandomSweep(const RandomSweepOptions& options, std::span<const intact_isa> isas,
                                 const std::function<bool(const RandomSweepResult&)>& goes_on);

/// The same on a target, as far as it takes them; or until it is given up.
RandomSweepResult RunRandomSweep(const RandomSweepOptions& options, const Target& target, const Takes& takes,
                                 const std::function<bool(const RandomSweepResult&)>& goes_on);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_RANDOM_SWEEP_H_
