// The certificate: which weights can make VPMADDUBSW saturate, decided once, at pack time, for all inputs.
//
// With activations in [low, high] and weights as the instruction sees them (s8 activations shifted by +128,
// u8 weights by −128), the pair (w0, w1) of adjacent depths has sums between Σ min(low·w, high·w) and Σ
// max(low·w, high·w). It *fails* if a sum can leave [−32768, 32767]. Then the activations that reach the
// extreme are the pair's witness: a K = 2 problem that clamps. If no pair of a matrix fails, this proves that
// no input can saturate. The certificate covers padding: padded depths have zero weights, and padding of
// activations is the zero point, a value within the range.
//
// Sums over whole runs of quads show for how many adjacent quads int16 accumulation is safe
// (SafeDepthQuads()). The schedule (schedule.h) reorders, groups and splits quads. The schedule is exact with
// any certificate.
#ifndef INTACT_KERNELS_WEIGHTS_CERTIFICATE_H_
#define INTACT_KERNELS_WEIGHTS_CERTIFICATE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/result.h"
#include "kernels/problem/operands.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

/// A pair that can saturate, and activations that make it saturate.
struct FailingPair {
  int64_t k = 0, n = 0;  // depths k and k + 1; k is even
  int8_t w0 = 0, w1 = 0;
  uint8_t a0 = 0, a1 = 0;  // the witness
  int32_t sum = 0;         // a0·w0 + a1·w1, beyond int16
};

/// The pair of these weights, with the activations in `range` that make its sum largest in magnitude.
FailingPair LargestPair(int8_t w0, int8_t w1, ActivationRange range);

/// Bounds of what one column can accumulate, without the activations' zero point and the bias: Σ_k a·(b −
/// zb).
struct ColumnBound {
  int64_t sum = 0;  // Σ_k (b − zb)
  int64_t lowest = 0, highest = 0;
};

/// The sum of the positive values of b − zb in a column, and the sum of the negative values. All exact bounds
/// follow from these two sums.
struct ColumnParts {
  int64_t positive = 0, negative = 0;
  ColumnBound Bound(ActivationRange range) const {
    return {positive + negative, range.low * positive + range.high * negative,
            range.high * positive + range.low * negative};
  }
  /// Bounds of Σ_k (a − za)·(b − zb), where za is one of `zero_points`, the same for all depths. The bounds
  /// are linear in za, so the largest and the smallest za give the bounds.
  ColumnBound Bound(ActivationRange range, ActivationRange zero_points) const {
    const auto bound = [&](int za) { return Bound({range.low - za, range.high - za}); };
    const ColumnBound at_low = bound(zero_points.low), at_high = bound(zero_points.high);
    return {at_low.sum, std::min(at_low.lowest, at_high.lowest), std::max(at_low.highest, at_high.highest)};
  }
};

struct Certificate {
  ActivationRange range;
  int64_t pairs = 0;  // ⌈depth/2⌉·n
  int64_t failing_pairs = 0;
  int64_t worst_column = 0;  // the first column with the most failing pairs
  int64_t worst_column_failing_pairs = 0;
  /// The smallest and the largest exact accumulator, with zero points and bias_s32, for activations in the
  /// range.
  int64_t accumulator_min = 0, accumulator_max = 0;
  std::vector<int64_t> panel_failing_pairs;  // of 16 adjacent columns each
  std::vector<ColumnParts> column_sums;      // with zero points 0, of the columns of whole panels
  bool IsProven() const { return failing_pairs == 0; }
};

/// The certificate of `weights`, without accumulator bounds.
Certificate Certify(const PackedWeights& weights, ActivationRange range);

/// Weights that are not stored in pairs: `copy` writes column `column`, pair after pair, to `depth` bytes.
/// Bytes that `copy` does not write are 0. These bytes must be at equal places in all columns.
struct PairedColumns {
  int64_t depth = 0, n = 0;
  std::function<void(int64_t column, int8_t* to)> copy;
};
Result<Certificate> Certify(const PairedColumns& weights, ActivationRange range);

/// The number of adjacent quads of a panel that may be added in int16, from any depth on and in any order,
/// without leaving int16. 0 if a single quad may leave int16.
int64_t SafeDepthQuads(const PackedWeights& weights, int64_t panel, ActivationRange range);

/// At most `count` failing pairs, from number `first` on, ordered by column, then depth.
std::vector<FailingPair> ListFailingPairs(const PackedWeights& weights, ActivationRange range, int64_t first,
                                          int64_t count);
Result<std::vector<FailingPair>> ListFailingPairs(const PairedColumns& weights, ActivationRange range,
                                                  int64_t first, int64_t count);

/// The ColumnParts of a panel's columns with zero points `zero_points`; zeros for columns beyond n.
std::array<ColumnParts, kPanelColumns> SumPanel(const PackedWeights& weights, int64_t panel,
                                                const std::array<int32_t, kPanelColumns>& zero_points);

/// A column's bound if each pair sum is clamped to int16 before zero points are applied.
ColumnBound BoundSaturatingColumn(const PackedWeights& weights, int64_t column, int32_t zero_point,
                                  ActivationRange range);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_CERTIFICATE_H_
