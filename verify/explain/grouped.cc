#include "verify/explain/grouped.h"

#include <fmt/format.h>

#include <string_view>

#include "core/result.h"
#include "core/types.h"
#include "verify/problem/element.h"

namespace intact::verify {

GroupedJudgement Compare(const reference::Grouped& grouped, const std::vector<uint8_t>& expected,
                         const std::vector<uint8_t>& output) {
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
  if (judgement.differing == 0) return judgement;
  for (const reference::GroupedModel model : reference::AllGroupedModels()) {
    if (reference::Outputs(grouped, model) != output) continue;
    judgement.model = model;
    break;
  }
  judgement.failure =
      fmt::format("{} of {} outputs differ; {}; {}", judgement.differing, judgement.outputs, first,
                  judgement.model ? reference::ToString(*judgement.model) : "unexplained");
  return judgement;
}

Result<GroupedJudgement> Judge(const GroupedTarget& target, const GroupedProblem& problem) {
  const reference::Grouped grouped = Materialize(problem);
  ASSIGN_OR_RETURN(const std::vector<uint8_t> output, target.Run(grouped, problem));
  return Compare(grouped, reference::Outputs(grouped), output);
}

}  // namespace intact::verify
