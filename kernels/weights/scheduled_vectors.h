// Scheduled weights (schedule.h) with strips as wide as vectors: columns fill the lanes, and rows of A are
// broadcast, as with the canonical panels. A group's sums must fit in int16 in all columns of a vector, so
// groups are smaller than in narrow strips. But neither A nor C is transposed, and no lane is idle if rows
// are few. So this is the schedule for few rows.
//
//   strip    [window 0][window 1] …
//   window   [counts: kMaxGroup × u16, number of groups of 8, 7, … 1 items][u32 where the weights begin]
//            [u16 for each item: the index of its quad in A's row] … [weights of each item: a vector]
//
// Windows and their weights are aligned to vectors. A window's quads stay in L1 for all rows of a tile.
//
// For a narrow panel (pack.h), items hold only the panel's columns and are not aligned. The kernel reads a
// whole vector at each item, so zeros follow the last item.
#ifndef INTACT_KERNELS_WEIGHTS_SCHEDULED_VECTORS_H_
#define INTACT_KERNELS_WEIGHTS_SCHEDULED_VECTORS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/weights/pack.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// The header of a window.
struct VectorWindowHeader {
  std::array<uint16_t, kMaxGroup> counts;
  uint32_t weights_begin;  // in bytes from the header; quads' numbers follow the header
};

/// The number of quads that u16 numbers can address.
inline constexpr int64_t kMaxVectorQuads = int64_t{1} << 16;

class ScheduledVectors {
 public:
  /// The spec of a schedule for vectors of `lanes` columns and activations in [0, amax].
  static ScheduleSpec SpecFor(const PackedWeights& weights, int lanes, int amax);

  /// At most kMaxVectorQuads quads. See ScheduledWeights::Build().
  Error Build(const PackedWeights& weights, const ScheduleSpec& spec, std::span<const uint8_t> order = {}) {
    return BuildAlone(weights, spec, order, this);
  }
  /// See ScheduledWeights::Begin(). Pieces are strips.
  void Begin(const PackedWeights& weights, const ScheduleSpec& spec);
  int64_t PieceCount() const { return std::ssize(strips_); }
  struct Part {
    ScheduleStatistics statistics;
    int64_t bytes = 0;
  };
  Error BuildPieces(const PackedWeights& weights, Pieces* pieces, std::span<const uint8_t> order, Part* part);
  void Add(const Part& part);

  const ScheduleStatistics& statistics() const { return statistics_; }
  int64_t windows() const { return windows_; }
  int64_t bytes() const { return bytes_; }
  void AddTo(PackedWeights* packed) const noexcept;
  /// The strip that begins with `column`.
  const uint8_t* Strip(int64_t column) const { return strips_[static_cast<size_t>(column / lanes_)].data(); }

 private:
  int item_bytes() const { return item_columns_ * kQuad; }
  template <int kColumns>
  Error BuildStrips(const PackedWeights& weights, Pieces* pieces, std::span<const uint8_t> order, Part* part);

  ScheduleSpec spec_;
  int lanes_ = 1;
  int item_columns_ = 1;
  ScheduleStatistics statistics_;
  int64_t windows_ = 0;
  int64_t bytes_ = 0;
  std::vector<AlignedBuffer<uint8_t>> strips_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_SCHEDULED_VECTORS_H_
