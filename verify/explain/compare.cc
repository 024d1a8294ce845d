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

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "reference/contract/quantize.h"
#include "reference/models/arithmetic.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "support/fnv1a.h"
#include "verify/explain/audit.h"
#include "verify/explain/claim.h"
#include "verify/explain/diagnose.h"
#include "verify/explain/diagnose_conv.h"
#include "verify/explain/diagnose_gemm.h"
#include "verify/explain/identify.h"
#include "verify/problem/element.h"
#include "verify/problem/place.h"

namespace intact::verify {
namespace {

using reference::Arithmetic;
using reference::Model;
using reference::Predictor;
using reference::Rounding;
using reference::Signs;
using reference::Summation;

// Infinity if one of them is NaN, so that it shows.
double AbsDifference(double x, double y) {
  const double difference = std::fabs(x - y);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

// What an explanation of outputs in common has to explain at least, lest it be chance: hundreds of
// arithmetics are tried, and an 8-bit output has few values.
constexpr int64_t kLeastExplained = 8;

// A problem and a target's answer.
class Comparer {
 public:
  using Accumulators = std::optional<std::vector<int32_t>>;

  Comparer(const reference::Gemm& gemm, const std::vector<uint8_t>& actual, int64_t max_listed)
      : Comparer(Predictor(gemm), actual, max_listed) {
    result_.item_rows = gemm.batch == 1 && !gemm.has_own_b ? 0 : gemm.m;
    adjacent_ = AdjacentPairs(KindOf(gemm));
    identify_ = [&gemm, &actual](const Accumulators& accumulators) {
      return Identify(gemm, actual, accumulators);
    };
    suspect_ = [suspects = GemmSuspects(gemm)](const Observation& seen, int64_t item) mutable {
      return suspects.Of(seen, item);
    };
  }

  Comparer(const reference::Conv& conv, const std::vector<uint8_t>& actual, int64_t max_listed)
      : Comparer(Predictor(conv), actual, max_listed) {
    result_.conv = conv.geometry;
    adjacent_ = AdjacentPairs(KindOf(conv));
    identify_ = [&conv, &actual](const Accumulators& accumulators) {
      return Identify(conv, actual, accumulators);
    };
    suspect_ = [&conv](const Observation& seen, int64_t /*item*/) {
      return SuspectGeometry(conv, seen.m, seen.first_column + seen.n);
    };
  }

  /// Run() is to say what may have computed all outputs.
  void AskForNames() { names_ = true; }

  /// Clamped sums that make all outputs are believed, however few differ.
  void BelieveSums() { believes_sums_ = true; }

  /// Where several arithmetics make all outputs, the first of `arithmetics` among them is believed.
  void Prefer(std::span<const Arithmetic> arithmetics) { preferred_ = arithmetics; }

  bool Parity() const { return result_.Parity(); }

  // With the target's own accumulators, if they are known.
  Comparison Run(const Accumulators& told) {
    CountSaturation();
    const Accumulators accumulators = AreOfTheseOutputs(told) ? told : std::nullopt;
    if (names_) Name(accumulators);
    if (Parity()) return std::move(result_);
    ExplainEach(accumulators);
    for (int64_t i = result_.first_differing; i < result_.outputs; ++i) {
      if (SameElement(i)) continue;
      const Predictor::Output at = predictor_.At(i);
      const auto found = explanations_.find(i);
      List(Observe(at, i, accumulators), at.item,
           found == explanations_.end() ? std::nullopt : std::optional(found->second));
    }
    CountExplanations();
    if (result_.Unexplained() == 0 && !IsOfOneArithmetic()) TellParts();
    return std::move(result_);
  }

 private:
  // An arithmetic that makes an output, and the accumulator that it makes it of.
  struct Explanation {
    Arithmetic arithmetic;
    int32_t accumulator;
  };

  Comparer(Predictor predictor, const std::vector<uint8_t>& actual, int64_t max_listed)
      : predictor_(std::move(predictor)),
        actual_(actual),
        exact_(predictor_.Accumulators(Model::kExact)),
        triple_(predictor_.Accumulators(Model::kTriple)),
        overflows_(OverflowsOf(predictor_)),
        expected_(ExpectedOutputs()),
        size_(static_cast<size_t>(core::BytesOf(predictor_.type()))),
        max_listed_(max_listed) {
    const ByteComparison bytes = CompareBytes(predictor_.type(), expected_, actual_);
    result_.outputs = bytes.outputs;
    result_.differing = bytes.differing;
    result_.max_abs_difference = bytes.max_abs_difference;
    result_.first_differing = bytes.first_differing;
    for (const auto& [i, y] : overflows_) {  // an s32 output has no right value then, whatever it is
      if (predictor_.type() != INTACT_S32 || !HasExpectedBytes(i)) continue;
      ++result_.differing;
      if (result_.first_differing < 0 || i < result_.first_differing) result_.first_differing = i;
    }
    result_.digest = support::Fnv1a(actual_);
    result_.off_triple =
        CompareBytes(predictor_.type(), predictor_.Outputs(triple_, Rounding::kContract), actual_).differing;
  }

  static std::map<int64_t, int64_t> OverflowsOf(const Predictor& predictor) {
    std::map<int64_t, int64_t> overflows;
    for (const reference::Overflow& overflow : predictor.Overflows())
      overflows.emplace(overflow.output, overflow.sum);
    return overflows;
  }

  // Of the exact sums, where they leave int32 too.
  std::vector<uint8_t> ExpectedOutputs() const {
    std::vector<uint8_t> outputs = predictor_.Outputs(exact_, Rounding::kContract);
    const auto size = static_cast<size_t>(core::BytesOf(predictor_.type()));
    for (const auto& [i, y] : overflows_)
      predictor_.StoreExact(i, y, &outputs[static_cast<size_t>(i) * size]);
    return outputs;
  }

  const Identity& IdentityOf(const Accumulators& accumulators) {
    if (!identity_) identity_ = identify_(accumulators);
    return *identity_;
  }

  // A target may compute the s32 outputs of a problem otherwise than the others, by another kernel: so it
  // does where its accumulators fit no arithmetic and its outputs, too many for chance, do.
  bool AreOfTheseOutputs(const Accumulators& accumulators) {
    if (!accumulators || Parity() || !names_) return true;
    if (result_.differing < LeastExplained() || IdentityOf(accumulators).Found()) return true;
    Identity identity = identify_(std::nullopt);
    if (!identity.Found()) return true;
    identity_ = std::move(identity);
    return false;
  }

  // Few floats are what they are by chance.
  int64_t LeastExplained() const { return predictor_.type() == INTACT_F32 ? 1 : kLeastExplained; }

  void Name(const Accumulators& accumulators) {
    Naming& naming = result_.naming.emplace();
    const std::vector<int32_t> clamped =
        adjacent_ == Model::kTriple ? triple_ : predictor_.Accumulators(adjacent_);
    naming.telling = predictor_.Outputs(clamped, Rounding::kContract) != expected_;
    if (Parity()) return;
    const Identity& identity = IdentityOf(accumulators);
    if (!identity.Found()) return;
    naming.reproduced_by = identity.also;
    naming.reproduced_by.insert(naming.reproduced_by.begin(), identity.arithmetic);
    for (const Arithmetic& preferred : preferred_) {
      const auto found = std::ranges::find(naming.reproduced_by, preferred);
      if (found == naming.reproduced_by.end()) continue;
      std::rotate(naming.reproduced_by.begin(), found, found + 1);
      break;
    }
    // Others of its model or its rounding go before those that differ in both, of which there are many.
    const Arithmetic first = naming.reproduced_by.front();
    std::ranges::stable_sort(naming.reproduced_by, std::greater(), [&](const Arithmetic& arithmetic) {
      return arithmetic.model == first.model || arithmetic.rounding == first.rounding;
    });
    if (naming.reproduced_by.size() > kMaxReproducedBy) naming.reproduced_by.resize(kMaxReproducedBy);
  }

  bool HasExpectedBytes(int64_t i) const {
    const size_t at = static_cast<size_t>(i) * size_;
    return IsSameElement(size_, &expected_[at], &actual_[at]);
  }

  bool SameElement(int64_t i) const {
    if (predictor_.type() == INTACT_S32 && overflows_.contains(i)) return false;
    return HasExpectedBytes(i);
  }

  void CountSaturation() {
    for (const reference::Operands& operands : predictor_.operands()) {
      for (int64_t m = 0; m < operands.m; ++m) {
        for (int64_t n = 0; n < operands.n; ++n) {
          const int64_t pairs = reference::CountClampedPairs(operands.Row(m), operands.Column(n));
          result_.saturated_pairs += pairs;
          result_.saturated_accumulators += pairs > 0 ? 1 : 0;
        }
      }
    }
  }

  bool MakesAll(const Arithmetic& arithmetic, const Accumulators& accumulators) const {
    const std::vector<int32_t> y = predictor_.Accumulators(arithmetic.model);
    if (accumulators && *accumulators != y) return false;
    return CompareBytes(predictor_.type(), predictor_.Outputs(y, arithmetic.rounding), actual_).differing ==
           0;
  }

  // What makes all outputs, or enough of those that differ. Sums that wrap are off by 65536 whatever wraps:
  // they are believed where they explain everything only.
  std::optional<Arithmetic> CommonExplanation(const Accumulators& accumulators) {
    for (const Arithmetic& arithmetic : preferred_) {
      if (MakesAll(arithmetic, accumulators)) return arithmetic;
    }
    if (result_.off_triple == 0) return Arithmetic{Model::kTriple};
    const Identity& identity = IdentityOf(accumulators);
    if (believes_sums_ && identity.Found() && identity.arithmetic.model != Model::kExact) {
      return identity.arithmetic;
    }
    const bool are_accumulators_known = predictor_.type() == INTACT_S32 || accumulators;
    const bool is_certain = are_accumulators_known && !identity.arithmetic.model.wraps;
    const int64_t explained = result_.differing - identity.unexplained;
    if (explained < (is_certain ? 1 : LeastExplained())) return std::nullopt;
    if (identity.arithmetic.model.wraps && !identity.Found()) return std::nullopt;
    return identity.arithmetic;
  }

  // Finds what explains each output that differs, for those that something does.
  void ExplainEach(const Accumulators& accumulators) {
    const std::optional<Arithmetic> common = CommonExplanation(accumulators);
    const std::vector<int64_t> in_pairs =
        common ? reference::InPairs(common->model, predictor_.depths()) : std::vector<int64_t>();
    std::map<int64_t, std::vector<Rounding>> roundings;  // of outputs that only those explain
    for (int64_t i = result_.first_differing; i < result_.outputs; ++i) {
      if (SameElement(i) || overflows_.contains(i)) continue;
      const Observation seen = Observe(predictor_.At(i), i, accumulators);
      if (common) {
        const int32_t y = predictor_.Accumulator(common->model, in_pairs, i);
        if (seen.GivenBy(y, common->rounding)) {
          explanations_.emplace(i, Explanation{*common, y});
          continue;
        }
      }
      if (const std::optional<Explanation> own = OwnSums(seen, triple_[static_cast<size_t>(i)])) {
        explanations_.emplace(i, *own);
        continue;
      }
      std::vector<Rounding> others = OtherRoundings(seen);
      if (!others.empty()) roundings.emplace(i, std::move(others));
    }
    // Of several roundings that explain an output the one that explains most others.
    while (!roundings.empty()) {
      const Rounding likeliest = MostFrequent(roundings);
      std::erase_if(roundings, [&](const auto& output) {
        const auto& [i, others] = output;
        if (std::ranges::find(others, likeliest) == others.end()) return false;
        explanations_.emplace(i, Explanation{{Model::kExact, likeliest}, exact_[static_cast<size_t>(i)]});
        return true;
      });
    }
  }

  // Of several the first.
  static Rounding MostFrequent(const std::map<int64_t, std::vector<Rounding>>& roundings) {
    std::map<Rounding, int64_t> counts;
    for (const auto& [output, others] : roundings) {
      for (const Rounding rounding : others) ++counts[rounding];
    }
    return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
  }

  // What sums make this output, of those that the contract and its modes come to on some ISA or other.
  static std::optional<Explanation> OwnSums(const Observation& seen, int32_t triple) {
    const bool clamps =
        reference::CountClampedPairs(seen.operands.Row(seen.m), seen.operands.Column(seen.n)) > 0;
    if (clamps && seen.GivenBy(triple)) return Explanation{{Model::kTriple}, triple};
    const int32_t saturated = seen.WithCompensation(
        reference::Accumulate(Model::kDpbusds, 0, seen.operands.Row(seen.m), seen.operands.Column(seen.n)));
    if (saturated != seen.exact && seen.GivenBy(saturated)) return Explanation{{Model::kDpbusds}, saturated};
    return std::nullopt;
  }

  bool IsOfOneArithmetic() const {
    if (result_.naming) return !result_.naming->reproduced_by.empty();
    return result_.off_triple == 0 || (identity_ && identity_->Found());
  }

  // Which outputs that differ are whose.
  void CountExplanations() {
    for (const auto& output : explanations_) {
      const Arithmetic& arithmetic = output.second.arithmetic;
      const auto found = std::ranges::find(its_outputs_, arithmetic, &Comparison::Part::arithmetic);
      const bool is_new = found == its_outputs_.end();
      ++(is_new ? its_outputs_.emplace_back(Comparison::Part{arithmetic, 0, {}}) : *found).outputs;
    }
    std::ranges::stable_sort(its_outputs_, std::greater(), &Comparison::Part::outputs);
    for (const Comparison::Part& part : its_outputs_) result_.explained_by.push_back(part.arithmetic);
  }

  // Where each output that differs is somebody's: where they are.
  void TellParts() {
    result_.parts = its_outputs_;
    for (Comparison::Part& part : result_.parts) part.where = WhereIs(part.arithmetic);
  }

  // What rows or columns an arithmetic's outputs have and no output that it does not make; "" if there are
  // no such.
  std::string WhereIs(const Arithmetic& arithmetic) const {
    constexpr size_t kFewest = 2, kFewestOthers = 4;  // few are apart by chance
    const std::vector<uint8_t> predicted =
        predictor_.Outputs(predictor_.Accumulators(arithmetic.model), arithmetic.rounding);
    std::vector<int64_t> its, others;
    for (int64_t i = 0; i < result_.outputs; ++i) {
      const size_t at = static_cast<size_t>(i) * size_;
      if (!IsSameElement(size_, &predicted[at], &actual_[at])) {
        others.push_back(i);
      } else if (!SameElement(i)) {
        its.push_back(i);
      }
    }
    if (its.size() < kFewest || others.size() < kFewestOthers) return {};
    const auto column = [this](int64_t i) {
      const Predictor::Output at = predictor_.At(i);
      return at.first_column + at.n;
    };
    const auto row = [this](int64_t i) {
      const Predictor::Output at = predictor_.At(i);
      return at.item * at.gemm.m + at.m;
    };
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

  Observation Observe(const Predictor::Output& at, int64_t i, const Accumulators& accumulators) const {
    Observation seen{at.gemm,
                     at.operands,
                     at.m,
                     at.n,
                     at.first_column,
                     exact_[static_cast<size_t>(i)],
                     &actual_[static_cast<size_t>(i) * size_],
                     {}};
    if (predictor_.type() == INTACT_S32) {
      int32_t accumulator = 0;
      std::memcpy(&accumulator, seen.element, sizeof accumulator);
      seen.actual_accumulator = accumulator;
    } else if (accumulators) {
      seen.actual_accumulator = (*accumulators)[static_cast<size_t>(i)];
    }
    return seen;
  }

  void List(const Observation& seen, int64_t item, const std::optional<Explanation>& explanation) {
    const auto i = static_cast<size_t>(seen.element - actual_.data());
    Difference difference;
    difference.m = item * seen.gemm.m + seen.m;
    difference.n = seen.first_column + seen.n;
    difference.expected = core::Decode(predictor_.type(), &expected_[i]);
    difference.actual = core::Decode(predictor_.type(), seen.element);
    difference.accumulator = seen.exact;
    const auto overflow = overflows_.find(static_cast<int64_t>(i / size_));
    if (overflow != overflows_.end()) {
      difference.cause = Cause::kInt32Overflow;
      if (predictor_.type() == INTACT_S32) difference.expected = static_cast<double>(overflow->second);
    } else {
      difference.cause = explanation ? CauseOf(seen, *explanation) : Cause::kImplementationError;
    }
    ++result_.by_cause[static_cast<size_t>(difference.cause)];
    if (std::ssize(result_.listed) >= max_listed_) return;
    if (overflow != overflows_.end()) {
      difference.detail = fmt::format("the exact sum {} leaves int32", overflow->second);
    } else if (explanation) {
      Detail(seen, *explanation, &difference);
    } else {
      difference.detail = Diagnose(seen, suspect_(seen, item));
    }
    result_.listed.push_back(std::move(difference));
  }

  // |a|·sign(b, a) does not saturate: its pairs leave no int16. What goes wrong is that -128 has no opposite.
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
      case Summation::kHalvedWeights:  // as good as weights of 7 bits
        return Cause::kReducedWeights;
      case Summation::kInt16:
        return KeepsNegatedMinimum(model) ? Cause::kImplementationError : Cause::kInt16Saturation;
      case Summation::kInt32:
        return Cause::kInt32Overflow;
    }
    return Cause::kImplementationError;
  }

  static void Detail(const Observation& seen, const Explanation& explanation, Difference* difference) {
    const auto& [model, rounding] = explanation.arithmetic;
    if (explanation.accumulator == seen.exact) {
      difference->detail = reference::ToString(rounding);
      return;
    }
    difference->detail = fmt::format("accumulator {} instead of {}", explanation.accumulator, seen.exact);
    if (model == Model::kDpbusds) difference->detail += ": the sum of products left int32 and was clamped";
    if (model != Model::kTriple && model != Model::kDpbusds) difference->detail += ": " + InWords({model});
    if (rounding != Rounding::kContract)
      difference->detail.append("; ").append(reference::ToString(rounding));
    if (difference->cause != Cause::kInt16Saturation) return;
    difference->pairs = SaturatedPairs(seen.operands, seen.m, seen.n, model);
    difference->pair_count = std::ssize(difference->pairs);
    if (difference->pair_count > kMaxPairsListed) difference->pairs.resize(kMaxPairsListed);
    for (SaturatedPair& pair : difference->pairs) {
      pair.m = difference->m;
      pair.n = difference->n;
    }
  }

  const Predictor predictor_;
  const std::vector<uint8_t>& actual_;
  const std::vector<int32_t> exact_;
  const std::vector<int32_t> triple_;
  const std::map<int64_t, int64_t> overflows_;  // outputs whose exact sum leaves int32, and that sum
  const std::vector<uint8_t> expected_;
  const size_t size_;
  const int64_t max_listed_;
  bool names_ = false;
  bool believes_sums_ = false;
  Model adjacent_;  // pairs as they would usually be clamped
  std::function<Identity(const Accumulators& accumulators)> identify_;
  std::optional<Identity> identity_;  // what that found with the accumulators that are known
  std::span<const Arithmetic> preferred_;
  std::map<int64_t, Explanation> explanations_;  // of outputs that differ
  std::vector<Comparison::Part> its_outputs_;    // how many of them each arithmetic has, most first
  // What may be wrong with an output that nothing explains, beside what may be in any GEMM.
  std::function<std::vector<Suspicion>(const Observation& seen, int64_t item)> suspect_;
  Comparison result_;
};

int64_t OutputCount(const reference::Gemm& gemm) { return gemm.rows() * gemm.n; }
int64_t OutputCount(const reference::Conv& conv) {
  return conv.geometry.OutputPixels() * conv.geometry.output_channels;
}

// The same operation with its accumulators as output.
template <class Operation>
Operation AccumulatorProblem(Operation operation) {
  if constexpr (requires { operation.item_scales; }) operation.item_scales.clear();
  operation.c_type = INTACT_S32;
  operation.c_zero_point = 0;
  operation.scales.clear();
  operation.a_scales.clear();
  operation.bias_f32.clear();
  operation.float_steps.clear();
  operation.post_ops = {};
  operation.residual.clear();
  return operation;
}

// A dynamic quantization has none to tell of: with its activations given, its faults would not show.
bool TellsAccumulators(const reference::Gemm& gemm) { return !gemm.IsDynamic(); }
bool TellsAccumulators(const reference::Conv& /*conv*/) { return true; }

template <class Operation>
std::optional<std::vector<int32_t>> RunForAccumulators(const Target& target, const Operation& operation,
                                                       const RunOptions& options) {
  if (!TellsAccumulators(operation)) return std::nullopt;
  const Result<std::vector<uint8_t>> bytes = RunOn(target, AccumulatorProblem(operation), options);
  if (!bytes || bytes->size() != static_cast<size_t>(OutputCount(operation)) * sizeof(int32_t)) {
    return std::nullopt;
  }
  std::vector<int32_t> accumulators(bytes->size() / sizeof(int32_t));
  std::memcpy(accumulators.data(), bytes->data(), bytes->size());
  return accumulators;
}

template <class Operation>
Result<std::vector<uint8_t>> RunOperationChecked(const Target& target, const Operation& operation,
                                                 const RunOptions& options) {
  Result<std::vector<uint8_t>> output = RunOn(target, operation, options);
  const int64_t size = OutputCount(operation) * core::BytesOf(operation.c_type);
  if (output && std::ssize(*output) != size) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("target {} gave {} bytes of output; expected {}",
                                                      target.Name(), output->size(), size)};
  }
  return output;
}

template <class Operation>
Comparison ExplainOperation(const Target& target, const Operation& operation, const RunOptions& options,
                            const std::vector<uint8_t>& output, int64_t max_listed,
                            std::span<const Arithmetic> preferred) {
  Comparer comparer(operation, output, max_listed);
  comparer.Prefer(preferred);
  // Our own kernels are swept by ISA: what they compute is known.
  if (options.isa == INTACT_ISA_ANY) comparer.AskForNames();
  // One that claims nothing is to have any arithmetic; of others a mistake in few outputs is no chance to be
  // taken for one.
  if (ClaimOf(target.Arithmetic(), KindOf(operation)) == "any") comparer.BelieveSums();
  if (comparer.Parity() || operation.c_type == INTACT_S32) return comparer.Run(std::nullopt);
  return comparer.Run(RunForAccumulators(target, operation, options));
}

template <class Operation>
Result<Comparison> VerifyOperation(const Target& target, const Operation& operation,
                                   const RunOptions& options, int64_t max_listed) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> output, RunOperationChecked(target, operation, options));
  return ExplainOperation(target, operation, options, output, max_listed, {});
}

}  // namespace

std::string_view ToString(Cause cause) {
  switch (cause) {
    case Cause::kInt16Saturation:
      return "int16 saturation";
    case Cause::kInt32Overflow:
      return "int32 overflow";
    case Cause::kReducedWeights:
      return "reduced weights";
    case Cause::kFloatSums:
      return "float sums";
    case Cause::kRequantization:
      return "requantization";
    case Cause::kImplementationError:
      return "implementation error";
  }
  return "unknown";
}

int64_t Comparison::Unexplained() const { return by_cause[static_cast<size_t>(Cause::kImplementationError)]; }

std::vector<reference::Arithmetic> Comparison::Explanations() const {
  std::vector<reference::Arithmetic> all = explained_by;
  if (naming && !naming->reproduced_by.empty()) all.insert(all.begin(), naming->reproduced_by.front());
  return all;
}

int64_t Comparison::Explained() const { return differing - Unexplained(); }

ByteComparison CompareBytes(intact_type type, const std::vector<uint8_t>& expected,
                            const std::vector<uint8_t>& actual) {
  const auto size = static_cast<size_t>(core::BytesOf(type));
  ByteComparison result;
  result.outputs = static_cast<int64_t>(expected.size() / size);
  for (int64_t i = 0; i < result.outputs; ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (IsSameElement(size, &expected[at], &actual[at])) continue;
    const double value = core::Decode(type, &actual[at]), right = core::Decode(type, &expected[at]);
    if (result.differing++ == 0) {
      result.first_differing = i;
      result.first_expected = right;
      result.first_actual = value;
    }
    const double difference = AbsDifference(right, value);
    result.max_abs_difference = std::max(result.max_abs_difference, difference);
  }
  return result;
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

Comparison Compare(const reference::Gemm& gemm, const std::vector<uint8_t>& actual,
                   const std::optional<std::vector<int32_t>>& actual_accumulators, int64_t max_listed) {
  return Comparer(gemm, actual, max_listed).Run(actual_accumulators);
}

Comparison Compare(const reference::Conv& conv, const std::vector<uint8_t>& actual,
                   const std::optional<std::vector<int32_t>>& actual_accumulators, int64_t max_listed) {
  return Comparer(conv, actual, max_listed).Run(actual_accumulators);
}

Result<std::vector<uint8_t>> RunChecked(const Target& target, const reference::Gemm& gemm,
                                        const RunOptions& options) {
  return RunOperationChecked(target, gemm, options);
}

Result<std::vector<uint8_t>> RunChecked(const Target& target, const reference::Conv& conv,
                                        const RunOptions& options) {
  return RunOperationChecked(target, conv, options);
}

Comparison Explain(const Target& target, const reference::Gemm& gemm, const RunOptions& options,
                   const std::vector<uint8_t>& output, int64_t max_listed,
                   std::span<const Arithmetic> preferred) {
  return ExplainOperation(target, gemm, options, output, max_listed, preferred);
}

Comparison Explain(const Target& target, const reference::Conv& conv, const RunOptions& options,
                   const std::vector<uint8_t>& output, int64_t max_listed,
                   std::span<const Arithmetic> preferred) {
  return ExplainOperation(target, conv, options, output, max_listed, preferred);
}

Result<Comparison> Verify(const Target& target, const reference::Gemm& gemm, const RunOptions& options,
                          int64_t max_listed) {
  return VerifyOperation(target, gemm, options, max_listed);
}

Result<Comparison> Verify(const Target& target, const reference::Conv& conv, const RunOptions& options,
                          int64_t max_listed) {
  return VerifyOperation(target, conv, options, max_listed);
}

Model ExpectedModel(intact_mode mode, intact_isa isa) {
  const bool clamps = core::SaturatesInt16(isa) || isa == INTACT_ISA_ANY;
  return mode == INTACT_SATURATING && clamps ? Model::kTriple : Model::kExact;
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
  return SaturatedPairs(reference::Operands(gemm), m, n, Model::kTriple);
}

}  // namespace intact::verify
