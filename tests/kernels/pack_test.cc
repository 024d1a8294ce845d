// Packing: how kernels see the caller's weights.
#include "kernels/weights/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

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

}  // namespace
}  // namespace intact::kernels
