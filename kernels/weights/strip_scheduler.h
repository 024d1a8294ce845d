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
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/weights/pack.h"
#include "kernels/weights/schedule_spec.h"

namespace intact::kernels {

inline constexpr int kMaxPairLoad = 256;  // two weights of −128

// Sums of weights of one sign in each int16 lane of a strip. The positive sums of up to eight pairs come before
// their negative sums. A sum is at most kMaxPairLoad·kMaxGroup.
template <int kColumns>
class Load {
 public:
  static constexpr size_t kLanes = kColumns * 4;  // columns × 2 pairs × 2 signs
  static constexpr size_t kVectors = (kLanes + 7) / 8;
  using Lanes = std::array<int16_t, kVectors * 8>;

  Load() { std::fill_n(vectors_, kVectors, _mm_setzero_si128()); }

  /// The load of an item with these weights.
  [[gnu::target("avx2"), gnu::always_inline]] explicit Load(const int8_t* weights) {
    constexpr size_t kBytes = std::min<size_t>(2 * kPairsAtOnce, 16);
    for (size_t i = 0; i < kLanes / 2 / kPairsAtOnce; ++i) {
      __m128i bytes;
      if constexpr (kBytes == 4) bytes = _mm_loadu_si32(weights);
      if constexpr (kBytes == 8) bytes = _mm_loadu_si64(weights);
      if constexpr (kBytes == 16) bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + 16 * i));
      const __m128i zero = _mm_setzero_si128();
      const __m128i ones = _mm_set1_epi8(1);
      const __m128i positive = _mm_maddubs_epi16(ones, _mm_max_epi8(bytes, zero));
      const __m128i negative = _mm_sub_epi16(zero, _mm_maddubs_epi16(ones, _mm_min_epi8(bytes, zero)));
      if constexpr (kBytes == 4) vectors_[0] = _mm_unpacklo_epi32(positive, negative);
      if constexpr (kBytes == 8) vectors_[0] = _mm_unpacklo_epi64(positive, negative);
      if constexpr (kBytes == 16) {
        vectors_[2 * i] = positive;
        vectors_[2 * i + 1] = negative;
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

  Lanes ToLanes() const {
    Lanes lanes;
    std::memcpy(lanes.data(), vectors_, sizeof(lanes));
    return lanes;
  }

  using Bytes = std::array<uint8_t, kVectors * 8>;
  /// The lanes, at most 255 each.
  Bytes ToBytes() const {
    Bytes bytes;
    for (size_t i = 0; i < kVectors; ++i) {
      _mm_storeu_si64(&bytes[8 * i], _mm_packus_epi16(vectors_[i], vectors_[i]));
    }
    return bytes;
  }

  /// The lane of a pair's sum of one sign, and the pair and the sign of a lane.
  static size_t Lane(size_t pair, int sign) {
    return pair / kPairsAtOnce * 2 * kPairsAtOnce + pair % kPairsAtOnce + (sign > 0 ? 0 : kPairsAtOnce);
  }
  static size_t PairOf(size_t lane) { return lane / (2 * kPairsAtOnce) * kPairsAtOnce + lane % kPairsAtOnce; }
  static int SignOf(size_t lane) { return lane / kPairsAtOnce % 2 == 0 ? 1 : -1; }

  /// A bit for each lane in which the load is more than `room`.
  uint64_t Beyond(const Load& room) const {
    uint64_t lanes = 0;
    for (size_t i = 0; i < kVectors; ++i) {
      const __m128i beyond = _mm_cmpgt_epi16(vectors_[i], room.vectors_[i]);
      const int of_vector = _mm_movemask_epi8(_mm_packs_epi16(beyond, _mm_setzero_si128()));
      lanes |= static_cast<uint64_t>(of_vector) << (8 * i);
    }
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

  Load operator+(const Load& other) const {
    Load sum;
    for (size_t i = 0; i < kVectors; ++i) sum.vectors_[i] = _mm_add_epi16(vectors_[i], other.vectors_[i]);
    return sum;
  }

  Load operator-(const Load& other) const {
    Load rest;
    for (size_t i = 0; i < kVectors; ++i) rest.vectors_[i] = _mm_sub_epi16(vectors_[i], other.vectors_[i]);
    return rest;
  }

  /// Whether all weights are 0.
  bool IsZero() const {
    __m128i any = vectors_[0];
    for (const __m128i& vector : vectors_) any = _mm_or_si128(any, vector);
    return _mm_movemask_epi8(_mm_cmpeq_epi8(any, _mm_setzero_si128())) == 0xffff;
  }

  [[gnu::target("avx2")]] int Heaviest() const {
    __m128i most = vectors_[0];
    for (const __m128i& vector : vectors_) most = _mm_max_epi16(most, vector);
    return 0xffff - _mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(most, _mm_set1_epi8(-1))), 0);
  }

 private:
  static constexpr size_t kPairsAtOnce = std::min<size_t>(kLanes / 2, 8);

  __m128i vectors_[kVectors];
};

// The groups of a strip, with the room that each group has left. Finds the first group with room for an item.
//
// A chunk has 32 groups. For each lane of a load, it has a vector with the rooms of the groups, at most 255
// each. Comparing each lane gives a mask of the groups that may have room. Groups that no item has joined are
// open too. If no group has room, a chunk is added.
template <int kColumns>
class OpenGroups {
 public:
  struct Group {
    uint32_t size = 0;
    std::array<uint32_t, kMaxGroup> items;
  };

  /// For groups of at most `most` items, whose loads add up to at most `capacity`.
  OpenGroups(const Load<kColumns>& capacity, size_t most)
      : capacity_(capacity),
        most_(most),
        is_exact_(capacity.Fits({255, 255})),
        fits_all_(Load<kColumns>(kMaxPairLoad * static_cast<int>(most), kMaxPairLoad * static_cast<int>(most))
                      .Fits(capacity)) {}

  /// Begins a strip.
  void Clear() {
    first_chunk_ = chunks_ = 0;
    groups_.clear();
  }

  /// Puts `item` into the first group that has room for the item. An empty group has room for any single item. `bytes` are
  /// load.ToBytes(), in memory.
  [[gnu::target("avx2"), gnu::always_inline]] void Put(uint32_t item, const Load<kColumns>& load,
                                                       const typename Load<kColumns>::Bytes& bytes) {
    const size_t number = fits_all_ ? groups_.size() - (IsLastOpen() ? 1 : 0) : Join(load, bytes);
    if (number == groups_.size()) groups_.emplace_back();
    Group& group = groups_[number];
    group.items[group.size++] = item;
    if (group.size == most_ && !fits_all_) Close(number);
  }

  const std::vector<Group>& groups() const { return groups_; }

 private:
  static constexpr size_t kLanes = Load<kColumns>::kLanes;
  static constexpr size_t kLanesAtOnce = std::min<size_t>(kLanes, 8);
  static constexpr size_t kChunk = 32;  // groups: bytes of a vector

  bool IsLastOpen() const { return !groups_.empty() && groups_.back().size < most_; }

  // Subtracts `load` from the rooms of the first group that has room for `load`. Returns the group's number.
  [[gnu::target("avx2"), gnu::always_inline]] size_t Join(const Load<kColumns>& load,
                                                          const typename Load<kColumns>::Bytes& lanes) {
    for (size_t chunk = first_chunk_;; ++chunk) {
      if (chunk == chunks_) AddChunk();
      __m256i* const rooms = RoomsOf(chunk);
      __m256i beyond = _mm256_setzero_si256();
      uint32_t may_fit = ~uint32_t{0};
      for (size_t begin = 0; begin < kLanes && may_fit != 0; begin += kLanesAtOnce) {
#pragma GCC unroll 8
        for (size_t i = begin; i < begin + kLanesAtOnce; ++i) {
          const __m256i lane = _mm256_set1_epi8(static_cast<char>(lanes[i]));
          beyond = _mm256_or_si256(beyond, _mm256_subs_epu8(lane, _mm256_loadu_si256(rooms + i)));
        }
        const __m256i fits = _mm256_cmpeq_epi8(beyond, _mm256_setzero_si256());
        may_fit = static_cast<uint32_t>(_mm256_movemask_epi8(fits));
      }
      for (; may_fit != 0; may_fit &= may_fit - 1) {
        const auto place = static_cast<size_t>(std::countr_zero(may_fit));
        const size_t number = chunk * kChunk + place;
        if (is_exact_) {
          Subtract(lanes, place, rooms);
        } else {
          if (!load.Fits(rooms_[number])) continue;  // 255 stood for a larger load or room
          rooms_[number] = rooms_[number] - load;
          SetBytes(rooms_[number].ToBytes(), place, rooms);
        }
        return number;
      }
    }
  }

  // Leaves no room in a group.
  [[gnu::target("avx2"), gnu::always_inline]] void Close(size_t number) {
    SetBytes({}, number % kChunk, RoomsOf(number / kChunk));
    ++closed_[number / kChunk];
    while (first_chunk_ < chunks_ && closed_[first_chunk_] == kChunk) ++first_chunk_;
  }

  // A vector for each lane: the rooms of a chunk.
  __m256i* RoomsOf(size_t chunk) { return reinterpret_cast<__m256i*>(&bytes_[chunk * kLanes * kChunk]); }

  // A mask of one byte of a vector.
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i MaskOf(size_t place) {
    alignas(64) static constexpr auto kMasks = [] {
      std::array<uint8_t, 2 * kChunk> masks = {};
      masks[kChunk] = 0xff;
      return masks;
    }();
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&kMasks[kChunk - place]));
  }

  // Whole vectors are stored, because the next item loads them: CPUs do not forward bytes to vectors.
  [[gnu::target("avx2"), gnu::always_inline]] static void Subtract(const typename Load<kColumns>::Bytes& load,
                                                                   size_t place, __m256i* rooms) {
    const __m256i mask = MaskOf(place);
#pragma GCC unroll 8
    for (size_t i = 0; i < kLanes; ++i) {
      const __m256i lane = _mm256_and_si256(_mm256_set1_epi8(static_cast<char>(load[i])), mask);
      _mm256_storeu_si256(rooms + i, _mm256_sub_epi8(_mm256_loadu_si256(rooms + i), lane));
    }
  }
  [[gnu::target("avx2"), gnu::always_inline]] static void SetBytes(const typename Load<kColumns>::Bytes& room,
                                                                   size_t place, __m256i* rooms) {
    const __m256i mask = MaskOf(place);
#pragma GCC unroll 8
    for (size_t i = 0; i < kLanes; ++i) {
      const __m256i lane = _mm256_set1_epi8(static_cast<char>(room[i]));
      _mm256_storeu_si256(rooms + i, _mm256_blendv_epi8(_mm256_loadu_si256(rooms + i), lane, mask));
    }
  }

  void AddChunk() {
    const size_t begin = chunks_ * kLanes * kChunk;
    ++chunks_;
    if (closed_.size() < chunks_) {
      closed_.resize(chunks_);
      bytes_.resize(begin + kLanes * kChunk);
      rooms_.resize(chunks_ * kChunk);
    }
    closed_[chunks_ - 1] = 0;
    const auto room = capacity_.ToBytes();
    for (size_t i = 0; i < kLanes; ++i) std::fill_n(&bytes_[begin + i * kChunk], kChunk, room[i]);
    if (!is_exact_) std::fill_n(&rooms_[(chunks_ - 1) * kChunk], kChunk, capacity_);
  }

  Load<kColumns> capacity_;
  size_t most_;
  bool is_exact_;  // bytes hold all loads and rooms; rooms_ is then not used
  bool fits_all_;  // any group of most_ items: there are then no chunks
  size_t chunks_ = 0;
  size_t first_chunk_ = 0;             // the first chunk that may have an open group
  std::vector<uint8_t> bytes_;         // [chunk][lane][kChunk]: rooms
  std::vector<Load<kColumns>> rooms_;  // [group], unless is_exact_
  std::vector<uint8_t> closed_;        // [chunk]: groups without room
  std::vector<Group> groups_;
};

// Turns strips into groups; keeps its memory from strip to strip. Each item waits for the room that the one
// before it has left, so narrow strips are scheduled two at a time: the next strip of the panel is kept.
template <int kColumns>
class StripScheduler {
 public:
  /// For strips of at most `quads`.
  StripScheduler(const ScheduleSpec& spec, int64_t quads)
      : spec_(spec),
        most_items_(MostItems(spec) * quads),
        capacity_(CapacityOf(spec)),
        most_load_(static_cast<size_t>(std::min(capacity_.Heaviest(), kMaxPairLoad))),
        strips_(kAtOnce, Strip(capacity_, spec.largest_group, static_cast<size_t>(most_items_))) {
    heaviest_.resize(static_cast<size_t>(most_items_));
  }

  struct Item {
    uint32_t quad;  // its number in the window; if A is a planar band, see ScheduleSpec::group_columns
    std::array<int8_t, kColumns * kQuad> weights;
  };
  using Group = typename OpenGroups<kColumns>::Group;

  /// The largest number of items that a strip can have in a window.
  int64_t MostItems() const { return most_items_; }

  /// Schedules columns [column, column + kColumns) in `window`, and adds its sizes to `statistics`. All calls
  /// have the same weights.
  void Schedule(const PackedWeights& weights, int64_t column, int64_t window,
                ScheduleStatistics* statistics) {
    if (std::exchange(kept_, {-1, -1}) == std::pair(column, window)) {
      current_ = 1;
    } else {
      const bool has_next = kAtOnce == 2 && (column + kColumns) % kPanelColumns != 0;
      if (has_next) {
        kept_ = {column + kColumns, window};
        current_ = kAtOnce - 1;
        CollectItems(weights, column + kColumns, window);
        SortItems();
      }
      current_ = 0;
      CollectItems(weights, column, window);
      SortItems();
      FillGroups(has_next);
    }
    ArrangeGroups();
    AddSizes(weights, window, statistics);
  }

  /// As Schedule(), but in the order of AppendOrder() at the begin of `order`. Removes this order from
  /// `order`. INVALID_ARGUMENT unless it is an order of all items, no group has more than spec.largest_group
  /// items, and no group can leave int16.
  Error Restore(const PackedWeights& weights, int64_t column, int64_t window, std::span<const uint8_t>* order,
                ScheduleStatistics* statistics) {
    kept_ = {-1, -1};
    current_ = 0;
    CollectItems(weights, column, window);
    const char* const fault = HasByteOrder() ? ReadOrder<uint8_t>(order) : ReadOrder<uint16_t>(order);
    if (fault != nullptr) {
      return {INTACT_INVALID_ARGUMENT, "corrupted: the schedule of columns " + std::to_string(column) +
                                           " to " + std::to_string(column + kColumns - 1) + ", window " +
                                           std::to_string(window) + ", " + fault};
    }
    AddSizes(weights, window, statistics);
    return {};
  }

  // The functions below describe the result of the last Schedule() or Restore().

  int64_t item_count() const { return static_cast<int64_t>(strip().item_count); }
  /// The numbers of groups of kMaxGroup items, of one item less, and so on down to one item.
  const std::array<uint16_t, kMaxGroup>& counts() const { return strip().counts; }
  /// Item number `place`, in the order of `counts()`.
  const Item& item(int64_t place) const {
    return strip().items[strip().sequence[static_cast<size_t>(place)]];
  }
  /// The number of items in the largest group; 0 without groups.
  int LargestGroup() const {
    for (size_t i = 0; i < counts().size(); ++i) {
      if (counts()[i] != 0) return kMaxGroup - static_cast<int>(i);
    }
    return 0;
  }
  /// Appends the order to `order`: counts(), then the number of each item in the order of the weights, as u8 if
  /// there are fewer than 256 items, else as u16.
  void AppendOrder(std::vector<uint8_t>* order) const {
    const auto append = [&](auto number) {
      const size_t end = order->size();
      order->resize(end + sizeof(number));
      std::memcpy(&(*order)[end], &number, sizeof(number));
    };
    const auto append_as = [&](uint32_t number) {
      HasByteOrder() ? append(static_cast<uint8_t>(number)) : append(static_cast<uint16_t>(number));
    };
    for (const uint16_t count : counts()) append_as(count);
    for (size_t i = 0; i < strip().item_count; ++i) append_as(strip().sequence[i]);
  }
  /// Of Schedule() only: the groups in the order in which they were found, with the items' numbers.
  const std::vector<Group>& groups() const { return strip().open_groups.groups(); }
  const Item& found_item(uint32_t number) const { return strip().items[number]; }

 private:
  static constexpr size_t kAtOnce = kColumns <= 2 ? 2 : 1;

  struct Strip {
    Strip(const Load<kColumns>& capacity, int largest_group, size_t most_items)
        : items(most_items),
          loads(most_items),
          order(most_items),
          sorted_bytes(most_items),
          open_groups(capacity, static_cast<size_t>(largest_group)),
          sequence(most_items) {}
    /// Puts the item at this place of `order` into a group.
    [[gnu::target("avx2"), gnu::always_inline]] void Put(size_t place) {
      open_groups.Put(order[place], loads[order[place]], sorted_bytes[place]);
    }

    size_t item_count = 0;
    std::vector<Item> items;
    std::vector<Load<kColumns>> loads;                         // of each item
    std::vector<uint32_t> order;                               // items, heaviest first
    std::vector<typename Load<kColumns>::Bytes> sorted_bytes;  // their loads
    OpenGroups<kColumns> open_groups;
    std::array<uint16_t, kMaxGroup> counts = {};
    std::vector<uint32_t> sequence;  // numbers of items, in the order of counts
  };
  // The most items of a quad: w − zb is a sum of at most three weights, and each item may be split.
  static int64_t MostItems(const ScheduleSpec& spec) { return spec.zero_points == nullptr ? 2 : 6; }

  static Load<kColumns> CapacityOf(const ScheduleSpec& spec) {
    const LaneCapacity capacity = CapacityFor(spec.saturates ? spec.amax : 1);
    // No group of kMaxGroup items exceeds this, and int16 loads hold it.
    constexpr int kMost = kMaxPairLoad * kMaxGroup;
    return {std::min(capacity.positive, kMost), std::min(capacity.negative, kMost)};
  }

  // [begin, end): the quads of a window.
  std::pair<int64_t, int64_t> QuadsOf(const PackedWeights& weights, int64_t window) const {
    const int64_t begin = window * spec_.window_quads;
    return {begin, std::min(weights.quads(), begin + spec_.window_quads)};
  }

  void AddSizes(const PackedWeights& weights, int64_t window, ScheduleStatistics* statistics) const {
    const auto [begin, end] = QuadsOf(weights, window);
    int64_t groups = 0;
    for (const uint16_t count : counts()) groups += count;
    statistics->quads += (end - begin) * kColumns;
    statistics->items += item_count() * kColumns;
    statistics->groups += groups * kColumns;
    statistics->order_bytes += static_cast<int64_t>(OrderBytes());
  }

  // Sets counts and sequence from the groups.
  void ArrangeGroups() {
    std::array<uint16_t, kMaxGroup>& counts = strip().counts;
    counts.fill(0);
    for (const Group& group : groups()) ++counts[kMaxGroup - group.size];
    std::array<size_t, kMaxGroup> places;  // where the next group of each size begins
    size_t place = 0;
    for (size_t i = 0; i < kMaxGroup; place += counts[i] * (kMaxGroup - i), ++i) places[i] = place;
    for (const Group& group : groups()) {
      size_t& at = places[kMaxGroup - group.size];
      std::copy_n(group.items.begin(), group.size, strip().sequence.begin() + static_cast<ptrdiff_t>(at));
      at += group.size;
    }
  }

  bool HasByteOrder() const { return strip().item_count < 256; }
  size_t OrderBytes() const { return (kMaxGroup + strip().item_count) * (HasByteOrder() ? 1 : 2); }

  // Sets counts and sequence from an order of Index numbers. Returns the fault of the order, or null.
  template <class Index>
  const char* ReadOrder(std::span<const uint8_t>* order) {
    const size_t bytes = OrderBytes();
    if (order->size() < bytes) return "is truncated";
    const uint8_t* from = order->data();
    *order = order->subspan(bytes);
    const auto read = [&from] {
      Index number;
      std::memcpy(&number, from, sizeof(number));
      from += sizeof(number);
      return number;
    };
    size_t items = 0;
    for (size_t i = 0; i < kMaxGroup; ++i) {
      strip().counts[i] = read();
      items += counts()[i] * (kMaxGroup - i);
    }
    if (LargestGroup() > spec_.largest_group) return "has too large a group";
    if (items != strip().item_count) return "has another number of items than the weights";
    is_placed_.assign(items, 0);
    const Load<kColumns>* const loads = strip().loads.data();
    uint32_t* place = strip().sequence.data();
    for (size_t i = 0; i < kMaxGroup; ++i) {
      for (int group = 0; group < counts()[i]; ++group) {
        Load<kColumns> load;
        for (size_t member = 0; member < kMaxGroup - i; ++member) {
          const uint32_t number = read();
          if (number >= items) return "has an item that the weights do not have";
          if (std::exchange(is_placed_[number], uint8_t{1}) != 0) return "repeats an item";
          load = load + loads[number];
          *place++ = number;
        }
        if (!load.Fits(capacity_)) return "has a group that can leave int16";
      }
    }
    return nullptr;
  }

  [[gnu::target("avx2")]] void CollectItems(const PackedWeights& weights, int64_t column, int64_t window) {
    const auto [begin, end] = QuadsOf(weights, window);
    Strip& to = strip();
    to.item_count = 0;
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
      folds ? AddFolded(item, &to) : AddOrSplit(item, &to);
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
  [[gnu::target("avx2")]] void AddFolded(Item item, Strip* to) {
    std::array<int, kColumns* kQuad> left = {};
    for (size_t i = 0; i < left.size(); ++i) left[i] = item.weights[i] - zero_points_[i];
    while (std::any_of(left.begin(), left.end(), [](int weight) { return weight != 0; })) {
      for (size_t i = 0; i < left.size(); ++i) {
        item.weights[i] = static_cast<int8_t>(std::clamp(left[i], -128, 127));
        left[i] -= item.weights[i];
      }
      AddOrSplit(item, to);
    }
  }

  // Always inlined, as is Add(): calls would make the creation of plans 5 % slower.
  [[gnu::target("avx2"), gnu::always_inline]] void AddOrSplit(const Item& item, Strip* to) {
    const Load<kColumns> load(item.weights.data());
    if (load.Fits(capacity_)) {
      Add(item, load, to);
    } else {
      Split(item, load, to);
    }
  }

  [[gnu::always_inline]] static void Add(const Item& item, const Load<kColumns>& load, Strip* to) {
    to->items[to->item_count] = item;
    to->loads[to->item_count] = load;
    if (!load.IsZero()) ++to->item_count;
  }

  uint32_t NumberOf(int64_t quads, int64_t column, int64_t quad, int64_t begin) const {
    if (spec_.group_columns == 0) return static_cast<uint32_t>(quad - begin);
    return static_cast<uint32_t>(column / spec_.group_columns * quads + quad);
  }

  // Leaves as much of each heavy pair in the first item as fits, and moves the excess to a second, light
  // item. A single weight is never too heavy. So both weights of a heavy pair have one sign, and the larger
  // weight can give the whole excess.
  [[gnu::target("avx2")]] void Split(Item item, const Load<kColumns>& load, Strip* to) {
    Item rest = {item.quad, {}};
    const auto excesses = (load - capacity_).ToLanes();
    for (uint64_t lanes = load.Beyond(capacity_); lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<size_t>(std::countr_zero(lanes));
      const size_t pair = Load<kColumns>::PairOf(lane);
      const int sign = Load<kColumns>::SignOf(lane);
      const bool is_first = sign * item.weights[2 * pair] >= sign * item.weights[2 * pair + 1];
      const size_t from = 2 * pair + (is_first ? 0 : 1);
      rest.weights[from] = static_cast<int8_t>(rest.weights[from] + sign * excesses[lane]);
      item.weights[from] = static_cast<int8_t>(item.weights[from] - sign * excesses[lane]);
    }
    Add(item, Load<kColumns>(item.weights.data()), to);
    Add(rest, Load<kColumns>(rest.weights.data()), to);
  }

  // Heaviest first: a counting sort that keeps the order of equals.
  [[gnu::target("avx2")]] void SortItems() {
    Strip& of = strip();
    std::array<uint32_t, kMaxPairLoad + 1> places;
    std::fill_n(places.begin(), most_load_ + 1, 0);
    uint16_t heaviest = 0;
    for (size_t i = 0; i < of.item_count; ++i) {
      heaviest_[i] = static_cast<uint16_t>(of.loads[i].Heaviest());
      ++places[heaviest_[i]];
      heaviest = std::max(heaviest, heaviest_[i]);
    }
    uint32_t heavier = 0;
    for (size_t load = heaviest; load > 0; --load) heavier += std::exchange(places[load], heavier);
    for (size_t i = 0; i < of.item_count; ++i) {
      const uint32_t place = places[heaviest_[i]]++;
      of.order[place] = static_cast<uint32_t>(i);
      of.sorted_bytes[place] = of.loads[i].ToBytes();
    }
    of.open_groups.Clear();
  }

  [[gnu::target("avx2")]] void FillGroups(bool both) {
    size_t begin = 0;
    if constexpr (kAtOnce == 2) {
      if (both) begin = std::min(strips_[0].item_count, strips_[1].item_count);
      for (size_t i = 0; i < begin; ++i) {
        strips_[0].Put(i);
        strips_[1].Put(i);
      }
    }
    for (Strip& strip : std::span(strips_).first(both ? kAtOnce : 1)) {
      for (size_t i = begin; i < strip.item_count; ++i) strip.Put(i);
    }
  }

  Strip& strip() { return strips_[current_]; }
  const Strip& strip() const { return strips_[current_]; }

  ScheduleSpec spec_;
  int64_t most_items_;
  Load<kColumns> capacity_;
  size_t most_load_;                                       // of a lane of an item
  std::array<int32_t, kColumns* kQuad> zero_points_ = {};  // of each weight of an item
  std::vector<int8_t> widened_;                            // a strip wider than its narrow panel
  std::vector<uint16_t> heaviest_;                         // the heaviest lane of each item
  std::vector<Strip> strips_;
  size_t current_ = 0;                           // the strip that is described
  std::pair<int64_t, int64_t> kept_ = {-1, -1};  // column and window of strips_[1], if it was scheduled too
  std::vector<uint8_t> is_placed_;               // of ReadOrder(): whether each item has been read
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
