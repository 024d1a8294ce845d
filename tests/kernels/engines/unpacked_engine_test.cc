// The functions of every ISA that read a runtime B where it lies. In these tests packing is so expensive that
// plans choose these functions for any number of rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "core/isas.h"
#include "kernels/engines/cost_table.h"
#include "kernels/runtime/caches.h"
#include "tests/support/on_every_isa.h"

namespace intact::tests {
namespace {

using verify::Problem;

class UnpackedB : public OnEachIsa<> {
 protected:
  void SetUp() override {
    OnEachIsa<>::SetUp();
    if (ThisIsa() == INTACT_ISA_PORTABLE) GTEST_SKIP() << "portable plans have another engine";
    if (ThisIsa() == INTACT_ISA_AMX_INT8) GTEST_SKIP() << "the functions are those of avx512_vnni";
  }

  static void ExpectExact(const std::string& line) {
    Problem problem = Parsed("gemm " + line + " runtimeb=yes batch=1");
    problem.isa = ThisIsa();
    const Result<Gemm> plan =
        verify::CreatePlan(verify::MaterializeGemm(problem), verify::RunOptionsOf(problem));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_THAT(plan->Info().kernel, testing::HasSubstr("_unpacked_"));
    ASSERT_NO_FATAL_FAILURE(ExpectItsModel(problem)) << line;
  }

 private:
  static kernels::CostTable CostsOfPacking() {
    kernels::CostTable table = kernels::Costs();
    kernels::RuntimeCosts& costs = table.runtime;
    costs = {};
    costs.packed_rows = costs.packed_columns = costs.packed_far_rows = 1e6;
    return table;
  }

  const ScopedCosts costs_{CostsOfPacking()};
};

// The operands at their bounds: each int16 sum of eight pairs comes as near to its limit as it can.
TEST_P(UnpackedB, IsExactAtEveryEdge) {
  const bool is_emulated = EmulatedIsas::Has(ThisIsa());
  for (const char* types : {"u8s8s32", "u8u8s32 zb=128", "s8s8s32 za=3", "u8s8u8 za=200"}) {
    for (const int64_t n : {1, 63, 64, 65, 129}) {
      for (const int64_t k : {1, 15, 16, 17, 64, 131}) {
        for (const int64_t m : {1, 2, 3, 5, 9}) {
          if (is_emulated && (n + k + m) % 7 != 0) continue;
          const std::string extents =
              " m=" + std::to_string(m) + " n=" + std::to_string(n) + " k=" + std::to_string(k);
          const int64_t pad = (m + n + k) % 2 * 3;
          for (const char* layout : {"kn", "nk"}) {
            ExpectExact(types + extents + " blayout=" + layout + " bpad=" + std::to_string(pad) +
                        " wmax=128 fill=extremes");
          }
        }
      }
    }
  }
}

// Rows of B at a distance of 4096 bytes share a set of L1. Blocks of such rows have fewer rows or are copied.
TEST_P(UnpackedB, IsExactIfRowsShareASet) {
  for (const int64_t m : {1, 4, 5}) {
    for (const int64_t k : {8, 20, 32}) {
      ExpectExact("u8s8s32 m=" + std::to_string(m) + " n=65 k=" + std::to_string(k) +
                  " bpad=4031 wmax=128 fill=extremes");
    }
  }
}

// The engine cuts B into lines of columns, so that L1 holds the sums of a line. It prefetches a B that is larger
// than L2.
TEST_P(UnpackedB, IsExactWhereLinesAreCut) {
  if (EmulatedIsas::Has(ThisIsa())) GTEST_SKIP() << "emulated: its runs take long, and times tell nothing";
  const kernels::CacheSizes caches = kernels::Caches();
  kernels::SetCachesForTesting({2 << 10, 8 << 10});
  for (const int64_t n : {200, 256, 448, 641, 1000}) {
    for (const int64_t m : {1, 3, 4}) {
      ExpectExact("u8s8s32 m=" + std::to_string(m) + " n=" + std::to_string(n) +
                  " k=100 wmax=128 fill=extremes");
    }
  }
  kernels::SetCachesForTesting(caches);
}

std::string NameOf(const ::testing::TestParamInfo<UnpackedB::ParamType>& test) {
  return intact_isa_name(std::get<0>(test.param));
}

INSTANTIATE_TEST_SUITE_P(All, UnpackedB, ::testing::Combine(::testing::ValuesIn(core::kIsaLadder)), NameOf);

}  // namespace
}  // namespace intact::tests
