// The oracle against the contract as include/intact/intact.h states it, one product at a time.
#include "core/types.h"
#include "reference/contract/gemm.h"
#include "reference/models/lowering.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/expect_model.h"

namespace intact::reference {
namespace {

std::vector<int32_t> Contract(const Gemm& gemm) {
  std::vector<int32_t> y;
  for (int64_t m = 0; m < gemm.m; ++m) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      const auto column = static_cast<size_t>(n);
      int64_t sum = gemm.bias_s32.empty() ? 0 : gemm.bias_s32[column];
      for (int64_t k = 0; k < gemm.k; ++k) {
        const int32_t a = core::DecodeInt8(gemm.a_type, gemm.a[static_cast<size_t>(m * gemm.k + k)]);
        const auto byte = static_cast<uint8_t>(gemm.b[static_cast<size_t>(k * gemm.n + n)]);
        sum +=
            int64_t{a - gemm.a_zero_point} * (core::DecodeInt8(gemm.b_type, byte) - WeightZeroPoint(gemm, n));
      }
      y.push_back(static_cast<int32_t>(sum));
    }
  }
  return y;
}

TEST(Reference, IsTheContract) {
  for (const char* line :
       {"gemm u8s8s32 m=3 n=5 k=7 za=9", "gemm s8s8s32 m=3 n=5 k=8 za=-9 bias=s32",
        "gemm u8s8s32 m=3 n=5 k=7 za=9 zb=-128", "gemm s8s8s32 m=3 n=5 k=33 za=127 zb=5 zbper=channel",
        "gemm u8u8s32 m=3 n=5 k=7", "gemm u8u8s32 m=3 n=5 k=7 za=200 zb=255 zbper=channel bias=s32",
        "gemm s8u8s32 m=3 n=5 k=7 za=-128 zb=128", "gemm s8u8s32 m=3 n=5 k=64 za=5 zb=1 zbper=channel"}) {
    const Gemm gemm = verify::Materialize(tests::Parsed(line));
    EXPECT_EQ(Accumulators(gemm, Model::kExact), Contract(gemm)) << line;
  }
}

// 255·(w − 128) clamps, whatever the zero point.
TEST(Reference, ClampsPairsOfShiftedU8Weights) {
  Gemm gemm;
  gemm.m = gemm.n = 1;
  gemm.k = 2;
  gemm.b_type = INTACT_U8;
  gemm.a = {255, 255};
  gemm.b = {static_cast<int8_t>(255), static_cast<int8_t>(250)};
  for (const int32_t zb : {0, 128, 255}) {
    gemm.b_zero_points = {zb};
    const int32_t exact = 255 * (255 + 250 - 2 * zb);
    EXPECT_EQ(Accumulators(gemm, Model::kExact)[0], exact);
    EXPECT_EQ(Accumulators(gemm, Model::kTriple)[0], exact - (255 * (127 + 122) - 32767));
  }
  gemm.b = {static_cast<int8_t>(190), static_cast<int8_t>(190)};  // 510·62 fits
  EXPECT_EQ(Accumulators(gemm, Model::kTriple), Accumulators(gemm, Model::kExact));
}

}  // namespace
}  // namespace intact::reference
