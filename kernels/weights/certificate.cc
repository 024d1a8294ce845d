#include "kernels/weights/certificate.h"

#include <emmintrin.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/weights/certified_panel.h"

namespace intact::kernels {
namespace {

constexpr int32_t kInt16Min = std::numeric_limits<int16_t>::min();
constexpr int32_t kInt16Max = std::numeric_limits<int16_t>::max();

struct Interval {
  int64_t low = 0, high = 0;
  bool FitsInt16() const { return low >= kInt16Min && high <= kInt16Max; }
  Interval operator+(const Interval& other) const { return {low + other.low, high + other.high}; }
};

// The products of the weight w.
Interval Products(int w, ActivationRange range) {
  return {w * (w < 0 ? range.high : range.low), w * (w < 0 ? range.low : range.high)};
}

// The pair sums of the weights w0 and w1.
Interval PairInterval(int w0, int w1, ActivationRange range) {
  return Products(w0, range) + Products(w1, range);
}

// Depth is padded with zeros, so a pair may always be read whole.
Interval PairAt(const PackedWeights& weights, int64_t k, int64_t n, ActivationRange range) {
  return PairInterval(weights.At(k, n), weights.At(k + 1, n), range);
}

FailingPair Witness(const PackedWeights& weights, int64_t k, int64_t n, ActivationRange range) {
  FailingPair pair = LargestPair(weights.At(k, n), weights.At(k + 1, n), range);
  pair.k = k;
  pair.n = n;
  return pair;
}

// The interval of clamp(p) + z, from the intervals of p = Σ a·b, of z = −zb·Σ a and of p + z. The clamp adds
// at most the distance by which p is below int16, and takes at most the distance by which p is above it.
Interval Clamped(Interval products, Interval sum, Interval zeros) {
  const int64_t added = std::max<int64_t>(kInt16Min - products.low, 0);
  const int64_t taken = std::max<int64_t>(products.high - kInt16Max, 0);
  const auto clamp = [](int64_t p) { return std::clamp<int64_t>(p, kInt16Min, kInt16Max); };
  return {std::max(sum.low - taken, clamp(products.low) + zeros.low),
          std::min(sum.high + added, clamp(products.high) + zeros.high)};
}

// The number of quads that stay within int16, whichever quad of the lane is the first. With low > 0 a quad
// may have sums of one sign only and make room for its neighbour. So its interval is extended to 0: then any
// part of a run fits if the run fits. Two pointers: a run still fits without its first quad.
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
    if (end == quads) break;  // later runs end at the last depth, not at a limit
    shortest = std::min(shortest, end - begin);
    if (shortest == 0) break;
    const Interval first = at(begin);
    run = {run.low - first.low, run.high - first.high};
  }
  return shortest;
}

// Values of eight pairs (four columns of a quad) in int16, for example the sums of their positive weights and
// of their negative ones.
struct PairSigns {
  __m128i positive, negative;
};

constexpr int64_t kVectorColumns = 4;

__m128i LoadVector(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

// The sums of each sign of the weights minus their zero points.
PairSigns SumPairs(__m128i weights, __m128i zero_points) {
  const __m128i zero = _mm_setzero_si128();
  const __m128i even = _mm_sub_epi16(_mm_srai_epi16(_mm_slli_epi16(weights, 8), 8), zero_points);
  const __m128i odd = _mm_sub_epi16(_mm_srai_epi16(weights, 8), zero_points);
  const __m128i positive = _mm_add_epi16(_mm_max_epi16(even, zero), _mm_max_epi16(odd, zero));
  return {positive, _mm_sub_epi16(_mm_add_epi16(even, odd), positive)};
}

// Adds the two pairs of each column.
void AddToColumns(const PairSigns& pairs, ColumnParts* columns) {
  const __m128i ones = _mm_set1_epi16(1);
  alignas(16) std::array<int32_t, kVectorColumns> positive;
  alignas(16) std::array<int32_t, kVectorColumns> negative;
  _mm_store_si128(reinterpret_cast<__m128i*>(positive.data()), _mm_madd_epi16(pairs.positive, ones));
  _mm_store_si128(reinterpret_cast<__m128i*>(negative.data()), _mm_madd_epi16(pairs.negative, ones));
  for (size_t i = 0; i < kVectorColumns; ++i) {
    columns[i].positive += positive[i];
    columns[i].negative += negative[i];
  }
}

using PanelParts = std::array<ColumnParts, kPanelColumns>;

// Sums over a panel's depth, for each column, of the kCount values that map(SumPairs()) returns for its
// pairs.
template <size_t kCount, class Map>
std::array<PanelParts, kCount> SumDepth(const PackedWeights& weights, int64_t panel,
                                        const std::array<int32_t, kPanelColumns>& zero_points, Map map) {
  // The sums of these quads fit int16, because a weight minus its zero point is at most 255. The quads stay
  // in L1.
  constexpr int64_t kQuadsAtOnce = 64;
  const auto columns =
      static_cast<size_t>(std::min<int64_t>(weights.n - panel * kPanelColumns, kPanelColumns));
  std::array<PanelParts, kCount> parts = {};
  for (int64_t begin = 0; begin < weights.quads(); begin += kQuadsAtOnce) {
    const int64_t end = std::min(weights.quads(), begin + kQuadsAtOnce);
    for (size_t column = 0; column < columns; column += kVectorColumns) {
      const __m128i zeros = LoadVector(&zero_points[column]);
      const __m128i zero_words =
          _mm_packs_epi32(_mm_unpacklo_epi32(zeros, zeros), _mm_unpackhi_epi32(zeros, zeros));
      const int8_t* const from = weights.Panel(panel) + column * kQuad;
      std::array<PairSigns, kCount> sums;
      sums.fill({_mm_setzero_si128(), _mm_setzero_si128()});
      for (int64_t quad = begin; quad < end; ++quad) {
        const std::array<PairSigns, kCount> pairs =
            map(SumPairs(LoadVector(from + quad * weights.quad_bytes()), zero_words));
        for (size_t i = 0; i < kCount; ++i) {
          sums[i].positive = _mm_add_epi16(sums[i].positive, pairs[i].positive);
          sums[i].negative = _mm_add_epi16(sums[i].negative, pairs[i].negative);
        }
      }
      for (size_t i = 0; i < kCount; ++i) AddToColumns(sums[i], &parts[i][column]);
    }
  }
  // Values beyond the last column may belong to the next quad.
  for (PanelParts& part : parts) std::fill(part.begin() + columns, part.end(), ColumnParts());
  return parts;
}

// The sums of a pair's weights of one sign that activations in [0, range.high] keep within int16.
int16_t Most(ActivationRange range) { return static_cast<int16_t>(kInt16Max / std::max(range.high, 1)); }
int16_t Least(ActivationRange range) { return static_cast<int16_t>(kInt16Min / std::max(range.high, 1)); }

// Which of eight pairs can leave int16 above, and which below, from the sums of their weights of each sign.
// No pair can do both.
class FailingPairs {
 public:
  explicit FailingPairs(ActivationRange range)
      : range_(range),
        high_low_(Both(range.high, range.low)),
        low_high_(Both(range.low, range.high)),
        most_(_mm_set1_epi16(Most(range))),
        least_(_mm_set1_epi16(Least(range))) {}

  PairSigns operator()(const PairSigns& sums) const {
    if (range_.low == 0)
      return {_mm_cmpgt_epi16(sums.positive, most_), _mm_cmpgt_epi16(least_, sums.negative)};
    const __m128i low = _mm_unpacklo_epi16(sums.positive, sums.negative);
    const __m128i high = _mm_unpackhi_epi16(sums.positive, sums.negative);
    const __m128i most = _mm_set1_epi32(kInt16Max);
    const __m128i least = _mm_set1_epi32(kInt16Min);
    return {_mm_packs_epi32(_mm_cmpgt_epi32(_mm_madd_epi16(low, high_low_), most),
                            _mm_cmpgt_epi32(_mm_madd_epi16(high, high_low_), most)),
            _mm_packs_epi32(_mm_cmpgt_epi32(least, _mm_madd_epi16(low, low_high_)),
                            _mm_cmpgt_epi32(least, _mm_madd_epi16(high, low_high_)))};
  }

 private:
  static __m128i Both(int even, int odd) { return _mm_set1_epi32(odd << 16 | even); }

  ActivationRange range_;
  __m128i high_low_, low_high_;  // factors of positive and negative sums
  __m128i most_, least_;
};

// SumDepth() of Certify() for whole panels and activations from 0 on: the sums of each sign, and minus the numbers
// of pairs beyond int16.
std::array<PanelParts, 2> CertifyByAvx2(const PackedWeights& weights, int64_t panel, ActivationRange range) {
  const PanelSums sums = SumPanelByAvx2(weights, panel, Most(range), Least(range));
  std::array<PanelParts, 2> parts;
  for (size_t i = 0; i < kPanelColumns; ++i) {
    parts[0][i] = {sums.positive[i], sums.negative[i]};
    parts[1][i] = {-sums.above[i], -sums.below[i]};
  }
  return parts;
}

// Calls visit(first column, panel) for each panel until it returns false.
template <class Visit>
Error ForEachPanel(const PairedColumns& weights, const Visit& visit) {
  std::vector<int8_t> columns(
      static_cast<size_t>(std::min<int64_t>(weights.n, kPanelColumns) * weights.depth));
  PackedWeights panel;
  for (int64_t first = 0; first < weights.n; first += kPanelColumns) {
    const int64_t count = std::min<int64_t>(weights.n - first, kPanelColumns);
    for (int64_t i = 0; i < count; ++i) {
      weights.copy(first + i, &columns[static_cast<size_t>(i * weights.depth)]);
    }
    if (!PackWeights({columns.data(), weights.depth, count, 1, weights.depth, 0}, &panel)) {
      return {INTACT_OUT_OF_MEMORY, "no memory for the certificate"};
    }
    if (!visit(first, panel)) break;
  }
  return {};
}

// Adds the certificate of the columns from `first` on; `first` begins a panel.
void Append(const Certificate& next, int64_t first, Certificate* certificate) {
  certificate->pairs += next.pairs;
  certificate->failing_pairs += next.failing_pairs;
  if (next.worst_column_failing_pairs > certificate->worst_column_failing_pairs) {
    certificate->worst_column = first + next.worst_column;
    certificate->worst_column_failing_pairs = next.worst_column_failing_pairs;
  }
  certificate->panel_failing_pairs.insert(certificate->panel_failing_pairs.end(),
                                          next.panel_failing_pairs.begin(), next.panel_failing_pairs.end());
  certificate->column_sums.insert(certificate->column_sums.end(), next.column_sums.begin(),
                                  next.column_sums.end());
}

}  // namespace

FailingPair LargestPair(int8_t w0, int8_t w1, ActivationRange range) {
  const Interval sums = PairInterval(w0, w1, range);
  const bool is_high = sums.high >= -sums.low;
  const auto activation = [&](int w) {
    return static_cast<uint8_t>((w > 0) == is_high ? range.high : range.low);
  };
  FailingPair pair;
  pair.w0 = w0;
  pair.w1 = w1;
  pair.a0 = activation(w0);
  pair.a1 = activation(w1);
  pair.sum = pair.a0 * w0 + pair.a1 * w1;
  return pair;
}

std::array<ColumnParts, kPanelColumns> SumPanel(const PackedWeights& weights, int64_t panel,
                                                const std::array<int32_t, kPanelColumns>& zero_points) {
  auto [parts] =
      SumDepth<1>(weights, panel, zero_points, [](const PairSigns& sums) { return std::array{sums}; });
  const int64_t padding = weights.quads() * kQuad - weights.k;  // padded depths: each added 0 − zero point
  for (size_t column = 0; column < parts.size(); ++column) {
    const int64_t of_padding = -padding * zero_points[column];
    parts[column].positive -= std::max<int64_t>(of_padding, 0);
    parts[column].negative -= std::min<int64_t>(of_padding, 0);
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
  const FailingPairs failing(range);
  const bool is_fast = range.low == 0 && weights.width == kPanelColumns && HasAvx2();
  for (int64_t panel = 0; panel < weights.panels(); ++panel) {
    const auto [parts, fails] = is_fast ? CertifyByAvx2(weights, panel, range)
                                        : SumDepth<2>(weights, panel, {}, [&](const PairSigns& pairs) {
                                            return std::array{pairs, failing(pairs)};
                                          });
    int64_t& of_panel = certificate.panel_failing_pairs.emplace_back();
    for (size_t column = 0; column < fails.size(); ++column) {
      const int64_t count = -(fails[column].positive + fails[column].negative);  // of masks
      of_panel += count;
      if (count <= certificate.worst_column_failing_pairs) continue;
      certificate.worst_column = panel * kPanelColumns + static_cast<int64_t>(column);
      certificate.worst_column_failing_pairs = count;
    }
    certificate.failing_pairs += of_panel;
    certificate.column_sums.insert(certificate.column_sums.end(), parts.begin(), parts.end());
  }
  return certificate;
}

Result<Certificate> Certify(const PairedColumns& weights, ActivationRange range) {
  Certificate certificate;
  certificate.range = range;
  Error error = ForEachPanel(weights, [&](int64_t first, const PackedWeights& panel) {
    Append(Certify(panel, range), first, &certificate);
    return true;
  });
  if (error.status != INTACT_OK) return error;
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

Result<std::vector<FailingPair>> ListFailingPairs(const PairedColumns& weights, ActivationRange range,
                                                  int64_t first, int64_t count) {
  std::vector<FailingPair> pairs;
  Error error = ForEachPanel(weights, [&](int64_t first_column, const PackedWeights& panel) {
    const int64_t failing = Certify(panel, range).failing_pairs;
    if (first < failing) {
      for (FailingPair pair : ListFailingPairs(panel, range, first, count - std::ssize(pairs))) {
        pair.n += first_column;
        pairs.push_back(pair);
      }
    }
    first = std::max<int64_t>(first - failing, 0);
    return std::ssize(pairs) < count;
  });
  if (error.status != INTACT_OK) return error;
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
