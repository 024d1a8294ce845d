// Tuning (tuning.h): times the engines of a GEMM.
#include <algorithm>
#include <random>

#include "core/result.h"
#include "core/types.h"
#include "jit/isa.h"
#include "kernels/plans/gemm_plan.h"
#include "kernels/plans/tuning.h"

namespace intact::kernels {
namespace {

// Beyond this number, more rows only add blocks like the previous blocks.
constexpr int64_t kMostTimedRows = 8192;

Error OutOfMemory() { return {INTACT_OUT_OF_MEMORY, "no memory to tune in"}; }

}  // namespace

Error TimedMemory::Allocate(const LinearProblem& problem, int64_t inputs, int64_t outputs) {
  const auto size = [](int64_t elements, int64_t bytes) { return static_cast<size_t>(elements * bytes); };
  const Requantization& output = problem.output;
  if (!a.Resize(size(inputs, problem.a_bytes())) || !c.Resize(size(outputs, core::BytesOf(output.c_type))) ||
      !residual.Resize(size(outputs, output.has_residual() ? core::BytesOf(output.residual_type) : 0))) {
    return OutOfMemory();
  }
  std::fill_n(a.data(), a.size(), uint8_t{0});
  std::fill_n(residual.data(), residual.size(), uint8_t{0});
  if (problem.IsDynamic()) return {};
  const int low = problem.range.low, values = problem.range.high - low + 1;
  std::minstd_rand random;
  for (size_t i = 0; i < a.size(); ++i) {
    const int value = low + static_cast<int>(random() % static_cast<unsigned>(values));
    a[i] = static_cast<uint8_t>(value ^ problem.a_shift());
  }
  return {};
}

Error TimedMemory::MakeRoom(int64_t scratch_bytes) {
  const auto bytes = static_cast<size_t>(scratch_bytes);
  return bytes <= scratch.size() || scratch.Resize(bytes) ? Error() : OutOfMemory();
}

Result<std::vector<GemmPlan::TimedEngine>> GemmPlan::TimeAll(int64_t m, TuningBudget budget) {
  ASSIGN_OR_RETURN(const std::vector<const Engine*> engines, unit_->mutable_engines()->MakeAll());
  TimedMemory memory;
  RETURN_IF_ERROR(memory.Allocate(problem(), m * weights().k(), m * weights().n()));
  for (const Engine* const engine : engines) {
    RETURN_IF_ERROR(memory.MakeRoom(unit_->ShareBytes(*engine, m)));
    RETURN_IF_ERROR(unit_->engines().FindSchedules(*engine));
    RETURN_IF_ERROR(unit_->PrepareRows(*engine, m, false, false));
  }
  AlignedBuffer<float> row_scales;
  if (!row_scales.Resize(problem().HasRowScales() ? static_cast<size_t>(m) : 0)) return OutOfMemory();
  std::fill_n(row_scales.data(), row_scales.size(), 1.0f);
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = m;
  args.a = memory.a.data();
  args.c = memory.c.data();
  if (problem().output.has_residual()) args.residual = memory.residual.data();
  if (problem().HasRowScales()) args.a_scales = row_scales.data();
  const Batch batch = BatchOf(args);
  const RunBuffers buffers = BuffersOf(batch, batch.Item(0));
  const std::vector<TurnTimes> times = TimeInTurns(engines.size(), budget, [&](size_t i) {
    unit_->RunShare(*engines[i], buffers, {0, m, 0, weights().n()}, memory.scratch.data());
  });
  std::vector<TimedEngine> timed;
  for (size_t i = 0; i < engines.size(); ++i) timed.push_back({engines[i], times[i]});
  return timed;
}

Result<Tuned> GemmPlan::Tune(int64_t tuned_m, TuningBudget budget) {
  const UnusedDropper dropper{this};
  ASSIGN_OR_RETURN(const std::vector<TimedEngine> engines,
                   TimeAll(std::min(tuned_m, kMostTimedRows), budget));
  EngineSet* const set = unit_->mutable_engines();
  const Engine& model = set->ModelFor(tuned_m);
  const auto model_place =
      static_cast<size_t>(std::ranges::find(engines, &model, &TimedEngine::engine) - engines.begin());
  std::vector<TurnTimes> times;
  for (const TimedEngine& timed : engines) times.push_back(timed.times);
  const size_t chosen = ChooseByTime(times, model_place);
  constexpr double kMicroseconds = 1e6;
  set->Choose(tuned_m, engines[chosen].engine);
  return Tuned{engines[chosen].engine->KernelName(), times[chosen].median * kMicroseconds, model.KernelName(),
               times[model_place].median * kMicroseconds, static_cast<int>(engines.size())};
}

Result<std::vector<std::string>> GemmPlan::CandidateNames() {
  const UnusedDropper dropper{this};
  ASSIGN_OR_RETURN(const std::vector<const Engine*> all, unit_->mutable_engines()->MakeAll());
  std::vector<std::string> names;
  for (const Engine* const engine : all) names.push_back(engine->KernelName());
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

// Files store names of kernels. An engine knows its name only after it has been made.
void GemmPlan::Restore(const TunedChoices& tuned) {
  if (tuned.choices.empty() || tuned.cpu != jit::HostCpu().ToString()) return;
  EngineSet* const set = unit_->mutable_engines();
  const UnusedDropper dropper{this};
  const auto choose_named = [&](std::span<const Engine* const> engines) {
    bool found_all = true;
    for (const TunedChoices::Choice& choice : tuned.choices) {
      const auto named = std::ranges::find(engines, choice.kernel, &Engine::KernelName);
      found_all = found_all && named != engines.end();
      if (named != engines.end()) set->Choose(choice.m, *named);
    }
    return found_all;
  };
  if (choose_named(set->Made())) return;
  if (const auto all = set->MakeAll(); all) choose_named(*all);
}

}  // namespace intact::kernels
