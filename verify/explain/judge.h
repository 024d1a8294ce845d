// Judges whether a target computes what it claims.
#ifndef INTACT_VERIFY_EXPLAIN_JUDGE_H_
#define INTACT_VERIFY_EXPLAIN_JUDGE_H_

#include <intact/intact.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// Whether a target's outputs of a problem are what its mode, ISA or claim promises.
struct Judgement {
  Comparison comparison;  // with the exact reference
  std::string failure;    // "" if the outputs are as promised; else describes the first difference
  Failure kind = {};      // the kind of the failure
  bool Passed() const { return failure.empty(); }
};

/// The run options of `problem`, with RunOptions::in_all_places set.
RunOptions InAllPlaces(const Problem& problem);

/// The message of a target's error, or a default if it has none.
std::string MessageOf(const Error& error);

/// Runs an operation on `target`, and judges the outputs by the target's claim. A problem is run with
/// InAllPlaces(), an oracle's operation with `options`.
///
///   "exact"  In exact mode and with VNNI every output must equal the exact reference. If pairs saturate,
///            every output must equal the maddubs model, so all differences are int16 saturation. If a
///            saturating problem names no ISA, either is accepted. Our own kernels have this claim.
///   "any"    Every difference from the exact reference must have a cause.
///   other    Every output must be what the claimed arithmetic predicts.
///
/// Returns the target's error if it reports one. `of_larger`: as in Explain().
Result<Judgement> Judge(const Target& target, const Problem& problem, const Causes* of_larger = nullptr);
Result<Judgement> Judge(const Target& target, const Oracle& oracle, const RunOptions& options,
                        const Causes* of_larger = nullptr);

/// Judges the outputs of an operation with grouped weights. `claim`: "exact" or "any". With "any", every
/// arithmetic without a fault passes. Failure::of is the arithmetic, or "unexplained".
Judgement JudgeGrouped(const Oracle& oracle, const std::vector<uint8_t>& output, std::string_view claim);

/// What two failures must share so that one may stand for the other in a smaller problem. With grouped
/// weights: the arithmetic, because many arithmetics explain few outputs by chance. Otherwise "".
std::string AlikeOf(const Comparison& comparison);

/// As Judge(), but looks for a cause of a failure only if the target claims nothing. Otherwise `kind` is
/// kNotExplained.
Result<Judgement> JudgeBriefly(const Target& target, const Oracle& oracle, const RunOptions& options);
inline constexpr std::string_view kNotExplained = "not explained";

/// Whether Judge() finds a failure, or an error other than UNSUPPORTED. Faster than Judge(): it looks for
/// causes only if the target claims nothing.
bool Fails(const Target& target, const Problem& problem);
bool Fails(const Target& target, const Oracle& oracle, const RunOptions& options);
/// The failure that Fails() finds; nullopt if there is none. All kinds of wrong outputs count as kOutput.
/// Failure::of: AlikeOf() the comparison if there are outputs, else "".
std::optional<Failure> HowFails(const Target& target, const Oracle& oracle, const RunOptions& options);

/// Whether the output of RunChecked() is not what `target` claims to compute. `comparison`: the result of
/// Explain(), if it is known.
bool IsBroken(const Target& target, const Oracle& oracle, const RunOptions& options,
              const std::vector<uint8_t>& output, const Comparison* comparison);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_JUDGE_H_
