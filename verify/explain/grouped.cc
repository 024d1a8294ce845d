#include "verify/explain/grouped.h"

#include <fmt/format.h>

#include "core/result.h"
#include "core/types.h"
#include "verify/explain/claim.h"
#include "verify/problem/element.h"

namespace intact::verify {
namespace {

struct Explanation {
  std::string arithmetic;  // "" if nothing explains the outputs
  bool is_fault = false;
};

// The arithmetic of outputs that differ from the contract.
Explanation Explain(const reference::Grouped& grouped, const std::vector<uint8_t>& expected,
                    const std::vector<uint8_t>& output) {
  using reference::GroupedActivations;
  using reference::GroupedArithmetic;
  using reference::GroupedModel;
  const std::vector<GroupedActivations> all = reference::ActivationsOf(grouped);
  for (const GroupedActivations activations : all) {
    const reference::Grouped quantized = Requantized(grouped, activations);
    if (reference::Outputs(quantized) == output)
      return {ToString(GroupedArithmetic{activations, GroupedModel::kContract})};
    for (const GroupedModel model : reference::AllGroupedModels()) {
      if (reference::Outputs(quantized, model) != output) continue;
      return {ToString(GroupedArithmetic{activations, model}), IsFault(model)};
    }
  }
  for (const GroupedActivations activations : all) {
    const bool is_contract = activations == GroupedActivations::kContract;
    const reference::Grouped quantized = Requantized(grouped, activations);
    const std::vector<uint8_t> sums = is_contract ? expected : reference::Outputs(quantized);
    if (!IsWithinRounding(quantized, sums, output)) continue;
    const std::string order = "float32 sums in another order, within the bound of their rounding errors";
    return {is_contract ? order
                        : ToString(GroupedArithmetic{activations, GroupedModel::kContract}) + "; " + order};
  }
  return {};
}

}  // namespace

GroupedJudgement Compare(const reference::Grouped& grouped, const std::vector<uint8_t>& expected,
                         const std::vector<uint8_t>& output, std::string_view claim) {
  GroupedJudgement judgement;
  judgement.outputs = grouped.m * grouped.n;
  if (output.size() != expected.size()) {
    judgement.differing = judgement.outputs;
    judgement.failure = fmt::format("{} bytes of output; expected {}", output.size(), expected.size());
    return judgement;
  }
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.c_type));
  std::string first;
  for (int64_t i = 0; i < judgement.outputs; ++i) {
    const size_t at = static_cast<size_t>(i) * bytes;
    if (IsSameElement(bytes, &expected[at], &output[at])) continue;
    if (judgement.differing++ != 0) continue;
    first =
        fmt::format("output ({}, {}) is {} instead of {}", i / grouped.n, i % grouped.n,
                    core::Decode(grouped.c_type, &output[at]), core::Decode(grouped.c_type, &expected[at]));
  }
  const Explanation explanation =
      judgement.differing == 0 ? Explanation{"exact"} : Explain(grouped, expected, output);
  judgement.arithmetic = explanation.arithmetic;
  const bool is_right = !judgement.arithmetic.empty() && !explanation.is_fault;
  if (claim == "any" ? is_right : judgement.differing == 0) return judgement;
  judgement.failure = fmt::format("{} of {} outputs differ; {}; {}", judgement.differing, judgement.outputs,
                                  first, judgement.arithmetic.empty() ? "unexplained" : judgement.arithmetic);
  return judgement;
}

Result<GroupedJudgement> Judge(const GroupedTarget& target, const GroupedProblem& problem) {
  const reference::Grouped grouped = Materialize(problem);
  ASSIGN_OR_RETURN(const std::vector<uint8_t> output, target.Run(grouped, problem));
  return Compare(grouped, reference::Outputs(grouped), output, GroupedClaimOf(target.GroupedClaims()));
}

}  // namespace intact::verify
