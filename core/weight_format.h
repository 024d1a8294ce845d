// Formats of weights in groups of depths (include/intact/grouped.h). Reference, verifier and kernels describe
// weights with one struct.
#ifndef INTACT_CORE_WEIGHT_FORMAT_H_
#define INTACT_CORE_WEIGHT_FORMAT_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>

#include "core/types.h"

namespace intact::core {

/// A weight is an element of b_type, a code. Each group of a column has a scale. It may also have a zero
/// point or a minimum. The value of a weight is scale·(code − zero point) + minimum.
struct WeightFormat {
  intact_type b_type = INTACT_U4;
  int64_t group = 32;                   // depths of a group; 0: all depths are one group
  intact_type scale_type = INTACT_F16;  // of a group's scale
  bool has_b_zero_points = false;       // else every zero point is DefaultZeroPoint()
  bool has_b_minimums = false;          // float32; then there are no zero points
  bool operator==(const WeightFormat&) const = default;

  const ElementType& codes() const { return TraitsOf(b_type); }
  /// The zero point of weights without given zero points.
  int32_t DefaultZeroPoint() const { return has_b_minimums ? 0 : codes().middle(); }
  /// Of a column of `k` depths.
  int64_t Depth(int64_t k) const { return group == 0 ? k : group; }
  int64_t Groups(int64_t k) const { return (k + Depth(k) - 1) / Depth(k); }
  int64_t GroupDepth(int64_t k, int64_t g) const { return std::min(Depth(k), k - g * Depth(k)); }
  /// Whether the depths of a column share bytes, so they are adjacent.
  bool IsPacked() const { return codes().bits < 8; }
  /// Bytes of a column of `k` adjacent depths.
  int64_t ColumnBytes(int64_t k) const { return (k * codes().bits + 7) / 8; }
  /// The code of depth `k` of such a column.
  int32_t Code(const uint8_t* column, int64_t k) const {
    return codes().DecodeCode(IsPacked() ? column[k / 2] >> (k % 2 * 4) : column[k]);
  }
  /// Stores a code in such a column. The bits of depth `k` are 0 before.
  void StoreCode(int32_t code, int64_t k, uint8_t* column) const {
    if (IsPacked()) {
      column[k / 2] = static_cast<uint8_t>(column[k / 2] | (code & 15) << (k % 2 * 4));
    } else {
      column[k] = static_cast<uint8_t>(code);
    }
  }
};

/// The scalar fields that an intact_grouped_desc shares with other descriptions of a product.
template <class Visit, class... Objects>
constexpr void ForEachGroupedNumber(Visit&& visit, Objects&... o) {
  visit("n", o.n...);
  visit("k", o.k...);
  visit("group", o.group...);
  visit("experts", o.experts...);
  visit("a_source_type", o.a_source_type...);
  visit("a_type", o.a_type...);
  visit("a_granularity", o.a_granularity...);
  visit("b_type", o.b_type...);
  visit("scale_type", o.scale_type...);
  visit("c_type", o.c_type...);
}

}  // namespace intact::core
#endif  // INTACT_CORE_WEIGHT_FORMAT_H_
