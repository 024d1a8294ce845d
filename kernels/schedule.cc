#include "kernels/schedule.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

namespace intact::kernels {
namespace {

constexpr int kMaxStripColumns = 4;
constexpr int kMaxLanes = kMaxStripColumns * 4;  // columns × 2 pairs × 2 signs

// Sums of weights of one sign in each int16 lane of a strip; at most 256·kMaxGroup each.
struct Load {
  alignas(16) std::array<int16_t, kMaxLanes> lanes = {};

  __m128i Half(int i) const { return _mm_load_si128(reinterpret_cast<const __m128i*>(lanes.data()) + i); }

  void Add(const Load& other) {
    for (int i = 0; i < 2; ++i) {
      _mm_store_si128(reinterpret_cast<__m128i*>(lanes.data()) + i, _mm_add_epi16(Half(i), other.Half(i)));
    }
  }
  // Whether this + other stays within capacity in every lane.
  bool Fits(const Load& other, const Load& capacity) const {
    __m128i beyond = _mm_setzero_si128();
    for (int i = 0; i < 2; ++i) {
      beyond = _mm_or_si128(beyond, _mm_cmpgt_epi16(_mm_add_epi16(Half(i), other.Half(i)), capacity.Half(i)));
    }
    return _mm_movemask_epi8(beyond) == 0;
  }
  int Heaviest() const { return *std::max_element(lanes.begin(), lanes.end()); }
};

struct Item {
  uint32_t offset = 0;  // of its quad
  std::array<int8_t, kMaxStripColumns* 4> weights = {};
  Load load;

  void ComputeLoad() {
    for (size_t pair = 0; pair < weights.size() / 2; ++pair) {
      const int w0 = weights[2 * pair];
      const int w1 = weights[2 * pair + 1];
      load.lanes[2 * pair] = static_cast<int16_t>(std::max(w0, 0) + std::max(w1, 0));
      load.lanes[2 * pair + 1] = static_cast<int16_t>(std::max(-w0, 0) + std::max(-w1, 0));
    }
  }
};

struct Group {
  Load load;
  std::vector<const Item*> items;
};

// Turns the strips of one matrix into groups; keeps its memory from strip to strip.
class StripScheduler {
 public:
  explicit StripScheduler(const ScheduleShape& shape) : shape_(shape) {
    const LaneCapacity capacity = shape.saturates ? CapacityFor(shape.amax) : CapacityFor(1);
    for (size_t lane = 0; lane < kMaxLanes; lane += 2) {
      // A group of kMaxGroup items cannot exceed 256·kMaxGroup, which int16 loads hold.
      capacity_.lanes[lane] = static_cast<int16_t>(std::min(capacity.positive, 256 * kMaxGroup));
      capacity_.lanes[lane + 1] = static_cast<int16_t>(std::min(capacity.negative, 256 * kMaxGroup));
    }
  }

  /// Appends the strip of columns [column, column + strip_columns), quads [begin, end), to `stream`.
  void Append(const PackedWeights& weights, int64_t column, int64_t begin, int64_t end,
              std::vector<uint8_t>* stream, ScheduleStatistics* statistics) {
    CollectItems(weights, column, begin, end);
    FormGroups();
    Write(stream);
    statistics->quads += (end - begin) * shape_.strip_columns;
    statistics->items += static_cast<int64_t>(items_.size()) * shape_.strip_columns;
    statistics->groups += static_cast<int64_t>(used_groups_) * shape_.strip_columns;
  }

 private:
  void CollectItems(const PackedWeights& weights, int64_t column, int64_t begin, int64_t end) {
    items_.clear();
    const int8_t* panel = weights.Panel(column / kPanelColumns) + column % kPanelColumns * kQuad;
    const auto item_weights = size_t{kQuad} * shape_.strip_columns;
    const bool folds = shape_.zero_points != nullptr;
    if (folds) SetZeroPoints(column, weights.n);
    for (int64_t quad = begin; quad < end; ++quad) {
      Item item;
      item.offset = OffsetOf(column, quad, begin);
      std::memcpy(item.weights.data(), panel + quad * kPanelQuadBytes, item_weights);
      folds ? AddFolded(item) : Add(item);
    }
  }

  void Add(Item item) {
    item.ComputeLoad();
    if (item.load.Heaviest() == 0) return;  // all zeros: contributes nothing
    if (Load{}.Fits(item.load, capacity_)) {
      items_.push_back(item);
    } else {
      Split(item);
    }
  }

  // Of the strip's weights. Columns beyond the last are dropped: they keep their zeros.
  void SetZeroPoints(int64_t column, int64_t columns) {
    zero_points_.fill(0);
    const auto count = static_cast<size_t>(std::clamp<int64_t>(columns - column, 0, shape_.strip_columns));
    for (size_t i = 0; i < count * kQuad; ++i) {
      zero_points_[i] = shape_.zero_points[static_cast<size_t>(column) + i / kQuad];
    }
  }

  // As items whose weights add up to the item's less their zero points.
  void AddFolded(Item item) {
    std::array<int, kMaxStripColumns* kQuad> left = {};
    for (size_t i = 0; i < left.size(); ++i) left[i] = item.weights[i] - zero_points_[i];
    while (std::any_of(left.begin(), left.end(), [](int weight) { return weight != 0; })) {
      for (size_t i = 0; i < left.size(); ++i) {
        item.weights[i] = static_cast<int8_t>(std::clamp(left[i], -128, 127));
        left[i] -= item.weights[i];
      }
      Add(item);
    }
  }

  uint32_t OffsetOf(int64_t column, int64_t quad, int64_t begin) const {
    if (shape_.planar == nullptr) return static_cast<uint32_t>((quad - begin) * shape_.rows * kQuad);
    const PlanarDepth& planar = *shape_.planar;
    return planar.quad_offsets[static_cast<size_t>(quad)] +
           static_cast<uint32_t>(column / planar.group_columns * planar.group_bytes);
  }

  // Leaves as much of each heavy pair in the first item as fits, and moves the rest to a second, light one.
  void Split(Item item) {
    Item rest;
    rest.offset = item.offset;
    for (size_t pair = 0; pair < item.weights.size() / 2; ++pair) {
      for (const int sign : {1, -1}) {
        const size_t lane = 2 * pair + (sign > 0 ? 0 : 1);
        const int excess = item.load.lanes[lane] - capacity_.lanes[lane];
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
    item.ComputeLoad();
    rest.ComputeLoad();
    items_.push_back(item);
    items_.push_back(rest);
  }

  // Best fit, heaviest first: an item joins the fullest group that still has room for it.
  void FormGroups() {
    order_.clear();
    for (const Item& item : items_) order_.push_back(&item);
    std::stable_sort(order_.begin(), order_.end(),
                     [](const Item* a, const Item* b) { return a->load.Heaviest() > b->load.Heaviest(); });
    used_groups_ = 0;
    open_.clear();
    for (const Item* item : order_) {
      const auto room = std::find_if(open_.begin(), open_.end(), [&](size_t group) {
        return groups_[group].load.Fits(item->load, capacity_);
      });
      if (room == open_.end()) {
        if (used_groups_ == groups_.size()) groups_.emplace_back();
        groups_[used_groups_].load = item->load;
        groups_[used_groups_].items = {item};
        open_.push_back(used_groups_++);
        continue;
      }
      Group& group = groups_[*room];
      group.load.Add(item->load);
      group.items.push_back(item);
      if (group.items.size() == kMaxGroup) open_.erase(room);
    }
  }

  void Write(std::vector<uint8_t>* stream) {
    std::stable_sort(groups_.begin(), groups_.begin() + static_cast<std::ptrdiff_t>(used_groups_),
                     [](const Group& a, const Group& b) { return a.items.size() > b.items.size(); });
    std::array<uint16_t, kMaxGroup> counts = {};
    for (size_t i = 0; i < used_groups_; ++i) ++counts[kMaxGroup - groups_[i].items.size()];
    Append(counts.data(), sizeof(counts), stream);
    for (size_t i = 0; i < used_groups_; ++i) {
      for (const Item* item : groups_[i].items) {
        Append(&item->offset, sizeof(item->offset), stream);
        Append(item->weights.data(), size_t{kQuad} * shape_.strip_columns, stream);
      }
    }
  }

  static void Append(const void* data, size_t size, std::vector<uint8_t>* stream) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    stream->insert(stream->end(), bytes, bytes + size);
  }

  ScheduleShape shape_;
  Load capacity_;
  std::array<int32_t, kMaxStripColumns* kQuad> zero_points_ = {};  // of each weight of an item
  std::vector<Item> items_;
  std::vector<const Item*> order_;
  std::vector<Group> groups_;  // the first used_groups_ are of this strip
  size_t used_groups_ = 0;
  std::vector<size_t> open_;  // groups with fewer than kMaxGroup items
};

}  // namespace

bool ScheduledWeights::Build(const PackedWeights& weights, const ScheduleShape& shape) noexcept {
  try {
    shape_ = shape;
    panels_ = weights.panels();
    windows_ = (weights.quads() + shape.window_quads - 1) / shape.window_quads;
    StripScheduler scheduler(shape);
    for (int64_t window = 0; window < windows_; ++window) {
      const int64_t begin = window * shape.window_quads;
      const int64_t end = std::min(weights.quads(), begin + shape.window_quads);
      for (int64_t panel = 0; panel < panels_; ++panel) {
        offsets_.push_back(static_cast<int64_t>(stream_.size()));
        for (int64_t column = panel * kPanelColumns; column < (panel + 1) * kPanelColumns;
             column += shape.strip_columns) {
          scheduler.Append(weights, column, begin, end, &stream_, &statistics_);
        }
      }
    }
    stream_.shrink_to_fit();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace intact::kernels
