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
#include <numeric>
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
  using Weights = std::array<int8_t, kColumns * kQuad>;

  Load() { std::fill_n(vectors_, kVectors, _mm_setzero_si128()); }

  /// A load with these sums in each pair.
  Load(int positive, int negative) {
    const __m128i positives = _mm_set1_epi16(static_cast<int16_t>(positive));
    const __m128i negatives = _mm_set1_epi16(static_cast<int16_t>(negative));
    for (size_t i = 0; i < kVectors; i += 2) Set(i, positives, negatives);
  }

  /// The load of an item with these weights.
  [[gnu::target("avx2"), gnu::always_inline]] explicit Load(const Weights& weights) {
    for (size_t i = 0; i < kVectors; i += 2) {
      const __m128i bytes = LoadBytes(weights, i);
      Set(i, SumsOf(bytes, 1), SumsOf(bytes, -1));
    }
  }

  /// This is the load of `weights`. Moves the excess over `capacity` from `weights` to `rest`, and out of this
  /// load. Returns the load of `rest`. The two weights of a heavy pair have one sign, because a
  /// single weight is never too heavy. So the larger weight can give the whole excess.
  [[gnu::target("avx2"), gnu::always_inline]] Load Split(const Load& capacity, Weights* weights,
                                                         Weights* rest) {
    Load moved;
    for (size_t i = 0; i < kVectors; i += 2) {
      const __m128i bytes = LoadBytes(*weights, i);
      const __m128i first = _mm_srai_epi16(_mm_slli_epi16(bytes, 8), 8), second = _mm_srai_epi16(bytes, 8);
      const __m128i positive = _mm_subs_epu16(Positives(i), capacity.Positives(i));
      const __m128i negative = _mm_subs_epu16(Negatives(i), capacity.Negatives(i));
      const __m128i give =
          _mm_or_si128(OfByte(positive, _mm_cmpgt_epi16(second, first)),
                       OfByte(_mm_sub_epi16(_mm_setzero_si128(), negative), _mm_cmpgt_epi16(first, second)));
      StoreBytes(give, i, rest);
      StoreBytes(_mm_sub_epi8(bytes, give), i, weights);
      moved.Set(i, positive, negative);
    }
    for (size_t i = 0; i < kVectors; ++i) vectors_[i] = _mm_sub_epi16(vectors_[i], moved.vectors_[i]);
    return moved;
  }

  using Bytes = std::array<uint8_t, kVectors * 8>;
  /// The lanes in units of 1 << shift, rounded up, at most 255 each.
  [[gnu::target("avx2"), gnu::always_inline]] Bytes ToBytes(int shift) const {
    Bytes bytes;
    const __m128i most = _mm_set1_epi16(static_cast<int16_t>((1 << shift) - 1));
    for (size_t i = 0; i < kVectors; ++i) {
      const __m128i units = _mm_srl_epi16(_mm_add_epi16(vectors_[i], most), _mm_cvtsi32_si128(shift));
      _mm_storeu_si64(&bytes[8 * i], _mm_packus_epi16(units, units));
    }
    return bytes;
  }

  /// Whether all weights are 0.
  bool IsZero() const {
    __m128i any = vectors_[0];
    for (const __m128i& vector : vectors_) any = _mm_or_si128(any, vector);
    return _mm_movemask_epi8(_mm_cmpeq_epi8(any, _mm_setzero_si128())) == 0xffff;
  }

  /// The mean of the lanes, rounded down.
  static uint8_t Mean(const Bytes& bytes) {
    __m128i sum = _mm_setzero_si128();
    for (size_t i = 0; i < kVectors; ++i) {
      sum = _mm_add_epi32(sum, _mm_sad_epu8(_mm_loadu_si64(&bytes[8 * i]), _mm_setzero_si128()));
    }
    return static_cast<uint8_t>(static_cast<size_t>(_mm_cvtsi128_si32(sum)) / kLanes);
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

 private:
  static constexpr size_t kPairsAtOnce = std::min<size_t>(kLanes / 2, 8);
  static constexpr size_t kBytesAtOnce = 2 * kPairsAtOnce;

  // Loads the weights of several pairs. Their sums begin in vectors_[i].
  static __m128i LoadBytes(const Weights& weights, size_t i) {
    if constexpr (kBytesAtOnce == 4) return _mm_loadu_si32(weights.data());
    if constexpr (kBytesAtOnce == 8) return _mm_loadu_si64(weights.data());
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights.data() + 8 * i));
  }
  static void StoreBytes(__m128i bytes, size_t i, Weights* weights) {
    if constexpr (kBytesAtOnce == 4) _mm_storeu_si32(weights->data(), bytes);
    if constexpr (kBytesAtOnce == 8) _mm_storeu_si64(weights->data(), bytes);
    if constexpr (kBytesAtOnce == 16) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(weights->data() + 8 * i), bytes);
    }
  }

  // The sums of each pair's weights of one sign.
  [[gnu::target("avx2"), gnu::always_inline]] static __m128i SumsOf(__m128i bytes, int sign) {
    const __m128i zero = _mm_setzero_si128();
    const __m128i ones = _mm_set1_epi8(1);
    if (sign > 0) return _mm_maddubs_epi16(ones, _mm_max_epi8(bytes, zero));
    return _mm_sub_epi16(zero, _mm_maddubs_epi16(ones, _mm_min_epi8(bytes, zero)));
  }

  // Pairs with `value` in the first byte, or in the second where `is_second`.
  [[gnu::target("avx2"), gnu::always_inline]] static __m128i OfByte(__m128i value, __m128i is_second) {
    const __m128i low = _mm_and_si128(value, _mm_set1_epi16(0xff));
    return _mm_blendv_epi8(low, _mm_slli_epi16(value, 8), is_second);
  }

  void Set(size_t i, __m128i positives, __m128i negatives) {
    if constexpr (kPairsAtOnce == 2) vectors_[i] = _mm_move_epi64(_mm_unpacklo_epi32(positives, negatives));
    if constexpr (kPairsAtOnce == 4) vectors_[i] = _mm_unpacklo_epi64(positives, negatives);
    if constexpr (kPairsAtOnce == 8) {
      vectors_[i] = positives;
      vectors_[i + 1] = negatives;
    }
  }
  __m128i Positives(size_t i) const { return vectors_[i]; }
  __m128i Negatives(size_t i) const {
    if constexpr (kPairsAtOnce == 8) return vectors_[i + 1];
    return kPairsAtOnce == 4 ? _mm_unpackhi_epi64(vectors_[i], vectors_[i]) : _mm_srli_epi64(vectors_[i], 32);
  }

  __m128i vectors_[kVectors];
};

// The groups of a strip, with the room that each group has left. Finds the first group with room for an item.
//
// A chunk has 32 groups. For each lane of a load, a chunk has a vector with the rooms of its groups. Comparing
// each lane gives a mask of the groups that have room. The last chunk always has an empty group, so a group is
// always found.
template <int kColumns>
class OpenGroups {
 public:
  using Bytes = typename Load<kColumns>::Bytes;
  struct Group {
    const uint16_t* items;
    size_t size;
  };

  /// For groups of at most `most` items, whose loads add up to at most `capacity`.
  OpenGroups(const Bytes& capacity, size_t most) : capacity_(capacity), most_(most) {}

  /// Begins a strip.
  void Clear() {
    first_chunk_ = chunks_ = 0;
    AddChunk();
  }

  /// Puts `item` into the first group that has room for `load`.
  [[gnu::target("avx2"), gnu::always_inline]] void Put(uint16_t item, const Bytes& load) {
    const size_t number = FirstWithRoom(load);
    Chunk& chunk = memory_[number / kGroups];
    const size_t place = number % kGroups;
    const size_t size = chunk.sizes[place]++;
    chunk.items[place][size] = item;
    Subtract(load, place, &chunk);
    chunk.open &= ~(uint32_t{size + 1 == most_} << place);
    first_chunk_ += memory_[first_chunk_].open == 0 ? 1 : 0;
    if (number + 1 == chunks_ * kGroups) AddChunk();
  }

  /// Calls visit(group) for each group, in the order in which they were opened.
  template <class Visit>
  void ForEach(const Visit& visit) const {
    for (size_t chunk = 0; chunk < chunks_; ++chunk) {
      const Chunk& of = memory_[chunk];
      for (size_t place = 0; place < kGroups && of.sizes[place] != 0; ++place) {
        visit(Group{of.items[place].data(), of.sizes[place]});
      }
    }
  }

 private:
  static constexpr size_t kLanes = Load<kColumns>::kLanes;
  static constexpr size_t kLanesAtOnce = std::min<size_t>(kLanes, 8);
  static constexpr size_t kGroups = 32;  // of a chunk: bytes of a vector

  struct Chunk {
    alignas(32) std::array<uint8_t, kLanes * kGroups> rooms;  // [lane][kGroups]
    std::array<uint8_t, kGroups> sizes;
    std::array<std::array<uint16_t, kMaxGroup>, kGroups> items;
    uint32_t open;  // a bit for each group of fewer than the most items
  };

  // The first group that has room for `load`. Few lanes: all chunks are compared, without a branch on weights,
  // because CPUs do not foresee it. Many lanes: the first lanes of a chunk exclude most of its groups.
  [[gnu::target("avx2"), gnu::always_inline]] size_t FirstWithRoom(const Bytes& load) const {
    size_t number = 0;
    if constexpr (kLanes <= 8) {
      for (size_t chunk = chunks_; chunk-- > first_chunk_;) {
        const uint64_t have_room = WithRoom(load, memory_[chunk]);
        const auto place = static_cast<size_t>(std::countr_zero(have_room | uint64_t{1} << kGroups));
        const size_t is_here = 1 - ((have_room - 1) >> 63);
        number += is_here * (chunk * kGroups + place - number);
      }
    } else {
      uint32_t have_room = 0;
      for (size_t chunk = first_chunk_; have_room == 0; ++chunk) {
        have_room = WithRoom(load, memory_[chunk]);
        number = chunk * kGroups + static_cast<size_t>(std::countr_zero(have_room));
      }
    }
    return number;
  }

  // A mask of the groups that have room for `load`.
  [[gnu::target("avx2"), gnu::always_inline]] static uint32_t WithRoom(const Bytes& load,
                                                                       const Chunk& chunk) {
    const auto* const rooms = reinterpret_cast<const __m256i*>(chunk.rooms.data());
    __m256i beyond = _mm256_setzero_si256();
    uint32_t have_room = 0;
    for (size_t begin = 0; begin < kLanes; begin += kLanesAtOnce) {
#pragma GCC unroll 8
      for (size_t i = begin; i < begin + kLanesAtOnce; ++i) {
        const __m256i lane = _mm256_set1_epi8(static_cast<char>(load[i]));
        beyond = _mm256_or_si256(beyond, _mm256_subs_epu8(lane, _mm256_load_si256(rooms + i)));
      }
      const __m256i fits = _mm256_cmpeq_epi8(beyond, _mm256_setzero_si256());
      have_room = static_cast<uint32_t>(_mm256_movemask_epi8(fits)) & chunk.open;
      if (kLanes > kLanesAtOnce && have_room == 0) break;
    }
    return have_room;
  }

  // Whole vectors are stored, because the next item loads them: CPUs do not forward bytes to vectors.
  [[gnu::target("avx2"), gnu::always_inline]] static void Subtract(const Bytes& load, size_t place,
                                                                   Chunk* chunk) {
    alignas(64) static constexpr auto kMasks = [] {
      std::array<uint8_t, 2 * kGroups> masks = {};
      masks[kGroups] = 0xff;
      return masks;
    }();
    const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&kMasks[kGroups - place]));
    auto* const rooms = reinterpret_cast<__m256i*>(chunk->rooms.data());
#pragma GCC unroll 8
    for (size_t i = 0; i < kLanes; ++i) {
      const __m256i lane = _mm256_set1_epi8(static_cast<char>(load[i]));
      const __m256i room = _mm256_sub_epi8(_mm256_load_si256(rooms + i), _mm256_and_si256(lane, mask));
      _mm256_store_si256(rooms + i, room);
    }
  }

  void AddChunk() {
    if (memory_.size() == chunks_) memory_.emplace_back();
    Chunk& chunk = memory_[chunks_++];
    for (size_t i = 0; i < kLanes; ++i) std::fill_n(&chunk.rooms[i * kGroups], kGroups, capacity_[i]);
    chunk.sizes.fill(0);
    chunk.open = ~uint32_t{0};
  }

  Bytes capacity_;
  size_t most_;
  size_t chunks_ = 0;
  size_t first_chunk_ = 0;  // the first chunk that may have a group with room
  std::vector<Chunk> memory_;
};

// Turns strips into groups; keeps its memory from strip to strip. Each item waits for the room that the one
// before it has left, so narrow strips are scheduled two at a time: the next strip of the panel is kept.
template <int kColumns>
class StripScheduler {
 public:
  /// For strips of at most `quads`. Needs AVX2.
  [[gnu::target("avx2")]] StripScheduler(const ScheduleSpec& spec, int64_t quads)
      : spec_(spec),
        most_items_(spec.MostItemsOfQuad() * quads),
        capacity_(CapacityOf(spec).positive, CapacityOf(spec).negative) {
    const auto [positive, negative] = CapacityOf(spec);
    fits_all_ = kMaxPairLoad * spec.largest_group <= std::min(positive, negative);
    while (std::max(positive, negative) >> unit_shift_ > 255) ++unit_shift_;
    const Load<kColumns> units(positive >> unit_shift_, negative >> unit_shift_);
    const auto most_groups = static_cast<size_t>(spec.largest_group);
    strips_.assign(kAtOnce, Strip(units.ToBytes(0), most_groups, static_cast<size_t>(most_items_)));
    means_.resize(static_cast<size_t>(most_items_));
  }

  struct Item {
    uint32_t quad;  // its number in the window; if A is a planar band, see ScheduleSpec::group_columns
    typename Load<kColumns>::Weights weights;
  };

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
        if (!fits_all_) SortItems();
      }
      current_ = 0;
      CollectItems(weights, column, window);
      if (!fits_all_) {
        SortItems();
        FillGroups(has_next);
      }
    }
    fits_all_ ? ArrangeAll() : ArrangeGroups();
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

 private:
  static constexpr size_t kAtOnce = kColumns <= 2 ? 2 : 1;
  using Bytes = typename Load<kColumns>::Bytes;

  struct Strip {
    Strip(const Bytes& capacity, size_t largest_group, size_t most_items)
        : items(most_items + 1),  // the last place takes what is not added
          loads(most_items + 1),
          order(most_items),
          open_groups(capacity, largest_group),
          sequence(most_items + kMaxGroup) {}

    size_t item_count = 0;
    std::vector<Item> items;
    std::vector<Bytes> loads;     // of each item
    std::vector<uint16_t> order;  // items, heaviest first
    OpenGroups<kColumns> open_groups;
    std::array<uint16_t, kMaxGroup> counts = {};
    std::vector<uint16_t> sequence;  // numbers of items, in the order of counts
  };
  static LaneCapacity CapacityOf(const ScheduleSpec& spec) {
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
    Strip& of = strip();
    of.counts.fill(0);
    groups_.clear();
    of.open_groups.ForEach([&](const Group& group) {
      ++of.counts[kMaxGroup - group.size];
      groups_.push_back(group);
    });
    std::array<size_t, kMaxGroup> places;  // of the next group of each size
    size_t begin = 0;
    for (size_t i = 0; i < kMaxGroup; begin += of.counts[i++]) places[i] = begin;
    by_size_.resize(groups_.size());
    for (const Group& group : groups_) by_size_[places[kMaxGroup - group.size]++] = group;
    uint16_t* to = of.sequence.data();
    for (const Group& group : by_size_) {
      std::copy_n(group.items, kMaxGroup, to);  // what is too much is overwritten
      to += group.size;
    }
  }

  // Any items fit into a group.
  void ArrangeAll() {
    Strip& of = strip();
    const auto most = static_cast<size_t>(spec_.largest_group);
    of.counts.fill(0);
    of.counts[kMaxGroup - most] = static_cast<uint16_t>(of.item_count / most);
    if (of.item_count % most != 0) ++of.counts[kMaxGroup - of.item_count % most];
    std::iota(of.sequence.begin(), of.sequence.begin() + static_cast<std::ptrdiff_t>(of.item_count),
              uint16_t{0});
  }

  bool HasByteOrder() const { return strip().item_count < 256; }
  size_t OrderBytes() const { return (kMaxGroup + strip().item_count) * (HasByteOrder() ? 1 : 2); }

  // Sets counts and sequence from an order of Index numbers. Returns the fault of the order, or null.
  template <class Index>
  [[gnu::target("avx2")]] const char* ReadOrder(std::span<const uint8_t>* order) {
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
    uint16_t* place = strip().sequence.data();
    for (size_t i = 0; i < kMaxGroup; ++i) {
      for (int group = 0; group < counts()[i]; ++group) {
        Load<kColumns> load;
        for (size_t member = 0; member < kMaxGroup - i; ++member) {
          const uint16_t number = read();
          if (number >= items) return "has an item that the weights do not have";
          if (std::exchange(is_placed_[number], uint8_t{1}) != 0) return "repeats an item";
          load = load + Load<kColumns>(strip().items[number].weights);
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
      std::memcpy(item.weights.data(), from, sizeof(item.weights));
      if constexpr (kColumns <= 2) {
        uint64_t any = 0;
        std::memcpy(&any, item.weights.data(), sizeof(item.weights));
        if (!folds && any == 0) continue;
      }
      item.quad = NumberOf(weights.quads(), column, quad, begin);
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

  // Leaves as much of each heavy pair in the first item as fits, and moves the excess to a second, light item.
  // Always inlined, as is Add(): calls would make the creation of plans 5 % slower.
  [[gnu::target("avx2"), gnu::always_inline]] void AddOrSplit(Item item, Strip* to) {
    Item rest;
    rest.quad = item.quad;
    Load<kColumns> load(item.weights);
    if (load.Fits(capacity_)) {
      Add(item, load, to);
      return;
    }
    const Load<kColumns> moved = load.Split(capacity_, &item.weights, &rest.weights);
    Add(item, load, to);
    Add(rest, moved, to);
  }

  // Adds the item, unless it has no weights.
  [[gnu::target("avx2"), gnu::always_inline]] void Add(const Item& item, const Load<kColumns>& load,
                                                       Strip* to) {
    to->items[to->item_count] = item;
    to->loads[to->item_count] = load.ToBytes(unit_shift_);
    to->item_count += load.IsZero() ? 0 : 1;
  }

  uint32_t NumberOf(int64_t quads, int64_t column, int64_t quad, int64_t begin) const {
    if (spec_.group_columns == 0) return static_cast<uint32_t>(quad - begin);
    return static_cast<uint32_t>(column / spec_.group_columns * quads + quad);
  }

  // Heaviest first, by the mean of the lanes: a counting sort that keeps the order of equals.
  [[gnu::target("avx2")]] void SortItems() {
    Strip& of = strip();
    std::array<uint16_t, 256> places = {};
    uint8_t heaviest = 0;
    for (size_t i = 0; i < of.item_count; ++i) {
      means_[i] = Load<kColumns>::Mean(of.loads[i]);
      ++places[means_[i]];
      heaviest = std::max(heaviest, means_[i]);
    }
    uint16_t heavier = 0;
    for (int mean = heaviest; mean >= 0; --mean) {
      const auto count = std::exchange(places[static_cast<size_t>(mean)], heavier);
      heavier = static_cast<uint16_t>(heavier + count);
    }
    for (size_t i = 0; i < of.item_count; ++i) of.order[places[means_[i]]++] = static_cast<uint16_t>(i);
    of.open_groups.Clear();
  }

  // Puts each item into the first group that has room.
  [[gnu::target("avx2")]] void FillGroups(bool both) {
    const auto put = [](Strip * strip, size_t place) __attribute__((target("avx2"), always_inline)) {
      const uint16_t item = strip->order[place];
      strip->open_groups.Put(item, strip->loads[item]);
    };
    size_t begin = 0;
    if constexpr (kAtOnce == 2) {
      if (both) begin = std::min(strips_[0].item_count, strips_[1].item_count);
      for (size_t i = 0; i < begin; ++i) {
        put(&strips_[0], i);
        put(&strips_[1], i);
      }
    }
    for (Strip& strip : std::span(strips_).first(both ? kAtOnce : 1)) {
      for (size_t i = begin; i < strip.item_count; ++i) put(&strip, i);
    }
  }

  Strip& strip() { return strips_[current_]; }
  const Strip& strip() const { return strips_[current_]; }

  using Group = typename OpenGroups<kColumns>::Group;

  ScheduleSpec spec_;
  int64_t most_items_;
  Load<kColumns> capacity_;
  bool fits_all_;       // any group
  int unit_shift_ = 0;  // OpenGroups counts in units of 1 << unit_shift_, so that bytes hold capacity_
  std::array<int32_t, kColumns* kQuad> zero_points_ = {};  // of each weight of an item
  std::vector<int8_t> widened_;                            // a strip wider than its narrow panel
  std::vector<uint8_t> means_;                             // of each item: the mean of its load
  std::vector<Strip> strips_;
  size_t current_ = 0;                           // the strip that is described
  std::pair<int64_t, int64_t> kept_ = {-1, -1};  // column and window of strips_[1], if it was scheduled too
  std::vector<Group> groups_, by_size_;
  std::vector<uint8_t> is_placed_;  // of ReadOrder(): whether each item has been read
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

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_STRIP_SCHEDULER_H_
