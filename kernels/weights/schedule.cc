#include "kernels/weights/schedule.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace intact::kernels {
namespace {

constexpr int kMaxPairLoad = 256;                  // −128 twice
constexpr int64_t kBlockBytes = int64_t{1} << 20;  // of the stream
constexpr int64_t kMaxStripColumns = 4;
constexpr int64_t kSampledColumns = 64;  // about so many tell what a schedule comes to

// Sums of weights of one sign in each int16 lane of a strip: of the pairs in a vector, up to four, the
// positive ones, then the negative ones. At most kMaxPairLoad·kMaxGroup each.
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

// The items of a strip that are in no group yet: which is the first that a group has room for?
//
// For each lane and level there is a row of bits, one per item: does it add at most that much to the lane?
// The items that fit a room are then the AND of one row per lane, and of those left. Levels are kLevel units
// of weight apart, so that the rows stay in L1; the few that pass them and do not fit are found by their
// loads.
template <int kColumns>
class ItemIndex {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  /// Starts over with items that have these loads, none above `heaviest`.
  void Reset(std::span<const Load<kColumns>> loads, int heaviest) {
    loads_ = loads;
    heaviest_ = static_cast<int16_t>(heaviest);
    words_ = (loads.size() + kWordBits - 1) / kWordBits;
    first_word_ = 0;
    left_.assign(words_, ~uint64_t{0});
    if (loads.size() % kWordBits != 0) left_.back() >>= kWordBits - loads.size() % kWordBits;
    rows_.assign((static_cast<size_t>(heaviest) / kLevel + 1) * kLanes * words_, 0);
    for (size_t item = 0; item < loads.size(); ++item) {
      const auto rows = RowsAt(loads[item]);
      for (const size_t row : rows) rows_[row + item / kWordBits] |= uint64_t{1} << item % kWordBits;
    }
    // So far those of each level alone: each takes over those of the level below.
    const size_t level_words = kLanes * words_;
    for (size_t i = level_words; i < rows_.size(); i += 2) {
      auto* const level = reinterpret_cast<__m128i*>(&rows_[i]);
      const auto* const below = reinterpret_cast<const __m128i*>(&rows_[i - level_words]);
      _mm_storeu_si128(level, _mm_or_si128(_mm_loadu_si128(level), _mm_loadu_si128(below)));
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
    const auto rows = RowsAt(room.AtMost(heaviest_));
    for (size_t word = begin / kWordBits; word < words_; ++word) {
      uint64_t candidates = left_[word];
      for (const size_t row : rows) candidates &= rows_[row + word];
      for (; candidates != 0; candidates &= candidates - 1) {
        const size_t item = word * kWordBits + static_cast<size_t>(std::countr_zero(candidates));
        if (loads_[item].Fits(room)) return item;
      }
    }
    return kNone;
  }

 private:
  static constexpr size_t kLanes = Load<kColumns>::kLanes;
  static constexpr size_t kLevel = 2;
  static constexpr size_t kWordBits = 64;

  // Where the rows of the load's levels begin.
  std::array<size_t, kLanes> RowsAt(const Load<kColumns>& load) const {
    const auto lanes = load.ToLanes();
    std::array<size_t, kLanes> rows;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      rows[lane] = (static_cast<size_t>(lanes[lane]) / kLevel * kLanes + lane) * words_;
    }
    return rows;
  }

  std::span<const Load<kColumns>> loads_;
  int16_t heaviest_ = 0;
  size_t words_ = 0;       // of a row
  size_t first_word_ = 0;  // that may have an item left
  std::vector<uint64_t> left_;
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
    // A group of kMaxGroup items cannot exceed this, which int16 loads hold.
    constexpr int kMost = kMaxPairLoad * kMaxGroup;
    capacity_ = Load<kColumns>(std::min(capacity.positive, kMost), std::min(capacity.negative, kMost));
    const auto most = static_cast<size_t>(most_items_);
    items_.resize(most);
    heaviest_.resize(most);
    loads_.resize(most);
    order_.resize(most);
    sorted_loads_.resize(most);
  }

  /// The most that a strip takes.
  int64_t MostBytes() const { return kStripHeaderBytes + most_items_ * static_cast<int64_t>(sizeof(Item)); }

  /// Writes the strip of columns [column, column + kColumns) in `window` to `stream`; returns the end of it.
  uint8_t* Write(const PackedWeights& weights, int64_t column, int64_t window, uint8_t* stream,
                 ScheduleStatistics* statistics) {
    const int64_t begin = window * spec_.window_quads;
    const int64_t end = std::min(weights.quads(), begin + spec_.window_quads);
    CollectItems(weights, column, begin, end);
    SortItems();
    FormGroups();
    statistics->quads += (end - begin) * kColumns;
    statistics->items += static_cast<int64_t>(item_count_) * kColumns;
    statistics->groups += std::ssize(groups_) * kColumns;
    return WriteGroups(stream);
  }

  /// Items of the largest group that Write() has written last; 0 if there is none.
  int LargestGroup() const {
    const auto smaller = [](const Group& a, const Group& b) { return a.size < b.size; };
    const auto largest = std::max_element(groups_.begin(), groups_.end(), smaller);
    return largest == groups_.end() ? 0 : static_cast<int>(largest->size);
  }

 private:
  struct Item {       // as in the stream
    uint32_t offset;  // of its quad
    std::array<int8_t, kColumns * kQuad> weights;
  };
  static_assert(sizeof(Item) == 4 + kColumns * kQuad);
  struct Group {
    uint32_t size = 0;
    std::array<uint32_t, kMaxGroup> items;
  };

  // A quad has no more: w − zb is the sum of at most three weights; and each may be split.
  static int64_t MostItems(const ScheduleSpec& spec) { return spec.zero_points == nullptr ? 2 : 6; }

  void CollectItems(const PackedWeights& weights, int64_t column, int64_t begin, int64_t end) {
    item_count_ = 0;
    const int8_t* panel = weights.Panel(column / kPanelColumns) + column % kPanelColumns * kQuad;
    const bool folds = spec_.zero_points != nullptr;
    if (folds) SetZeroPoints(column, weights.n);
    for (int64_t quad = begin; quad < end; ++quad) {
      Item item;
      item.offset = OffsetOf(weights.quads(), column, quad, begin);
      std::memcpy(item.weights.data(), panel + quad * kPanelQuadBytes, sizeof(item.weights));
      folds ? AddFolded(item) : AddOrSplit(item);
    }
  }

  // Takes the strip's. Columns beyond the last are dropped: they keep their zeros.
  void SetZeroPoints(int64_t column, int64_t columns) {
    zero_points_.fill(0);
    const auto count = static_cast<size_t>(std::clamp<int64_t>(columns - column, 0, kColumns));
    for (size_t i = 0; i < count * kQuad; ++i) {
      zero_points_[i] = spec_.zero_points[static_cast<size_t>(column) + i / kQuad];
    }
  }

  // As items whose weights add up to the item's less their zero points.
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

  void AddOrSplit(const Item& item) {
    const Load<kColumns> load(item.weights.data());
    if (load.Fits(capacity_)) {
      Add(item, load);
    } else {
      Split(item, load);
    }
  }

  void Add(const Item& item, const Load<kColumns>& load) {
    const int heaviest = load.Heaviest();
    items_[item_count_] = item;
    loads_[item_count_] = load;
    heaviest_[item_count_] = static_cast<uint16_t>(heaviest);
    if (heaviest != 0) ++item_count_;  // else all zeros: contributes nothing
  }

  uint32_t OffsetOf(int64_t quads, int64_t column, int64_t quad, int64_t begin) const {
    if (spec_.group_columns == 0) return static_cast<uint32_t>((quad - begin) * spec_.rows * kQuad);
    return static_cast<uint32_t>(column / spec_.group_columns * quads + quad);
  }

  // Leaves as much of each heavy pair in the first item as fits, and moves the rest to a second, light one. A
  // weight alone is never too heavy, so both of a heavy pair have one sign, and the larger can give it all.
  void Split(Item item, const Load<kColumns>& load) {
    Item rest = {item.offset, {}};
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

  // Heaviest first, by counting; equals keep their order.
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

  // First fit, heaviest first: an item joins the first group that has room for it. The same group by group:
  // each takes the first item left that fits, until it is full or none does.
  void FormGroups() {
    index_.Reset({sorted_loads_.data(), item_count_}, heaviest_of_all_);
    groups_.clear();
    for (size_t first = index_.First(); first != ItemIndex<kColumns>::kNone; first = index_.First()) {
      Group group;
      Load<kColumns> room = capacity_;
      while (true) {
        group.items[group.size++] = order_[first];
        index_.Remove(first);
        if (group.size == kMaxGroup) break;
        room = room - sorted_loads_[first];
        first = index_.FirstThatFits(room, first);
        if (first == ItemIndex<kColumns>::kNone) break;
      }
      groups_.push_back(group);
    }
  }

  // Largest groups first.
  uint8_t* WriteGroups(uint8_t* stream) {
    std::array<uint16_t, kMaxGroup> counts = {};
    for (const Group& group : groups_) ++counts[kMaxGroup - group.size];
    std::memcpy(stream, counts.data(), sizeof(counts));
    stream += sizeof(counts);
    std::array<uint8_t*, kMaxGroup> ends;
    for (size_t i = 0; i < counts.size(); ++i) {
      ends[i] = stream;
      stream += counts[i] * (kMaxGroup - i) * sizeof(Item);
    }
    for (const Group& group : groups_) {
      uint8_t*& end = ends[kMaxGroup - group.size];
      for (size_t i = 0; i < group.size; ++i, end += sizeof(Item)) {
        std::memcpy(end, &items_[group.items[i]], sizeof(Item));
      }
    }
    return stream;
  }

  ScheduleSpec spec_;
  int64_t most_items_;
  Load<kColumns> capacity_;
  std::array<int32_t, kColumns* kQuad> zero_points_ = {};  // of each weight of an item
  size_t item_count_ = 0;
  std::vector<Item> items_;
  std::vector<Load<kColumns>> loads_;  // of each
  std::vector<uint16_t> heaviest_;     // of the lanes of each
  int heaviest_of_all_ = 0;
  std::vector<uint32_t> order_;               // items, heaviest first
  std::vector<Load<kColumns>> sorted_loads_;  // in that order
  ItemIndex<kColumns> index_;                 // of them
  std::vector<Group> groups_;
};

int64_t Windows(const PackedWeights& weights, const ScheduleSpec& spec) {
  return (weights.quads() + spec.window_quads - 1) / spec.window_quads;
}

// Calls function(strip_columns), a constant that it is compiled for.
template <class Function>
auto WithColumns(int strip_columns, Function function) {
  if (strip_columns == 1) return function(std::integral_constant<int, 1>());
  if (strip_columns == 2) return function(std::integral_constant<int, 2>());
  return function(std::integral_constant<int, 4>());
}

}  // namespace

template <int kColumns>
bool ScheduledWeights::BuildStrips(const PackedWeights& weights) {
  const int64_t window_quads = std::min(weights.quads(), spec_.window_quads);
  StripScheduler<kColumns> scheduler(spec_, window_quads);
  const int64_t most_bytes = kPanelColumns / kColumns * scheduler.MostBytes();
  uint8_t* stream = nullptr;
  uint8_t* block_end = nullptr;
  for (int64_t window = 0; window < windows_; ++window) {
    for (int64_t panel = 0; panel < panels_; ++panel) {
      if (block_end - stream < most_bytes) {
        const int64_t panels_left = windows_ * panels_ - std::ssize(strips_);
        const int64_t bytes = std::max(most_bytes, std::min(most_bytes * panels_left, kBlockBytes));
        AlignedBuffer<uint8_t>& block = blocks_.emplace_back().data;
        if (!block.Resize(static_cast<size_t>(bytes))) return false;
        stream = block.data();
        block_end = stream + bytes;
      }
      strips_.push_back(stream);
      for (int64_t column = panel * kPanelColumns; column < (panel + 1) * kPanelColumns; column += kColumns) {
        stream = scheduler.Write(weights, column, window, stream, &statistics_);
        largest_group_ = std::max(largest_group_, scheduler.LargestGroup());
      }
      bytes_ += stream - strips_.back();
      blocks_.back().used = static_cast<size_t>(stream - blocks_.back().data.data());
    }
  }
  return true;
}

bool ScheduledWeights::Build(const PackedWeights& weights, const ScheduleSpec& spec) noexcept {
  try {
    spec_ = spec;
    panels_ = weights.panels();
    windows_ = Windows(weights, spec);
    quads_ = weights.quads();
    return WithColumns(spec.strip_columns, [&](auto columns) { return BuildStrips<columns>(weights); });
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool ScheduledWeights::CopyFrom(const ScheduledWeights& other) noexcept {
  try {
    spec_ = other.spec_;
    statistics_ = other.statistics_;
    windows_ = other.windows_;
    panels_ = other.panels_;
    quads_ = other.quads_;
    bytes_ = other.bytes_;
    largest_group_ = other.largest_group_;
    auto strips = other.strips_.begin();
    for (const Block& from : other.blocks_) {
      Block& block = blocks_.emplace_back();
      block.used = from.used;
      if (!block.data.Resize(block.used)) return false;
      const uint8_t* const begin = from.data.data();
      std::memcpy(block.data.data(), begin, block.used);
      for (; strips != other.strips_.end() && *strips >= begin && *strips < begin + block.used; ++strips) {
        strips_.push_back(block.data.data() + (*strips - begin));
      }
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void ScheduledWeights::Relocate(const PlanarAccess& planar) noexcept {
  const int64_t item_bytes = 4 + int64_t{kQuad} * spec_.strip_columns;
  for (const uint8_t* const strips : strips_) {
    auto* item = const_cast<uint8_t*>(strips);  // in blocks_
    for (int strip = 0; strip < kPanelColumns / spec_.strip_columns; ++strip) {
      std::array<uint16_t, kMaxGroup> counts;
      std::memcpy(counts.data(), item, sizeof(counts));
      item += kStripHeaderBytes;
      int64_t items = 0;
      for (int64_t i = 0; i < kMaxGroup; ++i) items += counts[static_cast<size_t>(i)] * (kMaxGroup - i);
      for (; items > 0; --items, item += item_bytes) {
        uint32_t number = 0;
        std::memcpy(&number, item, sizeof(number));
        const uint32_t offset = planar.quad_offsets[static_cast<size_t>(number % quads_)] +
                                static_cast<uint32_t>(number / quads_ * planar.group_bytes);
        std::memcpy(item, &offset, sizeof(offset));
      }
    }
  }
}

std::optional<ScheduleStatistics> EstimateSchedule(const PackedWeights& weights,
                                                   const ScheduleSpec& spec) noexcept {
  // Columns in units that strips of any width divide.
  const int64_t units = weights.panels() * kPanelColumns / kMaxStripColumns;
  const int64_t step = std::max<int64_t>(units / (kSampledColumns / kMaxStripColumns), 1);
  try {
    return WithColumns(spec.strip_columns, [&](auto columns) {
      StripScheduler<columns> scheduler(spec, std::min(weights.quads(), spec.window_quads));
      std::vector<uint8_t> stream(static_cast<size_t>(scheduler.MostBytes()));
      ScheduleStatistics statistics;
      for (int64_t window = 0; window < Windows(weights, spec); ++window) {
        for (int64_t unit = 0; unit < units; unit += step) {
          for (int64_t i = 0; i < kMaxStripColumns; i += columns) {
            scheduler.Write(weights, unit * kMaxStripColumns + i, window, stream.data(), &statistics);
          }
        }
      }
      return statistics;
    });
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

}  // namespace intact::kernels
