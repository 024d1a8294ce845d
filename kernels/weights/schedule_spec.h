// What a schedule (schedule.h) is made for, and how large it is.
#ifndef INTACT_KERNELS_WEIGHTS_SCHEDULE_SPEC_H_
#define INTACT_KERNELS_WEIGHTS_SCHEDULE_SPEC_H_

#include <algorithm>
#include <cstdint>

#include "kernels/weights/pack.h"

namespace intact::kernels {

/// Items in the largest group. Groups of 16 would save only another 1/16 of a widening per item.
inline constexpr int kMaxGroup = 8;
inline constexpr int kStripHeaderBytes = kMaxGroup * 2;

/// The largest sums of weights of one sign that an int16 lane holds exactly for activations in [0, amax].
struct LaneCapacity {
  int positive = 0, negative = 0;
};
constexpr LaneCapacity CapacityFor(int amax) {
  const int largest = amax > 0 ? amax : 1;  // the activation range may hold only 0
  return {32767 / largest, 32768 / largest};
}

/// What a schedule is made for.
struct ScheduleSpec {
  int strip_columns = 2;          // 1, 2 or 4; in ScheduledVectors 8 or 16
  int rows = 0;                   // of a tile; a quad of A's window takes rows·4 bytes
  int64_t window_quads = 0;       // depth of a window
  int amax = 255;                 // activations lie in [0, amax]
  int largest_group = kMaxGroup;  // items
  bool saturates = true;          // items are added in int16 (VPMADDUBSW); false: any group is exact
  // If A is a planar band: the columns of a channel group; else 0. Quad q of a column then has the number
  // (channel group · quads + q) in place of an offset, until Relocate().
  int64_t group_columns = 0;
  // Zero points to be folded in, one for each column; null: none.
  const int32_t* zero_points = nullptr;

  /// Bytes of an item's offset in a stream of strips.
  int OffsetBytes() const { return group_columns == 0 ? 2 : 4; }
  int ItemBytes() const { return OffsetBytes() + kQuad * strip_columns; }
  /// w − zb is a sum of at most three weights, and each item may be split.
  int MostItemsOfQuad() const { return zero_points == nullptr ? 2 : 6; }
};

inline int64_t Windows(const PackedWeights& weights, const ScheduleSpec& spec) {
  return (weights.quads() + spec.window_quads - 1) / spec.window_quads;
}
/// The most items that a group of a schedule for `spec` can have.
inline int MostInGroup(const PackedWeights& weights, const ScheduleSpec& spec) {
  const int64_t items = spec.MostItemsOfQuad() * std::min(weights.quads(), spec.window_quads);
  return static_cast<int>(std::clamp<int64_t>(items, 1, spec.largest_group));
}

/// Offsets in a window, in units of 4 bytes, are below this.
inline constexpr int64_t kMostWindowOffset = int64_t{1} << 16;

/// Sizes of a schedule. The cost model reads the sums over columns.
struct ScheduleStatistics {
  int64_t quads = 0;        // quads × columns; quads of zeros count too
  int64_t items = 0;        // × columns
  int64_t groups = 0;       // × columns
  int64_t order_bytes = 0;  // of its order: see OrderOf()
  ScheduleStatistics& operator+=(const ScheduleStatistics& other) {
    quads += other.quads;
    items += other.items;
    groups += other.groups;
    order_bytes += other.order_bytes;
    return *this;
  }
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_SCHEDULE_SPEC_H_
