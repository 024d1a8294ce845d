#include "verify/sweep/grouped_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "support/random.h"
#include "verify/problem/fields.h"
#include "verify/problem/random_problem.h"
#include "verify/targets/fit.h"

namespace intact::verify {
namespace {

// Everything that DrawGrouped() draws, except the fields of the combination `number`.
Problem Combination(int64_t number, support::Random* random) {
  Problem p = DrawGrouped(random);
  GroupedFields& g = *p.grouped;
  const auto take = [&](const auto& values) {
    const auto count = std::ssize(values);
    return values[static_cast<size_t>(std::exchange(number, number / count) % count)];
  };
  g.fill = take(AllGroupedFills());
  g.group = take(kGroups);
  g.b_type = take(core::kGroupedWeightTypes);
  p.source = take(std::array{INTACT_TYPE_NONE, INTACT_F32, INTACT_BF16, INTACT_F16});
  p.a_type = take(std::array{INTACT_U8, INTACT_S8});
  g.has_b_zero_points = take(std::array{false, true});
  g.has_group_scales = take(std::array{false, true});
  if (p.source == INTACT_TYPE_NONE && g.fill == GroupedFill::kNonFinite) g.fill = GroupedFill::kBounds;
  ResetMisfits(&p);
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

}  // namespace

std::vector<Problem> GroupedSweepProblems(std::span<const intact_isa> isas, Effort effort, uint64_t seed) {
  constexpr int64_t kRandom = 1500;
  constexpr int64_t kQuickStep = 5;  // has no common factor with the numbers of values
  const int64_t rounds = effort == Effort::kThorough ? 4 : 1;
  const int64_t step = effort == Effort::kQuick ? kQuickStep : 1;
  std::vector<Problem> problems;
  const auto add = [&](Problem problem) {
    for (const intact_isa isa : isas) {
      problem.isa = isa;
      problems.push_back(problem);
    }
  };
  for (int64_t round = 0; round < rounds; ++round) {
    support::Random random(seed, 1, static_cast<uint64_t>(round));
    for (int64_t i = 0; i < kCombinations + kRandom;
         ++i) {  // all are drawn, so that the quick ones are of them
      const Problem problem = i < kCombinations ? Combination(i, &random) : DrawGrouped(&random);
      if (i % step == 0) add(problem);
    }
  }
  for (const std::string_view line : kStateLines) add(*Problem::Parse(line));
  return problems;
}

std::optional<Problem> Changed(const Target& target, const Problem& refused) {
  using Change = std::function<void(Problem*)>;
  const auto round_up = [](int64_t* extent, int64_t step) { *extent += (step - *extent % step) % step; };
  const std::vector<Change> changes = {
      [](Problem* p) { p->source = p->source == INTACT_TYPE_NONE ? p->source : INTACT_F32; },
      [](Problem* p) { p->grouped->scale_type = INTACT_F32; },
      [](Problem* p) { p->grouped->scale_type = INTACT_F16; },
      [](Problem* p) { p->grouped->group = 32; },
      [&](Problem* p) { round_up(&p->k, 32); },
      [&](Problem* p) { round_up(&p->n, 64); },
  };
  for (const bool has_group_scales : {true, false}) {
    Problem tried = refused;
    for (const Change& change : changes) {
      Problem next = tried;
      next.grouped->has_group_scales = has_group_scales;
      change(&next);
      next = FittedGrouped(next, target.Features().grouped);
      if (next == tried || next.Check()) continue;
      tried = next;
      const Result<std::vector<uint8_t>> output = target.Run(Materialize(tried), RunOptionsOf(tried));
      if (output || output.error().status != INTACT_UNSUPPORTED) return tried;
    }
  }
  return std::nullopt;
}

}  // namespace intact::verify
