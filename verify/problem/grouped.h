// Problems of grouped weights (include/intact/grouped.h): random ones, and the rules of their fields.
#ifndef INTACT_VERIFY_PROBLEM_GROUPED_H_
#define INTACT_VERIFY_PROBLEM_GROUPED_H_

#include <optional>

#include "support/random.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// nullopt, or what is wrong with fields that are in their ranges.
std::optional<Error> CheckGrouped(const Problem& problem);
/// A random problem that Check() accepts.
Problem DrawGrouped(support::Random* random);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_GROUPED_H_
