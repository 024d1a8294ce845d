// Tuning (tuning.h) of a convolution: times all variants (how input is read, which groups lie side by side),
// each with all its kernels.
//
// A variant's layout, plan and engines are made when its turn comes, and dropped unless one of its kernels is
// nearly the fastest.
#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "jit/isa.h"
#include "kernels/plans/convolution.h"
#include "kernels/plans/tuning.h"

namespace intact::kernels {
namespace {

// Candidates that take more than kHopeless times the fastest one's time in their first runs are not timed
// again.
constexpr double kHopeless = 2;
// First runs of a kernel; the first one brings its operands into the caches.
constexpr int kFirstRuns = 4;

constexpr double kMicroseconds = 1e6;

int64_t PixelsOf(const Spatial& extents) { return extents[kDepth] * extents[kHeight] * extents[kWidth]; }

std::string NameOf(const ConvLayout::Variant& variant, const std::string& kernel) {
  return variant.ToString() + ": " + kernel;
}

// A variant that has been made, and the engines that may run it.
struct TriedVariant {
  std::unique_ptr<ConvPlan> plan;
  std::vector<EngineChoice> choices;
  std::vector<ConvRun> runs;      // of a batch of one, by choice
  size_t model = 0;               // number of the cost model's choice
  std::vector<double> seconds{};  // minimum of first runs, by choice
};

// A variant on an engine.
struct Contender {
  size_t variant = 0, choice = 0;
};

Result<TriedVariant> TryVariant(std::unique_ptr<ConvPlan> plan) {
  TriedVariant tried;
  ASSIGN_OR_RETURN(tried.choices, plan->MakeCandidates());
  for (const EngineChoice& choice : tried.choices) {
    const ConvRun& run = tried.runs.emplace_back(plan->Decide(1, choice));
    RETURN_IF_ERROR(plan->PrepareImage(run));
  }
  const auto model = std::ranges::find(tried.choices, plan->ModelChoice());
  tried.model = static_cast<size_t>(model - tried.choices.begin());
  tried.plan = std::move(plan);
  return tried;
}

}  // namespace

/// Runs a convolution for timing, on an input of known extents.
class Convolution::Timer {
 public:
  Error Allocate(const Convolution& convolution, const ConvGeometry& sized) {
    const Requantization& output = convolution.problem().output;
    RETURN_IF_ERROR(memory_.Allocate(convolution.layout_problem_,
                                     PixelsOf(sized.input) * sized.input_channels,
                                     PixelsOf(sized.output) * sized.output_channels));
    input_ = {memory_.a.data(), sized.input_channels, convolution.padding_.data()};
    output_ = OutputMap::Of(output, sized.output_channels, memory_.c.data(), 0,
                            output.has_residual() ? memory_.residual.data() : nullptr, 0);
    return {};
  }
  void Run(const ConvPlan& plan, const ConvRun& run) {
    uint8_t* const scratch = memory_.scratch.data();
    const int64_t column_bytes = plan.kernels().RunColumnBytes();
    const PerRunColumnConstants* const columns =
        column_bytes == 0 ? nullptr : plan.kernels().MakePerRunColumnConstants({1.0f, 0}, scratch);
    plan.RunShare(input_, columns, output_, run, {0, run.output.m, 0, run.output.n}, scratch + column_bytes);
  }
  /// Runs each choice of `variant` a few times.
  Error RunFirst(TriedVariant* variant) {
    for (const ConvRun& run : variant->runs) {
      RETURN_IF_ERROR(variant->plan->kernels().FindSchedules(run, 1));
      RETURN_IF_ERROR(memory_.MakeRoom(variant->plan->kernels().RunColumnBytes() + run.bytes));
      std::array<double, kFirstRuns> seconds = {};
      for (double& of_run : seconds) of_run = TimeRuns(1, [&] { Run(*variant->plan, run); });
      variant->seconds.push_back(*std::ranges::min_element(seconds));
    }
    return {};
  }

 private:
  TimedMemory memory_;
  ConvInput input_ = {};
  OutputMap output_ = {};
};

// ----- variants --------------------------------------------------------------------------------------------

// If extents are open, the model chooses for typical extents. It chooses no planar band if the extents of
// `phase` do not fit one.
std::vector<ConvLayout::Variant> Convolution::VariantsOf(const SizedPhase& phase) const {
  const ConvLayout& layout = *layouts_[phase.number];
  std::vector<ConvLayout::Variant> variants = ConvLayout::VariantsOf(layout.problem(), phase.geometry, isa_);
  const bool may_be_planar = std::ranges::find(variants, ConvLayout::Reading::kPlanarBand,
                                               &ConvLayout::Variant::reading) != variants.end();
  const ConvLayout::Variant model =
      ConvLayout::ModelVariant(layout.problem(), layout.geometry(), isa_, may_be_planar);
  std::erase(variants, model);
  variants.insert(variants.begin(), model);
  return variants;
}

Result<std::shared_ptr<const ConvLayout>> Convolution::FindOrMakeLayout(
    size_t phase, const ConvLayout::Variant& variant) const {
  if (layouts_[phase]->variant() == variant) return layouts_[phase];
  for (const Choice& choice : tuned_) {
    if (choice.phase == phase && choice.layout->variant() == variant) return choice.layout;
  }
  return MakeLayout(phase, variant);
}

Result<std::unique_ptr<ConvPlan>> Convolution::MakePlanAs(const SizedPhase& phase,
                                                          const ConvLayout::Variant& variant) const {
  ASSIGN_OR_RETURN(auto layout, FindOrMakeLayout(phase.number, variant));
  return ConvPlan::Create(std::move(layout), phase.geometry, phase.grid);
}

Result<std::unique_ptr<ConvPlan>> Convolution::MakeChosenPlan(const SizedPhase& phase, const Choice& choice) {
  Result<std::unique_ptr<ConvPlan>> plan = ConvPlan::Create(choice.layout, phase.geometry, phase.grid);
  if (!plan) return plan;
  RETURN_IF_ERROR((*plan)->Choose(choice.engine));
  return plan;
}

// ----- tuning ----------------------------------------------------------------------------------------------

Result<Convolution::TunedPhase> Convolution::TunePhase(const SizedPhase& phase, Timer* timer,
                                                       TuningBudget budget) const {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<TriedVariant> tried;  // the model's variant is the first
  double least = 0;
  int candidates = 0;
  for (const ConvLayout::Variant& variant : VariantsOf(phase)) {
    ASSIGN_OR_RETURN(std::unique_ptr<ConvPlan> plan, MakePlanAs(phase, variant));
    if (tried.empty()) plan->mutable_kernels()->RunAllAs(run_all_as_);
    ASSIGN_OR_RETURN(TriedVariant next, TryVariant(std::move(plan)));
    RETURN_IF_ERROR(timer->RunFirst(&next));
    candidates += static_cast<int>(next.seconds.size());
    const double own = *std::ranges::min_element(next.seconds);
    least = tried.empty() ? own : std::min(least, own);
    if (tried.empty() || own <= kHopeless * least) tried.push_back(std::move(next));
  }

  std::vector<Contender> contenders = {{0, tried.front().model}};
  for (size_t variant = 0; variant < tried.size(); ++variant) {
    for (size_t choice = 0; choice < tried[variant].seconds.size(); ++choice) {
      const bool is_model = variant == 0 && choice == tried[variant].model;
      if (!is_model && tried[variant].seconds[choice] <= kHopeless * least)
        contenders.push_back({variant, choice});
    }
  }
  const std::vector<TurnTimes> times =
      TimeInTurns(contenders.size(), budget - (std::chrono::steady_clock::now() - begin), [&](size_t i) {
        const TriedVariant& variant = tried[contenders[i].variant];
        timer->Run(*variant.plan, variant.runs[contenders[i].choice]);
      });
  const size_t fastest = ChooseByTime(times, 0);

  const auto choice_of = [&](size_t i) { return tried[contenders[i].variant].choices[contenders[i].choice]; };
  const auto name_of = [&](size_t i) {
    const ConvPlan& plan = *tried[contenders[i].variant].plan;
    return NameOf(plan.layout().variant(), plan.kernels().KernelNameOf(choice_of(i)));
  };
  TunedPhase made;
  made.tuned = {name_of(fastest), times[fastest].median * kMicroseconds, name_of(0),
                times[0].median * kMicroseconds, candidates};
  made.plan = std::move(tried[contenders[fastest].variant].plan);
  made.choice = {phase.input, phase.number, made.plan->shared_layout(), choice_of(fastest), {}};
  RETURN_IF_ERROR(made.plan->Choose(made.choice.engine));
  made.choice.kernel = made.plan->kernel_name();
  return made;
}

Result<Tuned> Convolution::Tune(const int64_t* input, TuningBudget budget) {
  constexpr Spatial kAsDescribed = {};
  ASSIGN_OR_RETURN(const ConvGeometry sized,
                   Sized(geometry_, input == nullptr ? kAsDescribed.data() : input));
  RETURN_IF_ERROR(CheckBatch(sized, 1));
  ASSIGN_OR_RETURN(const std::vector<SizedPhase> phases, PhasesFor(sized));
  const UnreadDropper dropper{this};
  Timer timer;
  RETURN_IF_ERROR(timer.Allocate(*this, sized));

  Tuned all;
  std::vector<Choice> choices;
  std::vector<std::unique_ptr<ConvPlan>> plans;
  double longest = -1;
  for (const SizedPhase& phase : phases) {
    ASSIGN_OR_RETURN(TunedPhase made, TunePhase(phase, &timer, budget / static_cast<double>(phases.size())));
    const Tuned& tuned = made.tuned;
    // For transposed convolutions, the result has the kernels of the longest phase.
    if (tuned.model_microseconds > longest) {
      longest = tuned.model_microseconds;
      all.kernel = tuned.kernel;
      all.model_kernel = tuned.model_kernel;
    }
    all.microseconds += tuned.microseconds;
    all.model_microseconds += tuned.model_microseconds;
    all.candidates += tuned.candidates;
    choices.push_back(std::move(made.choice));
    plans.push_back(std::move(made.plan));
  }
  if (phases.empty()) all.kernel = all.model_kernel = bare_plan_->kernel_name();
  Adopt(Combine(sized, std::move(plans)), std::move(choices));
  return all;
}

void Convolution::Adopt(std::shared_ptr<const Plans> plans, std::vector<Choice> choices) {
  const Spatial& input = plans->geometry.input;
  std::erase_if(tuned_, [&](const Choice& choice) { return choice.input == input; });
  std::erase_if(used_, [&](const PreparedPointer& used) { return used->plans->geometry.input == input; });
  if (fixed_ != nullptr) {
    // Only these extents run, so the layouts that the model chose are not needed any more.
    for (const Choice& choice : choices) layouts_[choice.phase] = choice.layout;
    NameKernel(*plans);
    Fix(std::move(plans));
  } else {
    used_.push_front(Decide(plans, 1));
    if (used_.size() > kMostPrepared) used_.pop_back();
  }
  std::ranges::move(choices, std::back_inserter(tuned_));
  std::ranges::stable_sort(tuned_, {},
                           [](const Choice& choice) { return std::pair(choice.input, choice.phase); });
}

// ----- choices in files ------------------------------------------------------------------------------------

Result<std::vector<TunedChoices::ConvChoice>> Convolution::ListCandidates(const int64_t* input) const {
  constexpr Spatial kAsDescribed = {};
  ASSIGN_OR_RETURN(const ConvGeometry sized,
                   Sized(geometry_, input == nullptr ? kAsDescribed.data() : input));
  ASSIGN_OR_RETURN(const std::vector<SizedPhase> phases, PhasesFor(sized));
  const UnreadDropper dropper{this};
  std::vector<TunedChoices::ConvChoice> all;
  for (const SizedPhase& phase : phases) {
    for (const ConvLayout::Variant& variant : VariantsOf(phase)) {
      ASSIGN_OR_RETURN(const std::unique_ptr<ConvPlan> plan, MakePlanAs(phase, variant));
      ASSIGN_OR_RETURN(const std::vector<EngineChoice> choices, plan->MakeCandidates());
      for (const EngineChoice& choice : choices) {
        all.push_back({phase.input, static_cast<int64_t>(phase.number), variant.ToString(),
                       plan->kernels().KernelNameOf(choice)});
      }
    }
  }
  return all;
}

TunedChoices Convolution::tuned() const {
  TunedChoices tuned;
  tuned.cpu = jit::HostCpu().ToString();
  for (const Choice& choice : tuned_) {
    tuned.conv_choices.push_back({choice.input, static_cast<int64_t>(choice.phase),
                                  choice.layout->variant().ToString(), choice.kernel});
  }
  return tuned;
}

void Convolution::Restore(const TunedChoices& tuned) {
  if (tuned.cpu != jit::HostCpu().ToString()) return;
  const UnreadDropper dropper{this};
  const std::vector<TunedChoices::ConvChoice>& all = tuned.conv_choices;
  for (auto first = all.begin(); first != all.end();) {
    const auto end =
        std::find_if(first, all.end(), [&](const auto& choice) { return choice.input != first->input; });
    RestoreSize({first, end});
    first = end;
  }
}

// `held`: choices for one input size.
void Convolution::RestoreSize(const std::vector<TunedChoices::ConvChoice>& held) {
  const Spatial& input = held.front().input;
  const Result<ConvGeometry> sized = Sized(geometry_, input.data() + geometry_.Place(0));
  if (!sized || sized->input != input) return;
  const Result<std::vector<SizedPhase>> phases = PhasesFor(*sized);
  if (!phases) return;
  std::vector<Choice> choices;
  std::vector<std::unique_ptr<ConvPlan>> plans;  // null: there is no choice for the phase
  for (const SizedPhase& phase : *phases) {
    Result<TunedPhase> restored = RestorePhase(phase, held);
    plans.push_back(restored ? std::move(restored->plan) : nullptr);
    if (restored) choices.push_back(std::move(restored->choice));
  }
  if (choices.empty()) return;  // before more plans are made: a forged file may have many choices
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i] != nullptr) continue;
    Result<std::unique_ptr<ConvPlan>> plan = MakePlan((*phases)[i]);
    if (!plan || !(*plan)->PrepareImage((*plan)->Decide(1)).ok()) return;
    plans[i] = std::move(*plan);
  }
  Adopt(Combine(*sized, std::move(plans)), std::move(choices));
}

Result<Convolution::TunedPhase> Convolution::RestorePhase(
    const SizedPhase& phase, const std::vector<TunedChoices::ConvChoice>& held) const {
  const auto found =
      std::ranges::find(held, static_cast<int64_t>(phase.number), &TunedChoices::ConvChoice::phase);
  if (found == held.end()) return Error{INTACT_UNSUPPORTED, "there is no choice for the phase"};
  const std::vector<ConvLayout::Variant> variants = VariantsOf(phase);
  const auto variant = std::ranges::find(variants, found->variant, &ConvLayout::Variant::ToString);
  if (variant == variants.end()) return Error{INTACT_UNSUPPORTED, "there is no variant " + found->variant};
  TunedPhase made;
  ASSIGN_OR_RETURN(made.plan, MakePlanAs(phase, *variant));
  ASSIGN_OR_RETURN(const std::vector<EngineChoice> choices, made.plan->MakeCandidates());
  const auto choice = std::ranges::find(choices, found->kernel, [&](const EngineChoice& candidate) {
    return made.plan->kernels().KernelNameOf(candidate);
  });
  if (choice == choices.end()) return Error{INTACT_UNSUPPORTED, "there is no kernel " + found->kernel};
  made.choice = {phase.input, phase.number, made.plan->shared_layout(), *choice, found->kernel};
  RETURN_IF_ERROR(made.plan->Choose(*choice));
  // Only a size that the descriptor gives must be prepared.
  if (fixed_ != nullptr) RETURN_IF_ERROR(made.plan->PrepareImage(made.plan->Decide(1)));
  return made;
}

}  // namespace intact::kernels
