// Schedules that their first use finds. To find a schedule takes most of the time to create a plan, and a plan may
// never run the number of rows that needs it.
//
//   LinearWeights::MakeSchedule() ─► LazySchedule ─► Find(), before the first run that reads the schedule
//
// The canonical panels stay in memory until no schedule of their weights is left to find.
#ifndef INTACT_KERNELS_WEIGHTS_LAZY_SCHEDULE_H_
#define INTACT_KERNELS_WEIGHTS_LAZY_SCHEDULE_H_

#include <atomic>
#include <cassert>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "core/result.h"
#include "kernels/weights/pack.h"
#include "kernels/weights/schedule.h"
#include "kernels/weights/schedule_spec.h"

namespace intact::kernels {

class LazySchedule {
 public:
  virtual ~LazySchedule() = default;
  LazySchedule(const LazySchedule&) = delete;
  LazySchedule& operator=(const LazySchedule&) = delete;
  const ScheduleSpec& spec() const { return spec_; }
  /// Finds the schedule, unless that is done, on `threads` threads of the pool. Threads that call this at the same time
  /// share the work. Thread-safe. OUT_OF_MEMORY; a later call may succeed.
  virtual Error Find(int threads) const = 0;
  bool is_found() const { return is_found_.load(std::memory_order_acquire); }
  /// The found schedule's; before, estimates for all columns.
  virtual ScheduleStatistics statistics() const = 0;
  /// Adds the weights to the panels of `packed`. The panels hold zeros before.
  virtual void AddTo(PackedWeights* packed) const noexcept = 0;

 protected:
  explicit LazySchedule(const ScheduleSpec& spec) : spec_(spec) {}

  ScheduleSpec spec_;
  mutable std::atomic<bool> is_found_ = false;
};

/// `Made` is ScheduledWeights or ScheduledVectors.
template <class Made>
class LazyScheduleOf final : public LazySchedule {
 public:
  /// To be found in `weights`, which must stay until then. `estimate`: of a sample of the columns. `on_found` is called
  /// once, by the thread that has found the schedule.
  LazyScheduleOf(const PackedWeights& weights, const ScheduleSpec& spec, const ScheduleStatistics& estimate,
                 std::function<void()> on_found);
  /// Found.
  LazyScheduleOf(const ScheduleSpec& spec, Made made)
      : LazySchedule(spec), estimate_(made.statistics()), made_(std::move(made)) {
    is_found_ = true;
  }

  Error Find(int threads) const override;
  /// The schedule, after Find().
  const Made& made() const {
    assert(is_found());
    return made_;
  }
  Made* mutable_made() { return &made_; }
  /// What engines are chosen by. Unlike statistics(), it never changes.
  const ScheduleStatistics& estimate() const { return estimate_; }
  ScheduleStatistics statistics() const override { return is_found() ? made_.statistics() : estimate_; }
  /// Bytes of the schedule that was found; else 0.
  int64_t bytes() const { return is_found() ? made_.bytes() : 0; }
  void AddTo(PackedWeights* packed) const noexcept override;

 private:
  const PackedWeights* weights_ = nullptr;  // null if the schedule was never to be found
  ScheduleStatistics estimate_;
  std::function<void()> on_found_;
  /// One search. The threads that call Find() during the search take part in it.
  struct Search {
    explicit Search(int64_t count) : pieces(count) {}
    Pieces pieces;
    int threads = 0;  // that still work
    bool is_over = false, has_failed = false;
  };
  /// Takes part in a search; false if memory ran out.
  bool FindOnThisThread() const noexcept;
  std::shared_ptr<Search> Join() const noexcept;  // needs mutex_, as AddPart() does
  bool BuildPart(Pieces* pieces, typename Made::Part* part) const noexcept;
  bool AddPart(typename Made::Part part) const noexcept;

  mutable std::mutex mutex_;
  mutable std::condition_variable over_;    // of a search
  mutable std::shared_ptr<Search> search_;  // null: none is under way
  mutable Made made_;                       // written before is_found_
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_LAZY_SCHEDULE_H_
