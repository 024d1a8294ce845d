// The search for traps, with planted ones.
#include "bench/measure/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "core/isas.h"
#include "support/turns.h"

namespace intact::bench {
namespace {

using verify::Problem;

/// Microseconds in proportion to the work, times `factor` of the problem.
Stopwatch Planted(const std::function<double(const Problem&)>& factor) {
  return [=](const Problem& problem, Seconds /*shortest*/) -> Result<support::Measurement> {
    const double microseconds = factor(problem) * (1 + 1e-3 * Products(problem));
    return support::Measurement([=] { return microseconds; });
  };
}

// Enough problems to find the planted traps. Without a limit of time the machine's load changes nothing.
constexpr int64_t kProblems = 200;
constexpr Seconds kForever(1e6);

SearchResults SearchBy(const Stopwatch& stopwatch, std::vector<core::Isa> isas = {core::Isa::kAvx2}) {
  return Search({std::move(isas), kForever, 1, kProblems, kForever}, stopwatch, [](int64_t, int64_t) {});
}
SearchResults SearchWith(const std::function<double(const Problem&)>& factor,
                         std::vector<core::Isa> isas = {core::Isa::kAvx2}) {
  return SearchBy(Planted(factor), std::move(isas));
}

// The first call, with cold caches, does not decide how many calls follow.
TEST(Search, TurnsHaveManyCalls) {
  int calls = 0;
  const auto run = [&] {
    if (calls++ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  TurnOf([&](int64_t times) { return support::MicrosecondsPerCall(run, times); }, kShortestTurn)();
  EXPECT_GT(calls, 3);
}

TEST(Search, FindsNothingWhereTimesFollowTheWork) {
  const SearchResults results = SearchWith([](const Problem&) { return 1; });
  EXPECT_EQ(results.problems, kProblems);
  EXPECT_GT(results.neighbours, 20 * results.problems);
  EXPECT_TRUE(results.AllRight());
  EXPECT_EQ(results.findings.size(), 0u) << ToText(results);
}

TEST(Search, FindsAPlantedDepthAndReducesIt) {
  const auto is_slow = [](const Problem& p) { return !p.conv && p.k % 2 == 1 && p.n >= 5; };
  const SearchResults results = SearchWith([=](const Problem& p) { return is_slow(p) ? 10 : 1; });
  ASSERT_GT(results.findings.size(), 0u);
  for (const Finding& finding : results.findings) {
    SCOPED_TRACE(finding.slow.ToString());
    EXPECT_TRUE(is_slow(finding.slow));
    EXPECT_FALSE(is_slow(finding.fast)) << finding.fast.ToString();
    EXPECT_LE(finding.slow.m, 3);
    EXPECT_LE(finding.slow.n, 11);
    EXPECT_LE(finding.slow.k, 5);
    EXPECT_GT(finding.ratio, kLimit);
  }
}

TEST(Search, FindsAPlantedStride) {
  const auto is_slow = [](const Problem& p) { return p.conv && p.conv->axes[2].stride == 2; };
  const SearchResults results = SearchWith([=](const Problem& p) { return is_slow(p) ? 10 : 1; });
  ASSERT_GT(results.findings.size(), 0u);
  for (const Finding& finding : results.findings) {
    EXPECT_TRUE(is_slow(finding.slow)) << finding.slow.ToString();
    EXPECT_FALSE(is_slow(finding.fast)) << finding.fast.ToString();
  }
}

TEST(Search, FindsThatAnIsaIsSlowerThanAWeakerOne) {
  const auto is_slow = [](const Problem& p) { return p.isa == INTACT_ISA_AVX512 && !p.conv && p.n == 1; };
  const SearchResults results =
      SearchWith([=](const Problem& p) { return is_slow(p) ? 1.6 : 1; }, {core::Isa::kAvx512});
  ASSERT_GT(results.findings.size(), 0u);
  for (const Finding& finding : results.findings) {
    EXPECT_TRUE(is_slow(finding.slow)) << finding.slow.ToString();
    EXPECT_TRUE(finding.fast.isa == INTACT_ISA_AVX2 || finding.fast.isa == INTACT_ISA_PORTABLE);
  }
}

// The planted trap is in an axis that convolutions of one dimension lack: there it makes no neighbour.
TEST(Search, NeighboursAreOtherProblems) {
  const auto is_slow = [](const Problem& p) { return p.conv && p.conv->axes[1].kernel > 1; };
  const SearchResults results = SearchWith([=](const Problem& p) { return is_slow(p) ? 10 : 1; });
  ASSERT_GT(results.findings.size(), 0u);
  for (const Finding& finding : results.findings) {
    EXPECT_NE(finding.slow.ToString(), finding.fast.ToString());
    for (const Problem& problem : {finding.slow, finding.fast}) {
      EXPECT_EQ(*Problem::Parse(problem.ToString()), problem) << problem.ToString();
      EXPECT_NE(problem.conv->batch, 0) << problem.ToString();
    }
  }
}

// A type that lacks a problem's table or fixed-point scale makes no neighbour.
TEST(Search, NeighboursOfAnotherTypeHaveTheSameOptions) {
  const auto stopwatch = Planted([](const Problem& p) { return core::IsInt8(p.c_type) ? 10 : 1; });
  const SearchResults results =
      Search({{core::Isa::kAvx2}, kForever, 1, kProblems, Seconds(0)}, stopwatch, [](int64_t, int64_t) {});
  ASSERT_GT(results.findings.size(), 0u);
  for (const Finding& finding : results.findings) {
    EXPECT_FALSE(finding.slow.has_table) << finding.slow.ToString();
    EXPECT_EQ(finding.slow.fixed, verify::FixedKind::kNone) << finding.slow.ToString();
  }
}

// The reduced problem is a trap in short turns only; the problem that was drawn is one in long turns too.
TEST(Search, ReportsTheDrawnProblemIfTheReducedOneIsNoTrap) {
  const auto is_odd = [](const Problem& p) { return !p.conv && p.k % 2 == 1; };
  const Stopwatch stopwatch = [=](const Problem& p, Seconds shortest) -> Result<support::Measurement> {
    const bool is_slow = is_odd(p) && (shortest < kShortestTurn || p.n >= 5);
    const double microseconds = (is_slow ? 10 : 1) * (1 + 1e-3 * Products(p));
    return support::Measurement([=] { return microseconds; });
  };
  const SearchResults results = SearchBy(stopwatch);
  ASSERT_GT(results.findings.size(), 0u);
  for (const Finding& finding : results.findings) EXPECT_GE(finding.slow.n, 5) << finding.slow.ToString();
}

TEST(Search, CountsErrorsAndNamesTheFirst) {
  const auto fails_with = [](intact_status status) -> Stopwatch {
    return [=](const Problem& p, Seconds shortest) -> Result<support::Measurement> {
      if (p.conv) return Error{status, "no kernel"};
      return Planted([](const Problem&) { return 1; })(p, shortest);
    };
  };
  const SearchResults unsupported = SearchBy(fails_with(INTACT_UNSUPPORTED));
  EXPECT_TRUE(unsupported.AllRight());
  EXPECT_LT(unsupported.problems, kProblems);
  const SearchResults failed = SearchBy(fails_with(INTACT_CODEGEN_FAILED));
  EXPECT_FALSE(failed.AllRight());
  EXPECT_EQ(failed.problems + failed.errors, kProblems);
  EXPECT_THAT(failed.first_error, testing::StartsWith("conv "));
  EXPECT_THAT(ToText(failed), testing::HasSubstr("; the first: " + failed.first_error));
  EXPECT_EQ(ToJson(failed)["first_error"], failed.first_error);
}

TEST(Search, FailsIfNothingWasMeasured) {
  const SearchResults results = SearchBy([](const Problem&, Seconds) -> Result<support::Measurement> {
    return Error{INTACT_UNSUPPORTED, "no"};
  });
  EXPECT_FALSE(results.AllRight());
  EXPECT_THAT(ToText(results), testing::HasSubstr("no problem was measured"));
}

TEST(Search, WorkExplainsALongerTime) {
  Problem conv = *Problem::Parse("conv u8s8s32 in=8x8 c=4 o=2 kernel=3x3 pad=1x1");
  EXPECT_EQ(Products(conv), 22.0 * 22 * 8);  // 8 pixels have 3 taps inside, but 2 of them only 2
  conv = *Problem::Parse("conv u8s8s32 in=4 c=1 o=1 kernel=2 stride=2 transposed=yes");
  EXPECT_EQ(Products(conv), 8);
  EXPECT_EQ(Products(*Problem::Parse("gemm u8s8s32 m=3 n=5 k=7 batch=2")), 210);
}

}  // namespace
}  // namespace intact::bench
