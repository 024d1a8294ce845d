// Whether a target computes what it claims.
#ifndef INTACT_VERIFY_EXPLAIN_JUDGE_H_
#define INTACT_VERIFY_EXPLAIN_JUDGE_H_

#include <intact/intact.hpp>
#include <span>
#include <string>

#include "reference/models/arithmetic.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// Whether a target did on a problem what its mode and ISA promise.
struct Judgement {
  Comparison comparison;  // with the exact reference
  std::string failure;    // empty if it did; else the first difference in words
  bool Passed() const { return failure.empty(); }
};

/// The words of an error of a target, which may have none.
std::string MessageOf(const Error& error);

/// Runs `problem` on `target` and compares with the exact reference. Errors are the target's.
Result<Comparison> VerifyProblem(const Target& target, const Problem& problem);

/// Runs `problem` on `target`. One that claims to be exact, as our own does: in exact mode and on VNNI every
/// output must equal the exact reference; where pairs saturate, every output must equal the triple model, and
/// so every difference from the exact reference be int16 saturation. A saturating problem that names no ISA
/// may do either. One that claims another arithmetic: every output must be what that predicts. One that
/// claims nothing ("any"): every difference from the exact reference must have a cause. Errors are the
/// target's. A problem's tensors are in all places that are tried. Of several arithmetics that make all
/// outputs the first of `preferred` is believed.
using Arithmetics = std::span<const reference::Arithmetic>;
Result<Judgement> Judge(const Target& target, const Problem& problem, Arithmetics preferred = {});
/// The same, in one place beside the usual.
Result<Judgement> JudgeQuickly(const Target& target, const Problem& problem);
Result<Judgement> Judge(const Target& target, const reference::Gemm& gemm, const RunOptions& options,
                        Arithmetics preferred = {});
Result<Judgement> Judge(const Target& target, const reference::Conv& conv, const RunOptions& options,
                        Arithmetics preferred = {});

/// Whether Judge() finds a failure, or an error other than UNSUPPORTED. It looks for no causes, which takes
/// Judge() most of its time; but where a target claims nothing, causes are what passes.
bool Fails(const Target& target, const Problem& problem);
bool Fails(const Target& target, const reference::Gemm& gemm, const RunOptions& options);
bool Fails(const Target& target, const reference::Conv& conv, const RunOptions& options);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_JUDGE_H_
