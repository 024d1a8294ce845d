#include "kernels/codegen/depthwise_interleaving.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/result.h"
#include "jit/code_cache.h"

namespace intact::kernels {
namespace {

// The index of `value`, which is appended if it is new. Groups are few.
template <class Value>
size_t FindOrAdd(std::vector<Value>* values, const Value& value) {
  const auto found = std::ranges::find(*values, value);
  if (found != values->end()) return static_cast<size_t>(found - values->begin());
  values->push_back(value);
  return values->size() - 1;
}

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
  offsets.reserve(static_cast<size_t>(row_count()) * placed.offsets.size());
  for (int64_t row = 0; row < row_count(); ++row) {
    for (const int64_t column : placed.offsets) offsets.push_back(RowOffset(row) + column);
  }
  return offsets;
}

DepthwiseInterleaving::DepthwiseInterleaving(FilterPattern filter, jit::DotKind dot)
    : filter_(std::move(filter)), dot_(dot), column_count_(filter_.columns.column_count()) {
  MakeTables();
  const int pixels = filter_.columns.pixels;
  if (dot == jit::DotKind::kMaddubs) {
    Choose({.sharing = 1, .across_rows = false, .fills_groups = true});
    cost_ = CostOf(pixels);
    KeepWeights();
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
  if (layout_ != best) Choose(best);
  KeepWeights();
}

void DepthwiseInterleaving::MakeTables() {
  const TapPattern& columns = filter_.columns;
  const auto count = static_cast<size_t>(column_count_);
  taps_of_columns_.assign(static_cast<size_t>(columns.pixels) * count, kUnused);
  shifts_ = taps_of_columns_;
  for (int pixel = columns.pixels - 1; pixel >= 0; --pixel) {
    for (int tap = columns.width - 1; tap >= 0; --tap) {
      const auto column = static_cast<size_t>(columns.Column(pixel, tap));
      taps_of_columns_[static_cast<size_t>(pixel) * count + column] = tap;
      for (int first = 0; first + pixel < columns.pixels; ++first) {
        shifts_[static_cast<size_t>(first) * count + column] =
            columns.Column(first + pixel, tap) - static_cast<int>(column);
      }
    }
  }
}

void DepthwiseInterleaving::KeepWeights() {
  for (const Taps& taps : taps_) {
    weights_.emplace_back(taps.begin(), taps.begin() + static_cast<ptrdiff_t>(size()));
  }
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

// Cuts `places` into groups. The last group is filled up with its last place.
void DepthwiseInterleaving::AppendGroups(const std::vector<int>& places, std::vector<Places>* groups) const {
  for (size_t first = 0; first < places.size(); first += size()) {
    Places& group = groups->emplace_back();
    for (size_t i = 0; i < size(); ++i) {
      group[i] = static_cast<uint16_t>(places[std::min(first + i, places.size() - 1)]);
    }
  }
}

std::vector<DepthwiseInterleaving::Places> DepthwiseInterleaving::GroupsOfSet(const Layout& layout) const {
  std::vector<int> columns;
  columns.reserve(static_cast<size_t>(layout.sharing * filter_.columns.width));
  for (int pixel = 0; pixel < layout.sharing; ++pixel) {
    for (int tap = 0; tap < filter_.columns.width; ++tap)
      columns.push_back(filter_.columns.Column(pixel, tap));
  }
  std::ranges::sort(columns);
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  const auto size = static_cast<int>(this->size());
  const int rows = filter_.rows;
  const int rows_across = !layout.across_rows ? 0 : layout.fills_groups ? rows / size * size : rows;
  const size_t most_places = static_cast<size_t>(rows) * columns.size();
  std::vector<Places> groups;
  groups.reserve(most_places);
  std::vector<int> places;
  places.reserve(most_places);
  for (const int column : columns) {
    for (int row = 0; row < rows_across; ++row) places.push_back(row * column_count_ + column);
    AppendGroups(places, &groups);
    places.clear();
  }
  for (int row = rows_across; row < rows; ++row) {
    for (const int column : columns) places.push_back(row * column_count_ + column);
    if (layout.fills_groups && row + 1 < rows) continue;
    AppendGroups(places, &groups);
    places.clear();
  }
  return groups;
}

DepthwiseInterleaving::Taps DepthwiseInterleaving::TapsAt(const Places& places, int pixel) const {
  Taps taps;
  taps.fill(kUnused);
  for (size_t i = 0; i < size(); ++i) {
    const int row = places[i] / column_count_;
    const int tap = taps_of_columns_[static_cast<size_t>(pixel * column_count_ + places[i] % column_count_)];
    const bool is_filling = i > 0 && places[i] == places[i - 1];
    if (tap != kUnused && !is_filling) taps[i] = row * filter_.columns.width + tap;
  }
  return taps;
}

void DepthwiseInterleaving::Choose(const Layout& layout) {
  layout_ = layout;
  groups_ = GroupsOfSet(layout);
  const size_t sets = groups_.size() * static_cast<size_t>(layout.sharing);
  taps_.clear();
  taps_.reserve(sets);
  weights_of_groups_.clear();
  weights_of_groups_.reserve(sets);
  for (const Places& places : groups_) {
    for (int pixel = 0; pixel < layout.sharing; ++pixel) {
      const Taps taps = TapsAt(places, pixel);
      const bool is_used = std::ranges::any_of(taps, [](int tap) { return tap != kUnused; });
      weights_of_groups_.push_back(is_used ? static_cast<int>(FindOrAdd(&taps_, taps)) : kUnused);
    }
  }
}

template <class Visit>
void DepthwiseInterleaving::ForEachUse(int pixels, const Visit& visit) const {
  const auto sharing = static_cast<size_t>(layout_.sharing);
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (int first = 0; first < pixels; first += layout_.sharing) {
      Places places = groups_[i];
      for (size_t j = 0; j < size(); ++j) {
        const int shift = shifts_[static_cast<size_t>(first * column_count_ + places[j] % column_count_)];
        places[j] = static_cast<uint16_t>(places[j] + shift);
      }
      for (int pixel = first; pixel < std::min(pixels, first + layout_.sharing); ++pixel) {
        const int weights = weights_of_groups_[i * sharing + static_cast<size_t>(pixel - first)];
        if (weights != kUnused) visit(places, pixel, weights);
      }
    }
  }
}

std::vector<TapGroup> DepthwiseInterleaving::Groups(int pixels) const {
  const size_t most = groups_.size() * static_cast<size_t>(pixels);
  std::vector<TapGroup> groups;
  groups.reserve(most);
  std::vector<Places> known;
  known.reserve(most);
  std::vector<unsigned> weighed;  // places of each group
  weighed.reserve(most);
  ForEachUse(pixels, [&](const Places& places, int pixel, int weights) {
    const size_t group = FindOrAdd(&known, places);
    if (group == groups.size()) {
      groups.emplace_back();
      weighed.push_back(0);
    }
    groups[group].uses.push_back({pixel, weights});
    weighed[group] |= WeighedPlaces(weights);
  });
  for (size_t i = 0; i < groups.size(); ++i) {
    DropUnweighed(weighed[i], &known[i]);
    groups[i].places.assign(known[i].begin(), known[i].begin() + static_cast<ptrdiff_t>(size()));
  }
  return groups;
}

unsigned DepthwiseInterleaving::WeighedPlaces(int weights) const {
  unsigned places = 0;
  for (size_t i = 0; i < size(); ++i) {
    if (taps_[static_cast<size_t>(weights)][i] != kUnused) places |= 1u << i;
  }
  return places;
}

void DepthwiseInterleaving::DropUnweighed(unsigned weighed, Places* places) const {
  for (size_t i = 0; i < size(); ++i) {
    if ((weighed >> i & 1) == 0) (*places)[i] = (*places)[static_cast<size_t>(std::countr_zero(weighed))];
  }
}

// A vector of bytes takes two unpacks for pairs and four for groups, and has four accumulators.
DepthwiseInterleaving::Cost DepthwiseInterleaving::CostOf(int pixels) const {
  const size_t most = groups_.size() * static_cast<size_t>(pixels);
  std::vector<Places> groups;
  groups.reserve(most);
  std::vector<unsigned> weighed;  // places of each group
  weighed.reserve(most);
  size_t uses = 0;
  ForEachUse(pixels, [&](const Places& places, int /*pixel*/, int weights) {
    const size_t group = FindOrAdd(&groups, places);
    if (group == weighed.size()) weighed.push_back(0);
    weighed[group] |= WeighedPlaces(weights);
    ++uses;
  });
  std::vector<std::pair<int, int>> pairs;
  pairs.reserve(2 * groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    DropUnweighed(weighed[i], &groups[i]);
    for (size_t j = 0; j < size(); j += 2) FindOrAdd(&pairs, {groups[i][j], groups[i][j + 1]});
  }
  const size_t dot_instructions = dot_ == jit::DotKind::kVnni ? 1 : dot_ == jit::DotKind::kWide ? 2 : 3;
  return {static_cast<double>(2 * pairs.size() + 4 * groups.size()) / pixels,
          static_cast<double>(4 * dot_instructions * uses) / pixels};
}

}  // namespace intact::kernels
