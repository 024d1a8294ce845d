// Shrinks a failing problem to the smallest that still fails, so that the line a user gets is one that a
// person can follow by hand.
#ifndef INTACT_VERIFY_SWEEP_MINIMISE_H_
#define INTACT_VERIFY_SWEEP_MINIMISE_H_

#include <functional>

#include "verify/problem/problem.h"

namespace intact::verify {

/// The simplest problem found for which `fails` still holds; it holds for `problem`. Mode, ISA and the types
/// of A and B stay, because other types run other kernels. Greedy: takes every simplification that keeps the
/// failure, until none does, or after `kMaxMinimiseRuns` runs of `fails`.
Problem Minimise(Problem problem, const std::function<bool(const Problem&)>& fails);

inline constexpr int kMaxMinimiseRuns = 600;

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_MINIMISE_H_
