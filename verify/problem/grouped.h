// Problems of grouped weights (include/intact/grouped.h): random ones, and the rules of their fields.
#ifndef INTACT_VERIFY_PROBLEM_GROUPED_H_
#define INTACT_VERIFY_PROBLEM_GROUPED_H_

#include <array>
#include <cstdint>
#include <optional>

#include "support/random.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// Depths of groups; 0: all depths.
inline constexpr std::array kGroups = {int64_t{0},  int64_t{16},  int64_t{32},
                                       int64_t{64}, int64_t{128}, int64_t{256}};

/// nullopt, or what is wrong with fields that are in their ranges.
std::optional<Error> CheckGrouped(const Problem& problem);
/// A random problem that Check() accepts.
Problem DrawGrouped(support::Random* random);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_GROUPED_H_
