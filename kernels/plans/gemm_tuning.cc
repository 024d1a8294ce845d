// Choosing by stopwatch (tuning.h) among the engines of a GEMM.
#include <algorithm>
#include <random>

#include "core/result.h"
#include "jit/isa.h"
#include "kernels/plans/gemm_plan.h"
#include "kernels/plans/tuning.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {
namespace {

// More rows are as many blocks of rows more.
constexpr int64_t kMostTimedRows = 8192;

// What runs of a unit read and write while they are timed.
class RunMemory {
 public:
  // For `m` rows on any of `engines`.
  Error Allocate(const UnitPlan& unit, std::span<const Engine* const> engines, int64_t m) {
    const GemmData& data = unit.data();
    const LinearProblem& problem = data.problem;
    int64_t scratch_bytes = 0;
    for (const Engine* const engine : engines) {
      scratch_bytes = std::max(scratch_bytes, unit.ShareBytes(*engine, m));
    }
    const auto size = [m](int64_t row_bytes) { return static_cast<size_t>(m * row_bytes); };
    if (!a_.Resize(size(data.k * problem.a_bytes())) || !row_scales_.Resize(size(1)) ||
        !c_.Resize(size(data.n * data.element_bytes())) ||
        !residual_.Resize(size(data.n * data.residual_bytes())) ||
        !scratch_.Resize(static_cast<size_t>(scratch_bytes))) {
      return {INTACT_OUT_OF_MEMORY, "no memory to tune in"};
    }
    if (problem.IsDynamic()) {
      std::fill_n(a_.data(), a_.size(), uint8_t{0});
    } else {
      FillActivations(problem, a_.data(), a_.size());
    }
    std::fill_n(row_scales_.data(), row_scales_.size(), 1.0f);
    std::fill_n(residual_.data(), residual_.size(), uint8_t{0});
    args_.m = m;
    args_.a = a_.data();
    args_.c = c_.data();
    if (data.epilogue.has_residual()) args_.residual = residual_.data();
    if (problem.HasRowScales()) args_.a_scales = row_scales_.data();
    return {};
  }
  const intact_gemm_args& args() const { return args_; }
  uint8_t* scratch() { return scratch_.data(); }

 private:
  AlignedBuffer<uint8_t> a_, c_, residual_, scratch_;
  AlignedBuffer<float> row_scales_;
  intact_gemm_args args_ = INTACT_GEMM_ARGS_INIT;
};

}  // namespace

void FillActivations(const LinearProblem& problem, uint8_t* a, size_t size) {
  const int low = problem.range.low, values = problem.range.high - low + 1;
  std::minstd_rand random;
  for (size_t i = 0; i < size; ++i) {
    const int value = low + static_cast<int>(random() % static_cast<unsigned>(values));
    a[i] = static_cast<uint8_t>(value ^ problem.a_flip());
  }
}

Result<Tuned> GemmPlan::Tune(int64_t tuned_m, TuningBudget budget) {
  const ScopedFloatEnvironment float_environment;
  const int64_t m = std::min(tuned_m, kMostTimedRows);
  EngineSet* const set = unit_->mutable_engines();
  const auto all = set->MakeAll();
  RunMemory memory;
  Error error = all ? memory.Allocate(*unit_, *all, m) : all.error();
  if (error.status != INTACT_OK) {
    DropUnused();
    return error;
  }
  const std::vector<const Engine*>& engines = *all;
  const RunBuffers buffers = BuffersOf(memory.args());
  const std::vector<TurnTimes> times = TimeInTurns(engines.size(), budget, [&](size_t i) {
    unit_->RunShare(*engines[i], buffers, {0, m, 0, weights().n()}, memory.scratch());
  });

  const Engine& model = set->ModelFor(tuned_m);
  const auto model_place = static_cast<size_t>(std::ranges::find(engines, &model) - engines.begin());
  const size_t chosen = ChooseByTime(times, model_place);
  constexpr double kMicroseconds = 1e6;
  Tuned tuned = {engines[chosen]->KernelName(), times[chosen].median * kMicroseconds, model.KernelName(),
                 times[model_place].median * kMicroseconds, static_cast<int>(engines.size())};
  set->Choose(tuned_m, engines[chosen]);
  DropUnused();
  return tuned;
}

Result<std::vector<std::string>> GemmPlan::CandidateNames() {
  ASSIGN_OR_RETURN(const std::vector<const Engine*> all, unit_->mutable_engines()->MakeAll());
  std::vector<std::string> names;
  for (const Engine* const engine : all) names.push_back(engine->KernelName());
  DropUnused();
  return names;
}

TunedChoices GemmPlan::tuned() const {
  TunedChoices tuned;
  tuned.cpu = jit::HostCpu().ToString();
  for (const auto& [m, engine] : unit_->engines().choices()) {
    tuned.choices.push_back({m, engine->KernelName()});
  }
  return tuned;
}

// The names of kernels are those of engines here alone: some depend on the weights' values, so that only an
// engine that has been made knows its own.
void GemmPlan::Restore(const TunedChoices& tuned) {
  if (tuned.choices.empty() || tuned.cpu != jit::HostCpu().ToString()) return;
  EngineSet* const set = unit_->mutable_engines();
  const auto choose_named = [&](std::span<const Engine* const> engines) {
    bool found_all = true;
    for (const TunedChoices::Choice& choice : tuned.choices) {
      const auto named = std::ranges::find(engines, choice.kernel, &Engine::KernelName);
      if (named != engines.end()) {
        set->Choose(choice.m, *named);
      } else {
        found_all = false;
      }
    }
    return found_all;
  };
  if (!choose_named(set->Made())) {
    if (const auto all = set->MakeAll(); all) choose_named(*all);
  }
  DropUnused();
}

}  // namespace intact::kernels
