// Sets fields of problems to their defaults: the values if a line does not have the key. The list of a
// problem's fields says which features a target needs for other values.
#ifndef INTACT_VERIFY_PROBLEM_RESET_H_
#define INTACT_VERIFY_PROBLEM_RESET_H_

#include <intact/target.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace intact::verify {

struct Problem;
struct GroupedProblem;

/// Resets the fields that need `feature`.
void ResetNeeding(intact_target_feature feature, Problem* problem);
/// Resets the fields that need other features than `features`.
void ResetLacking(uint64_t features, GroupedProblem* problem);
/// Resets the field of `key`.
void Reset(std::string_view key, GroupedProblem* problem);
/// The keys of fields that a line of grouped weights need not have.
std::vector<std::string_view> OptionalGroupedKeys();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_RESET_H_
