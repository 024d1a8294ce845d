#include "kernels/weights/lazy_schedule.h"

#include <algorithm>
#include <new>
#include <utility>

#include "kernels/weights/schedule.h"
#include "kernels/weights/scheduled_vectors.h"

namespace intact::kernels {
namespace {

// `sample` for all quads of the panels.
ScheduleStatistics ForAll(const ScheduleStatistics& sample, const PackedWeights& weights) {
  ScheduleStatistics all;
  all.quads = weights.panels() * kPanelColumns * weights.quads();
  const double share =
      static_cast<double>(all.quads) / static_cast<double>(std::max<int64_t>(sample.quads, 1));
  all.items = static_cast<int64_t>(static_cast<double>(sample.items) * share);
  all.groups = static_cast<int64_t>(static_cast<double>(sample.groups) * share);
  return all;
}

}  // namespace

template <class Made>
LazyScheduleOf<Made>::LazyScheduleOf(const PackedWeights& weights, const ScheduleSpec& spec,
                                     const ScheduleStatistics& estimate, std::function<void()> on_found)
    : LazySchedule(spec),
      weights_(&weights),
      estimate_(ForAll(estimate, weights)),
      on_found_(std::move(on_found)) {}

template <class Made>
Error LazyScheduleOf<Made>::Find() const {
  if (is_found()) return {};
  {
    const std::lock_guard lock(mutex_);
    if (is_found()) return {};
    try {
      Made made;
      RETURN_IF_ERROR(made.Build(*weights_, spec_));
      made_ = std::move(made);
    } catch (const std::bad_alloc&) {
      return NoMemoryForSchedule();
    }
    is_found_.store(true, std::memory_order_release);
  }
  on_found_();
  return {};
}

template <class Made>
void LazyScheduleOf<Made>::AddTo(PackedWeights* packed) const noexcept {
  const std::lock_guard lock(mutex_);
  if (is_found()) return made_.AddTo(packed);
  std::copy_n(weights_->data, packed->bytes(), packed->owned.data());
}

template class LazyScheduleOf<ScheduledWeights>;
template class LazyScheduleOf<ScheduledVectors>;

}  // namespace intact::kernels
