// Schedules are found by the first run that needs them, also if several threads need them at once. The canonical
// panels stay readable, and are freed once no schedule needs them.
#include "kernels/weights/lazy_schedule.h"

#include <gtest/gtest.h>
#include <intact/intact.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/gemm_plan.h"
#include "tests/support/require_isas.h"
#include "verify/problem/problem.h"

namespace intact::tests {
namespace {

using kernels::GemmPlan;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

class LazySchedule : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
    verify::Problem problem = Parsed("gemm u8s8s32 m=61 n=72 k=600 fill=gauss");
    problem.isa = GetParam();
    options_ = verify::RunOptionsOf(problem);
    gemm_ = verify::MaterializeGemm(problem);
    expected_ = reference::Accumulators(gemm_, reference::Model::kExact);
  }

  std::unique_ptr<GemmPlan> PlanFor(int64_t usual_m) const { return GemmPlanFor(gemm_, options_, usual_m); }

  intact_gemm_args ArgsFor(int64_t m, int32_t* c) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = m;
    args.a = gemm_.a.data();
    args.c = c;
    args.threads = 1;
    return args;
  }

  void ExpectRuns(const GemmPlan& plan, int64_t m) const {
    std::vector<int32_t> c(static_cast<size_t>(m * gemm_.n));
    ASSERT_EQ(plan.Run(ArgsFor(m, c.data())).status, INTACT_OK);
    EXPECT_TRUE(std::equal(c.begin(), c.end(), expected_.begin()));
  }

  // Whether the panels that the plan gives are those of the weights.
  void ExpectPanels(const GemmPlan& plan) const {
    const auto panels = plan.weights().Panels();
    ASSERT_TRUE(panels);
    for (int64_t k = 0; k < gemm_.k; ++k) {
      for (int64_t n = 0; n < gemm_.n; ++n) {
        ASSERT_EQ((*panels)->At(k, n), static_cast<int8_t>(gemm_.b[static_cast<size_t>(k * gemm_.n + n)]));
      }
    }
  }

  static bool IsFound(const GemmPlan& plan) { return !plan.weights().schedules().HasUnfound(); }

  verify::RunOptions options_;
  reference::Gemm gemm_;
  std::vector<int32_t> expected_;
};

TEST_P(LazySchedule, IsFoundByTheFirstRunThatNeedsIt) {
  const auto plan = PlanFor(61);
  ASSERT_NE(plan, nullptr);
  EXPECT_FALSE(IsFound(*plan));
  EXPECT_NE(plan->weights().packed().data, nullptr);
  ExpectPanels(*plan);
  const kernels::ScheduleStatistics estimate = plan->schedule_statistics();
  ExpectRuns(*plan, 61);
  EXPECT_TRUE(IsFound(*plan));
  EXPECT_EQ(plan->weights().packed().data, nullptr);  // the schedule holds the weights
  ExpectPanels(*plan);
  ExpectRuns(*plan, 1);
  const kernels::ScheduleStatistics found = plan->schedule_statistics();
  EXPECT_EQ(estimate.quads, found.quads);
  EXPECT_NEAR(static_cast<double>(estimate.items), static_cast<double>(found.items),
              0.1 * static_cast<double>(found.items));
  EXPECT_NEAR(static_cast<double>(estimate.groups), static_cast<double>(found.groups),
              0.2 * static_cast<double>(found.groups));
}

TEST_P(LazySchedule, IsFoundByPreparationAndBinding) {
  std::vector<int32_t> c(static_cast<size_t>(61 * gemm_.n));
  const auto prepared = PlanFor(61);
  intact_run_info info = INTACT_RUN_INFO_INIT;
  ASSERT_TRUE(prepared->Prepare(ArgsFor(61, nullptr), &info).ok());
  EXPECT_TRUE(IsFound(*prepared));
  const auto bound = PlanFor(61);
  ASSERT_TRUE(bound->Bind(ArgsFor(61, c.data())));
  EXPECT_TRUE(IsFound(*bound));
}

// A plan for any rows has two schedules: one for a few rows, one for many.
TEST_P(LazySchedule, FewRowsDoNotNeedThatOfManyRows) {
  const auto plan = PlanFor(0);
  ASSERT_NE(plan, nullptr);
  ExpectRuns(*plan, 1);
  EXPECT_FALSE(IsFound(*plan));
  ExpectRuns(*plan, 61);
  EXPECT_TRUE(IsFound(*plan));
  ExpectPanels(*plan);
}

TEST_P(LazySchedule, IsFoundOnceByManyThreads) {
  constexpr int kThreads = 4;
  for (int turn = 0; turn < 8; ++turn) {
    const auto plan = PlanFor(61);
    ASSERT_NE(plan, nullptr);
    std::vector<int32_t> c(static_cast<size_t>(61 * gemm_.n));
    const intact_gemm_args args = ArgsFor(61, c.data());
    std::atomic<int> waiting = kThreads + 1;
    std::array<intact_status, kThreads> statuses = {};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        statuses[static_cast<size_t>(i)] = plan->RunPart(args, i, kThreads).status;
      });
    }
    --waiting;
    while (waiting > 0) std::this_thread::yield();
    ExpectPanels(*plan);  // reads the weights while schedules are found
    for (std::thread& thread : threads) thread.join();
    for (const intact_status status : statuses) EXPECT_EQ(status, INTACT_OK);
    EXPECT_EQ(c, expected_);
    EXPECT_TRUE(IsFound(*plan));
  }
}

TEST_P(LazySchedule, IsFoundByAllThreadsOfARun) {
  const auto plan = PlanFor(61);
  ASSERT_NE(plan, nullptr);
  std::vector<int32_t> c(static_cast<size_t>(61 * gemm_.n));
  intact_gemm_args args = ArgsFor(61, c.data());
  args.threads = 3;
  ASSERT_EQ(plan->Run(args).status, INTACT_OK);
  EXPECT_EQ(c, expected_);
  EXPECT_TRUE(IsFound(*plan));
  const auto alone = PlanFor(61);
  ExpectRuns(*alone, 61);
  EXPECT_EQ(plan->packed_bytes(), alone->packed_bytes());
}

// Tuning makes engines of weights that other plans already use.
TEST_P(LazySchedule, OfTwoPlansKeepsThePanelsUntilBothAreFound) {
  const auto plan = PlanFor(61);
  ASSERT_NE(plan, nullptr);
  const kernels::LinearWeights& weights = plan->weights();
  const auto used = [&]() -> std::shared_ptr<const kernels::LazySchedule> {
    for (const kernels::ScheduleRecord& record : weights.schedules().records()) {
      if (auto schedule = record.Used(); schedule != nullptr) return schedule;
    }
    return nullptr;
  };
  ASSERT_NE(used(), nullptr);
  {
    const auto other = weights.MakeSchedule<kernels::ScheduledWeights>(used()->spec());
    ASSERT_TRUE(other);
    ASSERT_TRUE((*other)->Find(1).ok());
    EXPECT_FALSE(IsFound(*plan));
    ASSERT_NE(weights.packed().data, nullptr);
  }
  EXPECT_NE(used(), nullptr);
  ExpectRuns(*plan, 61);
  EXPECT_EQ(weights.packed().data, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Isas, LazySchedule, testing::Values(INTACT_ISA_AVX2, INTACT_ISA_AVX512),
                         [](const auto& tested) { return intact_isa_name(tested.param); });

}  // namespace
}  // namespace intact::tests
