// Packing: what kernels see of the caller's weights.
#include "kernels/weights/pack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace intact::kernels {
namespace {

struct Sizes {
  int64_t depths, columns;
};
// Less than a quad's and a panel's ends; and several of what is packed at once, with rests.
constexpr Sizes kSizes[] = {{38, 18}, {64, 32}, {150, 83}};

std::vector<int8_t> Weights(int64_t count) {
  std::vector<int8_t> b;
  for (int64_t i = 0; i < count; ++i) b.push_back(static_cast<int8_t>(i * 37 + i / 256));
  return b;
}

TEST(PackWeights, ShiftsU8By128AndPadsWithZeros) {
  for (const auto& [depths, columns] : kSizes) {
    const std::vector<int8_t> b = Weights(2 * depths * columns);
    struct Strides {
      int64_t k, n;
    };
    // Row-major, column-major, and with gaps everywhere: each is packed in its own way.
    for (const auto& [stride_k, stride_n] : {Strides{columns, 1}, {1, depths}, {2 * columns, 2}}) {
      PackedWeights packed;
      ASSERT_TRUE(
          PackWeights({b.data(), depths, columns, stride_k, stride_n, WeightFlip(INTACT_U8)}, &packed));
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

TEST(AddDepths, AddsWholeQuadsOfEachColumn) {
  for (const auto& [depths, columns] : kSizes) {
    const std::vector<int8_t> b = Weights(depths * columns);
    PackedWeights packed;
    ASSERT_TRUE(PackWeights({b.data(), depths, columns, columns, 1, 0}, &packed));
    constexpr int64_t kFirst = 8;
    const int64_t end = packed.quads() * kQuad;
    std::vector<uint32_t> sums(static_cast<size_t>(packed.panels() * kPanelColumns), 5);
    AddDepths(packed, kFirst, end, sums.data());
    for (int64_t n = 0; n < std::ssize(sums); ++n) {
      int32_t expected = 5;
      for (int64_t k = kFirst; k < end; ++k) expected += packed.At(k, n);
      ASSERT_EQ(static_cast<int32_t>(sums[static_cast<size_t>(n)]), expected) << "column " << n;
    }
  }
}

}  // namespace
}  // namespace intact::kernels
