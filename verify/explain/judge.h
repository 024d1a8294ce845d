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
  Failure kind = {};      // if it did not
  bool Passed() const { return failure.empty(); }
};

/// How `problem` asks to be run, with its tensors in all places that are tried.
RunOptions InAllPlaces(const Problem& problem);

/// The words of an error of a target, which may have none.
std::string MessageOf(const Error& error);

/// Runs `problem` on `target`. One that claims to be exact, as our own does: in exact mode and on VNNI every
/// output must equal the exact reference; where pairs saturate, every output must equal the maddubs model, and
/// so every difference from the exact reference be int16 saturation. A saturating problem that names no ISA
/// may do either. One that claims another arithmetic: every output must be what that predicts. One that
/// claims nothing ("any"): every difference from the exact reference must have a cause. Errors are the
/// target's. A problem's tensors are in all places that are tried. Of several arithmetics that make all
/// outputs the first of `preferred` is believed.
using Arithmetics = std::span<const reference::Arithmetic>;
Result<Judgement> Judge(const Target& target, const Problem& problem, Arithmetics preferred = {});
/// The same of an operation, in the places that `options` tell.
Result<Judgement> Judge(const Target& target, const Oracle& oracle, const RunOptions& options,
                        Arithmetics preferred = {});

/// Whether Judge() finds a failure, or an error other than UNSUPPORTED. It looks for no causes, which takes
/// Judge() most of its time; but where a target claims nothing, causes are what passes.
bool Fails(const Target& target, const Problem& problem);
bool Fails(const Target& target, const Oracle& oracle, const RunOptions& options);

/// Whether what RunChecked() gave is not what `target` claims to compute. `comparison`: what Explain() says of
/// it, if that is known.
bool IsBroken(const Target& target, const Oracle& oracle, const RunOptions& options,
              const std::vector<uint8_t>& output, const Comparison* comparison);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_JUDGE_H_
