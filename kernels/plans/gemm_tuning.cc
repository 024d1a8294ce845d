// Choosing by stopwatch: all engines of a plan give the same bytes, so which one runs is a matter of time
// alone.
#include <algorithm>
#include <chrono>
#include <random>

#include "kernels/base/threads.h"
#include "kernels/plans/gemm_plan.h"

namespace intact::kernels {
namespace {

using Clock = std::chrono::steady_clock;

// Short runs are timed together, so that the clock's own time does not count.
constexpr double kLeastSeconds = 20e-6;

// The model's choice stays where another is hardly faster: that may be chance.
constexpr double kLeastGain = 0.97;

// More rows are as many blocks of rows more.
constexpr int64_t kMostTimedRows = 8192;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Seconds for each of `contenders`, the median of turns, in which one goes after the other.
template <class Run>
std::vector<double> TimeInTurns(size_t contenders, std::chrono::duration<double> budget, const Run& run) {
  const auto time = [&](size_t contender, int64_t runs) {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < runs; ++i) run(contender);
    return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(runs);
  };
  const Clock::time_point begin = Clock::now();
  std::vector<std::vector<double>> seconds(contenders);
  std::vector<int64_t> runs;
  for (size_t i = 0; i < contenders; ++i) {
    const double first = std::min(time(i, 1), time(i, 1));
    runs.push_back(1 + static_cast<int64_t>(kLeastSeconds / std::max(first, 1e-9)));
  }
  do {
    for (size_t i = 0; i < contenders; ++i) {
      run(i);  // brings its weights back, which the others' may have displaced
      seconds[i].push_back(time(i, runs[i]));
    }
  } while (Clock::now() - begin < budget);
  std::vector<double> medians;
  medians.reserve(contenders);
  for (std::vector<double>& of_one : seconds) medians.push_back(Median(std::move(of_one)));
  return medians;
}

// The engine of that name; null if there is none.
const Engine* Find(const std::vector<const Engine*>& engines, const std::string& name) {
  const auto found = std::find_if(engines.begin(), engines.end(),
                                  [&](const Engine* engine) { return engine->KernelName() == name; });
  return found == engines.end() ? nullptr : *found;
}

}  // namespace

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
  Error error = weights().RestorePanels();
  if (error.status != INTACT_OK) return error;
  if (scheduled_ == nullptr) {
    Result<std::unique_ptr<ScheduledEngine>> scheduled = MakeScheduledEngine(nullptr);
    if (!scheduled) return scheduled.error();
    if (*scheduled != nullptr) {
      error = (*scheduled)->Build();
      if (error.status != INTACT_OK) return error;
      candidates.all.push_back(scheduled->get());
      candidates.others.push_back(std::move(*scheduled));
    }
  }
  for (const KernelBlock& block : kKernels) {
    if (!CanRun(block)) continue;
    Result<std::unique_ptr<Engine>> engine = MakePanelEngine(block, &candidates.vectors);
    if (!engine) return engine.error();
    if (Find(candidates.all, (*engine)->KernelName()) != nullptr) continue;
    if (block.dot == jit::DotKind::kScheduled) candidates.scheduled = engine->get();
    candidates.all.push_back(engine->get());
    candidates.others.push_back(std::move(*engine));
  }
  return candidates;
}

// Of the other candidates the plan keeps those that it has chosen.
void GemmPlan::Choose(int64_t m, const Engine* engine, Candidates* candidates) {
  const auto other = std::ranges::find(candidates->others, engine, &std::unique_ptr<Engine>::get);
  if (other != candidates->others.end()) {
    if (engine == candidates->scheduled) vectors_ = candidates->vectors;
    tuned_engines_.push_back(std::move(*other));
    candidates->others.erase(other);
  }
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
}

Result<GemmPlan::Tuned> GemmPlan::Tune(int64_t tuned_m, std::chrono::duration<double> budget) {
  const ScopedFloatEnvironment float_environment;
  const int64_t m = std::min(tuned_m, kMostTimedRows);
  Result<Candidates> candidates = MakeCandidates();
  if (!candidates) return candidates.error();
  const std::vector<const Engine*>& engines = candidates->all;

  AlignedBuffer<uint8_t> a, c, residual, scratch;
  int64_t scratch_bytes = 0;
  for (const Engine* const engine : engines) scratch_bytes = std::max(scratch_bytes, ShareBytes(*engine, m));
  const auto size = [m](int64_t row_bytes) { return static_cast<size_t>(m * row_bytes); };
  if (!a.Resize(size(data_.k)) || !c.Resize(size(data_.n * data_.element_bytes())) ||
      !residual.Resize(size(data_.n * data_.residual_bytes())) ||
      !scratch.Resize(static_cast<size_t>(scratch_bytes))) {
    return Error{INTACT_OUT_OF_MEMORY, "no memory to tune in"};
  }
  // Activations within the declared range: others run more slowly.
  const int low = data_.problem.range.low, values = data_.problem.range.high - low + 1;
  std::minstd_rand random;
  for (size_t i = 0; i < a.size(); ++i) {
    const int value = low + static_cast<int>(random() % static_cast<unsigned>(values));
    a[i] = static_cast<uint8_t>(value ^ data_.a_flip());
  }
  std::fill_n(residual.data(), residual.size(), uint8_t{0});
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = m;
  args.a = a.data();
  args.c = c.data();
  args.residual = residual.data();  // not read where there is none
  const RunBuffers buffers = BuffersOf(args);
  const std::vector<double> seconds = TimeInTurns(engines.size(), budget, [&](size_t i) {
    RunShare(*engines[i], buffers, {0, m, 0, data_.n}, scratch.data());
  });

  const auto microseconds = [&](const Engine* engine) {
    constexpr double kMicroseconds = 1e6;
    const auto place = std::find(engines.begin(), engines.end(), engine) - engines.begin();
    return seconds[static_cast<size_t>(place)] * kMicroseconds;
  };
  const Engine* fastest =
      engines[static_cast<size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin())];
  const Engine& model = ModelEngineFor(tuned_m);
  if (microseconds(fastest) > kLeastGain * microseconds(&model)) fastest = &model;
  const Tuned tuned = {fastest->KernelName(), microseconds(fastest), model.KernelName(), microseconds(&model),
                       static_cast<int>(engines.size())};
  Choose(tuned_m, fastest, &*candidates);
  DropUnchosen();
  return tuned;
}

Result<std::vector<std::string>> GemmPlan::CandidateNames() const {
  const Result<Candidates> candidates = MakeCandidates();
  if (!candidates) return candidates.error();
  std::vector<std::string> names;
  for (const Engine* const engine : candidates->all) names.push_back(engine->KernelName());
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
    return Find(candidates.all, choice.kernel) != nullptr;
  });
  if (!has_all) {
    Result<Candidates> made = MakeCandidates();
    if (made) candidates = std::move(*made);
  }
  for (const TunedChoices::Choice& choice : tuned.choices) {
    const Engine* const engine = Find(candidates.all, choice.kernel);
    if (engine != nullptr) Choose(choice.m, engine, &candidates);
  }
  DropUnchosen();
}

}  // namespace intact::kernels
