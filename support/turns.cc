#include "support/turns.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>

namespace intact::support {

std::vector<std::vector<double>> TakeTurns(std::span<const Measurement> contenders,
                                           std::chrono::duration<double> budget) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> figures(contenders.size());
  const auto start = Clock::now();
  for (int turn = 0; turn < kMaxTurns && (turn < kMinTurns || Clock::now() - start < budget); ++turn) {
    for (size_t i = 0; i < contenders.size(); ++i) figures[i].push_back(contenders[i]());
  }
  return figures;
}

double Quantile(std::vector<double> values, double share) {
  const auto at = values.begin() + std::lround(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, at);
  return *at;
}

double MedianRatio(const std::vector<double>& figures, const std::vector<double>& over) {
  std::vector<double> ratios;
  std::ranges::transform(figures, over, std::back_inserter(ratios), std::divides());
  return Median(std::move(ratios));
}

double Spread(const std::vector<double>& values) {
  return (Quantile(values, 0.75) - Quantile(values, 0.25)) / Median(values);
}

}  // namespace intact::support
