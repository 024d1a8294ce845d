#include "verify/explain/grouped.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "reference/models/grouped.h"
#include "support/fnv1a.h"

namespace intact::verify {
namespace {

// Explains outputs that differ from the contract.
class Explainer {
 public:
  Explainer(const reference::Grouped& grouped, const std::vector<uint8_t>& output)
      : grouped_(grouped), output_(output) {}

  // `claim`: with "any" a bound explains more than a fault does: outputs near 0 may be both.
  GroupedNaming Explain(std::string_view claim) const {
    GroupedNaming found = ByModels(false);
    if (found.arithmetic.empty() && claim == "any") found = ByBound();
    if (found.arithmetic.empty()) found = ByModels(true);
    if (found.arithmetic.empty() && claim != "any") found = ByBound();
    return found;
  }

 private:
  // The first arithmetic that reproduces all outputs, of those with a fault or of the others.
  GroupedNaming ByModels(bool is_fault) const {
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
  GroupedNaming ByBound() const {
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

Comparison CountGrouped(const Oracle& oracle, const std::vector<uint8_t>& output) {
  Comparison comparison;
  const ByteComparison bytes = CompareBytes(oracle.type(), oracle.expected(), output);
  comparison.outputs = bytes.outputs;
  comparison.differing = bytes.differing;
  comparison.max_abs_difference = bytes.max_abs_difference;
  comparison.first_differing = bytes.first_differing;
  comparison.digest = support::Fnv1a(output);
  comparison.by_cause[static_cast<size_t>(Cause::kImplementationError)] = bytes.differing;
  if (comparison.Parity()) return comparison;
  Difference& first = comparison.listed.emplace_back();
  first.m = bytes.first_differing / oracle.columns();
  first.n = bytes.first_differing % oracle.columns();
  first.expected = bytes.first_expected;
  first.actual = bytes.first_actual;
  return comparison;
}

Comparison ExplainGrouped(const Oracle& oracle, const std::vector<uint8_t>& output, std::string_view claim) {
  Comparison comparison = CountGrouped(oracle, output);
  comparison.grouped =
      comparison.Parity() ? GroupedNaming{"exact"} : Explainer(*oracle.grouped(), output).Explain(claim);
  if (comparison.grouped->arithmetic.empty()) return comparison;
  comparison.by_cause = {};
  comparison.by_cause[static_cast<size_t>(Cause::kFloatSums)] = comparison.differing;
  return comparison;
}

}  // namespace intact::verify
