// Edge values on every ISA: sums beyond int32 that wrap, scales of 0, and runs of nothing.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/isas.h"
#include "reference/models/arithmetic.h"
#include "tests/support/expect_model.h"
#include "tests/support/on_every_isa.h"
#include "tests/support/tiles_target.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

using verify::Problem;

// With weight zero points, row zero points, fixed point, runtime B, files, and in all layouts of a
// convolution: in place, a band, planar, depthwise, and phases with bare pixels.
constexpr const char* kWrapping[] = {
    "gemm u8s8s32 m=5 n=33 k=67 za=3 bias=s32 overflow=wraps",
    "gemm s8s8s32 m=70 n=65 k=130 za=-3 wmax=128 bias=s32 overflow=wraps saved=yes",
    "gemm s8u8f32 m=37 n=40 k=66 za=-7 zb=9 zbper=channel bias=s32 scale=channel overflow=wraps cpad=3",
    "gemm u8u8u8 m=70 n=17 k=64 zb=131 zc=9 bias=s32 act=relu overflow=wraps usual=70 saved=yes",
    "gemm s8s8s8 m=9 n=33 k=35 za=9 zc=-7 bias=s32 scale=channel fixed=away overflow=wraps saved=yes",
    "gemm u8s8u8 m=33 n=9 k=64 bias=s32 fixed=up_shift table=yes overflow=wraps",
    "gemm s8s8bf16 m=20 n=17 k=64 quant=rows zaper=row bias=s32 overflow=wraps",
    "gemm u8s8f32 m=20 n=17 k=64 quant=dynamic_rows x=normal bias=s32 overflow=wraps",
    "gemm u8u8s32 m=20 n=33 k=64 batch=3 runtimeb=yes zb=9 zbper=item bias=s32 overflow=wraps",
    "gemm u8s8s32 m=40 n=48 k=64 bias=s32 arange=127 fill=stray overflow=wraps",
    "gemm u8s8s32 m=1 n=3 k=66400 fill=extremes overflow=wraps",
    "gemm u8s8s32 m=17 n=2 k=66400 fill=extremes overflow=wraps",
    "gemm u8u8f32 m=3 n=2 k=66400 fill=extremes runtimeb=yes zb=0 overflow=wraps",
    "conv u8s8s32 in=7x6 c=19 o=20 kernel=1x1 za=3 bias=s32 overflow=wraps",
    "conv s8s8u8 in=7x6 c=18 o=20 kernel=3x3 pad=1x1 za=3 zc=9 bias=s32 scale=channel overflow=wraps "
    "saved=yes",
    "conv u8u8s32 in=7x6 c=32 o=32 kernel=3x3 pad=1x1 groups=8 za=3 zb=9 bias=s32 overflow=wraps",
    "conv u8s8s32 in=7x6 c=18 o=18 kernel=3x3 pad=1x1 groups=18 za=3 bias=s32 overflow=wraps",
    "conv s8u8s8 in=7x6 c=35 o=35 kernel=3x3 stride=2x2 pad=1x1 groups=35 zb=7 bias=s32 overflow=wraps "
    "open=yes",
    "conv u8s8s32 in=5x4 c=9 o=18 kernel=2x3 stride=5x4 outpad=4x3 transposed=yes za=3 bias=s32 "
    "overflow=wraps",
    "conv s8s8u8 in=5x5 c=12 o=16 kernel=3x3 stride=2x2 pad=1x1 groups=4 transposed=yes za=3 zc=128 bias=s32 "
    "overflow=wraps",
    "conv u8s8s32 in=2x1 c=33200 o=3 kernel=2x1 fill=extremes overflow=wraps",
};

constexpr const char* kPruned[] = {
    "gemm u8s8f32 m=5 n=33 k=67 za=3 scale=pruned",
    "gemm s8s8f32 m=70 n=65 k=66 za=-3 bias=f32 scale=pruned act=relu saved=yes",
    "gemm u8u8u8 m=37 n=17 k=64 za=9 zc=9 bias=s32 scale=pruned res=s8",
    "gemm u8s8bf16 m=20 n=17 k=64 quant=rows zaper=row scale=pruned",
    "gemm s8s8f16 m=20 n=17 k=64 quant=dynamic_rows x=nonfinite scale=pruned",
    "gemm u8s8f32 m=9 n=24 k=64 batch=2 runtimeb=yes scale=pruned",
    "conv s8s8u8 in=7x6 c=18 o=20 kernel=3x3 pad=1x1 za=3 zc=9 bias=f32 scale=pruned saved=yes",
    "conv u8s8f32 in=7x6 c=18 o=18 kernel=3x3 pad=1x1 groups=18 za=3 scale=pruned",
    "conv u8s8f32 in=7x6 c=16 o=16 kernel=3x3 pad=1x1 groups=4 za=3 bias=s32 scale=pruned act=clamp",
};

constexpr const char* kNothing[] = {
    "gemm u8s8s32 m=0 n=33 k=67",
    "gemm u8s8u8 m=5 n=33 k=67 batch=0 res=s8 scratch=yes",
    "gemm u8s8f32 m=0 n=33 k=67 batch=3 runtimeb=yes scale=item threads=2",
    "gemm u8s8f32 m=5 n=33 k=67 batch=0 items=pointers quant=dynamic_tensor",
    "gemm u8s8f32 m=0 n=33 k=67 quant=rows zaper=row saved=yes",
    "conv u8s8s32 in=7x6 c=19 o=20 kernel=3x3 pad=1x1 batch=0",
    "conv u8s8u8 in=7x6 c=18 o=18 kernel=3x3 groups=18 res=u8 inplace=yes batch=0 scratch=yes open=yes",
    "conv u8s8s32 in=5x4 c=9 o=18 kernel=2x3 stride=5x4 transposed=yes batch=0 threads=2",
};

class EdgeValues : public OnEachIsa<intact_mode> {
 protected:
  static void Expect(std::string_view line) {
    Problem problem = Parsed(line);
    problem.isa = ThisIsa();
    problem.mode = std::get<1>(GetParam());
    ExpectItsModel(problem);
    if (problem.isa == INTACT_ISA_AMX_INT8) ExpectItsModel(problem, TilesTarget());
  }
};

TEST_P(EdgeValues, SumsWrap) {
  for (const char* line : kWrapping) Expect(line);
}

TEST_P(EdgeValues, ScalesAreZero) {
  for (const char* line : kPruned) Expect(line);
}

TEST_P(EdgeValues, NothingIsRun) {
  for (const char* line : kNothing) Expect(line);
  Expect("gemm u8s8s32 m=48 n=64 k=256");  // shows whether the ISA is emulated
}

// "avx2_exact"
std::string NameOfCase(const ::testing::TestParamInfo<EdgeValues::ParamType>& test) {
  const auto& [isa, mode] = test.param;
  return std::string(intact_isa_name(isa)) + "_" + std::string(verify::ToString(mode));
}

INSTANTIATE_TEST_SUITE_P(All, EdgeValues,
                         ::testing::Combine(::testing::ValuesIn(core::kIsaLadder),
                                            ::testing::Values(INTACT_EXACT, INTACT_SATURATING)),
                         NameOfCase);

// Each problem has sums beyond int32, and is refused if they must not wrap.
TEST(WrappingSums, LeaveInt32) {
  for (const char* line : kWrapping) {
    SCOPED_TRACE(line);
    Problem problem = Parsed(line);
    problem.overflow = INTACT_OVERFLOW_REFUSED;
    reference::Operation operation = verify::Materialize(Parsed(line));
    LinearOf(operation).overflow = INTACT_OVERFLOW_REFUSED;
    EXPECT_FALSE(reference::Predictor(operation).Overflows().empty());
    const auto output = verify::IntactTarget().Run(operation, verify::RunOptionsOf(problem));
    ASSERT_FALSE(output);
    EXPECT_EQ(output.error().status, INTACT_OVERFLOW) << output.error().message;
  }
}

}  // namespace
}  // namespace intact::tests
