#include "verify/sweep/shard.h"
#include "core/isas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "verify/explain/audit.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<Shard> Parse(const std::string& text, const Variables& variables = {}) {
  return ParseShard(text, [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

/// The error for `text`; "" if it is a shard.
std::string Refusal(const std::string& text, const Variables& variables = {}) {
  return Parse(text, variables).error().message;
}

const Variables kSlurm = {{"SLURM_ARRAY_TASK_ID", "3"},
                          {"SLURM_ARRAY_TASK_MIN", "1"},
                          {"SLURM_ARRAY_TASK_MAX", "8"},
                          {"SLURM_ARRAY_TASK_STEP", "1"},
                          {"SLURM_ARRAY_TASK_COUNT", "8"}};
const Variables kKubernetes = {{"JOB_COMPLETION_INDEX", "0"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
const Variables kPmi = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};

Variables With(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

TEST(ParseShard, IsOneOfSeveral) {
  EXPECT_EQ(*Parse("1/1"), (Shard{1, 1}));
  EXPECT_EQ(*Parse("2/8"), (Shard{2, 8}));
  EXPECT_EQ(*Parse("8/8"), (Shard{8, 8}));
  EXPECT_EQ((Shard{2, 8}.ToString()), "2/8");
  for (const char* text :
       {"", "/", "3", "0/8", "9/8", "-1/8", "1/0", "1/", "/8", "1/8/2", "1 /8", "+1/8", "1/8x", "a/b",
        "automatic", "auto/", "auto/0", "auto/x", "1/99999999999999999999"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("expected i/n with i from 1 to n, auto or auto/n")) << text;
  }
}

TEST(ParseShard, TheEnvironmentIsReadOnlyWhenItIsAskedFor) {
  EXPECT_EQ(*Parse("2/3", With(With(kSlurm, kKubernetes), kOpenMpi)), (Shard{2, 3}));
  EXPECT_THAT(Refusal("auto"), HasSubstr("none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, "
                                         "OMPI_COMM_WORLD_RANK, PMI_RANK is set"));
  EXPECT_THAT(Refusal("auto/4"), HasSubstr("none of"));
}

TEST(ParseShard, SlurmArrays) {
  EXPECT_EQ(*Parse("auto", kSlurm), (Shard{3, 8}));
  EXPECT_EQ(*Parse("auto/8", kSlurm), (Shard{3, 8}));
  // Numbered from 0; numbered in steps.
  EXPECT_EQ(*Parse("auto", With(kSlurm, {{"SLURM_ARRAY_TASK_MIN", "0"}})), (Shard{4, 8}));
  EXPECT_EQ(*Parse("auto", With(kSlurm, {{"SLURM_ARRAY_TASK_STEP", "2"}})), (Shard{2, 8}));
  // A single task: `sbatch --array=3`.
  const Variables again = With(kSlurm, {{"SLURM_ARRAY_TASK_MIN", "3"}, {"SLURM_ARRAY_TASK_COUNT", "1"}});
  EXPECT_EQ(*Parse("auto/8", again), (Shard{3, 8}));
  EXPECT_EQ(*Parse("auto", again), (Shard{1, 1}));

  // 1,3,7: not in even steps.
  const Variables uneven = With(kSlurm, {{"SLURM_ARRAY_TASK_ID", "7"}, {"SLURM_ARRAY_TASK_COUNT", "3"}});
  EXPECT_THAT(Refusal("auto", uneven), HasSubstr("SLURM_ARRAY_TASK_ID=7: is not among 3 ids from 1 on"));
  EXPECT_THAT(Refusal("auto", With(kSlurm, {{"SLURM_ARRAY_TASK_STEP", "3"}})), HasSubstr("in steps of 3"));
  EXPECT_THAT(Refusal("auto", With(kSlurm, {{"SLURM_ARRAY_TASK_STEP", "0"}})), HasSubstr("in steps of 0"));
  EXPECT_THAT(Refusal("auto", With(kSlurm, {{"SLURM_ARRAY_TASK_MIN", "4"}})), HasSubstr("from 4 on"));
  EXPECT_THAT(Refusal("auto/2", kSlurm), HasSubstr("SLURM_ARRAY_TASK_ID=3: there is no part 3 of 2"));
  EXPECT_THAT(Refusal("auto/8", With(kSlurm, {{"SLURM_ARRAY_TASK_ID", "0"}})), HasSubstr("no part 0 of 8"));
  EXPECT_THAT(Refusal("auto", With(kSlurm, {{"SLURM_ARRAY_TASK_ID", "x"}})),
              HasSubstr("SLURM_ARRAY_TASK_ID: 'x' is not a number"));
  EXPECT_THAT(Refusal("auto", {{"SLURM_ARRAY_TASK_ID", "3"}}), HasSubstr("SLURM_ARRAY_TASK_MIN is not set"));
}

TEST(ParseShard, KubernetesDoesNotTellHowMany) {
  EXPECT_EQ(*Parse("auto/8", kKubernetes), (Shard{1, 8}));
  EXPECT_EQ(*Parse("auto/8", {{"JOB_COMPLETION_INDEX", "7"}}), (Shard{8, 8}));
  EXPECT_THAT(Refusal("auto/8", {{"JOB_COMPLETION_INDEX", "8"}}), HasSubstr("there is no part 9 of 8"));
  EXPECT_THAT(Refusal("auto", kKubernetes), HasSubstr("expected auto/N"));
}

TEST(ParseShard, RanksOfMpi) {
  EXPECT_EQ(*Parse("auto", kOpenMpi), (Shard{4, 4}));
  EXPECT_EQ(*Parse("auto/4", kOpenMpi), (Shard{4, 4}));
  EXPECT_EQ(*Parse("auto", kPmi), (Shard{1, 2}));
  EXPECT_THAT(Refusal("auto/8", kOpenMpi),
              HasSubstr("OMPI_COMM_WORLD_SIZE=4: expected 8 ranks, one for each shard"));
  EXPECT_THAT(Refusal("auto", {{"PMI_RANK", "0"}}), HasSubstr("PMI_SIZE is not set"));
  EXPECT_THAT(Refusal("auto", With(kPmi, {{"PMI_RANK", "2"}})), HasSubstr("there is no part 3 of 2"));
}

TEST(ParseShard, OneOfSeveralLaunchersMustBeMeant) {
  EXPECT_THAT(Refusal("auto", With(kSlurm, kOpenMpi)),
              HasSubstr("SLURM_ARRAY_TASK_ID and OMPI_COMM_WORLD_RANK are set"));
  // srun starts the task of an array as a single rank.
  const Variables single = {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}};
  EXPECT_EQ(*Parse("auto/8", With(kSlurm, single)), (Shard{3, 8}));
  EXPECT_EQ(*Parse("auto", With(kOpenMpi, single)), (Shard{4, 4}));
  EXPECT_EQ(*Parse("auto", single), (Shard{1, 1}));
  EXPECT_EQ(*Parse("auto", With(single, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}})),
            (Shard{1, 1}));
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
