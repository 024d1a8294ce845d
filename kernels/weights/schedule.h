// The schedule: how exact sums are computed at the speed of VPMADDUBSW, without VNNI.
//
// VPMADDUBSW adds two u8×s8 products into an int16 lane, saturating. For all activations in [0, amax], an
// int16 lane holds a sum exactly if its positive weights add up to at most 32767/amax and its negative
// weights to at most 32768/amax: 128 for full-range u8. Weights within these bounds are called light. The
// bounds hold for a pair, and for a whole group of quads that are added in int16 (VPADDW) before one widening
// (VPMADDWD by ones, VPADDD). A group costs one widening instead of one per quad. So light weights run faster
// than in the saturating kernels, and exactly.
//
// A quad that is too heavy for any group is split into two items that are light enough. The weights of the
// items add up to the weights of the quad. So every weight matrix becomes a list of groups of items. One loop
// runs all groups. The result is exact for any weights.
//
// Weights are broadcast, and rows of activations fill the vector's lanes. So the weights of a group must be
// light only in the one to four columns of their `strip`. For few rows, columns fill the lanes
// (scheduled_vectors.h). The weights of a group must then be light in all columns of a vector. Integer
// addition commutes, so each strip has its own order of depths: a bin packing, first fit, heaviest item
// first. This packing takes 15 to 25 ns per item of one or two columns: most of the time to create a plan. So
// files of plans keep the order (pack_file.h).
//
//   window       depths whose packed rows of A stay in L1; every strip lies in one window
//   strip        [counts: kMaxGroup × u16, number of groups of 8, 7, … 1 items][items, group after group]
//   item         [u16 offset of the quad in A's window, in 4 bytes][strip_columns × 4 weights]
//
//   A window     [quads][rows of a tile][4] u8; a register block reads some of the rows of an item's quad
//
// A planar band (planar_band.h) may take the place of A's windows. The offsets of the band's quads depend on
// the input's extents, and may be large. So an item for a band has a u32 in place of the u16. Build() writes
// the number of the item's quad there. For an input of given extents, Relocate() replaces numbers by offsets
// in bytes.
//
// Zero points zb of weights w may be folded in. A difference w − zb takes nine bits with its sign, so one
// weight may need several items. With usual zero points, near the middle of the weights, one item suffices,
// and w − zb is lighter than w. Folding saves the sums of A's rows (row_sums.h). These sums cannot be
// computed from a planar band.
#ifndef INTACT_KERNELS_WEIGHTS_SCHEDULE_H_
#define INTACT_KERNELS_WEIGHTS_SCHEDULE_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/problem/access.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/weights/pack.h"
#include "kernels/weights/schedule_spec.h"

namespace intact::kernels {

/// Estimates a schedule's statistics from a sample of the columns; nothing if memory ran out.
std::optional<ScheduleStatistics> EstimateSchedule(const PackedWeights& weights,
                                                   const ScheduleSpec& spec) noexcept;

/// A lower bound of EstimateSchedule(), found in a fraction of its time: an item for each quad that has
/// weights, in groups of the largest size. If zero points are folded in, the bound has no items.
ScheduleStatistics LeastSchedule(const PackedWeights& weights, const ScheduleSpec& spec) noexcept;

/// The order of a schedule: the order of each strip (StripScheduler::AppendOrder()), in the order in which
/// ScheduledWeights or ScheduledVectors have them. Restoring a schedule from its order and the weights takes
/// a fraction of the time of finding the schedule. Nothing if memory ran out.
std::optional<std::vector<uint8_t>> OrderOf(const PackedWeights& weights, const ScheduleSpec& spec) noexcept;
/// INVALID_ARGUMENT if a part of an order is left.
Error CheckOrderEnd(std::span<const uint8_t> order);
Error NoMemoryForSchedule();

/// Numbers pieces of a schedule for the threads that build it.
class Pieces {
 public:
  explicit Pieces(int64_t count) : count_(count) {}
  /// The number of a piece that no thread has; count() or more: none is left.
  int64_t Take() { return next_.fetch_add(1, std::memory_order_relaxed); }
  int64_t count() const { return count_; }

 private:
  int64_t count_;
  std::atomic<int64_t> next_ = 0;
};

/// Builds `schedule`, a ScheduledWeights or ScheduledVectors, on one thread: see ScheduledWeights::Build().
template <class Schedule>
Error BuildAlone(const PackedWeights& weights, const ScheduleSpec& spec, std::span<const uint8_t> order,
                 Schedule* schedule) {
  schedule->Begin(weights, spec);
  Pieces pieces(schedule->PieceCount());
  typename Schedule::Part part;
  RETURN_IF_ERROR(schedule->BuildPieces(weights, &pieces, order, &part));
  schedule->Add(std::move(part));
  return {};
}

/// Scheduled weights: strips in the order in which the kernel runs them.
class ScheduledWeights {
  struct Block {  // memory for the strips of several whole panels
    AlignedBuffer<uint8_t> data;
    size_t used = 0;  // bytes
  };

 public:
  /// `order`: empty, or an order of OrderOf(). Build() checks the order. Errors: OUT_OF_MEMORY,
  /// INVALID_ARGUMENT (the order is not one of these weights). Throws std::bad_alloc.
  Error Build(const PackedWeights& weights, const ScheduleSpec& spec, std::span<const uint8_t> order = {}) {
    return BuildAlone(weights, spec, order, this);
  }

  /// Build() by several threads: one calls Begin(), each of them BuildPieces(), and one Add() for each part. Pieces are
  /// the strips of a panel in a window. Throws std::bad_alloc.
  void Begin(const PackedWeights& weights, const ScheduleSpec& spec);
  int64_t PieceCount() const { return windows_ * panels_; }
  /// What one thread has built.
  struct Part {
    std::vector<Block> blocks;
    ScheduleStatistics statistics;
    int64_t bytes = 0;
  };
  Error BuildPieces(const PackedWeights& weights, Pieces* pieces, std::span<const uint8_t> order, Part* part);
  void Add(Part part);

  /// Copies the strips of `other`; false if memory ran out.
  [[nodiscard]] bool CopyFrom(const ScheduledWeights& other) noexcept;
  /// Not for schedules of planar bands.
  void AddTo(PackedWeights* packed) const noexcept;
  /// Replaces the numbers of quads by offsets in a planar band.
  void Relocate(const PlanarAccess& planar) noexcept;

  const ScheduleSpec& spec() const { return spec_; }
  const ScheduleStatistics& statistics() const { return statistics_; }
  int64_t windows() const { return windows_; }
  int64_t bytes() const { return bytes_; }
  /// The first strip of panel `panel` in `window`; its 16/strip_columns strips are adjacent.
  const uint8_t* Strips(int64_t window, int64_t panel) const {
    return strips_[static_cast<size_t>(window * panels_ + panel)];
  }

 private:
  template <int kColumns>
  Error BuildStrips(const PackedWeights& weights, Pieces* pieces, std::span<const uint8_t> order, Part* part);
  /// Calls visit(window, panel, first column in the panel, item).
  template <class Visit>
  void ForEachItem(const Visit& visit) const noexcept;

  ScheduleSpec spec_;
  ScheduleStatistics statistics_;
  int64_t windows_ = 0, panels_ = 0, quads_ = 0;
  int64_t bytes_ = 0;
  std::vector<Block> blocks_;
  std::vector<const uint8_t*> strips_;  // [window][panel], in blocks_
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_SCHEDULE_H_
