#include "verify/studies/grouped_layer_check.h"

#include <fmt/format.h>

#include <cstdlib>

#include "core/result.h"
#include "core/types.h"
#include "reference/contract/grouped.h"
#include "support/counted.h"
#include "verify/explain/claim.h"
#include "verify/problem/element.h"
#include "verify/studies/grouped_layer.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {

Result<GroupedLayerCheck> CheckGroupedLayer(const Layer& layer, const Target& target, const std::string& by,
                                            intact_isa isa, const std::vector<Expectation>& recorded,
                                            const std::optional<Expectation>& expected) {
  const reference::Grouped& grouped = *layer.grouped();
  GroupedLayerCheck check;
  check.layer = layer.name;
  check.operation =
      fmt::format("{} {}{}{}, {}×{}×{}, {}", kGroupedOperator, core::NameOf(grouped.a_type),
                  core::NameOf(grouped.b_type), core::NameOf(grouped.c_type), grouped.m, grouped.n, grouped.k,
                  grouped.group == 0 ? "one group" : fmt::format("groups of {}", grouped.group));
  check.by = by;
  const Oracle oracle(grouped);
  ASSIGN_OR_RETURN(const Grouped plan, CreatePlan(grouped, {}));  // checks the tensors
  ASSIGN_OR_RETURN(check.certificate, plan.Certificate());
  ASSIGN_OR_RETURN(const std::vector<uint8_t> output,
                   RunChecked(target, oracle, RunOptions{{.isa = isa}, {}, true, {}}));
  check.judgement = JudgeGrouped(oracle, output, ClaimOf(target.Arithmetic(), KindOf(oracle)));
  for (const auto& [file, bytes] : recorded) {
    check.recorded.emplace_back(file, JudgeGrouped(oracle, bytes, "any"));
  }
  if (!expected) return check;
  check.expect_file = expected->file;
  check.unexpected = 0;
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.c_type));
  for (size_t at = 0; at < output.size(); at += bytes) {
    if (!IsSameElement(bytes, &expected->output[at], &output[at])) ++*check.unexpected;
  }
  check.recorded.emplace_back(expected->file, JudgeGrouped(oracle, expected->output, "any"));
  return check;
}

std::string ToText(const GroupedLayerCheck& check) {
  const auto in_words = [](const Judgement& judgement) {
    const Comparison& comparison = judgement.comparison;
    if (!judgement.failure.empty()) return judgement.failure;
    if (comparison.Parity()) return fmt::format("{}: exact", support::Counted(comparison.outputs, "output"));
    return fmt::format(
        "{} from exact: {}",
        support::PartOf(comparison.differing, comparison.outputs, "output", "differs", "differ"),
        comparison.grouped->InWords());
  };
  std::string text =
      fmt::format("{}: {}\n  {}: {}\n", check.layer, check.operation, check.by, in_words(check.judgement));
  const intact_pairs_certificate& certificate = check.certificate;
  if (certificate.failing_pairs == 0) {
    text += fmt::format("  no pair of weights can saturate: sums are within {}\n",
                        std::abs(certificate.largest_sum));
  } else {
    text += fmt::format("  {} of {} pairs of weights can saturate; activations to {} are safe\n",
                        certificate.failing_pairs, certificate.pairs, certificate.safe_activation);
  }
  for (const auto& [file, judgement] : check.recorded)
    text += fmt::format("  {}: {}\n", file, in_words(judgement));
  if (check.unexpected && *check.unexpected != 0) {
    text +=
        fmt::format("  DIFFERENT: {} outputs are not those of {}\n", *check.unexpected, check.expect_file);
  }
  return text;
}

}  // namespace intact::verify
