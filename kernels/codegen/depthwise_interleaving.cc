#include "kernels/codegen/depthwise_interleaving.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/result.h"
#include "jit/code_cache.h"

namespace intact::kernels {
namespace {

constexpr int kUnused = -1;

}  // namespace

std::string FilterPattern::Name() const {
  return std::to_string(rows) + "x" + std::to_string(columns.width) + "_" + columns.Name();
}

FilterPattern TapGrid::Shape(int pixels) const {
  return {static_cast<int>(row_count()), PlacePattern(columns, pixel_stride_bytes, pixels).pattern};
}

std::vector<int64_t> TapGrid::PlaceOffsets(int pixels) const {
  const PlacedPattern placed = PlacePattern(columns, pixel_stride_bytes, pixels);
  std::vector<int64_t> offsets;
  for (int64_t row = 0; row < row_count(); ++row) {
    for (const int64_t column : placed.offsets) offsets.push_back(RowOffset(row) + column);
  }
  return offsets;
}

DepthwiseInterleaving::DepthwiseInterleaving(FilterPattern filter, jit::DotKind dot)
    : filter_(std::move(filter)), dot_(dot) {
  const int pixels = filter_.columns.pixels;
  if (dot == jit::DotKind::kMaddubs) {
    Choose({.sharing = 1, .across_rows = false, .fills_groups = true});
    cost_ = CostOf(pixels);
    return;
  }
  Layout best;
  for (const int sharing : {1, 2}) {
    if (pixels % sharing != 0) continue;
    for (const bool across_rows : {false, true}) {
      for (const bool fills_groups : {false, true}) {
        const Layout layout{sharing, across_rows, fills_groups};
        // Of a single row, groups of a column would have one tap each, and there is no row to continue in.
        if (filter_.rows == 1 && (across_rows || fills_groups)) continue;
        Choose(layout);
        const Cost cost = CostOf(pixels);
        if (cost_.Sum() != 0 && cost.Sum() >= cost_.Sum()) continue;
        cost_ = cost;
        best = layout;
      }
    }
  }
  Choose(best);
}

std::shared_ptr<const DepthwiseInterleaving> DepthwiseInterleaving::Shared(const FilterPattern& filter,
                                                                           jit::DotKind dot) {
  using Spec = std::pair<FilterPattern, jit::DotKind>;
  const auto choose = [](const Spec& spec) {
    return Result<jit::Code>(std::make_shared<const DepthwiseInterleaving>(spec.first, spec.second));
  };
  const Result<jit::Code> shared = jit::CodeCache<Spec>::Instance().Get({filter, dot}, choose);
  return std::static_pointer_cast<const DepthwiseInterleaving>(*shared);  // choose() never fails
}

// Cuts `places` into groups of `size`. The last group is filled up with its last place.
void DepthwiseInterleaving::AppendGroups(const Places& places, size_t size, std::vector<Places>* groups) {
  for (size_t first = 0; first < places.size(); first += size) {
    Places& group = groups->emplace_back();
    for (size_t i = 0; i < size; ++i) group.push_back(places[std::min(first + i, places.size() - 1)]);
  }
}

std::vector<DepthwiseInterleaving::Places> DepthwiseInterleaving::GroupsOfSet(const Layout& layout) const {
  std::set<int> columns;
  for (int pixel = 0; pixel < layout.sharing; ++pixel) {
    for (int tap = 0; tap < filter_.columns.width; ++tap) columns.insert(filter_.columns.Column(pixel, tap));
  }
  const int size = TapsPerGroup(dot_);
  const int rows = filter_.rows;
  const int rows_across = !layout.across_rows ? 0 : layout.fills_groups ? rows / size * size : rows;
  std::vector<Places> groups;
  Places places;
  for (const int column : columns) {
    for (int row = 0; row < rows_across; ++row) places.push_back({row, column});
    AppendGroups(places, static_cast<size_t>(size), &groups);
    places.clear();
  }
  for (int row = rows_across; row < rows; ++row) {
    for (const int column : columns) places.push_back({row, column});
    if (layout.fills_groups && row + 1 < rows) continue;
    AppendGroups(places, static_cast<size_t>(size), &groups);
    places.clear();
  }
  return groups;
}

std::vector<int> DepthwiseInterleaving::TapsAt(const Places& places, int pixel) const {
  const int width = filter_.columns.width;
  std::vector<int> taps;
  bool is_wanted = false;
  for (size_t i = 0; i < places.size(); ++i) {
    int tap = 0;
    while (tap < width && filter_.columns.Column(pixel, tap) != places[i].column) ++tap;
    const bool is_filling = i > 0 && places[i] == places[i - 1];
    const bool is_tap = tap < width && !is_filling;
    taps.push_back(is_tap ? places[i].row * width + tap : kUnused);
    is_wanted |= is_tap;
  }
  if (!is_wanted) taps.clear();
  return taps;
}

void DepthwiseInterleaving::Choose(const Layout& layout) {
  layout_ = layout;
  groups_ = GroupsOfSet(layout);
  weights_.clear();
  weights_of_group_.clear();
  std::map<std::vector<int>, int> known;
  for (const Places& places : groups_) {
    std::vector<int>& of_pixels = weights_of_group_.emplace_back();
    for (int pixel = 0; pixel < layout.sharing; ++pixel) {
      const std::vector<int> taps = TapsAt(places, pixel);
      if (taps.empty()) {
        of_pixels.push_back(kUnused);
        continue;
      }
      const auto [entry, is_new] = known.try_emplace(taps, static_cast<int>(weights_.size()));
      if (is_new) weights_.push_back(taps);
      of_pixels.push_back(entry->second);
    }
  }
}

std::vector<TapGroup> DepthwiseInterleaving::Groups(int pixels) const {
  std::vector<TapGroup> groups;
  std::map<Places, size_t> known;
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (int first = 0; first < pixels; first += layout_.sharing) {
      Places places = groups_[i];
      for (Place& place : places) place.column = ShiftedColumn(place.column, first);
      for (int pixel = first; pixel < std::min(pixels, first + layout_.sharing); ++pixel) {
        const int weights = weights_of_group_[i][static_cast<size_t>(pixel - first)];
        if (weights == kUnused) continue;
        const auto [entry, is_new] = known.try_emplace(places, groups.size());
        if (is_new) groups.push_back({NumbersOf(places), {}});
        groups[entry->second].uses.push_back({pixel, weights});
      }
    }
  }
  for (TapGroup& group : groups) DropUnweighed(&group);
  return groups;
}

int DepthwiseInterleaving::ShiftedColumn(int column, int first) const {
  const auto found = std::find(filter_.columns.columns.begin(), filter_.columns.columns.end(), column);
  const auto index = static_cast<int>(found - filter_.columns.columns.begin());
  return filter_.columns.Column(first + index / filter_.columns.width, index % filter_.columns.width);
}

std::vector<int> DepthwiseInterleaving::NumbersOf(const Places& places) const {
  std::vector<int> numbers;
  const int row_places = filter_.columns.column_count();
  for (const Place& place : places) numbers.push_back(place.row * row_places + place.column);
  return numbers;
}

// Places that no pixel has weights for may lie outside the input: replaces them by another place of the
// group.
void DepthwiseInterleaving::DropUnweighed(TapGroup* group) const {
  const auto is_weighed = [&](size_t i) {
    return std::any_of(group->uses.begin(), group->uses.end(), [&](const TapGroup::Use& use) {
      return weights_[static_cast<size_t>(use.weights)][i] != kUnused;
    });
  };
  size_t weighed = 0;
  while (!is_weighed(weighed)) ++weighed;
  for (size_t i = 0; i < group->places.size(); ++i) {
    if (!is_weighed(i)) group->places[i] = group->places[weighed];
  }
}

// A vector of bytes takes two unpacks for pairs and four for groups, and has four accumulators.
DepthwiseInterleaving::Cost DepthwiseInterleaving::CostOf(int pixels) const {
  std::set<std::pair<int, int>> pairs;
  size_t uses = 0;
  const std::vector<TapGroup> groups = Groups(pixels);
  for (const TapGroup& group : groups) {
    for (size_t i = 0; i < group.places.size(); i += 2) pairs.emplace(group.places[i], group.places[i + 1]);
    uses += group.uses.size();
  }
  const size_t dot_instructions = dot_ == jit::DotKind::kVnni ? 1 : dot_ == jit::DotKind::kWide ? 2 : 3;
  return {static_cast<double>(2 * pairs.size() + 4 * groups.size()) / pixels,
          static_cast<double>(4 * dot_instructions * uses) / pixels};
}

}  // namespace intact::kernels
