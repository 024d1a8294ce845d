#include "verify/explain/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "reference/models/models.h"
#include "verify/report/report_terminal.h"
#include "verify/studies/layer.h"

namespace intact::verify {
namespace {

/// One output with depth 2.
reference::Gemm OnePair(intact_type a_type, int a0, int a1, int w0, int w1) {
  reference::Gemm gemm;
  gemm.m = gemm.n = 1;
  gemm.k = 2;
  gemm.a_type = a_type;
  gemm.a = {static_cast<uint8_t>(a0), static_cast<uint8_t>(a1)};
  gemm.b = {static_cast<int8_t>(w0), static_cast<int8_t>(w1)};
  return gemm;
}

Verdict VerdictOf(const reference::Gemm& gemm, bool reduce_range) {
  return AuditReduceRange(gemm, reduce_range).verdict();
}

TEST(Audit, VerdictsOfAnUnreducedLayer) {
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 255, 255, 64, 64), false), Verdict::kProven);  // 32640
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 3, 3, 65, 64), false), Verdict::kHoldsOnData);
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 255, 255, 65, 64), false), Verdict::kViolated);   // 32895
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 255, 255, 127, -128), false), Verdict::kProven);  // opposite signs
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 255, 255, -64, -64), false), Verdict::kProven);
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 255, 255, -65, -64), false), Verdict::kViolated);
}

TEST(Audit, AdvisesNoReduceRangeForASafeLayer) {
  const std::string safe = ToText(AuditReduceRange(OnePair(INTACT_U8, 255, 255, 64, 64), false));
  EXPECT_THAT(safe, testing::HasSubstr("not needed on any CPU"));
  EXPECT_THAT(safe, testing::Not(testing::HasSubstr("set reduce_range to")));
  const std::string violated = ToText(AuditReduceRange(OnePair(INTACT_U8, 255, 255, 65, 64), false));
  EXPECT_THAT(violated, testing::HasSubstr("set reduce_range to"));
}

TEST(Audit, VerdictsOfAReducedLayer) {
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 127, 127, 127, 127), true), Verdict::kProven);
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 128, 127, 127, 127), true), Verdict::kHoldsOnData);  // beyond 7 bits
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 150, 150, 127, 127), true), Verdict::kViolated);
  EXPECT_EQ(VerdictOf(OnePair(INTACT_U8, 200, 0, 20, 20), true), Verdict::kProven);  // safe for any range
}

// [−64, 63] becomes [64, 191]: seven bits do not help.
TEST(Audit, SevenBitsDoNotHelpShiftedInputs) {
  const Audit violated = AuditReduceRange(OnePair(INTACT_S8, 63, 63, 127, 127), true);
  EXPECT_EQ(violated.verdict(), Verdict::kViolated);
  EXPECT_EQ(violated.max_activation, 63);
  EXPECT_EQ(VerdictOf(OnePair(INTACT_S8, -64, -64, 127, 127), true), Verdict::kHoldsOnData);
  EXPECT_EQ(VerdictOf(OnePair(INTACT_S8, 63, 63, 85, 86), true), Verdict::kProven);  // 191·171 = 32661
}

TEST(Audit, WitnessesDoClamp) {
  const Audit audit = AuditReduceRange(OnePair(INTACT_U8, 1, 1, -100, -90), false);
  ASSERT_TRUE(audit.stated.witness);
  const Witness& w = *audit.stated.witness;
  EXPECT_EQ(w.sum, reference::PairSum(w.a0, w.a1, w.w0, w.w1));
  EXPECT_NE(w.sum, reference::Maddubs(w.a0, w.a1, w.w0, w.w1));
}

TEST(Audit, LargestSafeActivationIsTheLargest) {
  for (const auto& [w0, w1] :
       {std::pair{127, 127}, {-128, -128}, {100, 60}, {-70, -80}, {64, 64}, {0, 0}, {127, -128}}) {
    const auto safe = static_cast<uint8_t>(
        AuditReduceRange(OnePair(INTACT_U8, 0, 0, w0, w1), false).largest_safe_activation);
    const auto clamps = [v0 = static_cast<int8_t>(w0), v1 = static_cast<int8_t>(w1)](uint8_t a) {
      bool any = false;
      for (const auto& [a0, a1] : {std::pair{a, a}, {a, uint8_t{0}}, {uint8_t{0}, a}}) {
        any |= reference::Maddubs(a0, a1, v0, v1) != reference::PairSum(a0, a1, v0, v1);
      }
      return any;
    };
    EXPECT_FALSE(clamps(safe)) << w0 << " " << w1;
    if (safe < 255) {
      EXPECT_TRUE(clamps(static_cast<uint8_t>(safe + 1))) << w0 << " " << w1;
    }
  }
}

TEST(Audit, DroppingABitCostsNothingWhereItIsEmpty) {
  const Audit even = AuditReduceRange(OnePair(INTACT_U8, 200, 100, 20, -64), false);
  EXPECT_FALSE(even.sqnr_7bit_activations_db);
  EXPECT_FALSE(even.sqnr_7bit_weights_db);
  // 201·20 + 50·2 = 4120. With 200 the error is 20: 10·lg(4120²/20²) = 46.3 dB.
  const Audit odd = AuditReduceRange(OnePair(INTACT_U8, 201, 50, 20, 2), false);
  ASSERT_TRUE(odd.sqnr_7bit_activations_db);
  EXPECT_NEAR(*odd.sqnr_7bit_activations_db, 46.3, 0.1);
}

struct Golden {
  const char* layer;
  Verdict verdict;
  int max_activation;
};
void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.layer; }

class GoldenAudit : public testing::TestWithParam<Golden> {};

TEST_P(GoldenAudit, Verdict) {
  const Result<Layer> layer = ReadLayer(std::string(INTACT_TEST_DATA "/torch-layers/") + GetParam().layer);
  ASSERT_TRUE(layer);
  const Audit audit = AuditReduceRange(layer->gemm(), layer->reduce_range);
  EXPECT_EQ(ToString(audit.verdict()), ToString(GetParam().verdict));
  EXPECT_EQ(audit.max_activation, GetParam().max_activation);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenAudit,
                         testing::Values(Golden{"u8_9", Verdict::kViolated, 185},
                                         Golden{"u8_11", Verdict::kViolated, 232},
                                         Golden{"u7_9", Verdict::kProven, 92},
                                         Golden{"u7_11", Verdict::kProven, 116},
                                         Golden{"u8_ramp_64x10", Verdict::kViolated, 255},
                                         Golden{"u7_ramp_64x10", Verdict::kHoldsOnData, 135}),
                         [](const auto& golden) { return golden.param.layer; });

}  // namespace
}  // namespace intact::verify
