// The verifier catches every planted fault, names it, and finds nothing in targets without a fault.
#include "tests/verify/mutants/mutants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "verify/sweep/sweep.h"

namespace intact::verify {
namespace {

Comparison VerifyOn(const Target& target, const Problem& problem) {
  const Result<Judgement> judgement = Judge(target, Oracle(problem), RunOptionsOf(problem));
  EXPECT_TRUE(judgement) << judgement.error().message;
  return judgement ? judgement->comparison : Comparison();
}

Problem Parsed(std::string_view line) {
  const Result<Problem> problem = Problem::Parse(line);
  EXPECT_TRUE(problem) << problem.error().message;
  return *problem;
}

class MutantTest : public ::testing::TestWithParam<size_t> {
 protected:
  const std::vector<Mutant> mutants_ = Mutants();
  const Mutant& mutant_ = mutants_[GetParam()];
};

TEST_P(MutantTest, IsCaughtAndClassified) {
  SCOPED_TRACE(mutant_.problem.ToString());
  const Comparison comparison = VerifyOn(*mutant_.target, mutant_.problem);
  ASSERT_FALSE(comparison.Parity());
  // Every output that differs from both models has this cause. An output that clamps correctly in spite of
  // the fault may count as int16 saturation.
  const int64_t caught = comparison.by_cause[static_cast<size_t>(mutant_.cause)];
  const bool is_saturation = mutant_.cause == Cause::kInt16Saturation;
  const int64_t saturated = comparison.by_cause[static_cast<size_t>(Cause::kInt16Saturation)];
  EXPECT_GT(caught, 0);
  EXPECT_EQ(caught + (is_saturation ? 0 : saturated), comparison.differing);
  EXPECT_TRUE(std::any_of(comparison.listed.begin(), comparison.listed.end(),
                          [&](const Difference& d) {
                            return d.cause == mutant_.cause &&
                                   d.detail.find(mutant_.detail) != std::string::npos;
                          }))
      << "no difference says: " << mutant_.detail << "; the first says: " << comparison.listed[0].detail;
}

TEST_P(MutantTest, ItsProblemIsAtParityWithoutTheFault) {
  const ReferenceTarget honest;
  const Comparison comparison = VerifyOn(honest, mutant_.problem);
  EXPECT_EQ(comparison.Unexplained(), 0);
  if (mutant_.problem.mode == INTACT_EXACT) {
    EXPECT_TRUE(comparison.Parity());
  } else {
    EXPECT_EQ(comparison.off_maddubs, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MutantTest, ::testing::Range<size_t>(0, Mutants().size()),
                         [](const auto& index) {
                           const std::vector<Mutant> mutants = Mutants();
                           const Mutant& mutant = mutants[index.param];
                           return (mutant.problem.conv ? "conv_" : "gemm_") + mutant.target->Name();
                         });

TEST(HonestTarget, SaturatesAsTheModelSaysWithItsPairs) {
  const ReferenceTarget honest;
  for (const char* line :
       {"gemm u8s8s32 m=6 n=16 k=64 fill=bait mode=saturating isa=avx2",
        "gemm s8s8u8 m=6 n=16 k=64 fill=bait zc=128 mode=saturating isa=avx512",
        "gemm u8u8s32 m=6 n=16 k=64 fill=bait zb=128 mode=saturating isa=avx2",
        "gemm s8u8s32 m=6 n=16 k=64 fill=bait zb=7 zbper=channel mode=saturating isa=avx2"}) {
    const Comparison comparison = VerifyOn(honest, Parsed(line));
    EXPECT_GT(comparison.differing, 0) << line;
    EXPECT_EQ(comparison.by_cause[static_cast<size_t>(Cause::kInt16Saturation)], comparison.differing);
    EXPECT_EQ(comparison.off_maddubs, 0);
    EXPECT_EQ(comparison.saturated_accumulators, 3 * 16);  // every second row
    for (const Difference& difference : comparison.listed) {
      EXPECT_EQ(difference.m % 2, 0);
      ASSERT_FALSE(difference.pairs.empty());
      for (const SaturatedPair& pair : difference.pairs) EXPECT_NE(pair.true_sum, pair.clamped_sum);
    }
  }
}

TEST(HonestTarget, IsAtParityOnVnniInBothModes) {
  const ReferenceTarget honest;
  EXPECT_TRUE(VerifyOn(honest, Parsed("gemm u8s8s32 m=6 n=16 k=64 fill=bait mode=saturating isa=avx512_vnni"))
                  .Parity());
  EXPECT_TRUE(VerifyOn(honest, Parsed("gemm u8s8s32 m=6 n=16 k=64 fill=bait isa=avx2")).Parity());
}

}  // namespace
}  // namespace intact::verify
