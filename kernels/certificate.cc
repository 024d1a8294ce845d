#include "kernels/certificate.h"

#include <emmintrin.h>

#include <algorithm>
#include <limits>
#include <numeric>

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

constexpr int64_t kVectors = kPanelQuadBytes / 16;  // of a quad's row: four columns each
constexpr int64_t kLanes = kPanelColumns * 2;       // pairs of a quad's row

// int16 of the first or the last eight weights.
__m128i LowWords(__m128i bytes) { return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8); }
__m128i HighWords(__m128i bytes) { return _mm_srai_epi16(_mm_unpackhi_epi8(bytes, bytes), 8); }

__m128i LoadBytes(const int8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }

// Calls visit(index, words) for the eight vectors of eight weights of a quad's row: two columns each.
template <class Visit>
void ForEachWords(const int8_t* row, Visit visit) {
  for (int64_t vector = 0; vector < kVectors; ++vector) {
    const __m128i bytes = LoadBytes(row + vector * 16);
    visit(static_cast<size_t>(2 * vector), LowWords(bytes));
    visit(static_cast<size_t>(2 * vector + 1), HighWords(bytes));
  }
}

// A sum of int32 for each pair of a quad's row, kept in vectors for a while and in int64 for good.
class LaneSums {
 public:
  void Add(size_t index, __m128i lanes) {
    __m128i sum = _mm_load_si128(reinterpret_cast<const __m128i*>(&recent_[index * 4]));
    sum = _mm_add_epi32(sum, lanes);
    _mm_store_si128(reinterpret_cast<__m128i*>(&recent_[index * 4]), sum);
  }
  void Flush() {
    for (size_t i = 0; i < recent_.size(); ++i) total_[i] += recent_[i];
    recent_ = {};
  }
  int64_t OfColumn(size_t column) const { return total_[2 * column] + total_[2 * column + 1]; }

 private:
  alignas(16) std::array<int32_t, kLanes> recent_ = {};
  std::array<int64_t, kLanes> total_ = {};
};

constexpr int64_t kQuadsBetweenFlushes = int64_t{1} << 16;  // of values below 2¹⁵

// How many pairs of each column fail.
std::array<int64_t, kPanelColumns> CountFailingPairs(const PackedWeights& weights, int64_t panel,
                                                     ActivationRange range) {
  const __m128i zero = _mm_setzero_si128();
  const __m128i low = _mm_set1_epi16(static_cast<int16_t>(range.low));
  const __m128i high = _mm_set1_epi16(static_cast<int16_t>(range.high));
  const __m128i least = _mm_set1_epi32(kInt16Min);
  const __m128i most = _mm_set1_epi32(kInt16Max);
  LaneSums failing;
  const int8_t* row = weights.Panel(panel);
  for (int64_t quad = 0; quad < weights.quads(); ++quad, row += kPanelQuadBytes) {
    ForEachWords(row, [&](size_t index, __m128i words) {
      const __m128i positive = _mm_max_epi16(words, zero);
      const __m128i negative = _mm_min_epi16(words, zero);
      const __m128i highest = _mm_add_epi32(_mm_madd_epi16(positive, high), _mm_madd_epi16(negative, low));
      const __m128i lowest = _mm_add_epi32(_mm_madd_epi16(negative, high), _mm_madd_epi16(positive, low));
      const __m128i fails = _mm_or_si128(_mm_cmpgt_epi32(highest, most), _mm_cmplt_epi32(lowest, least));
      failing.Add(index, _mm_sub_epi32(zero, fails));
    });
    if (quad % kQuadsBetweenFlushes == 0) failing.Flush();
  }
  failing.Flush();
  std::array<int64_t, kPanelColumns> counts;
  for (size_t column = 0; column < counts.size(); ++column) counts[column] = failing.OfColumn(column);
  return counts;
}

}  // namespace

std::array<ColumnParts, kPanelColumns> SumPanel(const PackedWeights& weights, int64_t panel,
                                                const std::array<int32_t, kPanelColumns>& zero_points) {
  const __m128i zero = _mm_setzero_si128();
  const __m128i ones = _mm_set1_epi16(1);
  alignas(16) std::array<int16_t, size_t{kPanelColumns} * kQuad> zero_words;
  for (size_t i = 0; i < zero_words.size(); ++i) {
    zero_words[i] = static_cast<int16_t>(zero_points[i / kQuad]);
  }
  LaneSums positive;
  LaneSums negative;
  const int8_t* row = weights.Panel(panel);
  for (int64_t quad = 0; quad < weights.quads(); ++quad, row += kPanelQuadBytes) {
    ForEachWords(row, [&](size_t index, __m128i words) {
      const auto* const from = reinterpret_cast<const __m128i*>(&zero_words[index * 8]);
      const __m128i values = _mm_sub_epi16(words, _mm_load_si128(from));
      positive.Add(index, _mm_madd_epi16(_mm_max_epi16(values, zero), ones));
      negative.Add(index, _mm_madd_epi16(_mm_min_epi16(values, zero), ones));
    });
    if (quad % kQuadsBetweenFlushes != 0) continue;
    positive.Flush();
    negative.Flush();
  }
  positive.Flush();
  negative.Flush();
  const int64_t padding = weights.quads() * kQuad - weights.k;  // depths that are no weights: 0 − zero point
  std::array<ColumnParts, kPanelColumns> parts;
  for (size_t column = 0; column < parts.size(); ++column) {
    const int64_t of_padding = -padding * zero_points[column];
    parts[column].positive = positive.OfColumn(column) - std::max<int64_t>(of_padding, 0);
    parts[column].negative = negative.OfColumn(column) - std::min<int64_t>(of_padding, 0);
  }
  return parts;
}

int64_t SafeDepthQuads(const PackedWeights& weights, int64_t panel, ActivationRange range) {
  int64_t depth = weights.quads();
  const int64_t end = std::min(weights.n, (panel + 1) * kPanelColumns);
  for (int64_t n = panel * kPanelColumns; n < end; ++n) {
    for (int64_t lane = 0; lane < 2; ++lane) {
      depth = std::min(depth, SafeDepthOfLane(weights, n, lane, range));
    }
  }
  return depth;
}

Certificate Certify(const PackedWeights& weights, ActivationRange range) {
  Certificate certificate;
  certificate.range = range;
  certificate.pairs = (weights.k + 1) / 2 * weights.n;
  for (int64_t panel = 0; panel < weights.panels(); ++panel) {
    const std::array<int64_t, kPanelColumns> failing = CountFailingPairs(weights, panel, range);
    for (size_t column = 0; column < failing.size(); ++column) {
      if (failing[column] <= certificate.worst_column_failing_pairs) continue;
      certificate.worst_column = panel * kPanelColumns + static_cast<int64_t>(column);
      certificate.worst_column_failing_pairs = failing[column];
    }
    certificate.panel_failing_pairs.push_back(std::accumulate(failing.begin(), failing.end(), int64_t{0}));
    certificate.failing_pairs += certificate.panel_failing_pairs.back();
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

ColumnBound BoundSaturatingColumn(const PackedWeights& weights, int64_t column, int32_t zero_point,
                                  ActivationRange range) {
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
    pair = Clamped(PairAt(weights, k, column, range), pair, zeros);
    bound.lowest += pair.low;
    bound.highest += pair.high;
  }
  return bound;
}

}  // namespace intact::kernels
