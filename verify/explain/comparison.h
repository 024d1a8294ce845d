// What a comparison of outputs finds (compare.h).
#ifndef INTACT_VERIFY_EXPLAIN_COMPARISON_H_
#define INTACT_VERIFY_EXPLAIN_COMPARISON_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/contract/conv.h"
#include "reference/models/arithmetic.h"
#include "verify/explain/hypotheses.h"

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

/// VPMADDUBSW clamps the sum of this pair of depths. For a convolution, m, n and depths are those of the
/// lowered GEMM (reference/models/lowering.h). Activations and weights are as the instruction sees them. a0
/// and a1 are the unsigned operand. In some kernels the weights are the unsigned operand.
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
  int32_t accumulator = 0;  // the exact accumulator
  Cause cause = Cause::kImplementationError;
  std::string_view hypothesis;       // the name of its explanation (hypotheses.h), or ""
  std::string of;                    // groups similar differences: an arithmetic, a mistake
  std::string detail;                // e.g. "half up", "accumulator 17 instead of 12"
  std::vector<SaturatedPair> pairs;  // kInt16Saturation: pairs that clamp, at most kMaxPairsListed
  int64_t pair_count = 0;            // the number of all pairs that clamp
};
inline constexpr int64_t kMaxPairsListed = 8;
inline constexpr int64_t kMaxDifferencesListed = 64;

/// Arithmetics that may have computed all outputs.
struct Naming {
  bool would_show_clamping =
      false;  // adjacent pairs clamped to int16 would make other bytes than the contract
  // If outputs differ: all candidates, the least strange first.
  std::vector<reference::Arithmetic> reproduced_by;
};
inline constexpr size_t kMaxReproducedBy = 128;

/// What computes all outputs of grouped weights.
struct GroupedNaming {
  /// "exact", the phrase of an arithmetic or of a bound; "" if nothing explains the outputs.
  std::string arithmetic;
  bool is_fault = false;  // whether the arithmetic makes a wrong product
  /// The largest error of an output as a share of the bound; nullopt if `arithmetic` names no bound.
  std::optional<double> error = std::nullopt;
  /// The arithmetic with `error`, or "unexplained".
  std::string InWords() const;
};

struct Comparison {
  std::optional<reference::ConvGeometry> conv;  // set for a convolution; defines m, n and k
  int64_t item_rows = 0;                        // rows per item of a batch of GEMMs
  int64_t outputs = 0;
  int64_t differing = 0;
  double max_abs_difference = 0;
  int64_t first_differing = -1;                    // flat index, −1 if none
  std::array<int64_t, kCauseCount> by_cause = {};  // counts of all differing outputs
  std::vector<Difference> listed;                  // the first differences, at most max_listed
  int64_t saturated_accumulators = 0;              // outputs with a pair that would clamp in int16
  int64_t saturated_pairs = 0;                     // all pair sums that would clamp
  int64_t off_maddubs = 0;                         // outputs that differ from MaddubsOf(the pairing)
  uint64_t digest = 0;                             // FNV-1a of the target's bytes
  std::optional<Naming> naming;                    // set if no ISA is named, as for targets that are not ours
  /// Differing outputs that one arithmetic explains.
  struct Part {
    reference::Arithmetic arithmetic;
    int64_t outputs = 0;
    std::string where;  // "columns from 16 on", if all other outputs lie outside; or ""
  };
  std::optional<GroupedNaming> grouped;  // set for grouped weights, if causes were looked for
  // Filled if no arithmetic makes all outputs, but each differing output has an arithmetic. The part with
  // most outputs is first.
  std::vector<Part> parts;
  // The arithmetics of differing outputs, most frequent first, and the mistakes that explain all other
  // differing outputs.
  Causes explained_by;
  /// The causes to accept for a smaller problem that fails in the same way: first the arithmetic that makes all
  /// outputs here, then arithmetics that make some outputs.
  Causes Explanations() const;
  int64_t Explained() const;  // differing outputs with a cause other than implementation error
  int64_t Unexplained() const;
  /// Whether some outputs have no cause, or only a fault.
  bool LacksCause() const { return Unexplained() > 0 || (grouped && grouped->is_fault); }
  bool Parity() const { return differing == 0; }
};

/// Plain comparison of output bytes, elements of `type`: counts, the largest difference, and the index and
/// values of the first difference.
struct ByteComparison {
  int64_t outputs = 0, differing = 0, first_differing = -1;
  double max_abs_difference = 0;
  double first_expected = 0, first_actual = 0;
};
ByteComparison CompareBytes(intact_type type, const std::vector<uint8_t>& expected,
                            const std::vector<uint8_t>& actual);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_COMPARISON_H_
