// Compares outputs of grouped weights with the contract, and finds what computes all of them. For
// verify/explain/compare.cc and verify/explain/judge.cc.
#ifndef INTACT_VERIFY_EXPLAIN_GROUPED_H_
#define INTACT_VERIFY_EXPLAIN_GROUPED_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "verify/explain/comparison.h"
#include "verify/explain/oracle.h"

namespace intact::verify {

/// CountDifferences() of grouped weights.
Comparison CountGrouped(const Oracle& oracle, const std::vector<uint8_t>& output);
/// Explain() of grouped weights. `claim`: "exact" or "any". With "any", a bound explains more than a fault
/// does. Outputs that an arithmetic makes count as float sums.
Comparison ExplainGrouped(const Oracle& oracle, const std::vector<uint8_t>& output, std::string_view claim);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_GROUPED_H_
