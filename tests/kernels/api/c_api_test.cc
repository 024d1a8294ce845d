// The C ABI: every refusal names the argument and what is wrong with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>
#include <sys/wait.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "core/isas.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/plan.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"

namespace intact::tests {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ----- refusals of a descriptor ----------------------------------------------------------------------------

// A valid descriptor with u8 output and its arrays, which tests make wrong.
struct Draft {
  std::vector<int8_t> b = std::vector<int8_t>(12, 1);
  std::vector<float> scales = {0.5f, 0.25f, 2.0f};
  std::vector<float> bias = {1.0f, 2.0f, 3.0f};
  std::vector<int32_t> zero_points;
  GemmDesc desc = MakeGemmDesc();

  Draft() {
    desc.n = 3;
    desc.k = 4;
    desc.linear.c_type = INTACT_U8;
    desc.linear.scales = scales.data();
    desc.linear.scale_count = 3;
  }
  void SetZeroPoints(std::vector<int32_t> values, int64_t count) {
    zero_points = std::move(values);
    desc.linear.b_zero_points = zero_points.data();
    desc.linear.b_zero_point_count = count;
  }
  void AddResidual(intact_type type, float scale, int32_t zero_point) {
    desc.linear.residual_type = type;
    desc.linear.residual_scale = scale;
    desc.linear.residual_zero_point = zero_point;
  }
  void MakeS32() {
    desc.linear.c_type = INTACT_S32;
    desc.linear.scales = nullptr;
    desc.linear.scale_count = 0;
  }
};

struct Refusal {
  const char* words;
  std::function<void(Draft*)> spoil;
  intact_status status = INTACT_INVALID_ARGUMENT;
};

std::vector<Refusal> Refusals() {
  return {
      {"desc->struct_size is 8", [](Draft* d) { d->desc.struct_size = 8; }},
      {"desc->struct_size is 0", [](Draft* d) { d->desc.struct_size = 0; }},
      {"n is 0", [](Draft* d) { d->desc.n = 0; }},
      {"n is -7", [](Draft* d) { d->desc.n = -7; }},
      {"n is 2147483648", [](Draft* d) { d->desc.n = int64_t{1} << 31; }},
      {"k is 0", [](Draft* d) { d->desc.k = 0; }},
      {"k is -1", [](Draft* d) { d->desc.k = -1; }},
      {"k is 9223372036854775807", [](Draft* d) { d->desc.k = std::numeric_limits<int64_t>::max(); }},
      {"n·k is 4611686014132420609", [](Draft* d) { d->desc.n = d->desc.k = 2147483647; }},
      {"b_stride_k is -1", [](Draft* d) { d->desc.b_stride_k = -1; }},
      {"b_stride_n is -3", [](Draft* d) { d->desc.b_stride_n = -3; }},
      {"b_stride_k is 3 and b_stride_n is 4, so elements of b overlap",
       [](Draft* d) { d->desc.b_stride_n = 4; }},
      {"b_stride_k is 2 and b_stride_n is 1, so elements of b overlap",
       [](Draft* d) { d->desc.b_stride_k = 2; }},
      {"b_stride_k is 1 and b_stride_n is 3, so elements of b overlap",
       [](Draft* d) {
         d->desc.b_stride_k = 1;
         d->desc.b_stride_n = 3;
       }},
      {"a_type is 3", [](Draft* d) { d->desc.linear.a_type = INTACT_S32; }},
      {"a_type is 0", [](Draft* d) { d->desc.linear.a_type = 0; }},
      {"b_type is 4; expected INTACT_U8 or INTACT_S8", [](Draft* d) { d->desc.linear.b_type = INTACT_F32; }},
      {"b_type is 0", [](Draft* d) { d->desc.linear.b_type = 0; }},
      {"b_zero_points is NULL and b_zero_point_count is 1",
       [](Draft* d) { d->desc.linear.b_zero_point_count = 1; }},
      {"b_zero_point_count is 0; expected 1 or n = 3",
       [](Draft* d) {
         d->SetZeroPoints({0, 0, 0}, 0);
       }},
      {"b_zero_point_count is 2",
       [](Draft* d) {
         d->SetZeroPoints({0, 0, 0}, 2);
       }},
      {"b_zero_point_count is -1",
       [](Draft* d) {
         d->SetZeroPoints({0, 0, 0}, -1);
       }},
      {"b_zero_points[0] is 128; expected -128 to 127", [](Draft* d) { d->SetZeroPoints({128}, 1); }},
      {"b_zero_points[2] is -129",
       [](Draft* d) {
         d->SetZeroPoints({127, -128, -129}, 3);
       }},
      {"b_zero_points[1] is 256; expected 0 to 255",
       [](Draft* d) {
         d->desc.linear.b_type = INTACT_U8;
         d->SetZeroPoints({255, 256, 0}, 3);
       }},
      {"b_zero_points[0] is -1",
       [](Draft* d) {
         d->desc.linear.b_type = INTACT_U8;
         d->SetZeroPoints({-1}, 1);
       }},
      {"c_type is 7", [](Draft* d) { d->desc.linear.c_type = 7; }},
      {"mode is 2", [](Draft* d) { d->desc.linear.mode = 2; }},
      {"max_isa is 99", [](Draft* d) { d->desc.linear.max_isa = 99; }},
      {"max_isa is -1", [](Draft* d) { d->desc.linear.max_isa = -1; }},
      {"activation is 3", [](Draft* d) { d->desc.linear.activation = 3; }},
      {"range_check is 2", [](Draft* d) { d->desc.linear.range_check = 2; }},
      {"a_zero_point is 256", [](Draft* d) { d->desc.linear.a_zero_point = 256; }},
      {"a_zero_point is -1", [](Draft* d) { d->desc.linear.a_zero_point = -1; }},
      {"a_zero_point is 128",
       [](Draft* d) {
         d->desc.linear.a_type = INTACT_S8;
         d->desc.linear.a_zero_point = 128;
       }},
      {"a_zero_point is 101",
       [](Draft* d) {
         d->desc.linear.a_max = 100;
         d->desc.linear.a_zero_point = 101;
       }},
      {"c_zero_point is 256", [](Draft* d) { d->desc.linear.c_zero_point = 256; }},
      {"c_zero_point is -129",
       [](Draft* d) {
         d->desc.linear.c_type = INTACT_S8;
         d->desc.linear.c_zero_point = -129;
       }},
      {"c_zero_point is 1",
       [](Draft* d) {
         d->MakeS32();
         d->desc.linear.c_zero_point = 1;
       }},
      {"a_min is 5 and a_max is 4",
       [](Draft* d) {
         d->desc.linear.a_min = 5;
         d->desc.linear.a_max = 4;
       }},
      {"a_min is 0 and a_max is 256", [](Draft* d) { d->desc.linear.a_max = 256; }},
      {"a_min is -1 and a_max is 9",
       [](Draft* d) {
         d->desc.linear.a_min = -1;
         d->desc.linear.a_max = 9;
       }},
      {"a_min is -129",
       [](Draft* d) {
         d->desc.linear.a_type = INTACT_S8;
         d->desc.linear.a_min = -129;
       }},
      {"scales is NULL", [](Draft* d) { d->desc.linear.scales = nullptr; }},
      {"scale_count is 2", [](Draft* d) { d->desc.linear.scale_count = 2; }},
      {"scale_count is 0", [](Draft* d) { d->desc.linear.scale_count = 0; }},
      {"scales[1] is nan", [](Draft* d) { d->scales[1] = kNan; }},
      {"scales[2] is inf", [](Draft* d) { d->scales[2] = kInfinity; }},
      {"scales[0] is -0.5", [](Draft* d) { d->scales[0] = -0.5f; }},
      {"scales", [](Draft* d) { d->desc.linear.c_type = INTACT_S32; }},
      {"bias_f32[2] is nan",
       [](Draft* d) {
         d->bias[2] = kNan;
         d->desc.linear.bias_f32 = d->bias.data();
       }},
      {"bias_f32[0] is -inf",
       [](Draft* d) {
         d->bias[0] = -kInfinity;
         d->desc.linear.bias_f32 = d->bias.data();
       }},
      {"bias_f32",
       [](Draft* d) {
         d->MakeS32();
         d->desc.linear.bias_f32 = d->bias.data();
       }},
      {"activation",
       [](Draft* d) {
         d->MakeS32();
         d->desc.linear.activation = INTACT_ACTIVATION_RELU;
       }},
      {"clamp_min is 2 and clamp_max is 1",
       [](Draft* d) {
         d->desc.linear.activation = INTACT_ACTIVATION_CLAMP;
         d->desc.linear.clamp_min = 2.0f;
         d->desc.linear.clamp_max = 1.0f;
       }},
      {"clamp_min is nan",
       [](Draft* d) {
         d->desc.linear.activation = INTACT_ACTIVATION_CLAMP;
         d->desc.linear.clamp_min = kNan;
       }},
      {"clamp_max is nan",
       [](Draft* d) {
         d->desc.linear.activation = INTACT_ACTIVATION_CLAMP;
         d->desc.linear.clamp_max = kNan;
       }},
      {"clamp_min and clamp_max are 0; expected the bounds of INTACT_ACTIVATION_CLAMP",
       [](Draft* d) { d->desc.linear.activation = INTACT_ACTIVATION_CLAMP; }},
      {"scales[1] is -1e-40; expected a finite value of at least 0",
       [](Draft* d) { d->scales[1] = -1e-40f; }},
      {"residual_type is 3; expected INTACT_TYPE_NONE, INTACT_U8, INTACT_S8 or INTACT_F32",
       [](Draft* d) { d->AddResidual(INTACT_S32, 1.0f, 0); }},
      {"residual_type is -1", [](Draft* d) { d->desc.linear.residual_type = -1; }},
      {"residual_type is 1 with s32 output",
       [](Draft* d) {
         d->MakeS32();
         d->AddResidual(INTACT_U8, 1.0f, 0);
       }},
      {"residual_scale is nan; expected a finite value above 0",
       [](Draft* d) { d->AddResidual(INTACT_U8, kNan, 0); }},
      {"residual_scale is inf", [](Draft* d) { d->AddResidual(INTACT_S8, kInfinity, 0); }},
      {"residual_scale is 0; expected a finite", [](Draft* d) { d->AddResidual(INTACT_F32, 0.0f, 0); }},
      {"residual_scale is -0.5", [](Draft* d) { d->AddResidual(INTACT_F32, -0.5f, 0); }},
      {"residual_scale is 0.5; expected 0, because residual_type is INTACT_TYPE_NONE",
       [](Draft* d) { d->AddResidual(INTACT_TYPE_NONE, 0.5f, 0); }},
      {"residual_scale is nan; expected 0", [](Draft* d) { d->AddResidual(INTACT_TYPE_NONE, kNan, 0); }},
      {"residual_zero_point is 256; expected 0 to 255",
       [](Draft* d) { d->AddResidual(INTACT_U8, 1.0f, 256); }},
      {"residual_zero_point is -1", [](Draft* d) { d->AddResidual(INTACT_U8, 1.0f, -1); }},
      {"residual_zero_point is 128; expected -128 to 127",
       [](Draft* d) { d->AddResidual(INTACT_S8, 1.0f, 128); }},
      {"residual_zero_point is 1; expected 0 to 0", [](Draft* d) { d->AddResidual(INTACT_F32, 1.0f, 1); }},
      {"residual_zero_point is 1; expected 0 to 0",
       [](Draft* d) { d->AddResidual(INTACT_TYPE_NONE, 0.0f, 1); }},
  };
}

intact_gemm* Sentinel() {
  static int object;
  return reinterpret_cast<intact_gemm*>(&object);
}

TEST(Create, TheDraftIsSound) {
  const Draft draft;
  intact_gemm* gemm = nullptr;
  EXPECT_EQ(intact_gemm_create(&draft.desc, &draft.desc.linear, draft.b.data(), &gemm), INTACT_OK);
  EXPECT_STREQ(intact_last_error(), "");
  ASSERT_NE(gemm, nullptr);
  intact_gemm_destroy(gemm);
}

TEST(Create, RefusesEachFieldByNameAndValue) {
  for (const Refusal& refusal : Refusals()) {
    SCOPED_TRACE(refusal.words);
    Draft draft;
    refusal.spoil(&draft);
    intact_gemm* gemm = Sentinel();
    EXPECT_EQ(intact_gemm_create(&draft.desc, &draft.desc.linear, draft.b.data(), &gemm), refusal.status);
    EXPECT_EQ(gemm, nullptr);
    EXPECT_THAT(intact_last_error(), StartsWith("intact_gemm_create: "));
    EXPECT_THAT(intact_last_error(), HasSubstr(refusal.words));
  }
}

TEST(Create, RefusesNullPointers) {
  const Draft draft;
  intact_gemm* gemm = Sentinel();
  EXPECT_EQ(intact_gemm_create(nullptr, nullptr, draft.b.data(), &gemm), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("desc is NULL"));
  EXPECT_EQ(gemm, nullptr);
  EXPECT_EQ(intact_gemm_create(&draft.desc, &draft.desc.linear, nullptr, &gemm), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("b is NULL"));
  EXPECT_EQ(intact_gemm_create(&draft.desc, &draft.desc.linear, draft.b.data(), nullptr),
            INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("gemm is NULL"));
}

// ----- int32 overflow --------------------------------------------------------------------------------------

intact_status CreateColumn(int64_t k, int8_t weight, const std::function<void(GemmDesc*)>& change) {
  const std::vector<int8_t> b(static_cast<size_t>(k), weight);
  GemmDesc desc = MakeGemmDesc();
  desc.n = 1;
  desc.k = k;
  change(&desc);
  intact_gemm* gemm = nullptr;
  const intact_status status = intact_gemm_create(&desc, &desc.linear, b.data(), &gemm);
  EXPECT_EQ(gemm != nullptr, status == INTACT_OK);
  intact_gemm_destroy(gemm);
  return status;
}

TEST(Overflow, IsRefusedFromTheFirstDepthThatAllowsIt) {
  const auto as_is = [](GemmDesc*) {};
  EXPECT_EQ(CreateColumn(66311, 127, as_is), INTACT_OK);  // 255·127·66311 = 2³¹ − 1 − 1912
  EXPECT_EQ(CreateColumn(66312, 127, as_is), INTACT_OVERFLOW);
  EXPECT_THAT(intact_last_error(), HasSubstr("column 0 of b can accumulate 2147514120"));
  EXPECT_EQ(CreateColumn(65793, -128, as_is), INTACT_OK);  // −255·128·65793 = −2³¹ + 128
  EXPECT_EQ(CreateColumn(65794, -128, as_is), INTACT_OVERFLOW);
  EXPECT_THAT(intact_last_error(), HasSubstr("-2147516160"));
}

TEST(Overflow, CountsBiasAndZeroPoint) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  int32_t bias = kMax - 255;
  const auto with_bias = [&](GemmDesc* desc) { desc->linear.bias_s32 = &bias; };
  EXPECT_EQ(CreateColumn(1, 1, with_bias), INTACT_OK);
  bias += 1;
  EXPECT_EQ(CreateColumn(1, 1, with_bias), INTACT_OVERFLOW);
  bias = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(CreateColumn(1, 1, with_bias), INTACT_OK);
  EXPECT_EQ(CreateColumn(1, -1, with_bias), INTACT_OVERFLOW);
  // Activations differ from the zero point 128 by at most 128: the depth may be twice as large.
  EXPECT_EQ(CreateColumn(130000, 127, [](GemmDesc* desc) { desc->linear.a_zero_point = 128; }), INTACT_OK);
}

// If the products alone stay within int32, the message names the bias and its permitted values.
TEST(Overflow, NamesTheBias) {
  std::array<int32_t, 1> bias = {2147483647};
  float scale = 1e-9f;
  const auto with_bias = [&](GemmDesc* desc) { desc->linear.bias_s32 = bias.data(); };
  const auto scaled = [&](GemmDesc* desc) {
    with_bias(desc);
    desc->linear.c_type = INTACT_U8;
    desc->linear.scales = &scale;
    desc->linear.scale_count = 1;
  };
  EXPECT_EQ(CreateColumn(2, 1, scaled), INTACT_OVERFLOW);
  EXPECT_STREQ(intact_last_error(),
               "intact_gemm_create: bias_s32[0] is 2147483647, and the products of column 0 of b reach 510: "
               "their sum 2147484157 leaves int32; expected a bias of at most 2147483137, a bias_f32, or the "
               "overflow INTACT_OVERFLOW_WRAPS");
  bias[0] = 2147483137;
  EXPECT_EQ(CreateColumn(2, 1, scaled), INTACT_OK);
  bias[0] = -2147483647;
  EXPECT_EQ(CreateColumn(2, -1, with_bias), INTACT_OVERFLOW);
  EXPECT_THAT(
      intact_last_error(),
      HasSubstr("bias_s32[0] is -2147483647, and the products of column 0 of b reach -510: their sum "
                "-2147484157 leaves int32; expected a bias of at least -2147483138, or the overflow"));
  // With runtime B, and with products that exceed int32 by themselves.
  const auto of_run = [&](GemmDesc* desc) {
    with_bias(desc);
    desc->runtime_b = 1;
  };
  GemmDesc desc = MakeGemmDesc();
  desc.n = 1;
  desc.k = 2;
  of_run(&desc);
  intact_gemm* gemm = nullptr;
  EXPECT_EQ(intact_gemm_create(&desc, &desc.linear, nullptr, &gemm), INTACT_OVERFLOW);
  EXPECT_THAT(intact_last_error(), HasSubstr("and the products of the worst runtime B reach -65280: their "
                                             "sum -2147548927 leaves int32; expected a bias of at least "
                                             "-2147418368"));
  desc.linear.overflow = INTACT_OVERFLOW_WRAPS;
  EXPECT_EQ(intact_gemm_create(&desc, &desc.linear, nullptr, &gemm), INTACT_OK) << intact_last_error();
  intact_gemm_destroy(gemm);
  bias[0] = 1;
  EXPECT_EQ(CreateColumn(66312, 127, with_bias), INTACT_OVERFLOW);
  EXPECT_THAT(intact_last_error(),
              HasSubstr("column 0 of b can accumulate 2147514121, which leaves int32; the "
                        "depth is 66312; expected a smaller depth, or the overflow"));
}

// The bounds are reported for the sums themselves, even if they may wrap.
TEST(Overflow, OfSumsThatWrapIsReported) {
  const std::array<int8_t, 2> b = {1, 1};
  const std::array<int32_t, 1> bias = {2147483647};
  GemmDesc desc = MakeGemmDesc();
  desc.n = 1;
  desc.k = 2;
  desc.linear.bias_s32 = bias.data();
  desc.linear.overflow = INTACT_OVERFLOW_WRAPS;
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  EXPECT_EQ(gemm->Info().accumulator_min, 2147483647);
  EXPECT_EQ(gemm->Info().accumulator_max, 2147484157);
  const std::array<uint8_t, 4> a = {255, 255, 0, 0};
  std::array<int32_t, 2> c = {};
  ASSERT_TRUE(gemm->Run(MatrixView(a.data(), 2, 2), MatrixView(c.data(), 2, 1)).ok());
  EXPECT_THAT(c, testing::ElementsAre(-2147483139, 2147483647));
}

TEST(Overflow, CountsWeightZeroPoints) {
  int32_t zero_point = 127;
  const auto with_zero_point = [&](GemmDesc* desc) {
    desc->linear.b_zero_points = &zero_point;
    desc->linear.b_zero_point_count = 1;
  };
  EXPECT_EQ(CreateColumn(1000000, 127, with_zero_point), INTACT_OK);  // 127 − 127: all products are 0
  zero_point = -128;
  EXPECT_EQ(CreateColumn(33025, 127, with_zero_point), INTACT_OK);  // 255·255·33025 = 2³¹ − 33023
  EXPECT_EQ(CreateColumn(33026, 127, with_zero_point), INTACT_OVERFLOW);
  EXPECT_THAT(intact_last_error(), HasSubstr("column 0 of b can accumulate 2147515650"));
  zero_point = 0;
  const auto u8 = [&](GemmDesc* desc) {
    with_zero_point(desc);
    desc->linear.b_type = INTACT_U8;
  };
  EXPECT_EQ(CreateColumn(33025, -1, u8), INTACT_OK);  // 255 as u8
  EXPECT_EQ(CreateColumn(33026, -1, u8), INTACT_OVERFLOW);
  zero_point = 255;
  EXPECT_EQ(CreateColumn(33025, 0, u8), INTACT_OK);
  EXPECT_EQ(CreateColumn(33026, 0, u8), INTACT_OVERFLOW);
  EXPECT_THAT(intact_last_error(), HasSubstr("can accumulate -2147515650"));
}

// Weights of 0 as u8 are −128 for the kernels. Pairs clamp at −32768 instead of reaching −128·(a0 + a1), and
// the difference stays in the sum.
TEST(Overflow, CountsWhatSaturatingPairsLeaveBehind) {
  const auto with = [](intact_mode mode) {
    return [mode](GemmDesc* desc) {
      desc->linear.b_type = INTACT_U8;
      desc->linear.mode = mode;
    };
  };
  EXPECT_EQ(CreateColumn(200000, 0, with(INTACT_EXACT)), INTACT_OK);
  EXPECT_EQ(CreateColumn(200000, 0, with(INTACT_SATURATING)), INTACT_OVERFLOW);
  EXPECT_THAT(intact_last_error(), HasSubstr("can accumulate 3251200000"));  // 100000·(255·256 − 32768)
  EXPECT_EQ(CreateColumn(100000, 0, with(INTACT_SATURATING)), INTACT_OK);
}

TEST(Overflow, BelievesAnActivationRangeOnlyUnchecked) {
  const auto declared = [](intact_range_check check) {
    return [check](GemmDesc* desc) {
      desc->linear.a_max = 100;
      desc->linear.range_check = check;
    };
  };
  EXPECT_EQ(CreateColumn(100000, 127, declared(INTACT_RANGE_CHECKED)), INTACT_OVERFLOW);
  EXPECT_EQ(CreateColumn(100000, 127, declared(INTACT_RANGE_UNCHECKED)), INTACT_OK);
}

// ----- scales of 0 -----------------------------------------------------------------------------------------

// The outputs of a pruned channel are the bias or the zero point, also for negative sums.
TEST(ScaleZero, OfPrunedChannels) {
  const std::array<int8_t, 4> b = {0, -1, 0, -2};
  const std::array<float, 2> scales = {0.0f, -0.0f}, bias = {0.25f, -1.5f};
  const std::array<uint8_t, 2> a = {3, 255};
  GemmDesc desc = MakeGemmDesc();
  desc.n = desc.k = 2;
  desc.linear.scales = scales.data();
  desc.linear.scale_count = 2;
  desc.linear.c_type = INTACT_F32;
  std::array<float, 2> f = {9.0f, 9.0f};
  Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  ASSERT_TRUE(gemm->Run(MatrixView(a.data(), 1, 2), MatrixView(f.data(), 1, 2)).ok());
  EXPECT_THAT(f, testing::ElementsAre(0.0f, 0.0f));
  EXPECT_FALSE(std::signbit(f[0]));  // 0·0
  EXPECT_FALSE(std::signbit(f[1]));  // a negative sum times −0
  desc.linear.bias_f32 = bias.data();
  gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  ASSERT_TRUE(gemm->Run(MatrixView(a.data(), 1, 2), MatrixView(f.data(), 1, 2)).ok());
  EXPECT_THAT(f, testing::ElementsAre(0.25f, -1.5f));
  desc.linear.c_type = INTACT_U8;
  desc.linear.c_zero_point = 7;
  std::array<uint8_t, 2> c = {};
  gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  ASSERT_TRUE(gemm->Run(MatrixView(a.data(), 1, 2), MatrixView(c.data(), 1, 2)).ok());
  EXPECT_THAT(c, testing::ElementsAre(7, 5));
}

// ----- refusals of a run -----------------------------------------------------------------------------------

class Run : public testing::Test {
 protected:
  Run() {
    Use(Draft());
    args_.m = 2;
    args_.a = a_.data();
    args_.c = c_.data();
    c_.fill(0xa5);
  }

  void Use(const Draft& draft) {
    intact_gemm* gemm = nullptr;
    EXPECT_EQ(intact_gemm_create(&draft.desc, &draft.desc.linear, draft.b.data(), &gemm), INTACT_OK);
    plan_.reset(gemm);
  }

  void ExpectRefused(intact_status status, const char* words) {
    EXPECT_EQ(status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(intact_last_error(), HasSubstr(words));
    EXPECT_TRUE(std::all_of(c_.begin(), c_.end(), [](uint8_t byte) { return byte == 0xa5; }));
  }

  Plan plan_;
  std::array<uint8_t, 8> a_ = {};
  std::array<uint8_t, 6> c_ = {};
  intact_gemm_args args_ = INTACT_GEMM_ARGS_INIT;
};

TEST_F(Run, RefusesArgumentsByNameAndValue) {
  const std::pair<const char*, std::function<void(intact_gemm_args*)>> cases[] = {
      {"args->struct_size is 1", [](intact_gemm_args* args) { args->struct_size = 1; }},
      {"m is -1", [](intact_gemm_args* args) { args->m = -1; }},
      {"m is 4294967296", [](intact_gemm_args* args) { args->m = int64_t{1} << 32; }},
      {"a is NULL", [](intact_gemm_args* args) { args->a = nullptr; }},
      {"c is NULL", [](intact_gemm_args* args) { args->c = nullptr; }},
      {"a_stride is 3", [](intact_gemm_args* args) { args->a_stride = 3; }},
      {"a_stride is -4", [](intact_gemm_args* args) { args->a_stride = -4; }},
      {"c_stride is 2", [](intact_gemm_args* args) { args->c_stride = 2; }},
      {"a_stride is 9223372036854775807", [](intact_gemm_args* args) { args->a_stride = INT64_MAX; }},
      {"a_transposed is 2; expected 0 or 1", [](intact_gemm_args* args) { args->a_transposed = 2; }},
      {"a_transposed is -1; expected 0 or 1", [](intact_gemm_args* args) { args->a_transposed = -1; }},
      {"reserved is 1; expected 0", [](intact_gemm_args* args) { args->reserved = 1; }},
      {"a_stride is 1; expected 0 or at least 2",
       [](intact_gemm_args* args) {
         args->a_transposed = 1;
         args->a_stride = 1;
       }},
      {"c overlaps a",
       [](intact_gemm_args* args) {  // the last of the depths that are 3 apart
         args->a_transposed = 1;
         args->a_stride = 3;
         args->a = static_cast<const uint8_t*>(args->c) - 10;
       }},
      {"c_stride is 9223372036854775807", [](intact_gemm_args* args) { args->c_stride = INT64_MAX; }},
  };
  for (const auto& [words, spoil] : cases) {
    SCOPED_TRACE(words);
    intact_gemm_args args = args_;
    spoil(&args);
    ExpectRefused(intact_gemm_run(plan_.get(), &args), words);
    ExpectRefused(intact_gemm_run_part(plan_.get(), &args, 0, 1), words);
  }
  intact_gemm_args negative_threads = args_;
  negative_threads.threads = -1;
  ExpectRefused(intact_gemm_run(plan_.get(), &negative_threads), "threads is -1");
  ExpectRefused(intact_gemm_run(nullptr, &args_), "gemm is NULL");
  ExpectRefused(intact_gemm_run(plan_.get(), nullptr), "args is NULL");
  ExpectRefused(intact_gemm_run_part(plan_.get(), &args_, -1, 2), "part is -1 of 2");
  ExpectRefused(intact_gemm_run_part(plan_.get(), &args_, 2, 2), "part is 2 of 2");
  ExpectRefused(intact_gemm_run_part(plan_.get(), &args_, 0, 0), "part is 0 of 0");
  EXPECT_EQ(intact_gemm_run(plan_.get(), &args_), INTACT_OK);
  EXPECT_STREQ(intact_last_error(), "");
}

// Without rows or items nothing is read or written, whatever is NULL. Sizes are reported and checked.
TEST_F(Run, OfNothingDoesNothing) {
  Draft draft;
  draft.AddResidual(INTACT_U8, 1.0f, 3);
  draft.desc.linear.a_quantization = INTACT_QUANTIZATION_ROWS;
  for (const bool has_residual : {false, true}) {
    Use(has_residual ? draft : Draft());
    for (const auto& [m, batch] : {std::pair<int64_t, int64_t>{0, 1}, {2, 0}, {0, 0}, {0, 3}}) {
      for (const bool has_pointers : {false, true}) {
        intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
        args.m = m;
        args.batch = batch;
        if (has_pointers) {
          args.a = args_.a;
          args.c = args_.c;
        }
        intact_run_info info = INTACT_RUN_INFO_INIT;
        info.scratch_bytes = info.part_scratch_bytes = 1;
        EXPECT_EQ(intact_gemm_prepare(plan_.get(), &args, &info), INTACT_OK) << intact_last_error();
        EXPECT_THAT(info.output, testing::ElementsAre(m, 3, 1));
        EXPECT_EQ(info.scratch_bytes, 0u);
        EXPECT_EQ(info.part_scratch_bytes, 0u);
        EXPECT_EQ(intact_gemm_run(plan_.get(), &args), INTACT_OK) << intact_last_error();
        EXPECT_EQ(intact_gemm_run_part(plan_.get(), &args, 1, 2), INTACT_OK) << intact_last_error();
        EXPECT_THAT(c_, testing::Each(0xa5));
        args.c_stride = 2;
        ExpectRefused(intact_gemm_run(plan_.get(), &args), "c_stride is 2; expected 0 or at least 3");
        args.c_stride = 0;
        args.threads = -1;
        ExpectRefused(intact_gemm_run(plan_.get(), &args), "threads is -1");
        ExpectRefused(intact_gemm_prepare(plan_.get(), &args, &info), "threads is -1");
        ExpectRefused(intact_gemm_run_part(plan_.get(), &args, 2, 2), "part is 2 of 2");
        args.m = -1;
        ExpectRefused(intact_gemm_run(plan_.get(), &args), "m is -1; expected 0 to 2147483647");
      }
    }
  }
}

TEST(RunInCpp, OfNothingDoesNothing) {
  const std::array<int8_t, 6> b = {1, 2, 3, 4, 5, 6};
  GemmDesc desc = MakeGemmDesc();
  desc.n = 3;
  desc.k = 2;
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const MatrixView<const uint8_t> a(nullptr, 0, 2);
  const MatrixView<int32_t> c(nullptr, 0, 3);
  EXPECT_TRUE(gemm->Run(a, c).ok());
  EXPECT_TRUE(gemm->RunPart(a, c, 1, 2).ok());
  for (const auto& [rows, items] : {std::pair<int64_t, int64_t>{0, 2}, {4, 0}}) {
    const BatchView<const uint8_t> all_a = {{nullptr, rows, 2}, items};
    const BatchView<int32_t> all_c = {{nullptr, rows, 3}, items};
    EXPECT_TRUE(gemm->Run(all_a, all_c).ok());
  }
  const Result<intact_run_info> info = gemm->Prepare(0);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->scratch_bytes, 0u);
}

// A struct of the first version has no `batch`. It means one item.
TEST_F(Run, OfAStructWithoutABatchHasOneItem) {
  args_.batch = 0;  // beyond the struct's end
  args_.struct_size = offsetof(intact_gemm_args, a_zero_points);
  EXPECT_EQ(intact_gemm_run(plan_.get(), &args_), INTACT_OK) << intact_last_error();
  EXPECT_THAT(c_, testing::Each(0));
}

TEST_F(Run, RefusesAResidualThatThePlanDoesNotHave) {
  const std::array<uint8_t, 6> residual = {};
  args_.residual = residual.data();
  ExpectRefused(intact_gemm_run(plan_.get(), &args_), "residual is given; expected NULL");
  args_.residual = args_.c;
  ExpectRefused(intact_gemm_run_part(plan_.get(), &args_, 0, 1), "residual is given; expected NULL");
}

TEST_F(Run, RefusesResidualsByNameAndValue) {
  Draft draft;
  draft.AddResidual(INTACT_U8, 1.0f, 3);
  Use(draft);
  const std::array<uint8_t, 6> residual = {};
  args_.residual = residual.data();
  const std::pair<const char*, std::function<void(intact_gemm_args*)>> cases[] = {
      {"residual is NULL", [](intact_gemm_args* args) { args->residual = nullptr; }},
      {"residual_stride is 2; expected 0 or at least 3",
       [](intact_gemm_args* args) { args->residual_stride = 2; }},
      {"residual_stride is -3", [](intact_gemm_args* args) { args->residual_stride = -3; }},
      {"residual_stride is 9223372036854775807",
       [](intact_gemm_args* args) { args->residual_stride = INT64_MAX; }},
      {"residual_stride is 4; expected c_stride, which is 0, because residual is c",
       [](intact_gemm_args* args) {
         args->residual = args->c;
         args->residual_stride = 4;
       }},
  };
  for (const auto& [words, spoil] : cases) {
    SCOPED_TRACE(words);
    intact_gemm_args args = args_;
    spoil(&args);
    ExpectRefused(intact_gemm_run(plan_.get(), &args), words);
    ExpectRefused(intact_gemm_run_part(plan_.get(), &args, 0, 1), words);
  }
  intact_gemm_info info = INTACT_GEMM_INFO_INIT;
  EXPECT_EQ(intact_gemm_query(plan_.get(), &info), INTACT_OK);
  EXPECT_EQ(info.residual_type, INTACT_U8);
  EXPECT_EQ(intact_gemm_run(plan_.get(), &args_), INTACT_OK) << intact_last_error();
  args_.residual = args_.c;
  args_.residual_stride = 3;
  EXPECT_EQ(intact_gemm_run(plan_.get(), &args_), INTACT_OK) << intact_last_error();
}

// C must not share memory with anything that the run reads, except if rows alternate.
TEST_F(Run, RefusesBuffersThatOverlap) {
  Draft draft;
  draft.AddResidual(INTACT_U8, 1.0f, 3);
  Use(draft);
  std::array<uint8_t, 64> memory = {};
  memory.fill(1);
  const auto run = [&](int64_t a, int64_t a_stride, int64_t c, int64_t c_stride, int64_t residual) {
    args_.a = &memory[static_cast<size_t>(a)];
    args_.a_stride = a_stride;
    args_.c = &memory[static_cast<size_t>(c)];
    args_.c_stride = args_.residual_stride = c_stride;
    args_.residual = &memory[static_cast<size_t>(residual)];
    return intact_gemm_run(plan_.get(), &args_);
  };
  EXPECT_EQ(run(0, 0, 8, 0, 14), INTACT_OK) << intact_last_error();   // one behind the other
  EXPECT_EQ(run(0, 10, 4, 10, 7), INTACT_OK) << intact_last_error();  // rows of 4, 3 and 3 side by side
  EXPECT_EQ(run(6, 10, 3, 10, 0), INTACT_OK) << intact_last_error();
  ExpectRefused(run(0, 0, 7, 0, 20), "c overlaps a; expected separate buffers");
  ExpectRefused(run(0, 10, 3, 10, 7), "c overlaps a");
  ExpectRefused(run(9, 10, 7, 10, 4), "c overlaps a");  // the last column of C is the first of A's next row
  ExpectRefused(run(0, 10, 4, 11, 30), "c overlaps a");
  ExpectRefused(run(0, 0, 8, 0, 10), "c overlaps the residual");
  ExpectRefused(run(0, 0, 8, 0, 6), "c overlaps the residual");
}

TEST_F(Run, RefusesItemsThatOverlap) {
  std::array<uint8_t, 64> a = {};
  std::array<uint8_t, 64> c = {};
  args_.a = a.data();
  args_.c = c.data();
  args_.batch = 3;
  const auto run = [&](int64_t c_stride, int64_t c_batch_stride) {
    args_.c_stride = c_stride;
    args_.c_batch_stride = c_batch_stride;
    return intact_gemm_run(plan_.get(), &args_);
  };
  EXPECT_EQ(run(0, 6), INTACT_OK) << intact_last_error();
  EXPECT_EQ(run(9, 3), INTACT_OK) << intact_last_error();  // rows of the items alternate
  EXPECT_EQ(run(4, 7), INTACT_OK) << intact_last_error();
  ExpectRefused(run(0, 5),
                "c_batch_stride is 5; expected 0 or at least 6, because items of c must not overlap");
  ExpectRefused(run(8, 3), "c_batch_stride is 3; expected 0 or at least 11");
  ExpectRefused(run(9, 2), "c_batch_stride is 2");
}

// A denormal is a value above 0 in any floating-point environment of the caller.
TEST_F(Run, DoesNotDependOnTheCallersFloatEnvironment) {
  Draft draft;
  draft.desc.linear.a_quantization = INTACT_QUANTIZATION_ROWS;
  Use(draft);
  const std::array<float, 2> scales = {1e-40f, 1e-39f};
  args_.a_scales = scales.data();
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // flush to zero, denormals are zero
  const intact_status status = intact_gemm_run(plan_.get(), &args_);
  _mm_setcsr(saved);
  EXPECT_EQ(status, INTACT_OK) << intact_last_error();
}

TEST_F(Run, NamesWhatIsGivenToAConstantB) {
  const float scale = 1.0f;
  const int32_t zero_point = 0;
  args_.b_scales = &scale;
  ExpectRefused(intact_gemm_run(plan_.get(), &args_), "b_scales is given to a run; expected none");
  args_.b_scales = nullptr;
  args_.b_zero_points = &zero_point;
  ExpectRefused(intact_gemm_run(plan_.get(), &args_), "b_zero_points is given to a run; expected none");
  args_.b_zero_points = nullptr;
  args_.b_scale_count = 3;
  ExpectRefused(intact_gemm_run(plan_.get(), &args_), "b_scale_count is given to a run; expected none");
  args_.b_scale_count = 0;
  args_.b_zero_point_count = 1;
  ExpectRefused(intact_gemm_run(plan_.get(), &args_), "b_zero_point_count is given to a run; expected none");
}

TEST_F(Run, RefusesAResidualInPlaceOfSmallerElements) {
  Draft draft;
  draft.AddResidual(INTACT_F32, 1.0f, 0);
  Use(draft);
  args_.residual = args_.c;
  ExpectRefused(intact_gemm_run(plan_.get(), &args_), "residual is c, whose elements have another size");
}

TEST_F(Run, TakesAnyNumberOfThreadsAndParts) {
  args_.threads = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(intact_gemm_run(plan_.get(), &args_), INTACT_OK);
  EXPECT_EQ(intact_gemm_run_part(plan_.get(), &args_, 0, std::numeric_limits<int32_t>::max()), INTACT_OK);
}

TEST_F(Run, QueriesRefuseBadArguments) {
  intact_gemm_info info = INTACT_GEMM_INFO_INIT;
  info.struct_size = 3;
  ExpectRefused(intact_gemm_query(plan_.get(), &info), "info->struct_size is 3");
  ExpectRefused(intact_gemm_query(plan_.get(), nullptr), "info is NULL");
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  ExpectRefused(intact_gemm_certificate(nullptr, &certificate), "gemm is NULL");
  certificate.struct_size = 4;
  ExpectRefused(intact_gemm_certificate(plan_.get(), &certificate), "certificate->struct_size is 4");
  intact_panel_certificate panel;
  ExpectRefused(intact_gemm_panel_certificates(plan_.get(), 0, 2, &panel), "count is 2");
  ExpectRefused(intact_gemm_panel_certificates(plan_.get(), -1, 1, &panel), "first is -1");
  ExpectRefused(intact_gemm_panel_certificates(plan_.get(), 1, std::numeric_limits<int64_t>::max(), &panel),
                "there are 1 panels");
  intact_failing_pair pair;
  int64_t written = 7;
  ExpectRefused(intact_gemm_failing_pairs(plan_.get(), 0, -1, &pair, &written), "count is -1");
  ExpectRefused(intact_gemm_failing_pairs(plan_.get(), 0, 1, nullptr, &written), "pairs is NULL");
  ExpectRefused(intact_gemm_failing_pairs(plan_.get(), 0, 1, &pair, nullptr), "written is NULL");
  ExpectRefused(intact_gemm_save(plan_.get(), nullptr), "path is NULL");
}

TEST(Names, AreThere) {
  EXPECT_STREQ(intact_version(), "0.1.0");
  EXPECT_STREQ(intact_isa_name(INTACT_ISA_AVX512_VNNI), "avx512_vnni");
  EXPECT_STREQ(intact_isa_name(INTACT_ISA_ANY), "any");
  EXPECT_EQ(intact_isa_name(99), nullptr);
  EXPECT_EQ(intact_isa_available(99), 0);
  EXPECT_EQ(intact_isa_available(INTACT_ISA_ANY), 0);
  EXPECT_STREQ(intact_status_name(INTACT_OVERFLOW), "overflow");
  intact_gemm_destroy(nullptr);
}

// All other tests iterate over core::kIsaLadder.
TEST(Names, OfAllIsasAreOnTheLadder) {
  int count = 0;
  while (intact_isa_name(static_cast<intact_isa>(count + 1)) != nullptr) {
    EXPECT_THAT(core::kIsaLadder, testing::Contains(static_cast<intact_isa>(++count)));
  }
  EXPECT_EQ(count, std::ssize(core::kIsaLadder));
}

TEST(LastError, IsPerThread) {
  EXPECT_EQ(intact_gemm_run(nullptr, nullptr), INTACT_INVALID_ARGUMENT);
  std::string other = "?";
  std::thread([&] { other = intact_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_THAT(intact_last_error(), HasSubstr("gemm is NULL"));
}

TEST(LastError, OfTheWrapperHasWords) {
  EXPECT_EQ(intact_gemm_run(nullptr, nullptr), INTACT_INVALID_ARGUMENT);
  EXPECT_EQ(detail::LastError(INTACT_OK).message, "") << "what failed before does not matter";
  const Draft draft;
  Result<Gemm> gemm = Gemm::Create(draft.desc, draft.b.data());
  ASSERT_TRUE(gemm);
  EXPECT_EQ(detail::LastError(INTACT_OUT_OF_MEMORY).message, "out of memory") << "the library set no message";
  const Gemm taken = std::move(*gemm);
  EXPECT_THAT(gemm->Save("x").message, HasSubstr("gemm is NULL"));
  EXPECT_THAT(gemm->SaveMemory().error().message, HasSubstr("gemm is NULL"));
  EXPECT_THAT(gemm->Prepare(1).error().message, HasSubstr("gemm is NULL"));
  EXPECT_THAT(gemm->Tune(1).error().message, HasSubstr("gemm is NULL"));
  EXPECT_THAT(gemm->Certificate().error().message, HasSubstr("gemm is NULL"));
}

void ExpectRefused(const Error& error, const char* words) {
  EXPECT_EQ(error.status, INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr(words));
}

TEST(Wrapper, RefusesOtherTypesAndShapes) {
  const Draft draft;
  const Result<Gemm> gemm = Gemm::Create(draft.desc, draft.b.data());
  ASSERT_TRUE(gemm);
  std::array<uint8_t, 8> a = {};
  std::array<uint8_t, 6> c = {};
  const MatrixView<const uint8_t> a_view(a.data(), 2, 4);
  EXPECT_EQ(gemm->Run(a_view, MatrixView<uint8_t>(c.data(), 2, 3)).status, INTACT_OK);
  EXPECT_EQ(gemm->RunPart(a_view, MatrixView<uint8_t>(c.data(), 2, 3), 0, 1).status, INTACT_OK);
  ExpectRefused(gemm->Run(a_view, MatrixView<uint8_t>(c.data(), 1, 3)),
                "the number of c's rows is 1; expected 2");
  ExpectRefused(gemm->Run(a_view, MatrixView<uint8_t>(c.data(), 2, 2)),
                "the number of c's columns is 2; expected 3");
  ExpectRefused(gemm->Run(a_view, MatrixView<int8_t>(reinterpret_cast<int8_t*>(c.data()), 2, 3)),
                "c has elements of type int8_t; expected uint8_t");
  ExpectRefused(gemm->Run(MatrixView<const uint8_t>(a.data(), 2, 3), MatrixView<uint8_t>(c.data(), 2, 3)),
                "the number of a's columns is 3; expected 4");
  ExpectRefused(gemm->Run(MatrixView<const int8_t>(reinterpret_cast<const int8_t*>(a.data()), 2, 4),
                          MatrixView<uint8_t>(c.data(), 2, 3)),
                "a has elements of type int8_t; expected uint8_t");
  Draft bad;
  bad.desc.k = 0;
  const Result<Gemm> refused = Gemm::Create(bad.desc, bad.b.data());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("k is 0"));
}

TEST(Wrapper, AddsResiduals) {
  Draft draft;  // the weights are 1
  draft.AddResidual(INTACT_S8, 2.0f, -1);
  const Result<Gemm> gemm = Gemm::Create(draft.desc, draft.b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const std::array<uint8_t, 4> a = {1, 2, 3, 2};
  const std::array<int8_t, 3> r = {-1, 9, -128};
  std::array<uint8_t, 3> c = {};
  const MatrixView<const uint8_t> a_view(a.data(), 1, 4);
  const MatrixView<uint8_t> c_view(c.data(), 1, 3);
  const MatrixView<const int8_t> r_view(r.data(), 1, 3);
  const std::array<uint8_t, 3> expected = {4, 22, 0};  // 8·scale + 2·(r + 1)
  EXPECT_EQ(gemm->Run(a_view, c_view, r_view).status, INTACT_OK);
  EXPECT_EQ(c, expected);
  c = {};
  EXPECT_EQ(gemm->RunPart(a_view, c_view, r_view, 0, 1).status, INTACT_OK);
  EXPECT_EQ(c, expected);
  ExpectRefused(gemm->Run(a_view, c_view), "residual is NULL");
  ExpectRefused(gemm->Run(a_view, c_view, MatrixView<const int8_t>(r.data(), 1, 2)),
                "the number of residual's columns is 2; expected 3");
  ExpectRefused(gemm->Run(a_view, c_view, MatrixView<const uint8_t>(c.data(), 1, 3)),
                "residual has elements of type uint8_t; expected int8_t");
}

// Two items of 1×4 by 4×3. The second items are not adjacent to the first.
TEST(Wrapper, RunsBatches) {
  const std::array<uint8_t, 9> a = {1, 2, 3, 4, 0, 5, 6, 7, 8};
  std::array<int8_t, 24> b = {};
  b.fill(1);
  std::fill(b.begin() + 12, b.end(), int8_t{2});
  std::array<int32_t, 6> c = {};
  GemmDesc desc = MakeGemmDesc();
  desc.n = 3;
  desc.k = 4;
  const BatchView<const uint8_t> a_view = {{a.data(), 1, 4}, 2, 5};
  const BatchView<int32_t> c_view = {{c.data(), 1, 3}, 2};
  const Result<Gemm> constant = Gemm::Create(desc, b.data());
  ASSERT_TRUE(constant) << constant.error().message;
  EXPECT_EQ(constant->Run(a_view, c_view).status, INTACT_OK);
  EXPECT_EQ(c, (std::array<int32_t, 6>{10, 10, 10, 26, 26, 26}));
  desc.runtime_b = 1;
  const int32_t zero_point = 0;
  desc.linear.b_zero_points = &zero_point;
  desc.linear.b_zero_point_count = 1;
  const Result<Gemm> given = Gemm::Create(desc, nullptr);
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(given->Run(a_view, b.data(), 12, c_view).status, INTACT_OK);
  EXPECT_EQ(c, (std::array<int32_t, 6>{10, 10, 10, 52, 52, 52}));
  RunOptions options;
  const std::array<int32_t, 2> zero_points = {1, -1};
  options.b_zero_points = zero_points.data();
  EXPECT_EQ(given->Run(a_view, b.data(), 12, c_view, options).status, INTACT_OK);
  EXPECT_EQ(c, (std::array<int32_t, 6>{0, 0, 0, 78, 78, 78}));
  const std::array<int32_t, 6> column_zero_points = {1, 0, 0, 0, 0, -1};
  options.b_zero_points = column_zero_points.data();
  options.b_zero_point_count = 3;
  EXPECT_EQ(given->Run(a_view, b.data(), 12, c_view, options).status, INTACT_OK);
  EXPECT_EQ(c, (std::array<int32_t, 6>{0, 10, 10, 52, 52, 78}));
  options.b_zero_point_count = 2;
  ExpectRefused(given->Run(a_view, b.data(), 12, c_view, options),
                "b_zero_point_count is 2; expected 0, 1 or n, which is 3");
  options.b_zero_points = nullptr;
  options.b_zero_point_count = 3;
  ExpectRefused(given->Run(a_view, b.data(), 12, c_view, options),
                "b_zero_point_count is 3; expected 0, because b_zero_points is NULL");
  options.b_zero_point_count = 0;
  options.b_scale_count = 1;
  ExpectRefused(given->Run(a_view, b.data(), 12, c_view, options),
                "b_scale_count is 1; expected 0, because b_scales is NULL");
  ExpectRefused(given->Run(a_view, c_view), "b is NULL; expected B, because each run passes it (runtime_b)");
  ExpectRefused(constant->Run(a_view, BatchView<int32_t>{{c.data(), 1, 3}, 1}),
                "the number of c's items is 1; expected 2");
  c.fill(7);
  EXPECT_TRUE(
      constant->Run(BatchView<const uint8_t>{{a.data(), 1, 4}, 0}, BatchView<int32_t>{{c.data(), 1, 3}, 0})
          .ok());
  EXPECT_TRUE(given
                  ->Run(BatchView<const uint8_t>{{a.data(), 1, 4}, 0}, b.data(), 0,
                        BatchView<int32_t>{{c.data(), 1, 3}, 0})
                  .ok());
  EXPECT_THAT(c, testing::Each(7));
  ExpectRefused(
      constant->Run(BatchView<const uint8_t>{{a.data(), 1, 4}, -1}, BatchView<int32_t>{{c.data(), 1, 3}, -1}),
      "the number of a's items is -1; expected 0 or more");
}

// Two rows of four depths, stored as 4×2 in lines of three elements.
TEST(Wrapper, RunsATransposedA) {
  const std::array<uint8_t, 11> a = {1, 5, 99, 2, 6, 99, 3, 7, 99, 4, 8};
  std::array<int8_t, 12> b = {};
  b.fill(1);
  std::array<int32_t, 6> c = {};
  GemmDesc desc = MakeGemmDesc();
  desc.n = 3;
  desc.k = 4;
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const RunOptions options = {.a_transposed = true};
  const MatrixView<int32_t> c_view(c.data(), 2, 3);
  EXPECT_EQ(gemm->Run(MatrixView<const uint8_t>(a.data(), 4, 2, 3), c_view, options).status, INTACT_OK);
  EXPECT_EQ(c, (std::array<int32_t, 6>{10, 10, 10, 26, 26, 26}));
  ExpectRefused(gemm->Run(MatrixView<const uint8_t>(a.data(), 2, 4), c_view, options),
                "the number of a's rows is 2; expected 4");
  ExpectRefused(gemm->Run(MatrixView<const uint8_t>(a.data(), 4, 3), c_view, options),
                "the number of c's rows is 2; expected 3");
}

// ----- INTACT_MAX_ISA --------------------------------------------------------------------------------------

struct ChildOutcome {
  int status = -1;
  std::string out;
};

ChildOutcome PlanInAChild(const std::string& environment) {
  FILE* pipe = popen((environment + " '" INTACT_CHILD "' isa").c_str(), "r");
  ChildOutcome outcome;
  char line[1024] = "";
  if (fgets(line, sizeof(line), pipe) != nullptr) outcome.out = line;
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (!outcome.out.empty() && outcome.out.back() == '\n') outcome.out.pop_back();
  return outcome;
}

TEST(MaxIsa, CapsTheProcessAsAPlansFieldCapsThePlan) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  if (const char* cap = std::getenv("INTACT_MAX_ISA")) GTEST_SKIP() << "INTACT_MAX_ISA is " << cap;
  for (const intact_isa cap : core::kIsaLadder) {
    Draft draft;
    draft.desc.linear.max_isa = cap;
    const Result<Gemm> gemm = Gemm::Create(draft.desc, draft.b.data());
    ASSERT_TRUE(gemm) << gemm.error().message;
    if (EmulatedIsas::Has(static_cast<intact_isa>(gemm->Info().isa))) continue;  // not in a child
    const ChildOutcome child = PlanInAChild(std::string("INTACT_MAX_ISA=") + intact_isa_name(cap));
    EXPECT_EQ(child.status, 0);
    EXPECT_EQ(child.out, intact_isa_name(gemm->Info().isa));
    // A cap names a kind of machine. This CPU may have only AVX2 of its instructions.
    EXPECT_EQ(gemm->Info().isa == cap, intact_isa_available(cap) != 0);
  }
}

TEST(MaxIsa, MustNameAnIsa) {
  const ChildOutcome child = PlanInAChild("INTACT_MAX_ISA=sse9");
  EXPECT_EQ(child.status, 1);
  EXPECT_THAT(child.out, HasSubstr("INTACT_MAX_ISA: unknown ISA 'sse9'; expected one of portable, avx2"));
  EXPECT_EQ(PlanInAChild("INTACT_MAX_ISA=").status, 0);
}

}  // namespace
}  // namespace intact::tests
