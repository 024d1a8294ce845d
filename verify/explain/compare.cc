#include "verify/explain/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <variant>

#include "core/isas.h"
#include "core/names.h"
#include "core/result.h"
#include "core/types.h"
#include "reference/models/arithmetic.h"
#include "reference/models/operands.h"
#include "support/fnv1a.h"
#include "verify/explain/claim.h"
#include "verify/explain/diagnose_conv.h"
#include "verify/explain/diagnose_gemm.h"
#include "verify/explain/grouped.h"
#include "verify/explain/hypotheses.h"
#include "verify/explain/identify.h"
#include "verify/explain/pairing.h"
#include "verify/problem/element.h"
#include "verify/problem/place.h"

namespace intact::verify {
namespace {

using reference::Arithmetic;
using reference::Model;
using reference::Rounding;
using reference::Signs;
using reference::Summation;

// Compares a target's answer to a problem.
class Comparer {
 public:
  Comparer(const Oracle& oracle, const std::vector<uint8_t>& actual, int64_t max_listed,
           intact_isa isa = INTACT_ISA_ANY)
      : oracle_(oracle),
        may_clamp_(Saturates(oracle.linear().mode, isa)),
        answer_(oracle, actual),
        maddubs_(MaddubsOf(oracle.linear().pairing)),
        size_(static_cast<size_t>(core::BytesOf(oracle.type()))),
        max_listed_(max_listed) {
    if (const auto* gemm = std::get_if<reference::Gemm>(&oracle.operation())) {
      result_.item_rows = gemm->batch == 1 && !gemm->has_runtime_b ? 0 : gemm->m;
      gemm_suspects_.emplace(*gemm);
    } else {
      result_.conv = *oracle.geometry();
      conv_suspects_.emplace(std::get<reference::Conv>(oracle.operation()));
    }
    const ByteComparison bytes = CompareBytes(oracle.type(), oracle.expected(), actual);
    result_.outputs = bytes.outputs;
    result_.differing = answer_.differing();
    result_.max_abs_difference = bytes.max_abs_difference;
    for (int64_t i = 0; i < result_.outputs && result_.first_differing < 0; ++i) {
      if (answer_.Differs(i)) result_.first_differing = i;
    }
    result_.digest = support::Fnv1a(actual);
    result_.off_maddubs = CompareBytes(oracle.type(), oracle.Wrapped({maddubs_}), actual).differing;
  }

  /// Call this if the target was given a transposed A.
  void KnowTransposed() {
    if (gemm_suspects_) gemm_suspects_->KnowTransposed();
  }

  /// Makes Run() name the arithmetics that may have computed all outputs.
  void AskForNames() { names_ = true; }

  bool Parity() const { return result_.Parity(); }

  // All outputs that differ, none of them explained.
  Comparison Count() && {
    result_.by_cause[static_cast<size_t>(Cause::kImplementationError)] = result_.differing;
    if (!Parity()) result_.listed.push_back(PlaceAndValues(result_.first_differing));
    return std::move(result_);
  }

  // `accumulators`: the target's accumulators, if known.
  Comparison Run(Answer::Accumulators accumulators, const AcceptanceRules& rules) {
    CountSaturation();
    answer_.Learn(std::move(accumulators));
    if (names_ && !Parity()) answer_.DropForeignAccumulators();
    if (names_) Name(rules);
    if (Parity()) return std::move(result_);
    explanations_ = ExplainOutputs(answer_, rules);
    FindAlternatives(rules);
    FindWrong();
    FindMistakes(rules);
    for (int64_t i = result_.first_differing; i < result_.outputs; ++i) {
      if (answer_.Differs(i)) List(i);
    }
    CountExplanations();
    if (result_.Unexplained() == 0 && !IsOfOneArithmetic()) DescribeParts();
    return std::move(result_);
  }

 private:
  void Name(const AcceptanceRules& rules) {
    Naming& naming = result_.naming.emplace();
    naming.would_show_clamping = oracle_.Wrapped({AdjacentPairs(KindOf(oracle_))}) != oracle_.expected();
    if (Parity() || !answer_.identity().Found()) return;
    naming.reproduced_by = answer_.identity().also;
    naming.reproduced_by.insert(naming.reproduced_by.begin(), answer_.identity().arithmetic);
    const std::vector<Arithmetic> none;
    for (const Arithmetic& preferred : rules.of_larger != nullptr ? rules.of_larger->arithmetics : none) {
      const auto found = std::ranges::find(naming.reproduced_by, preferred);
      if (found == naming.reproduced_by.end()) continue;
      std::rotate(naming.reproduced_by.begin(), found, found + 1);
      break;
    }
    // Arithmetics with the same model or the same rounding go before all others, which are many.
    const Arithmetic first = naming.reproduced_by.front();
    std::ranges::stable_sort(naming.reproduced_by, std::greater(), [&](const Arithmetic& arithmetic) {
      return arithmetic.model == first.model || arithmetic.rounding == first.rounding;
    });
    if (naming.reproduced_by.size() > kMaxReproducedBy) naming.reproduced_by.resize(kMaxReproducedBy);
  }

  void CountSaturation() {
    for (const reference::Operands& operands : oracle_.predictor().operands()) {
      const std::vector<int64_t> in_pairs = reference::InPairs(maddubs_, operands.depths);
      for (int64_t m = 0; m < operands.m; ++m) {
        for (int64_t n = 0; n < operands.n; ++n) {
          const int64_t pairs = CountClamped(operands.Row(m), operands.Column(n), in_pairs);
          result_.saturated_pairs += pairs;
          result_.saturated_accumulators += pairs > 0 ? 1 : 0;
        }
      }
    }
  }

  // Counts the pairs of an output that clamp.
  int64_t CountClamped(std::span<const uint8_t> a, std::span<const int8_t> w,
                       std::span<const int64_t> in_pairs) const {
    if (maddubs_ == Model::kMaddubs) return reference::CountClampedPairs(a, w);
    const std::vector<int32_t> sums = reference::PairSumsOf(maddubs_.signs, a, w, in_pairs).sums;
    return std::ranges::count_if(sums, [](int32_t sum) { return sum != std::clamp(sum, -32768, 32767); });
  }

  bool IsOfOneArithmetic() const {
    if (result_.naming) return !result_.naming->reproduced_by.empty();
    return result_.off_maddubs == 0 || answer_.IsIdentified();
  }

  // Finds the other roundings that explain all outputs of each rounding. If a rounding makes all outputs of the
  // problem, so must the others.
  void FindAlternatives(const AcceptanceRules& rules) {
    std::vector<std::pair<Arithmetic, std::vector<int64_t>>> outputs;
    for (const auto& [output, explanation] : explanations_) {
      if (explanation.arithmetic.model != Model::kExact) continue;
      const auto found =
          std::ranges::find(outputs, explanation.arithmetic, [](const auto& entry) { return entry.first; });
      auto& its = found != outputs.end()
                      ? *found
                      : outputs.emplace_back(explanation.arithmetic, std::vector<int64_t>());
      its.second.push_back(output);
    }
    for (const auto& [named, its] : outputs) {
      std::vector<Rounding> others = CandidateRoundings(oracle_.type());
      std::erase_if(others, [&, rounding = named.rounding](Rounding other) {
        return other == Rounding::kContract || other == rounding || !rules.Allows({Model::kExact, other});
      });
      for (const int64_t output : its) {
        if (others.empty()) break;
        const Observation seen = answer_.Observe(output);
        std::erase_if(others, [&](Rounding other) { return !seen.GivenBy(seen.exact, other); });
      }
      if (oracle_.Wrapped(named) == answer_.actual()) {
        std::erase_if(others, [&](Rounding other) {
          return oracle_.Wrapped({Model::kExact, other}) != answer_.actual();
        });
      }
      alternatives_.emplace_back(named, std::move(others));
    }
  }

  std::vector<Rounding> AlternativesTo(const Arithmetic& named) const {
    const auto found = std::ranges::find(alternatives_, named, [](const auto& entry) { return entry.first; });
    return found == alternatives_.end() ? std::vector<Rounding>() : found->second;
  }

  // Finds the wrong outputs, and which of them have no cause.
  void FindWrong() {
    std::vector<int64_t> unexplained;
    for (int64_t i = result_.first_differing; i < result_.outputs; ++i) {
      if (!answer_.Differs(i) || oracle_.overflows().contains(i)) continue;
      if (may_clamp_ && IsMadeBy({maddubs_}, i)) continue;
      const auto found = explanations_.find(i);
      if (found == explanations_.end() && HowNotWrapped(answer_.Observe(i))) continue;
      ++wrong_;
      if (found == explanations_.end()) {
        unexplained.push_back(i);
      } else {
        ++NumberOf(found->second.arithmetic);
      }
    }
    if (unexplained.empty()) return;
    // Arithmetics that explain few of them fit by chance.
    constexpr int64_t kOfTen = 9;
    for (int64_t i = result_.first_differing; i < result_.outputs; ++i) {
      const auto found = explanations_.find(i);
      if (found == explanations_.end() || (may_clamp_ && IsMadeBy({maddubs_}, i))) continue;
      if (10 * NumberOf(found->second.arithmetic) < kOfTen * wrong_) by_chance_.insert(*found);
    }
    for (const auto& [output, explanation] : by_chance_) explanations_.erase(output);
    without_cause_ = std::move(unexplained);
    for (const auto& [output, explanation] : by_chance_) without_cause_.push_back(output);
    std::ranges::sort(without_cause_);
  }

  bool IsMadeBy(const Arithmetic& arithmetic, int64_t output) const {
    const size_t at = static_cast<size_t>(output) * size_;
    return IsSameElement(size_, &oracle_.Wrapped(arithmetic)[at], &answer_.actual()[at]);
  }

  // The number of wrong outputs that an arithmetic explains.
  int64_t& NumberOf(const Arithmetic& arithmetic) {
    const auto found = std::ranges::find(numbers_, arithmetic, [](const auto& entry) { return entry.first; });
    return found != numbers_.end() ? found->second : numbers_.emplace_back(arithmetic, 0).second;
  }

  // Counts the outputs without a cause that each mistake would make. Of many outputs, some are checked.
  void FindMistakes(const AcceptanceRules& rules) {
    constexpr int64_t kMostWork = int64_t{1} << 22, kPerDepth = 64;  // numbers of products
    const int64_t depth = std::max<int64_t>(oracle_.predictor().At(0).operands.k, 1);
    const int64_t most = std::max({max_listed_, kMostWork / kPerDepth / depth, int64_t{1}});
    const auto count = std::ssize(without_cause_);
    const int64_t step = std::max<int64_t>(1 + (count - 1) / most, 1);
    for (int64_t i = 0; i < count; i += step) {
      const int64_t output = without_cause_[static_cast<size_t>(i)];
      const Observation seen = answer_.Observe(output);
      ++checked_;
      for (const Diagnosis& mistake : Mistakes(seen, Suspect(seen, output))) {
        if (!IsAllowed(rules, mistake)) continue;
        auto& [of, number] = of_mistake_[mistake.key()];
        of = mistake.of;
        ++number;
      }
    }
    std::vector<std::string>& mistakes = result_.explained_by.mistakes;
    for (const auto& [key, mistake] : of_mistake_) {
      const auto& [of, number] = mistake;
      if (number == checked_ && std::ranges::find(mistakes, of) == mistakes.end()) mistakes.push_back(of);
    }
  }

  static bool IsAllowed(const AcceptanceRules& rules, const Diagnosis& mistake) {
    if (rules.of_larger == nullptr) return true;
    const std::vector<std::string>& allowed = rules.of_larger->mistakes;
    return std::ranges::find(allowed, mistake.of) != allowed.end();
  }

  // Describes an output without a cause by the mistake that explains most of them.
  Diagnosis Diagnose(const Observation& seen, int64_t output) {
    Diagnosis diagnosis = KnownOf(seen);
    std::optional<Diagnosis> best;
    int64_t most = 0;
    for (Diagnosis& mistake : Mistakes(seen, Suspect(seen, output))) {
      const auto found = of_mistake_.find(mistake.key());
      if (found == of_mistake_.end() || found->second.second <= most) continue;
      most = found->second.second;
      best = std::move(mistake);
    }
    if (best && most == checked_) return {diagnosis.of + ": " + best->of, diagnosis.text + ": " + best->text};
    if (best) {
      diagnosis.text +=
          fmt::format("; consistent with {} of {} wrong outputs{}: {}", most, checked_,
                      checked_ < std::ssize(without_cause_) ? " that were checked" : "", best->text);
    }
    if (const auto chance = by_chance_.find(output); chance != by_chance_.end()) {
      const Arithmetic& arithmetic = chance->second.arithmetic;
      diagnosis.text += fmt::format("; consistent with {} of {} wrong outputs: {}", NumberOf(arithmetic),
                                    wrong_, InWords(arithmetic));
    }
    return diagnosis;
  }

  // Counts the differing outputs of each arithmetic.
  void CountExplanations() {
    for (const auto& [output, explanation] : explanations_) {
      const auto found =
          std::ranges::find(its_outputs_, explanation.arithmetic, &Comparison::Part::arithmetic);
      const bool is_new = found == its_outputs_.end();
      ++(is_new ? its_outputs_.emplace_back(Comparison::Part{explanation.arithmetic, 0, {}}) : *found)
            .outputs;
    }
    std::ranges::stable_sort(its_outputs_, std::greater(), &Comparison::Part::outputs);
    for (const Comparison::Part& part : its_outputs_) {
      result_.explained_by.arithmetics.push_back(part.arithmetic);
      for (const Rounding other : AlternativesTo(part.arithmetic)) {
        result_.explained_by.arithmetics.push_back({Model::kExact, other});
      }
    }
  }

  // If each differing output has an arithmetic: describes where its outputs are.
  void DescribeParts() {
    result_.parts = its_outputs_;
    for (Comparison::Part& part : result_.parts) part.where = WhereIs(part.arithmetic);
  }

  // The range of columns or rows that has an arithmetic's outputs and no outputs that it does not make; "" if
  // there is none.
  std::string WhereIs(const Arithmetic& arithmetic) const {
    constexpr size_t kFewest = 2, kFewestOthers = 4;  // fewer may be apart by chance
    const std::vector<uint8_t>& predicted = oracle_.Wrapped(arithmetic);
    std::vector<int64_t> its, others;
    for (int64_t i = 0; i < result_.outputs; ++i) {
      const size_t at = static_cast<size_t>(i) * size_;
      if (!IsSameElement(size_, &predicted[at], &answer_.actual()[at])) {
        others.push_back(i);
      } else if (answer_.Differs(i)) {
        its.push_back(i);
      }
    }
    if (its.size() < kFewest || others.size() < kFewestOthers) return {};
    const auto column = [this](int64_t i) { return i % oracle_.columns(); };
    const auto row = [this](int64_t i) { return i / oracle_.columns(); };
    const std::string columns = Apart(result_.conv ? "channels" : "columns", its, others, column);
    return columns.empty() ? Apart(result_.conv ? "pixels" : "rows", its, others, row) : columns;
  }

  template <class Place>
  static std::string Apart(std::string_view what, const std::vector<int64_t>& its,
                           const std::vector<int64_t>& others, const Place& place) {
    const auto [first, last] = std::ranges::minmax_element(its, {}, place);
    const auto [first_other, last_other] = std::ranges::minmax_element(others, {}, place);
    if (place(*first) > place(*last_other)) return fmt::format("{} from {} on", what, place(*first));
    if (place(*last) < place(*first_other)) return fmt::format("{} up to {}", what, place(*last));
    return {};
  }

  // Suspicions about an output that nothing explains, in addition to the general ones of Mistakes().
  std::vector<Suspicion> Suspect(const Observation& seen, int64_t output) {
    if (gemm_suspects_) return gemm_suspects_->Of(seen, oracle_.predictor().At(output).item);
    return conv_suspects_->Of(seen);
  }

  Difference PlaceAndValues(int64_t output) const {
    const size_t at = static_cast<size_t>(output) * size_;
    Difference difference;
    difference.m = output / oracle_.columns();
    difference.n = output % oracle_.columns();
    difference.expected = core::Decode(oracle_.type(), &oracle_.expected()[at]);
    difference.actual = core::Decode(oracle_.type(), &answer_.actual()[at]);
    return difference;
  }

  void List(int64_t output) {
    const Observation seen = answer_.Observe(output);
    const auto found = explanations_.find(output);
    const Explanation* explanation = found == explanations_.end() ? nullptr : &found->second;
    const auto overflow = oracle_.overflows().find(output);
    const bool overflows = overflow != oracle_.overflows().end();
    Difference difference = PlaceAndValues(output);
    difference.accumulator = seen.exact;
    const std::optional<std::string> not_wrapped = HowNotWrapped(seen);
    if (overflows) {
      difference.cause = Cause::kInt32Overflow;
      if (oracle_.type() == INTACT_S32) difference.expected = static_cast<double>(overflow->second);
    } else if (not_wrapped) {
      difference.cause = Cause::kInt32Overflow;
    } else if (explanation != nullptr) {
      difference.cause = CauseOf(seen, *explanation);
      difference.hypothesis = explanation->hypothesis;
    }
    ++result_.by_cause[static_cast<size_t>(difference.cause)];
    if (std::ssize(result_.listed) >= max_listed_) return;
    if (overflows) {
      difference.detail = fmt::format("the exact sum {} leaves int32", overflow->second);
    } else if (not_wrapped) {
      difference.detail = *not_wrapped;
    } else if (explanation != nullptr) {
      difference.of = ToString(explanation->arithmetic);
      Detail(seen, *explanation, &difference);
      const int64_t number = NumberOf(explanation->arithmetic);
      if (number > 0 && number < wrong_) {
        difference.detail += fmt::format("; consistent with {} of {} wrong outputs", number, wrong_);
      }
    } else {
      Diagnosis diagnosis = Diagnose(seen, output);
      difference.of = std::move(diagnosis.of);
      difference.detail = std::move(diagnosis.text);
    }
    result_.listed.push_back(std::move(difference));
  }

  // |a|·sign(b, a) does not saturate: its pair sums stay within int16. It fails because -128 has no opposite.
  static bool KeepsNegatedMinimum(const Model& model) {
    return model.sum == Summation::kInt16 && model.signs == Signs::kMoved && model.spill == 1;
  }

  static Cause CauseOf(const Observation& seen, const Explanation& explanation) {
    const Model& model = explanation.arithmetic.model;
    if (explanation.accumulator == seen.exact) {
      return seen.gemm.c_type == INTACT_S32 ? Cause::kFloatSums : Cause::kRequantization;
    }
    switch (model.sum) {
      case Summation::kExact:
        return Cause::kRequantization;
      case Summation::kHalvedWeights:  // as if weights had 7 bits
        return Cause::kReducedWeights;
      case Summation::kInt16:
        return KeepsNegatedMinimum(model) ? Cause::kImplementationError : Cause::kInt16Saturation;
      case Summation::kProducts16:
        return Cause::kInt16Saturation;
      case Summation::kInt32:
        return Cause::kInt32Overflow;
      case Summation::kFloat32:
        return Cause::kFloatSums;
    }
    return Cause::kImplementationError;
  }

  void Detail(const Observation& seen, const Explanation& explanation, Difference* difference) const {
    const auto& [model, rounding] = explanation.arithmetic;
    if (explanation.accumulator == seen.exact) {
      difference->detail =
          std::string(reference::ToString(rounding)) + OrOthers(AlternativesTo(explanation.arithmetic));
      return;
    }
    difference->detail = fmt::format("accumulator {} instead of {}", explanation.accumulator, seen.exact);
    if (model.sum == Summation::kInt32) {
      const bool is_of_products = model.compensation == reference::CompensationTime::kLast;
      difference->detail +=
          fmt::format(": the sum{} left int32 and was clamped", is_of_products ? " of products" : "");
    }
    if (model != maddubs_ && model != Model::kDpbusds) difference->detail += ": " + InWords({model});
    if (rounding != Rounding::kContract)
      difference->detail.append("; ").append(reference::ToString(rounding));
    if (difference->cause != Cause::kInt16Saturation || model.AddsProducts()) return;
    difference->pairs = SaturatedPairs(seen.operands, seen.m, seen.n, model);
    difference->pair_count = std::ssize(difference->pairs);
    if (difference->pair_count > kMaxPairsListed) difference->pairs.resize(kMaxPairsListed);
    for (SaturatedPair& pair : difference->pairs) {
      pair.m = difference->m;
      pair.n = difference->n;
    }
  }

  const Oracle& oracle_;
  const bool may_clamp_;  // whether the target may clamp pairs
  Answer answer_;
  const Model maddubs_;
  const size_t size_;  // bytes of an element
  const int64_t max_listed_;
  bool names_ = false;
  std::map<int64_t, Explanation> explanations_;  // explanations of outputs that differ
  std::map<int64_t, Explanation> by_chance_;     // explanations that are no causes
  // The other roundings that explain the outputs of an arithmetic with exact sums.
  std::vector<std::pair<Arithmetic, std::vector<Rounding>>> alternatives_;
  std::vector<Comparison::Part> its_outputs_;            // their number for each arithmetic, most first
  int64_t wrong_ = 0;                                    // outputs that are neither exact nor as promised
  std::vector<std::pair<Arithmetic, int64_t>> numbers_;  // wrong outputs that each arithmetic explains
  std::vector<int64_t> without_cause_;                   // wrong outputs that nothing explains
  // By Diagnosis::key(): Diagnosis::of, and the outputs without a cause that the mistake explains.
  std::map<std::string, std::pair<std::string, int64_t>> of_mistake_;
  int64_t checked_ = 0;  // outputs without a cause that were counted for it
  std::optional<GemmSuspects> gemm_suspects_;
  std::optional<ConvSuspects> conv_suspects_;
  Comparison result_;
};

Answer::Accumulators RunForAccumulators(const Target& target, const Oracle& oracle,
                                        const RunOptions& options) {
  // With a dynamic quantization an s32 run would get quantized activations, and faults of the quantization
  // would not show.
  if (oracle.linear().IsDynamic()) return std::nullopt;
  const Result<std::vector<uint8_t>> bytes = target.Run(AccumulatorProblem(oracle.operation()), options);
  if (!bytes || std::ssize(*bytes) != oracle.outputs() * int64_t{sizeof(int32_t)}) return std::nullopt;
  std::vector<int32_t> accumulators(bytes->size() / sizeof(int32_t));
  std::memcpy(accumulators.data(), bytes->data(), bytes->size());
  return accumulators;
}

}  // namespace

reference::Operation AccumulatorProblem(reference::Operation operation) {
  if (auto* gemm = std::get_if<reference::Gemm>(&operation)) gemm->item_scales.clear();
  reference::Linear& linear = LinearOf(operation);
  linear.c_type = INTACT_S32;
  linear.c_zero_point = 0;
  linear.scales.clear();
  linear.a_scales.clear();
  linear.bias_f32.clear();
  linear.float_steps.clear();
  linear.fixed_point = INTACT_FIXED_POINT_NONE;
  linear.multipliers.clear();
  linear.shifts.clear();
  linear.lookup_table.clear();
  linear.post_ops = {};
  linear.residual.clear();
  return operation;
}

std::string PartsInWords(const Comparison& comparison) {
  if (comparison.parts.empty()) return {};
  std::string text;
  const auto add = [&text](int64_t outputs, const std::string& what) {
    if (outputs > 0) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", outputs, what);
  };
  add(comparison.outputs - comparison.differing, "exact");
  for (const Comparison::Part& part : comparison.parts) {
    const bool has_exact_sums = part.arithmetic.model == Model::kExact;
    add(part.outputs, (has_exact_sums ? std::string(reference::ToString(part.arithmetic.rounding))
                                      : InWords(part.arithmetic)) +
                          (part.where.empty() ? "" : " in " + part.where));
  }
  return text;
}

std::string PlaceOf(const Comparison& comparison, const Difference& difference) {
  return OutputPlace(comparison.conv, comparison.item_rows, difference.m, difference.n);
}

Comparison Compare(const Oracle& oracle, const std::vector<uint8_t>& actual,
                   const Answer::Accumulators& actual_accumulators, int64_t max_listed) {
  return Comparer(oracle, actual, max_listed).Run(actual_accumulators, {});
}

Result<std::vector<uint8_t>> RunChecked(const Target& target, const Oracle& oracle,
                                        const RunOptions& options) {
  Result<std::vector<uint8_t>> output = target.Run(oracle.operation(), options);
  const int64_t size = oracle.outputs() * core::BytesOf(oracle.type());
  if (output && std::ssize(*output) != size) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("target {} gave {} bytes of output; expected {}",
                                                      target.Name(), output->size(), size)};
  }
  return output;
}

Comparison Explain(const Target& target, const Oracle& oracle, const RunOptions& options,
                   const std::vector<uint8_t>& output, int64_t max_listed, const Causes* of_larger) {
  if (oracle.grouped() != nullptr) {
    return ExplainGrouped(oracle, output, ClaimOf(target.Arithmetic(), KindOf(oracle)));
  }
  Comparer comparer(oracle, output, max_listed, options.isa);
  if (options.a_by_columns && !comparer.Parity()) comparer.KnowTransposed();
  // Our own kernels are swept per ISA, so their arithmetic is known.
  if (options.isa == INTACT_ISA_ANY) comparer.AskForNames();
  // A target that claims nothing may have any arithmetic. For other targets, a mistake in few outputs must
  // not be taken for an arithmetic that fits by chance.
  const AcceptanceRules rules = {of_larger, ClaimOf(target.Arithmetic(), KindOf(oracle)) == "any"};
  const bool needs_accumulators = !comparer.Parity() && oracle.type() != INTACT_S32;
  return comparer.Run(needs_accumulators ? RunForAccumulators(target, oracle, options) : std::nullopt, rules);
}

Comparison CountDifferences(const Oracle& oracle, const std::vector<uint8_t>& output) {
  if (oracle.grouped() != nullptr) return CountGrouped(oracle, output);
  return Comparer(oracle, output, 1).Count();
}

bool Saturates(intact_mode mode, intact_isa isa) {
  return mode == INTACT_SATURATING && (core::SaturatesInt16(isa) || isa == INTACT_ISA_ANY);
}

Model ExpectedModel(const core::Linear& linear, intact_isa isa) {
  return Saturates(linear.mode, isa) ? MaddubsOf(linear.pairing) : Model::kExact;
}

std::vector<SaturatedPair> SaturatedPairs(const reference::Operands& operands, int64_t m, int64_t n,
                                          const Model& model) {
  const std::vector<int64_t> in_pairs = reference::InPairs(model, operands.depths);
  const auto factors = [&](int64_t k) {
    if (k == reference::kNoDepth) return reference::Factors();
    const auto at = static_cast<size_t>(k);
    return reference::FactorsOf(model.signs, operands.Row(model, m)[at], operands.Column(n)[at]);
  };
  std::vector<SaturatedPair> pairs;
  for (size_t i = 0; i < in_pairs.size(); i += 2) {
    const reference::Factors x = factors(in_pairs[i]);
    const reference::Factors y = factors(in_pairs[i + 1]);
    const int32_t sum = reference::PairSum(x.u, y.u, x.s, y.s);
    const int32_t clamped = reference::Maddubs(x.u, y.u, x.s, y.s);
    if (sum != clamped)
      pairs.push_back({m, n, in_pairs[i], in_pairs[i + 1], x.u, y.u, x.s, y.s, sum, clamped});
  }
  return pairs;
}

std::vector<SaturatedPair> SaturatedPairs(const reference::Gemm& gemm, int64_t m, int64_t n) {
  return SaturatedPairs(reference::Operands(gemm), m, n, Model::kMaddubs);
}

}  // namespace intact::verify
