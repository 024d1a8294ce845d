#include "verify/sweep/shard.h"
#include "core/isas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "verify/explain/audit.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {
namespace {

using testing::HasSubstr;

TEST(ParseShard, IsOneOfSeveral) {
  EXPECT_EQ(*ParseShard("1/1"), (Shard{1, 1}));
  EXPECT_EQ(*ParseShard("2/8"), (Shard{2, 8}));
  EXPECT_EQ(*ParseShard("8/8"), (Shard{8, 8}));
  EXPECT_EQ((Shard{2, 8}.ToString()), "2/8");
  for (const char* text : {"", "/", "3", "0/8", "9/8", "-1/8", "1/0", "1/", "/8", "1/8/2", "1 /8", "+1/8",
                           "1/8x", "a/b", "auto", "auto/8", "1/99999999999999999999"}) {
    EXPECT_THAT(ParseShard(text).error().message, HasSubstr("expected i/n with i from 1 to n")) << text;
  }
}

std::vector<Problem> Problems(Effort effort) {
  constexpr intact_mode kBothModes[] = {INTACT_EXACT, INTACT_SATURATING};
  return SweepProblems(core::kIsaLadder, kBothModes, effort);
}

TEST(Deal, EachProblemIsInOneShard) {
  const std::vector<Problem> problems = Problems(Effort::kQuick);
  for (const int64_t count :
       {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{8}, int64_t{97}, std::ssize(problems)}) {
    const std::vector<std::vector<size_t>> shards = Deal(problems, count);
    ASSERT_EQ(std::ssize(shards), count);
    std::vector<int> times(problems.size());
    for (const std::vector<size_t>& shard : shards) {
      EXPECT_FALSE(shard.empty());
      EXPECT_TRUE(std::ranges::is_sorted(shard));
      for (const size_t i : shard) ++times.at(i);
    }
    EXPECT_THAT(times, testing::Each(1)) << count;
    EXPECT_EQ(Deal(problems, count), shards);
  }
}

TEST(Deal, AShardIsThoseProblemsInTheirOrder) {
  const std::vector<Problem> problems = Problems(Effort::kQuick);
  const std::vector<std::vector<size_t>> shards = Deal(problems, 5);
  for (int64_t index = 1; index <= 5; ++index) {
    std::vector<Problem> expected;
    for (const size_t i : shards[static_cast<size_t>(index - 1)]) expected.push_back(problems[i]);
    EXPECT_EQ(ProblemsOf(problems, {index, 5}), expected);
  }
}

// Nanoseconds by least squares over the sweep on AVX2: for a problem, for a multiply-add of the reference,
// and for an element of A, B or C.
double Nanoseconds(const Problem& p) {
  constexpr double kProblem = 310'000, kMultiplyAdd = 0.6, kElement = 28;
  double outputs = static_cast<double>(p.batch * p.m * p.n),
         inputs = static_cast<double>(p.batch * p.m * p.k);
  double depth = static_cast<double>(p.k), weights = static_cast<double>(p.n * p.k);
  if (p.conv) {
    outputs = static_cast<double>(p.conv->OutputPixels() * p.conv->output_channels);
    inputs = static_cast<double>(p.conv->InputPixels() * p.conv->input_channels);
    depth = static_cast<double>(p.conv->Taps() * p.conv->GroupInputs());
    weights = depth * static_cast<double>(p.conv->output_channels);
  }
  return kProblem + kMultiplyAdd * outputs * depth + kElement * (outputs + inputs + weights);
}

TEST(Deal, ShardsTakeAboutTheSameTime) {
  constexpr intact_isa kAvx2[] = {INTACT_ISA_AVX2};
  constexpr intact_mode kExact[] = {INTACT_EXACT};
  const std::vector<Problem> problems = SweepProblems(kAvx2, kExact, Effort::kStandard);
  const auto spread = [&](const std::vector<std::vector<size_t>>& shards) {
    std::vector<double> times;
    for (const std::vector<size_t>& shard : shards) {
      double time = 0;
      for (const size_t i : shard) time += Nanoseconds(problems[i]);
      times.push_back(time);
    }
    const auto [least, most] = std::ranges::minmax(times);
    return most / least;
  };
  EXPECT_LT(spread(Deal(problems, 8)), 1.15);
  std::vector<std::vector<size_t>> in_turns(8);
  for (size_t i = 0; i < problems.size(); ++i) in_turns[i % 8].push_back(i);
  EXPECT_GT(spread(in_turns), 1.2) << "dealing by cost is for nothing";
}

}  // namespace
}  // namespace intact::verify
