// The search for traps, with planted ones.
#include "bench/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/isas.h"

namespace intact::bench {
namespace {

using verify::Problem;

/// Microseconds in proportion to the work, times `factor` of the problem.
Stopwatch Planted(const std::function<double(const Problem&)>& factor) {
  return [=](const Problem& problem) -> Result<support::Measurement> {
    const double microseconds = factor(problem) * (1 + 1e-3 * Products(problem));
    return support::Measurement([=] { return microseconds; });
  };
}

SearchResults SearchWith(const std::function<double(const Problem&)>& factor,
                         std::vector<core::Isa> isas = {core::Isa::kAvx2}) {
  return Search({std::move(isas), Seconds(0.5), 1}, Planted(factor), [](int64_t, int64_t) {});
}

TEST(Search, FindsNothingWhereTimesFollowTheWork) {
  const SearchResults results = SearchWith([](const Problem&) { return 1; });
  EXPECT_GT(results.problems, 0);
  EXPECT_GT(results.neighbours, 20 * results.problems);
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

TEST(Search, WorkExplainsALongerTime) {
  Problem conv = *Problem::Parse("conv u8s8s32 in=8x8 c=4 o=2 kernel=3x3 pad=1x1");
  EXPECT_EQ(Products(conv), 22.0 * 22 * 8);  // 8 pixels have 3 taps inside, but 2 of them only 2
  conv = *Problem::Parse("conv u8s8s32 in=4 c=1 o=1 kernel=2 stride=2 transposed=yes");
  EXPECT_EQ(Products(conv), 8);
  EXPECT_EQ(Products(*Problem::Parse("gemm u8s8s32 m=3 n=5 k=7 batch=2")), 210);
}

}  // namespace
}  // namespace intact::bench
