#include "kernels/certificate.h"

#include <algorithm>
#include <limits>

namespace intact::kernels {
namespace {

constexpr int32_t kInt16Min = std::numeric_limits<int16_t>::min();
constexpr int32_t kInt16Max = std::numeric_limits<int16_t>::max();

struct Interval {
  int64_t low = 0, high = 0;
  bool FitsInt16() const { return low >= kInt16Min && high <= kInt16Max; }
  Interval operator+(const Interval& other) const { return {low + other.low, high + other.high}; }
};

// The products that the weight w can make.
Interval Products(int w, ActivationRange range) {
  return {w * (w < 0 ? range.high : range.low), w * (w < 0 ? range.low : range.high)};
}

// The sums that the weights w0 and w1 can make.
Interval PairInterval(int w0, int w1, ActivationRange range) {
  return Products(w0, range) + Products(w1, range);
}

// Depth is padded with zeros, so a pair may always be read whole.
Interval PairAt(const PackedWeights& weights, int64_t k, int64_t n, ActivationRange range) {
  return PairInterval(weights.At(k, n), weights.At(k + 1, n), range);
}

FailingPair Witness(const PackedWeights& weights, int64_t k, int64_t n, ActivationRange range) {
  FailingPair pair;
  pair.k = k;
  pair.n = n;
  pair.w0 = weights.At(k, n);
  pair.w1 = weights.At(k + 1, n);
  const bool is_high = PairAt(weights, k, n, range).high > kInt16Max;
  const auto activation = [&](int w) {
    return static_cast<uint8_t>((w > 0) == is_high ? range.high : range.low);
  };
  pair.a0 = activation(pair.w0);
  pair.a1 = activation(pair.w1);
  pair.sum = pair.a0 * pair.w0 + pair.a1 * pair.w1;
  return pair;
}

// What clamp(p) + z can be, given the intervals of p = Σ a·b, of z = −zb·Σ a and of p + z: the clamp adds no
// more than p falls short of int16 and takes no more than p exceeds it.
Interval Clamped(Interval products, Interval sum, Interval zeros) {
  const int64_t added = std::max<int64_t>(kInt16Min - products.low, 0);
  const int64_t taken = std::max<int64_t>(products.high - kInt16Max, 0);
  const auto clamp = [](int64_t p) { return std::clamp<int64_t>(p, kInt16Min, kInt16Max); };
  return {std::max(sum.low - taken, clamp(products.low) + zeros.low),
          std::min(sum.high + added, clamp(products.high) + zeros.high)};
}

// Longest run, from every quad of the lane on, that stays within int16; the smallest of them. With low > 0 a
// quad may push one way only and make room for its neighbour: it then counts from zero, so that any part of a
// run fits if the run does. Two pointers: a run that ends at `end` is no shorter than the one before less its
// first quad.
int64_t SafeDepthOfLane(const PackedWeights& weights, int64_t column, int64_t lane, ActivationRange range) {
  const int64_t quads = weights.quads();
  const auto at = [&](int64_t quad) {
    const Interval pair = PairAt(weights, quad * kQuad + lane * 2, column, range);
    return Interval{std::min<int64_t>(pair.low, 0), std::max<int64_t>(pair.high, 0)};
  };
  int64_t shortest = quads;
  int64_t end = 0;
  Interval run;
  for (int64_t begin = 0; begin < quads; ++begin) {
    while (end < quads && (run + at(end)).FitsInt16()) run = run + at(end++);
    if (end == quads) break;  // later runs end with the depth, not for want of room
    shortest = std::min(shortest, end - begin);
    if (shortest == 0) break;
    const Interval first = at(begin);
    run = {run.low - first.low, run.high - first.high};
  }
  return shortest;
}

}  // namespace

Certificate Certify(const PackedWeights& weights, ActivationRange range) {
  Certificate certificate;
  certificate.range = range;
  certificate.pairs = (weights.k + 1) / 2 * weights.n;
  certificate.panels.resize(static_cast<size_t>(weights.panels()));
  for (PanelCertificate& panel : certificate.panels) panel.safe_depth_quads = weights.quads();
  for (int64_t n = 0; n < weights.n; ++n) {
    PanelCertificate& panel = certificate.panels[static_cast<size_t>(n / kPanelColumns)];
    int64_t failing = 0;
    for (int64_t k = 0; k < weights.k; k += 2) failing += PairAt(weights, k, n, range).FitsInt16() ? 0 : 1;
    panel.failing_pairs += failing;
    for (int64_t lane = 0; lane < 2; ++lane) {
      panel.safe_depth_quads = std::min(panel.safe_depth_quads, SafeDepthOfLane(weights, n, lane, range));
    }
    certificate.failing_pairs += failing;
    if (failing > certificate.worst_column_failing_pairs) {
      certificate.worst_column = n;
      certificate.worst_column_failing_pairs = failing;
    }
  }
  return certificate;
}

std::vector<FailingPair> ListFailingPairs(const PackedWeights& weights, ActivationRange range, int64_t first,
                                          int64_t count) {
  std::vector<FailingPair> pairs;
  int64_t number = 0;
  for (int64_t n = 0; n < weights.n; ++n) {
    for (int64_t k = 0; k < weights.k; k += 2) {
      if (PairAt(weights, k, n, range).FitsInt16()) continue;
      if (static_cast<int64_t>(pairs.size()) == count) return pairs;
      if (number++ >= first) pairs.push_back(Witness(weights, k, n, range));
    }
  }
  return pairs;
}

ColumnBound BoundColumn(const PackedWeights& weights, int64_t column, int32_t zero_point,
                        ActivationRange range, bool pairs_saturate) {
  ColumnBound bound;
  for (int64_t k = 0; k < weights.k; k += 2) {
    Interval pair;   // Σ a·(b − zb)
    Interval zeros;  // −zb·Σ a
    for (int64_t depth = k; depth < std::min(k + 2, weights.k); ++depth) {
      const int weight = weights.At(depth, column) - zero_point;
      bound.sum += weight;
      pair = pair + Products(weight, range);
      zeros = zeros + Products(-zero_point, range);
    }
    if (pairs_saturate) pair = Clamped(PairAt(weights, k, column, range), pair, zeros);
    bound.lowest += pair.low;
    bound.highest += pair.high;
  }
  return bound;
}

}  // namespace intact::kernels
