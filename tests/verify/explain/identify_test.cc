// Every planted arithmetic is identified, and no arithmetic is claimed without evidence.
#include "verify/explain/identify.h"
#include "core/types.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/random.h"
#include "tests/support/expect_model.h"
#include "tests/support/long.h"
#include "tests/support/printers.h"
#include "tests/support/sanitized.h"

namespace intact::verify {
namespace {

using reference::Arithmetic;
using reference::Model;
using reference::Rounding;
using testing::HasSubstr;
using Shape = OperationKind::Shape;

// ----- problems that distinguish all models ----------------------------------------------------------------

void FillWithAnything(int64_t activations, int64_t weights, reference::Linear* operation) {
  support::Random random(3, 0, 0);
  for (int64_t i = 0; i < activations; ++i) operation->a.push_back(static_cast<uint8_t>(random.Next()));
  for (int64_t i = 0; i < weights; ++i) operation->b.push_back(static_cast<int8_t>(random.Next()));
}

// Products of one sign and almost the largest magnitude: sums exceed int32, whichever operand is shifted.
// Many products are odd, so float32 rounds their sums. The activations of the last eighth are the smallest:
// only sums with unsigned weights come back from the end of int32. Columns have compensations of both signs.
void FillWithLarge(int64_t activations, int64_t weights, reference::Linear* operation) {
  support::Random random(4, 0, 0);
  operation->a.assign(static_cast<size_t>(activations), operation->a_type == INTACT_U8 ? 255 : 127);
  std::fill(operation->a.end() - activations / 8, operation->a.end(),
            operation->a_type == INTACT_U8 ? 0 : 128);
  const int64_t largest = operation->b_type == INTACT_U8 ? -2 : 126;
  for (int64_t i = 0; i < weights; ++i) {
    operation->b.push_back(static_cast<int8_t>(random.Integer(largest - 1, largest)));
  }
  operation->bias_s32 = {1'500'000'000, 0, -1'000'000'000};
}

reference::Gemm MakeGemm(const OperationKind& kind, int64_t m, int64_t n, int64_t k) {
  reference::Gemm gemm;
  gemm.a_type = kind.a_type;
  gemm.b_type = kind.b_type;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  return gemm;
}

reference::Conv MakeConv(const OperationKind& kind, int64_t inputs, int64_t outputs, int64_t groups,
                         int64_t kernel, int64_t lines = 1) {
  reference::Conv conv;
  conv.a_type = kind.a_type;
  conv.b_type = kind.b_type;
  conv.geometry.dims = 2;
  conv.geometry.input_channels = inputs;
  conv.geometry.output_channels = outputs;
  conv.geometry.groups = groups;
  conv.geometry.axes[1].input = conv.geometry.axes[1].kernel = lines;
  conv.geometry.axes[2].input = conv.geometry.axes[2].kernel = kernel;
  return conv;
}

// Few depths and many outputs, so that halves are odd; depths of at least the lanes that are widened now and
// then; and sums beyond int32.
std::vector<reference::Gemm> StandardGemms(const OperationKind& kind) {
  std::vector<reference::Gemm> gemms = {MakeGemm(kind, 4, 8, 301), MakeGemm(kind, 4, 8, 577),
                                        MakeGemm(kind, 3, 4, 9000), MakeGemm(kind, 1, 3, 80000)};
  FillWithAnything(4 * 301, 8 * 301, &gemms[0]);
  FillWithAnything(4 * 577, 8 * 577, &gemms[1]);
  FillWithAnything(3 * 9000, 4 * 9000, &gemms[2]);
  FillWithLarge(80000, 3 * 80000, &gemms[3]);
  return gemms;
}

// Adds padding under a tap. It holds a large zero point.
void Pad(reference::Conv* conv) {
  conv->geometry.axes[2].pad_begin = 1;
  conv->a_zero_point = conv->a_type == INTACT_U8 ? 200 : 72;
}

// Convolutions of these kinds; also with taps of an odd number of channels, and with depths that fit all
// distances.
std::vector<reference::Conv> StandardConvs(const OperationKind& kind) {
  if (kind.shape == Shape::kDepthwise) {
    std::vector<reference::Conv> convs = {MakeConv(kind, 24, 24, 24, 43, 7), MakeConv(kind, 24, 24, 24, 577),
                                          MakeConv(kind, 12, 12, 12, 9000), MakeConv(kind, 3, 3, 3, 80000)};
    FillWithAnything(24 * 301, 24 * 301, &convs[0]);
    FillWithAnything(24 * 577, 24 * 577, &convs[1]);
    FillWithAnything(12 * 9000, 12 * 9000, &convs[2]);
    FillWithLarge(3 * 80000, 3 * 80000, &convs[3]);
    for (size_t i = 0; i < 2; ++i) Pad(&convs[i]);
    return convs;
  }
  std::vector<reference::Conv> convs = {MakeConv(kind, 3, 24, 1, 11, 9), MakeConv(kind, 3, 24, 1, 195),
                                        MakeConv(kind, 70, 12, 1, 5), MakeConv(kind, 3, 12, 1, 3001),
                                        MakeConv(kind, 2, 3, 1, 40000)};
  FillWithAnything(3 * 99, 24 * 3 * 99, &convs[0]);
  FillWithAnything(3 * 195, 24 * 3 * 195, &convs[1]);
  FillWithAnything(70 * 5, 12 * 70 * 5, &convs[2]);
  FillWithAnything(3 * 3001, 12 * 3 * 3001, &convs[3]);
  FillWithLarge(2 * 40000, 3 * 2 * 40000, &convs[4]);
  for (size_t i = 0; i < 2; ++i) Pad(&convs[i]);
  return convs;
}

// The models that reproduce all outputs of several problems, the least unusual first.
class Common {
 public:
  template <class Operation>
  void Add(const Operation& operation, const Arithmetic& arithmetic) {
    identities_.push_back(Identify(operation, reference::Predict(operation, arithmetic)));
    const Identity& identity = identities_.back();
    ASSERT_TRUE(identity.Found()) << InWords(identity);
    std::vector<Arithmetic> found = identity.also;
    found.insert(found.begin(), identity.arithmetic);
    if (identities_.size() == 1) found_ = found;
    std::erase_if(found_,
                  [&](const Arithmetic& old) { return std::ranges::find(found, old) == found.end(); });
  }
  const std::vector<Arithmetic>& found() const { return found_; }
  const std::vector<Identity>& identities() const { return identities_; }

 private:
  std::vector<Arithmetic> found_;
  std::vector<Identity> identities_;
};

template <class Visit>
void VisitStandard(const OperationKind& kind, const Visit& visit) {
  if (kind.shape == Shape::kGemm) {
    for (const reference::Gemm& gemm : StandardGemms(kind)) visit(gemm);
  } else {
    for (const reference::Conv& conv : StandardConvs(kind)) visit(conv);
  }
}

class Kinds : public testing::TestWithParam<OperationKind> {};

TEST_P(Kinds, NoTwoCandidatesAreTheSame) {
  std::map<std::vector<int32_t>, std::string> by_accumulators;
  for (const Model& model : CandidateModels(GetParam())) {
    std::vector<int32_t> all;
    VisitStandard(GetParam(), [&](const auto& operation) {
      const std::vector<int32_t> y = reference::Accumulators(operation, model);
      all.insert(all.end(), y.begin(), y.end());
    });
    const auto [at, is_new] = by_accumulators.emplace(all, ToString(model));
    EXPECT_TRUE(is_new) << ToString(model) << " equals " << at->second;
  }
}

TEST_P(Kinds, EachModelIsFound) {
  const OperationKind kind = GetParam();
  const size_t step = tests::IsLong() ? 1 : 16;
  const std::vector<Model> models = CandidateModels(kind);
  for (size_t i = 0; i < models.size(); i += step) {
    const Model& model = models[i];
    // Only GEMMs test all of them, because they are many.
    if (kind.shape != Shape::kGemm && IsOddInterval(model.spill) && model.spill != 9) continue;
    Common common;
    VisitStandard(kind, [&](const auto& operation) { common.Add(operation, {model}); });
    for (const Identity& identity : common.identities()) {
      EXPECT_EQ(identity.kind, kind);
      EXPECT_TRUE(identity.would_show_clamping);
    }
    ASSERT_FALSE(common.found().empty()) << ToString(model);
    EXPECT_EQ(ToString(common.found()[0]), ToString(model));
    const auto alike = [](const Arithmetic& arithmetic) {
      return arithmetic.rounding == Rounding::kContract;
    };
    EXPECT_EQ(std::ranges::count_if(common.found(), alike), 1) << ToString(common.found().back());
    EXPECT_EQ(std::ranges::all_of(common.identities(),
                                  [](const Identity& identity) { return identity.differing == 0; }),
              model == Model::kExact);
  }
}

TEST_P(Kinds, TextsAreReadBack) {
  std::set<std::string> texts;
  for (const Model& model : CandidateModels(GetParam())) {
    for (const Rounding rounding : reference::kAllRoundings) {
      const Arithmetic arithmetic = {model, rounding};
      const std::string text = ToString(arithmetic);
      EXPECT_TRUE(texts.insert(text).second) << text;
      EXPECT_EQ(reference::ParseArithmetic(text), arithmetic) << text;
    }
  }
}

constexpr OperationKind kKinds[] = {{Shape::kGemm, INTACT_U8, INTACT_S8, INTACT_S32},
                                    {Shape::kGemm, INTACT_S8, INTACT_S8, INTACT_S32},
                                    {Shape::kGemm, INTACT_U8, INTACT_U8, INTACT_S32},
                                    {Shape::kConv, INTACT_U8, INTACT_S8, INTACT_S32},
                                    {Shape::kDepthwise, INTACT_S8, INTACT_S8, INTACT_S32}};

std::string NameOf(const testing::TestParamInfo<OperationKind>& kind) {
  std::string name = ToString(kind.param);
  std::ranges::replace(name, ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Kinds, testing::ValuesIn(kKinds), NameOf);
INSTANTIATE_TEST_SUITE_P(Long, Kinds, testing::ValuesIn(kKinds), NameOf);

// ----- roundings ------------------------------------------------------------------------------------------

// One row, one depth, and columns with a bias that cancels the scaled sum except for `rest`. The residual may
// cancel `rest` too. Then the last bit of every step is visible. For 8-bit outputs a tie or almost a tie
// remains.
reference::Gemm Cancelling(intact_type c_type, bool has_rows, bool has_residual) {
  constexpr int64_t kColumns = 4000;
  support::Random random(5, 0, 0);
  const auto between = [&](float low, float high) {
    return low + (high - low) * static_cast<float>(random.Integer(0, 1 << 20)) * 0x1p-20f;
  };
  const bool is_int8 = core::BytesOf(c_type) == 1;
  reference::Gemm gemm = MakeGemm({Shape::kGemm, INTACT_U8, INTACT_S8, c_type}, 1, kColumns, 1);
  gemm.c_type = c_type;
  gemm.c_zero_point = c_type == INTACT_U8 ? 127 : is_int8 ? 1 : 0;
  gemm.a = {255};
  if (has_rows) gemm.a_scales = {1.7f};
  if (has_residual) gemm.post_ops.Add(core::AddResidual{INTACT_F32, 0.3f});
  for (int64_t n = 0; n < kColumns; ++n) {
    gemm.b.push_back(static_cast<int8_t>(random.Integer(-128, 127)));
    gemm.scales.push_back(between(0.05f, 0.1f));
    const float scale = has_rows ? gemm.scales.back() * 1.7f : gemm.scales.back();
    const float scaled = static_cast<float>(255 * gemm.b.back()) * scale;
    const float rest = is_int8 ? static_cast<float>(random.Integer(-30, 30)) + 0.5f : between(1.0f, 2.0f);
    gemm.bias_f32.push_back(rest - scaled);
    if (!has_residual) continue;
    const float residual = (is_int8 ? 2.7f : -rest) / 0.3f;
    const auto bytes = std::bit_cast<std::array<uint8_t, sizeof residual>>(residual);
    gemm.residual.insert(gemm.residual.end(), bytes.begin(), bytes.end());
  }
  return gemm;
}

// Accumulators of all sizes with only a scale: ties of 8-bit and bfloat16 outputs.
reference::Gemm Scaled(intact_type c_type, float scale) {
  reference::Gemm gemm = MakeGemm({}, 16, 64, 2);
  FillWithAnything(16 * 2, 64 * 2, &gemm);
  gemm.c_type = c_type;
  gemm.c_zero_point = c_type == INTACT_U8 ? 127 : 0;
  gemm.scales = {scale};
  return gemm;
}

// A residual cancels all except a half. For 8-bit outputs that is a tie, unless the product with its scale is
// not rounded.
reference::Gemm CancelledByResidual(intact_type c_type) {
  reference::Gemm gemm = Scaled(c_type, 0.5f);
  gemm.post_ops.Add(core::AddResidual{INTACT_F32, 0.3f});
  for (const int32_t y : reference::Accumulators(gemm, Model::kExact)) {
    const float residual = -std::floor(static_cast<float>(y) * 0.5f) / 0.3f;
    const auto bytes = std::bit_cast<std::array<uint8_t, sizeof residual>>(residual);
    gemm.residual.insert(gemm.residual.end(), bytes.begin(), bytes.end());
  }
  return gemm;
}

std::vector<reference::Gemm> RoundingGemms(intact_type c_type) {
  std::vector<reference::Gemm> gemms = {
      MaterializeGemm(tests::Parsed("gemm u8s8s32 m=6 n=16 k=64 fill=bait"))};
  if (c_type == INTACT_S32) {
    gemms[0].bias_s32.assign(16, (1 << 24) + 1);
    return gemms;
  }
  gemms[0].c_type = c_type;
  gemms[0].scales = {0x1p-10f};
  for (const float scale : {1.0f, 0.5f, 0.011f}) gemms.push_back(Scaled(c_type, scale));
  if (c_type == INTACT_F32 || c_type == INTACT_BF16) gemms.push_back(Scaled(c_type, 0x1p-140f));  // denormal
  if (core::BytesOf(c_type) == 1) {  // products of scales are infinite, and sums of the first row are 0: NaNs
    gemms.push_back(Scaled(c_type, 2.0f));
    gemms.back().a_scales.assign(static_cast<size_t>(gemms.back().m), std::numeric_limits<float>::max());
    std::fill_n(gemms.back().a.begin(), gemms.back().k, uint8_t{0});
  }
  gemms.push_back(CancelledByResidual(c_type));
  gemms.push_back(Scaled(c_type, 0.011f));  // a scale of a real layer: rounding steps change results
  gemms.back().bias_f32.assign(static_cast<size_t>(gemms.back().n), 1.1f);
  gemms.back().float_steps.assign(static_cast<size_t>(gemms.back().n), {150.0f, 0.0114f, 0.0114});
  gemms.push_back(Scaled(c_type, 0.5f));
  gemms.back().post_ops.Add(core::Relu{});
  for (const bool has_rows : {false, true}) {
    for (const bool has_residual : {false, true}) {
      gemms.push_back(Cancelling(c_type, has_rows, has_residual));
    }
  }
  return gemms;
}

class Types : public testing::TestWithParam<std::pair<const char*, intact_type>> {};

TEST_P(Types, EachRoundingIsFound) {
  const intact_type type = GetParam().second;
  const std::vector<reference::Gemm> gemms = RoundingGemms(type);
  for (const Rounding rounding : CandidateRoundings(type)) {
    for (const Model& model : {Model::kExact, Model::kMaddubs}) {
      if (tests::kSanitized && model == Model::kMaddubs) continue;
      Common common;
      for (const reference::Gemm& gemm : gemms) common.Add(gemm, {model, rounding});
      ASSERT_FALSE(common.found().empty());
      EXPECT_EQ(ToString(common.found()[0]), ToString(Arithmetic{model, rounding}));
      for (const Arithmetic& other : std::span(common.found()).subspan(1)) {
        EXPECT_FALSE(other.model == model) << ToString(other) << " is as good";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Types,
                         testing::Values(std::pair{"u8", INTACT_U8}, std::pair{"s8", INTACT_S8},
                                         std::pair{"f32", INTACT_F32}, std::pair{"bf16", INTACT_BF16},
                                         std::pair{"s32", INTACT_S32}),
                         [](const auto& type) { return type.param.first; });

// ----- what is claimed ------------------------------------------------------------------------------------

reference::Gemm GemmOf(std::string_view line) { return MaterializeGemm(tests::Parsed(line)); }

TEST(Identifier, ClaimsNothingThatCouldNotShow) {
  const reference::Gemm gemm = GemmOf("gemm u8s8u8 m=9 n=9 k=64 amax=127 zc=128");
  const Identity identity = Identify(gemm, reference::Predict(gemm, {Model::kMaddubs}));
  EXPECT_EQ(identity.arithmetic, Arithmetic());
  EXPECT_FALSE(identity.would_show_clamping);
  EXPECT_EQ(InWords(identity), "exact: all 81 outputs reproduced; none of them could have shown saturation");
  EXPECT_THAT(identity.also, testing::Contains(Arithmetic{Model::kMaddubs}));
}

TEST(Identifier, SaysWhatItFound) {
  const reference::Gemm bait = GemmOf("gemm u8s8s32 m=6 n=16 k=64 fill=bait");
  EXPECT_EQ(InWords(Identify(bait, reference::Predict(bait, {}))),
            "exact: all 96 outputs reproduced; saturation would have shown");
  const reference::Gemm gemm = GemmOf("gemm u8s8s32 m=16 n=16 k=505");
  EXPECT_EQ(
      InWords(Identify(gemm, reference::Predict(gemm, {Model::kMaddubs}))),
      "pairs of adjacent depths clamped to int16 (maddubs): all 256 outputs reproduced, 256 of them differ "
      "from exact");
}

TEST(Identifier, DistinguishesKinds) {
  const reference::Gemm gemm = GemmOf("gemm s8s8s32 m=4 n=4 k=600");
  const reference::Conv conv =
      MaterializeConv(tests::Parsed("conv u8s8s32 in=9x9 c=3 o=4 kernel=3x3 pad=1x1 fill=uniform"));
  const Model flattened = *reference::ParseModel("maddubs, flattened depth");
  EXPECT_EQ(ToString(Identify(gemm, reference::Predict(gemm, {})).kind), "gemm s8s8s32");
  const Identity identity = Identify(conv, reference::Predict(conv, {flattened}));
  EXPECT_EQ(ToString(identity.kind), "conv u8s8s32");
  EXPECT_EQ(identity.arithmetic, Arithmetic{flattened});
}

TEST(Identifier, NamesTheClosestWhereNothingReproducesAll) {
  const reference::Gemm gemm = GemmOf("gemm u8s8s32 m=7 n=16 k=600 seed=2");
  std::vector<uint8_t> output = reference::Predict(gemm, {Model::kMaddubs});
  output[4 * (16 * 3 + 5)] ^= 1;
  output[4 * (16 * 6 + 7)] ^= 1;
  const Identity identity = Identify(gemm, output);
  EXPECT_FALSE(identity.Found());
  EXPECT_EQ(identity.unexplained, 2);
  EXPECT_EQ(identity.first_place, "m 3 n 5");
  EXPECT_EQ(identity.arithmetic, Arithmetic{Model::kMaddubs});
  EXPECT_THAT(InWords(identity),
              HasSubstr("no model reproduces it: 2 of 112 outputs are unexplained, the first at m 3 n 5: "
                        "implementation error; closest: pairs of adjacent depths"));
}

TEST(Identifier, ReliesOnAccumulatorsWhereTheyAreKnown) {
  const reference::Gemm gemm = GemmOf("gemm u8s8u8 m=1 n=1 k=2 fill=bait zc=128");
  const std::vector<uint8_t> output = reference::Predict(gemm, {});
  std::vector<int32_t> accumulators = reference::Accumulators(gemm, Model::kExact);
  EXPECT_TRUE(Identify(gemm, output, accumulators).Found());
  ++accumulators[0];
  EXPECT_FALSE(Identify(gemm, output, accumulators).Found());
}

// If a problem is too large to try all candidates on it, candidates that reproduce only part are not named.
TEST(Identifier, NamesOnlyWhatReproducesAllOfALargeProblem) {
  const reference::Gemm gemm = GemmOf("gemm u8s8s32 m=200 n=40 k=300 amax=127");
  std::vector<uint8_t> output = reference::Predict(gemm, {});
  EXPECT_TRUE(Identify(gemm, output).Found());
  for (const size_t at : {size_t{1}, output.size() / 2, output.size() - 1}) {
    std::vector<uint8_t> spoilt = output;
    spoilt[at] ^= 1;
    EXPECT_EQ(Identify(gemm, spoilt).unexplained, 1) << at;
  }
}

}  // namespace
}  // namespace intact::verify
