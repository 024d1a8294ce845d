// Targets with several arithmetics: the report names all of them, and the properties that separate their
// problems.
#include "verify/sweep/mixture.h"
#include "tests/support/gemm_target.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "verify/problem/problem.h"
#include "verify/report/report_terminal.h"

namespace intact::verify {
namespace {

using reference::Arithmetic;
using reference::Model;
using reference::ToString;
using testing::ElementsAre;
using testing::HasSubstr;

const Model kFourApart = {.sum = reference::Summation::kInt16, .distance = 4};

/// Computes each GEMM by the arithmetic that `choose` returns for it.
class MixedTarget : public GemmTarget {
 public:
  using Choose = std::function<reference::Arithmetic(const reference::Gemm&)>;
  explicit MixedTarget(Choose choose) : choose_(std::move(choose)) {}
  std::string Name() const override { return "mixed"; }
  std::string Arithmetic() const override { return "any"; }
  Result<std::vector<uint8_t>> RunGemm(const reference::Gemm& gemm,
                                       const RunOptions& /*options*/) const override {
    std::vector<uint8_t> output = reference::Predict(gemm, choose_(gemm));
    if (gemm.m == 7 && gemm.n == 5) output[3] ^= 0x10;  // a planted fault
    return output;
  }

 private:
  Choose choose_;
};

SweepResult Sweep(const std::vector<std::string>& lines, const MixedTarget::Choose& choose) {
  std::vector<Problem> problems;
  problems.reserve(lines.size());
  for (const std::string& line : lines) problems.push_back(*Problem::Parse(line));
  return RunSweep(problems, MixedTarget(choose), [](int64_t, int64_t) {});
}

std::vector<std::string> Gemms(const std::string& types, const std::vector<int>& depths,
                               const std::string& more) {
  std::vector<std::string> lines;
  lines.reserve(depths.size());
  for (const int k : depths) lines.push_back(fmt::format("gemm {} m=8 n=16 k={}{}", types, k, more));
  return lines;
}

std::vector<std::string> operator+(std::vector<std::string> x, const std::vector<std::string>& y) {
  x.insert(x.end(), y.begin(), y.end());
  return x;
}

const std::vector<int> kDepths = {16, 31, 64, 100, 257, 600};

TEST(Mixtures, TellHowOftenATargetIsExact) {
  const std::vector<std::string> lines = Gemms("s8s8s32", kDepths, " fill=bait") +
                                         Gemms("s8s8s32", kDepths, " za=3 fill=bait") +
                                         Gemms("s8s8u8", kDepths, " zb=-7 fill=bait");
  const std::vector<Mixture> mixtures = Mixtures(Sweep(lines, [](const reference::Gemm& gemm) {
    const bool has_zero_point = gemm.a_zero_point != 0 || !gemm.b_zero_points.empty();
    return has_zero_point ? Arithmetic() : Arithmetic{Model::kMaddubs};
  }));
  ASSERT_EQ(mixtures.size(), 1u);
  EXPECT_THAT(Phrases(mixtures[0]), ElementsAre("12 of 18 problems: exact, 12 could have shown saturation",
                                                "6: pairs of adjacent depths clamped to int16 (maddubs)"));
}

TEST(Mixtures, TellTheSizesAndWhatNothingReproduces) {
  const std::vector<std::string> lines =
      Gemms("u8s8s32", kDepths, "") + Gemms("u8s8s32", kDepths, " seed=2") +
      Gemms("u8s8s32", kDepths, " seed=3") + std::vector<std::string>{"gemm u8s8s32 m=7 n=5 k=40 fill=bait"};
  const SweepResult sweep = Sweep(lines, [](const reference::Gemm& gemm) {
    return Arithmetic{gemm.k < 257 ? Model::kMaddubs : kFourApart};
  });
  ASSERT_EQ(sweep.failures.size(), 1u);
  const std::string text = ToText(sweep);
  EXPECT_THAT(text, HasSubstr("gemm u8s8            12 of 19 problems: pairs of adjacent depths clamped to "
                              "int16 (maddubs)"));
  EXPECT_THAT(text, HasSubstr("6: pairs of depths 4 apart clamped to int16 (maddubs, depths 4 apart)\n"));
  EXPECT_THAT(text,
              HasSubstr("1: no model reproduces all that differs; 'gemm u8s8s32 m=7 n=5 k=40 fill=bait'\n"));
  const std::vector<Mixture> mixtures = Mixtures(sweep);
  ASSERT_EQ(mixtures.at(0).parts.size(), 2u);
  EXPECT_EQ(InWords(mixtures[0].parts[0].sizes), "m 8, n 16, k 16 to 100");
  EXPECT_EQ(InWords(mixtures[0].parts[1].sizes), "m 8, n 16, k 257 to 600");
  EXPECT_EQ(InWords(mixtures[0].unexplained.sizes), "m 7, n 5, k 40");
}

TEST(Mixtures, OneArithmeticIsEnoughWhereItReproducesAll) {
  const Model cut = {.sum = reference::Summation::kInt16, .cut = {257, 767}};
  const std::vector<Mixture> mixtures =
      Mixtures(Sweep(Gemms("u8s8s32", kDepths, "") + Gemms("u8s8s32", {257, 577, 769}, " fill=bait"),
                     [&](const reference::Gemm& /*gemm*/) { return Arithmetic{cut}; }));
  ASSERT_EQ(mixtures.size(), 1u);
  ASSERT_EQ(mixtures[0].parts.size(), 1u);
  EXPECT_EQ(mixtures[0].parts[0].arithmetic, Arithmetic{cut});
  EXPECT_EQ(mixtures[0].parts[0].problems, 9);
}

SweepComputed Computed(const std::string& problem, const std::vector<std::string>& reproduced_by) {
  return {problem, reproduced_by.empty() ? 0 : 1, true, reproduced_by, {}};
}

TEST(Mixtures, DoNotJoinTwoArithmeticsToAThird) {
  const std::string unsigned_weights = "maddubs, unsigned weights", fused = "maddubs; fused multiply-add";
  const std::string joined = "maddubs, unsigned weights; fused multiply-add of the residual";
  SweepResult sweep;
  const auto add = [&sweep](int problems, const std::vector<std::string>& reproduced_by) {
    for (int i = 0; i < problems; ++i) {
      sweep.computed.push_back(
          Computed(fmt::format("gemm s8s8u8 m=1 n=1 k={}", 2 + sweep.computed.size()), reproduced_by));
    }
  };
  add(5, {joined, unsigned_weights});
  add(1, {joined, fused});
  add(3, {fused});
  const Mixture mixture = Mixtures(sweep).at(0);
  ASSERT_EQ(mixture.parts.size(), 2u);
  EXPECT_EQ(ToString(mixture.parts[0].arithmetic), unsigned_weights);
  EXPECT_EQ(mixture.parts[0].problems, 5);
  EXPECT_EQ(ToString(mixture.parts[1].arithmetic), fused);
  EXPECT_EQ(mixture.parts[1].problems, 4);
}

TEST(Mixtures, LeaveOutAnArithmeticThatOthersMakeNeedless) {
  SweepResult sweep;
  const auto add = [&sweep](int k, const std::vector<std::string>& reproduced_by) {
    sweep.computed.push_back(Computed(fmt::format("gemm u8s8s32 m=1 n=1 k={}", k), reproduced_by));
  };
  for (const int k : {2, 3}) add(k, {"maddubs", "dpbusds"});  // dpbusds explains most, but is not needed
  add(4, {"maddubs"});
  add(5, {"maddubs"});
  for (const int k : {6, 7}) add(k, {"dpbusds", "halved weights"});
  add(8, {"dpbusds", "halved weights"});
  add(9, {"halved weights"});
  const Mixture mixture = Mixtures(sweep).at(0);
  ASSERT_EQ(mixture.parts.size(), 2u);
  EXPECT_EQ(ToString(mixture.parts[0].arithmetic), "maddubs");
  EXPECT_EQ(mixture.parts[0].problems, 4);
  EXPECT_EQ(ToString(mixture.parts[1].arithmetic), "halved weights");
}

TEST(Mixtures, LeaveOutAnArithmeticThatALessStrangeOneMakesNeedless) {
  const std::string apart = "maddubs, depths 2 apart; half up", half_up = "maddubs; half up";
  const std::vector<std::vector<std::string>> reproduced_by = {
      {apart, half_up},   {apart, half_up},     {apart, "dpbusds"}, {apart, "dpbusds"},
      {apart, "dpbusds"}, {half_up, "maddubs"}, {"dpbusds"},        {half_up, "maddubs"}};
  SweepResult sweep;
  for (const std::vector<std::string>& texts : reproduced_by) {
    sweep.computed.push_back(
        Computed(fmt::format("gemm u8s8u8 m=1 n=1 k={}", 2 + sweep.computed.size()), texts));
  }
  const Mixture mixture = Mixtures(sweep).at(0);
  ASSERT_EQ(mixture.parts.size(), 2u);
  for (const Mixture::Part& part : mixture.parts) EXPECT_EQ(part.problems, 4) << ToString(part.arithmetic);
}

TEST(Mixtures, TellTheSizesOfMistakes) {
  SweepResult sweep;
  for (int k = 2; k < 12; ++k) {
    const std::string line = "gemm u8s8s32 m=1 n=1 k=" + std::to_string(k);
    sweep.computed.push_back(Computed(line, {}));
    if (k > 4) sweep.computed.push_back({line + " za=5", 1, true, {}, {}});
  }
  EXPECT_THAT(Phrases(Mixtures(sweep)[0]),
              ElementsAre("10 of 17 problems: exact, 10 could have shown saturation",
                          "7: no model reproduces all that differs, m 1, n 1, k 5 to 11; e.g. 'gemm "
                          "u8s8s32 m=1 n=1 k=5 za=5'"));
}

TEST(Mixtures, DoubtAModelOfFewWhereMoreHaveNone) {
  SweepResult sweep;
  for (int k = 2; k < 12; ++k) {
    sweep.computed.push_back({"gemm u8s8s32 m=3 n=1 k=" + std::to_string(k), 1, true, {}, {}});
  }
  sweep.computed.push_back(Computed("gemm u8s8s32 m=1 n=1 k=2", {"maddubs"}));
  EXPECT_THAT(Phrases(Mixtures(sweep)[0]).at(0),
              HasSubstr("1 of 11 problems: perhaps pairs of adjacent depths"));
}

// A loop over columns whose tail rounds differently: each output has a cause, but no arithmetic explains the
// problem.
TEST(Mixtures, TellWhatNoOneArithmeticReproducesInParts) {
  class TailTarget : public GemmTarget {
   public:
    std::string Name() const override { return "tail"; }
    std::string Arithmetic() const override { return "any"; }
    Result<std::vector<uint8_t>> RunGemm(const reference::Gemm& gemm,
                                         const RunOptions& /*options*/) const override {
      std::vector<uint8_t> output = reference::Predict(gemm, {});
      if (gemm.c_type != INTACT_U8) return output;
      const std::vector<uint8_t> tail =
          reference::Predict(gemm, {reference::Model::kExact, reference::Rounding::kHalfAway});
      for (size_t i = 0; i < output.size(); ++i) {
        if (i % 20 >= 16) output[i] = tail[i];
      }
      return output;
    }
  };
  const std::vector<Problem> problems = {*Problem::Parse("gemm u8s8u8 m=16 n=20 k=8 zc=128 fill=ties"),
                                         *Problem::Parse("gemm u8s8u8 m=3 n=20 k=8 zc=128 fill=ties")};
  const SweepResult sweep = RunSweep(problems, TailTarget(), [](int64_t, int64_t) {});
  EXPECT_TRUE(sweep.failures.empty());
  EXPECT_EQ(sweep.cells.at(0).Unexplained(), 0);
  EXPECT_THAT(
      Phrases(Mixtures(sweep).at(0)),
      ElementsAre(testing::MatchesRegex(
          "2 of 2 problems: each output has an arithmetic, but none reproduces a whole problem, m 3 to "
          "16, n "
          "20, k 8; e.g. "
          "'gemm u8s8u8 m=16 n=20 k=8 zc=128 fill=ties': [0-9]+: exact; [0-9]+: half away from zero in "
          "columns from 16 on")));
}

// The accumulators that a target reports are no evidence against outputs that it computes by another kernel.
TEST(Mixtures, BelieveOutputsWhereAccumulatorsAreAnotherKernels) {
  const std::vector<std::string> lines = {"gemm u8s8u8 m=16 n=20 k=8 zc=128 fill=ties",
                                          "gemm u8s8s32 m=16 n=20 k=8 fill=bait"};
  const SweepResult sweep = Sweep(lines, [](const reference::Gemm& gemm) {
    if (gemm.c_type == INTACT_S32) return Arithmetic{Model::kMaddubs};
    return Arithmetic{Model::kExact, reference::Rounding::kHalfAway};
  });
  EXPECT_TRUE(sweep.failures.empty()) << sweep.failures[0].reason;
  const Mixture mixture = Mixtures(sweep).at(0);
  EXPECT_EQ(mixture.unexplained.problems, 0);
  EXPECT_EQ(mixture.parts.size(), 2u);
}

TEST(Mixtures, TellKindsApartAndWhatGaveNoOutputs) {
  SweepResult sweep;
  EXPECT_TRUE(Mixtures(sweep).empty());
  sweep.computed = {Computed("gemm u8s8s32 m=1 n=1 k=9", {}),
                    Computed("conv u8s8u8 in=4 c=4 o=4 kernel=2", {"maddubs; half up"}),
                    Computed("conv u8s8s32 in=4 c=4 o=4 kernel=2 groups=4", {}),
                    Computed("conv s8s8s32 in=4 c=4 o=4 kernel=2 groups=4 transposed=yes", {})};
  sweep.failures = {{"conv u8s8s32 in=4 c=4 o=4 kernel=3", "crashed", "crash", "", ""}};
  std::vector<std::string> reported;
  for (const Mixture& mixture : Mixtures(sweep))
    reported.push_back(mixture.operation + ": " + InWords(mixture));
  EXPECT_THAT(
      reported,
      ElementsAre(
          "gemm u8s8: 1 of 1 problem: exact, 1 could have shown saturation",
          "conv u8s8: 1 of 2 problems: pairs of adjacent depths clamped to int16 (maddubs); half up; 1: "
          "no outputs; 'conv u8s8s32 in=4 c=4 o=4 kernel=3': crashed",
          "depthwise u8s8: 1 of 1 problem: exact, 1 could have shown saturation",
          "deconvolution s8s8: 1 of 1 problem: exact, 1 could have shown saturation"));
}

}  // namespace
}  // namespace intact::verify
