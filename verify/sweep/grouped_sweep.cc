#include "verify/sweep/grouped_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "support/random.h"
#include "verify/explain/grouped.h"
#include "verify/problem/reset.h"
#include "verify/targets/fit.h"

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

GroupedProblem Minimise(const GroupedTarget& target, const GroupedProblem& problem) {
  using Change = std::function<void(GroupedProblem*)>;
  const GroupedProblem defaults;
  std::vector<Change> changes = {
      [&](GroupedProblem* p) { static_cast<GroupedRun&>(*p) = {.isa = p->isa}; },
      [&](GroupedProblem* p) { p->has_a_zero_points = false; },
      [&](GroupedProblem* p) { p->c_type = defaults.c_type; },
      [&](GroupedProblem* p) {
        p->source = defaults.source;
        p->has_a_zero_points = true;
      },
      [&](GroupedProblem* p) { p->calls -= p->calls / 2; },
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
  // Defaults first, except of fields whose default is not simpler.
  constexpr std::array<std::string_view, 5> kNotSimpler = {"group", "za", "src", "seed", "isa"};
  for (const std::string_view key : OptionalGroupedKeys()) {
    if (std::ranges::find(kNotSimpler, key) != kNotSimpler.end()) continue;
    changes.insert(changes.begin() + 1, [key](GroupedProblem* p) { Reset(key, p); });
  }
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

std::vector<Problem> GroupedSweepProblems(std::span<const intact_isa> isas, Effort effort, uint64_t seed) {
  std::vector<Problem> problems;
  for (const GroupedProblem& drawn : GroupedSweepProblems(INTACT_ISA_ANY, effort, seed)) {
    for (const intact_isa isa : isas) {
      problems.push_back(Problem::Of(drawn));
      problems.back().SetIsa(isa);
    }
  }
  return problems;
}

}  // namespace intact::verify
