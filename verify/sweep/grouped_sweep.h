// The sweep of grouped weights: every combination of types, groups and fills, and random problems. All ISAs
// get the same problems, so their digests must be equal.
#ifndef INTACT_VERIFY_SWEEP_GROUPED_SWEEP_H_
#define INTACT_VERIFY_SWEEP_GROUPED_SWEEP_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "verify/problem/problem.h"
#include "verify/problem/target.h"
#include "verify/sweep/effort.h"

namespace intact::verify {

/// The problems of a sweep, each for all of `isas` in turn.
std::vector<Problem> GroupedSweepProblems(std::span<const intact_isa> isas, Effort effort, uint64_t seed = 1);

/// `target` refuses `refused`. The result is `refused` after the first changes with which `target` runs it.
/// The changes lead to products that most libraries have.
std::optional<Problem> Changed(const Target& target, const Problem& refused);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_GROUPED_SWEEP_H_
