// 8-bit outputs of every ISA, generated and compiled code: operations of all kinds against the reference.
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <string>
#include <vector>

#include "core/isas.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/require_isas.h"
#include "tests/support/tiles_target.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

class EightBitOutputs : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }
};

TEST_P(EightBitOutputs, EqualTheReference) {
  const std::vector<std::string> lines = {
      "gemm u8s8u8 m=1 n=40 k=67 za=3 bias=s32 scale=channel",
      "gemm u8s8s8 m=7 n=65 k=130 za=3 zb=5 zc=-7 act=relu scale=channel",
      "gemm s8u8s8 m=33 n=19 k=96 zc=5 act=clamp scale=channel",
      "gemm u8u8u8 m=70 n=48 k=300 za=9 zb=128 zc=130 scale=tensor",
      "gemm s8s8u8 m=200 n=130 k=64 zc=100 bias=s32 scale=channel",
      "gemm u8s8u8 m=40 n=7 k=512 scale=channel",
      "conv u8s8u8 in=9x9 c=16 o=24 kernel=3x3 pad=1x1 za=3 zc=100 scale=channel",
      "conv s8s8s8 in=12x12 c=8 o=20 kernel=3x3 stride=2x2 za=-3 zc=4 act=relu scale=channel",
      "conv u8s8u8 in=11x11 c=40 o=40 groups=40 kernel=3x3 pad=1x1 zc=7 scale=channel",
      "conv u8s8s8 in=6x6 c=12 o=24 groups=4 kernel=3x3 pad=1x1 zb=3 scale=channel",
      "conv u8s8u8 in=5x5 c=9 o=17 kernel=3x3 stride=2x2 transposed=yes zc=12 scale=channel",
  };
  for (const std::string& line : lines) {
    for (const verify::Fill fill : {verify::Fill::kUniform, verify::Fill::kTies}) {
      verify::Problem problem = Parsed(line);
      problem.isa = GetParam();
      problem.fill = fill;
      ExpectItsModel(problem);
      if (GetParam() == INTACT_ISA_AMX_INT8) ExpectItsModel(problem, TilesTarget());
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EightBitOutputs, testing::ValuesIn(core::kIsaLadder),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

}  // namespace
}  // namespace intact::tests
