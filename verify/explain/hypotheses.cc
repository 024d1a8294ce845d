#include "verify/explain/hypotheses.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "core/types.h"
#include "verify/explain/pairing.h"
#include "verify/problem/element.h"

namespace intact::verify {
namespace {

using reference::Arithmetic;
using reference::CompensationTime;
using reference::Model;
using reference::Rounding;

// ----- of all outputs -------------------------------------------------------------------------------------

// An arithmetic that may have made all outputs.
struct CommonHypothesis {
  std::string_view name;
  std::vector<Arithmetic> (*predict)(const Answer&, const AcceptanceRules&);
  bool (*test)(const Answer&, const AcceptanceRules&, const Arithmetic&);
};

bool MakesAll(const Answer& answer, const Arithmetic& arithmetic) {
  const bool has_its_sums =
      !answer.accumulators() || *answer.accumulators() == answer.oracle().Accumulators(arithmetic.model);
  return has_its_sums && answer.oracle().Wrapped(arithmetic) == answer.actual();
}

// Whether the identified arithmetic explains more outputs than chance would. Wrapping sums are off by 65536
// whatever wraps, so they must explain all outputs.
bool IsNoChance(const Answer& answer, const AcceptanceRules& rules, const Arithmetic& arithmetic) {
  const Identity& identity = answer.identity();
  if (rules.sums && identity.Found() && arithmetic.model != Model::kExact) return true;
  const bool are_accumulators_known = answer.oracle().type() == INTACT_S32 || answer.accumulators();
  const bool is_certain = are_accumulators_known && !arithmetic.model.WrapsInt16();
  const int64_t explained = answer.differing() - identity.unexplained;
  if (explained < (is_certain ? 1 : answer.LeastExplained())) return false;
  return !arithmetic.model.WrapsInt16() || identity.Found();
}

constexpr CommonHypothesis kOfAllOutputs[] = {
    {"what made a larger problem",
     [](const Answer&, const AcceptanceRules& rules) {
       return rules.of_larger == nullptr ? std::vector<Arithmetic>() : rules.of_larger->arithmetics;
     },
     [](const Answer& answer, const AcceptanceRules&, const Arithmetic& arithmetic) {
       return MakesAll(answer, arithmetic);
     }},
    {"VPMADDUBSW",
     [](const Answer& answer, const AcceptanceRules&) {
       return std::vector<Arithmetic>{{MaddubsOf(answer.oracle().linear().pairing)}};
     },
     [](const Answer& answer, const AcceptanceRules&, const Arithmetic& arithmetic) {
       return answer.oracle().Wrapped(arithmetic) == answer.actual();
     }},
    {"the arithmetic that was identified",
     [](const Answer& answer, const AcceptanceRules&) {
       return std::vector<Arithmetic>{answer.identity().arithmetic};
     },
     IsNoChance},
};

std::optional<Arithmetic> CommonArithmetic(const Answer& answer, const AcceptanceRules& rules) {
  for (const CommonHypothesis& hypothesis : kOfAllOutputs) {
    for (const Arithmetic& arithmetic : hypothesis.predict(answer, rules)) {
      if (rules.Allows(arithmetic) && hypothesis.test(answer, rules, arithmetic)) return arithmetic;
    }
  }
  return std::nullopt;
}

// ----- of one output --------------------------------------------------------------------------------------

struct Context {
  const Answer& answer;
  std::optional<Arithmetic> common;
};

// A model that may have made an output, and its accumulator.
struct Prediction {
  Model model;
  int32_t accumulator;
};

// A cause of one output. The test returns the roundings under which the accumulator makes the output; if
// there are several, the rounding that makes most outputs is chosen.
struct OutputHypothesis {
  std::string_view name;
  std::optional<Prediction> (*predict)(const Context&, const Observation&, int64_t output);
  std::vector<Rounding> (*test)(const Context&, const Observation&, int32_t accumulator);
};

std::vector<Rounding> ThatMake(const Observation& seen, int32_t y, std::span<const Rounding> roundings) {
  std::vector<Rounding> found;
  for (const Rounding rounding : roundings) {
    if (seen.GivenBy(y, rounding)) found.push_back(rounding);
  }
  return found;
}

std::vector<Rounding> AsTheContract(const Context& /*context*/, const Observation& seen, int32_t y) {
  if (seen.GivenBy(y)) return {Rounding::kContract};
  return {};
}

// Saturating int32 sums of the operation's adjacent depths, as in Model::kDpbusds, except for the time of the
// compensation.
template <CompensationTime kTime>
std::optional<Prediction> ThatSaturates(const Context& context, const Observation& seen, int64_t /*output*/) {
  constexpr int64_t kLargestProduct = 255 * 128;
  const reference::Operands& operands = seen.operands;
  const int64_t largest =
      operands.k * kLargestProduct + std::abs(int64_t{operands.Compensation(seen.m, seen.n)});
  if (largest <= std::numeric_limits<int32_t>::max()) return std::nullopt;
  Model model = Model::kDpbusds;
  model.order = AdjacentPairs(KindOf(context.answer.oracle())).order;
  model.compensation = kTime;
  const int32_t y = operands.Accumulator(model, reference::InPairs(model, operands.depths), seen.m, seen.n);
  if (y == seen.exact) return std::nullopt;
  return Prediction{model, y};
}

constexpr OutputHypothesis kOfOneOutput[] = {
    {"the arithmetic of all outputs",
     [](const Context& context, const Observation&, int64_t output) -> std::optional<Prediction> {
       if (!context.common) return std::nullopt;
       const Model& model = context.common->model;
       const std::vector<int32_t>& y = context.answer.oracle().Accumulators(model);
       return Prediction{model, y[static_cast<size_t>(output)]};
     },
     [](const Context& context, const Observation& seen, int32_t y) {
       return ThatMake(seen, y, std::span(&context.common->rounding, 1));
     }},
    {"adjacent pairs",
     [](const Context& context, const Observation& seen, int64_t output) -> std::optional<Prediction> {
       const Oracle& oracle = context.answer.oracle();
       const Model model = MaddubsOf(oracle.linear().pairing);
       const int32_t y = oracle.Accumulators(model)[static_cast<size_t>(output)];
       if (y == seen.exact) return std::nullopt;
       return Prediction{model, y};
     },
     AsTheContract},
    {"VPDPBUSDS", ThatSaturates<CompensationTime::kLast>, AsTheContract},
    {"VPDPBUSDS from the compensation on", ThatSaturates<CompensationTime::kFirst>, AsTheContract},
    {"VPDPBUSDS, its sum compensated and clamped", ThatSaturates<CompensationTime::kLastClamped>,
     AsTheContract},
    {"another rounding",
     [](const Context&, const Observation& seen, int64_t /*output*/) -> std::optional<Prediction> {
       return Prediction{Model::kExact, seen.exact};
     },
     [](const Context&, const Observation& seen, int32_t y) {
       return ThatMake(seen, y, reference::kAllRoundings);
     }},
};

// A hypothesis' result for one output: an accumulator, and the roundings with which it makes the output.
struct Finding {
  Prediction prediction;
  std::vector<Rounding> roundings;
};

// If there are several, the first.
Rounding MostFrequent(const std::map<int64_t, Finding>& findings) {
  std::map<Rounding, int64_t> counts;
  for (const auto& [output, finding] : findings) {
    for (const Rounding rounding : finding.roundings) ++counts[rounding];
  }
  return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
}

// Gives each output the rounding that makes most other outputs.
void Believe(std::string_view hypothesis, std::map<int64_t, Finding> findings,
             std::map<int64_t, Explanation>* explanations) {
  while (!findings.empty()) {
    const Rounding likeliest = MostFrequent(findings);
    std::erase_if(findings, [&](const auto& entry) {
      const auto& [output, finding] = entry;
      if (std::ranges::find(finding.roundings, likeliest) == finding.roundings.end()) return false;
      const auto& [model, y] = finding.prediction;
      explanations->emplace(output, Explanation{{model, likeliest}, y, hypothesis});
      return true;
    });
  }
}

bool AreOfOneArithmetic(const std::map<int64_t, Explanation>& explanations) {
  return std::ranges::all_of(explanations, [&](const auto& entry) {
    return entry.second.arithmetic == explanations.begin()->second.arithmetic;
  });
}

std::vector<int64_t> OutputsToExplain(const Answer& answer) {
  std::vector<int64_t> outputs;
  for (int64_t i = 0; i < answer.oracle().outputs(); ++i) {
    if (answer.Differs(i) && !answer.oracle().overflows().contains(i)) outputs.push_back(i);
  }
  return outputs;
}

}  // namespace

bool AcceptanceRules::Allows(const Arithmetic& arithmetic) const {
  return of_larger == nullptr ||
         std::ranges::find(of_larger->arithmetics, arithmetic) != of_larger->arithmetics.end();
}

std::map<int64_t, Explanation> ExplainOutputs(const Answer& answer, const AcceptanceRules& rules) {
  const Context context = {answer, CommonArithmetic(answer, rules)};
  const auto find = [&](const OutputHypothesis& hypothesis, const std::vector<int64_t>& outputs) {
    std::map<int64_t, Finding> findings;
    for (const int64_t output : outputs) {
      const Observation seen = answer.Observe(output);
      const std::optional<Prediction> prediction = hypothesis.predict(context, seen, output);
      if (!prediction) continue;
      std::vector<Rounding> roundings = hypothesis.test(context, seen, prediction->accumulator);
      std::erase_if(roundings, [&](Rounding rounding) {
        return !rules.Allows({prediction->model, rounding});
      });
      if (!roundings.empty()) findings.emplace(output, Finding{*prediction, std::move(roundings)});
    }
    return findings;
  };
  const std::vector<int64_t> all = OutputsToExplain(answer);
  std::vector<int64_t> outputs = all;
  std::map<int64_t, Explanation> explanations;
  for (const OutputHypothesis& hypothesis : kOfOneOutput) {
    std::map<int64_t, Finding> findings = find(hypothesis, outputs);
    std::erase_if(outputs, [&](int64_t output) { return findings.contains(output); });
    Believe(hypothesis.name, std::move(findings), &explanations);
  }
  if (explanations.size() == all.size() && AreOfOneArithmetic(explanations)) return explanations;
  for (const OutputHypothesis& hypothesis : kOfOneOutput) {
    std::map<int64_t, Finding> findings = find(hypothesis, all);
    if (findings.size() != all.size()) continue;
    std::map<int64_t, Explanation> alone;
    Believe(hypothesis.name, std::move(findings), &alone);
    if (AreOfOneArithmetic(alone)) return alone;
  }
  return explanations;
}

// ----- the answer -----------------------------------------------------------------------------------------

Answer::Answer(const Oracle& oracle, const std::vector<uint8_t>& actual)
    : oracle_(oracle),
      actual_(actual),
      expected_(oracle.expected()),
      size_(static_cast<size_t>(core::BytesOf(oracle.type()))) {
  for (int64_t i = 0; i < oracle.outputs(); ++i) differing_ += Differs(i) ? 1 : 0;
}

void Answer::Learn(Accumulators accumulators) {
  accumulators_ = std::move(accumulators);
  identity_.reset();
}

void Answer::DropForeignAccumulators() {
  if (!accumulators_ || differing_ < LeastExplained() || identity().Found()) return;
  Identity without = Identify(oracle_, actual_);
  if (!without.Found()) return;
  accumulators_.reset();
  identity_ = std::move(without);
}

const Identity& Answer::identity() const {
  if (!identity_) identity_ = Identify(oracle_, actual_, accumulators_);
  return *identity_;
}

bool Answer::Differs(int64_t output) const {
  if (oracle_.type() == INTACT_S32 && oracle_.overflows().contains(output)) return true;
  const size_t at = static_cast<size_t>(output) * size_;
  return !IsSameElement(size_, &expected_[at], &actual_[at]);
}

// Hundreds of arithmetics are tried, and an 8-bit output has few values. A float rarely fits by chance.
int64_t Answer::LeastExplained() const {
  constexpr int64_t kLeastExplained = 8;
  return oracle_.type() == INTACT_F32 ? 1 : kLeastExplained;
}

Observation Answer::Observe(int64_t output) const {
  const auto i = static_cast<size_t>(output);
  const reference::Predictor::Output at = oracle_.predictor().At(output);
  Observation seen{at.gemm,
                   at.operands,
                   at.m,
                   at.n,
                   at.first_column,
                   oracle_.Accumulators(Model::kExact)[i],
                   &actual_[i * size_],
                   {}};
  if (oracle_.type() == INTACT_S32) {
    int32_t accumulator = 0;
    std::memcpy(&accumulator, seen.element, sizeof accumulator);
    seen.actual_accumulator = accumulator;
  } else if (accumulators_) {
    seen.actual_accumulator = (*accumulators_)[i];
  }
  return seen;
}

}  // namespace intact::verify
