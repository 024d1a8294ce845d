// Packing: how kernels see the caller's weights.
#include "kernels/weights/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "kernels/weights/cut_panels.h"

namespace intact::kernels {
namespace {

struct Sizes {
  int64_t depths, columns;
};
// Sizes that do not fill a quad and a panel; and several of the units that are packed at once, with tails.
constexpr Sizes kSizes[] = {{38, 18}, {64, 32}, {150, 83}, {70, 9}};
// Sizes of panels narrower than 16 columns.
constexpr Sizes kNarrowSizes[] = {{1, 1}, {64, 1}, {150, 1}, {129, 2}, {38, 3}, {64, 4}, {70, 5}, {150, 8}};

struct Strides {
  int64_t k, n;
};
// Row-major, column-major, and with gaps everywhere. Each has its own packing code.
std::array<Strides, 3> StridesOf(const Sizes& sizes) {
  return {Strides{sizes.columns, 1}, {1, sizes.depths}, {2 * sizes.columns, 2}};
}

std::vector<int8_t> Weights(int64_t count) {
  std::vector<int8_t> b;
  for (int64_t i = 0; i < count; ++i) b.push_back(static_cast<int8_t>(i * 37 + i / 256));
  return b;
}

TEST(PackWeights, ShiftsU8By128AndPadsWithZeros) {
  for (const auto& [depths, columns] : kSizes) {
    const std::vector<int8_t> b = Weights(2 * depths * columns);
    for (const auto& [stride_k, stride_n] : StridesOf({depths, columns})) {
      PackedWeights packed;
      ASSERT_TRUE(
          PackWeights({b.data(), depths, columns, stride_k, stride_n, WeightShift(INTACT_U8)}, &packed));
      for (int64_t k = 0; k < (depths + 63) / 64 * 64; ++k) {
        for (int64_t n = 0; n < packed.panels() * kPanelColumns; ++n) {
          int expected = 0;
          if (k < depths && n < columns) {
            expected = static_cast<uint8_t>(b[static_cast<size_t>(k * stride_k + n * stride_n)]) - 128;
          }
          ASSERT_EQ(packed.At(k, n), expected) << "depth " << k << " of column " << n;
        }
      }
    }
  }
}

// Depths and columns with each tail, of wide and of narrow panels.
TEST(PackWeights, ColumnsAreCopied) {
  for (const int64_t depths : {1, 5, 15, 16, 17, 64, 83}) {
    for (int64_t columns = 1; columns <= 38; ++columns) {
      const std::vector<int8_t> b = Weights(depths * columns);
      PackedWeights packed;
      ASSERT_TRUE(PackWeights({b.data(), depths, columns, 1, depths, 0}, &packed));
      std::vector<int8_t> copy(b.size() + 1, 85);
      CopyColumns(packed, copy.data());
      EXPECT_EQ(copy.back(), 85) << depths << " depths of " << columns << " columns";
      copy.pop_back();
      EXPECT_EQ(copy, b) << depths << " depths of " << columns << " columns";
    }
  }
}

TEST(PackWeights, GivesFewColumnsANarrowPanel) {
  for (const auto& [depths, columns] : kNarrowSizes) {
    const std::vector<int8_t> b = Weights(2 * depths * columns);
    const int64_t width = columns > 4 ? 8 : columns > 2 ? 4 : columns;
    const int64_t line_at = (depths + 63) / 64 * 64 * width;
    for (const auto& [stride_k, stride_n] : StridesOf({depths, columns})) {
      PackedWeights packed;
      ASSERT_TRUE(PackWeights({b.data(), depths, columns, stride_k, stride_n, 0}, &packed));
      ASSERT_EQ(packed.bytes(), line_at + 64);
      for (int64_t i = 0; i < packed.bytes(); ++i) {
        const int64_t k = i / (4 * width) * 4 + i % 4;
        const int64_t n = i / 4 % width;
        const bool is_weight = i < line_at && k < depths && n < columns;
        const int expected = is_weight ? b[static_cast<size_t>(k * stride_k + n * stride_n)] : 0;
        ASSERT_EQ(packed.data[i], expected) << "byte " << i << " of " << depths << "x" << columns;
        ASSERT_TRUE(!is_weight || packed.At(k, n) == expected);
      }
    }
  }
}

// Pairs of depths as int16. The last pairs of each tap are left out if all their weights are 0.
TEST(WidePanels, HoldEachPairThatHasWeights) {
  struct Case {
    int64_t taps, tap_depth, last_depth;  // depths from last_depth on have weights of 0
  };
  for (const auto& [taps, tap_depth, last_depth] :
       {Case{1, 1, 1}, {1, 7, 7}, {1, 64, 64}, {3, 12, 12}, {3, 12, 9}, {2, 8, 0}}) {
    for (const int64_t columns : {1, 3, 8, 9, 16, 17, 40}) {
      std::vector<int8_t> b = Weights(taps * tap_depth * columns);
      for (int64_t i = 0; i < std::ssize(b); ++i) {
        int8_t& weight = b[static_cast<size_t>(i)];
        weight = i / columns % tap_depth >= last_depth ? int8_t{0} : static_cast<int8_t>(weight | 1);
      }
      PackedWeights packed;
      ASSERT_TRUE(PackWeights({b.data(), taps * tap_depth, columns, columns, 1, 0}, &packed));
      WidePanels wide;
      ASSERT_TRUE(wide.Widen(packed, tap_depth));
      const int64_t pairs = std::max<int64_t>((last_depth + 1) / 2, 1), width = packed.width;
      ASSERT_EQ(wide.tap_pairs(), pairs);
      ASSERT_EQ(wide.panel_stride_bytes(), taps * pairs * width * 4);
      ASSERT_GE(wide.bytes(), packed.panels() * wide.panel_stride_bytes() + 64);
      const auto* const words = reinterpret_cast<const int16_t*>(wide.data());
      for (int64_t i = 0; i < packed.panels() * taps * pairs * width * 2; ++i) {
        const int64_t n = i / (taps * pairs * width * 2) * width + i / 2 % width;
        const int64_t depth = i / (width * 2) % pairs * 2 + i % 2;
        const int64_t k = i / (pairs * width * 2) % taps * tap_depth + depth;
        const int expected = n < columns && depth < tap_depth ? b[static_cast<size_t>(k * columns + n)] : 0;
        ASSERT_EQ(words[i], expected) << "word " << i << ", " << tap_depth << "x" << columns;
      }
    }
  }
}

// Every number of depths around a vector, to the last byte.
TEST(StageWide, WidensEachActivation) {
  if (!HasAvx2()) GTEST_SKIP();
  EXPECT_EQ(StageFor(jit::DotKind::kWide, core::Isa::kAvx2), StageWide);
  for (const core::Isa isa : {core::Isa::kAvx2, core::Isa::kAvx512}) {
    for (int64_t k = 1; k <= 100; ++k) {
      for (const uint8_t shift : {uint8_t{0}, uint8_t{128}}) {
        std::vector<uint8_t> a(static_cast<size_t>(k));
        for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint8_t>(37 * i + 200);
        std::vector<uint16_t> staged(a.size() + a.size() % 2 + 1, 85);
        StageFor(jit::DotKind::kWide, isa)(a.data(), k, shift, reinterpret_cast<uint8_t*>(staged.data()));
        EXPECT_EQ(staged.back(), 85);
        for (size_t i = 0; i + 1 < staged.size(); ++i) {
          ASSERT_EQ(staged[i], i < a.size() ? a[i] ^ shift : 0) << i << " of " << k;
        }
      }
    }
  }
}

// Every depth modulo a quad, a half vector and a vector, and every tail of rows. Rows are allocated apart, so
// that reads beyond them are found by sanitizers.
TEST(PackActivations, PadsQuadsAndFindsTheLargest) {
  constexpr size_t kPanelRows = 24;
  for (size_t k = 1; k <= 84; ++k) {
    for (const size_t row_count : {1U, 3U, 4U, 7U, 8U, 12U, 17U, 24U}) {
      for (const uint8_t shift : {uint8_t{0}, uint8_t{128}}) {
        std::vector<std::vector<uint8_t>> rows(row_count, std::vector<uint8_t>(k));
        std::vector<const uint8_t*> pointers;
        const size_t quads = (k + 3) / 4;
        std::vector<uint8_t> expected(quads * kPanelRows * 4, 77);
        uint8_t largest = 0;
        for (size_t row = 0; row < row_count; ++row) {
          for (size_t depth = 0; depth < quads * 4; ++depth) {
            uint8_t value = 0;
            if (depth < k) {
              rows[row][depth] = static_cast<uint8_t>(row * 7 + depth * 13 + k);
              value = static_cast<uint8_t>(rows[row][depth] ^ shift);
            }
            expected[(depth / 4 * kPanelRows + row) * 4 + depth % 4] = value;
            largest = std::max(largest, value);
          }
          pointers.push_back(rows[row].data());
        }
        std::vector<uint8_t> panel(expected.size(), 77);
        const auto panel_rows = static_cast<int64_t>(kPanelRows);
        EXPECT_EQ(PackActivations(pointers, 0, static_cast<int64_t>(k), shift, panel_rows, panel.data()),
                  largest);
        EXPECT_EQ(panel, expected) << k << " depths, " << row_count << " rows, shift " << int{shift};
      }
    }
  }
}

TEST(AddDepths, AddsWholeQuadsOfEachColumn) {
  std::vector<Sizes> all_sizes(std::begin(kSizes), std::end(kSizes));
  all_sizes.insert(all_sizes.end(), std::begin(kNarrowSizes), std::end(kNarrowSizes));
  for (const auto& [depths, columns] : all_sizes) {
    const std::vector<int8_t> b = Weights(depths * columns);
    PackedWeights packed;
    ASSERT_TRUE(PackWeights({b.data(), depths, columns, columns, 1, 0}, &packed));
    const int64_t end = packed.quads() * kQuad;
    const int64_t first = std::min<int64_t>(8, end);
    std::vector<uint32_t> sums(static_cast<size_t>(packed.panels() * kPanelColumns), 5);
    AddDepths(packed, first, end, sums.data());
    for (int64_t n = 0; n < columns; ++n) {
      int32_t expected = 5;
      for (int64_t k = first; k < end; ++k) expected += packed.At(k, n);
      ASSERT_EQ(static_cast<int32_t>(sums[static_cast<size_t>(n)]), expected) << "column " << n;
    }
  }
}

// Each quad and its extra quad add up to the weights, and no pair sum exceeds the limit of the activations.
TEST(CutPanels, MovesTheExcessOfPairsToExtraQuads) {
  constexpr int64_t kDepths = 38, kColumns = 30;
  const std::vector<int8_t> b = Weights(kDepths * kColumns);
  PackedWeights packed;
  ASSERT_TRUE(PackWeights({b.data(), kDepths, kColumns, kColumns, 1, 0}, &packed));
  const int64_t most = packed.panels() * packed.quads();
  for (const int amax : {255, 200, 127}) {
    std::vector<int8_t> panels(packed.data, packed.data + packed.bytes());
    std::vector<int64_t> begins(static_cast<size_t>(packed.panels()) + 1), offsets(static_cast<size_t>(most));
    std::vector<ExtraQuad> quads(static_cast<size_t>(most));
    const ExtraQuads extra = {begins.data(), offsets.data(), quads.data()};
    ASSERT_TRUE(CutPanels(packed, amax, most, panels.data(), extra));
    ASSERT_EQ(begins.back() == 0, amax == 127);
    std::vector<int8_t> sums = panels;
    const auto expect_fits = [&](const int8_t* quad) {
      for (int64_t i = 0; i < kPanelQuadBytes; i += 2)
        EXPECT_LE(std::abs(quad[i] + quad[i + 1]), 32767 / amax);
    };
    for (int64_t panel = 0; panel < packed.panels(); ++panel) {
      for (int64_t i = begins[static_cast<size_t>(panel)]; i < begins[static_cast<size_t>(panel) + 1]; ++i) {
        const ExtraQuad& quad = quads[static_cast<size_t>(i)];
        const int64_t window = offsets[static_cast<size_t>(i)] / kQuad;
        ASSERT_LE(window + kWindowQuads, packed.quads());
        for (int64_t n = 0; n < kPanelColumns; ++n) {
          const int64_t in_window = quad.quads[static_cast<size_t>(n)];
          ASSERT_TRUE(in_window >= 0 && in_window < kWindowQuads);
          int8_t* const to = sums.data() + panel * packed.panel_stride_bytes() +
                             (window + in_window) * kPanelQuadBytes + n * kQuad;
          for (int64_t k = 0; k < kQuad; ++k) {
            to[k] = static_cast<int8_t>(to[k] + quad.weights[static_cast<size_t>(n * kQuad + k)]);
          }
        }
        expect_fits(quad.weights.data());
      }
    }
    EXPECT_TRUE(std::equal(sums.begin(), sums.end(), packed.data));
    for (int64_t i = 0; i < packed.bytes(); i += kPanelQuadBytes) expect_fits(panels.data() + i);
    if (amax == 127) continue;
    std::vector<int8_t> unchanged(packed.data, packed.data + packed.bytes());
    EXPECT_FALSE(CutPanels(packed, amax, begins.back() - 1, unchanged.data(), extra));
    EXPECT_TRUE(std::equal(unchanged.begin(), unchanged.end(), packed.data));
  }
}

}  // namespace
}  // namespace intact::kernels
