#include "kernels/weights/lazy_schedule.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "kernels/runtime/threads.h"
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
Error LazyScheduleOf<Made>::Find(int threads) const {
  if (is_found()) return {};
  std::atomic<bool> has_failed = false;
  const auto help = [&](int /*part*/, int /*thread*/) {
    if (!has_failed && !FindOnThisThread()) has_failed = true;
  };
  if (threads > 1) RunParts({threads, threads}, help);
  return FindOnThisThread() ? Error() : NoMemoryForSchedule();
}

template <class Made>
bool LazyScheduleOf<Made>::FindOnThisThread() const noexcept {
  std::unique_lock lock(mutex_);
  if (is_found()) return true;
  const std::shared_ptr<Search> search = Join();
  if (search == nullptr) return false;
  lock.unlock();
  typename Made::Part part;
  const bool has_built = BuildPart(&search->pieces, &part);
  lock.lock();
  if (!has_built || !AddPart(std::move(part))) search->has_failed = true;
  if (--search->threads > 0) {
    over_.wait(lock, [&] { return search->is_over; });
  } else {
    search->is_over = true;
    search_ = nullptr;
    if (search->has_failed) {
      made_ = Made();
    } else {
      is_found_.store(true, std::memory_order_release);
    }
    lock.unlock();
    over_.notify_all();
    if (!search->has_failed) on_found_();
  }
  return !search->has_failed;
}

// The search that is under way, or a new one; null if memory ran out.
template <class Made>
std::shared_ptr<typename LazyScheduleOf<Made>::Search> LazyScheduleOf<Made>::Join() const noexcept {
  try {
    if (search_ == nullptr) {
      made_.Begin(*weights_, spec_);
      search_ = std::make_shared<Search>(made_.PieceCount());
    }
    ++search_->threads;
    return search_;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

template <class Made>
bool LazyScheduleOf<Made>::BuildPart(Pieces* pieces, typename Made::Part* part) const noexcept {
  try {
    return made_.BuildPieces(*weights_, pieces, {}, part).ok();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

template <class Made>
bool LazyScheduleOf<Made>::AddPart(typename Made::Part part) const noexcept {
  try {
    made_.Add(std::move(part));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

template <class Made>
void LazyScheduleOf<Made>::AddTo(PackedWeights* packed) const noexcept {
  {
    const std::lock_guard lock(mutex_);  // until the schedule is found, its weights stay
    if (!is_found()) {
      std::copy_n(weights_->data, packed->bytes(), packed->owned.data());
      return;
    }
  }
  made_.AddTo(packed);
}

template class LazyScheduleOf<ScheduledWeights>;
template class LazyScheduleOf<ScheduledVectors>;

}  // namespace intact::kernels
