// Compares a target's output with the exact reference, and explains each output that differs.
//
// A cause is found by the arithmetic (reference/models/arithmetic.h) that reproduces the target's output. The
// causes:
//
//   int16 saturation      pairs clamped to int16, or int16 sums that clamp or wrap; the detail names pairs
//                         that are not adjacent
//   int32 overflow        the saturating int32 accumulation (VPDPBUSDS); or the exact sum leaves int32: then
//                         wrapping and clamping are wrong, and an s32 output has no right value. If sums
//                         should wrap (INTACT_OVERFLOW_WRAPS): a sum that was clamped or kept
//   reduced weights       weights were halved and rounded
//   float sums            an s32 output went through float, or sums were added in float32
//   requantization        the accumulator is right, but rounded differently (half up, FMA, fixed point, …)
//   implementation error  nothing explains it; the detail says what it looks like
//
// The explanations are tried in the order of hypotheses.h. If each differing output has a cause but no single
// arithmetic makes all outputs, the comparison lists the outputs in parts.
//
// Some outputs fit an arithmetic or a mistake by chance. So a cause is named without reserve only if it
// explains every wrong output of the problem. A mistake is named without reserve only if it explains every
// wrong output without a cause; of many outputs, a sample is checked. Otherwise the detail says "consistent
// with N of M wrong outputs". If some wrong outputs have no explanation, an arithmetic is a cause only if it
// explains at least nine in ten wrong outputs. Otherwise its outputs are implementation errors too. Outputs
// that clamp as the saturating mode promises are not wrong.
//
// If the target's accumulator is known, an explanation must also give that accumulator. An output with
// clamped pairs may equal the exact output, because another pair clamps the other way or because of rounding.
// Such an output needs no explanation. off_maddubs shows whether a saturating target clamped as predicted.
#ifndef INTACT_VERIFY_EXPLAIN_COMPARE_H_
#define INTACT_VERIFY_EXPLAIN_COMPARE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/operation.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "verify/explain/comparison.h"
#include "verify/explain/oracle.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// "93: exact; 3: half away from zero in columns from 16 on"; "" if there are no parts.
std::string PartsInWords(const Comparison& comparison);

/// OutputPlace() of a difference, with its item in a batch of GEMMs.
std::string PlaceOf(const Comparison& comparison, const Difference& difference);

/// Compares `actual` with the exact reference. `actual_accumulators` are the target's s32 outputs of the same
/// problem, if the target has any. These outputs help to separate requantization from implementation errors.
Comparison Compare(const Oracle& oracle, const std::vector<uint8_t>& actual,
                   const std::optional<std::vector<int32_t>>& actual_accumulators,
                   int64_t max_listed = kMaxDifferencesListed);

/// The output of `target`, checked for its size.
Result<std::vector<uint8_t>> RunChecked(const Target& target, const Oracle& oracle,
                                        const RunOptions& options);

/// `operation`, changed so that its outputs are the accumulators.
reference::Operation AccumulatorProblem(reference::Operation operation);

/// Compares the output of RunChecked(). If the output differs, runs `target` for s32 output too. If `options`
/// name no ISA, also names the arithmetics that may have made all outputs. `of_larger`: the only causes to
/// try, from a larger problem that fails in the same way; nullptr: all causes.
Comparison Explain(const Target& target, const Oracle& oracle, const RunOptions& options,
                   const std::vector<uint8_t>& output, int64_t max_listed = kMaxDifferencesListed,
                   const Causes* of_larger = nullptr);

/// Counts the outputs that differ, and finds the first of them. Explains none: all count as implementation
/// errors.
Comparison CountDifferences(const Oracle& oracle, const std::vector<uint8_t>& output);

/// Whether `mode` clamps pairs on `isa`: the saturating mode on ISAs without VNNI and AMX, and with isa ANY.
bool Saturates(intact_mode mode, intact_isa isa);
/// The model that a target must equal on `isa`: MaddubsOf() the pairing if the mode saturates, otherwise
/// kExact.
reference::Model ExpectedModel(const core::Linear& linear, intact_isa isa);

/// All pairs of output (m, n) that clamp, paired as in `model`.
std::vector<SaturatedPair> SaturatedPairs(const reference::Operands& operands, int64_t m, int64_t n,
                                          const reference::Model& model);
/// SaturatedPairs() of a GEMM, for adjacent pairs.
std::vector<SaturatedPair> SaturatedPairs(const reference::Gemm& gemm, int64_t m, int64_t n);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_COMPARE_H_
