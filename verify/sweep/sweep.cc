#include "verify/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "verify/explain/claim.h"
#include "verify/explain/judge.h"
#include "verify/explain/pairing.h"
#include "verify/problem/problem_size.h"
#include "verify/sweep/earlier_calls.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/sweep/minimise.h"
#include "verify/sweep/sweep_problems.h"

namespace intact::verify {
namespace {

constexpr std::chrono::seconds kMinimiseTime{30};  // for targets that hang

// Whether a problem that fails with several threads does not fail with one.
bool IsRightWithOneThread(const Target& target, Problem problem, const Oracle& oracle,
                          const FailureAlone& alone) {
  constexpr int kTimes = 3;  // to rule out chance
  if (problem.threads == 1) return false;
  problem.threads = 1;
  for (int i = 0; i < kTimes; ++i) {
    if (alone.Fails(target, problem, oracle)) return false;
  }
  return true;
}

// `gemm`, which has one row, with `copies` of this row.
reference::Gemm WithCopies(const reference::Gemm& gemm, int64_t copies) {
  reference::Gemm copied = gemm;
  copied.m = copies;
  const auto repeat = [copies](auto* values) {
    const auto one = *values;
    for (int64_t i = 1; i < copies; ++i) values->insert(values->end(), one.begin(), one.end());
  };
  repeat(&copied.a);
  repeat(&copied.a_source);
  repeat(&copied.residual);
  if (gemm.a_quantization == INTACT_QUANTIZATION_TENSOR) return copied;
  repeat(&copied.a_zero_points);
  repeat(&copied.a_scales);
  return copied;
}

// Whether `target` computes the only row of `problem` wrongly and each of several equal rows rightly.
bool IsWrongWithOneRowOnly(const Target& target, const Problem& problem) {
  if (problem.conv || problem.grouped || problem.m != 1 || problem.batch != 1) return false;
  const reference::Gemm gemm = MaterializeGemm(problem);
  const RunOptions options = InAllPlaces(problem);
  return std::ranges::all_of(std::array<int64_t, 3>{2, 3, 16}, [&](int64_t copies) {
    const Result<Judgement> judgement = Judge(target, Oracle(WithCopies(gemm, copies)), options);
    return judgement && judgement->Passed();
  });
}

// Finds a smaller problem that fails in the same way. `failure`: as HowFails() returns it. `before`: what ran on
// the target before. `causes`: of the problem's wrong outputs; nullptr if it has no outputs.
void AddMinimised(const Target& target, const Problem& problem, const Oracle& oracle, const Failure& failure,
                  std::span<const Problem> before, const Causes* causes, SweepOutcome* outcome) {
  const auto end = std::chrono::steady_clock::now() + kMinimiseTime;
  const FailureAlone alone = ReproduceAlone(target, problem, oracle, failure, before, end);
  const std::string claims = target.Arithmetic();
  const std::string claim = ClaimOf(claims, KindOf(problem));
  const auto fails = [&](const Problem& candidate) {
    return std::chrono::steady_clock::now() < end && ClaimOf(claims, KindOf(candidate)) == claim &&
           alone.Fails(target, candidate, Oracle(candidate));
  };
  const Problem minimised = Minimise(problem, fails);
  const Oracle of_minimised(minimised);
  outcome->minimised = minimised.ToString();
  outcome->minimised_reason = alone.Reason(target, minimised, of_minimised, causes);
  if (outcome->minimised_reason.empty()) {
    // It did not fail again. If `hangs`, it may have been slow only.
    if (alone.hangs()) outcome->minimised = problem.ToString();
    outcome->minimised_reason = outcome->failure;
  } else if (IsRightWithOneThread(target, minimised, of_minimised, alone)) {
    outcome->minimised_reason += "; right with one thread";
  }
  if (failure.kind == FailureKind::kOutput && alone.note.empty() && IsWrongWithOneRowOnly(target, problem) &&
      IsWrongWithOneRowOnly(target, minimised)) {
    outcome->minimised_reason += "; the path of one row: right if the row is one of 2, 3 or 16 equal rows";
  }
  if (!alone.note.empty()) outcome->minimised_reason += "; " + alone.note;
}

std::optional<SweepNaming> NamingOf(const Problem& problem, const Comparison& comparison) {
  const std::optional<GroupedNaming>& grouped = comparison.grouped;
  if (grouped && problem.isa == INTACT_ISA_ANY && !grouped->arithmetic.empty()) {
    return SweepNaming{false, {grouped->arithmetic}, {}};
  }
  if (!comparison.naming) return std::nullopt;
  SweepNaming naming = {comparison.naming->would_show_clamping, {}, PartsInWords(comparison)};
  for (const reference::Arithmetic& arithmetic : comparison.naming->reproduced_by) {
    naming.reproduced_by.push_back(ToString(arithmetic));
  }
  return naming;
}

bool IsRefused(const Result<Judgement>& judgement) {
  return !judgement && judgement.error().status == INTACT_UNSUPPORTED;
}

SweepOutcome OutcomeOf(const Problem& problem, const std::string& line, const Result<Judgement>& judgement) {
  SweepOutcome outcome;
  outcome.problem = line;
  outcome.isa = problem.isa;
  outcome.mode = problem.mode;
  if (IsRefused(judgement)) {
    outcome.skipped = MessageOf(judgement.error());
    return outcome;
  }
  if (judgement) {
    const Comparison& comparison = judgement->comparison;
    outcome.outputs = {comparison.outputs, comparison.differing, comparison.by_cause, comparison.digest,
                       NamingOf(problem, comparison)};
  }
  outcome.failure = judgement ? judgement->failure : MessageOf(judgement.error());
  return outcome;
}

}  // namespace

bool MinimisedChoice::Take(const std::string& kind) {
  size_t& taken = taken_[kind];
  if (taken == kMinimisedOfAKind || all_ == kMaxMinimised) return false;
  ++taken;
  ++all_;
  return true;
}

const Oracle& Sweeper::OracleOf(Problem problem) {
  problem.isa = INTACT_ISA_ANY;
  if (!oracle_ || of_oracle_ != problem) oracle_.emplace(problem);
  of_oracle_ = std::move(problem);
  return *oracle_;
}

Result<Judgement> Sweeper::Judged(const Problem& problem) {
  const bool explains = explained_ < kMostExplained;
  const RunOptions options = RunOptionsOf(problem);
  const Oracle& oracle = OracleOf(problem);
  return explains ? Judge(target_, oracle, options) : JudgeBriefly(target_, oracle, options);
}

void Sweeper::Minimise(const Problem& problem, const Failure& failure, const Result<Judgement>& judgement,
                       SweepOutcome* outcome) {
  if (failure.of == kNotExplained || minimising_ >= kMostMinimising || !choice_.Take(outcome->kind)) return;
  const auto start = std::chrono::steady_clock::now();
  std::optional<Causes> causes;
  Failure alike = {failure.kind};
  if (judgement) {
    causes = judgement->comparison.Explanations();
    alike.of = AlikeOf(judgement->comparison);
  }
  AddMinimised(target_, problem, OracleOf(problem), alike, before_, causes ? &*causes : nullptr, outcome);
  minimising_ += std::chrono::steady_clock::now() - start;
}

SweepOutcome Sweeper::Run(const Problem& problem, const std::string& line) {
  if (problem.grouped && target_.Features().grouped == 0) {
    return OutcomeOf(problem, line, Error{INTACT_UNSUPPORTED, "the target has no grouped weights"});
  }
  Problem ran = problem;
  Result<Judgement> judgement = Judged(problem);
  if (IsRefused(judgement) && problem.grouped && problem.isa == INTACT_ISA_ANY) {  // ours refuse an ISA
    if (const std::optional<Problem> changed = Changed(target_, problem)) {
      ran = *changed;
      judgement = Judged(ran);
    }
  }
  SweepOutcome outcome = OutcomeOf(problem, line, judgement);
  if (!outcome.skipped.empty()) return outcome;
  if (judgement && !judgement->Passed() && judgement->comparison.Unexplained() > 0) ++explained_;
  if (!outcome.failure.empty()) {
    if (ran != problem) outcome.failure = fmt::format("changed to '{}': {}", ran.ToString(), outcome.failure);
    const Failure failure = judgement ? judgement->kind : target_.LastFailure();
    outcome.kind = failure.Text();
    Minimise(ran, failure, judgement, &outcome);
  }
  if (before_.size() == kMostEarlierCalls) before_.erase(before_.begin());
  before_.push_back(ran);
  return outcome;
}

void Sweeper::Know(const SweepOutcome& outcome) {
  if (outcome.failure.empty()) return;
  (void)choice_.Take(outcome.kind);
  const auto unexplained = static_cast<size_t>(Cause::kImplementationError);
  if (outcome.outputs && outcome.outputs->by_cause[unexplained] > 0) ++explained_;
}

std::vector<SkipReason> SkipReasons(const std::vector<SweepSkip>& skips) {
  std::map<std::string, SkipReason> by_reason;
  for (const SweepSkip& skip : skips) {
    const auto at = by_reason.try_emplace(skip.reason, SkipReason{skip.reason, 0, skip.problem}).first;
    ++at->second.problems;
  }
  std::vector<SkipReason> reasons;
  reasons.reserve(by_reason.size());
  for (auto& [text, reason] : by_reason) reasons.push_back(std::move(reason));
  std::ranges::stable_sort(reasons, std::greater(), &SkipReason::problems);
  return reasons;
}

SweepVerdict SweepResult::Verdict() const {
  if (!failures.empty() || (not_run > 0 && !IsOutOfTime())) return SweepVerdict::kFailed;
  if (not_run > 0) return SweepVerdict::kUnfinished;
  const bool all_ran =
      !cells.empty() && std::ranges::all_of(cells, [](const SweepCell& cell) { return cell.problems > 0; });
  return all_ran ? SweepVerdict::kPassed : SweepVerdict::kNothingCompared;
}

SweepVerdict SweepResult::VerdictWith(const SweepResult* random) const {
  return random != nullptr && !random->failures.empty() ? SweepVerdict::kFailed : Verdict();
}

int64_t SweepResult::Problems() const {
  int64_t problems = 0;
  for (const SweepCell& cell : cells) problems += cell.problems;
  return problems;
}

int64_t SweepResult::InParts() const {
  return std::ranges::count_if(computed, [](const SweepComputed& c) { return !c.in_parts.empty(); });
}

void Tried::Add(const Problem& problem) {
  const std::array<int64_t, 3> sizes = GemmSizesOf(problem);
  const int64_t items = problem.conv        ? problem.conv->batch
                        : problem.item == 0 ? problem.batch
                                            : problem.m / problem.item;
  Add(Tried{sizes[0], sizes[1], sizes[2], items, problem.threads, problem.calls});
}

void Tried::Add(std::string_view line) {
  if (const Result<Problem> problem = Problem::Parse(line)) Add(*problem);
}

void Tried::Add(const Tried& other) {
  for (int64_t Tried::*const field :
       {&Tried::m, &Tried::n, &Tried::k, &Tried::batch, &Tried::threads, &Tried::calls}) {
    this->*field = std::max(this->*field, other.*field);
  }
}

void SweepCell::Add(const SweepCell& other) {
  problems += other.problems;
  skipped += other.skipped;
  failed += other.failed;
  outputs += other.outputs;
  differing += other.differing;
  for (size_t i = 0; i < by_cause.size(); ++i) by_cause[i] += other.by_cause[i];
}

int64_t SweepResult::Failed() const {
  int64_t failed = 0;
  for (const SweepCell& cell : cells) failed += cell.failed;
  return failed;
}

SweepCell& SweepResult::CellOf(intact_isa isa, intact_mode mode) {
  const auto found = std::ranges::find_if(
      cells, [&](const SweepCell& cell) { return cell.isa == isa && cell.mode == mode; });
  if (found != cells.end()) return *found;
  SweepCell& cell = cells.emplace_back();
  cell.isa = isa;
  cell.mode = mode;
  return cell;
}

void SweepResult::Add(const SweepOutcome& outcome) {
  SweepCell& cell = CellOf(outcome.isa, outcome.mode);
  if (!outcome.skipped.empty()) {
    ++cell.skipped;
    skips.push_back({outcome.problem, outcome.skipped});
    return;
  }
  ++cell.problems;
  tried.Add(outcome.problem);
  if (outcome.outputs) {
    cell.outputs += outcome.outputs->outputs;
    cell.differing += outcome.outputs->differing;
    for (size_t i = 0; i < kCauseCount; ++i) cell.by_cause[i] += outcome.outputs->by_cause[i];
    digests.push_back({outcome.problem, outcome.outputs->digest});
    if (const auto& naming = outcome.outputs->naming) {
      computed.push_back({outcome.problem, outcome.outputs->differing, naming->would_show_clamping,
                          naming->reproduced_by, naming->in_parts});
    }
  }
  if (outcome.failure.empty()) return;
  ++cell.failed;
  failures.push_back(
      {outcome.problem, outcome.failure, outcome.kind, outcome.minimised, outcome.minimised_reason});
}

namespace {

// Whether another pairing makes our saturating kernels clamp other depths.
bool HasTwoPairings(const Problem& problem) {
  return problem.mode == INTACT_SATURATING && problem.conv && !problem.conv->IsTransposed() &&
         !EngineLayerOf(problem.conv, problem.k, problem.b_type).PairingsAgree();
}

}  // namespace

std::vector<Problem> SweepProblems(std::span<const intact_isa> isas, std::span<const intact_mode> modes,
                                   Effort effort) {
  const uint64_t seeds = effort == Effort::kThorough ? 4 : 1;
  const size_t step = effort == Effort::kQuick ? 6 : 1;
  std::vector<Problem> problems;
  for (const intact_isa isa : isas) {
    for (const intact_mode mode : modes) {
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        std::vector<Problem> list = GemmProblems(seed);
        const std::vector<Problem> convs = ConvProblems(seed);
        list.insert(list.end(), convs.begin(), convs.end());
        const auto add = [&](Problem problem) {
          problem.isa = isa;
          problem.mode = mode;
          problems.push_back(problem);
          if (!HasTwoPairings(problem)) return;
          problem.pairing = INTACT_PAIRING_FLATTENED;
          problems.push_back(problem);
        };
        std::ranges::for_each(ResidueProblems(seed), add);
        std::ranges::for_each(StateProblems(seed), add);
        for (size_t i = 0; i < list.size(); i += step) add(list[i]);
      }
    }
  }
  return problems;
}

SweepResult RunSweep(std::span<const Problem> problems, const Target& target, const Progress& progress,
                     const support::Deadline& deadline) {
  return *RunSweep(
      problems, target, {}, [](const SweepOutcome&) { return std::nullopt; }, progress, deadline);
}

Result<SweepResult> RunSweep(std::span<const Problem> problems, const Target& target,
                             const SweepOutcomes& known, const SweepRecorder& record,
                             const Progress& progress, const support::Deadline& deadline) {
  SweepResult result;
  Sweeper sweeper(target);
  int64_t done = 0;
  for (const Problem& problem : problems) {
    const std::string line = problem.ToString();
    ++done;
    if (const auto found = known.find(line); found != known.end()) {
      sweeper.Know(found->second);
      result.Add(found->second);
      continue;
    }
    if (result.not_run == 0) {
      result.why_not_run = target.WhyGivenUp();
      if (result.why_not_run.empty() && deadline.IsOver()) result.why_not_run = support::kTimeIsOver;
    }
    if (!result.why_not_run.empty()) {
      ++result.not_run;
      continue;
    }
    const SweepOutcome outcome = sweeper.Run(problem, line);
    if (const std::optional<Error> error = record(outcome)) return *error;
    result.Add(outcome);
    progress(done, std::ssize(problems));
  }
  return result;
}

}  // namespace intact::verify
