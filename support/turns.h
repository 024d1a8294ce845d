// Measures contenders in turns, so that changes of the clock rate or of the load affect all of them alike.
// Ratios can then be trusted even if the figures cannot.
#ifndef INTACT_SUPPORT_TURNS_H_
#define INTACT_SUPPORT_TURNS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace intact::support {

/// Takes one measurement and returns its figure, in any unit.
using Measurement = std::function<double()>;

/// The mean time of a call of `function` in microseconds, if `calls` calls follow each other.
template <class Function>
double MicrosecondsPerCall(const Function& function, int64_t calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) function();
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(calls);
}

inline constexpr int kMinTurns = 5;
inline constexpr int kMaxTurns = 201;

/// Calls each of `contenders` once per turn, in their order, until `budget` is spent: at least kMinTurns and
/// at most kMaxTurns turns. Returns the figures of each contender, turn by turn.
std::vector<std::vector<double>> TakeTurns(std::span<const Measurement> contenders,
                                           std::chrono::duration<double> budget);

/// The value at `share` of the sorted `values`: 0.5 gives the median. `values` must not be empty.
double Quantile(std::vector<double> values, double share);
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }
/// The median of the ratios figures[i]/over[i], with the figures of two contenders in turn i.
double MedianRatio(const std::vector<double>& figures, const std::vector<double>& over);
/// The interquartile range over the median.
double Spread(const std::vector<double>& values);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_TURNS_H_
