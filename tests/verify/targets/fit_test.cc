// Problems fitted to a target's features: valid, distinct, supported, and many.
#include "verify/targets/fit.h"
#include "tests/support/gemm_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/types.h"
#include "reference/models/arithmetic.h"
#include "tests/support/sanitized.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/features.h"

namespace intact::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// One of this many standard problems is checked.
constexpr int64_t kStep = tests::kSanitized ? 8 : 1;

// The standard sweep, or every `step`-th problem of it.
std::vector<Problem> Standard(size_t step = kStep) {
  constexpr std::array kIsa = {INTACT_ISA_ANY};
  constexpr std::array kMode = {INTACT_EXACT};
  const std::vector<Problem> all = SweepProblems(kIsa, kMode, Effort::kStandard);
  std::vector<Problem> some;
  for (size_t i = 0; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

template <class... Features>
uint64_t Bits(Features... features) {
  return (INTACT_TARGET_BIT(features) | ...);
}
// All features except `lacking`, of every operation.
FeatureMasks Without(uint64_t lacking) { return {kAllFeatures & ~lacking, kAllFeatures & ~lacking}; }

uint64_t FeaturesOf(const Problem& problem) {
  return verify::FeaturesOf(Materialize(problem), RunOptionsOf(problem));
}

std::vector<Taken> AllTypes() {
  std::vector<Taken> all;
  for (const intact_type c : core::kOutputTypes) {
    for (const intact_type a : {INTACT_U8, INTACT_S8}) {
      for (const intact_type b : {INTACT_U8, INTACT_S8}) all.push_back(Taken{{a, b, c}});
    }
  }
  return all;
}

// Fits the sweep and checks each problem. Counts GEMMs and convolutions.
struct Counts {
  int64_t gemms = 0, convs = 0;
};
Counts CheckedFit(const Takes& takes, size_t step = kStep) {
  const std::vector<Problem> standard = Standard(step);
  const FittedProblems fitted = Fit(standard, takes);
  EXPECT_EQ(fitted.of, std::ssize(standard));
  Counts counts;
  std::set<std::string> lines;
  for (const Problem& problem : fitted.problems) {
    const std::string line = problem.ToString();
    EXPECT_FALSE(problem.Check()) << line;
    EXPECT_TRUE(lines.insert(line).second) << line;
    EXPECT_EQ(FeatureNames(FeaturesOf(problem) & ~(problem.conv ? takes.features.conv : takes.features.gemm)),
              "")
        << line;
    const std::vector<Taken>& types = problem.conv ? takes.conv : takes.gemm;
    const Types own = {problem.a_type, problem.b_type, problem.c_type};
    const auto taken = std::ranges::find_if(types, [&](const Types& other) { return other == own; });
    if (taken == types.end()) {
      ADD_FAILURE() << line;
      continue;
    }
    const auto& [m, n, k] = taken->multiples;
    if (!problem.conv) {
      EXPECT_EQ(problem.m % m + problem.n % n + problem.k % k, 0) << line;
    } else if (problem.conv->groups == 1 || problem.conv->GroupInputs() > 1) {
      EXPECT_EQ(problem.conv->GroupOutputs() % n + problem.conv->GroupInputs() % k, 0) << line;
    }
    ++(problem.conv ? counts.convs : counts.gemms);
  }
  return counts;
}

TEST(Fit, LeavesProblemsAsTheyAreWhereNothingIsLacking) {
  const std::vector<Problem> standard = Standard();
  const FittedProblems fitted = Fit(standard, {FeatureMasks(), AllTypes(), AllTypes()});
  EXPECT_EQ(fitted.left_out, 0);
  EXPECT_THAT(fitted.lacking, IsEmpty());
  for (const Problem& problem : fitted.problems) {
    Problem bare = problem;
    bare.open_extents = bare.own_scratch = bare.saved = false;
    bare.usual_m = 0;
    bare.range_check = INTACT_RANGE_CHECKED;
    EXPECT_EQ(problem, bare);  // options of our plans mean nothing to other targets
  }
  EXPECT_GT(std::ssize(fitted.problems), std::ssize(standard) * 9 / 10);
}

TEST(Features, HaveItemsByPointersWhateverTheirNumber) {
  const auto has = [](const char* line, intact_target_feature feature) {
    const Result<Problem> problem = Problem::Parse(line);
    EXPECT_TRUE(problem) << line;
    return (FeaturesOf(*problem) & INTACT_TARGET_BIT(feature)) != 0;
  };
  const char* one = "gemm u8s8s32 m=1 n=1 k=1 items=pointers";
  EXPECT_TRUE(has(one, INTACT_TARGET_BATCH_POINTERS));
  EXPECT_FALSE(has(one, INTACT_TARGET_BATCH));
  EXPECT_TRUE(has("gemm u8s8s32 m=1 n=1 k=1 batch=2 items=pointers", INTACT_TARGET_BATCH_POINTERS));
  EXPECT_TRUE(has("gemm u8s8s32 m=1 n=1 k=1 batch=2", INTACT_TARGET_BATCH));
}

TEST(Fit, FindsManyProblemsForTheLeastTarget) {
  const uint64_t least = Bits(INTACT_TARGET_A_S8, INTACT_TARGET_B_S8, INTACT_TARGET_C_S8, INTACT_TARGET_GEMM,
                              INTACT_TARGET_CONV_2D);
  const std::vector<Taken> types = {Taken{{INTACT_S8, INTACT_S8, INTACT_S8}}};
  const Counts counts = CheckedFit({{least, least}, types, types});
  EXPECT_GT(counts.gemms, 2000 / kStep);
  EXPECT_GT(counts.convs, 250 / kStep);
}

TEST(Fit, KeepsToTypesThatAreTakenTogether) {
  const std::vector<Taken> types = {Taken{{INTACT_U8, INTACT_U8, INTACT_U8}},
                                    Taken{{INTACT_S8, INTACT_S8, INTACT_S32}}};
  const Counts counts = CheckedFit({FeatureMasks(), types, {Taken{{INTACT_S8, INTACT_U8, INTACT_F32}}}});
  EXPECT_GT(counts.gemms, 3000 / kStep);
  EXPECT_GT(counts.convs, 500 / kStep);
}

TEST(Fit, HasOnlyWhatIsTaken) {
  const uint64_t gemm = Bits(INTACT_TARGET_A_U8, INTACT_TARGET_B_S8, INTACT_TARGET_C_S32, INTACT_TARGET_GEMM,
                             INTACT_TARGET_THREADS, INTACT_TARGET_A_ZERO_POINT);
  const Counts gemms = CheckedFit({{gemm, gemm}, {Taken{{INTACT_U8, INTACT_S8, INTACT_S32}}}, {}});
  EXPECT_GT(gemms.gemms, 1000 / kStep);
  EXPECT_EQ(gemms.convs, 0);
  const uint64_t conv = Bits(INTACT_TARGET_A_U8, INTACT_TARGET_B_S8, INTACT_TARGET_C_F32,
                             INTACT_TARGET_CONV_3D, INTACT_TARGET_CONV_DEPTHWISE,
                             INTACT_TARGET_CONV_TRANSPOSED, INTACT_TARGET_BIAS_S32, INTACT_TARGET_RELU);
  const Counts convs = CheckedFit({{conv, conv}, {}, {Taken{{INTACT_U8, INTACT_S8, INTACT_F32}}}});
  EXPECT_EQ(convs.gemms, 0);
  EXPECT_GT(convs.convs, 200 / kStep);
}

// An additional column may have its own scale or zero point.
TEST(Fit, RoundsUpBeforeItTakesFeaturesOut) {
  const std::vector<Taken> types = {Taken{{INTACT_U8, INTACT_S8, INTACT_U8}, {1, 16, 4}}};
  const uint64_t lacking = Bits(INTACT_TARGET_CHANNEL_SCALES, INTACT_TARGET_B_ZERO_POINTS);
  const Counts counts = CheckedFit({Without(lacking), types, types});
  EXPECT_GT(counts.gemms, 2000 / kStep);
  EXPECT_GT(counts.convs, 250 / kStep);
}

// Each feature alone is removed from every problem that has it. Most problems remain.
TEST(Fit, TakesOutEachFeature) {
  for (int i = INTACT_TARGET_A_ZERO_POINT; i < INTACT_TARGET_FEATURES; ++i) {
    const uint64_t lacking = INTACT_TARGET_BIT(i);
    SCOPED_TRACE(FeatureNames(lacking));
    const Counts counts = CheckedFit({Without(lacking), AllTypes(), AllTypes()}, 17 * kStep);
    EXPECT_GT(counts.gemms, i == INTACT_TARGET_GEMM ? -1 : 120 / kStep);
    EXPECT_GT(counts.convs, 20 / kStep);
  }
}

// A target without the bit still gets dynamic quantization, but of finite numbers only.
TEST(Fit, TakesOutNumbersThatHaveNoScale) {
  const Takes takes = {Without(Bits(INTACT_TARGET_DYNAMIC_NAN)), AllTypes(), AllTypes()};
  for (const std::string source : {"f32", "bf16", "f16"}) {
    for (const std::string quantization : {"dynamic_rows", "dynamic_tensor"}) {
      const std::string line = "gemm u8s8f32 m=9 n=3 k=7 quant=" + quantization + " src=" + source;
      const Problem problem = *Problem::Parse(line + " x=nonfinite");
      EXPECT_NE(FeaturesOf(problem) & INTACT_TARGET_BIT(INTACT_TARGET_DYNAMIC_NAN), 0u) << line;
      const std::optional<Problem> fitted = Fit(problem, takes);
      ASSERT_TRUE(fitted) << line;
      EXPECT_EQ(*fitted, *Problem::Parse(line + " x=normal"));
      EXPECT_EQ(FeaturesOf(*fitted) & INTACT_TARGET_BIT(INTACT_TARGET_DYNAMIC_NAN), 0u) << line;
    }
  }
}

// Takes u8×u8→u8 and s8×s8→s8, GEMMs of at least 16 rows, and fails for convolutions.
class Picky : public Target {
 public:
  std::string Name() const override { return "picky"; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& /*options*/) const override {
    const reference::Linear& linear = LinearOf(operation);
    const auto* gemm = std::get_if<reference::Gemm>(&operation);
    const bool takes =
        gemm == nullptr ? linear.c_type == INTACT_S32
                        : gemm->m >= 16 && linear.a_type == linear.b_type && linear.b_type == linear.c_type;
    if (!takes) return Error{INTACT_UNSUPPORTED, "not that"};
    if (gemm == nullptr) return Error{INTACT_CODEGEN_FAILED, "broken"};
    return reference::Predict(operation, {});
  }
};

TEST(TakesOf, AsksForTypesTogether) {
  const Takes takes = TakesOf(Picky());
  EXPECT_EQ(takes.features, FeatureMasks());
  EXPECT_THAT(takes.gemm, ElementsAre(Taken{{INTACT_U8, INTACT_U8, INTACT_U8}},
                                      Taken{{INTACT_S8, INTACT_S8, INTACT_S8}}));
  EXPECT_EQ(takes.conv.size(), 4u);  // failures count as taken; the sweep reports them
}

// Takes only numbers of columns that are multiples of 100, and u8×s8 or s8×s8.
class Granular : public GemmTarget {
 public:
  std::string Name() const override { return "granular"; }
  FeatureMasks Features() const override {
    return {Bits(INTACT_TARGET_GEMM, INTACT_TARGET_A_U8, INTACT_TARGET_A_S8, INTACT_TARGET_B_S8,
                 INTACT_TARGET_C_S32),
            0};
  }
  Result<std::vector<uint8_t>> RunGemm(const reference::Gemm& gemm,
                                       const RunOptions& /*options*/) const override {
    if (gemm.n % 100 != 0) return Error{INTACT_UNSUPPORTED, "columns by 100"};
    return reference::Predict(gemm, {});
  }
};

TEST(TakesOf, IsWhatIsDeclaredWhereNoSmallProblemIsTaken) {
  const Takes takes = TakesOf(Granular());
  EXPECT_THAT(takes.gemm, ElementsAre(Taken{{INTACT_U8, INTACT_S8, INTACT_S32}},
                                      Taken{{INTACT_S8, INTACT_S8, INTACT_S32}}));
  EXPECT_THAT(takes.conv, IsEmpty());
}

// Takes depths that are multiples of 4, and for unsigned weights multiples of 16 columns.
class Blocked : public Target {
 public:
  std::string Name() const override { return "blocked"; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation, const RunOptions&) const override {
    const std::string why =
        reference::VisitLinear([](const auto& one) { return WhyRefused(one); }, operation);
    if (!why.empty()) return Error{INTACT_UNSUPPORTED, why};
    return reference::Predict(operation, {});
  }

 private:
  static std::string WhyRefused(const reference::Gemm& gemm) {
    if (gemm.k % 4 != 0) return "depths by 4";
    return gemm.n % 16 != 0 && gemm.b_type == INTACT_U8 ? "columns by 16" : "";
  }
  static std::string WhyRefused(const reference::Conv& conv) {
    return conv.geometry.GroupInputs() % 8 != 0 ? "channels by 8" : "";
  }
};

TEST(TakesOf, FindsTheMultiplesThatSizesHaveToBe) {
  const Takes takes = TakesOf(Blocked());
  using Multiples = std::array<int64_t, 3>;
  ASSERT_EQ(takes.gemm.size(), AllTypes().size());
  for (const Taken& taken : takes.gemm) {
    EXPECT_EQ(taken.multiples, (Multiples{1, taken.b == INTACT_U8 ? 16 : 1, 4})) << ToString(taken);
  }
  ASSERT_EQ(takes.conv.size(), AllTypes().size());
  for (const Taken& taken : takes.conv) EXPECT_EQ(taken.multiples, (Multiples{1, 1, 8})) << ToString(taken);
  const Counts counts = CheckedFit(takes, 7 * kStep);
  EXPECT_GT(counts.gemms, 400 / kStep);
  EXPECT_GT(counts.convs, 50 / kStep);
  // The counts add up to the number of problems.
  const std::string text = ToText(Fit(Standard(7 * kStep), takes), "");
  std::smatch counted;
  ASSERT_TRUE(std::regex_search(
      text, counted,
      std::regex("^(\\d+) problems, made from the sweep's \\d+: (\\d+) unchanged, (\\d+) with "
                 "sizes rounded up to what it takes, (\\d+) with other types or features\n")))
      << text;
  EXPECT_EQ(std::stoi(counted[1]), std::stoi(counted[2]) + std::stoi(counted[3]) + std::stoi(counted[4]))
      << text;
}

// Remembers its runs, like a process with state.
class Remembering : public Picky {
 public:
  std::unique_ptr<Target> Fresh() const override { return std::make_unique<Remembering>(); }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    if (std::holds_alternative<reference::Gemm>(operation)) ++runs;
    return Picky::Run(operation, options);
  }
  mutable int runs = 0;
};

TEST(TakesOf, AsksAProcessOfItsOwn) {
  const Remembering target;
  EXPECT_EQ(TakesOf(target).gemm.size(), 2u);
  EXPECT_EQ(target.runs, 0);
}

TEST(FittedText, EndsWhereNothingIsLacking) {
  const std::vector<Problem> standard = Standard();
  const FittedProblems fitted = Fit(standard, {FeatureMasks(), AllTypes(), AllTypes()});
  EXPECT_THAT(ToText(fitted, ""), testing::EndsWith(ToString(AllTypes().back()) + "\n"));
}

TEST(FittedText, SaysWhatIsTakenAndByWhat) {
  const Takes takes = {FeatureMasks(), {Taken{{INTACT_U8, INTACT_S8, INTACT_S32}, {1, 16, 4}}}, {}};
  EXPECT_THAT(ToText(Fit(Standard(), takes), "  "),
              HasSubstr("\n  of GEMMs u8s8s32 (n by 16) (k by 4) and no convolutions\n"));
}

// Problems of a quick sweep are problems of the standard sweep, also for a target of few types.
TEST(Fit, MakesTheSameOfAProblemInWhateverSweep) {
  const std::vector<Taken> types = {Taken{{INTACT_U8, INTACT_S8, INTACT_S32}},
                                    Taken{{INTACT_S8, INTACT_S8, INTACT_U8}},
                                    Taken{{INTACT_U8, INTACT_U8, INTACT_F32}}};
  const Takes takes = {FeatureMasks(), types, types};
  constexpr std::array kIsa = {INTACT_ISA_ANY};
  constexpr std::array kMode = {INTACT_EXACT};
  std::set<std::string> lines;
  for (const Problem& p : Fit(Standard(1), takes).problems) lines.insert(p.ToString());
  for (const Problem& p : Fit(SweepProblems(kIsa, kMode, Effort::kQuick), takes).problems) {
    EXPECT_TRUE(lines.contains(p.ToString())) << p.ToString();
  }
}

TEST(FittedText, SaysWhatIsLacking) {
  const std::vector<Problem> standard = Standard();
  const FittedProblems fitted = Fit(standard, {Without(Bits(INTACT_TARGET_C_BF16)), AllTypes(), AllTypes()});
  EXPECT_THAT(ToText(fitted, "  "), HasSubstr("\n  without bf16 outputs ("));
  ASSERT_EQ(fitted.lacking.size(), 1u);
  EXPECT_EQ(fitted.lacking[0].name, "bf16 outputs");
}

}  // namespace
}  // namespace intact::verify
