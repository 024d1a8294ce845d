// The certificate: which weights can make VPMADDUBSW saturate, decided once, at pack time, for all inputs.
//
// With activations in [low, high] and weights as the instruction sees them (s8 activations shifted by +128,
// u8 weights by −128), the pair (w0, w1) of adjacent depths has sums between Σ min(low·w, high·w) and Σ
// max(low·w, high·w). It *fails* if that leaves [−32768, 32767]; then the activations that reach the extreme
// are its witness: a K = 2 problem that clamps. If no pair of a matrix fails, no input can saturate: proven.
// Depth is padded with zero weights, which add nothing, and a zero-point padding of activations lies within
// the range, so both are covered.
//
// The same sums over whole runs of quads tell how deep int16 accumulation is safe in the order of storage
// (safe_depth_quads); the schedule (schedule.h) reorders, groups and splits, and is exact whatever the
// certificate says.
#ifndef INTACT_KERNELS_WEIGHTS_CERTIFICATE_H_
#define INTACT_KERNELS_WEIGHTS_CERTIFICATE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/result.h"
#include "kernels/problem/operands.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

/// A pair that can saturate, and activations that make it.
struct FailingPair {
  int64_t k = 0, n = 0;  // depths k and k + 1; k is even
  int8_t w0 = 0, w1 = 0;
  uint8_t a0 = 0, a1 = 0;  // the witness
  int32_t sum = 0;         // what they add up to, beyond int16
};

/// What one column can accumulate before zero points of activations and bias: Σ_k a·(b − zb).
struct ColumnBound {
  int64_t sum = 0;  // of the weights less their zero point
  int64_t lowest = 0, highest = 0;
};

/// The sums of a column's weights, less their zero point: of the positive ones and of the negative ones. All
/// exact bounds follow from the two.
struct ColumnParts {
  int64_t positive = 0, negative = 0;
  ColumnBound Bound(ActivationRange range) const {
    return {positive + negative, range.low * positive + range.high * negative,
            range.high * positive + range.low * negative};
  }
};

struct Certificate {
  ActivationRange range;
  int64_t pairs = 0;  // ⌈k/2⌉·n
  int64_t failing_pairs = 0;
  int64_t worst_column = 0;  // the one with most failing pairs, the first of equals
  int64_t worst_column_failing_pairs = 0;
  /// Smallest and largest exact accumulator (zero points and bias_s32 included) that any activations in the
  /// range can make.
  int64_t accumulator_min = 0, accumulator_max = 0;
  std::vector<int64_t> panel_failing_pairs;  // of 16 adjacent columns each
  std::vector<ColumnParts> column_sums;      // of whole panels' columns, whatever zero points there are
  bool IsProven() const { return failing_pairs == 0; }
};

/// The certificate of `weights`, accumulator bounds aside.
Certificate Certify(const PackedWeights& weights, ActivationRange range);

/// Weights that do not lie in pairs: `copy` writes column number `column`, pair after pair, to `depth` bytes.
/// What it never writes, the same bytes of every column, is 0.
struct PairedColumns {
  int64_t depth = 0, n = 0;
  std::function<void(int64_t column, int8_t* to)> copy;
};
Result<Certificate> Certify(const PairedColumns& weights, ActivationRange range);

/// How many adjacent quads of a panel may be added up in int16, at any place of the depth and in any order,
/// without leaving it: 0 if a single one may not.
int64_t SafeDepthQuads(const PackedWeights& weights, int64_t panel, ActivationRange range);

/// Failing pairs in order of column, then depth: those from number `first` on, at most `count`.
std::vector<FailingPair> ListFailingPairs(const PackedWeights& weights, ActivationRange range, int64_t first,
                                          int64_t count);
Result<std::vector<FailingPair>> ListFailingPairs(const PairedColumns& weights, ActivationRange range,
                                                  int64_t first, int64_t count);

/// The parts of a panel's columns, whose zero points are `zero_points`; columns beyond n are zero.
std::array<ColumnParts, kPanelColumns> SumPanel(const PackedWeights& weights, int64_t panel,
                                                const std::array<int32_t, kPanelColumns>& zero_points);

/// The bound where each pair sum is clamped to int16 before zero points are applied.
ColumnBound BoundSaturatingColumn(const PackedWeights& weights, int64_t column, int32_t zero_point,
                                  ActivationRange range);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_CERTIFICATE_H_
