// Choosing by stopwatch: what runs of a GEMM and of a convolution are timed by. All candidates give the same
// bytes, so which one is chosen is a matter of time alone.
//
// Candidates take turns until the budget is spent, and medians count. The model's choice stays unless another
// takes clearly less time, and does so in its best turn as well: what disturbs a machine may come in the
// turns of one candidate alone.
#ifndef INTACT_KERNELS_PLANS_TUNING_H_
#define INTACT_KERNELS_PLANS_TUNING_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/problem/linear_problem.h"
#include "kernels/runtime/aligned_buffer.h"

namespace intact::kernels {

using TuningBudget = std::chrono::duration<double>;

/// What tuning has found.
struct Tuned {
  std::string kernel;        // the fastest
  double microseconds = 0;   // of a run on it, the median; on one thread
  std::string model_kernel;  // that which the cost model chooses
  double model_microseconds = 0;
  int candidates = 0;
};

/// Short runs are timed together, so that the clock's own time does not count.
inline constexpr double kLeastTimedSeconds = 20e-6;

/// The model's choice stays where another is hardly faster: that may be chance.
inline constexpr double kLeastGain = 0.97;

/// Seconds that `run()` takes, the mean of `runs`.
template <class Run>
double TimeRuns(int64_t runs, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (int64_t i = 0; i < runs; ++i) run();
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(runs);
}

inline double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Seconds of a run, over all turns.
struct TurnTimes {
  double median = 0, least = 0;
};

/// The times of each contender in turns, in which one goes after the other: `run(i)` runs number i once. Each
/// runs four times at least.
template <class Run>
std::vector<TurnTimes> TimeInTurns(size_t contenders, TuningBudget budget, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](size_t contender, int64_t runs) { return TimeRuns(runs, [&] { run(contender); }); };
  const Clock::time_point begin = Clock::now();
  std::vector<std::vector<double>> seconds(contenders);
  std::vector<int64_t> runs;
  for (size_t i = 0; i < contenders; ++i) {
    const double first = std::min(time(i, 1), time(i, 1));
    runs.push_back(1 + static_cast<int64_t>(kLeastTimedSeconds / std::max(first, 1e-9)));
  }
  do {
    for (size_t i = 0; i < contenders; ++i) {
      run(i);  // brings its weights back, which the others' may have displaced
      seconds[i].push_back(time(i, runs[i]));
    }
  } while (Clock::now() - begin < budget);
  std::vector<TurnTimes> times;
  times.reserve(contenders);
  for (std::vector<double>& of_one : seconds) {
    const double least = *std::min_element(of_one.begin(), of_one.end());
    times.push_back({MedianOf(std::move(of_one)), least});
  }
  return times;
}

/// Which of the contenders to choose, where `model` is the cost model's.
inline size_t ChooseByTime(const std::vector<TurnTimes>& times, size_t model) {
  size_t chosen = model;
  for (size_t i = 0; i < times.size(); ++i) {
    const bool gains = times[i].median <= kLeastGain * times[model].median &&
                       times[i].least <= kLeastGain * times[model].least;
    if (gains && times[i].median < times[chosen].median) chosen = i;
  }
  return chosen;
}

/// What runs read and write while they are timed: activations within the activation range, as callers have them,
/// since others run more slowly.
struct TimedMemory {
  AlignedBuffer<uint8_t> a, c, residual, scratch;  // no residual where the problem has none

  /// `inputs` and `outputs`: elements. Errors, here and below: OUT_OF_MEMORY.
  Error Allocate(const LinearProblem& problem, int64_t inputs, int64_t outputs);
  /// Has `scratch` hold so many bytes or more.
  Error MakeRoom(int64_t scratch_bytes);
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_TUNING_H_
