// Plans for named rows keep the weights in one layout. They compute the same bytes for any number of rows,
// take the memory that intact.h promises, and report, save and tune like plans with all layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/api/create.h"
#include "kernels/plans/engine_maker.h"
#include "kernels/weights/certificate.h"
#include "reference/models/lowering.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/gemm_plan.h"
#include "tests/support/plan.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"
#include "verify/problem/problem.h"

namespace intact::tests {
namespace {

using kernels::GemmPlan;
using testing::HasSubstr;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

class NamedRows : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }

  void Use(const std::string& line) {
    verify::Problem problem = Parsed(line.c_str());
    problem.isa = GetParam();
    options_ = verify::RunOptionsOf(problem);
    gemm_ = verify::MaterializeGemm(problem);
    expected_ = reference::Outputs(gemm_, reference::Accumulators(gemm_, reference::Model::kExact));
  }

  std::unique_ptr<GemmPlan> PlanFor(int64_t usual_m) const { return GemmPlanFor(gemm_, options_, usual_m); }

  void ExpectSameBytes(const GemmPlan& plan) const {
    const auto row_bytes = static_cast<int64_t>(expected_.size()) / gemm_.m;
    for (int64_t m : {1, 2, 3, 7, 8, 9, 23, 24, 25, 49, 61, 119, 120, 123, 251}) {
      if (m > gemm_.m) break;
      std::vector<uint8_t> c(static_cast<size_t>(m * row_bytes));
      intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
      args.m = m;
      args.a = gemm_.a.data();
      args.c = c.data();
      if (gemm_.HasResidual()) args.residual = gemm_.residual.data();
      args.threads = 2;
      ASSERT_EQ(plan.Run(args).status, INTACT_OK);
      const std::vector<uint8_t> rows(expected_.begin(), expected_.begin() + m * row_bytes);
      EXPECT_EQ(c, rows) << m << " rows of a plan for " << plan.usual_m() << " on " << plan.KernelNameFor(m);
    }
  }

  verify::RunOptions options_;
  reference::Gemm gemm_;
  std::vector<uint8_t> expected_;
};

constexpr const char* kWithRowOperands =
    "gemm s8u8u8 m=61 n=33 k=300 za=-7 zb=17 zc=128 fill=laplace scale=channel bias=f32 act=relu res=s8 "
    "zres=-9";
constexpr const char* kLines[] = {
    "gemm u8s8s32 m=251 n=85 k=137 za=3 fill=uniform",  // tiles with several blocks
    "gemm u8s8s32 m=61 n=24 k=4111 fill=laplace",       // many windows
    "gemm u8s8s32 m=251 n=40 k=64 arange=127 fill=stray",
    "gemm u8s8f32 m=61 n=33 k=1030 arange=127 rangecheck=unchecked fill=gauss bias=f32",
    kWithRowOperands,
    "gemm u8s8f32 m=251 n=29 k=60 fill=laplace bias=f32 scale=channel",  // columns: 16, a vector, and an edge
    "gemm u8s8s32 m=251 n=20 k=40 wmax=128 fill=extremes",
    "gemm u8s8u8 m=251 n=33 k=21 za=5 zc=3 fill=laplace scale=channel bias=f32 act=relu",
    "gemm s8s8f32 m=123 n=24 k=12 fill=uniform scale=channel",
};
constexpr int64_t kUsual[] = {0, 1, 2, 6, 16, 24, 49, 128};

TEST_P(NamedRows, AnyRowsGiveTheSameBytes) {
  int of_several_blocks = 0;  // "24of120"
  for (const char* const line : kLines) {
    SCOPED_TRACE(line);
    Use(line);
    for (const int64_t usual_m : kUsual) {
      const auto plan = PlanFor(usual_m);
      ASSERT_NE(plan, nullptr);
      ExpectSameBytes(*plan);
      int rows = 0;
      int tile_rows = 0;
      const std::string name = plan->KernelNameFor(128);
      const int read =
          std::sscanf(name.c_str(), "u8s8_scheduled_%dof%dx", &rows, &tile_rows);  // NOLINT(cert-err34-c)
      if (read == 2 && tile_rows > rows) ++of_several_blocks;
    }
  }
  const bool has_schedules = GetParam() == INTACT_ISA_AVX2 || GetParam() == INTACT_ISA_AVX512;
  EXPECT_EQ(of_several_blocks > 0, has_schedules);
}

// Weights restored from any layout are the caller's.
TEST_P(NamedRows, PanelsAreMadeAgain) {
  for (const char* const line : kLines) {
    SCOPED_TRACE(line);
    Use(line);
    const auto any = PlanFor(0);
    ASSERT_NE(any, nullptr);
    const auto expected = any->weights().Panels();
    ASSERT_TRUE(expected);
    for (const int64_t usual_m : kUsual) {
      const auto plan = PlanFor(usual_m);
      ASSERT_NE(plan, nullptr);
      const auto panels = plan->weights().Panels();
      ASSERT_TRUE(panels);
      const size_t size = static_cast<size_t>((*expected)->bytes());
      ASSERT_EQ((*panels)->bytes(), (*expected)->bytes());
      EXPECT_EQ(std::vector<int8_t>((*panels)->data, (*panels)->data + size),
                std::vector<int8_t>((*expected)->data, (*expected)->data + size))
          << usual_m;
    }
  }
}

TEST_P(NamedRows, AreSaved) {
  for (const char* const line : kLines) {
    SCOPED_TRACE(line);
    Use(line);
    for (const int64_t usual_m : kUsual) {
      const auto plan = PlanFor(usual_m);
      ASSERT_NE(plan, nullptr);
      const auto image = kernels::ImageOf(*plan);
      ASSERT_TRUE(image);
      const auto held = std::make_shared<std::vector<uint8_t>>(*image);
      const auto loaded = kernels::LoadGemm(held->data(), held->size(), GetParam(), held);
      ASSERT_TRUE(loaded) << loaded.error().message;
      EXPECT_EQ((*loaded)->usual_m(), usual_m);
      EXPECT_EQ((*loaded)->kernel_name(), plan->kernel_name());
      ASSERT_TRUE(kernels::ImageBytes(*plan));  // finds schedules
      EXPECT_LE((*loaded)->packed_bytes(), plan->packed_bytes());
      ExpectSameBytes(**loaded);
      const auto again = kernels::ImageOf(**loaded);
      ASSERT_TRUE(again);
      EXPECT_EQ(*again, *image);
    }
  }
}

TEST_P(NamedRows, AreTuned) {
  Use(kLines[1]);
  for (const int64_t usual_m : kUsual) {
    const auto plan = PlanFor(usual_m);
    ASSERT_NE(plan, nullptr);
    for (const int64_t m : {1, 8, 49}) ASSERT_TRUE(plan->Tune(m, std::chrono::milliseconds(0)));
    ExpectSameBytes(*plan);
  }
}

TEST_P(NamedRows, TakeOneForm) {
  const bool is_avx2 = GetParam() == INTACT_ISA_AVX2;
  const double most_bytes = is_avx2 ? 1.5 : 1.6;  // per weight; strips of wider vectors have more heavy quads
  for (const char* const fill : {"laplace", "gauss"}) {
    Use(std::string("gemm u8s8s32 m=61 n=512 k=1024 fill=") + fill);
    const auto weights = static_cast<double>(gemm_.n * gemm_.k);
    const auto any = PlanFor(0);
    ASSERT_NE(any, nullptr);
    ExpectSameBytes(*any);  // runs find schedules
    for (const int64_t usual_m : {1, 8, 48, 128}) {
      const auto plan = PlanFor(usual_m);
      ASSERT_NE(plan, nullptr);
      ExpectSameBytes(*plan);
      EXPECT_LE(static_cast<double>(plan->packed_bytes()) / weights, most_bytes) << fill << " " << usual_m;
      EXPECT_LE(static_cast<double>(plan->packed_bytes()), 0.5 * static_cast<double>(any->packed_bytes()))
          << fill << " " << usual_m;
      // With AVX-512, a plan for any rows runs few rows from a layout that it keeps for others.
      if (!is_avx2) continue;
      EXPECT_EQ(plan->KernelNameFor(usual_m), any->KernelNameFor(usual_m)) << fill << " " << usual_m;
    }
  }
}

// Each number of rows up to usual_m adds at most one kernel.
TEST_P(NamedRows, HaveNoKernelsForMoreRows) {
  Use("gemm u8s8s32 m=1 n=64 k=64 fill=laplace");
  for (const int64_t usual_m : {1, 2}) {
    const auto plan = PlanFor(usual_m);
    ASSERT_NE(plan, nullptr);
    std::set<std::string> names;
    for (int64_t m = 1; m <= kernels::kLargeM; ++m) names.insert(plan->KernelNameFor(m));
    EXPECT_LE(std::ssize(names), usual_m) << testing::PrintToString(names);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, NamedRows, testing::Values(INTACT_ISA_AVX2, INTACT_ISA_AVX512),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

TEST(NamedRowsArguments, AreChecked) {
  const verify::Problem problem = Parsed("gemm u8s8s32 m=4 n=3 k=5");
  const reference::Gemm gemm = verify::MaterializeGemm(problem);
  for (const int64_t usual_m : {int64_t{-1}, int64_t{1} << 31}) {
    GemmDesc desc = verify::DescOf(gemm, verify::RunOptionsOf(problem));
    desc.usual_m = usual_m;
    const auto plan = Gemm::Create(desc, gemm.b.data());
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(plan.error().message,
                HasSubstr("usual_m is " + std::to_string(usual_m) + "; expected 0 to 2147483647"));
  }
}

}  // namespace
}  // namespace intact::tests
