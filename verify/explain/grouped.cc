#include "verify/explain/grouped.h"

#include <fmt/format.h>

#include "core/result.h"
#include "core/types.h"
#include "support/fnv1a.h"
#include "verify/explain/claim.h"
#include "verify/problem/element.h"

namespace intact::verify {
namespace {

struct Explanation {
  std::string arithmetic;  // "" if nothing explains the outputs
  bool is_fault = false;
  std::optional<double> error = std::nullopt;  // the largest, as a share of the bound
};

// Explains outputs that differ from the contract.
class Explainer {
 public:
  Explainer(const reference::Grouped& grouped, const std::vector<uint8_t>& output)
      : grouped_(grouped), output_(output) {}

  // `claim`: with "any" a bound explains more than a fault does: outputs near 0 may be both.
  Explanation Explain(std::string_view claim) const {
    Explanation found = ByModels(false);
    if (found.arithmetic.empty() && claim == "any") found = ByBound();
    if (found.arithmetic.empty()) found = ByModels(true);
    if (found.arithmetic.empty() && claim != "any") found = ByBound();
    return found;
  }

 private:
  // The first arithmetic that reproduces all outputs, of those with a fault or of the others.
  Explanation ByModels(bool is_fault) const {
    using reference::GroupedArithmetic;
    using reference::GroupedModel;
    for (const reference::GroupedActivations activations : reference::ActivationsOf(grouped_)) {
      const reference::Grouped quantized = Requantized(grouped_, activations);
      if (!is_fault && reference::Outputs(quantized) == output_) {
        return {ToString(GroupedArithmetic{activations, GroupedModel::kContract})};
      }
      for (const GroupedModel model : reference::AllGroupedModels()) {
        if (IsFault(model) != is_fault || reference::Outputs(quantized, model) != output_) continue;
        return {ToString(GroupedArithmetic{activations, model}), is_fault};
      }
    }
    return {};
  }
  Explanation ByBound() const {
    using reference::GroupedActivations;
    for (const GroupedActivations activations : reference::ActivationsOf(grouped_)) {
      const reference::Grouped quantized = Requantized(grouped_, activations);
      const std::optional<double> error = RoundingError(quantized, reference::Outputs(quantized), output_);
      if (!error) continue;
      const std::string order = "float32 sums in another order, within the bound of their rounding errors";
      if (activations == GroupedActivations::kContract) return {order, false, error};
      return {ToString(reference::GroupedArithmetic{activations}) + "; " + order, false, error};
    }
    return {};
  }

  const reference::Grouped& grouped_;
  const std::vector<uint8_t>& output_;
};

}  // namespace

GroupedOracle::GroupedOracle(const Problem& of)
    : problem(of), grouped(MaterializeGrouped(of)), expected(reference::Outputs(grouped)) {}

std::string GroupedJudgement::InWords() const {
  if (arithmetic.empty()) return "unexplained";
  return error ? fmt::format("{} (at most {:.2g} % of it)", arithmetic, 100 * *error) : arithmetic;
}

GroupedJudgement Compare(const reference::Grouped& grouped, const std::vector<uint8_t>& expected,
                         const std::vector<uint8_t>& output, std::string_view claim) {
  GroupedJudgement judgement;
  judgement.outputs = grouped.m * grouped.n;
  judgement.digest = support::Fnv1a(output);
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
      judgement.differing == 0 ? Explanation{"exact"} : Explainer(grouped, output).Explain(claim);
  judgement.arithmetic = explanation.arithmetic;
  judgement.error = explanation.error;
  const bool is_right = !judgement.arithmetic.empty() && !explanation.is_fault;
  if (claim == "any" ? is_right : judgement.differing == 0) return judgement;
  judgement.failure = fmt::format("{} of {} outputs differ; {}; {}", judgement.differing, judgement.outputs,
                                  first, judgement.InWords());
  return judgement;
}

Result<GroupedJudgement> Judge(const Target& target, const GroupedOracle& oracle, const RunOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> output, target.Run(oracle.grouped, options));
  return Compare(oracle.grouped, oracle.expected, output, GroupedClaimOf(target.Arithmetic()));
}

Result<GroupedJudgement> JudgeGrouped(const Target& target, const Problem& problem) {
  return Judge(target, GroupedOracle(problem), RunOptionsOf(problem));
}

}  // namespace intact::verify
