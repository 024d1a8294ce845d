// The verifier of grouped weights: lines, models and mutants. The verifier must find and name each mutant.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/types.h"
#include "reference/contract/grouped.h"
#include "reference/contract/quantize.h"
#include "reference/models/grouped.h"
#include "support/random.h"
#include "tests/support/npy_text.h"
#include "tests/support/temp_path.h"
#include "verify/explain/judge.h"
#include "verify/problem/random_problem.h"
#include "verify/studies/grouped_layer_check.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/features.h"
#include "verify/targets/fit.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

TEST(GroupedProblemTest, LinesRoundTrip) {
  support::Random random(1, 1, 1);
  for (int i = 0; i < 1000; ++i) {
    const Problem problem = DrawGrouped(&random);
    const auto parsed = Problem::Parse(problem.ToString());
    ASSERT_TRUE(parsed) << problem.ToString() << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, problem) << problem.ToString();
  }
  EXPECT_EQ(Problem::Parse("grouped s8u4f32 m=1 n=2 k=3")->ToString(), "grouped s8u4f32 m=1 n=2 k=3");
}

TEST(GroupedProblemTest, RefusesLines) {
  const std::pair<const char*, const char*> kLines[] = {
      {"gemm s8u4f32 m=1 n=2 k=3", "types: weights are u4; expected u8 or s8"},
      {"grouped s8u4s32 m=1 n=2 k=3", "types: outputs are s32; expected f32, bf16, f16"},
      {"grouped s8u4 m=1 n=2 k=3", "types: 's8u4' is not like s8u4f32: activations, weights, output"},
      {"grouped s8u4f32 m=1 n=2", "k is missing"},
      {"grouped s8u4f32 m=1 n=2 k=3 m=1", "'m=1': m is given twice"},
      {"grouped s8u4f32 m=1 n=2 k=x", "k: 'x' is not an integer that fits 64 bits"},
      {"grouped s8u4f32 m=1 n=2 k=3 group=24", "group: 24 is unknown; expected 0, 16, 32, 64, 128 or 256"},
      {"grouped s8u4f32 m=1 n=2 k=3 zb=1", "zb: '1' is unknown; expected one of no, yes"},
      {"grouped s8u4f32 m=1 n=2 k=40000 group=0",
       "k: 40000 is out of range with group=0; expected 1 to 33025"},
      {"grouped s8u4f32 m=1 n=2 k=3 blayout=kn",
       "blayout: kn needs weights of 8 bits; the depths of 4-bit weights are adjacent"},
      {"grouped s8u4f32 m=7 n=2 k=3 item=2", "item: 2 needs m to be a multiple of it, split=0 and experts=1"},
      {"grouped s8u4f32 m=1 n=2 k=3 experts=0", "experts: 0 is out of range; expected 1 to 1024"},
      {"grouped s8u4f32 m=1 n=4096 k=4096 experts=2",
       "experts·n·k is beyond 16777216: experts=2 n=4096 k=4096"},
      {"grouped s8u4f32 m=1 n=2 k=3 za=no", "za: no needs given activations; expected src=none"},
      {"grouped s8u4f32 m=1 n=2 k=3 src=none fill=nonfinite",
       "fill: nonfinite needs real numbers; expected src=f32, bf16 or f16"},
  };
  for (const auto& [line, message] : kLines) {
    const auto parsed = Problem::Parse(line);
    ASSERT_FALSE(parsed) << line;
    EXPECT_EQ(parsed.error().message, message);
  }
}

// The fill `bounds` reaches the largest sums, of both signs.
TEST(GroupedProblemTest, BoundsAreReached) {
  const reference::Grouped grouped = MaterializeGrouped(
      *Problem::Parse("grouped u8u8f32 m=24 n=24 k=512 group=256 src=none zb=yes fill=bounds"));
  int64_t least = 0;
  int64_t most = 0;
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    for (int64_t g = 0; g < grouped.groups(); ++g) {
      const int64_t sum = GroupSum(grouped, i / grouped.n, i % grouped.n, g);
      least = std::min(least, sum);
      most = std::max(most, sum);
    }
  }
  EXPECT_EQ(most, 255 * 255 * 256);
  EXPECT_EQ(least, -255 * 255 * 256);
}

// The model of the contract is independent code.
TEST(GroupedModelTest, ContractIsTheContract) {
  support::Random random(2, 1, 1);
  for (int i = 0; i < 100; ++i) {
    const Problem problem = DrawGrouped(&random);
    const reference::Grouped grouped = MaterializeGrouped(problem);
    EXPECT_EQ(Outputs(grouped, reference::GroupedModel::kContract), Outputs(grouped)) << problem.ToString();
  }
}

// ----- arithmetics of other libraries ---------------------------------------------------------------------

// The scale of group `g` for output (m, n).
float ScaleAt(const reference::Grouped& grouped, int64_t m, int64_t n, int64_t g) {
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.scale_type));
  const int64_t column = grouped.ExpertOf(m) * grouped.n + n;
  const auto place = static_cast<size_t>(column * grouped.groups() + g);
  return static_cast<float>(core::Decode(grouped.scale_type, &grouped.b_scales[place * bytes]));
}

std::vector<uint8_t> BytesOf(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Outputs with one scale of A for each group: add(terms), where a term is the sum of a group times its
// scale, as a real number.
template <class Add>
std::vector<uint8_t> OutputsBy(const reference::Grouped& grouped, const Add& add) {
  std::vector<float> c;
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    const int64_t m = i / grouped.n, n = i % grouped.n;
    std::vector<double> terms;
    for (int64_t g = 0; g < grouped.groups(); ++g) {
      const float scale =
          grouped.a_scales[static_cast<size_t>(m * grouped.groups() + g)] * ScaleAt(grouped, m, n, g);
      terms.push_back(static_cast<double>(GroupSum(grouped, m, n, g)) * double{scale});
    }
    c.push_back(add(terms));
  }
  return BytesOf(c);
}

// Sums of two terms, then of two sums, and so on, each rounded to float32.
float InPairs(std::vector<double> terms) {
  for (; terms.size() > 1; terms.resize((terms.size() + 1) / 2)) {
    for (size_t i = 0; i < terms.size(); i += 2) {
      const float first = static_cast<float>(terms[i]);
      terms[i / 2] = double{i + 1 < terms.size() ? first + static_cast<float>(terms[i + 1]) : first};
    }
  }
  return static_cast<float>(terms[0]);
}

std::string ArithmeticOf(const reference::Grouped& grouped, const std::vector<uint8_t>& output) {
  const Judgement judgement = JudgeGrouped(grouped, output, "any");
  EXPECT_EQ(judgement.Passed(), !judgement.comparison.grouped->arithmetic.empty());
  EXPECT_FALSE(JudgeGrouped(grouped, output, "exact").Passed());
  return judgement.comparison.grouped->arithmetic;
}

constexpr const char* kAnotherOrder =
    "float32 sums in another order, within the bound of their rounding errors";

TEST(GroupedModelTest, OtherOrdersAreWithinTheirBound) {
  for (const char* line :
       {"grouped s8u4f32 m=3 n=20 k=600 per=group src=none", "grouped u8s8f32 m=3 n=20 k=600 per=group",
        "grouped s8u4f32 m=3 n=20 k=600 per=group fill=spread gscale=f32",
        "grouped s8u4f32 m=9 n=20 k=600 experts=4 per=group zb=yes"}) {
    reference::Grouped grouped = MaterializeGrouped(*Problem::Parse(line));
    EXPECT_EQ(ArithmeticOf(grouped, OutputsBy(grouped, InPairs)), kAnotherOrder) << line;
  }
}

// An activation that differs by 1 in one output is not a rounding error.
TEST(GroupedModelTest, OtherNumbersAreNotWithinTheBound) {
  reference::Grouped grouped =
      MaterializeGrouped(*Problem::Parse("grouped s8u4f32 m=3 n=20 k=64 per=group src=none"));
  const reference::Grouped right = grouped;
  for (int64_t k = 0; k < grouped.k; ++k) {
    grouped.a = right.a;
    uint8_t& a = grouped.a[static_cast<size_t>(grouped.k + k)];
    a = static_cast<uint8_t>(a == 127 ? 126 : a + 1);
    EXPECT_EQ(ArithmeticOf(right, OutputsBy(grouped, InPairs)), "") << k;
  }
}

// Some output differs by more than roundings if the last depth is dropped.
TEST(GroupedModelTest, DroppedDepthsAreNotWithinTheBound) {
  for (const char* types : {"s8u4", "u8u4"}) {
    for (const int64_t k : {4096, 14336}) {
      for (const char* more : {"", " zb=yes", " per=group src=none"}) {
        const std::string line = fmt::format("grouped {}f32 m=16 n=40 k={} gscale=f32{}", types, k, more);
        const reference::Grouped right = MaterializeGrouped(*Problem::Parse(line));
        reference::Grouped dropped = right;
        const size_t points = right.a_zero_points.size() / static_cast<size_t>(right.m);
        for (size_t m = 0; m < static_cast<size_t>(right.m); ++m) {
          const int32_t point = right.a_zero_points[(m + 1) * points - 1];
          dropped.a[(m + 1) * static_cast<size_t>(k) - 1] = static_cast<uint8_t>(point);
        }
        EXPECT_EQ(RoundingError(right, Outputs(right), Outputs(dropped)), std::nullopt) << line;
      }
    }
  }
}

// Products, and the terms of zero points, in sums of their own.
TEST(GroupedModelTest, SeparateZeroPointsAreWithinTheBound) {
  for (const char* line : {"grouped u8u4f32 m=4 n=40 k=4096 per=group src=none zb=yes gscale=f32",
                           "grouped s8u8f32 m=4 n=40 k=4096 per=group src=none gscale=f32"}) {
    const reference::Grouped grouped = MaterializeGrouped(*Problem::Parse(line));
    std::vector<float> c;
    for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
      const int64_t m = i / grouped.n, n = i % grouped.n;
      float products = 0, of_zb = 0, of_za = 0;
      for (int64_t g = 0; g < grouped.groups(); ++g) {
        const auto place = static_cast<size_t>(m * grouped.groups() + g);
        const float scale = grouped.a_scales[place] * ScaleAt(grouped, m, n, g);
        const int64_t za = grouped.a_zero_points[place];
        const auto b_place = static_cast<size_t>(n * grouped.groups() + g);
        const int64_t zb = grouped.b_zero_points.empty() ? 128 : grouped.b_zero_points[b_place];
        int64_t product = 0, a_sum = 0, b_sum = 0;
        for (int64_t k = g * 32; k < (g + 1) * 32; ++k) {
          const auto at = static_cast<size_t>(m * grouped.k + k);
          const int64_t a = core::DecodeInt8(grouped.a_type, grouped.a[at]);
          const int64_t b = grouped.b[static_cast<size_t>(n * grouped.k + k)];
          product += a * b;
          a_sum += a;
          b_sum += b;
        }
        products += static_cast<float>(product) * scale;
        of_zb += static_cast<float>(zb * a_sum) * scale;
        of_za += static_cast<float>(za * b_sum - za * zb * 32) * scale;
      }
      c.push_back(products - of_zb - of_za);
    }
    EXPECT_EQ(ArithmeticOf(grouped, BytesOf(c)), kAnotherOrder) << line;
    const auto error = reference::RoundingError(grouped, Outputs(grouped), BytesOf(c));
    EXPECT_GT(error.value_or(0), 0) << line;
    const GroupedNaming naming = *JudgeGrouped(grouped, BytesOf(c), "any").comparison.grouped;
    EXPECT_EQ(naming.error, error);
    EXPECT_EQ(naming.InWords(), fmt::format("{} (at most {:.2g} % of it)", kAnotherOrder, 100 * *error));
  }
}

// 127/max is infinite for tiny numbers. CVTPS2DQ and packs make −128 of infinities and of 0·∞.
TEST(GroupedModelTest, TinyActivationsAreConverted) {
  reference::Grouped grouped = MaterializeGrouped(*Problem::Parse("grouped s8u4f32 m=1 n=1 k=32"));
  std::vector<float> tiny(32, 0.0f);
  tiny[1] = 1e-40f;
  tiny[2] = -1e-40f;
  grouped.a_source = BytesOf(tiny);
  QuantizeActivations(&grouped);
  const reference::Grouped made = Requantized(grouped, reference::GroupedActivations::kReciprocal);
  EXPECT_EQ(made.a, std::vector<uint8_t>(32, 0x80));
  tiny[3] = 1.0f;
  grouped.a_source = BytesOf(tiny);
  QuantizeActivations(&grouped);
  EXPECT_EQ(Requantized(grouped, reference::GroupedActivations::kReciprocal).a[3], 127);
  const reference::Grouped filled =
      MaterializeGrouped(*Problem::Parse("grouped s8u4f32 m=3 n=2 k=64 per=group fill=tiny"));
  const reference::Grouped packed = Requantized(filled, reference::GroupedActivations::kReciprocal);
  EXPECT_NE(std::ranges::count(packed.a, uint8_t{0x80}), 0);
}

TEST(GroupedModelTest, EightSumsAreNamed) {
  const reference::Grouped grouped =
      MaterializeGrouped(*Problem::Parse("grouped s8u4f32 m=3 n=20 k=320 per=group src=none"));
  std::vector<float> c;
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    const int64_t m = i / grouped.n, n = i % grouped.n;
    std::array<float, 8> f = {};
    for (int64_t k = 0; k < grouped.k; k += 4) {
      int32_t quad = 0;
      for (int64_t j = k; j < k + 4; ++j) {
        const int32_t w = grouped.b[static_cast<size_t>(n * grouped.k + j)] - 8;
        const int32_t za = grouped.a_zero_points[static_cast<size_t>(m * 10 + j / 32)];
        quad += (static_cast<int8_t>(grouped.a[static_cast<size_t>(m * grouped.k + j)]) - za) * w;
      }
      const float scale =
          grouped.a_scales[static_cast<size_t>(m * 10 + k / 32)] * ScaleAt(grouped, m, n, k / 32);
      f[static_cast<size_t>(k / 4 % 8)] =
          std::fma(static_cast<float>(quad), scale, f[static_cast<size_t>(k / 4 % 8)]);
    }
    c.push_back(((f[0] + f[4]) + (f[2] + f[6])) + ((f[1] + f[5]) + (f[3] + f[7])));
  }
  EXPECT_EQ(ArithmeticOf(grouped, BytesOf(c)),
            "eight float32 sums, each of every eighth quad; then their sum, in halves");
}

// GGUF's Q4_1: a weight is scale·code + minimum.
reference::Grouped WithMinimums(const std::string& line) {
  reference::Grouped grouped = MaterializeGrouped(*Problem::Parse(line));
  grouped.has_b_minimums = true;
  support::Random random(5, 0, 0);
  for (int64_t i = 0; i < grouped.columns() * grouped.groups(); ++i) {
    grouped.b_minimums.push_back(static_cast<float>(random.Gauss() / 8));
  }
  return grouped;
}

// In a wider type, from the weights' values; the error of the float32 sums is small beside the outputs.
TEST(GroupedModelTest, MinimumsAreAddedToWeights) {
  for (const std::string line :
       {"grouped s8u4f32 m=3 n=9 k=70 bias=yes", "grouped u8u8f32 m=2 n=5 k=64 per=group src=none",
        "grouped u8s8f32 m=4 n=5 k=40 experts=2 gscale=bf16"}) {
    const reference::Grouped grouped = WithMinimums(line);
    EXPECT_EQ(grouped.DefaultZeroPoint(), 0);
    const std::vector<uint8_t> outputs = Outputs(grouped);
    for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
      const int64_t m = i / grouped.n, column = grouped.ExpertOf(m) * grouped.n + i % grouped.n;
      long double sum = grouped.bias_f32.empty() ? 0 : grouped.bias_f32[static_cast<size_t>(column)];
      long double magnitude = std::abs(sum);
      for (int64_t k = 0; k < grouped.k; ++k) {
        const auto place = static_cast<size_t>(column * grouped.groups() + k / 32);
        const int32_t code = grouped.b[static_cast<size_t>(column * grouped.k + k)];
        const float scale = grouped.Scale(column, k / 32);
        const long double weight = static_cast<long double>(scale) * code + grouped.b_minimums[place];
        const size_t a_place = grouped.APlace(m, k / 32);
        const int32_t a = core::DecodeInt8(grouped.a_type, grouped.a[static_cast<size_t>(m * grouped.k + k)]);
        const long double term = grouped.a_scales[a_place] * weight * (a - grouped.a_zero_points[a_place]);
        sum += term;
        magnitude +=
            std::abs(term) + std::abs(static_cast<long double>(scale) * code * grouped.a_scales[a_place] *
                                      (a - grouped.a_zero_points[a_place]));
      }
      const auto output = core::Decode(grouped.c_type, &outputs[static_cast<size_t>(i) * 4]);
      EXPECT_NEAR(output, static_cast<double>(sum), static_cast<double>(magnitude) * 1e-5)
          << line << ", output " << i;
    }
  }
}

TEST(GroupedModelTest, FaultsOfMinimumsAreNamed) {
  using reference::GroupedModel;
  for (const std::string line :
       {"grouped s8u4f32 m=3 n=9 k=170", "grouped u8u8f32 m=3 n=9 k=96 per=group src=none"}) {
    const reference::Grouped grouped = WithMinimums(line);
    for (const GroupedModel model :
         {GroupedModel::kMinimumsLast, GroupedModel::kMinimumOfGroup, GroupedModel::kNextMinimum,
          GroupedModel::kOtherMinimumSign, GroupedModel::kNoMinimum}) {
      const Judgement judgement = JudgeGrouped(grouped, Outputs(grouped, model), "any");
      EXPECT_EQ(judgement.comparison.grouped->arithmetic, ToString(model));
      EXPECT_EQ(judgement.Passed(), !IsFault(model)) << judgement.failure;
    }
    reference::Grouped one = grouped;
    one.b_minimums.back() *= 1.5f;
    EXPECT_EQ(ArithmeticOf(grouped, Outputs(one)), "") << "a wrong minimum is no rounding error";
  }
}

// Activations of ONNX Runtime and of ggml.
TEST(GroupedModelTest, OtherActivationsAreNamed) {
  // Quotients near halves, which both quantizations round differently.
  reference::Grouped exact = MaterializeGrouped(*Problem::Parse("grouped s8u4f32 m=9 n=20 k=320 per=group"));
  std::vector<float> halves;
  for (size_t i = 0; i < exact.a.size(); ++i) {
    const float most = 1.0f + static_cast<float>(i / 32) / 7.0f;
    halves.push_back(i % 32 == 0 ? most : (static_cast<float>(i * 5 % 126) + 0.5f) * (most / 127.0f));
  }
  exact.a_source = BytesOf(halves);
  QuantizeActivations(&exact);
  reference::Grouped other = exact;
  const auto* const x = reinterpret_cast<const float*>(exact.a_source.data());
  for (size_t g = 0; g < exact.a_scales.size(); ++g) {
    float most = 0;
    for (size_t i = 32 * g; i < 32 * (g + 1); ++i) most = std::max(most, std::abs(x[i]));
    for (size_t i = 32 * g; i < 32 * (g + 1); ++i) {
      other.a[i] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(x[i] * (127 / most))));
    }
  }
  ASSERT_NE(other.a, exact.a) << "the problem does not show the difference";
  const std::string of_multiplied = "activations are rne(x*(127/max))";
  EXPECT_EQ(ArithmeticOf(exact, Outputs(other)), of_multiplied);
  EXPECT_EQ(ArithmeticOf(exact, OutputsBy(other, InPairs)), of_multiplied + "; " + kAnotherOrder);
  for (float& scale : other.a_scales) scale = static_cast<float>(reference::RoundToFloat(scale, INTACT_F16));
  EXPECT_EQ(ArithmeticOf(exact, Outputs(other)), of_multiplied + ", with float16 scales");
}

// Pairs that the certificate lists are clamped; other pairs are not.
TEST(GroupedModelTest, ClampedPairsAreThoseOfTheCertificate) {
  for (const char* line : {"grouped u8s8f32 m=8 n=9 k=75 src=none fill=bounds",
                           "grouped s8u8f32 m=8 n=9 k=75 src=none fill=bounds zb=yes",
                           "grouped u8u4f32 m=8 n=9 k=75 src=none fill=bounds"}) {
    reference::Grouped grouped = MaterializeGrouped(*Problem::Parse(line));
    const auto clamped = [&] { return Outputs(grouped, reference::GroupedModel::kClampedPairs); };
    const auto certificate = [&] { return CreatePlan(grouped, {})->Certificate()->failing_pairs; };
    EXPECT_EQ(certificate() == 0, grouped.IsPacked()) << line;
    if (grouped.IsPacked()) {
      EXPECT_EQ(clamped(), Outputs(grouped));
      continue;
    }
    EXPECT_EQ(ArithmeticOf(grouped, clamped()), "pairs of adjacent depths clamped to int16 (maddubs)")
        << line;
    const int32_t middle = grouped.DefaultZeroPoint();
    for (int16_t& b : grouped.b) b = static_cast<int16_t>(std::clamp<int32_t>(b, middle - 64, middle + 64));
    EXPECT_EQ(certificate(), 0);
    EXPECT_EQ(clamped(), Outputs(grouped));
  }
}

// A target that computes the reference on changed tensors, or by `compute`.
class Mutant : public Target {
 public:
  using Compute = std::function<std::vector<uint8_t>(reference::Grouped)>;
  explicit Mutant(Compute compute) : compute_(std::move(compute)) {}
  std::string Name() const override { return "mutant"; }
  FeatureMasks Features() const override { return {0, 0, kAllFeatures}; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& /*options*/) const override {
    return compute_(std::get<reference::Grouped>(operation));
  }

 private:
  Compute compute_;
};

// A small problem has many explanations, and may have another failure. It must keep the cause.
TEST(GroupedMinimise, KeepsTheCause) {
  const Problem problem = *Problem::Parse("grouped s8u4f32 m=3 n=7 k=150 src=none gscale=f32 zb=yes");
  for (const reference::GroupedModel model :
       {reference::GroupedModel::kSwappedNibbles, reference::GroupedModel::kPreviousZeroPoint}) {
    const Mutant mutant(
        [model](const reference::Grouped& grouped) { return reference::Outputs(grouped, model); });
    const auto cause = [&](const Problem& of) { return Judge(mutant, of)->comparison.grouped->arithmetic; };
    const std::string named = ToString(reference::GroupedArithmetic{.model = model});
    EXPECT_EQ(cause(problem), named);
    const Problem smallest =
        *Problem::Parse(RunSweep({{problem}}, mutant, [](int64_t, int64_t) {}).failures.at(0).minimised);
    EXPECT_LT(smallest.k, problem.k);
    EXPECT_EQ(cause(smallest), named) << smallest.ToString();
  }
}

// The contract's loop with other float steps, or other groups: add(f, sum, scale), and the first depth of
// group g.
template <class Add, class Begin>
std::vector<uint8_t> Loop(const reference::Grouped& grouped, bool is_reversed, const Add& add,
                          const Begin& begin) {
  std::vector<uint8_t> c;
  const int64_t groups = grouped.groups();
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.scale_type));
  for (int64_t m = 0; m < grouped.m; ++m) {
    for (int64_t n = 0; n < grouped.n; ++n) {
      float f = 0;
      for (int64_t i = 0; i < groups; ++i) {
        const int64_t g = is_reversed ? groups - 1 - i : i;
        int64_t sum = 0;
        for (int64_t k = begin(g); k < begin(g + 1); ++k) {
          const auto a = static_cast<int8_t>(grouped.a[static_cast<size_t>(m * grouped.k + k)]);
          sum += a * (grouped.b[static_cast<size_t>(n * grouped.k + k)] - 8);
        }
        const double scale =
            core::Decode(grouped.scale_type, &grouped.b_scales[static_cast<size_t>(n * groups + g) * bytes]);
        f = add(f, static_cast<float>(sum), static_cast<float>(scale));
      }
      f *= grouped.a_scales[static_cast<size_t>(m)];
      const auto* const stored = reinterpret_cast<const uint8_t*>(&f);
      c.insert(c.end(), stored, stored + sizeof f);
    }
  }
  return c;
}
float Fma(float f, float sum, float scale) { return std::fma(sum, scale, f); }

// One group whose products are added in float32: u8 activations, a scale for each row, f32 scales of weights.
std::vector<uint8_t> FloatSums(const reference::Grouped& grouped) {
  std::vector<uint8_t> c;
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    const auto m = static_cast<size_t>(i / grouped.n), n = static_cast<size_t>(i % grouped.n);
    float sum = 0;
    for (int64_t k = 0; k < grouped.k; ++k) {
      const int32_t a = grouped.a[m * static_cast<size_t>(grouped.k) + static_cast<size_t>(k)];
      const int32_t b = grouped.b[n * static_cast<size_t>(grouped.k) + static_cast<size_t>(k)];
      sum += static_cast<float>((a - grouped.a_zero_points[m]) * (b - grouped.b_zero_points[n]));
    }
    float scale = 0;
    std::memcpy(&scale, &grouped.b_scales[n * sizeof scale], sizeof scale);
    const float output = Fma(0, sum, scale) * grouped.a_scales[m];
    const auto* const stored = reinterpret_cast<const uint8_t*>(&output);
    c.insert(c.end(), stored, stored + sizeof output);
  }
  return c;
}

struct Fault {
  const char* name;
  const char* line;
  Mutant::Compute compute;
  const char* said;
};

// The outputs if row m belongs to expert `of(m)`.
template <class Of>
std::vector<uint8_t> WithExperts(reference::Grouped grouped, const Of& of) {
  std::vector<int64_t> rows(grouped.expert_rows.size());
  for (int64_t m = 0; m < grouped.m; ++m) ++rows[static_cast<size_t>(of(m))];
  grouped.expert_rows = rows;
  return Outputs(grouped);
}

std::vector<Fault> Faults() {
  constexpr const char* kExperts = "grouped s8u4f32 m=20 n=20 k=70 experts=4 zb=yes bias=yes seed=1";
  constexpr const char* kMinimums = "grouped s8u4f32 m=3 n=20 k=150 gscale=f32 min=yes";
  constexpr const char* kPlain = "grouped s8u4f32 m=3 n=20 k=150";
  constexpr const char* kZeroPoints = "grouped s8u4f32 m=3 n=20 k=150 zb=yes";
  const auto usual_begin = [](const reference::Grouped& grouped) {
    return [&grouped](int64_t g) { return std::min(g * grouped.depth(), grouped.k); };
  };
  return {
      {"wrong nibble order", kPlain,
       [](reference::Grouped grouped) {
         for (size_t i = 0; i + 1 < grouped.b.size(); i += 2) std::swap(grouped.b[i], grouped.b[i + 1]);
         return Outputs(grouped);
       },
       "the high four bits of a byte are read as the even depth"},
      {"wrong nibble order, odd depth", "grouped s8u4f32 m=3 n=20 k=39",
       [](reference::Grouped grouped) {
         for (size_t i = 0; i < grouped.b.size(); ++i) {
           const size_t k = i % 39;
           if (k == 38) grouped.b[i] = 0;
           if (k % 2 == 1) std::swap(grouped.b[i - 1], grouped.b[i]);
         }
         return Outputs(grouped);
       },
       "the high four bits of a byte are read as the even depth"},
      {"nibbles as in GGUF", "grouped s8u4f32 m=3 n=20 k=160",
       [](reference::Grouped grouped) {
         const std::vector<int16_t> b = grouped.b;
         for (size_t i = 0; i < b.size(); ++i) {
           const size_t in_group = i % 32;
           grouped.b[i] = b[i - in_group + (in_group < 16 ? 2 * in_group : 2 * in_group - 31)];
         }
         return Outputs(grouped);
       },
       "the low four bits of a group's bytes are read as its first half, as in GGUF"},
      {"zero point of the neighbouring group", kZeroPoints,
       [](reference::Grouped grouped) {
         const auto groups = static_cast<size_t>(grouped.groups());
         for (size_t i = 0; i < grouped.b_zero_points.size(); ++i) {
           if (i % groups + 1 < groups) grouped.b_zero_points[i] = grouped.b_zero_points[i + 1];
         }
         return Outputs(grouped);
       },
       "a group uses the zero point of the next group"},
      {"zero points of the neighbouring column", kZeroPoints,
       [](reference::Grouped grouped) {
         const auto groups = static_cast<size_t>(grouped.groups());
         for (size_t i = 0; i + groups < grouped.b_zero_points.size(); ++i) {
           grouped.b_zero_points[i] = grouped.b_zero_points[i + groups];
         }
         return Outputs(grouped);
       },
       "a column uses the zero points of the next column"},
      {"no zero point", kPlain,
       [](reference::Grouped grouped) {
         grouped.has_b_zero_points = true;
         grouped.b_zero_points.assign(static_cast<size_t>(grouped.n * grouped.groups()), 0);
         return Outputs(grouped);
       },
       "the zero points of weights are taken as 0"},
      {"group boundary off by one", kPlain,
       [](const reference::Grouped& grouped) {
         return Loop(grouped, false, Fma, [&](int64_t g) {
           return g == 0 ? 0 : g == grouped.groups() ? grouped.k : g * grouped.depth() - 1;
         });
       },
       "groups begin one depth too early"},
      {"group boundary off by one, late", kPlain,
       [](const reference::Grouped& grouped) {
         return Loop(grouped, false, Fma, [&](int64_t g) {
           return g == 0 ? 0 : g == grouped.groups() ? grouped.k : g * grouped.depth() + 1;
         });
       },
       "groups begin one depth too late"},
      {"short last group", kPlain,
       [](reference::Grouped grouped) {
         for (int64_t i = 0; i < grouped.n * grouped.k; ++i) {
           if (i % grouped.k >= grouped.k / 32 * 32) grouped.b[static_cast<size_t>(i)] = 8;
         }
         return Outputs(grouped);
       },
       "the short last group is missing"},
      {"reversed groups", kPlain,
       [=](const reference::Grouped& grouped) { return Loop(grouped, true, Fma, usual_begin(grouped)); },
       "groups are added from the last to the first"},
      {"no FMA", "grouped s8u4f32 m=3 n=20 k=150 gscale=f32",
       [=](const reference::Grouped& grouped) {
         const auto add = [](float f, float sum, float scale) { return f + sum * scale; };
         return Loop(grouped, false, add, usual_begin(grouped));
       },
       "the product and the sum of a group are rounded separately, without FMA"},
      {"scale of the row in each group", kPlain,
       [](reference::Grouped grouped) {
         const auto groups = static_cast<size_t>(grouped.groups());
         const std::vector<float> scales = grouped.a_scales;
         grouped.a_granularity = INTACT_GRANULARITY_GROUPS;
         grouped.a_zero_points.assign(scales.size() * groups, 0);
         grouped.a_scales.clear();
         for (const float scale : scales) grouped.a_scales.insert(grouped.a_scales.end(), groups, scale);
         return Outputs(grouped);
       },
       "the scale of the row multiplies the scale of each group, and not the sum of the groups"},
      {"float sums", "grouped u8u8f32 m=3 n=20 k=600 group=0 src=none gscale=f32 zb=yes fill=bounds",
       FloatSums, "the products of a group are added in float32"},
      {"scale of the neighbouring group", kPlain,
       [](reference::Grouped grouped) {
         const size_t groups = static_cast<size_t>(grouped.groups()), bytes = 2;
         for (size_t i = 0; i + bytes < grouped.b_scales.size(); ++i) {
           if (i / bytes % groups + 1 < groups) grouped.b_scales[i] = grouped.b_scales[i + bytes];
         }
         return Outputs(grouped);
       },
       "a group uses the scale of the next group"},
      {"other sign", "grouped s8s4f32 m=3 n=20 k=150",
       [](reference::Grouped grouped) {
         for (int16_t& weight : grouped.b) weight = static_cast<int16_t>(weight & 15);
         return Outputs(grouped);
       },
       "weights are read with the other sign"},
      {"expert 0", kExperts,
       [](const reference::Grouped& grouped) { return WithExperts(grouped, [](int64_t) { return 0; }); },
       "all rows are computed as rows of expert 0"},
      {"weights of expert 0", kExperts,
       [](reference::Grouped grouped) {
         const auto repeat = [](auto* values) {
           const size_t each = values->size() / 4;
           for (size_t i = each; i < values->size(); ++i) (*values)[i] = (*values)[i % each];
         };
         repeat(&grouped.b);
         repeat(&grouped.b_scales);
         repeat(&grouped.b_zero_points);
         return Outputs(grouped);
       },
       "all rows are multiplied by the weights of expert 0"},
      {"weights of the next expert", kExperts,
       [](const reference::Grouped& grouped) {
         return WithExperts(grouped,
                            [&](int64_t m) { return std::min<int64_t>(grouped.ExpertOf(m) + 1, 3); });
       },
       "an expert's rows are computed as rows of the next expert"},
      {"experts begin a row too early", kExperts,
       [](const reference::Grouped& grouped) {
         return WithExperts(grouped,
                            [&](int64_t m) { return grouped.ExpertOf(std::min<int64_t>(m + 1, 19)); });
       },
       "an expert's last row is computed as a row of the next expert"},
      {"scales of expert 0", kExperts,
       [](reference::Grouped grouped) {
         for (size_t i = grouped.b_scales.size() / 4; i < grouped.b_scales.size(); ++i) {
           grouped.b_scales[i] = grouped.b_scales[i % (grouped.b_scales.size() / 4)];
         }
         for (size_t i = grouped.b_zero_points.size() / 4; i < grouped.b_zero_points.size(); ++i) {
           grouped.b_zero_points[i] = grouped.b_zero_points[i % (grouped.b_zero_points.size() / 4)];
         }
         return Outputs(grouped);
       },
       "all experts use the scales and zero points of expert 0"},
      {"bias of expert 0", kExperts,
       [](reference::Grouped grouped) {
         for (size_t i = 0; i < grouped.bias_f32.size(); ++i) grouped.bias_f32[i] = grouped.bias_f32[i % 20];
         return Outputs(grouped);
       },
       "all experts use the bias of expert 0"},
      {"minimum of the neighbour", kMinimums,
       [](reference::Grouped grouped) {
         // Of 5 groups; the last keeps its own.
         for (size_t i = 0; i + 1 < grouped.b_minimums.size(); ++i) {
           if (i % 5 != 4) grouped.b_minimums[i] = grouped.b_minimums[i + 1];
         }
         return Outputs(grouped);
       },
       "a group uses the minimum of the next group"},
      {"sign of the minimum", kMinimums,
       [](reference::Grouped grouped) {
         for (float& minimum : grouped.b_minimums) minimum = -minimum;
         return Outputs(grouped);
       },
       "minimums are subtracted"},
      {"scale of the wrong half", kMinimums,
       [](reference::Grouped grouped) {
         for (size_t i = 0; i + 8 <= grouped.b_scales.size();
              i += 20) {  // of 5 groups, the last without a pair
           for (size_t pair = i; pair < i + 16; pair += 8) {
             std::swap_ranges(&grouped.b_scales[pair], &grouped.b_scales[pair] + 4,
                              &grouped.b_scales[pair] + 4);
           }
         }
         return Outputs(grouped);
       },
       "a group uses the scale of the other group of its pair"},
      {"A of the previous item", "grouped s8u4f32 m=12 n=20 k=70 item=3 ipad=5",
       [](reference::Grouped grouped) {
         for (size_t i = grouped.a.size(); i-- > 3 * 70;) grouped.a[i] = grouped.a[i - 3 * 70];
         for (size_t i = grouped.a_scales.size(); i-- > 3;) grouped.a_scales[i] = grouped.a_scales[i - 3];
         return Outputs(grouped);
       },
       "an item of a batch is computed with the activations of the item before"},
      {"scales rounded to bfloat16", "grouped s8u4f32 m=3 n=20 k=150 gscale=f32",
       [](reference::Grouped grouped) {
         for (size_t i = 0; i < grouped.b_scales.size(); ++i) {
           if (i % 4 < 2) grouped.b_scales[i] = 0;
         }
         return Outputs(grouped);
       },
       "unexplained"},
  };
}

TEST(GroupedMutantsTest, EachIsFoundAndNamed) {
  for (const Fault& fault : Faults()) {
    const auto problem = Problem::Parse(fault.line);
    ASSERT_TRUE(problem) << fault.line << ": " << problem.error().message;
    const auto judgement = Judge(Mutant(fault.compute), *problem);
    ASSERT_TRUE(judgement) << judgement.error().message;
    EXPECT_FALSE(judgement->Passed()) << fault.name;
    EXPECT_TRUE(judgement->failure.ends_with(fault.said)) << fault.name << ": " << judgement->failure;
  }
}

// The loop of the mutants is right if it has no fault.
TEST(GroupedMutantsTest, LoopIsTheContract) {
  const Problem problem = *Problem::Parse("grouped s8u4f32 m=3 n=20 k=150");
  const reference::Grouped grouped = MaterializeGrouped(problem);
  const auto begin = [&](int64_t g) { return std::min(g * grouped.depth(), grouped.k); };
  EXPECT_EQ(Loop(grouped, false, Fma, begin), Outputs(grouped));
}

// ----- layers ----------------------------------------------------------------------------------------------

class GroupedLayerTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteText(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  // An array of rows × columns, or of `rows`.
  void WriteArray(const std::string& name, const std::string& descr, const std::vector<uint8_t>& bytes,
                  int64_t rows, int64_t columns = 0) const {
    const std::string shape =
        columns == 0 ? fmt::format("({},)", rows) : fmt::format("({}, {})", rows, columns);
    WriteText(name, tests::Npy(tests::Dict(descr, shape), std::string(bytes.begin(), bytes.end())));
  }
  template <class T>
  static std::vector<uint8_t> Bytes(const std::vector<T>& values) {
    std::vector<uint8_t> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  // Writes the problem, with float16 scales, as a layer.
  void Write(const Problem& problem, const reference::Grouped& grouped) const {
    const auto [m, n, k] = std::array{grouped.m, grouped.n, grouped.k};
    const char* const kind = grouped.codes().is_signed() ? "|i1" : "|u1";
    WriteText(
        "layer.json",
        fmt::format(R"({{"operator": "linear_grouped", "group": {}, "weight": {{"type": "{}"}},
                             "input": {{"type": "{}", "per": "{}"}}, "activation": {}}})",
                    problem.grouped->group, grouped.b_type == INTACT_U4 ? "u4" : "s8",
                    grouped.a_type == INTACT_U8 ? "u8" : "s8",
                    grouped.a_granularity == INTACT_GRANULARITY_GROUPS ? "group" : "row",
                    grouped.post_ops.Has<core::Clamp>() ? R"({"min": -0.75, "max": 1.5})" : R"("none")"));
    WriteArray("weights.npy", kind, std::vector<uint8_t>(grouped.b.begin(), grouped.b.end()), n, k);
    WriteArray("scales.npy", "<f2", grouped.b_scales, n, grouped.groups());
    if (!grouped.b_zero_points.empty()) {
      WriteArray("zero_points.npy", kind,
                 std::vector<uint8_t>(grouped.b_zero_points.begin(), grouped.b_zero_points.end()), n,
                 grouped.groups());
    }
    if (!grouped.bias_f32.empty()) WriteArray("bias.npy", "<f4", Bytes(grouped.bias_f32), n);
    if (grouped.a_source_type == INTACT_F32) {
      WriteArray("activations.npy", "<f4", grouped.a_source, m, k);
    } else {
      const bool is_by_groups = grouped.a_granularity == INTACT_GRANULARITY_GROUPS;
      WriteArray("activations.npy", grouped.a_type == INTACT_U8 ? "|u1" : "|i1", grouped.a, m, k);
      WriteArray("a_scales.npy", "<f4", Bytes(grouped.a_scales), m, is_by_groups ? grouped.groups() : 0);
      WriteArray("a_zero_points.npy", "<i4", Bytes(grouped.a_zero_points), m,
                 is_by_groups ? grouped.groups() : 0);
    }
  }
  std::string ErrorOf() const {
    const Result<Layer> layer = ReadLayer(folder_);
    EXPECT_FALSE(layer);
    return layer ? "" : layer.error().message.substr(folder_.size() + 1);
  }

  const std::string folder_ = tests::TempPath();
};

TEST_F(GroupedLayerTest, IsReadRunAndExplained) {
  for (const char* line : {"grouped s8u4f32 m=3 n=20 k=150 zb=yes bias=yes act=clamp",
                           "grouped u8s8f32 m=3 n=5 k=70 group=0 src=none",
                           "grouped s8u4f32 m=2 n=9 k=96 per=group src=none zb=yes"}) {
    const Problem problem = *Problem::Parse(line);
    const reference::Grouped grouped = MaterializeGrouped(problem);
    Write(problem, grouped);
    const Result<Layer> layer = ReadLayer(folder_);
    ASSERT_TRUE(layer) << layer.error().message;
    EXPECT_EQ(Outputs(*layer->grouped()), Outputs(grouped)) << line;
    WriteArray("output_right.npy", "<f4", Outputs(grouped), grouped.m, grouped.n);
    WriteArray("output_reversed.npy", "<f4", Outputs(grouped, reference::GroupedModel::kReversedGroups),
               grouped.m, grouped.n);
    std::vector<Expectation> recorded;
    for (const char* file : {"output_right.npy", "output_reversed.npy"}) {
      const Result<std::vector<uint8_t>> output = ReadExpected(*layer, file);
      ASSERT_TRUE(output) << output.error().message;
      recorded.push_back({file, *output});
    }
    for (const intact_isa isa : {INTACT_ISA_PORTABLE, INTACT_ISA_AVX2}) {
      if (intact_isa_available(isa) == 0) continue;
      const auto check =
          CheckGroupedLayer(*layer, IntactTarget(), intact_isa_name(isa), isa, recorded, std::nullopt);
      ASSERT_TRUE(check) << check.error().message;
      EXPECT_TRUE(check->Passed()) << ToText(*check);
      EXPECT_EQ(check->recorded[0].second.comparison.grouped->arithmetic, "exact");
      const bool has_groups = grouped.groups() > 1;
      EXPECT_EQ(check->recorded[1].second.comparison.grouped->arithmetic,
                has_groups ? "groups are added from the last to the first" : "exact");
      EXPECT_EQ(check->certificate.failing_pairs == 0, grouped.IsPacked());
    }
    // A target with a fault, and an expected output that is another one.
    const Mutant mutant(
        [](const reference::Grouped& given) { return Outputs(given, reference::GroupedModel::kNextScale); });
    const auto faulty = CheckGroupedLayer(*layer, mutant, "mutant", INTACT_ISA_ANY, {}, std::nullopt);
    ASSERT_TRUE(faulty) << faulty.error().message;
    EXPECT_EQ(faulty->Passed(), grouped.groups() == 1);
    const auto expected = CheckGroupedLayer(*layer, IntactTarget(), "any", INTACT_ISA_ANY, {}, recorded[1]);
    ASSERT_TRUE(expected) << expected.error().message;
    EXPECT_EQ(expected->Passed(), recorded[0].output == recorded[1].output) << ToText(*expected);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
}

TEST_F(GroupedLayerTest, SaysWhatIsWrong) {
  const Problem problem = *Problem::Parse("grouped s8u4f32 m=2 n=3 k=40");
  const reference::Grouped grouped = MaterializeGrouped(problem);
  const auto write = [&](const std::string& json) {
    Write(problem, grouped);
    if (!json.empty()) WriteText("layer.json", json);
  };
  const std::string rest = R"("input": {"type": "s8", "per": "row"}, "activation": "none")";
  write(R"({"operator": "linear_grouped", "group": 24, "weight": {"type": "u4"}, )" + rest + "}");
  EXPECT_EQ(ErrorOf(), "layer.json: group: is 24; expected one of 0, 16, 32, 64, 128, 256");
  write(R"({"operator": "linear_grouped", "group": 32, "weight": {"type": "u2"}, )" + rest + "}");
  EXPECT_EQ(ErrorOf(), R"(layer.json: weight.type: is "u2"; expected "u4", "s4", "u8" or "s8")");
  write(R"({"operator": "linear_grouped", "group": 32, "weight": {"type": "u4"}, "stride": 1, )" + rest +
        "}");
  EXPECT_EQ(ErrorOf(), "layer.json: stride: is unknown, or has no meaning for this operator or output type");
  write("");
  WriteArray("scales.npy", "<f2", grouped.b_scales, 2, 3);
  EXPECT_EQ(ErrorOf(),
            "scales.npy: is f2 (2, 3); expected f4 or f2 (3, 2), a value for each column and group");
  write("");
  WriteArray("weights.npy", "|u1", std::vector<uint8_t>(120, 16), 3, 40);
  EXPECT_EQ(ErrorOf(), "weights.npy: has the value 16; expected 0 to 15 for u4");
  write("");
  WriteText("weights.npy", tests::Npy(tests::Dict("|u1", "(2, 3, 40)"), std::string(240, '\0')));
  EXPECT_EQ(ErrorOf(), "weights.npy: is u1 (2, 3, 40); expected u1 (N, K), for u4 weights of one expert");
  write("");
  WriteArray("activations.npy", "|u1", std::vector<uint8_t>(80, 16), 2, 40);
  EXPECT_EQ(ErrorOf(), "activations.npy: is u1 (2, 40); expected f4, f2 or i1 (M, 40), K as in weights.npy");
  write("");
  WriteArray("activations.npy", "|i1", std::vector<uint8_t>(80, 16), 2, 40);
  EXPECT_THAT(ErrorOf(), testing::HasSubstr("a_scales.npy: "));
  WriteArray("a_scales.npy", "<f4", Bytes<float>({1, -1}), 2);
  EXPECT_EQ(ErrorOf(), "a_scales.npy: has the value -1; expected finite values ≥ 0");
  WriteArray("a_scales.npy", "<f4", Bytes<float>({1, std::numeric_limits<float>::infinity()}), 2);
  EXPECT_EQ(ErrorOf(), "a_scales.npy: has the value inf; expected finite values ≥ 0");
  WriteArray("a_scales.npy", "<f4", Bytes<float>({1, 0}), 2);
  WriteArray("a_zero_points.npy", "<i4", Bytes<int32_t>({0, 128}), 2);
  EXPECT_EQ(ErrorOf(), "a_zero_points.npy: has the value 128; expected -128 to 127 for s8 activations");
  write("");
  EXPECT_EQ(ErrorOf(), "a_scales.npy: belongs to i1 activations; activations.npy has f4");
}

// A plan that intact refuses is no run of the target.
TEST_F(GroupedLayerTest, IsRefusedBeforeTheTargetRuns) {
  const Problem problem = *Problem::Parse("grouped u8u8f32 m=1 n=1 k=33025 group=0 src=none");
  reference::Grouped grouped = MaterializeGrouped(problem);
  grouped.k += 1;
  grouped.a.assign(static_cast<size_t>(grouped.k), 255);
  grouped.b.assign(static_cast<size_t>(grouped.k), 255);
  grouped.a_zero_points = {0};
  grouped.has_b_zero_points = true;
  grouped.b_zero_points = {0};
  Layer layer;
  layer.operation = grouped;
  int runs = 0;
  const Mutant target([&runs](const reference::Grouped& given) {
    ++runs;
    return Outputs(given);
  });
  EXPECT_FALSE(CheckGroupedLayer(layer, target, "target", INTACT_ISA_ANY, {}, std::nullopt));
  EXPECT_EQ(runs, 0);
}

// ----- sweeps ----------------------------------------------------------------------------------------------

// The reference, without some features.
class Limited : public Target {
 public:
  explicit Limited(uint64_t lacking) : features_(kAllFeatures & ~lacking) {}
  std::string Name() const override { return "limited"; }
  FeatureMasks Features() const override { return {0, 0, features_}; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    if ((FeaturesOf(operation, options) & ~features_) != 0) return Error{INTACT_UNSUPPORTED, "a feature"};
    return Outputs(std::get<reference::Grouped>(operation));
  }

 private:
  uint64_t features_;
};

TEST(GroupedSweepTest, TargetsWithoutZeroPointsRunAllProblems) {
  const uint64_t no_za = INTACT_TARGET_BIT(INTACT_TARGET_A_ZERO_POINT);
  const uint64_t dynamic = INTACT_TARGET_BIT(INTACT_TARGET_DYNAMIC_ROWS);
  const uint64_t given = INTACT_TARGET_BIT(INTACT_TARGET_ROW_QUANTIZATION);
  const uint64_t s8 = INTACT_TARGET_BIT(INTACT_TARGET_A_S8);
  for (const uint64_t lacking : {no_za, no_za | dynamic, no_za | s8, no_za | dynamic | s8, no_za | given}) {
    const Limited target(lacking);
    int64_t problems = 0;
    for (const Problem& drawn : GroupedSweepProblems({{INTACT_ISA_ANY}}, Effort::kQuick)) {
      const Problem fitted = FittedGrouped(drawn, target.Features().grouped);
      ASSERT_FALSE(fitted.Check()) << fitted.ToString();
      EXPECT_EQ(FeaturesOf(MaterializeGrouped(fitted), RunOptionsOf(fitted)) & lacking, 0)
          << fitted.ToString();
      if (++problems == 200) break;
    }
  }
}

}  // namespace
}  // namespace intact::verify
