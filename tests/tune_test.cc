// Choosing kernels by measurement: whatever is chosen gives the same bytes, a wrong choice of the cost model
// is corrected, and choices are saved with the CPU that they were measured on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "jit/isa.h"
#include "kernels/api/create.h"
#include "kernels/weights/pack_file.h"
#include "reference/models.h"
#include "tests/emulated_isas.h"
#include "tests/expect_model.h"
#include "tests/plan.h"
#include "tests/require_isas.h"
#include "verify/audit.h"

namespace intact::tests {
namespace {

using kernels::GemmPlan;
using kernels::TunedChoices;
using testing::HasSubstr;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

constexpr std::chrono::milliseconds kNoBudget(0);  // four runs of each

class Tune : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }

  void Use(const char* line) {
    verify::Problem problem = Parsed(line);
    problem.isa = GetParam();
    gemm_ = verify::Materialize(problem);
    const GemmDesc desc = verify::DescOf(gemm_, verify::RunOptionsOf(problem));
    auto plan = kernels::MakePlan(desc, desc.linear, gemm_.b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    plan_ = std::move(*plan);
    expected_ = reference::Outputs(gemm_, reference::Accumulators(gemm_, reference::Model::kExact));
  }

  // The bytes of the first `m` rows.
  std::vector<uint8_t> Run(const GemmPlan& plan, int64_t m) const {
    std::vector<uint8_t> c(static_cast<size_t>(m * gemm_.n * reference::ElementSize(gemm_.c_type)));
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = m;
    args.a = gemm_.a.data();
    args.c = c.data();
    if (gemm_.residual_type != INTACT_TYPE_NONE) args.residual = gemm_.residual.data();
    args.threads = 2;
    EXPECT_EQ(plan.Run(args).status, INTACT_OK);
    return c;
  }
  std::vector<uint8_t> ExpectedRows(int64_t m) const {
    const auto row_bytes = static_cast<int64_t>(expected_.size()) / gemm_.m;
    return {expected_.begin(), expected_.begin() + m * row_bytes};
  }

  reference::Gemm gemm_;
  std::unique_ptr<GemmPlan> plan_;
  std::vector<uint8_t> expected_;
};

TEST_P(Tune, EveryCandidateGivesTheSameBytes) {
  for (const char* const line : {"gemm u8s8s32 m=61 n=85 k=137 za=3 fill=uniform",
                                 "gemm u8s8s32 m=61 n=24 k=4111 fill=laplace",  // three windows of a strip
                                 "gemm u8s8s32 m=61 n=40 k=64 adecl=127 fill=stray",
                                 "gemm s8u8u8 m=61 n=33 k=300 za=-7 zb=17 zc=128 fill=laplace scale=channel "
                                 "bias=f32 act=relu res=s8 zres=-9"}) {
    SCOPED_TRACE(line);
    Use(line);
    for (const int64_t m : {1, 2, 7, 61}) {
      const Result<GemmPlan::Tuned> tuned = plan_->Tune(m, kNoBudget);
      ASSERT_TRUE(tuned) << tuned.error().message;
      EXPECT_GE(tuned->candidates, 1);
      EXPECT_GT(tuned->microseconds, 0);
      EXPECT_LE(tuned->microseconds, tuned->model_microseconds);
      EXPECT_EQ(plan_->KernelNameFor(m), tuned->kernel);
      EXPECT_EQ(Run(*plan_, m), ExpectedRows(m)) << tuned->kernel;
    }
    // Each of them, where another would have been chosen too.
    const auto candidates = plan_->CandidateNames();
    ASSERT_TRUE(candidates);
    for (const std::string& kernel : *candidates) {
      plan_->Restore({jit::HostCpu().ToString(), {{61, kernel}}});
      EXPECT_EQ(plan_->KernelNameFor(61), kernel);
      EXPECT_EQ(Run(*plan_, 61), ExpectedRows(61)) << kernel;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Tune, testing::ValuesIn(verify::kIsaLadder),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

class TuneHere : public Tune {};

// The kernel of one row takes several times as long for many.
TEST_P(TuneHere, CorrectsAWrongChoiceOfTheModel) {
  Use("gemm u8s8s32 m=240 n=256 k=768 fill=laplace");
  plan_->RunAllAs(1);
  const std::string wrong = plan_->KernelNameFor(240);
  const Result<GemmPlan::Tuned> tuned = plan_->Tune(240, std::chrono::milliseconds(50));
  ASSERT_TRUE(tuned) << tuned.error().message;
  EXPECT_EQ(tuned->model_kernel, wrong);
  EXPECT_NE(tuned->kernel, wrong);
  EXPECT_LT(tuned->microseconds, tuned->model_microseconds);
  EXPECT_EQ(plan_->KernelNameFor(240), tuned->kernel);
  EXPECT_EQ(plan_->KernelNameFor(239), wrong) << "chosen for other rows too";
  EXPECT_EQ(Run(*plan_, 240), expected_);
}

TEST_P(TuneHere, ChoicesAreSavedWithTheirCpu) {
  Use("gemm u8s8s32 m=40 n=85 k=137 fill=laplace");
  const std::string cpu = jit::HostCpu().ToString();
  const auto load = [&](const TunedChoices& tuned) {
    const auto image =
        kernels::WritePackImage(plan_->weights().problem(), std::nullopt, **plan_->weights().Panels(),
                                plan_->weights().certificate(), 0, tuned);
    const auto held = std::make_shared<std::vector<uint8_t>>(image);
    auto loaded = kernels::LoadGemm(held->data(), held->size(), GetParam(), held);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return std::move(*loaded);
  };
  const auto candidates = plan_->CandidateNames();
  ASSERT_TRUE(candidates);
  // One that the model would not choose, if there is one.
  const std::string chosen = plan_->KernelNameFor(40);
  const auto other = std::find_if(candidates->begin(), candidates->end(),
                                  [&](const std::string& name) { return name != chosen; });
  if (other == candidates->end()) GTEST_SKIP() << "there is one kernel alone";
  plan_->Restore({cpu, {{5, *other}, {40, *other}}});
  ASSERT_EQ(plan_->tuned().choices.size(), 2u);
  const auto same = load(plan_->tuned());
  EXPECT_EQ(same->KernelNameFor(40), *other);
  EXPECT_EQ(same->KernelNameFor(5), *other);
  EXPECT_EQ(same->tuned().choices.size(), 2u);
  EXPECT_EQ(Run(*same, 40), expected_);

  EXPECT_EQ(load({"GenuineElsewhere family 6 model 1", {{40, *other}}})->KernelNameFor(40), chosen);
  EXPECT_EQ(load({cpu, {{40, "a kernel that went"}}})->KernelNameFor(40), chosen);
}

TEST_P(TuneHere, FilesWithChoicesThatMakeNoSenseAreRefused) {
  Use("gemm u8s8s32 m=1 n=3 k=5");
  const std::string cpu = jit::HostCpu().ToString();
  for (const TunedChoices& tuned :
       {TunedChoices{cpu, {{0, "a"}}}, TunedChoices{cpu, {{5, "a"}, {5, "a"}}},
        TunedChoices{cpu, {{7, "a"}, {5, "a"}}}, TunedChoices{cpu, {{int64_t{1} << 31, "a"}}},
        TunedChoices{cpu, {{1, std::string("a\0b", 3)}}}, TunedChoices{std::string("a\0b", 3), {{1, "a"}}}}) {
    const auto image =
        kernels::WritePackImage(plan_->weights().problem(), std::nullopt, **plan_->weights().Panels(),
                                plan_->weights().certificate(), 0, tuned);
    const auto loaded = kernels::LoadGemm(image.data(), image.size(), GetParam(), nullptr);
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.error().message, HasSubstr("a tuned choice makes no sense"));
  }
}

INSTANTIATE_TEST_SUITE_P(Avx2, TuneHere, testing::Values(INTACT_ISA_AVX2));

TEST(TuneArguments, AreChecked) {
  const verify::Problem problem = Parsed("gemm u8s8s32 m=4 n=3 k=5");
  const Result<Plan> plan = CreatePlan(problem, verify::Materialize(problem));
  ASSERT_TRUE(plan);
  const auto expect = [](intact_status status, const char* words) {
    EXPECT_EQ(status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(intact_last_error(), HasSubstr(words));
  };
  intact_gemm* const gemm = plan->get();
  intact_tune_info info = INTACT_TUNE_INFO_INIT;
  expect(intact_gemm_tune(nullptr, 1, 1, &info), "intact_gemm_tune: gemm is NULL");
  expect(intact_gemm_tune(gemm, 0, 1, &info), "m is 0; expected 1 to 2147483647");
  expect(intact_gemm_tune(gemm, int64_t{1} << 31, 1, &info), "m is 2147483648");
  expect(intact_gemm_tune(gemm, 1, -1, &info), "milliseconds is -1");
  expect(intact_gemm_tune(gemm, 1, std::nan(""), &info), "milliseconds is nan");
  expect(intact_gemm_tune(gemm, 1, std::numeric_limits<double>::infinity(), &info), "milliseconds is inf");
  info.struct_size = 1;
  expect(intact_gemm_tune(gemm, 1, 1, &info), "info->struct_size is 1");
  EXPECT_EQ(intact_gemm_tune(gemm, 4, 0, nullptr), INTACT_OK);
  info.struct_size = sizeof(info);
  ASSERT_EQ(intact_gemm_tune(gemm, 4, 0, &info), INTACT_OK);
  EXPECT_GT(info.candidates, 0);
  EXPECT_THAT(info.kernel, HasSubstr("s8"));
  EXPECT_THAT(info.model_kernel, HasSubstr("s8"));
}

}  // namespace
}  // namespace intact::tests
