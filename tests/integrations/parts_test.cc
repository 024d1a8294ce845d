#include "integrations/parts.h"

#include <gtest/gtest.h>

namespace intact::integrations {
namespace {

constexpr double kProducts = 1 << 20;  // of a part

TEST(Parts, FollowTheProductsTheWeightsOrTheOutputs) {
  EXPECT_EQ(PartsOf({}, kProducts, 8), 1);
  EXPECT_EQ(PartsOf({1, 64, 64}, kProducts, 8), 1);
  EXPECT_EQ(PartsOf({16, 512, 512}, kProducts, 8), 4) << "2^22 products";
  EXPECT_EQ(PartsOf({16, 512, 512}, kProducts / 4, 8), 8) << "fewer products of a part, of narrower vectors";
  EXPECT_EQ(PartsOf({1, 1024, 512}, kProducts, 8), 2) << "2^19 bytes of weights";
  EXPECT_EQ(PartsOf({1 << 14, 4, 9}, kProducts, 8), 4) << "2^16 outputs of 9 products";
  EXPECT_EQ(PartsOf({4096, 4096, 4096}, kProducts, 3), 3);
}

TEST(Parts, HaveMoreProductsWithWiderVectorsAndVnni) {
  EXPECT_EQ(PartProducts(INTACT_ISA_PORTABLE), 1 << 18);
  EXPECT_EQ(PartProducts(INTACT_ISA_AVX2), 1 << 18);
  EXPECT_FALSE(MayUseAvx512(INTACT_ISA_AVX2));
  const bool has_avx512 = intact_isa_available(INTACT_ISA_AVX512) != 0;
  EXPECT_EQ(PartProducts(INTACT_ISA_AVX512), has_avx512 ? 1 << 19 : 1 << 18);
  const bool has_vnni = intact_isa_available(INTACT_ISA_AVX512_VNNI) != 0;
  if (has_vnni) {
    EXPECT_EQ(PartProducts(INTACT_ISA_ANY), 1 << 20);
  }
}

}  // namespace
}  // namespace intact::integrations
