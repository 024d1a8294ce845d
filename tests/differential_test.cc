// The library against the scalar reference: every ISA × mode × fill, on shapes around the register blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/expect_model.h"
#include "tests/require_isas.h"
#include "verify/problem.h"

namespace intact::verify {
namespace {

constexpr intact_isa kIsas[] = {INTACT_ISA_AVX2, INTACT_ISA_AVX_VNNI, INTACT_ISA_AVX512,
                                INTACT_ISA_AVX512_VNNI, INTACT_ISA_AMX_INT8};

class Differential : public ::testing::TestWithParam<std::tuple<intact_isa, intact_mode, Fill>> {
 protected:
  void SetUp() override {
    const intact_isa isa = std::get<0>(GetParam());
    if (intact_isa_available(isa) == 0) INTACT_SKIP_ISA(intact_isa_name(isa));
  }

  // The asked ISA, mode and fill on a problem given by its line.
  static Problem OnThis(std::string_view line) {
    Problem problem = tests::Parsed(line);
    std::tie(problem.isa, problem.mode, problem.fill) = GetParam();
    return problem;
  }
};

TEST_P(Differential, ShapesAroundTheBlocks) {
  Problem problem = OnThis("gemm u8s8s32 m=1 n=1 k=1 za=3");
  for (const int64_t m : {1, 2, 3, 4, 6, 7, 8, 9, 13, 17}) {
    for (const int64_t n : {1, 15, 16, 17, 24, 31, 33, 47, 48, 49, 64, 65, 97}) {
      for (const int64_t k : {1, 2, 3, 4, 5, 8, 63, 64, 65, 130}) {
        problem.m = m;
        problem.n = n;
        problem.k = k;
        tests::ExpectItsModel(problem);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Differential, TypesAndEpilogues) {
  for (const char* line : {
           "gemm s8s8s32 m=9 n=50 k=67 za=-5 bias=s32",
           "gemm s8s8u8 m=9 n=50 k=67 za=127 zc=3 bias=f32 scale=channel act=relu",
           "gemm s8s8s8 m=9 n=50 k=67 za=-128 zc=-128 bias=s32",
           "gemm s8s8f32 m=9 n=50 k=67 act=clamp scale=channel",
           "gemm u8s8u8 m=9 n=50 k=67 za=255 zc=128 bias=s32 scale=channel act=clamp",
           "gemm u8s8u8 m=9 n=50 k=67 za=9 zc=255 bias=f32",
           "gemm u8s8s8 m=9 n=50 k=67 za=9 zc=127 wmax=128 scale=channel",
           "gemm u8s8f32 m=9 n=50 k=67 za=9 bias=f32 scale=channel act=relu",
           "gemm u8s8f32 m=9 n=50 k=67 bias=s32",
       }) {
    tests::ExpectItsModel(OnThis(line));
  }
}

TEST_P(Differential, StridesAndThreads) {
  for (const char* line : {
           "gemm u8s8s32 m=61 n=50 k=67 apad=1 cpad=3 threads=2",
           "gemm u8s8u8 m=61 n=50 k=67 apad=64 cpad=1 threads=3 scale=channel",
           "gemm s8s8f32 m=130 n=33 k=64 cpad=7 threads=0",
           "gemm u8s8s8 m=7 n=200 k=256 apad=5 threads=4",
       }) {
    tests::ExpectItsModel(OnThis(line));
  }
}

std::string NameOf(const ::testing::TestParamInfo<Differential::ParamType>& test) {
  const auto& [isa, mode, fill] = test.param;
  return std::string(intact_isa_name(isa)) + "_" + std::string(ToString(mode)) + "_" +
         std::string(ToString(fill));
}

INSTANTIATE_TEST_SUITE_P(All, Differential,
                         ::testing::Combine(::testing::ValuesIn(kIsas),
                                            ::testing::Values(INTACT_EXACT, INTACT_SATURATING),
                                            ::testing::ValuesIn(AllFills().begin(), AllFills().end())),
                         NameOf);

}  // namespace
}  // namespace intact::verify
