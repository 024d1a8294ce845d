// Packing: what kernels see of the caller's weights and activations.
#include "kernels/pack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "verify/guarded_buffer.h"
#include "verify/random.h"

namespace intact::kernels {
namespace {

TEST(PackWeights, ShiftsU8By128AndPadsWithZeros) {
  constexpr int64_t kColumns = 18;
  constexpr int64_t kDepths = 6;
  std::vector<int8_t> b;
  for (int64_t i = 0; i < kDepths * kColumns; ++i) b.push_back(static_cast<int8_t>(i * 37));
  for (const bool transposed : {false, true}) {
    const int64_t stride_k = transposed ? 1 : kColumns;
    const int64_t stride_n = transposed ? kDepths : 1;
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

TEST(SumRows, IsTheSumOfWhatKernelsSee) {
  verify::Random random(1, 0, 0);
  for (const intact_type type : {INTACT_U8, INTACT_S8}) {
    for (const int64_t k : {1, 3, 15, 16, 17, 31, 32, 33, 100, 4099}) {
      constexpr int64_t kRows = 5;
      const int64_t stride = k + 3;
      const auto buffer = verify::GuardedBuffer::Allocate(static_cast<size_t>((kRows - 1) * stride + k));
      ASSERT_TRUE(buffer);
      const auto a = buffer->data();
      for (uint8_t& value : a) value = static_cast<uint8_t>(random.Next());
      std::vector<int32_t> sums(kRows);
      SumRows(a.data(), stride, kRows, k, ActivationFlip(type), sums.data());
      for (int64_t row = 0; row < kRows; ++row) {
        int32_t expected = 0;
        for (int64_t i = 0; i < k; ++i) {
          const uint8_t value = a[static_cast<size_t>(row * stride + i)];
          expected += type == INTACT_S8 ? static_cast<int8_t>(value) + 128 : value;
        }
        EXPECT_EQ(sums[static_cast<size_t>(row)], expected) << "k " << k << " row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace intact::kernels
