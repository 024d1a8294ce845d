// Random problems: valid, of all kinds, at the edges of blocks; and a sweep of them.
#include "verify/sweep/random_sweep.h"
#include "core/isas.h"
#include "core/types.h"
#include "tests/support/gemm_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/explain/audit.h"
#include "verify/report/report_json.h"
#include "verify/report/report_terminal.h"
#include "verify/targets/blocks.h"
#include "verify/targets/features.h"
#include "verify/targets/fit.h"

namespace intact::verify {
namespace {

using ::testing::HasSubstr;

std::vector<Problem> Drawn(intact_isa isa, uint64_t count) {
  const std::array isas = {isa};
  std::vector<Problem> problems;
  for (uint64_t i = 0; i < count; ++i) problems.push_back(RandomSweepProblem({}, isas, i));
  return problems;
}

TEST(DrawProblem, MakesWhatItsLineSays) {
  for (const intact_isa isa : core::kIsaLadder) {
    std::set<std::string> lines;
    for (const Problem& problem : Drawn(isa, 500)) {
      const std::optional<Error> error = problem.Check();
      ASSERT_FALSE(error) << problem.ToString() << ": " << error->message;
      const Result<Problem> again = Problem::Parse(problem.ToString());
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(*again, problem) << problem.ToString();
      EXPECT_EQ(problem.isa, isa);
      lines.insert(problem.ToString());
    }
    EXPECT_EQ(lines.size(), 500u);
  }
}

template <class T>
void Note(std::set<std::string>* met, const char* field, T value) {
  met->insert(std::string(field) + std::to_string(static_cast<int64_t>(value)));
}

TEST(DrawProblem, MeetsEveryValueOfEveryField) {
  std::set<std::string> met;
  for (const Problem& p : Drawn(INTACT_ISA_AVX2, 4000)) {
    met.insert(std::string(ToString(p.a_type)) + std::string(ToString(p.b_type)) +
               std::string(ToString(p.c_type)) + (p.conv ? " conv" : " gemm"));
    Note(&met, "fill ", p.fill);
    Note(&met, "zero points ", p.zb_kind);
    Note(&met, "bias ", p.bias);
    Note(&met, "scale ", p.scale);
    Note(&met, "activation ", p.activation);
    Note(&met, "fixed ", p.fixed);
    Note(&met, "table ", p.has_table);
    Note(&met, "residual ", p.residual);
    Note(&met, "quantization ", p.quantization);
    if (p.IsDynamic()) Note(&met, "numbers ", p.numbers);
    if (p.IsDynamic()) Note(&met, "source ", p.source);
    Note(&met, "rows' zero points ", p.row_zero_points);
    Note(&met, "pointers ", p.item_pointers);
    Note(&met, "runtime B ", p.runtime_b);
    Note(&met, "A by columns ", p.a_by_columns);
    Note(&met, "by columns ", p.b_by_columns);
    Note(&met, "check ", p.range_check);
    Note(&met, "overflow ", p.overflow);
    Note(&met, "nothing ", (p.conv ? p.conv->batch : p.m * p.batch) == 0);
    Note(&met, "in place ", p.in_place);
    Note(&met, "open ", p.open_extents);
    Note(&met, "scratch ", p.own_scratch);
    Note(&met, "saved ", p.saved);
    Note(&met, "threads ", p.threads);
    Note(&met, "range ", p.range_max < 255);
    Note(&met, "range from ", p.range_min > 0);
    Note(&met, "all weights ", p.wmax == 128);
    for (const int64_t pad : {p.a_pad, p.b_pad, p.c_pad, p.res_pad, p.item_pad}) Note(&met, "pad ", pad > 0);
    if (!p.conv) continue;
    Note(&met, "dims ", p.conv->dims);
    Note(&met, "transposed ", p.conv->IsTransposed());
    Note(&met, "depthwise ", p.conv->groups == p.conv->input_channels);
    Note(&met, "output pad ", p.conv->axes.back().output_pad > 0);
    Note(&met, "asymmetric ", p.conv->axes.back().pad_begin != p.conv->axes.back().pad_end);
  }
  const size_t types = 2 * 4 * core::kOutputTypes.size();
  EXPECT_EQ(met.size(), types + AllFills().size() + 4 + 3 + 7 + 3 + 4 + 5 + AllNumbers().size() +
                            core::kSourceTypes.size() + 5 + 16 * 2 + 4 + 2 + 16 + 4 * 2)
      << ::testing::PrintToString(met);
}

TEST(DrawProblem, IsMostlyAtTheEdgesOfBlocks) {
  int at_edge = 0;
  int gemms = 0;
  const std::array<Block, 1> block = {Block{8, 48}};
  for (uint64_t i = 0; i < 1000; ++i) {
    support::Random random(1, 0, i);
    const Problem p = DrawProblem(block, INTACT_EXACT, &random);
    if (p.conv) continue;
    ++gemms;
    at_edge += p.m % 8 <= 1 || p.m % 8 == 7 ? 1 : 0;
  }
  EXPECT_GT(gemms, 500);
  EXPECT_GT(at_edge, gemms * 3 / 5);
}

TEST(RandomSweepProblem, FollowsFromSeedStreamAndNumber) {
  const std::array isas = {INTACT_ISA_AVX2, INTACT_ISA_AVX512};
  const auto at = [&](uint64_t seed, uint64_t stream, uint64_t number) {
    return RandomSweepProblem({seed, stream}, isas, number).ToString();
  };
  EXPECT_EQ(at(5, 1, 9), at(5, 1, 9));
  EXPECT_NE(at(5, 1, 9), at(6, 1, 9));
  EXPECT_NE(at(5, 1, 9), at(5, 2, 9));
  EXPECT_THAT(at(5, 1, 8), HasSubstr("isa=avx2"));
  EXPECT_THAT(at(5, 1, 9), HasSubstr("isa=avx512"));
}

TEST(RunRandomSweep, FindsNothing) {
  constexpr int64_t kProblems = 150;
  const std::array isas = {INTACT_ISA_PORTABLE};
  const RandomSweepResult result =
      RunRandomSweep({}, isas, [](const RandomSweepResult& now) { return now.problems < kProblems; });
  EXPECT_TRUE(result.sweep.Passed()) << ToText(result.sweep);
  ASSERT_EQ(result.sweep.cells.size(), 1u);
  EXPECT_EQ(result.sweep.cells[0].problems, kProblems);
  const Json json = ToJson(result);
  EXPECT_EQ(json["problems"], kProblems);
  EXPECT_THAT(ToText(result), HasSubstr("random problems: 150\n"));
}

// The reference's s32 outputs, with one wrong output if `IsWrong()`.
class Sums : public GemmTarget {
 public:
  std::string Name() const override { return "sums"; }
  FeatureMasks Features() const override {
    return {INTACT_TARGET_BIT(INTACT_TARGET_GEMM) | INTACT_TARGET_BIT(INTACT_TARGET_A_U8) |
                INTACT_TARGET_BIT(INTACT_TARGET_B_S8) | INTACT_TARGET_BIT(INTACT_TARGET_C_S32),
            0};
  }
  Result<std::vector<uint8_t>> RunGemm(const reference::Gemm& gemm,
                                       const RunOptions& /*options*/) const override {
    std::vector<uint8_t> output = reference::Predict(gemm, {});
    if (IsWrong(gemm)) output[0] ^= 1;
    return output;
  }

 private:
  virtual bool IsWrong(const reference::Gemm& /*gemm*/) const { return true; }
};

// Wrong for one row after a problem with more rows.
class Resentful final : public Sums {
 public:
  std::unique_ptr<Target> Fresh() const override { return std::make_unique<Resentful>(); }

 private:
  bool IsWrong(const reference::Gemm& gemm) const override {
    return std::exchange(rows_, gemm.m) > 1 && gemm.m == 1;
  }
  mutable int64_t rows_ = 1;
};

TEST(RunRandomSweep, ReportsOnWhatEarlierCallAFailureDepends) {
  const Resentful target;
  const RandomSweepResult result = RunRandomSweep(
      {}, target, TakesOf(target), [](const RandomSweepResult& now) { return now.sweep.failures.empty(); });
  ASSERT_EQ(result.sweep.failures.size(), 1u);
  EXPECT_THAT(result.sweep.failures[0].minimised_reason, HasSubstr("wrong after 'gemm u8s8s32 m="));
}

// Wrong in every n-th run, also in a new process.
class Flickering final : public Sums {
 public:
  explicit Flickering(int period) : runs_(std::make_shared<int>(0)), period_(period) {}
  std::unique_ptr<Target> Fresh() const override { return std::make_unique<Flickering>(*this); }

 private:
  bool IsWrong(const reference::Gemm& /*gemm*/) const override { return ++*runs_ % period_ == 0; }
  std::shared_ptr<int> runs_;
  int period_;
};

TEST(RunRandomSweep, BlamesNoEarlierCallForWhatComesAndGoes) {
  for (const int period : {2, 3, 5, 7, 11, 13, 17, 29}) {
    const Flickering target(period);
    const RandomSweepResult result = RunRandomSweep(
        {}, target, TakesOf(target), [](const RandomSweepResult& now) { return now.sweep.failures.empty(); });
    ASSERT_EQ(result.sweep.failures.size(), 1u);
    EXPECT_THAT(result.sweep.failures[0].minimised_reason, HasSubstr("changes from run to run")) << period;
    EXPECT_THAT(result.sweep.failures[0].minimised_reason, testing::Not(HasSubstr("wrong after"))) << period;
  }
}

TEST(RunRandomSweep, CountsFailuresThatItDoesNotKeep) {
  constexpr int64_t kFailures = static_cast<int64_t>(kMaxRandomFailures) + 7;
  const Sums target;
  const RandomSweepResult result =
      RunRandomSweep({}, target, TakesOf(target),
                     [](const RandomSweepResult& now) { return now.sweep.Failed() < kFailures; });
  EXPECT_GE(result.sweep.failures.size(), kMaxRandomFailures);
  EXPECT_EQ(std::ranges::count(std::span(result.sweep.failures).subspan(kMaxRandomFailures), "",
                               &SweepFailure::minimised),
            0);
  EXPECT_EQ(result.sweep.Failed(), kFailures);
  EXPECT_THAT(ToText(result), HasSubstr(std::to_string(kFailures)));
}

TEST(Blocks, AreOfEachIsa) {
  for (const intact_isa isa : core::kIsaLadder) EXPECT_FALSE(BlocksOf(isa).empty()) << intact_isa_name(isa);
  EXPECT_GT(BlocksOf(INTACT_ISA_ANY).size(), BlocksOf(INTACT_ISA_AVX2).size());
}

}  // namespace
}  // namespace intact::verify
