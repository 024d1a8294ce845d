#include "verify/sweep/grouped_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "support/fnv1a.h"
#include "support/random.h"
#include "verify/explain/claim.h"
#include "verify/explain/grouped.h"

namespace intact::verify {
namespace {

// Everything that Draw() draws, except the fields of the combination `number`.
GroupedProblem Combination(int64_t number, support::Random* random) {
  GroupedProblem p = GroupedProblem::Draw(random);
  const auto take = [&](const auto& values) {
    const auto count = std::ssize(values);
    return values[static_cast<size_t>(std::exchange(number, number / count) % count)];
  };
  p.fill = take(AllGroupedFills());
  p.group = take(std::array{0, 16, 32, 64, 128, 256});
  p.b_type = take(core::kGroupedWeightTypes);
  p.source = take(std::array{INTACT_TYPE_NONE, INTACT_F32, INTACT_BF16, INTACT_F16});
  p.a_type = take(std::array{INTACT_U8, INTACT_S8});
  p.b_is_kn = p.b_is_kn && !p.IsPacked();
  p.has_b_zero_points = take(std::array{false, true});
  p.has_b_minimums = p.has_b_minimums && !p.has_b_zero_points;
  p.granularity = take(std::array{INTACT_GRANULARITY_ROWS, INTACT_GRANULARITY_GROUPS});
  if (p.source == INTACT_TYPE_NONE && p.fill == GroupedFill::kNonFinite) p.fill = GroupedFill::kBounds;
  return p;
}

// One problem of a kind suffices. Sizes are small where calls are many.
constexpr std::array<std::string_view, 8> kStateLines = {
    // Other weights at addresses that the target has seen.
    "grouped s8u4f32 m=3 n=20 k=150 src=none gscale=f32 reused=yes",
    "grouped u8s8f32 m=2 n=17 k=70 zb=yes reused=yes threads=2",
    "grouped s8s4bf16 m=9 n=20 k=96 experts=4 per=group bias=yes reused=yes",
    // Many calls of one plan, and more threads than cores.
    "grouped s8u4f32 m=2 n=9 k=64 src=none gscale=f32 calls=1200",
    "grouped s8s8f32 m=20 n=33 k=96 zb=yes threads=16 calls=60",
    "grouped u8u4f32 m=70 n=130 k=96 threads=16",
    // Batches of 9, and many groups.
    "grouped s8u4f32 m=27 n=20 k=64 item=3 src=none gscale=f32 threads=8",
    "grouped s8u4f32 m=2 n=17 k=20000 group=128 zb=yes",
};

constexpr int64_t kCombinations = 7 * 6 * 4 * 4 * 2 * 2 * 2;

// How a problem fails.
struct GroupedFailure {
  std::string reason;
  FailureKind kind = FailureKind::kOutput;
  std::string cause;  // the arithmetic of wrong outputs; "" if nothing explains them
  // Whether the other failure may be the same bug. A small problem has few outputs, which many arithmetics
  // explain by chance, so the cause must be equal.
  bool IsLike(const GroupedFailure& other) const {
    return AreAlike(kind, other.kind) && cause == other.cause;
  }
};

// nullopt if it does not fail.
std::optional<GroupedFailure> HowFails(const GroupedTarget& target, const GroupedProblem& problem) {
  const auto judgement = Judge(target, problem);
  if (judgement) {
    if (judgement->Passed()) return std::nullopt;
    return GroupedFailure{judgement->failure, FailureKind::kOutput, judgement->arithmetic};
  }
  if (judgement.error().status == INTACT_UNSUPPORTED) return std::nullopt;
  return GroupedFailure{judgement.error().message, target.LastFailure().kind, {}};
}

}  // namespace

std::vector<GroupedProblem> GroupedSweepProblems(intact_isa isa, Effort effort, uint64_t seed) {
  constexpr int64_t kRandom = 1500;
  constexpr int64_t kQuickStep = 5;  // has no common factor with the numbers of values
  const int64_t rounds = effort == Effort::kThorough ? 4 : 1;
  const int64_t step = effort == Effort::kQuick ? kQuickStep : 1;
  std::vector<GroupedProblem> problems;
  for (int64_t round = 0; round < rounds; ++round) {
    support::Random random(seed, 1, static_cast<uint64_t>(round));
    for (int64_t i = 0; i < kCombinations + kRandom;
         ++i) {  // all are drawn, so that the quick ones are of them
      const GroupedProblem problem =
          i < kCombinations ? Combination(i, &random) : GroupedProblem::Draw(&random);
      if (i % step == 0) problems.push_back(problem);
    }
  }
  for (const std::string_view line : kStateLines) problems.push_back(*GroupedProblem::Parse(line));
  for (GroupedProblem& problem : problems) problem.isa = isa;
  return problems;
}

GroupedProblem Fitted(GroupedProblem problem, uint64_t features) {
  const auto lacks = [&](intact_target_feature feature) {
    return (features & INTACT_TARGET_BIT(feature)) == 0;
  };
  // The type of a problem, if the target supports it; else one of the types that it supports.
  const auto choose = [&](auto type, const auto& all) {
    std::vector<decltype(type)> supported;
    for (const auto& [other, feature] : all) {
      if (!lacks(feature)) supported.push_back(other);
    }
    if (supported.empty() || std::ranges::find(supported, type) != supported.end()) return type;
    return supported[problem.seed % supported.size()];
  };
  using TypeFeature = std::pair<intact_type, intact_target_feature>;
  if (lacks(INTACT_TARGET_STRIDES)) problem.a_pad = problem.c_pad = 0;
  if (lacks(INTACT_TARGET_B_LAYOUTS)) {
    problem.b_pad = problem.expert_pad = 0;
    problem.b_is_kn = problem.scales_are_gn = false;
  }
  if (lacks(INTACT_TARGET_EXPERTS)) problem.experts = 1;
  if (lacks(INTACT_TARGET_BATCH)) problem.item = problem.item_pad = 0;
  if (lacks(INTACT_TARGET_THREADS)) problem.threads = 1;
  if (lacks(INTACT_TARGET_EMPTY)) problem.m = std::max<int64_t>(problem.m, 1);
  if (lacks(INTACT_TARGET_BIAS_F32)) problem.has_bias = false;
  if (lacks(INTACT_TARGET_B_ZERO_POINTS)) problem.has_b_zero_points = false;
  if (lacks(INTACT_TARGET_B_MINIMUMS)) problem.has_b_minimums = false;
  const bool has_relu = problem.activation == INTACT_ACTIVATION_RELU;
  const bool has_clamp = problem.activation == INTACT_ACTIVATION_CLAMP;
  if ((has_relu && lacks(INTACT_TARGET_RELU)) || (has_clamp && lacks(INTACT_TARGET_CLAMP))) {
    problem.activation = INTACT_ACTIVATION_NONE;
  }
  if (problem.source == INTACT_TYPE_NONE && lacks(INTACT_TARGET_ROW_QUANTIZATION))
    problem.source = INTACT_F32;
  if (problem.source != INTACT_TYPE_NONE && lacks(INTACT_TARGET_DYNAMIC_ROWS)) {
    problem.source = INTACT_TYPE_NONE;
  }
  if (problem.source == INTACT_F16 && lacks(INTACT_TARGET_DYNAMIC_F16)) problem.source = INTACT_F32;
  const bool is_dynamic = problem.source != INTACT_TYPE_NONE;
  if (problem.fill == GroupedFill::kNonFinite && (!is_dynamic || lacks(INTACT_TARGET_DYNAMIC_NAN))) {
    problem.fill = GroupedFill::kUniform;
  }
  if (problem.fill == GroupedFill::kHuge && lacks(INTACT_TARGET_SCALE_ZERO))
    problem.fill = GroupedFill::kSpread;
  problem.a_type = choose(problem.a_type, std::array{TypeFeature{INTACT_U8, INTACT_TARGET_A_U8},
                                                     TypeFeature{INTACT_S8, INTACT_TARGET_A_S8}});
  if (lacks(INTACT_TARGET_A_ZERO_POINT)) {
    if (is_dynamic && problem.a_type == INTACT_U8) {  // runs choose zero points
      if (!lacks(INTACT_TARGET_A_S8)) {
        problem.a_type = INTACT_S8;
      } else if (!lacks(INTACT_TARGET_ROW_QUANTIZATION)) {
        problem.source = INTACT_TYPE_NONE;
        if (problem.fill == GroupedFill::kNonFinite) problem.fill = GroupedFill::kUniform;
      }
    }
    problem.has_a_zero_points = problem.source != INTACT_TYPE_NONE;
  }
  problem.b_type = choose(
      problem.b_type,
      std::array{TypeFeature{INTACT_U8, INTACT_TARGET_B_U8}, TypeFeature{INTACT_S8, INTACT_TARGET_B_S8},
                 TypeFeature{INTACT_U4, INTACT_TARGET_B_U4}, TypeFeature{INTACT_S4, INTACT_TARGET_B_S4}});
  problem.b_is_kn = problem.b_is_kn && !problem.IsPacked();
  problem.c_type = choose(problem.c_type, std::array{TypeFeature{INTACT_F32, INTACT_TARGET_C_F32},
                                                     TypeFeature{INTACT_BF16, INTACT_TARGET_C_BF16},
                                                     TypeFeature{INTACT_F16, INTACT_TARGET_C_F16}});
  return problem;
}

namespace {

// `problem`, which `target` refuses, after the first changes with which the target runs it. The changes lead to
// products that most libraries have.
std::optional<GroupedProblem> Changed(const GroupedTarget& target, const GroupedProblem& refused) {
  using Change = std::function<void(GroupedProblem*)>;
  const auto round_up = [](int64_t* extent, int64_t step) { *extent += (step - *extent % step) % step; };
  const std::vector<Change> changes = {
      [](GroupedProblem* p) { p->source = p->source == INTACT_TYPE_NONE ? p->source : INTACT_F32; },
      [](GroupedProblem* p) { p->scale_type = INTACT_F32; },
      [](GroupedProblem* p) { p->scale_type = INTACT_F16; },
      [](GroupedProblem* p) { p->group = 32; },
      [&](GroupedProblem* p) { round_up(&p->k, 32); },
      [&](GroupedProblem* p) { round_up(&p->n, 64); },
  };
  for (const intact_granularity granularity : {INTACT_GRANULARITY_GROUPS, INTACT_GRANULARITY_ROWS}) {
    GroupedProblem tried = refused;
    for (const Change& change : changes) {
      GroupedProblem next = tried;
      next.granularity = granularity;
      change(&next);
      next = Fitted(next, target.GroupedFeatures());
      if (next == tried || next.Check()) continue;
      tried = next;
      const Result<std::vector<uint8_t>> output = target.Run(Materialize(tried), tried);
      if (output || output.error().status != INTACT_UNSUPPORTED) return tried;
    }
  }
  return std::nullopt;
}

}  // namespace

GroupedProblem Minimise(const GroupedTarget& target, const GroupedProblem& problem) {
  using Change = std::function<void(GroupedProblem*)>;
  const GroupedProblem defaults;
  const std::vector<Change> changes = {
      [&](GroupedProblem* p) { static_cast<GroupedRun&>(*p) = {.isa = p->isa}; },
      [&](GroupedProblem* p) { p->activation = defaults.activation; },
      [&](GroupedProblem* p) { p->has_bias = false; },
      [&](GroupedProblem* p) { p->has_b_zero_points = false; },
      [&](GroupedProblem* p) { p->has_b_minimums = false; },
      [&](GroupedProblem* p) { p->has_a_zero_points = false; },
      [&](GroupedProblem* p) { p->c_type = defaults.c_type; },
      [&](GroupedProblem* p) { p->scale_type = defaults.scale_type; },
      [&](GroupedProblem* p) {
        p->source = defaults.source;
        p->has_a_zero_points = true;
      },
      [&](GroupedProblem* p) { p->granularity = defaults.granularity; },
      [&](GroupedProblem* p) { p->fill = defaults.fill; },
      [&](GroupedProblem* p) { p->threads = 1; },
      [&](GroupedProblem* p) { p->reused = false; },
      [&](GroupedProblem* p) { p->calls = 1; },
      [&](GroupedProblem* p) { p->calls -= p->calls / 2; },
      [&](GroupedProblem* p) { p->parts = 0; },
      [&](GroupedProblem* p) { p->split = 0; },
      [&](GroupedProblem* p) { p->item = p->item_pad = 0; },
      [&](GroupedProblem* p) { p->own_scratch = false; },
      [&](GroupedProblem* p) { p->saved = false; },
      [&](GroupedProblem* p) { p->b_is_kn = p->scales_are_gn = false; },
      [&](GroupedProblem* p) { p->a_pad = p->b_pad = p->c_pad = p->expert_pad = 0; },
      [](GroupedProblem* p) { p->experts = 1; },
      [](GroupedProblem* p) { p->experts -= p->experts / 2; },
      [](GroupedProblem* p) { --p->experts; },
      [](GroupedProblem* p) { p->k -= p->k / 2; },
      [](GroupedProblem* p) { p->n -= p->n / 2; },
      [](GroupedProblem* p) { p->m -= p->m / 2; },
      [](GroupedProblem* p) { p->m -= p->item; },
      [](GroupedProblem* p) { p->k -= p->group; },
      [](GroupedProblem* p) { --p->k; },
      [](GroupedProblem* p) { --p->n; },
      [](GroupedProblem* p) { --p->m; },
  };
  GroupedProblem least = problem;
  const std::optional<GroupedFailure> failure = HowFails(target, problem);
  if (!failure) return problem;
  const auto fails_alike = [&](const GroupedProblem& smaller) {
    const std::optional<GroupedFailure> how = HowFails(target, smaller);
    return how && how->IsLike(*failure);
  };
  constexpr int kMostTries = 300;
  int tries = 0;
  for (bool is_smaller = true; is_smaller;) {
    is_smaller = false;
    for (const Change& change : changes) {
      GroupedProblem smaller = least;
      change(&smaller);
      if (smaller == least || smaller.Check() || ++tries > kMostTries || !target.WhyGivenUp().empty() ||
          !fails_alike(smaller)) {
        continue;
      }
      least = smaller;
      is_smaller = true;
    }
  }
  return least;
}

GroupedSweepResult RunGroupedSweep(std::span<const intact_isa> isas, Effort effort, uint64_t seed,
                                   const GroupedTarget& target, const Progress& progress) {
  GroupedSweepResult result;
  for (const intact_isa isa : isas) {
    result.cells.push_back({.isa = isa, .digest = support::Fnv1a(std::span<const uint8_t>())});
  }
  int64_t done = 0;
  const std::vector<GroupedProblem> problems = GroupedSweepProblems(INTACT_ISA_ANY, effort, seed);
  const std::string claim = GroupedClaimOf(target.GroupedClaims());
  for (const GroupedProblem& drawn : problems) {
    if (result.why_not_run = target.WhyGivenUp(); !result.why_not_run.empty()) {
      result.not_run = std::ssize(problems) - done;
      break;
    }
    GroupedProblem problem = Fitted(drawn, target.GroupedFeatures());
    reference::Grouped grouped = Materialize(problem);
    std::vector<uint8_t> expected = reference::Outputs(grouped);
    for (GroupedCell& cell : result.cells) {
      problem.isa = cell.isa;
      Result<std::vector<uint8_t>> output = target.Run(grouped, problem);
      const bool is_refused = !output && output.error().status == INTACT_UNSUPPORTED;
      const bool is_own = cell.isa != INTACT_ISA_ANY;  // our own kernels refuse an ISA
      if (const auto changed = is_refused && !is_own ? Changed(target, problem) : std::nullopt) {
        ++cell.changed;
        problem = *changed;
        grouped = Materialize(problem);
        expected = reference::Outputs(grouped);
        output = target.Run(grouped, problem);
      }
      if (!output && output.error().status == INTACT_UNSUPPORTED) {
        ++cell.skipped;
        ++cell.refusals[output.error().message];
        continue;
      }
      ++cell.problems;
      std::string reason = output ? "" : output.error().message;
      if (output) {
        const GroupedJudgement judgement = Compare(grouped, expected, *output, claim);
        cell.digest = support::Fnv1a(*output, cell.digest);
        cell.outputs += judgement.outputs;
        cell.differing += judgement.differing;
        if (judgement.arithmetic.empty()) cell.unexplained += judgement.differing;
        reason = judgement.failure;
        if (reason.empty()) ++cell.arithmetics[judgement.arithmetic];
        cell.error = std::max(cell.error, judgement.error.value_or(0));
      }
      if (reason.empty()) continue;
      ++cell.failed;
      if (result.failures.size() == GroupedSweepResult::kMostFailures) continue;
      SweepFailure failure;
      failure.problem = problem.ToString();
      failure.reason = reason;
      const GroupedProblem smallest = Minimise(target, problem);
      failure.minimised = smallest.ToString();
      const auto how = smallest == problem ? std::nullopt : HowFails(target, smallest);
      failure.minimised_reason = how ? how->reason : reason;
      result.failures.push_back(failure);
    }
    progress(++done, std::ssize(problems));
  }
  return result;
}

SweepVerdict GroupedSweepResult::Verdict() const {
  SweepVerdict verdict = cells.empty() ? SweepVerdict::kNothingCompared : SweepVerdict::kPassed;
  for (const GroupedCell& cell : cells) {
    if (cell.failed != 0) return SweepVerdict::kFailed;
    if (cell.problems <= cell.skipped) verdict = SweepVerdict::kNothingCompared;
  }
  return verdict;
}

std::string CellsText(const GroupedSweepResult& result) {
  std::string text = fmt::format("{:<14}{:>9}{:>9}{:>9}{:>11}{:>11}{:>13}  {}\n", "isa", "problems",
                                 "skipped", "failed", "outputs", "differing", "unexplained", "digest");
  for (const GroupedCell& cell : result.cells) {
    text += fmt::format("{:<14}{:>9}{:>9}{:>9}{:>11}{:>11}{:>13}  {:016x}\n", intact_isa_name(cell.isa),
                        cell.problems, cell.skipped, cell.failed, cell.outputs, cell.differing,
                        cell.unexplained, cell.digest);
  }
  for (const GroupedCell& cell : result.cells) {
    if (cell.isa != INTACT_ISA_ANY) continue;  // of our own kernels
    for (const auto& [arithmetic, problems] : cell.arithmetics) {
      text += fmt::format("{} problems: {}\n", problems, arithmetic);
    }
    if (cell.error != 0) text += fmt::format("largest error: {:.2g} % of the bound\n", 100 * cell.error);
    if (cell.changed != 0) text += fmt::format("changed {} problems that it refused\n", cell.changed);
    for (const auto& [reason, problems] : cell.refusals) {
      text += fmt::format("skipped {}: {}\n", problems, reason);
    }
  }
  if (result.not_run != 0) {
    text += fmt::format("NOT RUN: the {} problems that were left: {}\n", result.not_run, result.why_not_run);
  }
  for (const SweepFailure& failure : result.failures) {
    text += fmt::format("FAILED: {}: {}\n", failure.problem, failure.reason);
    if (failure.minimised == failure.problem) continue;
    text += fmt::format("  smaller: {}: {}\n", failure.minimised, failure.minimised_reason);
  }
  return text;
}

std::string ToText(const GroupedSweepResult& result) {
  const std::string text = CellsText(result);
  switch (result.Verdict()) {
    case SweepVerdict::kPassed:
      return text + "PARITY: every output is the reference's, or of an arithmetic that the target claims\n";
    case SweepVerdict::kFailed:
      return text + "FAILED: some outputs are not as they should be\n";
    case SweepVerdict::kNothingCompared:
      return text + "NOTHING PROVED: most problems of an ISA were skipped\n";
  }
  return text;
}

}  // namespace intact::verify
