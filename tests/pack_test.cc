// Packing: what kernels see of the caller's weights.
#include "kernels/weights/pack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace intact::kernels {
namespace {

TEST(PackWeights, ShiftsU8By128AndPadsWithZeros) {
  constexpr int64_t kColumns = 18;
  constexpr int64_t kDepths = 38;
  std::vector<int8_t> b;
  for (int64_t i = 0; i < 2 * kDepths * kColumns; ++i) b.push_back(static_cast<int8_t>(i * 37));
  struct Strides {
    int64_t k, n;
  };
  // Row-major, column-major, and with gaps everywhere: each is packed in its own way.
  for (const auto& [stride_k, stride_n] : {Strides{kColumns, 1}, {1, kDepths}, {2 * kColumns, 2}}) {
    PackedWeights packed;
    ASSERT_TRUE(
        PackWeights({b.data(), kDepths, kColumns, stride_k, stride_n, WeightFlip(INTACT_U8)}, &packed));
    for (int64_t k = 0; k < 64; ++k) {
      for (int64_t n = 0; n < 2 * kPanelColumns; ++n) {
        int expected = 0;
        if (k < kDepths && n < kColumns) {
          expected = static_cast<uint8_t>(b[static_cast<size_t>(k * stride_k + n * stride_n)]) - 128;
        }
        ASSERT_EQ(packed.At(k, n), expected) << "depth " << k << " of column " << n;
      }
    }
  }
}

}  // namespace
}  // namespace intact::kernels
