// Fits the table of the cost models to this CPU (kernels/engines/cost_table.h).
//
//   MeasureCosts   random GEMMs on each ISA; every engine that can run them, in turns ─► samples
//                  for tiles also copies of rows, which are in no engine's cost
//   FitCosts       1. least squares of log(predicted seconds / measured seconds), by Levenberg and Marquardt
//                  2. then one constant at a time: fewer wrong choices between engines
//
// The costs are the engines' own: the fit changes Costs() and asks the engines again. So each model exists
// once, and each of its constants can be fitted.
//
// Predicted seconds are cost × seconds of a product + seconds of a call. Each ISA has both, and both are
// fitted too. A sample's weight is the time of the problem's fastest engine over the sample's time, because
// only choices between fast engines matter. A weak pull to the start keeps constants that samples hardly
// depend on.
#ifndef INTACT_BENCH_MEASURE_COST_FIT_H_
#define INTACT_BENCH_MEASURE_COST_FIT_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/cost_table.h"
#include "kernels/plans/gemm_plan.h"
#include "support/deadline.h"
#include "verify/sweep/sweep.h"

namespace intact::bench {

/// An engine's time for a problem.
struct CostSample {
  core::Isa isa;
  size_t problem = 0;  // engines that compute one problem compete
  std::string name;    // "avx2 12×256×64 s32: u8s8s32_gemm_5x16c4_wide_avx2"
  double seconds = 0;
  std::function<double()> cost;  // in products, by Costs()
};

struct CostSamples {
  std::vector<CostSample> samples;
  std::vector<std::unique_ptr<kernels::GemmPlan>> plans;  // their engines compute the costs
};

/// Seconds on an ISA.
struct CostTimes {
  double product = 0, call = 0;
};

struct CostFit {
  kernels::CostTable table;
  std::map<core::Isa, CostTimes> times;
};

/// How well a table predicts the samples of an ISA.
struct CostError {
  core::Isa isa;
  size_t samples = 0, problems = 0;
  double deviation = 0;  // standard deviation of log(predicted / measured seconds)
  double worst = 1;      // the worst ratio of predicted and measured time, at least 1
  std::string worst_name;
  double loss = 1;        // time of the engines that the table chooses over the fastest: geometric mean
  double worst_loss = 1;  // the worst of these ratios
  std::string worst_choice;
};

/// Times every engine of a plan for `m` rows, in turns.
using EngineTimer = std::function<Result<std::vector<kernels::GemmPlan::TimedEngine>>(
    kernels::GemmPlan*, int64_t m, kernels::TuningBudget)>;
Result<std::vector<kernels::GemmPlan::TimedEngine>> TimeEngines(kernels::GemmPlan* plan, int64_t m,
                                                                kernels::TuningBudget budget);

/// Measures `problems` plans on each ISA, with several numbers of rows each. An error if `deadline` is over first.
Result<CostSamples> MeasureCosts(std::span<const core::Isa> isas, int problems,
                                 const verify::Progress& progress, const support::Deadline& deadline = {},
                                 const EngineTimer& time = TimeEngines);

/// The table that fits `samples` best, beginning with `start`. Costs() changes while this runs; afterwards it
/// is `start`.
CostFit FitCosts(std::span<const CostSample> samples, const kernels::CostTable& start);
/// `table` as it is, with the times that fit best.
CostFit FitTimes(std::span<const CostSample> samples, const kernels::CostTable& table);

/// The errors of `fit`, for each ISA that has samples.
std::vector<CostError> ErrorsOf(std::span<const CostSample> samples, const CostFit& fit);
std::string ToText(std::span<const CostError> errors);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_COST_FIT_H_
