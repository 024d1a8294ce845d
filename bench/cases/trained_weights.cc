#include "bench/cases/trained_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "support/random.h"

namespace intact::bench {
namespace {

constexpr double kLargestExponent = 8;
constexpr int kBisections = 12;
// Exponents are tried on the first output channels, about this many weights.
constexpr int64_t kTriedWeights = 1 << 19;
constexpr uint64_t kSeed = 1;
constexpr uint64_t kStream = 101;  // differs from the streams of the verifier's fills

/// The u and ln r of each weight. They are drawn once and serve every exponent.
class Draws {
 public:
  Draws(int64_t columns, int64_t depth) : depth_(static_cast<size_t>(depth)) {
    for (int64_t n = 0; n < columns; ++n) {
      support::Random random(kSeed, kStream, static_cast<uint64_t>(n));
      for (int64_t k = 0; k < depth; ++k) {
        u_.push_back(2 * random.Unit() - 1);
        double squares = 0;
        for (int i = 0; i < 3; ++i) {
          const double x = random.Gauss();
          squares += x * x;
        }
        log_r_.push_back(std::log(squares) / 2);
      }
    }
  }

  std::vector<int8_t> Weights(double exponent) const {
    std::vector<int8_t> weights;
    weights.reserve(u_.size());
    std::vector<double> column(depth_);
    for (size_t begin = 0; begin < u_.size(); begin += depth_) {
      double largest = std::numeric_limits<double>::min();
      for (size_t k = 0; k < depth_; ++k) {
        column[k] = u_[begin + k] * std::exp(exponent * log_r_[begin + k]);
        largest = std::max(largest, std::fabs(column[k]));
      }
      for (const double w : column) weights.push_back(static_cast<int8_t>(std::lround(127 * w / largest)));
    }
    return weights;
  }

 private:
  size_t depth_;
  std::vector<double> u_, log_r_;
};

/// Adjacent exponents.
struct Step {
  double below, above;
};

/// Adjacent exponents below and above the point from which `far` holds. It must hold for all larger ones.
template <class IsFar>
Step Bisect(const Draws& draws, int64_t channels, IsFar far) {
  Step step = {0, kLargestExponent};
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (step.below + step.above) / 2;
    (far(FiguresOf(draws.Weights(middle), channels)) ? step.above : step.below) = middle;
  }
  return step;
}

}  // namespace

WeightFigures FiguresOf(std::span<const int8_t> weights, int64_t channels) {
  constexpr int kBound = 128;  // 32767 / 255, and 32768 / 255
  int64_t pairs = 0, failing = 0;
  double sum = 0, squares = 0, fourth_powers = 0;
  for (size_t tap = 0; tap < weights.size(); tap += static_cast<size_t>(channels)) {
    const std::span<const int8_t> of_tap = weights.subspan(tap, static_cast<size_t>(channels));
    for (size_t c = 0; c < of_tap.size(); c += 2) {
      const int first = of_tap[c];
      const int second = c + 1 < of_tap.size() ? of_tap[c + 1] : 0;
      const int positive = std::max(first, 0) + std::max(second, 0);
      const int negative = std::min(first, 0) + std::min(second, 0);
      failing += positive > kBound || negative < -kBound ? 1 : 0;
      ++pairs;
    }
  }
  for (const int8_t w : weights) sum += w;
  const auto count = static_cast<double>(weights.size());
  for (const int8_t w : weights) {
    const double square = (w - sum / count) * (w - sum / count);
    squares += square;
    fourth_powers += square * square;
  }
  return {100.0 * static_cast<double>(failing) / static_cast<double>(pairs),
          count * fourth_powers / (squares * squares)};
}

std::vector<int8_t> DrawLike(const WeightFigures& figures, int64_t outputs, int64_t taps, int64_t channels) {
  const int64_t depth = taps * channels;
  const int64_t tried = std::clamp<int64_t>(kTriedWeights / depth, 1, outputs);
  const Draws draws(tried, depth);
  // The share is given in hundredths of a percent, and is a multiple of one pair.
  const int64_t pairs = tried * taps * ((channels + 1) / 2);
  const double slack = std::max(0.005, 50.0 / static_cast<double>(pairs));
  const double share = figures.failing_pairs_percent;
  const auto smallest = Bisect(draws, channels, [&](const WeightFigures& drawn) {
    return drawn.failing_pairs_percent <= share + slack;
  });
  const auto largest = Bisect(draws, channels, [&](const WeightFigures& drawn) {
    return drawn.failing_pairs_percent < share - slack;
  });
  const auto as_peaked =
      Bisect(draws, channels, [&](const WeightFigures& drawn) { return drawn.kurtosis >= figures.kurtosis; });
  const double exponent =
      std::clamp(as_peaked.above, smallest.above, std::max(smallest.above, largest.below));
  return tried == outputs ? draws.Weights(exponent) : Draws(outputs, depth).Weights(exponent);
}

}  // namespace intact::bench
