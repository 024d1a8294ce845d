// AVX-VNNI's kernels on every machine with AVX2: where the CPU lacks the instruction, the emulator executes
// it.
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <tuple>

#include "jit/isa.h"
#include "tests/emulator/emulator.h"
#include "tests/expect_model.h"
#include "tests/require_isas.h"
#include "verify/problem.h"

namespace intact::verify {
namespace {

class AvxVnni : public ::testing::TestWithParam<std::tuple<intact_mode, Fill>> {
 protected:
  // Whether the CPU itself executes the instructions.
  static bool IsNative() {
    static const bool kNative = jit::HardwareIsas().Has(jit::Isa::kAvxVnni);
    return kNative;
  }

  void SetUp() override {
    if (!jit::HardwareIsas().Has(jit::Isa::kAvx2)) INTACT_SKIP_ISA("avx2");
    if (!IsNative()) jit::AddEmulatedIsaForTesting(jit::Isa::kAvxVnni);
    if (intact_isa_available(INTACT_ISA_AVX_VNNI) == 0) INTACT_SKIP_ISA("avx_vnni");  // INTACT_MAX_ISA
    emulated_before_ = emulator::ScopedEmulator::Count();
  }

  void TearDown() override {
    if (IsSkipped()) return;
    const uint64_t emulated = emulator::ScopedEmulator::Count() - emulated_before_;
    if (IsNative()) {
      std::cout << "AVX-VNNI: native\n";
      EXPECT_EQ(emulated, 0u);
    } else {
      std::cout << "AVX-VNNI: " << emulated << " instructions emulated\n";
      EXPECT_GT(emulated, 0u);
    }
  }

  static void ExpectItsModel(Problem problem) {
    problem.isa = INTACT_ISA_AVX_VNNI;
    std::tie(problem.mode, problem.fill) = GetParam();
    tests::ExpectItsModel(problem);
  }

 private:
  emulator::ScopedEmulator emulator_;
  uint64_t emulated_before_ = 0;
};

TEST_P(AvxVnni, ShapesAroundTheBlock) {
  Problem problem = tests::Parsed("gemm u8s8s32 m=1 n=1 k=1 za=3");
  for (const int64_t m : {1, 5, 6, 7, 13}) {
    for (const int64_t n : {1, 8, 15, 16, 17, 33}) {
      for (const int64_t k : {1, 4, 7, 65}) {
        problem.m = m;
        problem.n = n;
        problem.k = k;
        ExpectItsModel(problem);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(AvxVnni, TypesEpiloguesAndThreads) {
  for (const char* line : {
           "gemm s8s8s32 m=9 n=50 k=67 za=-5 bias=s32",
           "gemm s8s8u8 m=9 n=50 k=67 za=127 zc=3 bias=f32 scale=channel act=relu",
           "gemm u8s8s8 m=9 n=50 k=67 za=255 zc=127 wmax=128 scale=channel act=clamp",
           "gemm u8s8f32 m=31 n=50 k=67 apad=1 cpad=3 bias=f32 threads=3",
           "gemm u8u8s32 m=9 n=50 k=67 za=3 zb=128",
           "gemm s8u8u8 m=9 n=50 k=67 za=-3 zb=77 zbper=channel zc=128 bias=f32 scale=channel",
           "gemm s8s8s8 m=9 n=50 k=67 za=-3 zb=-7 bias=s32",
       }) {
    ExpectItsModel(tests::Parsed(line));
  }
}

std::string NameOf(const ::testing::TestParamInfo<AvxVnni::ParamType>& test) {
  const auto& [mode, fill] = test.param;
  return std::string(ToString(mode)) + "_" + std::string(ToString(fill));
}

INSTANTIATE_TEST_SUITE_P(All, AvxVnni,
                         ::testing::Combine(::testing::Values(INTACT_EXACT, INTACT_SATURATING),
                                            ::testing::ValuesIn(AllFills().begin(), AllFills().end())),
                         NameOf);

}  // namespace
}  // namespace intact::verify
