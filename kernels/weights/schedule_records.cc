#include "kernels/weights/schedule_records.h"

#include <algorithm>

#include "kernels/weights/lazy_schedule.h"

namespace intact::kernels {

ScheduleRecord* ScheduleRecords::FindOrAdd(const ScheduleKey& key) {
  const auto found = std::ranges::find(records_, key, &ScheduleRecord::key);
  return found != records_.end() ? &*found : &records_.emplace_back(ScheduleRecord{key, {}, {}, 0, {}});
}

std::optional<ScheduleStatistics> ScheduleRecords::Estimate(const PackedWeights& weights,
                                                            const ScheduleSpec& spec) {
  const ScheduleKey key = ScheduleKey::Of(spec);
  const std::lock_guard lock(mutex_);
  ScheduleRecord* const record = FindOrAdd(key);
  if (record->estimate.quads != 0) return record->estimate;
  for (const ScheduleRecord& held : held_) {
    if (held.key == key) record->estimate = held.estimate;
  }
  if (record->estimate.quads != 0) return record->estimate;
  const std::optional<ScheduleStatistics> estimate = EstimateSchedule(weights, spec);
  if (estimate) record->estimate = *estimate;
  return estimate;
}

std::span<const uint8_t> ScheduleRecords::HeldOrder(const ScheduleKey& key) const {
  for (const ScheduleRecord& held : held_) {
    if (held.key == key && !held.order.empty()) return held.order;
  }
  return {};
}

void ScheduleRecords::Note(const ScheduleKey& key, const std::shared_ptr<const LazySchedule>& schedule) {
  const std::lock_guard lock(mutex_);
  auto& made = FindOrAdd(key)->made;
  std::erase_if(made, [](const auto& other) { return other.expired(); });
  made.push_back(schedule);
}

bool ScheduleRecords::HasUnfound() const {
  const std::lock_guard lock(mutex_);
  const auto is_unfound = [](const std::weak_ptr<const LazySchedule>& made) {
    const std::shared_ptr<const LazySchedule> used = made.lock();
    return used != nullptr && !used->is_found();
  };
  return std::ranges::any_of(
      records_, [&](const ScheduleRecord& record) { return std::ranges::any_of(record.made, is_unfound); });
}

std::vector<ScheduleRecord> ScheduleRecords::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

}  // namespace intact::kernels
