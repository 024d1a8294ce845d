// Choosing by stopwatch (tuning.h) among the engines of a GEMM.
#include "core/result.h"
#include "jit/isa.h"
#include "kernels/plans/tuning.h"

#include <algorithm>
#include <random>

#include "kernels/plans/gemm_plan.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {
namespace {

// More rows are as many blocks of rows more.
constexpr int64_t kMostTimedRows = 8192;

}  // namespace

void FillActivations(const LinearProblem& problem, uint8_t* a, size_t size) {
  const int low = problem.range.low, values = problem.range.high - low + 1;
  std::minstd_rand random;
  for (size_t i = 0; i < size; ++i) {
    const int value = low + static_cast<int>(random() % static_cast<unsigned>(values));
    a[i] = static_cast<uint8_t>(value ^ problem.a_flip());
  }
}

const Engine* GemmPlan::Candidates::Find(const std::string& name) const {
  const auto found =
      std::ranges::find_if(all, [&](const Engine* engine) { return engine->KernelName() == name; });
  return found == all.end() ? nullptr : *found;
}

std::vector<const Engine*> GemmPlan::OwnEngines() const {
  std::vector<const Engine*> own;
  for (const auto& engine : engines_) own.push_back(engine.get());
  for (const auto& engine : tuned_engines_) own.push_back(engine.get());
  return own;
}

Result<GemmPlan::Candidates> GemmPlan::MakeCandidates() const {
  Candidates candidates;
  candidates.all = OwnEngines();
  candidates.vectors = vectors_;
  RETURN_IF_ERROR(weights().RestorePanels());
  const auto is_scheduled = [](const Engine* engine) { return engine->KindName() == ScheduledEngine::kKind; };
  if (std::ranges::none_of(candidates.all, is_scheduled)) {
    ASSIGN_OR_RETURN(std::unique_ptr<ScheduledEngine> scheduled, MakeScheduledEngine(nullptr));
    if (scheduled != nullptr) {
      RETURN_IF_ERROR(scheduled->Build());
      candidates.all.push_back(scheduled.get());
      candidates.others.push_back(std::move(scheduled));
    }
  }
  for (const KernelBlock& block : kKernels) {
    if (!CanRun(block)) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, MakePanelEngine(block, &candidates.vectors));
    if (candidates.Find(engine->KernelName()) != nullptr) continue;
    if (block.dot == jit::DotKind::kScheduled) candidates.scheduled = engine.get();
    candidates.all.push_back(engine.get());
    candidates.others.push_back(std::move(engine));
  }
  return candidates;
}

void GemmPlan::Keep(const Engine* engine, Candidates* candidates) {
  const auto other = std::ranges::find(candidates->others, engine, &std::unique_ptr<Engine>::get);
  if (other == candidates->others.end()) return;
  if (engine == candidates->scheduled) vectors_ = candidates->vectors;
  tuned_engines_.push_back(std::move(*other));
  candidates->others.erase(other);
}

// Of the other candidates the plan keeps those that it has chosen.
void GemmPlan::Choose(int64_t m, const Engine* engine, Candidates* candidates) {
  Keep(engine, candidates);
  const auto place = tuned_.begin() + (FirstTunedFrom(m) - tuned_.begin());
  if (place != tuned_.end() && place->first == m) {
    place->second = engine;
  } else {
    tuned_.emplace(place, m, engine);
  }
}

// Those that another has taken the place of.
void GemmPlan::DropUnchosen() {
  std::erase_if(tuned_engines_, [&](const auto& engine) {
    return std::ranges::find(tuned_, engine.get(), &TunedEngines::value_type::second) == tuned_.end();
  });
  const std::vector<const Engine*> own = OwnEngines();
  const auto runs_vectors = [](const Engine* engine) {
    return !engine->ReadsPanels() && engine->KindName() != ScheduledEngine::kKind;
  };
  if (std::ranges::none_of(own, runs_vectors)) vectors_ = nullptr;
}

Result<Tuned> GemmPlan::Tune(int64_t tuned_m, TuningBudget budget) {
  const ScopedFloatEnvironment float_environment;
  const int64_t m = std::min(tuned_m, kMostTimedRows);
  Result<Candidates> candidates = MakeCandidates();
  if (!candidates) {
    DropUnreadPanels();
    return candidates.error();
  }
  const std::vector<const Engine*>& engines = candidates->all;

  AlignedBuffer<uint8_t> a, c, residual, scratch;
  AlignedBuffer<float> row_scales;
  int64_t scratch_bytes = 0;
  for (const Engine* const engine : engines) scratch_bytes = std::max(scratch_bytes, ShareBytes(*engine, m));
  const auto size = [m](int64_t row_bytes) { return static_cast<size_t>(m * row_bytes); };
  const LinearProblem& problem = data_.problem;
  if (!a.Resize(size(data_.k * problem.a_bytes())) || !row_scales.Resize(size(1)) ||
      !c.Resize(size(data_.n * data_.element_bytes())) ||
      !residual.Resize(size(data_.n * data_.residual_bytes())) ||
      !scratch.Resize(static_cast<size_t>(scratch_bytes))) {
    DropUnreadPanels();
    return Error{INTACT_OUT_OF_MEMORY, "no memory to tune in"};
  }
  if (problem.IsDynamic()) {
    std::fill_n(a.data(), a.size(), uint8_t{0});
  } else {
    FillActivations(problem, a.data(), a.size());
  }
  std::fill_n(row_scales.data(), row_scales.size(), 1.0f);
  std::fill_n(residual.data(), residual.size(), uint8_t{0});
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = m;
  args.a = a.data();
  args.c = c.data();
  if (data_.epilogue.has_residual()) args.residual = residual.data();
  if (problem.HasRowScales()) args.a_scales = row_scales.data();
  const RunBuffers buffers = BuffersOf(args);
  const std::vector<TurnTimes> times = TimeInTurns(engines.size(), budget, [&](size_t i) {
    RunShare(*engines[i], buffers, {0, m, 0, data_.n}, scratch.data());
  });

  const Engine& model = ModelEngineFor(tuned_m);
  const auto model_place = static_cast<size_t>(std::ranges::find(engines, &model) - engines.begin());
  const size_t chosen = ChooseByTime(times, model_place);
  const Engine* const fastest = engines[chosen];
  constexpr double kMicroseconds = 1e6;
  Tuned tuned = {fastest->KernelName(), times[chosen].median * kMicroseconds, model.KernelName(),
                 times[model_place].median * kMicroseconds, static_cast<int>(engines.size())};
  Choose(tuned_m, fastest, &*candidates);
  DropUnchosen();
  DropUnreadPanels();
  return tuned;
}

Result<std::vector<std::string>> GemmPlan::CandidateNames() const {
  ASSIGN_OR_RETURN(const Candidates candidates, MakeCandidates());
  std::vector<std::string> names;
  for (const Engine* const engine : candidates.all) names.push_back(engine->KernelName());
  return names;
}

TunedChoices GemmPlan::tuned() const {
  TunedChoices tuned;
  tuned.cpu = jit::HostCpu().ToString();
  for (const auto& [m, engine] : tuned_) tuned.choices.push_back({m, engine->KernelName()});
  return tuned;
}

void GemmPlan::Restore(const TunedChoices& tuned) {
  if (tuned.choices.empty() || tuned.cpu != jit::HostCpu().ToString()) return;
  Candidates candidates;
  candidates.all = OwnEngines();
  const bool has_all = std::ranges::all_of(tuned.choices, [&](const TunedChoices::Choice& choice) {
    return candidates.Find(choice.kernel) != nullptr;
  });
  if (!has_all) {
    Result<Candidates> made = MakeCandidates();
    if (made) candidates = std::move(*made);
  }
  for (const TunedChoices::Choice& choice : tuned.choices) {
    const Engine* const engine = candidates.Find(choice.kernel);
    if (engine != nullptr) Choose(choice.m, engine, &candidates);
  }
  DropUnchosen();
  DropUnreadPanels();
}

}  // namespace intact::kernels
