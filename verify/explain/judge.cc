#include "verify/explain/judge.h"
#include "support/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/result.h"
#include "reference/models/arithmetic.h"
#include "verify/explain/claim.h"
#include "verify/explain/grouped.h"
#include "verify/explain/identify.h"
#include "verify/problem/place.h"

namespace intact::verify {
namespace {

using reference::Arithmetic;
using Bytes = std::vector<uint8_t>;

std::string Describe(const Comparison& comparison, const Difference& d) {
  return fmt::format("output {} is {} instead of {}: {}, {}", PlaceOf(comparison, d), d.actual, d.expected,
                     ToString(d.cause), d.detail);
}

void FailBy(const Difference& difference, Judgement* judgement) {
  judgement->failure = Describe(judgement->comparison, difference);
  judgement->kind = {FailureKind::kOutput, std::string(ToString(difference.cause))};
  if (!difference.of.empty()) judgement->kind.of += ", " + difference.of;
}

// The first listed difference that has (or has not) this cause.
const Difference* FirstListed(const Comparison& comparison, Cause cause, bool is_of_it) {
  for (const Difference& difference : comparison.listed) {
    if ((difference.cause == cause) == is_of_it) return &difference;
  }
  return nullptr;
}

// Sets the failure of a target that claims to be exact, or to saturate as the maddubs model.
void FailAsExact(const reference::Model& model, Judgement* judgement) {
  const Comparison& comparison = judgement->comparison;
  if (model == reference::Model::kExact) {
    const Difference* const mistake = FirstListed(comparison, Cause::kImplementationError, true);
    return FailBy(mistake != nullptr ? *mistake : comparison.listed.at(0), judgement);
  }
  if (const Difference* other = FirstListed(comparison, Cause::kInt16Saturation, false)) {
    return FailBy(*other, judgement);
  }
  judgement->failure =
      support::PartOf(comparison.off_maddubs, comparison.outputs, "output", "differs", "differ") +
      " from the outputs with pairs clamped to int16";
  judgement->kind = {FailureKind::kSaturation};
}

// The arithmetics that a claim allows; none if it is "any".
Result<std::vector<Arithmetic>> Promised(const std::string& claim, const Oracle& oracle, intact_isa isa) {
  if (claim == "any") return std::vector<Arithmetic>();
  if (claim == "exact") {
    if (oracle.grouped() != nullptr) return {{Arithmetic()}};
    std::vector<Arithmetic> promised = {{ExpectedModel(oracle.linear(), isa)}};
    if (promised[0] != Arithmetic() && isa == INTACT_ISA_ANY) promised.emplace_back();
    return promised;
  }
  if (const std::optional<Arithmetic> arithmetic = reference::ParseArithmetic(claim)) return {{*arithmetic}};
  return Error{INTACT_INVALID_ARGUMENT, "the target " + CheckClaims(claim).value_or(claim)};
}

// Whether a promised arithmetic reproduces the output; without a promise, whether the output is exact.
bool IsAsPromised(const Oracle& oracle, std::vector<Arithmetic> promised, const Bytes& output) {
  if (promised.empty()) promised.emplace_back();
  return std::ranges::any_of(
      promised, [&](const Arithmetic& arithmetic) { return oracle.Predict(arithmetic) == output; });
}

// Sets the failure of a target that claims nothing: an output without a cause, if there is one.
void FailAsAny(Judgement* judgement) {
  const Comparison& comparison = judgement->comparison;
  if (comparison.Unexplained() == 0) return;
  if (const Difference* mistake = FirstListed(comparison, Cause::kImplementationError, true)) {
    return FailBy(*mistake, judgement);
  }
  judgement->failure =
      support::PartOf(comparison.Unexplained(), comparison.outputs, "output") + " unexplained";
  judgement->kind = {FailureKind::kOutput, std::string(ToString(Cause::kImplementationError))};
}

// The arithmetic that reproduces all outputs instead of the claimed one; "" if no known arithmetic does.
std::string Instead(const Comparison& comparison) {
  if (comparison.Parity()) return "all are exact";
  if (!comparison.naming || comparison.naming->reproduced_by.empty()) return {};
  return "all are reproduced by: " + InWords(comparison.naming->reproduced_by.front());
}

// Sets the failure of a target whose outputs are not what it claims.
void FailAsClaimed(const Oracle& oracle, const Arithmetic& claim, const Bytes& output, Judgement* judgement) {
  const Comparison& comparison = judgement->comparison;
  const ByteComparison compared = CompareBytes(oracle.type(), oracle.Predict(claim), output);
  Difference first;
  first.m = compared.first_differing / oracle.columns();
  first.n = compared.first_differing % oracle.columns();
  const std::string instead = Instead(comparison);
  judgement->failure = fmt::format("output {} is {} instead of {}; {} not as claimed: {}{}{}",
                                   PlaceOf(comparison, first), compared.first_actual, compared.first_expected,
                                   support::PartOf(compared.differing, compared.outputs, "output"),
                                   InWords(claim), instead.empty() ? "" : "; ", instead);
  judgement->kind = {FailureKind::kClaim, instead};
}

Judgement NotExplained(Comparison comparison) {
  Judgement judgement = {std::move(comparison), {}};
  // An exact output may not be as claimed.
  judgement.failure =
      judgement.comparison.Parity() ? std::string("the outputs are exact, not as claimed") : "";
  if (judgement.failure.empty()) {
    const Difference& first = judgement.comparison.listed.at(0);
    judgement.failure = fmt::format("output {} is {} instead of {}: {}", PlaceOf(judgement.comparison, first),
                                    first.actual, first.expected, kNotExplained);
  }
  judgement.kind = {FailureKind::kOutput, std::string(kNotExplained)};
  return judgement;
}

}  // namespace

RunOptions InAllPlaces(const Problem& problem) {
  RunOptions options = RunOptionsOf(problem);
  options.in_all_places = true;
  return options;
}

std::string MessageOf(const Error& error) {
  return error.message.empty() ? "the target does not say why" : error.message;
}

namespace {

// `explains`: whether to look for causes of a failure.
Result<Judgement> JudgeBy(const Target& target, const Oracle& oracle, const RunOptions& options,
                          const Causes* of_larger, bool explains) {
  const std::string claim = ClaimOf(target.Arithmetic(), KindOf(oracle));
  ASSIGN_OR_RETURN(const std::vector<Arithmetic> promised, Promised(claim, oracle, options.isa));
  ASSIGN_OR_RETURN(const Bytes output, RunChecked(target, oracle, options));
  if (!explains && !promised.empty() && !IsAsPromised(oracle, promised, output)) {
    return NotExplained(CountDifferences(oracle, output));
  }
  if (oracle.grouped() != nullptr) return JudgeGrouped(oracle, output, claim);
  Judgement judgement = {Explain(target, oracle, options, output, kMaxDifferencesListed, of_larger), {}};
  // If a sum leaves int32, a target that must be exact has no right s32 output: Parity() accounts for this.
  const bool is_to_be_exact = promised == std::vector<Arithmetic>{Arithmetic()};
  if (is_to_be_exact ? judgement.comparison.Parity() : IsAsPromised(oracle, promised, output))
    return judgement;
  if (promised.empty()) {
    FailAsAny(&judgement);
  } else if (claim == "exact") {
    FailAsExact(ExpectedModel(oracle.linear(), options.isa), &judgement);
  } else {
    FailAsClaimed(oracle, promised.front(), output, &judgement);
  }
  return judgement;
}

}  // namespace

Judgement JudgeGrouped(const Oracle& oracle, const Bytes& output, std::string_view claim) {
  Judgement judgement = {ExplainGrouped(oracle, output, claim), {}};
  const Comparison& comparison = judgement.comparison;
  if (claim == "any" ? !comparison.LacksCause() : comparison.Parity()) return judgement;
  const Difference& first = comparison.listed.at(0);
  const GroupedNaming& naming = *comparison.grouped;
  judgement.failure =
      fmt::format("{}; output ({}, {}) is {} instead of {}; {}",
                  support::PartOf(comparison.differing, comparison.outputs, "output", "differs", "differ"),
                  first.m, first.n, first.actual, first.expected, naming.InWords());
  judgement.kind = {FailureKind::kOutput, naming.arithmetic.empty() ? naming.InWords() : naming.arithmetic};
  return judgement;
}

std::string AlikeOf(const Comparison& comparison) {
  return comparison.grouped ? comparison.grouped->arithmetic : std::string();
}

Result<Judgement> Judge(const Target& target, const Oracle& oracle, const RunOptions& options,
                        const Causes* of_larger) {
  return JudgeBy(target, oracle, options, of_larger, true);
}

Result<Judgement> JudgeBriefly(const Target& target, const Oracle& oracle, const RunOptions& options) {
  return JudgeBy(target, oracle, options, nullptr, false);
}

Result<Judgement> Judge(const Target& target, const Problem& problem, const Causes* of_larger) {
  return Judge(target, Oracle(problem), InAllPlaces(problem), of_larger);
}

bool IsBroken(const Target& target, const Oracle& oracle, const RunOptions& options, const Bytes& output,
              const Comparison* comparison) {
  const std::string claim = ClaimOf(target.Arithmetic(), KindOf(oracle));
  const Result<std::vector<Arithmetic>> promised = Promised(claim, oracle, options.isa);
  if (!promised) return true;
  if (IsAsPromised(oracle, *promised, output)) return false;
  if (!promised->empty()) return true;
  return comparison != nullptr ? comparison->LacksCause()
                               : Explain(target, oracle, options, output).LacksCause();
}

std::optional<Failure> HowFails(const Target& target, const Oracle& oracle, const RunOptions& options) {
  const std::string claim = ClaimOf(target.Arithmetic(), KindOf(oracle));
  if (!Promised(claim, oracle, options.isa)) return Failure{FailureKind::kError};
  const Result<Bytes> output = RunChecked(target, oracle, options);
  if (!output) {
    if (output.error().status == INTACT_UNSUPPORTED) return std::nullopt;
    return Failure{target.LastFailure().kind};
  }
  std::optional<Comparison> of_grouped;
  if (oracle.grouped() != nullptr) of_grouped = ExplainGrouped(oracle, *output, claim);
  if (!IsBroken(target, oracle, options, *output, of_grouped ? &*of_grouped : nullptr)) return std::nullopt;
  return Failure{FailureKind::kOutput, of_grouped ? AlikeOf(*of_grouped) : std::string()};
}

bool Fails(const Target& target, const Oracle& oracle, const RunOptions& options) {
  return HowFails(target, oracle, options).has_value();
}

bool Fails(const Target& target, const Problem& problem) {
  return Fails(target, Oracle(problem), InAllPlaces(problem));
}

}  // namespace intact::verify
