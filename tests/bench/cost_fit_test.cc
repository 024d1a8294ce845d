// The fit finds constants that are known, because the times are computed from them.
#include "bench/measure/cost_fit.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/isas.h"
#include "jit/isa.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/block_cost.h"
#include "kernels/engines/cost_table.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/require_isas.h"

namespace intact::bench {
namespace {

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new tests::EmulatedIsas);

using core::Isa;
using kernels::Costs;
using kernels::CostTable;
using kernels::SetCosts;

class CostFitTest : public testing::Test {
 protected:
  // Engines of random GEMMs, with the times that `planted` predicts.
  void Measure(const CostTable& planted) {
    const auto permitted = jit::PermittedIsas();
    ASSERT_TRUE(permitted) << permitted.error().message;
    std::vector<Isa> isas;
    for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAmxInt8}) {
      if (permitted->Has(isa)) isas.push_back(isa);
    }
    if (isas.empty()) INTACT_SKIP_ISA("avx2");
    constexpr int kPlans = 16;
    const auto make_engines =
        [](kernels::GemmPlan* plan, int64_t,
           kernels::TuningBudget) -> Result<std::vector<kernels::GemmPlan::TimedEngine>> {
      ASSIGN_OR_RETURN(const auto engines, plan->MakeEngines());
      std::vector<kernels::GemmPlan::TimedEngine> timed;
      for (const kernels::Engine* engine : engines) timed.push_back({engine, {}});
      return timed;
    };
    Result<CostSamples> measured = MeasureCosts(
        isas, kPlans, [](int64_t, int64_t) {}, {}, make_engines);
    ASSERT_TRUE(measured) << measured.error().message;
    measured_ = std::move(*measured);
    const CostTable own = Costs();
    SetCosts(planted);
    for (CostSample& sample : measured_.samples) {
      sample.seconds = ProductOf(sample.isa) * sample.cost() + kCall;
    }
    SetCosts(own);
  }

  static CostTable Changed() {
    CostTable table = Costs();
    table.ymm.wide.product *= 1.5;
    table.ymm.split.tile *= 3;
    table.ymm.scheduled_panels.item_row *= 0.7;
    table.zmm.wide.product *= 2;
    table.tiles.product *= 2;
    table.tiles.run *= 0.5;
    table.tiles.copy *= 3;
    table.tiles.copy_tile *= 0.5;
    return table;
  }

  static double ProductOf(Isa isa) {
    constexpr double kHalfCycle = 0.16e-9;
    return kHalfCycle * kernels::HalfCycles(kernels::VectorIsa(isa));
  }

  static constexpr double kCall = 30e-9;
  CostSamples measured_;
};

TEST_F(CostFitTest, FindsKnownConstants) {
  const CostTable planted = Changed();
  ASSERT_NO_FATAL_FAILURE(Measure(planted));
  if (IsSkipped()) return;
  const CostTable own = Costs();
  const std::vector<CostError> wrong = ErrorsOf(measured_.samples, FitTimes(measured_.samples, own));
  const CostFit fit = FitCosts(measured_.samples, own);
  EXPECT_EQ(kernels::ToText(Costs()), kernels::ToText(own));
  const std::vector<CostError> right = ErrorsOf(measured_.samples, fit);
  ASSERT_EQ(wrong.size(), right.size());
  for (size_t i = 0; i < right.size(); ++i) {
    SCOPED_TRACE(core::ToString(right[i].isa));
    EXPECT_GT(wrong[i].deviation, 0.1);
    EXPECT_GT(wrong[i].worst_loss, 1.1) << "the wrong constants make no wrong choice";
    EXPECT_LT(right[i].deviation, wrong[i].deviation / 3);
    EXPECT_LT(right[i].loss, 1.003);
    EXPECT_LT(right[i].worst_loss, 1.05) << right[i].worst_choice;
  }
  // Without VNNI, costs have no unit of their own, so ratios are compared.
  const auto ratio = [](const CostTable& table) {
    return table.ymm.wide.product / table.ymm.in_place.product;
  };
  EXPECT_NEAR(ratio(fit.table) / ratio(planted), 1, 0.1);
  EXPECT_GT(ratio(planted) / ratio(own), 1.3);
  if (fit.times.contains(Isa::kAmxInt8)) {
    EXPECT_NEAR(fit.table.tiles.product / planted.tiles.product, 1, 0.1);
    EXPECT_NEAR(fit.table.tiles.run / planted.tiles.run, 1, 0.1);
    EXPECT_NEAR(fit.table.tiles.copy / planted.tiles.copy, 1, 0.1);
    EXPECT_NEAR(fit.table.tiles.copy_tile / planted.tiles.copy_tile, 1, 0.1);
    EXPECT_NEAR(fit.times.at(Isa::kAmxInt8).product / ProductOf(Isa::kAmxInt8), 1, 0.05);
  }
}

}  // namespace
}  // namespace intact::bench
