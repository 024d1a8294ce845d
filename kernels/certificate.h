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
#ifndef INTACT_KERNELS_CERTIFICATE_H_
#define INTACT_KERNELS_CERTIFICATE_H_

#include <cstdint>
#include <vector>

#include "kernels/pack.h"

namespace intact::kernels {

/// Activations as kernels see them.
struct ActivationRange {
  int low = 0, high = 255;
  bool IsFull() const { return low == 0 && high == 255; }
  bool operator==(const ActivationRange&) const = default;
};

/// A pair that can saturate, and activations that make it.
struct FailingPair {
  int64_t k = 0, n = 0;  // depths k and k + 1; k is even
  int8_t w0 = 0, w1 = 0;
  uint8_t a0 = 0, a1 = 0;  // the witness
  int32_t sum = 0;         // what they add up to, beyond int16
};

/// Which pairs of 16 adjacent columns can saturate.
struct PanelCertificate {
  int64_t failing_pairs = 0;
  /// How many adjacent quads may be added up in int16, at any place of the depth and in any order, without
  /// leaving it: 0 if a single one may not.
  int64_t safe_depth_quads = 0;
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
  std::vector<PanelCertificate> panels;
  bool IsProven() const { return failing_pairs == 0; }
};

/// The certificate of `weights`, accumulator bounds aside.
Certificate Certify(const PackedWeights& weights, ActivationRange range);

/// Failing pairs in order of column, then depth: those from number `first` on, at most `count`.
std::vector<FailingPair> ListFailingPairs(const PackedWeights& weights, ActivationRange range, int64_t first,
                                          int64_t count);

/// What one column can accumulate before the zero point of activations and bias: Σ_k a·(b − zb), all as
/// kernels see it.
struct ColumnBound {
  int64_t sum = 0;  // Σ_k (b − zb)
  int64_t lowest = 0, highest = 0;
};

/// `zero_point` is the column's zb. Exact for the contract. With `pairs_saturate`, that is with each pair sum
/// Σ a·b clamped to int16, exact where zb is 0, else an interval that holds all that can be accumulated.
ColumnBound BoundColumn(const PackedWeights& weights, int64_t column, int32_t zero_point,
                        ActivationRange range, bool pairs_saturate);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CERTIFICATE_H_
