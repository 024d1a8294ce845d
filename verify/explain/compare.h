// Compares a target's output with the exact reference and says why each output differs.
//
// Classes, by the arithmetic (reference/models/arithmetic.h) that reproduces the target's byte:
//
//   int16 saturation      pairs clamped to int16, or int16 sums; the detail names pairs that are not
//                         adjacent
//   int32 overflow        the saturating int32 accumulation (VPDPBUSDS); or the exact sum leaves int32: then
//                         what wraps or clamps is wrong, and an s32 output has no right value. Where sums
//                         are to wrap (INTACT_OVERFLOW_WRAPS): a sum that was clamped or kept
//   reduced weights       weights were halved and rounded
//   float sums            an s32 output went through float
//   requantization        the accumulator is right and rounded otherwise (half up, FMA, fixed point, …)
//   implementation error  nothing explains it; the detail says what it looks like
//
// What may have made an output is tried in the order of hypotheses.h. Where no arithmetic makes all outputs,
// but each has a cause, the outputs are told in parts.
//
// Where the target's accumulator is known, an explanation must also give that accumulator. A clamped sum may
// coincide with the exact one, by another pair clamping the other way or by rounding: such outputs do not
// differ and need no explanation, but off_maddubs tells whether a saturating target clamped as predicted.
#ifndef INTACT_VERIFY_EXPLAIN_COMPARE_H_
#define INTACT_VERIFY_EXPLAIN_COMPARE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/operation.h"
#include "reference/models/arithmetic.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "verify/explain/oracle.h"
#include "verify/problem/target.h"

namespace intact::verify {

enum class Cause : uint8_t {
  kInt16Saturation,
  kInt32Overflow,
  kReducedWeights,
  kFloatSums,
  kRequantization,
  kImplementationError
};
inline constexpr int kCauseCount = 6;
std::string_view ToString(Cause cause);

/// A pair of depths whose sum VPMADDUBSW clamps. In a convolution m, n and depths are rows, output channels
/// and depths of the lowered GEMM (reference/models/lowering.h). Activations and weights are as the
/// instruction sees them: s8 activations + 128, u8 weights − 128. a0 and a1 are its unsigned operand, which
/// in other kernels may be the weights.
struct SaturatedPair {
  int64_t m = 0, n = 0, k = 0, k1 = 0;  // depths k and k1
  uint8_t a0 = 0, a1 = 0;
  int8_t w0 = 0, w1 = 0;
  int32_t true_sum = 0;
  int32_t clamped_sum = 0;
};

/// One output that differs from the exact reference.
struct Difference {
  int64_t m = 0, n = 0;
  double expected = 0;  // the output's value
  double actual = 0;
  int32_t accumulator = 0;  // the exact one
  Cause cause = Cause::kImplementationError;
  std::string_view hypothesis;       // the name of the one that explains it, see hypotheses.h; or ""
  std::string of;                    // what such differences have in common: an arithmetic, a mistake
  std::string detail;                // e.g. "half up", "accumulator 17 instead of 12"
  std::vector<SaturatedPair> pairs;  // kInt16Saturation: what clamps, at most kMaxPairsListed of them
  int64_t pair_count = 0;            // how many clamp in all
};
inline constexpr int64_t kMaxPairsListed = 8;
inline constexpr int64_t kMaxDifferencesListed = 64;

/// What may have computed all outputs.
struct Naming {
  bool telling = false;  // adjacent pairs clamped to int16 would make other bytes than the contract
  std::vector<reference::Arithmetic> reproduced_by;  // where outputs differ: the least strange, if any does
};
inline constexpr size_t kMaxReproducedBy = 128;

struct Comparison {
  std::optional<reference::ConvGeometry> conv;  // of a convolution: what m, n and k mean
  int64_t item_rows = 0;  // of a batch of GEMMs: rows of an item, which follow each other
  int64_t outputs = 0;
  int64_t differing = 0;
  double max_abs_difference = 0;
  int64_t first_differing = -1;                    // flat index, −1 if none
  std::array<int64_t, kCauseCount> by_cause = {};  // counts of all differing outputs
  std::vector<Difference> listed;                  // the first max_listed
  int64_t saturated_accumulators = 0;              // outputs of which some pair would clamp in int16
  int64_t saturated_pairs = 0;                     // how many pair sums in all
  int64_t off_maddubs = 0;       // outputs that differ from those of MaddubsOf() its pairing
  uint64_t digest = 0;           // FNV-1a of the target's bytes
  std::optional<Naming> naming;  // where no ISA is named, as for targets that are not ours
  /// Outputs that differ and are one arithmetic's.
  struct Part {
    reference::Arithmetic arithmetic;
    int64_t outputs = 0;
    std::string where;  // "columns from 16 on", where they are apart from outputs that are not its; or ""
  };
  std::vector<Part>
      parts;  // where no arithmetic makes all outputs, but each that differs has one: most first
  std::vector<reference::Arithmetic> explained_by;  // outputs that differ, most first
  /// What to believe of a smaller problem that fails likewise: what makes all outputs of this one, and what
  /// makes some.
  std::vector<reference::Arithmetic> Explanations() const;
  int64_t Explained() const;  // differing with a cause other than implementation error
  int64_t Unexplained() const;
  bool Parity() const { return differing == 0; }
};

/// "93: exact; 3: half away from zero in columns from 16 on"; "" if there are no parts.
std::string PartsInWords(const Comparison& comparison);

/// Where a difference is: OutputPlace(), in a batch of GEMMs with its item.
std::string PlaceOf(const Comparison& comparison, const Difference& difference);

/// Plain comparison of output bytes, `type` elements: counts, largest difference, the first that differs, by
/// its index and values.
struct ByteComparison {
  int64_t outputs = 0, differing = 0, first_differing = -1;
  double max_abs_difference = 0;
  double first_expected = 0, first_actual = 0;
};
ByteComparison CompareBytes(intact_type type, const std::vector<uint8_t>& expected,
                            const std::vector<uint8_t>& actual);

/// Compares `actual` with the exact reference. `actual_accumulators` (the target's own s32 output
/// of the same problem, if it has one) sharpens the verdict between requantization and implementation error.
Comparison Compare(const Oracle& oracle, const std::vector<uint8_t>& actual,
                   const std::optional<std::vector<int32_t>>& actual_accumulators,
                   int64_t max_listed = kMaxDifferencesListed);

/// What `target` outputs, of the size that it must have.
Result<std::vector<uint8_t>> RunChecked(const Target& target, const Oracle& oracle,
                                        const RunOptions& options);

/// The same operation with its accumulators as output.
reference::Operation AccumulatorProblem(reference::Operation operation);

/// Compares what RunChecked() gave. Where it differs from the reference, `target` is run for s32 output too;
/// and where `options` name no ISA, the comparison names the arithmetics that it may have. Of several that
/// make all outputs the first of `preferred` is believed.
Comparison Explain(const Target& target, const Oracle& oracle, const RunOptions& options,
                   const std::vector<uint8_t>& output, int64_t max_listed = kMaxDifferencesListed,
                   std::span<const reference::Arithmetic> preferred = {});

/// Whether `mode` clamps pairs on `isa`: a saturating one without VNNI and AMX, and where no ISA is named.
bool Saturates(intact_mode mode, intact_isa isa);
/// The model that a target must equal on `isa`: MaddubsOf() its pairing where the mode saturates.
reference::Model ExpectedModel(const core::Linear& linear, intact_isa isa);

/// All pairs of output (m, n) that clamp, as the model pairs depths.
std::vector<SaturatedPair> SaturatedPairs(const reference::Operands& operands, int64_t m, int64_t n,
                                          const reference::Model& model);
/// All adjacent ones.
std::vector<SaturatedPair> SaturatedPairs(const reference::Gemm& gemm, int64_t m, int64_t n);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_COMPARE_H_
