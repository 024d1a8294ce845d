// Shrinks a failing problem to the smallest problem that still fails, so that a person can follow the
// reported problem by hand.
#ifndef INTACT_VERIFY_SWEEP_MINIMISE_H_
#define INTACT_VERIFY_SWEEP_MINIMISE_H_

#include <functional>

#include "verify/problem/problem.h"

namespace intact::verify {

/// The simplest problem found for which `fails` returns true. fails(problem) is true. Mode, ISA and the types
/// of A and B stay, because other types run other kernels. Takes every simplification that keeps the failure,
/// until no simplification keeps it, or until `fails` has run kMaxMinimiseRuns times.
Problem Minimise(Problem problem, const std::function<bool(const Problem&)>& fails);

inline constexpr int kMaxMinimiseRuns = 600;

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_MINIMISE_H_
