// Matrices of one to eight columns: plans and their files take little more memory than the weights, on every
// ISA, and every engine that runs them computes the reference's bytes.
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "core/isas.h"
#include "jit/isa.h"
#include "kernels/api/create.h"
#include "kernels/plans/gemm_plan.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/support/on_every_isa.h"
#include "verify/explain/audit.h"

namespace intact::tests {
namespace {

using verify::Problem;

class FewColumns : public OnEachIsa<intact_mode> {
 protected:
  static Problem OnThis(const std::string& line) {
    Problem problem = Parsed(line);
    std::tie(problem.isa, problem.mode) = GetParam();
    return problem;
  }
};

// With the table of test programs. Zen 5's table prefers strips of two columns: its plans for any M keep up to
// 4.9 bytes for each of 1 to 6 columns' weights with AVX-512.
TEST_P(FewColumns, HoldAboutTheirBytes) {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const Problem problem = OnThis("gemm u8s8s32 m=1 n=" + std::to_string(n) + " k=4096 fill=laplace");
    const Result<Gemm> plan =
        verify::CreatePlan(verify::MaterializeGemm(problem), verify::RunOptionsOf(problem));
    ASSERT_TRUE(plan) << plan.error().message;
    const int64_t weights = n * problem.k;
    EXPECT_LE(plan->Info().packed_bytes, 4 * weights) << n << " columns";
    const auto image = plan->SaveMemory();
    ASSERT_TRUE(image) << image.error().message;
    EXPECT_LE(std::ssize(*image), 2 * weights + 2048) << n << " columns";
    ExpectItsModel(problem);
  }
}

TEST_P(FewColumns, OfConvolutionsHoldAboutTheirBytes) {
  const Problem problem = OnThis("conv u8s8s32 in=1x1 c=2048 o=1 kernel=1x1 fill=laplace");
  const Result<Conv> plan =
      verify::CreatePlan(verify::MaterializeConv(problem), verify::RunOptionsOf(problem));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_LE(plan->Info().packed_bytes, 4 * 2048);
  ExpectItsModel(problem);
}

TEST_P(FewColumns, GiveTheReferencesBytes) {
  for (const char* line : {
           "gemm u8s8s32 m=1 n=1 k=1 za=3",
           "gemm u8s8s32 m=9 n=1 k=4100 fill=laplace bias=s32",
           "gemm s8u8u8 m=33 n=1 k=67 za=-9 zb=131 bias=f32 scale=channel act=relu",
           "gemm u8s8f32 m=70 n=2 k=130 za=77 fill=gauss res=f32 saved=yes",
           "gemm u8s8s32 m=17 n=3 k=259 fill=bait threads=2",
           "gemm s8s8s8 m=5 n=3 k=64 za=-128 zc=9 blayout=nk bpad=3",
           "gemm u8u8s32 m=40 n=4 k=1030 zb=7 zbper=channel saved=yes",
           "gemm u8s8u8 m=260 n=5 k=70 arange=127 fill=stray",
           "gemm u8s8s32 m=3 n=7 k=300 fill=extremes usual=3",
           "gemm u8s8bf16 m=12 n=6 k=90 quant=dynamic_rows x=normal batch=2",
           "gemm u8s8s32 m=100 n=8 k=515 fill=student usual=128",
           "gemm u8u8f32 m=20 n=1 k=64 batch=3 runtimeb=yes zb=9 zbper=item scale=item",
           "gemm s8s8s32 m=6 n=7 k=35 batch=3 runtimeb=yes blayout=nk",
           "gemm u8s8s32 m=6 n=5 k=130 runtimeb=yes",
           // Many rows run on the narrow engine. These lines vary the panel's width, the depth within a step,
           // the gaps between rows and outputs, and the type of outputs.
           "gemm u8s8s32 m=300 n=1 k=8",
           "gemm u8s8u8 m=131 n=1 k=200 apad=3 zc=3 bias=f32 scale=channel cpad=1",
           "gemm s8s8s8 m=64 n=2 k=50 za=5 zc=-4 fixed=away act=clamp",
           "gemm u8s8s32 m=145 n=2 k=31 cpad=3",
           "gemm s8s8f32 m=48 n=4 k=77 za=-3 apad=1 act=relu bias=f32",
           "gemm u8s8u8 m=80 n=3 k=130 scale=channel usual=80 threads=3",
           "gemm u8s8f32 m=47 n=8 k=2048 scale=channel",
           "gemm u8s8f16 m=200 n=7 k=13 scale=channel",
           "gemm u8s8u8 m=160 n=8 k=36 quant=tensor zc=7",
           "gemm s8s8bf16 m=100 n=6 k=5 quant=dynamic_tensor x=normal",
           // Columns fill a vector.
           "gemm s8s8s32 m=55 n=16 k=13 za=3",
           "gemm u8s8u8 m=70 n=11 k=16 zc=3 bias=f32 scale=channel cpad=2",
           "gemm u8s8f32 m=21 n=8 k=40 scale=channel apad=3",
           // Rows with values, stored through scratch.
           "gemm u8s8f32 m=249 n=15 k=92 zb=3 scale=channel cpad=4",
           // Several rows lie side by side in a step.
           "gemm s8s8s32 m=83 n=2 k=8 za=5",
           "gemm u8s8u8 m=72 n=3 k=8 zc=3 bias=f32 scale=channel",
           "gemm u8s8f32 m=66 n=1 k=16 scale=channel quant=dynamic_tensor x=normal",
           "gemm s8u8s8 m=49 n=5 k=4 zb=3 scale=channel",
           "gemm u8s8s32 m=37 n=2 k=16 cpad=1",
           "conv u8s8s32 in=12x40 c=20 o=3 kernel=1x1 stride=2x2",
           "conv u8s8u8 in=12x40 c=20 o=3 kernel=1x1 stride=2x2 quant=tensor zc=7",
           "conv u8s8f32 in=8x40 c=9 o=1 kernel=1x1 quant=dynamic_tensor x=normal",
           "conv u8s8s32 in=9x11 c=5 o=1 kernel=3x3 pad=1x1 za=3",
           "conv s8s8u8 in=7x12 c=64 o=3 kernel=3x3 pad=1x1 za=-7 zc=3 bias=f32 saved=yes",
           "conv u8u8s32 in=6x9 c=12 o=24 kernel=3x3 pad=1x1 groups=6 za=9 zb=3 zbper=channel",
           "conv u8s8s32 in=5x6 c=8 o=2 kernel=3x2 stride=2x2 transposed=yes za=5",
       }) {
    ExpectItsModel(OnThis(line));
    if (HasFatalFailure()) return;
  }
}

// All candidates of tuning.
TEST_P(FewColumns, EveryCandidateGivesTheSameBytes) {
  for (const char* shape : {"m=13 n=1 k=1100", "m=50 n=2 k=140", "m=7 n=4 k=300", "m=21 n=8 k=67",
                            "m=40 n=3 k=70", "m=14 n=14 k=30 zb=3", "m=7 n=8 k=30 zb=3"}) {
    const Problem problem = OnThis(std::string("gemm u8s8s32 za=3 fill=laplace ") + shape);
    const reference::Gemm gemm = verify::MaterializeGemm(problem);
    const verify::RunOptions options = verify::RunOptionsOf(problem);
    const auto model = verify::ExpectedModel(gemm, options.isa);
    const std::vector<uint8_t> expected = reference::Outputs(gemm, reference::Accumulators(gemm, model));
    const GemmDesc desc = verify::DescOf(gemm, options);
    const auto plan = kernels::MakePlan(desc, desc.linear, gemm.b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    const auto kernels = (*plan)->CandidateNames();
    ASSERT_TRUE(kernels) << kernels.error().message;
    std::vector<uint8_t> c(expected.size());
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = gemm.m;
    args.a = gemm.a.data();
    args.c = c.data();
    args.threads = 1;
    for (const std::string& kernel : *kernels) {
      (*plan)->Restore({jit::HostCpu().ToString(), {{gemm.m, kernel}}});
      ASSERT_EQ((*plan)->KernelNameFor(gemm.m), kernel);
      std::ranges::fill(c, 0);
      ASSERT_EQ((*plan)->Run(args).status, INTACT_OK);
      EXPECT_EQ(c, expected) << kernel << " of " << shape;
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<FewColumns::ParamType>& test) {
  const auto& [isa, mode] = test.param;
  return std::string(intact_isa_name(isa)) + "_" + std::string(verify::ToString(mode));
}

INSTANTIATE_TEST_SUITE_P(All, FewColumns,
                         ::testing::Combine(::testing::ValuesIn(core::kIsaLadder),
                                            ::testing::Values(INTACT_EXACT, INTACT_SATURATING)),
                         NameOf);

}  // namespace
}  // namespace intact::tests
