// Tuning: timing the ways to compute a GEMM or a convolution. All candidates give the same bytes, so only
// time decides.
//
// Candidates take turns until the budget is spent, and medians are compared. The model's choice stays unless
// another candidate takes clearly less time, both in the median and in the best turn. Reason: a disturbance
// of the machine may affect only one candidate's turns.
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

/// The result of tuning.
struct Tuned {
  std::string kernel;        // the fastest
  double microseconds = 0;   // median of its runs, on one thread
  std::string model_kernel;  // the cost model's choice
  double model_microseconds = 0;
  int candidates = 0;
};

/// Shorter runs are timed together, so that the clock's own time does not count.
inline constexpr double kLeastTimedSeconds = 20e-6;

/// A candidate replaces the model's choice if it takes at most this share of the model's time. A smaller gain
/// may be chance.
inline constexpr double kLeastGain = 0.97;

/// Seconds that `run()` takes: the mean of `runs` calls.
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

/// Median and minimum over all turns, in seconds per run.
struct TurnTimes {
  double median = 0, least = 0;
};

/// Times the candidates in turns: `run(i)` runs candidate i once. Each runs at least four times.
template <class Run>
std::vector<TurnTimes> TimeInTurns(size_t candidates, TuningBudget budget, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](size_t candidate, int64_t runs) { return TimeRuns(runs, [&] { run(candidate); }); };
  const Clock::time_point begin = Clock::now();
  std::vector<std::vector<double>> seconds(candidates);
  std::vector<int64_t> runs;
  for (size_t i = 0; i < candidates; ++i) {
    const double first = std::min(time(i, 1), time(i, 1));
    runs.push_back(1 + static_cast<int64_t>(kLeastTimedSeconds / std::max(first, 1e-9)));
  }
  do {
    for (size_t i = 0; i < candidates; ++i) {
      run(i);  // brings its weights back into the caches
      seconds[i].push_back(time(i, runs[i]));
    }
  } while (Clock::now() - begin < budget);
  std::vector<TurnTimes> times;
  times.reserve(candidates);
  for (std::vector<double>& of_one : seconds) {
    const double least = *std::min_element(of_one.begin(), of_one.end());
    times.push_back({MedianOf(std::move(of_one)), least});
  }
  return times;
}

/// The number of the candidate to choose; `model` is the cost model's choice.
inline size_t ChooseByTime(const std::vector<TurnTimes>& times, size_t model) {
  size_t chosen = model;
  for (size_t i = 0; i < times.size(); ++i) {
    const bool gains = times[i].median <= kLeastGain * times[model].median &&
                       times[i].least <= kLeastGain * times[model].least;
    if (gains && times[i].median < times[chosen].median) chosen = i;
  }
  return chosen;
}

/// Memory of runs that are timed. Activations are within the activation range, like the activations of a
/// caller. Runs with other activations would be slower.
struct TimedMemory {
  AlignedBuffer<uint8_t> a, c, residual, scratch;  // residual is empty if the problem has none

  /// `inputs` and `outputs`: numbers of elements. Errors, here and below: OUT_OF_MEMORY.
  Error Allocate(const LinearProblem& problem, int64_t inputs, int64_t outputs);
  /// Makes `scratch` at least `scratch_bytes` large.
  Error MakeRoom(int64_t scratch_bytes);
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_TUNING_H_
