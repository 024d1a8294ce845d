// Certificates compared with brute force over small matrices, and with known figures of real layers.
#include "kernels/weights/certificate.h"

#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <intact/intact.hpp>
#include <string>
#include <vector>

#include "reference/models/models.h"
#include "support/npy.h"
#include "tests/support/expect_model.h"
#include "verify/problem/fill.h"

namespace intact::kernels {
namespace {

using verify::Problem;

constexpr ActivationRange kU8{0, 255}, kU7{0, 127}, kRelu6{0, 200}, kShiftedS7{64, 191}, kNarrow{100, 130};
constexpr ActivationRange kRanges[] = {kU8, kU7, kRelu6, kShiftedS7, kNarrow};

// Odd depths too, and heavy weights in every fill: −128 if the fill makes extremes.
std::vector<PackedWeights> SmallMatrices() {
  std::vector<PackedWeights> matrices;
  for (const char* line : {
           "gemm u8s8s32 m=1 n=5 k=9 wmax=128",
           "gemm u8s8s32 m=1 n=17 k=6 wmax=128 fill=extremes",
           "gemm u8s8s32 m=1 n=3 k=1 wmax=128 fill=extremes seed=3",
           "gemm u8s8s32 m=1 n=18 k=33 fill=student",
           "gemm u8s8s32 m=1 n=2 k=65 fill=bound",
           "gemm u8s8s32 m=1 n=4 k=40 fill=bait",
           "gemm u8s8s32 m=1 n=4 k=77 wmax=3",
       }) {
    const Problem problem = tests::Parsed(line);
    const std::vector<int8_t> b = verify::FillWeights(problem);
    EXPECT_TRUE(PackWeights({b.data(), problem.k, problem.n, problem.n, 1}, &matrices.emplace_back()));
  }
  return matrices;
}

int WeightOrZero(const PackedWeights& weights, int64_t k, int64_t n) {
  return k < weights.k ? weights.At(k, n) : 0;
}

struct Extremes {
  int64_t low = 0, high = 0;
};

// Smallest and largest sum of the pair at depth k over every pair of activations.
Extremes PairExtremes(const PackedWeights& weights, int64_t k, int64_t n, ActivationRange range) {
  const auto w0 = static_cast<int8_t>(WeightOrZero(weights, k, n));
  const auto w1 = static_cast<int8_t>(WeightOrZero(weights, k + 1, n));
  Extremes extremes{1 << 20, -(1 << 20)};
  for (int a0 = range.low; a0 <= range.high; ++a0) {
    for (int a1 = range.low; a1 <= range.high; ++a1) {
      const int64_t sum = reference::PairSum(static_cast<uint8_t>(a0), static_cast<uint8_t>(a1), w0, w1);
      extremes = {std::min(extremes.low, sum), std::max(extremes.high, sum)};
    }
  }
  return extremes;
}

bool Fails(const Extremes& sum) { return sum.low < -32768 || sum.high > 32767; }

// Whether any `depth` adjacent quads of column n can be added in int16, even if some are left out.
bool IsSafe(const PackedWeights& weights, int64_t n, ActivationRange range, int64_t depth) {
  for (int64_t lane = 0; lane < kQuad; lane += 2) {
    for (int64_t begin = 0; begin + depth <= weights.quads(); ++begin) {
      Extremes run;
      for (int64_t quad = begin; quad < begin + depth; ++quad) {
        const Extremes pair = PairExtremes(weights, quad * kQuad + lane, n, range);
        run.low += std::min<int64_t>(pair.low, 0);
        run.high += std::max<int64_t>(pair.high, 0);
      }
      if (Fails(run)) return false;
    }
  }
  return true;
}

TEST(Certificate, CountsTheFailingPairsThatBruteForceFinds) {
  for (const PackedWeights& weights : SmallMatrices()) {
    for (const ActivationRange range : kRanges) {
      const Certificate certificate = Certify(weights, range);
      std::vector<int64_t> by_column(static_cast<size_t>(weights.n));
      std::vector<int64_t> by_panel(static_cast<size_t>(weights.panels()));
      int64_t failing = 0;
      for (int64_t n = 0; n < weights.n; ++n) {
        for (int64_t k = 0; k < weights.k; k += 2) {
          if (!Fails(PairExtremes(weights, k, n, range))) continue;
          ++by_column[static_cast<size_t>(n)];
          ++by_panel[static_cast<size_t>(n / kPanelColumns)];
          ++failing;
        }
      }
      SCOPED_TRACE(testing::Message()
                   << weights.k << "x" << weights.n << " in [" << range.low << ", " << range.high << "]");
      EXPECT_EQ(certificate.range, range);
      EXPECT_EQ(certificate.pairs, (weights.k + 1) / 2 * weights.n);
      EXPECT_EQ(certificate.failing_pairs, failing);
      EXPECT_EQ(certificate.IsProven(), failing == 0);
      const auto worst = std::max_element(by_column.begin(), by_column.end());
      EXPECT_EQ(certificate.worst_column, worst - by_column.begin());
      EXPECT_EQ(certificate.worst_column_failing_pairs, *worst);
      EXPECT_EQ(certificate.panel_failing_pairs, by_panel);
    }
  }
}

// Over every pair of activations: the bounds are the extremes of the contract and of saturating pairs.
TEST(BoundColumn, HoldsWhatBruteForceFinds) {
  for (const int w0 : {-128, -100, -1, 0, 60, 127}) {
    for (const int w1 : {-128, 0, 70, 127}) {
      const std::array<int8_t, 2> b = {static_cast<int8_t>(w0), static_cast<int8_t>(w1)};
      PackedWeights weights;
      ASSERT_TRUE(PackWeights({b.data(), 2, 1, 1, 1}, &weights));
      for (const int zero_point : {-128, -7, 0, 9, 127}) {
        for (const ActivationRange range : kRanges) {
          SCOPED_TRACE(testing::Message() << w0 << " " << w1 << " less " << zero_point << ", activations in ["
                                          << range.low << ", " << range.high << "]");
          Extremes exact{1 << 20, -(1 << 20)};
          Extremes clamped = exact;
          for (int a0 = range.low; a0 <= range.high; ++a0) {
            for (int a1 = range.low; a1 <= range.high; ++a1) {
              const int64_t zeros = -int64_t{zero_point} * (a0 + a1);
              const int64_t sum = a0 * w0 + a1 * w1 + zeros;
              const int64_t saturated = std::clamp(a0 * w0 + a1 * w1, -32768, 32767) + zeros;
              exact = {std::min(exact.low, sum), std::max(exact.high, sum)};
              clamped = {std::min(clamped.low, saturated), std::max(clamped.high, saturated)};
            }
          }
          const ColumnBound bound = SumPanel(weights, 0, {zero_point})[0].Bound(range);
          ASSERT_EQ(bound.sum, w0 + w1 - 2 * zero_point);
          ASSERT_EQ(bound.lowest, exact.low);
          ASSERT_EQ(bound.highest, exact.high);
          const ColumnBound safe = BoundSaturatingColumn(weights, 0, zero_point, range);
          ASSERT_LE(safe.lowest, clamped.low);
          ASSERT_GE(safe.highest, clamped.high);
          if (zero_point != 0) continue;
          ASSERT_EQ(safe.lowest, clamped.low);
          ASSERT_EQ(safe.highest, clamped.high);
        }
      }
    }
  }
}

TEST(BoundColumn, AnOddDepthsPaddingHasNoZeroPoint) {
  const int8_t b = 5;
  PackedWeights weights;
  ASSERT_TRUE(PackWeights({&b, 1, 1, 1, 1}, &weights));
  for (const ColumnBound& bound :
       {SumPanel(weights, 0, {-3})[0].Bound(kU8), BoundSaturatingColumn(weights, 0, -3, kU8)}) {
    EXPECT_EQ(bound.sum, 8);
    EXPECT_EQ(bound.lowest, 0);
    EXPECT_EQ(bound.highest, 8 * 255);
  }
}

// Sums are added in int16 for some depth, then in int64. Tests the largest differences around that depth.
TEST(BoundColumn, AddsUpTheExtremesOfDeepColumns) {
  constexpr int64_t kColumns = 18;
  for (const int64_t k : {252, 253, 256, 257, 260, 1100}) {
    std::vector<int8_t> b;
    for (int64_t i = 0; i < k * kColumns; ++i) b.push_back(i % kColumns % 3 == 0 ? -128 : 127);
    PackedWeights weights;
    ASSERT_TRUE(PackWeights({b.data(), k, kColumns, kColumns, 1}, &weights));
    std::array<int32_t, kPanelColumns> zero_points;
    for (size_t i = 0; i < zero_points.size(); ++i) zero_points[i] = i % 2 == 0 ? 127 : -128;
    for (const int64_t panel : {0, 1}) {
      const auto parts = SumPanel(weights, panel, zero_points);
      for (int64_t i = 0; i < std::min<int64_t>(kPanelColumns, kColumns - panel * kPanelColumns); ++i) {
        const auto column = static_cast<size_t>(i);
        const int64_t sum = k * (weights.At(0, panel * kPanelColumns + i) - zero_points[column]);
        EXPECT_EQ(parts[column].positive, std::max<int64_t>(sum, 0)) << k << " " << column;
        EXPECT_EQ(parts[column].negative, std::min<int64_t>(sum, 0)) << k << " " << column;
      }
    }
  }
}

TEST(Certificate, WitnessesClamp) {
  int64_t witnesses = 0;
  for (const PackedWeights& weights : SmallMatrices()) {
    for (const ActivationRange range : kRanges) {
      const std::vector<FailingPair> pairs = ListFailingPairs(weights, range, 0, 1000);
      EXPECT_EQ(std::ssize(pairs), Certify(weights, range).failing_pairs);
      for (const FailingPair& pair : pairs) {
        EXPECT_EQ(pair.k % 2, 0);
        EXPECT_EQ(pair.w0, WeightOrZero(weights, pair.k, pair.n));
        EXPECT_EQ(pair.w1, WeightOrZero(weights, pair.k + 1, pair.n));
        EXPECT_TRUE(pair.a0 >= range.low && pair.a0 <= range.high);
        EXPECT_TRUE(pair.a1 >= range.low && pair.a1 <= range.high);
        EXPECT_EQ(pair.sum, reference::PairSum(pair.a0, pair.a1, pair.w0, pair.w1));
        EXPECT_NE(pair.sum, reference::Maddubs(pair.a0, pair.a1, pair.w0, pair.w1));
        ++witnesses;
      }
    }
  }
  EXPECT_GT(witnesses, 100);
}

TEST(Certificate, ListsInOrderAndInParts) {
  const PackedWeights weights = std::move(SmallMatrices()[1]);
  const std::vector<FailingPair> all = ListFailingPairs(weights, kU8, 0, 1000);
  ASSERT_GT(all.size(), 4u);
  const auto before = [](const FailingPair& a, const FailingPair& b) {
    return a.n != b.n ? a.n < b.n : a.k < b.k;
  };
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), before));
  const std::vector<FailingPair> some = ListFailingPairs(weights, kU8, 2, 2);
  ASSERT_EQ(some.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(some[i].n, all[i + 2].n);
    EXPECT_EQ(some[i].k, all[i + 2].k);
  }
  EXPECT_TRUE(ListFailingPairs(weights, kU8, 0, 0).empty());
  EXPECT_TRUE(ListFailingPairs(weights, kU8, std::ssize(all), 9).empty());
}

TEST(Certificate, SafeDepthIsSafeAndTheLargest) {
  std::vector<int64_t> depths;
  for (const PackedWeights& weights : SmallMatrices()) {
    for (const ActivationRange range : {kU8, kU7, kShiftedS7, kNarrow}) {
      for (int64_t panel = 0; panel < weights.panels(); ++panel) {
        const int64_t depth = SafeDepthQuads(weights, panel, range);
        const int64_t end = std::min(weights.n, (panel + 1) * kPanelColumns);
        bool one_more = true;
        for (int64_t n = panel * kPanelColumns; n < end; ++n) {
          EXPECT_TRUE(depth == 0 || IsSafe(weights, n, range, depth)) << depth;
          one_more = one_more && IsSafe(weights, n, range, depth + 1);
        }
        EXPECT_LE(depth, weights.quads());
        EXPECT_TRUE(depth == weights.quads() || !one_more) << depth;
        depths.push_back(depth);
      }
    }
  }
  // The answers must vary.
  EXPECT_EQ(*std::min_element(depths.begin(), depths.end()), 0);
  EXPECT_GT(*std::max_element(depths.begin(), depths.end()), 4);
}

TEST(Certificate, SevenBitActivationsProveAllWeightsButNotIfShifted) {
  const PackedWeights weights = std::move(SmallMatrices()[1]);
  EXPECT_TRUE(Certify(weights, kU7).IsProven());
  EXPECT_FALSE(Certify(weights, kShiftedS7).IsProven());
}

// ----- through the API -------------------------------------------------------------------------------------

struct Declared {
  intact_type type;
  int32_t a_min, a_max, zero_point;
  intact_type b_type = INTACT_S8;
  int32_t b_zero_point = 0;
};

// A row of activations for each column reaches its largest accumulator, another its smallest. The
// certificate's bounds are the extremes over all columns.
void ExpectBoundsAreReached(const Declared& declared, int64_t k, int64_t n, bool has_bias) {
  Problem problem = tests::Parsed("gemm u8s8s32 m=1 n=1 k=1 wmax=128");
  problem.k = k;
  problem.n = n;
  const std::vector<int8_t> b = verify::FillWeights(problem);
  const std::vector<int32_t> bias(static_cast<size_t>(n), 12345);
  GemmDesc desc = MakeGemmDesc();
  desc.n = n;
  desc.k = k;
  desc.linear.a_type = declared.type;
  desc.linear.a_min = declared.a_min;
  desc.linear.a_max = declared.a_max;
  desc.linear.a_zero_point = declared.zero_point;
  desc.linear.bias_s32 = has_bias ? bias.data() : nullptr;
  desc.linear.b_type = declared.b_type;
  desc.linear.b_zero_points = &declared.b_zero_point;
  desc.linear.b_zero_point_count = 1;
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  ASSERT_EQ(intact_gemm_certificate(gemm->handle(), &certificate), INTACT_OK);

  std::vector<uint8_t> a;
  for (int64_t row = 0; row < 2 * n; ++row) {
    for (int64_t depth = 0; depth < k; ++depth) {
      const int8_t byte = b[static_cast<size_t>(depth * n + row / 2)];
      const int value = declared.b_type == INTACT_U8 ? static_cast<uint8_t>(byte) : byte;
      const int w = value - declared.b_zero_point;
      a.push_back(
          static_cast<uint8_t>((row % 2 == 0 ? w > 0 : w < 0) ? certificate.a_max : certificate.a_min));
    }
  }
  std::vector<int32_t> c(static_cast<size_t>(2 * n * n));
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 2 * n;
  args.a = a.data();
  args.c = c.data();
  ASSERT_EQ(intact_gemm_run(gemm->handle(), &args), INTACT_OK);
  EXPECT_EQ(*std::max_element(c.begin(), c.end()), certificate.accumulator_max);
  EXPECT_EQ(*std::min_element(c.begin(), c.end()), certificate.accumulator_min);
}

TEST(CertificateApi, AccumulatorBoundsAreReached) {
  for (const Declared& declared : {
           Declared{INTACT_U8, 0, 0, 0},
           Declared{INTACT_U8, 0, 0, 77},
           Declared{INTACT_U8, 0, 127, 127},
           Declared{INTACT_U8, 10, 200, 33},
           Declared{INTACT_S8, 0, 0, -5},
           Declared{INTACT_S8, -64, 63, 0},
           Declared{INTACT_S8, 5, 100, 9},
           Declared{INTACT_U8, 0, 0, 77, INTACT_U8, 0},
           Declared{INTACT_S8, 5, 100, 9, INTACT_U8, 128},
           Declared{INTACT_S8, 0, 0, -5, INTACT_U8, 200},
           Declared{INTACT_U8, 10, 200, 33, INTACT_S8, -77},
       }) {
    SCOPED_TRACE(testing::Message() << declared.a_min << " to " << declared.a_max);
    ExpectBoundsAreReached(declared, 33, 19, true);
    ExpectBoundsAreReached(declared, 64, 5, false);
  }
}

// The instruction sees 255 and 254 as u8 as 127 and 126, for any zero point.
TEST(CertificateApi, ReportsU8WeightsAsTheInstructionSeesThem) {
  const std::vector<uint8_t> b = {255, 254};
  const int32_t zero_point = 255;
  GemmDesc desc = MakeGemmDesc();
  desc.n = 1;
  desc.k = 2;
  desc.linear.b_type = INTACT_U8;
  desc.linear.b_zero_points = &zero_point;
  desc.linear.b_zero_point_count = 1;
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  EXPECT_EQ(gemm->Info().b_type, INTACT_U8);
  const Result<intact_certificate> certificate = gemm->Certificate();
  ASSERT_TRUE(certificate) << certificate.error().message;
  EXPECT_EQ(certificate->failing_pairs, 1);
  intact_failing_pair pair;
  int64_t written = 0;
  ASSERT_EQ(intact_gemm_failing_pairs(gemm->handle(), 0, 1, &pair, &written), INTACT_OK);
  EXPECT_EQ(pair.w0, 127);
  EXPECT_EQ(pair.w1, 126);
  EXPECT_EQ(pair.sum, 255 * (127 + 126));
}

TEST(CertificateApi, ReportsWhatTheInstructionSees) {
  // s8 in [−64, 63] is shifted to [64, 191]: the pair (127, 127) reaches 2·191·127.
  const std::vector<int8_t> b(2, 127);
  GemmDesc desc = MakeGemmDesc();
  desc.n = 1;
  desc.k = 2;
  desc.linear.a_type = INTACT_S8;
  desc.linear.a_min = -64;
  desc.linear.a_max = 63;
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  ASSERT_EQ(intact_gemm_certificate(gemm->handle(), &certificate), INTACT_OK);
  EXPECT_EQ(certificate.a_min, -64);
  EXPECT_EQ(certificate.a_max, 63);
  EXPECT_EQ(certificate.pairs, 1);
  EXPECT_EQ(certificate.failing_pairs, 1);
  EXPECT_EQ(certificate.panels, 1);
  intact_failing_pair pair;
  int64_t written = 0;
  ASSERT_EQ(intact_gemm_failing_pairs(gemm->handle(), 0, 1, &pair, &written), INTACT_OK);
  ASSERT_EQ(written, 1);
  EXPECT_EQ(pair.a0, 191);
  EXPECT_EQ(pair.a1, 191);
  EXPECT_EQ(pair.sum, 2 * 191 * 127);
  intact_panel_certificate panel;
  ASSERT_EQ(intact_gemm_panel_certificates(gemm->handle(), 0, 1, &panel), INTACT_OK);
  EXPECT_EQ(panel.failing_pairs, 1);
  EXPECT_EQ(panel.safe_depth_quads, 0);
}

TEST(GoldenLayers, ThreeToTwentyNinePercentOfThePairsCouldSaturate) {
  for (const char* layer : {"u8_9", "u8_11", "u8_ramp_64x10", "u7_9", "u7_11", "u7_ramp_64x10"}) {
    const auto npy =
        support::ReadNpy(INTACT_TEST_DATA "/torch-layers/" + std::string(layer) + "/weights.npy");
    ASSERT_TRUE(npy) << npy.error().message;
    ASSERT_EQ(npy->shape.size(), 2u);
    const std::vector<int8_t> values = npy->Values<int8_t>();
    PackedWeights weights;
    ASSERT_TRUE(PackWeights({values.data(), npy->shape[1], npy->shape[0], 1, npy->shape[1]}, &weights));
    const Certificate certificate = Certify(weights, kU8);
    const double share =
        static_cast<double>(certificate.failing_pairs) / static_cast<double>(certificate.pairs);
    const int64_t percent = std::llround(100 * share);
    EXPECT_TRUE(percent >= 3 && percent <= 29) << layer << ": " << 100 * share << " %";
    EXPECT_TRUE(Certify(weights, kU7).IsProven());
  }
}

}  // namespace
}  // namespace intact::kernels
