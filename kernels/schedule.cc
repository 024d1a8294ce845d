#include "kernels/schedule.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <numeric>

namespace intact::kernels {
namespace {

constexpr int kMaxPairLoad = 256;                 // −128 twice
constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of the stream: two huge pages

// Sums of weights of one sign in each int16 lane of a strip: of the pairs in a vector, up to four, the
// positive ones, then the negative ones. At most kMaxPairLoad·kMaxGroup each.
template <int kColumns>
class Load {
 public:
  static constexpr size_t kLanes = kColumns * 4;  // columns × 2 pairs × 2 signs
  static constexpr size_t kVectors = (kLanes + 7) / 8;
  using Lanes = std::array<int16_t, kVectors * 8>;

  Load() { std::fill_n(vectors_, kVectors, _mm_setzero_si128()); }

  /// Of the weights of an item.
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

  /// The same for each pair.
  Load(int positive, int negative) {
    Lanes lanes = {};
    for (size_t pair = 0; pair < kLanes / 2; ++pair) {
      lanes[Lane(pair, 1)] = static_cast<int16_t>(positive);
      lanes[Lane(pair, -1)] = static_cast<int16_t>(negative);
    }
    std::memcpy(vectors_, lanes.data(), sizeof(lanes));
  }

  static size_t Lane(size_t pair, int sign) {
    constexpr size_t kPairs = std::min<size_t>(kLanes / 2, 4);  // of a vector
    return pair / 4 * 8 + pair % 4 + (sign > 0 ? 0 : kPairs);
  }

  Lanes ToLanes() const {
    Lanes lanes;
    std::memcpy(lanes.data(), vectors_, sizeof(lanes));
    return lanes;
  }

  /// Whether it stays within `room` in every lane.
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
  // Of eight weights, four pairs.
  static Signs SumPairs(__m128i weights) {
    const __m128i zero = _mm_setzero_si128();
    const __m128i ones = _mm_set1_epi16(1);
    const __m128i words = _mm_srai_epi16(_mm_unpacklo_epi8(weights, weights), 8);
    return {_mm_madd_epi16(_mm_max_epi16(words, zero), ones),
            _mm_madd_epi16(_mm_max_epi16(_mm_sub_epi16(zero, words), zero), ones)};
  }

  __m128i vectors_[kVectors];
};

// The items of a strip that are in no group yet: which is the first that a group has room for?
//
// A bit per item and a row of bits per lane and level: those that add at most `level` to the lane. The items
// that fit a room are then the AND of a row per lane, and of those left.
template <int kColumns>
class ItemIndex {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  /// Of `loads`, in their order, none above `heaviest`.
  void Reset(const std::vector<Load<kColumns>>& loads, int heaviest) {
    heaviest_ = static_cast<int16_t>(heaviest);
    words_ = (loads.size() + kWordBits - 1) / kWordBits;
    stride_ = (words_ + 1) / 2 * 2;
    left_.assign(words_, ~uint64_t{0});
    if (loads.size() % kWordBits != 0) left_.back() >>= kWordBits - loads.size() % kWordBits;
    first_word_ = 0;
    const size_t levels = static_cast<size_t>(heaviest) + 1;
    rows_.assign(levels * kLanes * stride_, 0);
    for (size_t item = 0; item < loads.size(); ++item) {
      const auto lanes = loads[item].ToLanes();
      const uint64_t bit = uint64_t{1} << item % kWordBits;
      uint64_t* const word = rows_.data() + item / kWordBits;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        word[RowAt(lane, lanes[lane])] |= bit;
      }
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      for (size_t pair = 0; pair < stride_ / 2; ++pair) AccumulateLevels(lane, 2 * pair);
    }
  }

  void Remove(size_t item) { left_[item / kWordBits] &= ~(uint64_t{1} << item % kWordBits); }

  /// The first that is left.
  size_t First() {
    while (first_word_ < words_ && left_[first_word_] == 0) ++first_word_;
    if (first_word_ == words_) return kNone;
    return first_word_ * kWordBits + static_cast<size_t>(std::countr_zero(left_[first_word_]));
  }

  /// The first that is left and fits in `room`; none before `begin` does.
  size_t FirstThatFits(const Load<kColumns>& room, size_t begin) const {
    const auto levels = room.AtMost(heaviest_).ToLanes();
    std::array<const uint64_t*, kLanes> rows;
    for (size_t lane = 0; lane < kLanes; ++lane) rows[lane] = rows_.data() + RowAt(lane, levels[lane]);
    for (size_t word = begin / kWordBits; word < words_; ++word) {
      uint64_t fitting = left_[word];
      for (const uint64_t* row : rows) fitting &= row[word];
      if (fitting != 0) return word * kWordBits + static_cast<size_t>(std::countr_zero(fitting));
    }
    return kNone;
  }

 private:
  static constexpr size_t kLanes = Load<kColumns>::kLanes;
  static constexpr size_t kWordBits = 64;

  size_t RowAt(size_t lane, int level) const {
    return (static_cast<size_t>(level) * kLanes + lane) * stride_;
  }

  // From the items of each level to those of at most each level, two words of them.
  void AccumulateLevels(size_t lane, size_t word) {
    __m128i items = _mm_setzero_si128();
    for (int level = 0; level <= heaviest_; ++level) {
      auto* const at = reinterpret_cast<__m128i*>(rows_.data() + RowAt(lane, level) + word);
      items = _mm_or_si128(items, _mm_loadu_si128(at));
      _mm_storeu_si128(at, items);
    }
  }

  int16_t heaviest_ = 0;
  size_t words_ = 0, stride_ = 0;  // of a row
  size_t first_word_ = 0;          // that may have an item left
  std::vector<uint64_t> left_;
  std::vector<uint64_t> rows_;  // [level][lane][stride_]
};

// Turns strips into groups; keeps its memory from strip to strip.
template <int kColumns>
class StripScheduler {
 public:
  explicit StripScheduler(const ScheduleShape& shape) : shape_(shape) {
    const LaneCapacity capacity = CapacityFor(shape.saturates ? shape.amax : 1);
    // A group of kMaxGroup items cannot exceed this, which int16 loads hold.
    constexpr int kMost = kMaxPairLoad * kMaxGroup;
    capacity_ = Load<kColumns>(std::min(capacity.positive, kMost), std::min(capacity.negative, kMost));
  }

  /// The most that Append() writes for so many quads.
  static int64_t MostBytes(int64_t quads) {
    return kStripHeaderBytes + 2 * quads * static_cast<int64_t>(sizeof(Item));
  }

  /// Writes the strip of columns [column, column + kColumns), quads [begin, end), to `stream`; returns the
  /// end of it.
  uint8_t* Write(const PackedWeights& weights, int64_t column, int64_t begin, int64_t end, uint8_t* stream,
                 ScheduleStatistics* statistics) {
    CollectItems(weights, column, begin, end);
    SortItems();
    FormGroups();
    statistics->quads += (end - begin) * kColumns;
    statistics->items += static_cast<int64_t>(items_.size()) * kColumns;
    statistics->groups += static_cast<int64_t>(group_begins_.size()) * kColumns;
    return WriteGroups(stream);
  }

 private:
  struct Item {  // as in the stream
    uint32_t offset;  // of its quad
    std::array<int8_t, kColumns * kQuad> weights;
  };
  static_assert(sizeof(Item) == 4 + kColumns * kQuad);

  void CollectItems(const PackedWeights& weights, int64_t column, int64_t begin, int64_t end) {
    items_.clear();
    loads_.clear();
    const int8_t* panel = weights.Panel(column / kPanelColumns) + column % kPanelColumns * kQuad;
    for (int64_t quad = begin; quad < end; ++quad) {
      Item item;
      item.offset = OffsetOf(column, quad, begin);
      std::memcpy(item.weights.data(), panel + quad * kPanelQuadBytes, sizeof(item.weights));
      const Load<kColumns> load(item.weights.data());
      if (load.Fits(capacity_)) {
        if (load.Heaviest() != 0) Add(item, load);  // else all zeros: contributes nothing
      } else {
        Split(item, load);
      }
    }
  }

  void Add(const Item& item, const Load<kColumns>& load) {
    items_.push_back(item);
    loads_.push_back(load);
  }

  uint32_t OffsetOf(int64_t column, int64_t quad, int64_t begin) const {
    if (shape_.planar == nullptr) return static_cast<uint32_t>((quad - begin) * shape_.rows * kQuad);
    const PlanarDepth& planar = *shape_.planar;
    return planar.quad_offsets[static_cast<size_t>(quad)] +
           static_cast<uint32_t>(column / planar.group_columns * planar.group_bytes);
  }

  // Leaves as much of each heavy pair in the first item as fits, and moves the rest to a second, light one.
  void Split(Item item, const Load<kColumns>& load) {
    Item rest = {item.offset, {}};
    const auto excesses = (load - capacity_).ToLanes();
    for (size_t pair = 0; pair < item.weights.size() / 2; ++pair) {
      for (const int sign : {1, -1}) {
        const int excess = excesses[Load<kColumns>::Lane(pair, sign)];
        if (excess <= 0) continue;
        // Both weights have this sign, or one alone is too heavy: take from the larger first.
        size_t from = 2 * pair + (sign * item.weights[2 * pair] >= sign * item.weights[2 * pair + 1] ? 0 : 1);
        for (int left = excess; left > 0; from ^= 1) {
          const int taken = std::min(left, std::max(sign * item.weights[from], 0));
          rest.weights[from] = static_cast<int8_t>(rest.weights[from] + sign * taken);
          item.weights[from] = static_cast<int8_t>(item.weights[from] - sign * taken);
          left -= taken;
        }
      }
    }
    Add(item, Load<kColumns>(item.weights.data()));
    Add(rest, Load<kColumns>(rest.weights.data()));
  }

  // Heaviest first, by counting; equals keep their order.
  void SortItems() {
    std::array<uint32_t, kMaxPairLoad + 1> ends = {};  // of the items as light as this or lighter
    weights_.resize(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      weights_[i] = static_cast<uint16_t>(loads_[i].Heaviest());
      ++ends[weights_[i]];
    }
    heaviest_ = kMaxPairLoad;
    while (heaviest_ > 0 && ends[static_cast<size_t>(heaviest_)] == 0) --heaviest_;
    std::exclusive_scan(ends.rbegin(), ends.rend(), ends.rbegin(), uint32_t{0});
    order_.resize(items_.size());
    sorted_loads_.resize(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      const uint32_t place = ends[weights_[i]]++;
      order_[place] = static_cast<uint32_t>(i);
      sorted_loads_[place] = loads_[i];
    }
  }

  // First fit, heaviest first: an item joins the first group that has room for it. The same group by group:
  // each takes the first item left that fits, until it is full or none does.
  void FormGroups() {
    index_.Reset(sorted_loads_, heaviest_);
    grouped_.clear();
    group_begins_.clear();
    for (size_t first = index_.First(); first != ItemIndex<kColumns>::kNone; first = index_.First()) {
      group_begins_.push_back(static_cast<uint32_t>(grouped_.size()));
      Load<kColumns> room = capacity_;
      for (int size = 0; size < kMaxGroup && first != ItemIndex<kColumns>::kNone; ++size) {
        grouped_.push_back(order_[first]);
        index_.Remove(first);
        room = room - sorted_loads_[first];
        first = index_.FirstThatFits(room, first);
      }
    }
  }

  // Largest groups first.
  uint8_t* WriteGroups(uint8_t* stream) {
    std::array<uint16_t, kMaxGroup> counts = {};
    uint8_t* const header = stream;
    stream += sizeof(counts);
    const auto size_of = [&](size_t group) {
      const size_t end = group + 1 < group_begins_.size() ? group_begins_[group + 1] : grouped_.size();
      return end - group_begins_[group];
    };
    for (size_t size = kMaxGroup; size > 0; --size) {
      for (size_t group = 0; group < group_begins_.size(); ++group) {
        if (size_of(group) != size) continue;
        ++counts[kMaxGroup - size];
        for (size_t i = 0; i < size; ++i, stream += sizeof(Item)) {
          std::memcpy(stream, &items_[grouped_[group_begins_[group] + i]], sizeof(Item));
        }
      }
    }
    std::memcpy(header, counts.data(), sizeof(counts));
    return stream;
  }

  ScheduleShape shape_;
  Load<kColumns> capacity_;
  std::vector<Item> items_;
  std::vector<Load<kColumns>> loads_;  // of the items
  std::vector<uint16_t> weights_;      // the heaviest lanes
  int heaviest_ = 0;                   // of all
  std::vector<uint32_t> order_;        // items, heaviest first
  std::vector<Load<kColumns>> sorted_loads_;  // in that order
  ItemIndex<kColumns> index_;                 // of them
  std::vector<uint32_t> grouped_;             // items, group by group
  std::vector<uint32_t> group_begins_;        // in grouped_
};

// Calls write(strip_columns) with strip_columns as a constant, which the scheduler is compiled for.
template <class Function>
auto WithColumns(int strip_columns, Function function) {
  if (strip_columns == 1) return function(std::integral_constant<int, 1>());
  if (strip_columns == 2) return function(std::integral_constant<int, 2>());
  return function(std::integral_constant<int, 4>());
}

}  // namespace

template <int kColumns>
bool ScheduledWeights::BuildStrips(const PackedWeights& weights) {
  StripScheduler<kColumns> scheduler(shape_);
  const int64_t window_quads = std::min(weights.quads(), shape_.window_quads);
  const int64_t most_bytes = kPanelColumns / kColumns * StripScheduler<kColumns>::MostBytes(window_quads);
  uint8_t* stream = nullptr;
  uint8_t* block_end = nullptr;
  for (int64_t window = 0; window < windows_; ++window) {
    const int64_t begin = window * window_quads;
    const int64_t end = std::min(weights.quads(), begin + window_quads);
    for (int64_t panel = 0; panel < panels_; ++panel) {
      if (block_end - stream < most_bytes) {
        const int64_t panels_left = windows_ * panels_ - std::ssize(strips_);
        const int64_t bytes = std::max(most_bytes, std::min(most_bytes * panels_left, kBlockBytes));
        AlignedBuffer<uint8_t>& block = blocks_.emplace_back();
        if (!block.Resize(static_cast<size_t>(bytes))) return false;
        stream = block.data();
        block_end = stream + bytes;
      }
      strips_.push_back(stream);
      for (int64_t column = panel * kPanelColumns; column < (panel + 1) * kPanelColumns; column += kColumns) {
        stream = scheduler.Write(weights, column, begin, end, stream, &statistics_);
      }
      bytes_ += stream - strips_.back();
    }
  }
  return true;
}

bool ScheduledWeights::Build(const PackedWeights& weights, const ScheduleShape& shape) noexcept {
  try {
    shape_ = shape;
    panels_ = weights.panels();
    windows_ = (weights.quads() + shape.window_quads - 1) / shape.window_quads;
    return WithColumns(shape.strip_columns, [&](auto columns) { return BuildStrips<columns>(weights); });
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace intact::kernels
