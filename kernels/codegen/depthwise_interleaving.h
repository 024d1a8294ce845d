// Chooses which inputs of a depthwise convolution are interleaved, so that an interleaving serves the most
// output pixels.
//
// Dot instructions add up adjacent bytes of a lane: four taps of a channel (VPDPBUSD) or two (VPMADDWD). In
// memory, adjacent bytes are channels. So a kernel interleaves the inputs at two or four places, a *group*.
// Interleaving costs about as much as multiplying, but neighbouring pixels can share places. A filter row of
// three at stride 1, for two pixels:
//
//   places     x0  x1  x2  x3        one group of four
//   pixel 0    w0  w1  w2   0        two sets of weights for it
//   pixel 1     0  w0  w1  w2
//
// A *layout* says how many adjacent pixels share their places, and whether groups run along filter rows or
// across them. If they run across rows, the group of a column serves all pixels that read the column. The
// best layout depends on filter, stride and instruction. The layout with the fewest instructions is chosen.
// If pairs saturate, only one layout is possible: groups are taps in their order, because adjacent taps are
// pairs.
#ifndef INTACT_KERNELS_CODEGEN_DEPTHWISE_INTERLEAVING_H_
#define INTACT_KERNELS_CODEGEN_DEPTHWISE_INTERLEAVING_H_

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jit/emitters/dot.h"
#include "kernels/codegen/tap_pattern.h"

namespace intact::kernels {

/// The positions of taps, as far as interleavings and kernels depend on them. The *places* that pixels read
/// are numbered row by row: place row·columns.column_count() + column.
struct FilterPattern {
  int rows = 1;  // rows of the filter: kd·kh
  TapPattern columns;

  int taps() const { return rows * columns.width; }
  auto operator<=>(const FilterPattern&) const = default;
  std::string Name() const;  // "3x3_x1_s1"
};

/// Where the taps of an output pixel lie in the input, in bytes from the first tap. Tap t of a kd×kh×kw
/// filter is (t / kw / kh, t / kw % kh, t % kw).
struct TapGrid {
  std::array<int64_t, 2> rows = {1, 1};  // kd, kh
  std::array<int64_t, 2> row_strides_bytes = {0, 0};
  std::vector<int64_t> columns;    // kw offsets: all different
  int64_t pixel_stride_bytes = 0;  // from an output pixel's first tap to the next pixel's first tap

  bool operator==(const TapGrid&) const = default;
  int64_t row_count() const { return rows[0] * rows[1]; }
  int64_t width() const { return static_cast<int64_t>(columns.size()); }
  int64_t taps() const { return row_count() * width(); }
  int64_t RowOffset(int64_t row) const {
    return row / rows[1] * row_strides_bytes[0] + row % rows[1] * row_strides_bytes[1];
  }
  int64_t Offset(int64_t tap) const {
    return RowOffset(tap / width()) + columns[static_cast<size_t>(tap % width())];
  }
  /// The taps of `pixels` adjacent pixels.
  FilterPattern Shape(int pixels) const;
  /// Where the places of Shape() lie, in bytes from the first pixel's first tap.
  std::vector<int64_t> PlaceOffsets(int pixels) const;
};

/// Inputs that are interleaved, and the output pixels that use them.
struct TapGroup {
  struct Use {
    int pixel = 0;
    int weights = 0;  // an index of DepthwiseInterleaving::weights
  };
  std::vector<int> places;  // TapsPerGroup() places
  std::vector<Use> uses;
};

/// The number of taps that one instruction of `dot` adds up.
constexpr int TapsPerGroup(jit::DotKind dot) { return dot == jit::DotKind::kWide ? 2 : 4; }

class DepthwiseInterleaving {
 public:
  /// For kernels that compute at most filter.columns.pixels adjacent pixels at a time.
  DepthwiseInterleaving(FilterPattern filter, jit::DotKind dot);
  /// An interleaving that all existing engines share, because choosing it takes longer than generating its
  /// kernel.
  static std::shared_ptr<const DepthwiseInterleaving> Shared(const FilterPattern& filter, jit::DotKind dot);

  /// The tap that each place of a group is multiplied with; −1: weight 0.
  const std::vector<std::vector<int>>& weights() const { return weights_; }
  /// The groups for `pixels` adjacent pixels, in order. They read only these pixels' taps.
  std::vector<TapGroup> Groups(int pixels) const;
  /// Instructions for one pixel's vector of channels.
  struct Cost {
    double unpacks = 0, dots = 0;
    double Sum() const { return unpacks + dots; }
  };
  const Cost& cost() const { return cost_; }

 private:
  struct Layout {
    int sharing = 1;  // number of adjacent pixels that share places: a set
    bool across_rows = false;
    bool fills_groups = false;  // groups continue from row to row; across rows: they take leftover rows too
    bool operator==(const Layout&) const = default;
  };
  static constexpr size_t kMostPlaces = 4;
  // The numbers of places (FilterPattern). The first size() elements are those of a group.
  using Places = std::array<uint16_t, kMostPlaces>;
  using Taps = std::array<int, kMostPlaces>;  // kUnused: no tap
  static constexpr int kUnused = -1;

  size_t size() const { return static_cast<size_t>(TapsPerGroup(dot_)); }
  /// The groups of one set of pixels that share places.
  std::vector<Places> GroupsOfSet(const Layout& layout) const;
  void AppendGroups(const std::vector<int>& places, std::vector<Places>* groups) const;
  /// The taps of `pixel` at `places`; all are kUnused if `pixel` has no tap there.
  Taps TapsAt(const Places& places, int pixel) const;
  void MakeTables();
  void Choose(const Layout& layout);
  void KeepWeights();
  /// Calls visit(places, pixel, weights) for each use of a group.
  template <class Visit>
  void ForEachUse(int pixels, const Visit& visit) const;
  /// Bit i: the weights have a tap at place i.
  unsigned WeighedPlaces(int weights) const;
  /// Places without a bit in `weighed` may lie outside the input. Replaces them by another place.
  void DropUnweighed(unsigned weighed, Places* places) const;
  Cost CostOf(int pixels) const;

  FilterPattern filter_;
  jit::DotKind dot_;
  int column_count_ = 0;
  // Tables of numbers for each pixel and column; −1: none.
  std::vector<int> taps_of_columns_;  // the pixel's tap in the column
  std::vector<int> shifts_;  // if the first pixels read the column: what pixels from this one on read instead
  Layout layout_;
  std::vector<std::vector<int>> weights_;
  std::vector<Taps> taps_;              // weights_, while layouts are compared
  std::vector<Places> groups_;          // the groups of the first set
  std::vector<int> weights_of_groups_;  // [group][pixel of the set]; −1: does not use the group
  Cost cost_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_DEPTHWISE_INTERLEAVING_H_
