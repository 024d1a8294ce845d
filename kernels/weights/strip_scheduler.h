// Turns a strip of columns into groups of items whose sums stay within int16: see schedule.h. Both layouts of
// schedules use it.
#ifndef INTACT_KERNELS_WEIGHTS_STRIP_SCHEDULER_H_
#define INTACT_KERNELS_WEIGHTS_STRIP_SCHEDULER_H_

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kernels/weights/pack.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

inline constexpr int kMaxPairLoad = 256;  // two weights of −128

// Sums of weights of one sign in each int16 lane of a strip. A vector holds up to four pairs: first their
// positive sums, then their negative ones. A sum is at most kMaxPairLoad·kMaxGroup.
template <int kColumns>
class Load {
 public:
  static constexpr size_t kLanes = kColumns * 4;  // columns × 2 pairs × 2 signs
  static constexpr size_t kVectors = (kLanes + 7) / 8;
  using Lanes = std::array<int16_t, kVectors * 8>;

  Load() { std::fill_n(vectors_, kVectors, _mm_setzero_si128()); }

  /// The load of an item with these weights.
  explicit Load(const int8_t* weights) {
    if constexpr (kColumns == 1) {
      int32_t quad = 0;
      std::memcpy(&quad, weights, sizeof(quad));
      const Signs sums = SumPairs(_mm_cvtsi32_si128(quad));
      vectors_[0] = _mm_packs_epi32(_mm_unpacklo_epi64(sums.positive, sums.negative), _mm_setzero_si128());
    } else {
      for (size_t i = 0; i < kVectors; ++i) {
        const Signs sums = SumPairs(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights + 8 * i)));
        vectors_[i] = _mm_packs_epi32(sums.positive, sums.negative);
      }
    }
  }

  /// A load with these sums in each pair.
  Load(int positive, int negative) {
    Lanes lanes = {};
    for (size_t pair = 0; pair < kLanes / 2; ++pair) {
      lanes[Lane(pair, 1)] = static_cast<int16_t>(positive);
      lanes[Lane(pair, -1)] = static_cast<int16_t>(negative);
    }
    std::memcpy(vectors_, lanes.data(), sizeof(lanes));
  }

  static size_t Lane(size_t pair, int sign) {
    constexpr size_t kPairs = std::min<size_t>(kLanes / 2, 4);  // in a vector
    return pair / 4 * 8 + pair % 4 + (sign > 0 ? 0 : kPairs);
  }

  Lanes ToLanes() const {
    Lanes lanes;
    std::memcpy(lanes.data(), vectors_, sizeof(lanes));
    return lanes;
  }

  /// Whether the load is at most `room` in every lane.
  bool Fits(const Load& room) const {
    __m128i beyond = _mm_setzero_si128();
    for (size_t i = 0; i < kVectors; ++i) {
      beyond = _mm_or_si128(beyond, _mm_cmpgt_epi16(vectors_[i], room.vectors_[i]));
    }
    return _mm_movemask_epi8(beyond) == 0;
  }

  Load operator-(const Load& other) const {
    Load rest;
    for (size_t i = 0; i < kVectors; ++i) rest.vectors_[i] = _mm_sub_epi16(vectors_[i], other.vectors_[i]);
    return rest;
  }

  Load AtMost(int16_t most) const {
    Load bounded;
    for (size_t i = 0; i < kVectors; ++i) {
      bounded.vectors_[i] = _mm_min_epi16(vectors_[i], _mm_set1_epi16(most));
    }
    return bounded;
  }

  int Heaviest() const {
    __m128i most = vectors_[0];
    for (const __m128i& vector : vectors_) most = _mm_max_epi16(most, vector);
    if constexpr (kLanes >= 8) most = _mm_max_epi16(most, _mm_srli_si128(most, 8));
    most = _mm_max_epi16(most, _mm_srli_si128(most, 4));
    most = _mm_max_epi16(most, _mm_srli_si128(most, 2));
    return _mm_extract_epi16(most, 0);
  }

 private:
  struct Signs {
    __m128i positive, negative;  // int32
  };
  // Eight weights are four pairs.
  static Signs SumPairs(__m128i weights) {
    const __m128i zero = _mm_setzero_si128();
    const __m128i ones = _mm_set1_epi16(1);
    const __m128i words = _mm_srai_epi16(_mm_unpacklo_epi8(weights, weights), 8);
    return {_mm_madd_epi16(_mm_max_epi16(words, zero), ones),
            _mm_madd_epi16(_mm_max_epi16(_mm_sub_epi16(zero, words), zero), ones)};
  }

  __m128i vectors_[kVectors];
};

// The items of a strip that are in no group yet. Finds the first item that fits into a group.
//
// Each lane and level has a row of bits. The bit of an item is set if it adds at most this level to the lane.
// The AND of one row per lane and of the items left gives the items that fit a room. Levels are kLevel units
// of weight apart, so that the rows stay in L1. The few items that pass the rows and still do not fit are
// found by their loads.
template <int kColumns>
class ItemIndex {
 public:
  /// Starts over with items of these loads. No load exceeds `heaviest`.
  [[gnu::target("avx2")]] void Reset(std::span<const Load<kColumns>> loads, int heaviest) {
    loads_ = loads;
    heaviest_ = static_cast<int16_t>(heaviest);
    words_ = (loads.size() + kWordBits - 1) / kWordBits;
    first_word_ = 0;
    left_.assign(words_ + kVectorWords, 0);
    std::fill_n(left_.begin(), loads.size() / kWordBits, ~uint64_t{0});
    if (loads.size() % kWordBits != 0) {
      left_[loads.size() / kWordBits] = (uint64_t{1} << loads.size() % kWordBits) - 1;
    }
    const size_t level_words = kLanes * words_;
    const size_t all_words = (static_cast<size_t>(heaviest) / kLevel + 1) * level_words;
    rows_.assign(all_words + kVectorWords, 0);
    for (size_t item = 0; item < loads.size(); ++item) {
      uint64_t* const rows = &rows_[item / kWordBits];
      for (const size_t row : RowsAt(loads[item])) rows[row] |= uint64_t{1} << item % kWordBits;
    }
    // So far a row has only the items of its own level. Adds the items of the level below.
    for (size_t i = level_words; i < all_words; i += kVectorWords) {
      StoreVector(_mm256_or_si256(Vector(rows_, i), Vector(rows_, i - level_words)), i, &rows_);
    }
  }

  /// Takes up to `most` items: the first item left, then each next item that fits into `room` together with
  /// the items already taken. Writes them to `items` and returns their number.
  [[gnu::target("avx2")]] size_t Take(Load<kColumns> room, size_t most, size_t* items) {
    while (first_word_ < words_ && left_[first_word_] == 0) ++first_word_;
    if (first_word_ == words_) return 0;
    candidates_ = left_;
    size_t word = first_word_;
    for (size_t count = 0;; word = FirstCandidates(room, word)) {
      while (true) {
        if (word >= words_) return count;
        const auto item = word * kWordBits + static_cast<size_t>(std::countr_zero(candidates_[word]));
        // An item that does not fit now does not fit later.
        candidates_[word] &= candidates_[word] - 1;
        if (loads_[item].Fits(room)) {
          left_[word] &= ~(uint64_t{1} << item % kWordBits);
          items[count++] = item;
          if (count == most) return count;
          room = room - loads_[item];
          break;
        }
        // Within this vector only: other vectors are not reduced to fitting items yet.
        const size_t end = word / kVectorWords * kVectorWords + kVectorWords;
        while (word < end && candidates_[word] == 0) ++word;
        if (word == end) word = FirstCandidates(room, word);
      }
    }
  }

 private:
  static constexpr size_t kLanes = Load<kColumns>::kLanes;
  static constexpr size_t kLevel = kColumns <= 2 ? 4 : 8;
  static constexpr size_t kWordBits = 64;
  static constexpr size_t kVectorWords = 4;

  // Vectors may cross the ends of rows. Space for a vector follows the last row.
  [[gnu::target("avx2")]] static __m256i Vector(const std::vector<uint64_t>& words, size_t begin) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&words[begin]));
  }
  [[gnu::target("avx2")]] static void StoreVector(__m256i vector, size_t begin,
                                                  std::vector<uint64_t>* words) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(&(*words)[begin]), vector);
  }

  // The first word, from the vector of `begin` on, with a candidate that passes the rows for `room`; words_
  // or more without a candidate. Removes the candidates of its vector that do not pass.
  [[gnu::target("avx2")]] size_t FirstCandidates(const Load<kColumns>& room, size_t begin) {
    const auto rows = RowsAt(room.AtMost(heaviest_));
    for (size_t word = begin / kVectorWords * kVectorWords; word < words_; word += kVectorWords) {
      __m256i vector = Vector(candidates_, word);
      // Most vectors of strips of many columns have no candidate left after some lanes.
      for (size_t lane = 0; lane < kLanes && (lane == 0 || _mm256_testz_si256(vector, vector) == 0);
           lane += kLanesAtOnce) {
        for (size_t i = lane; i < lane + kLanesAtOnce; ++i) {
          vector = _mm256_and_si256(vector, Vector(rows_, rows[i] + word));
        }
      }
      StoreVector(vector, word, &candidates_);
      const __m256i is_zero = _mm256_cmpeq_epi64(vector, _mm256_setzero_si256());
      const auto left = static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(is_zero))) ^ 15U;
      if (left != 0) return word + static_cast<size_t>(std::countr_zero(left));
    }
    return words_;
  }

  // The offsets of the rows of the load's levels.
  std::array<size_t, kLanes> RowsAt(const Load<kColumns>& load) const {
    const auto lanes = load.ToLanes();
    std::array<size_t, kLanes> rows;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      rows[lane] = (static_cast<size_t>(lanes[lane]) / kLevel * kLanes + lane) * words_;
    }
    return rows;
  }

  static constexpr size_t kLanesAtOnce = std::min<size_t>(kLanes, 8);

  std::span<const Load<kColumns>> loads_;
  int16_t heaviest_ = 0;
  size_t words_ = 0;       // of a row
  size_t first_word_ = 0;  // the first word that may have an item left
  std::vector<uint64_t> left_, candidates_;
  std::vector<uint64_t> rows_;  // [level][lane][words_]
};

// Turns strips into groups; keeps its memory from strip to strip.
template <int kColumns>
class StripScheduler {
 public:
  /// For strips of at most `quads`.
  StripScheduler(const ScheduleSpec& spec, int64_t quads)
      : spec_(spec), most_items_(MostItems(spec) * quads) {
    const LaneCapacity capacity = CapacityFor(spec.saturates ? spec.amax : 1);
    // No group of kMaxGroup items exceeds this, and int16 loads hold it.
    constexpr int kMost = kMaxPairLoad * kMaxGroup;
    capacity_ = Load<kColumns>(std::min(capacity.positive, kMost), std::min(capacity.negative, kMost));
    const auto most = static_cast<size_t>(most_items_);
    items_.resize(most);
    heaviest_.resize(most);
    loads_.resize(most);
    order_.resize(most);
    sorted_loads_.resize(most);
  }

  struct Item {
    uint32_t quad;  // its number in the window; if A is a planar band, see ScheduleSpec::group_columns
    std::array<int8_t, kColumns * kQuad> weights;
  };
  struct Group {
    uint32_t size = 0;
    std::array<uint32_t, kMaxGroup> items;
  };

  /// The largest number of items that a strip can have in a window.
  int64_t MostItems() const { return most_items_; }

  /// Schedules columns [column, column + kColumns) in `window`, and adds its sizes to `statistics`.
  void Schedule(const PackedWeights& weights, int64_t column, int64_t window,
                ScheduleStatistics* statistics) {
    const int64_t begin = window * spec_.window_quads;
    const int64_t end = std::min(weights.quads(), begin + spec_.window_quads);
    CollectItems(weights, column, begin, end);
    SortItems();
    MakeGroups();
    statistics->quads += (end - begin) * kColumns;
    statistics->items += static_cast<int64_t>(item_count_) * kColumns;
    statistics->groups += std::ssize(groups_) * kColumns;
  }

  // The functions below describe the result of the last Schedule().

  int64_t item_count() const { return static_cast<int64_t>(item_count_); }
  const Item& item(uint32_t index) const { return items_[index]; }
  /// In the order in which they were found.
  const std::vector<Group>& groups() const { return groups_; }
  /// The numbers of groups of kMaxGroup items, of one item less, and so on down to one item.
  std::array<uint16_t, kMaxGroup> CountGroups() const {
    std::array<uint16_t, kMaxGroup> counts = {};
    for (const Group& group : groups_) ++counts[kMaxGroup - group.size];
    return counts;
  }
  /// The index of the first item of each group size, if larger groups come first.
  static std::array<int64_t, kMaxGroup> Places(const std::array<uint16_t, kMaxGroup>& counts) {
    std::array<int64_t, kMaxGroup> places;
    int64_t place = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      places[i] = place;
      place += counts[i] * static_cast<int64_t>(kMaxGroup - i);
    }
    return places;
  }
  /// The number of items in the largest group; 0 without groups.
  int LargestGroup() const {
    const auto smaller = [](const Group& a, const Group& b) { return a.size < b.size; };
    const auto largest = std::max_element(groups_.begin(), groups_.end(), smaller);
    return largest == groups_.end() ? 0 : static_cast<int>(largest->size);
  }

 private:
  // The most items of a quad: w − zb is a sum of at most three weights, and each item may be split.
  static int64_t MostItems(const ScheduleSpec& spec) { return spec.zero_points == nullptr ? 2 : 6; }

  void CollectItems(const PackedWeights& weights, int64_t column, int64_t begin, int64_t end) {
    item_count_ = 0;
    const int64_t offset = column % kPanelColumns * kQuad;
    int64_t step = weights.quad_bytes();
    const int8_t* from = weights.Panel(column / kPanelColumns) + begin * step + offset;
    if (step < offset + kColumns * kQuad) {
      Widen(from, step, std::max<int64_t>(step - offset, 0), end - begin);
      step = kColumns * kQuad;
      from = widened_.data();
    }
    const bool folds = spec_.zero_points != nullptr;
    if (folds) SetZeroPoints(column, weights.n);
    for (int64_t quad = begin; quad < end; ++quad, from += step) {
      Item item;
      item.quad = NumberOf(weights.quads(), column, quad, begin);
      std::memcpy(item.weights.data(), from, sizeof(item.weights));
      folds ? AddFolded(item) : AddOrSplit(item);
    }
  }

  // Copies `quads` quads of a narrow panel, `step` bytes apart, to widened_. Each holds `held` bytes of the
  // strip.
  void Widen(const int8_t* from, int64_t step, int64_t held, int64_t quads) {
    widened_.assign(static_cast<size_t>(quads * kColumns * kQuad), 0);
    for (int64_t quad = 0; held > 0 && quad < quads; ++quad) {
      std::copy_n(from + quad * step, held, &widened_[static_cast<size_t>(quad * kColumns * kQuad)]);
    }
  }

  // Copies the strip's zero points. Columns beyond the last one get zeros: their results are dropped.
  void SetZeroPoints(int64_t column, int64_t columns) {
    zero_points_.fill(0);
    const auto count = static_cast<size_t>(std::clamp<int64_t>(columns - column, 0, kColumns));
    for (size_t i = 0; i < count * kQuad; ++i) {
      zero_points_[i] = spec_.zero_points[static_cast<size_t>(column) + i / kQuad];
    }
  }

  // Adds items whose weights add up to the item's weights minus their zero points.
  void AddFolded(Item item) {
    std::array<int, kColumns* kQuad> left = {};
    for (size_t i = 0; i < left.size(); ++i) left[i] = item.weights[i] - zero_points_[i];
    while (std::any_of(left.begin(), left.end(), [](int weight) { return weight != 0; })) {
      for (size_t i = 0; i < left.size(); ++i) {
        item.weights[i] = static_cast<int8_t>(std::clamp(left[i], -128, 127));
        left[i] -= item.weights[i];
      }
      AddOrSplit(item);
    }
  }

  // Always inlined, as is Add(): calls would make the creation of plans 5 % slower.
  [[gnu::always_inline]] void AddOrSplit(const Item& item) {
    const Load<kColumns> load(item.weights.data());
    if (load.Fits(capacity_)) {
      Add(item, load);
    } else {
      Split(item, load);
    }
  }

  [[gnu::always_inline]] void Add(const Item& item, const Load<kColumns>& load) {
    const int heaviest = load.Heaviest();
    items_[item_count_] = item;
    loads_[item_count_] = load;
    heaviest_[item_count_] = static_cast<uint16_t>(heaviest);
    if (heaviest != 0) ++item_count_;  // else all weights are 0
  }

  uint32_t NumberOf(int64_t quads, int64_t column, int64_t quad, int64_t begin) const {
    if (spec_.group_columns == 0) return static_cast<uint32_t>(quad - begin);
    return static_cast<uint32_t>(column / spec_.group_columns * quads + quad);
  }

  // Leaves as much of each heavy pair in the first item as fits, and moves the excess to a second, light
  // item. A single weight is never too heavy. So both weights of a heavy pair have one sign, and the larger
  // weight can give the whole excess.
  void Split(Item item, const Load<kColumns>& load) {
    Item rest = {item.quad, {}};
    const auto excesses = (load - capacity_).ToLanes();
    for (size_t pair = 0; pair < item.weights.size() / 2; ++pair) {
      for (const int sign : {1, -1}) {
        const int excess = std::max<int>(excesses[Load<kColumns>::Lane(pair, sign)], 0);
        const bool is_first = sign * item.weights[2 * pair] >= sign * item.weights[2 * pair + 1];
        const size_t from = 2 * pair + (is_first ? 0 : 1);
        rest.weights[from] = static_cast<int8_t>(rest.weights[from] + sign * excess);
        item.weights[from] = static_cast<int8_t>(item.weights[from] - sign * excess);
      }
    }
    Add(item, Load<kColumns>(item.weights.data()));
    Add(rest, Load<kColumns>(rest.weights.data()));
  }

  // Heaviest first: a counting sort that keeps the order of equals.
  void SortItems() {
    std::array<uint32_t, kMaxPairLoad + 1> places = {};
    for (size_t i = 0; i < item_count_; ++i) ++places[heaviest_[i]];
    heaviest_of_all_ = kMaxPairLoad;
    while (heaviest_of_all_ > 0 && places[static_cast<size_t>(heaviest_of_all_)] == 0) --heaviest_of_all_;
    uint32_t heavier = 0;
    for (int load = heaviest_of_all_; load > 0; --load) {
      heavier += std::exchange(places[static_cast<size_t>(load)], heavier);
    }
    for (size_t i = 0; i < item_count_; ++i) {
      const uint32_t place = places[heaviest_[i]]++;
      order_[place] = static_cast<uint32_t>(i);
      sorted_loads_[place] = loads_[i];
    }
  }

  // First fit, heaviest first: an item joins the first group that has room for it. This is done group by
  // group: a group takes the first item left that fits, until it is full or no item fits.
  void MakeGroups() {
    const auto most = static_cast<size_t>(spec_.largest_group);
    index_.Reset({sorted_loads_.data(), item_count_}, heaviest_of_all_);
    groups_.clear();
    std::array<size_t, kMaxGroup> taken;
    while (const size_t size = index_.Take(capacity_, most, taken.data())) {
      Group& group = groups_.emplace_back();
      group.size = static_cast<uint32_t>(size);
      for (size_t i = 0; i < size; ++i) group.items[i] = order_[taken[i]];
    }
  }

  ScheduleSpec spec_;
  int64_t most_items_;
  Load<kColumns> capacity_;
  std::array<int32_t, kColumns* kQuad> zero_points_ = {};  // of each weight of an item
  std::vector<int8_t> widened_;                            // a strip wider than its narrow panel
  size_t item_count_ = 0;
  std::vector<Item> items_;
  std::vector<Load<kColumns>> loads_;  // of each item
  std::vector<uint16_t> heaviest_;     // the heaviest lane of each item
  int heaviest_of_all_ = 0;
  std::vector<uint32_t> order_;               // items, heaviest first
  std::vector<Load<kColumns>> sorted_loads_;  // in that order
  ItemIndex<kColumns> index_;                 // of sorted_loads_
  std::vector<Group> groups_;
};

/// The items of `counts` groups of 8, 7, … 1 items.
inline int64_t CountItems(const std::array<uint16_t, kMaxGroup>& counts) {
  int64_t items = 0;
  for (int64_t i = 0; i < kMaxGroup; ++i) items += counts[static_cast<size_t>(i)] * (kMaxGroup - i);
  return items;
}

/// Adds an item's weights to the weights of its quad.
inline void AddWeights(const uint8_t* weights, int count, int8_t* to) {
  for (int i = 0; i < count; ++i) to[i] = static_cast<int8_t>(to[i] + static_cast<int8_t>(weights[i]));
}

inline int64_t Windows(const PackedWeights& weights, const ScheduleSpec& spec) {
  return (weights.quads() + spec.window_quads - 1) / spec.window_quads;
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_STRIP_SCHEDULER_H_
