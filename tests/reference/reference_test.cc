// The oracle compared with the contract in include/intact/intact.h, product by product.
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

TEST(Reference, IsTheContract) {
  for (const char* line :
       {"gemm u8s8s32 m=3 n=5 k=7 za=9", "gemm s8s8s32 m=3 n=5 k=8 za=-9 bias=s32",
        "gemm u8s8s32 m=3 n=5 k=7 za=9 zb=-128", "gemm s8s8s32 m=3 n=5 k=33 za=127 zb=5 zbper=channel",
        "gemm u8u8s32 m=3 n=5 k=7", "gemm u8u8s32 m=3 n=5 k=7 za=200 zb=255 zbper=channel bias=s32",
        "gemm s8u8s32 m=3 n=5 k=7 za=-128 zb=128", "gemm s8u8s32 m=3 n=5 k=64 za=5 zb=1 zbper=channel",
        "gemm u8s8s32 m=3 n=5 k=7 batch=3 runtimeb=yes zb=9 zbper=item",
        "gemm s8u8s32 m=3 n=5 k=7 batch=3 runtimeb=yes zb=9 zbper=item_column",
        "gemm u8s8f32 m=3 n=5 k=7 quant=rows zaper=row"}) {
    const Gemm gemm = verify::MaterializeGemm(tests::Parsed(line));
    EXPECT_EQ(Accumulators(gemm, Model::kExact), Multiply(gemm)) << line;
  }
}

// Every term of the sum, by hand.
TEST(Reference, MultipliesByTheContract) {
  Gemm gemm;
  gemm.m = 2;
  gemm.n = 1;
  gemm.k = 2;
  gemm.a = {10, 200, 3, 4};
  gemm.a_zero_points = {5, 1};
  gemm.b = {-3, 7};
  gemm.b_zero_points = {2};
  gemm.bias_s32 = {100};
  EXPECT_EQ(Multiply(gemm), (std::vector<int32_t>{(10 - 5) * (-3 - 2) + (200 - 5) * (7 - 2) + 100,
                                                  (3 - 1) * (-3 - 2) + (4 - 1) * (7 - 2) + 100}));
  gemm.batch = 2;
  gemm.m = 1;
  gemm.has_runtime_b = true;
  gemm.b = {-3, 7, 1, 1};
  gemm.item_zero_points = {2, 0};
  EXPECT_EQ(Multiply(gemm), (std::vector<int32_t>{5 * -5 + 195 * 5 + 100, 2 * 1 + 3 * 1 + 100}));
}

// 255·(w − 128) clamps for any zero point.
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
    EXPECT_EQ(Accumulators(gemm, Model::kMaddubs)[0], exact - (255 * (127 + 122) - 32767));
  }
  gemm.b = {static_cast<int8_t>(190), static_cast<int8_t>(190)};  // 510·62 fits
  EXPECT_EQ(Accumulators(gemm, Model::kMaddubs), Accumulators(gemm, Model::kExact));
}

}  // namespace
}  // namespace intact::reference
