// Schedules that a plan has estimated or made for its weights. Schedules are slow to find, so a file keeps
// estimates and orders. Strips and engines are chosen by estimates. Schedules are restored from orders.
//
//   create   Estimate(), Note() ─► records ─► file: key, estimate, order
//   load     file ─► Hold() ─► Estimate() and HeldOrder() find their keys there
//
// Restoring a schedule checks its order. Estimates are not checked: they only choose kernels.
//
// A schedule depends on the ISA and on cache sizes. If a file has no record with the right key, the schedule
// is found again.
#ifndef INTACT_KERNELS_WEIGHTS_SCHEDULE_RECORDS_H_
#define INTACT_KERNELS_WEIGHTS_SCHEDULE_RECORDS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/weights/pack.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

class LazySchedule;

/// What a schedule depends on, in addition to the weights and their zero points.
struct ScheduleKey {
  int32_t strip_columns = 0, amax = 0, largest_group = 0;
  uint32_t flags = 0;  // bit 0: ScheduleSpec::saturates; bit 1: zero points are folded in
  int64_t window_quads = 0, group_columns = 0;

  static ScheduleKey Of(const ScheduleSpec& spec) {
    const uint32_t flags = (spec.saturates ? 1u : 0u) | (spec.zero_points == nullptr ? 0u : 2u);
    return {spec.strip_columns, spec.amax, spec.largest_group, flags, spec.window_quads, spec.group_columns};
  }
  /// `zero_points` of the weights: used if they are folded in.
  ScheduleSpec ToSpec(const int32_t* zero_points) const {
    ScheduleSpec spec{strip_columns, 0, window_quads, amax, largest_group, (flags & 1) != 0, group_columns};
    if ((flags & 2) != 0) spec.zero_points = zero_points;
    return spec;
  }
  bool operator==(const ScheduleKey&) const = default;
};

struct ScheduleRecord {
  ScheduleKey key;
  ScheduleStatistics estimate;                          // quads = 0: not estimated
  std::vector<std::weak_ptr<const LazySchedule>> made;  // schedules that plans use, or used
  int64_t order_bytes = 0;                              // in a file; 0: the schedule was only estimated
  std::span<const uint8_t> order;                       // in a file: order_bytes bytes; else empty

  /// A schedule that a plan uses; else null.
  std::shared_ptr<const LazySchedule> Used() const {
    for (const auto& schedule : made) {
      if (auto used = schedule.lock(); used != nullptr) return used;
    }
    return nullptr;
  }
};

/// A record in a file.
struct SavedSchedule {
  // Whose weights: of a convolution, the phase, its layout (ConvLayout::Variant) and the unit.
  int64_t phase = 0;
  std::string layout;
  int64_t unit = 0;
  ScheduleRecord record;
};

/// The records of one LinearWeights. Thread-safe, except Hold() and ForgetHeld().
class ScheduleRecords {
 public:
  /// EstimateSchedule(), computed once. Other calls wait while it is computed.
  std::optional<ScheduleStatistics> Estimate(const PackedWeights& weights, const ScheduleSpec& spec);
  /// The order of a held record, or nothing.
  std::span<const uint8_t> HeldOrder(const ScheduleKey& key) const;
  /// Records that a plan uses `schedule`.
  void Note(const ScheduleKey& key, const std::shared_ptr<const LazySchedule>& schedule);
  /// Whether a plan uses a schedule that is not found yet.
  bool HasUnfound() const;

  /// Records of a file. Their orders must stay in memory until ForgetHeld().
  void Hold(const ScheduleRecord& record) { held_.push_back(record); }
  void ForgetHeld() { held_.clear(); }

  /// The records of what was estimated or made, oldest first, without orders.
  std::vector<ScheduleRecord> records() const;

 private:
  ScheduleRecord* FindOrAdd(const ScheduleKey& key);  // needs mutex_

  mutable std::mutex mutex_;
  std::vector<ScheduleRecord> records_, held_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_SCHEDULE_RECORDS_H_
