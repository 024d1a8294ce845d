// Grouped weights: every ISA equals the reference byte for byte, however threads, parts and calls share the
// rows, on memory between guard pages. Checks of descriptors and arguments.
#include <gtest/gtest.h>
#include <immintrin.h>
#include <intact/grouped.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <intact/grouped.hpp>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "fuzz/pack_format.h"
#include "reference/contract/grouped.h"
#include "support/random.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/long.h"
#include "tests/support/require_isas.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_path.h"
#include "verify/explain/judge.h"
#include "verify/problem/random_problem.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

using verify::GroupedFill;
using verify::Problem;

verify::RunOptions On(intact_isa isa) {
  verify::RunOptions options;
  options.isa = isa;
  return options;
}

void ExpectTheContract(const Problem& problem) {
  const auto judgement = verify::Judge(verify::IntactTarget(), problem);
  ASSERT_TRUE(judgement) << problem.ToString() << ": " << judgement.error().message;
  EXPECT_TRUE(judgement->Passed()) << problem.ToString() << ": " << judgement->failure;
}

class OnIsa : public ::testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }
  // Emulation takes microseconds for each instruction.
  static size_t Share(size_t problems) {
    return EmulatedIsas::Has(GetParam()) || kSanitized ? problems / 13 : problems;
  }
};

// Every combination of types, groups and fills.
TEST_P(OnIsa, PassesTheSweep) {
  const verify::Effort effort = IsLong() ? verify::Effort::kStandard : verify::Effort::kQuick;
  const std::vector<Problem> problems = verify::GroupedSweepProblems({{GetParam()}}, effort);
  const size_t step = problems.size() / Share(problems.size());
  for (size_t i = 0; i < problems.size(); i += step) ExpectTheContract(problems[i]);
}

// Rows in several chunks, and depths in several blocks.
TEST_P(OnIsa, LargeShapes) {
  if (EmulatedIsas::Has(GetParam())) GTEST_SKIP() << "emulation would take minutes";
  for (const char* line : {"grouped s8u4f32 m=150 n=20 k=9000 group=128 zb=yes seed=3 threads=2",
                           "grouped u8s8f32 m=70 n=20 k=9000 group=32 src=none per=group zb=yes seed=4",
                           "grouped u8u4bf16 m=600 n=50 k=40 group=16 per=group seed=5 threads=3 bias=yes",
                           "grouped u8u8f16 m=4 n=100 k=5000 group=0 zb=yes seed=6 parts=3",
                           "grouped s8s4f32 m=1 n=50 k=14336 group=256 gscale=f32 seed=7"}) {
    Problem problem = *Problem::Parse(line);
    problem.isa = GetParam();
    ExpectTheContract(problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Grouped, OnIsa, ::testing::ValuesIn(core::kIsaLadder),
                         [](const auto& test) { return std::string(intact_isa_name(test.param)); });

// A product with minimums whose last group is shorter. `are_halves`: float16 holds the minimums.
reference::Grouped ProductWithMinimums(intact_type b_type, bool has_group_scales, bool are_halves) {
  support::Random random(7, 0, 0);
  reference::Grouped product;
  product.m = 70;
  product.n = 45;
  product.k = 150;
  product.a_granularity = has_group_scales ? INTACT_GRANULARITY_GROUPS : INTACT_GRANULARITY_ROWS;
  product.b_type = b_type;
  product.has_b_minimums = true;
  for (int64_t i = 0; i < product.n * product.groups(); ++i) {
    const auto minimum = static_cast<float>(random.Gauss());
    product.b_minimums.push_back(are_halves ? std::nearbyint(minimum * 64) / 64 : minimum);
    product.b_scales.push_back(static_cast<uint8_t>(random.Integer(0, 255)));
    product.b_scales.push_back(static_cast<uint8_t>(random.Integer(0x20, 0x3b)));
  }
  for (int64_t i = 0; i < product.n * product.k; ++i) {
    product.b.push_back(
        static_cast<int16_t>(random.Integer(product.codes().lowest, product.codes().highest)));
  }
  for (int64_t i = 0; i < product.m * product.k; ++i) {
    const auto a = static_cast<float>(random.Gauss());
    product.a_source.resize(product.a_source.size() + sizeof(a));
    std::memcpy(product.a_source.data() + static_cast<size_t>(i) * sizeof(a), &a, sizeof(a));
  }
  reference::QuantizeActivations(&product);
  return product;
}

void ExpectOutputs(const Grouped& plan, const reference::Grouped& product,
                   const std::vector<uint8_t>& expected) {
  std::vector<uint8_t> c(expected.size());
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = product.m;
  args.a = product.a_source.data();
  args.c = c.data();
  ASSERT_TRUE(plan.Run(args).ok());
  EXPECT_EQ(c, expected) << plan.Info().kernel;
}

// Also of a plan that was saved, and loaded for another ISA.
TEST_P(OnIsa, AddsMinimums) {
  const std::string path = TempPath();
  for (int i = 0; i < 8; ++i) {
    const reference::Grouped product =
        ProductWithMinimums(i % 2 == 0 ? INTACT_U4 : INTACT_S8, i / 2 % 2 == 0, i / 4 == 0);
    const std::vector<uint8_t> b = BytesOfB(product), expected = Outputs(product);
    intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
    desc.n = product.n;
    desc.k = product.k;
    desc.a_granularity = product.a_granularity;
    desc.b_type = product.b_type;
    desc.b_scales = product.b_scales.data();
    desc.b_minimums = product.b_minimums.data();
    desc.max_isa = GetParam();
    const auto plan = Grouped::Create(desc, b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    ExpectOutputs(*plan, product, expected);
    ASSERT_TRUE(plan->Save(path).ok());
    for (const intact_isa isa : {GetParam(), INTACT_ISA_PORTABLE, INTACT_ISA_AVX2}) {
      if (intact_isa_available(isa) == 0) continue;
      const auto loaded = Grouped::Load(path, isa);
      ASSERT_TRUE(loaded) << loaded.error().message;
      ExpectOutputs(*loaded, product, expected);
    }
  }
  std::filesystem::remove(path);
}

// A group of all depths whose sum is the largest that float32 cannot hold, and that int32 just holds.
TEST(GroupedTest, SumsUpToInt32) {
  Problem problem;
  verify::GroupedFields& weights = problem.grouped.emplace();
  problem.a_type = INTACT_U8;
  problem.c_type = INTACT_F32;
  weights.b_type = INTACT_U8;
  problem.source = INTACT_TYPE_NONE;
  weights.group = 0;
  problem.m = 4;
  problem.n = 4;
  problem.k = 33025;
  weights.has_b_zero_points = true;
  weights.fill = GroupedFill::kBounds;
  ExpectTheContract(problem);
}

// Sums that do not fit into int32, of terms that cancel: Σ a·b, k·za and Σ b. acc_g fits.
TEST(GroupedTest, TermsMayExceedInt32) {
  constexpr int64_t kDepth = 9'000'000;
  constexpr uint8_t kZeroPoint = 255;
  std::vector<uint8_t> b(kDepth, kZeroPoint), a(kDepth, 200);
  b[5] = 0;
  b[kDepth - 1] = 250;
  a[5] = 3;
  const float scale = 1;
  const int32_t a_zero_point = kZeroPoint;
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = 1;
  desc.k = kDepth;
  desc.group = 0;
  desc.a_type = INTACT_U8;
  desc.a_source_type = INTACT_TYPE_NONE;
  desc.b_type = INTACT_U8;
  desc.scale_type = INTACT_F32;
  desc.b_scales = &scale;
  desc.b_zero_points = &kZeroPoint;
  desc.max_isa = INTACT_ISA_AVX2;  // its panels are the narrowest
  const auto plan = Grouped::Create(desc, b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  float c = 0;
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = 1;
  args.a = a.data();
  args.a_scales = &scale;
  args.a_zero_points = &a_zero_point;
  args.c = &c;
  ASSERT_TRUE(plan->Run(args).ok());
  EXPECT_EQ(c, (3 - 255) * (0 - 255) + (200 - 255) * (250 - 255));
}

TEST(GroupedTest, RefusesSumsBeyondInt32) {
  constexpr int64_t kDepth = 33026;
  const std::vector<uint8_t> b(kDepth, 255);
  const float scale = 1;
  const uint8_t zero_point = 0;
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = 1;
  desc.k = kDepth;
  desc.group = 0;
  desc.a_type = INTACT_U8;
  desc.b_type = INTACT_U8;
  desc.scale_type = INTACT_F32;
  desc.b_scales = &scale;
  desc.b_zero_points = &zero_point;
  const auto refused = Grouped::Create(desc, b.data());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, INTACT_OVERFLOW);
  EXPECT_EQ(
      refused.error().message,
      "intact_grouped_create: the sum of column 0, group 0 can be 2147515650; expected at most 2147483647 "
      "for all activations");
  desc.a_type = INTACT_S8;  // quantized symmetrically: at most 127
  EXPECT_TRUE(Grouped::Create(desc, b.data()));
}

// A plan that works, for tests of checks.
struct Small {
  std::vector<uint8_t> b = std::vector<uint8_t>(3 * 20, 0x98);
  std::vector<uint16_t> scales = std::vector<uint16_t>(6, 0x3c00);
  std::vector<uint8_t> zero_points = std::vector<uint8_t>(6, 15);
  std::vector<float> a = std::vector<float>(2 * 40, 0.5f);
  std::vector<float> c = std::vector<float>(2 * 3);
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;

  Small() {
    desc.n = 3;
    desc.k = 40;
    desc.b_scales = scales.data();
    args.m = 2;
    args.a = a.data();
    args.c = c.data();
  }
};

TEST(GroupedTest, ChecksDescriptors) {
  struct Case {
    std::function<void(Small*)> change;
    const char* message;
  };
  const float infinite = std::numeric_limits<float>::infinity();
  const Case cases[] = {
      {[](Small* s) { s->desc.n = 0; }, "n is 0; expected 1 to 2147483647"},
      {[](Small* s) { s->desc.k = -1; }, "k is -1; expected 1 to 2147483647"},
      {[](Small* s) { s->desc.group = 48; },
       "group is 48; expected 16, 32, 64, 128, 256, or 0 for all depths"},
      {[](Small* s) { s->desc.b_type = 9; },
       "b_type is 9; expected INTACT_U8, INTACT_S8, INTACT_U4 or INTACT_S4"},
      {[](Small* s) { s->desc.a_type = INTACT_U4; }, "a_type is 8; expected INTACT_U8 or INTACT_S8"},
      {[](Small* s) { s->desc.a_source_type = INTACT_S32; },
       "a_source_type is 3; expected INTACT_TYPE_NONE, INTACT_F32, INTACT_BF16 or INTACT_F16"},
      {[](Small* s) { s->desc.a_granularity = 2; }, "a_granularity is 2; expected an intact_granularity"},
      {[](Small* s) { s->desc.scale_type = INTACT_U8; },
       "scale_type is 1; expected INTACT_F32, INTACT_BF16 or INTACT_F16"},
      {[](Small* s) { s->desc.c_type = INTACT_S32; },
       "c_type is 3; expected INTACT_F32, INTACT_BF16 or INTACT_F16"},
      {[](Small* s) { s->desc.b_stride_k = 1; },
       "b_stride_k is 1; expected 0, because depths of 4-bit weights are adjacent"},
      {[](Small* s) { s->desc.b_stride_n = 19; },
       "b_stride_n is 19; expected 0 or at least 20, at most 2^40"},
      {[](Small* s) { s->desc.scale_stride_n = -1; }, "scale_stride_n is -1; expected 0 to 2^40"},
      {[](Small* s) { s->desc.b_scales = nullptr; }, "b_scales is NULL"},
      {[](Small* s) { s->scales[3] = 0x7c00; },
       "b_scales of column 1, group 1 is inf; expected a finite value"},
      {[](Small* s) {
         s->zero_points[5] = 16;
         s->desc.b_zero_points = s->zero_points.data();
       },
       "b_zero_points of column 2, group 1 is 16; expected 0 to 15"},
      {[&](Small* s) {
         static const std::vector<float> kMinimums = {0, 0, 0, infinite, 0, 0};
         s->desc.b_minimums = kMinimums.data();
       },
       "b_minimums of column 1, group 1 is inf; expected a finite value"},
      {[&](Small* s) {
         static const std::vector<float> kMinimums(6);
         s->desc.b_minimums = kMinimums.data();
         s->desc.b_zero_points = s->zero_points.data();
       },
       "b_zero_points and b_minimums are given; expected one of them to be NULL"},
      {[&](Small* s) {
         static const std::vector<float> kBias = {0, infinite, 0};
         s->desc.bias_f32 = kBias.data();
       },
       "bias_f32[1] is inf; expected a finite value"},
      {[](Small* s) { s->desc.activation = 3; }, "activation is 3; expected an intact_activation"},
      {[](Small* s) { s->desc.activation = INTACT_ACTIVATION_CLAMP; },
       "clamp_min and clamp_max are 0; expected the bounds of INTACT_ACTIVATION_CLAMP"},
      {[](Small* s) { s->desc.experts = 0; }, "experts is 0; expected 1 to 65536"},
      {[](Small* s) {
         s->desc.experts = 1 << 16;
         s->desc.n = s->desc.k = 1 << 13;
       },
       "experts·n·k is 4398046511104; expected at most 2^40"},
      {[](Small* s) { s->desc.b_stride_expert = -1; }, "b_stride_expert is -1; expected 0 to 2^40"},
      {[](Small* s) { s->desc.scale_stride_expert = -1; }, "scale_stride_expert is -1; expected 0 to 2^40"},
      {[](Small* s) { s->desc.bias_stride_expert = -1; }, "bias_stride_expert is -1; expected 0 to 2^40"},
      {[](Small* s) {
         s->desc.experts = 3;
         s->desc.n = 1;
         s->scales[5] = 0x7c00;
       },
       "b_scales of expert 2, column 0, group 1 is inf; expected a finite value"},
      {[](Small* s) { s->desc.struct_size = 8; },
       "desc->struct_size is 8; expected 168 (use its INIT macro)"},
  };
  for (const Case& test : cases) {
    Small small;
    test.change(&small);
    const auto plan = Grouped::Create(small.desc, small.b.data());
    ASSERT_FALSE(plan) << test.message;
    EXPECT_EQ(plan.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_EQ(plan.error().message, std::string("intact_grouped_create: ") + test.message);
  }
  EXPECT_EQ(Grouped::Create(Small().desc, nullptr).error().message, "intact_grouped_create: b is NULL");
}

TEST(GroupedTest, ChecksArguments) {
  struct Case {
    std::function<void(Small*)> change;
    const char* message;
  };
  static constexpr float kScale = 1;
  static constexpr int64_t kRows = 3;
  const Case cases[] = {
      {[](Small* s) { s->args.m = -1; }, "m is -1; expected 0 to 2147483647"},
      {[](Small* s) { s->args.a_stride = 39; }, "a_stride is 39; expected 0 or at least 40, at most 2^40"},
      {[](Small* s) { s->args.c_stride = 2; }, "c_stride is 2; expected 0 or at least 3, at most 2^40"},
      {[](Small* s) { s->args.reserved = 1; }, "reserved is 1; expected 0"},
      {[](Small* s) { s->args.threads = -1; }, "threads is -1; expected 0 or more"},
      {[](Small* s) { s->args.a = nullptr; }, "a is NULL"},
      {[](Small* s) { s->args.c = nullptr; }, "c is NULL"},
      {[](Small* s) { s->args.c = s->a.data() + 79; }, "c overlaps a; expected separate buffers"},
      {[](Small* s) { s->args.a_scales = &kScale; },
       "a_scales or a_zero_points are given; expected NULL, because the plan quantizes A (a_source_type)"},
      {[](Small* s) { s->args.scratch_bytes = 100; }, "scratch_bytes is 100 and scratch is NULL; expected 0"},
      {[](Small* s) { s->args.expert_rows = &kRows; },
       "expert_rows[0] is 3; expected m, which is 2, because the plan has one expert"},
  };
  const Small good;
  const auto plan = Grouped::Create(good.desc, good.b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  for (const Case& test : cases) {
    Small small;
    test.change(&small);
    const Error error = plan->Run(small.args);
    EXPECT_EQ(error.message, std::string("intact_grouped_run: ") + test.message);
    EXPECT_TRUE(std::all_of(small.c.begin(), small.c.end(), [](float c) { return c == 0; }));
  }
  EXPECT_EQ(plan->RunPart(good.args, 2, 2).message,
            "intact_grouped_run_part: part is 2 of 2; expected 0 to parts − 1");
}

TEST(GroupedTest, OneExpertTakesItsNumberOfRows) {
  Small small;
  const auto plan = Grouped::Create(small.desc, small.b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(plan->Run(small.args).ok());
  const std::vector<float> expected = std::exchange(small.c, std::vector<float>(6));
  small.args.c = small.c.data();
  small.args.expert_rows = &small.args.m;
  ASSERT_TRUE(plan->Run(small.args).ok());
  EXPECT_EQ(small.c, expected);
  EXPECT_NE(small.c, std::vector<float>(6));
}

TEST(GroupedTest, ChecksRowsOfExperts) {
  Small small;
  small.desc.experts = 3;
  small.desc.n = 1;
  const auto plan = Grouped::Create(small.desc, small.b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->Info().experts, 3);
  EXPECT_EQ(plan->Run(small.args).message,
            "intact_grouped_run: expert_rows is NULL; expected 3 numbers of rows, one for each expert");
  std::vector<int64_t> rows = {1, 0, 2};
  small.args.expert_rows = rows.data();
  EXPECT_EQ(plan->Run(small.args).message,
            "intact_grouped_run: the sum of expert_rows is 3; expected m, which is 2");
  rows = {1, -1, 2};
  EXPECT_EQ(plan->Run(small.args).message,
            "intact_grouped_run: expert_rows[1] is -1; expected 0 to m, which is 2");
  rows = {1, 0, int64_t{1} << 62};
  EXPECT_EQ(plan->RunPart(small.args, 0, 2).message,
            "intact_grouped_run_part: expert_rows[2] is 4611686018427387904; expected 0 to m, which is 2");
  rows = {0, 2, 0};
  EXPECT_TRUE(plan->Run(small.args).ok());
}

TEST(GroupedTest, ChecksBatches) {
  struct Case {
    std::function<void(Small*)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](Small* s) { s->args.batch = -1; }, "batch is -1; expected 0 to 2147483647"},
      {[](Small* s) { s->args.batch = int64_t{1} << 30; },
       "m·batch is 2147483648; expected at most 2147483647"},
      {[](Small* s) { s->args.a_batch_stride = -1; }, "a_batch_stride is -1; expected 0 to 2^40"},
      {[](Small* s) { s->args.c_batch_stride = 5; },
       "c_batch_stride is 5; expected 0 or at least 6, because items of c must not overlap"},
      {[](Small* s) {  // C of the second item begins in its A
         s->args.c = s->a.data();
         s->args.a = s->a.data() + 40;
         s->args.c_batch_stride = 50;
         s->args.m = 1;
         s->args.a_batch_stride = 10;
       },
       "c overlaps a; expected separate buffers"},
  };
  const Small good;
  const auto plan = Grouped::Create(good.desc, good.b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  for (const Case& test : cases) {
    Small small;
    small.args.batch = 2;
    test.change(&small);
    EXPECT_EQ(plan->Run(small.args).message, std::string("intact_grouped_run: ") + test.message);
  }
  Small none;
  none.args.batch = 0;
  none.args.a = none.args.c = nullptr;
  EXPECT_TRUE(plan->Run(none.args).ok());
  EXPECT_EQ(plan->Prepare(none.args)->scratch_bytes, 0);
  Small experts;
  experts.desc.experts = 3;
  experts.desc.n = 1;
  const auto several = Grouped::Create(experts.desc, experts.b.data());
  ASSERT_TRUE(several);
  experts.args.batch = 2;
  EXPECT_EQ(several->Run(experts.args).message,
            "intact_grouped_run: batch is 2; expected 1, because the plan has several experts");
}

// The rows of items alternate in memory; items have equal A.
TEST(GroupedTest, BatchesOfAnyStride) {
  const reference::Grouped grouped =
      verify::MaterializeGrouped(*verify::Problem::Parse("grouped u8u4f32 m=12 n=37 k=70 zb=yes per=group"));
  const std::vector<uint8_t> expected = reference::Outputs(grouped);
  constexpr int64_t kItems = 4, kRows = 3;
  for (const intact_isa isa : core::kIsaLadder) {
    if (intact_isa_available(isa) == 0) continue;
    const auto plan = verify::CreatePlan(grouped, On(isa));
    ASSERT_TRUE(plan) << plan.error().message;
    const int64_t n = grouped.n, k = grouped.k;
    std::vector<float> c(expected.size() / sizeof(float));
    const auto row_of = [&](int64_t row) {
      std::vector<float> values(static_cast<size_t>(n));
      std::memcpy(values.data(), expected.data() + row * n * 4, values.size() * sizeof(float));
      return values;
    };
    intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
    args.m = kRows;
    args.batch = kItems;
    args.a = grouped.a_source.data();
    args.a_stride = kItems * k;  // rows of the items alternate
    args.a_batch_stride = k;
    args.c = c.data();
    args.c_stride = kItems * n;
    args.c_batch_stride = n;
    ASSERT_TRUE(plan->Run(args).ok());
    for (int64_t row = 0; row < grouped.m; ++row) {
      EXPECT_EQ(std::vector<float>(c.begin() + row * n, c.begin() + (row + 1) * n), row_of(row));
    }
    args.m = 1;  // joined: all rows of C have the first row of A
    args.a_batch_stride = 0;
    args.a_stride = k;
    std::vector<float> a(static_cast<size_t>(k * kItems));
    const size_t row_bytes = static_cast<size_t>(k) * sizeof(float);
    for (int64_t i = 0; i < kItems; ++i) std::memcpy(a.data() + i * k, grouped.a_source.data(), row_bytes);
    args.a = a.data();
    args.c_stride = 0;
    args.c_batch_stride = 2 * n;
    ASSERT_TRUE(plan->Run(args).ok());
    for (int64_t i = 0; i < kItems; ++i) {
      EXPECT_EQ(std::vector<float>(c.begin() + 2 * i * n, c.begin() + (2 * i + 1) * n), row_of(0));
    }
  }
}

// Items of A that share memory: an item begins in the row of the item before.
TEST(GroupedTest, ItemsOfAMayOverlap) {
  const reference::Grouped grouped =
      verify::MaterializeGrouped(*verify::Problem::Parse("grouped s8u4f32 m=3 n=37 k=70 zb=yes"));
  constexpr int64_t kItems = 5, kStride = 13;
  const int64_t n = grouped.n;
  for (const intact_isa isa : core::kIsaLadder) {
    if (intact_isa_available(isa) == 0) continue;
    SCOPED_TRACE(intact_isa_name(isa));
    const auto plan = verify::CreatePlan(grouped, On(isa));
    ASSERT_TRUE(plan) << plan.error().message;
    const auto* const a = reinterpret_cast<const float*>(grouped.a_source.data());
    for (const int64_t rows : {1, 2}) {
      intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
      args.m = rows;
      std::vector<float> expected(static_cast<size_t>(kItems * rows * n)), c(expected.size());
      for (int64_t i = 0; i < kItems; ++i) {
        args.a = a + i * kStride;
        args.c = expected.data() + i * rows * n;
        ASSERT_TRUE(plan->Run(args).ok());
      }
      args.batch = kItems;
      args.a = a;
      args.a_batch_stride = kStride;
      args.c = c.data();
      for (const int32_t threads : {1, 3}) {
        args.threads = threads;
        std::fill(c.begin(), c.end(), -1.0f);
        ASSERT_TRUE(plan->Run(args).ok());
        EXPECT_EQ(c, expected) << rows << " rows, " << threads << " threads";
      }
    }
  }
}

TEST(GroupedTest, ChecksGivenActivations) {
  Small small;
  small.desc.a_source_type = INTACT_TYPE_NONE;
  small.desc.a_granularity = INTACT_GRANULARITY_GROUPS;
  const auto plan = Grouped::Create(small.desc, small.b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->Run(small.args).message,
            "intact_grouped_run: a_scales is NULL; expected a value for each group of each row");
  std::vector<float> scales = {1, 1, 1, -1};
  small.args.a_scales = scales.data();
  EXPECT_EQ(plan->Run(small.args).message,
            "intact_grouped_run: a_scales[3] is -1; expected a finite value of at least 0");
  scales[3] = 1;
  const std::vector<int32_t> points = {0, -129, 0, 0};
  small.args.a_zero_points = points.data();
  EXPECT_EQ(plan->Run(small.args).message,
            "intact_grouped_run: a_zero_points[1] is -129; expected -128 to 127");
}

// The example of the documentation, computed by hand: two groups of 16 depths, zero point 8.
TEST(GroupedTest, IsTheSumByHand) {
  std::vector<uint8_t> b(16, 0x99);  // each weight is 9 − 8 = 1
  b[8] = 0xf9;                       // depth 17: 15 − 8 = 7
  const std::vector<float> scales = {0.5f, 0.25f};
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = 1;
  desc.k = 32;
  desc.group = 16;
  desc.a_source_type = INTACT_TYPE_NONE;
  desc.scale_type = INTACT_F32;
  desc.b_scales = scales.data();
  const auto plan = Grouped::Create(desc, b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  std::vector<int8_t> a(32, 2);
  a[17] = -3;
  const float a_scale = 0.5f;
  float c = 0;
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = 1;
  args.a = a.data();
  args.a_scales = &a_scale;
  args.c = &c;
  ASSERT_TRUE(plan->Run(args).ok());
  EXPECT_EQ(c, (32 * 0.5f + (30 - 21) * 0.25f) * 0.5f);
}

// 8-bit weights as K×N, and scales as [group][column].
TEST(GroupedTest, TakesStrides) {
  const verify::Problem problem = *verify::Problem::Parse("grouped s8s8f32 m=3 n=5 k=70 zb=yes");
  const reference::Grouped grouped = verify::MaterializeGrouped(problem);
  const auto n = static_cast<size_t>(grouped.n), k = static_cast<size_t>(grouped.k);
  const auto groups = static_cast<size_t>(grouped.groups());
  std::vector<int8_t> b(n * k);
  std::vector<uint16_t> scales(n * groups);
  std::vector<int8_t> points(n * groups);
  const auto* const stored = reinterpret_cast<const uint16_t*>(grouped.b_scales.data());
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < k; ++j) b[j * n + i] = static_cast<int8_t>(grouped.b[i * k + j]);
    for (size_t g = 0; g < groups; ++g) {
      scales[g * n + i] = stored[i * groups + g];
      points[g * n + i] = static_cast<int8_t>(grouped.b_zero_points[i * groups + g]);
    }
  }
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = grouped.n;
  desc.k = grouped.k;
  desc.b_type = INTACT_S8;
  desc.b_stride_n = 1;
  desc.b_stride_k = grouped.n;
  desc.b_scales = scales.data();
  desc.b_zero_points = points.data();
  desc.scale_stride_n = 1;
  desc.scale_stride_g = grouped.n;
  const auto plan = Grouped::Create(desc, b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  std::vector<uint8_t> c(static_cast<size_t>(grouped.m) * n * sizeof(float));
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = grouped.m;
  args.a = grouped.a_source.data();
  args.c = c.data();
  ASSERT_TRUE(plan->Run(args).ok());
  EXPECT_EQ(c, reference::Outputs(grouped));
  const intact_grouped_info info = plan->Info();
  EXPECT_EQ(info.groups, 3);
  EXPECT_EQ(info.group, 32);
  EXPECT_EQ(info.b_type, INTACT_S8);
  EXPECT_GE(info.packed_bytes, grouped.n * grouped.k);
}

// The rows of each expert have the bytes of a plan of this expert alone, for every number of parts and
// threads.
TEST(GroupedTest, ExpertsEqualSeparatePlans) {
  for (const char* line : {"grouped s8u4f32 m=90 n=70 k=131 experts=7 zb=yes bias=yes act=relu per=group",
                           "grouped u8s8f16 m=9 n=33 k=64 experts=40 src=none",
                           "grouped s8s4bf16 m=600 n=20 k=40 experts=2 zb=yes bias=yes"}) {
    const reference::Grouped all = verify::MaterializeGrouped(*verify::Problem::Parse(line));
    for (const intact_isa isa : core::kIsaLadder) {
      if (intact_isa_available(isa) == 0) continue;
      SCOPED_TRACE(std::string(line) + " on " + intact_isa_name(isa));
      std::vector<uint8_t> expected;
      int64_t first_row = 0;
      for (int64_t expert = 0; expert < all.experts; ++expert) {
        reference::Grouped one = all;
        const auto take = [](auto* values, int64_t begin, int64_t count, int64_t of_all) {
          const int64_t each = std::ssize(*values) / of_all;
          *values = {values->begin() + begin * each, values->begin() + (begin + count) * each};
        };
        one.m = all.expert_rows[static_cast<size_t>(expert)];
        one.experts = 1;
        one.expert_rows.clear();
        take(&one.a_source, first_row, one.m, all.m);
        take(&one.a, first_row, one.m, all.m);
        take(&one.a_scales, first_row, one.m, all.m);
        take(&one.a_zero_points, first_row, one.m, all.m);
        take(&one.b, expert, 1, all.experts);
        take(&one.b_scales, expert, 1, all.experts);
        take(&one.b_zero_points, expert, 1, all.experts);
        take(&one.bias_f32, expert, 1, all.experts);
        first_row += one.m;
        const auto output = verify::IntactTarget().Run(one, On(isa));
        ASSERT_TRUE(output) << output.error().message;
        expected.insert(expected.end(), output->begin(), output->end());
      }
      const auto plan = verify::CreatePlan(all, On(isa));
      ASSERT_TRUE(plan) << plan.error().message;
      for (const int32_t parts : {0, 1, 2, 5, 64}) {
        verify::RunOptions run = On(isa);
        run.threads = 3;
        run.parts = parts;
        run.own_scratch = true;
        const auto output = verify::RunOn(*plan, all, run);
        ASSERT_TRUE(output) << output.error().message;
        EXPECT_EQ(*output, expected) << parts << " parts";
      }
    }
  }
}

// The certificate, from the activations 0 and 255 of each pair, and the results of VPMADDUBSW. Weights are
// those of the problem, as the instruction sees them.
struct ExpectedGroup {
  int64_t failing_pairs = 0, safe_activation = 255, largest_sum = 0;
};
[[gnu::target("ssse3")]] int32_t Clamped(int32_t a0, int32_t a1, int32_t w0, int32_t w1) {
  const __m128i a = _mm_set1_epi16(static_cast<int16_t>(a0 | a1 << 8));
  const __m128i w = _mm_set1_epi16(static_cast<int16_t>((w0 & 255) | (w1 & 255) << 8));
  return static_cast<int16_t>(_mm_extract_epi16(_mm_maddubs_epi16(a, w), 0));
}
bool Clamps(int32_t most, int32_t w0, int32_t w1) {
  for (const int32_t a0 : {0, most}) {
    for (const int32_t a1 : {0, most}) {
      if (Clamped(a0, a1, w0, w1) != a0 * w0 + a1 * w1) return true;
    }
  }
  return false;
}
// `n`: the number of the column among the columns of all experts.
ExpectedGroup ExpectedOf(const reference::Grouped& grouped, int64_t n, int64_t g) {
  const int32_t shift = grouped.b_type == INTACT_U8 ? -128 : grouped.b_type == INTACT_S4 ? 8 : 0;
  const int64_t end = std::min(grouped.k, (g + 1) * grouped.depth());
  const auto weight = [&](int64_t k) {
    return k < end ? grouped.b[static_cast<size_t>(n * grouped.k + k)] + shift : 0;
  };
  ExpectedGroup expected;
  for (int64_t k = g * grouped.depth(); k < end; k += 2) {
    for (const int32_t sum : {weight(k), weight(k + 1), weight(k) + weight(k + 1)}) {
      expected.largest_sum = std::max<int64_t>(expected.largest_sum, 255 * std::abs(sum));
    }
    if (!Clamps(255, weight(k), weight(k + 1))) continue;
    ++expected.failing_pairs;
    while (Clamps(static_cast<int32_t>(expected.safe_activation), weight(k), weight(k + 1))) {
      --expected.safe_activation;
    }
  }
  return expected;
}

TEST(GroupedTest, CertificatesHoldForTheInstruction) {
  for (const char* line :
       {"grouped u8s8f32 m=1 n=37 k=131", "grouped s8u8f32 m=1 n=35 k=300 group=128 zb=yes",
        "grouped u8s8f32 m=1 n=40 k=77 group=0 fill=bounds",
        "grouped u8u8f32 m=1 n=5 k=64 group=16 fill=bounds",
        "grouped u8u4f32 m=1 n=33 k=75 zb=yes fill=bounds", "grouped s8s4f32 m=1 n=20 k=31 group=16",
        "grouped u8s8f32 m=1 n=7 k=70 experts=9", "grouped s8u8f32 m=1 n=33 k=40 experts=3 fill=bounds"}) {
    const reference::Grouped grouped = verify::MaterializeGrouped(*verify::Problem::Parse(line));
    for (const intact_isa isa : core::kIsaLadder) {
      if (intact_isa_available(isa) == 0) continue;
      SCOPED_TRACE(std::string(line) + " isa=" + intact_isa_name(isa));
      const auto plan = verify::CreatePlan(grouped, On(isa));
      ASSERT_TRUE(plan) << plan.error().message;
      const auto certificate = plan->Certificate();
      ASSERT_TRUE(certificate) << certificate.error().message;
      std::vector<intact_group_certificate> groups(static_cast<size_t>(grouped.columns() * grouped.groups()));
      ASSERT_EQ(intact_grouped_group_certificates(plan->handle(), 0, grouped.columns(), groups.data()),
                INTACT_OK);
      std::vector<intact_failing_pair> pairs(static_cast<size_t>(certificate->failing_pairs) + 1);
      int64_t written = 0;
      ASSERT_EQ(intact_grouped_failing_pairs(plan->handle(), 0, std::ssize(pairs), pairs.data(), &written),
                INTACT_OK);
      EXPECT_EQ(written, certificate->failing_pairs);
      pairs.resize(static_cast<size_t>(written));
      ExpectedGroup all;
      int64_t failing_groups = 0, most = 0;
      for (size_t i = 0; i < groups.size(); ++i) {
        const auto number = static_cast<int64_t>(i);
        const ExpectedGroup expected =
            ExpectedOf(grouped, number / grouped.groups(), number % grouped.groups());
        EXPECT_EQ(groups[i].failing_pairs, expected.failing_pairs);
        EXPECT_EQ(groups[i].safe_activation, expected.safe_activation);
        all.failing_pairs += expected.failing_pairs;
        all.safe_activation = std::min(all.safe_activation, expected.safe_activation);
        all.largest_sum = std::max(all.largest_sum, expected.largest_sum);
        failing_groups += expected.failing_pairs != 0 ? 1 : 0;
        most = std::max(most, expected.failing_pairs);
      }
      EXPECT_EQ(certificate->pairs, (grouped.k + 1) / 2 * grouped.columns());
      EXPECT_EQ(certificate->failing_pairs, all.failing_pairs);
      EXPECT_EQ(certificate->safe_activation, all.safe_activation);
      EXPECT_EQ(certificate->failing_groups, failing_groups);
      EXPECT_EQ(certificate->worst_group_failing_pairs, most);
      const int64_t worst = certificate->worst_column * grouped.groups() + certificate->worst_group;
      EXPECT_EQ(groups[static_cast<size_t>(worst)].failing_pairs, most);
      EXPECT_EQ(grouped.IsPacked(), certificate->failing_pairs == 0);
      EXPECT_EQ(std::abs(certificate->largest_sum), all.largest_sum);
      if (grouped.IsPacked()) {
        EXPECT_LE(all.largest_sum, 7650);
      }
      for (size_t i = 0; i < pairs.size(); ++i) {
        const intact_failing_pair& pair = pairs[i];
        EXPECT_EQ(pair.sum, pair.a0 * pair.w0 + pair.a1 * pair.w1);
        EXPECT_NE(pair.sum, Clamped(pair.a0, pair.a1, pair.w0, pair.w1)) << "the witness clamps";
        EXPECT_LE(std::abs(pair.sum), std::abs(certificate->largest_sum));
        if (i == 0) continue;
        EXPECT_LT(std::pair(pairs[i - 1].n, pairs[i - 1].k), std::pair(pair.n, pair.k));
      }
    }
  }
}

TEST(GroupedTest, CertificatesOfOnePair) {
  const std::array<uint16_t, 4> scales = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
  std::vector<int8_t> b(2 * 64, 64);
  b[64 + 33] = -128;  // column 1, group 1: 64 and −128 have no sum beyond int16
  b[34] = b[35] = 127;
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = 2;
  desc.k = 64;
  desc.b_type = INTACT_S8;
  desc.b_scales = scales.data();
  const auto plan = Grouped::Create(desc, b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  const auto certificate = plan->Certificate();
  ASSERT_TRUE(certificate) << certificate.error().message;
  EXPECT_EQ(certificate->pairs, 64);
  EXPECT_EQ(certificate->failing_pairs, 1);
  EXPECT_EQ(certificate->failing_groups, 1);
  EXPECT_EQ(certificate->worst_column, 0);
  EXPECT_EQ(certificate->worst_group, 1);
  EXPECT_EQ(certificate->largest_sum_k, 34);
  EXPECT_EQ(certificate->largest_sum_n, 0);
  EXPECT_EQ(certificate->largest_sum, 255 * 254);
  EXPECT_EQ(certificate->safe_activation, 129);
  intact_failing_pair pair;
  int64_t written = 7;
  EXPECT_EQ(intact_grouped_failing_pairs(plan->handle(), 1, 1, &pair, &written), INTACT_OK);
  EXPECT_EQ(written, 0);
  intact_group_certificate group;
  EXPECT_EQ(intact_grouped_group_certificates(plan->handle(), 1, 2, &group), INTACT_INVALID_ARGUMENT);
  EXPECT_STREQ(intact_last_error(),
               "intact_grouped_group_certificates: first is 1 and count is 2; there are 2 columns");
  EXPECT_EQ(intact_grouped_failing_pairs(plan->handle(), -1, 1, &pair, &written), INTACT_INVALID_ARGUMENT);
  EXPECT_EQ(intact_grouped_certificate(nullptr, nullptr), INTACT_INVALID_ARGUMENT);
}

// The largest sum of one pair of each type.
TEST(GroupedTest, LargestSums) {
  struct Pair {
    int32_t type;
    std::vector<uint8_t> b;
    int32_t sum;
  };
  for (const Pair& pair :
       {Pair{INTACT_S8, {100, 256 - 101}, -101 * 255}, Pair{INTACT_S8, {100, 256 - 99}, 100 * 255},
        Pair{INTACT_U8, {228, 27}, -101 * 255}, Pair{INTACT_U4, {0x2f}, 17 * 255},
        Pair{INTACT_S4, {0x8f}, 7 * 255}}) {
    const uint16_t scale = 0x3c00;
    intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
    desc.n = 1;
    desc.k = 2;
    desc.b_type = pair.type;
    desc.b_scales = &scale;
    const auto plan = Grouped::Create(desc, pair.b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    const auto certificate = plan->Certificate();
    ASSERT_TRUE(certificate) << certificate.error().message;
    EXPECT_EQ(certificate->largest_sum, pair.sum) << pair.type;
  }
}

// A saved plan of every type of weights. Plans that pack weights in one layout save the same bytes.
TEST(GroupedTest, SavedPlansComputeTheSameBytesOnEveryIsa) {
  const std::string path = TempPath();
  for (const char* line :
       {"grouped s8u4f32 m=3 n=37 k=131 zb=yes bias=yes act=clamp", "grouped u8s4bf16 m=2 n=5 k=64 group=16",
        "grouped u8s8f16 m=3 n=40 k=300 group=0 zb=yes per=group gscale=f32",
        "grouped s8u8f32 m=3 n=70 k=77 src=none act=relu gscale=bf16",
        "grouped s8u4f16 m=8 n=20 k=70 experts=5 zb=yes bias=yes"}) {
    const reference::Grouped grouped = verify::MaterializeGrouped(*verify::Problem::Parse(line));
    const std::vector<uint8_t> expected = reference::Outputs(grouped);
    std::set<std::vector<uint8_t>> images;
    for (const intact_isa saver : core::kIsaLadder) {
      if (intact_isa_available(saver) == 0) continue;
      const auto plan = verify::CreatePlan(grouped, On(saver));
      ASSERT_TRUE(plan) << plan.error().message;
      ASSERT_TRUE(plan->Save(path).ok());
      const auto image = plan->SaveMemory();
      ASSERT_TRUE(image) << image.error().message;
      images.insert(*image);
      for (const intact_isa loader : core::kIsaLadder) {
        if (intact_isa_available(loader) == 0) continue;
        SCOPED_TRACE(std::string(line) + " loaded on " + intact_isa_name(loader));
        const auto loaded = Grouped::Load(path, loader);
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ(loaded->Info().isa, loader);
        const auto output = verify::RunOn(*loaded, grouped, {});
        ASSERT_TRUE(output) << output.error().message;
        EXPECT_EQ(*output, expected);
      }
    }
    EXPECT_GT(images.size(), 0U);
    EXPECT_LE(images.size(), grouped.IsPacked() ? 2U : 4U);
  }
  std::filesystem::remove(path);
}

// The plan has copied what it needs.
TEST(GroupedTest, RunsAfterItsImageWasOverwritten) {
  for (const char* const rest : {"zb=yes bias=yes act=clamp", "min=yes bias=yes"}) {
    const reference::Grouped grouped = verify::MaterializeGrouped(
        *verify::Problem::Parse(std::string("grouped s8u4f32 m=3 n=37 k=131 ") + rest));
    for (const intact_isa isa : core::kIsaLadder) {
      if (intact_isa_available(isa) == 0) continue;
      SCOPED_TRACE(intact_isa_name(isa));
      const auto plan = verify::CreatePlan(grouped, On(isa));
      ASSERT_TRUE(plan) << plan.error().message;
      const std::vector<uint8_t> image = *plan->SaveMemory();
      std::vector<uint8_t> memory(image.size() + 65);
      uint8_t* const aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
      for (uint8_t* const data : {aligned, aligned + 1}) {
        std::copy(image.begin(), image.end(), data);
        const auto loaded = Grouped::LoadMemory(data, image.size(), isa);
        ASSERT_TRUE(loaded) << loaded.error().message;
        std::fill(memory.begin(), memory.end(), uint8_t{0x55});
        const auto output = verify::RunOn(*loaded, grouped, {});
        ASSERT_TRUE(output) << output.error().message;
        EXPECT_EQ(*output, reference::Outputs(grouped));
      }
    }
  }
}

// Offsets in a file: the descriptor, and what follows it.
constexpr size_t kDescAt = 32, kPackingAt = kDescAt + sizeof(intact_grouped_desc),
                 kHeaderBytes = kPackingAt + 32;

// The zero point of all weights is refused on every ISA, also where zero points may differ.
TEST(GroupedTest, RefusesZeroPointsOfFiles) {
  constexpr size_t kZeroPointAt = kPackingAt + 20, kFlagAt = kPackingAt + 16;
  Small small;
  for (const bool is_common : {false, true}) {
    if (!is_common) small.zero_points[0] = 3;
    small.desc.b_zero_points = small.zero_points.data();
    const auto plan = Grouped::Create(small.desc, small.b.data());
    ASSERT_TRUE(plan);
    const std::vector<uint8_t> good = *plan->SaveMemory();
    ASSERT_EQ(good[kFlagAt], is_common ? 1 : 0);
    for (const int32_t zero_point : {264, 0x7fffffff, -1}) {
      std::vector<uint8_t> image = good;
      std::memcpy(&image[kZeroPointAt], &zero_point, sizeof zero_point);
      fuzz::Seal(image);
      std::vector<uint8_t> memory(image.size() + 64);
      uint8_t* const data = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
      std::copy(image.begin(), image.end(), data);
      for (const intact_isa isa : core::kIsaLadder) {
        if (intact_isa_available(isa) == 0) continue;
        const auto loaded = Grouped::LoadMemory(data, image.size(), isa);
        ASSERT_FALSE(loaded) << zero_point << " on " << intact_isa_name(isa);
        EXPECT_EQ(loaded.error().message,
                  "intact_grouped_load_memory: corrupted: the zero point of all weights is " +
                      std::to_string(zero_point) +
                      (is_common ? "; expected 0 to 15" : "; expected 0, because zero points differ"));
      }
    }
    small.zero_points[0] = 15;
  }
}

TEST(GroupedTest, RefusesFiles) {
  const Small small;
  const auto plan = Grouped::Create(small.desc, small.b.data());
  ASSERT_TRUE(plan);
  const std::string path = TempPath();
  const std::vector<uint8_t> good = *plan->SaveMemory();
  struct Case {
    std::function<void(std::vector<uint8_t>*)> change;
    bool is_sealed;
    const char* message;
  };
  const auto store = [](size_t at, auto value) {
    return [=](std::vector<uint8_t>* image) { std::memcpy(image->data() + at, &value, sizeof(value)); };
  };
  const std::string size = std::to_string(good.size());
  const std::string longer = "truncated: " + std::to_string(good.size() - 64) + " bytes; expected " + size;
  const std::string shorter = "truncated: 10 bytes, fewer than a header's " + std::to_string(kHeaderBytes);
  const Case cases[] = {
      {[](auto* image) { image->resize(10); }, false, shorter.c_str()},
      {[](auto* image) { image->resize(image->size() - 64); }, false, longer.c_str()},
      {[](auto* image) { (*image)[0] = 'X'; }, true, "not a file of grouped weights"},
      {[](auto* image) { (*image)[8] = 7; }, true, "format version 7; expected 5"},
      {[](auto* image) { image->back() ^= 1; }, false, "corrupted: the checksum differs"},
      {[](auto* image) { (*image)[kHeaderBytes + 1] ^= 1; }, false, "corrupted: the checksum differs"},
      {store(kDescAt + offsetof(intact_grouped_desc, n), int64_t{400}), true,
       "corrupted: the size does not match n, k and experts"},
      {store(kDescAt + offsetof(intact_grouped_desc, k), int64_t{0}), true,
       "k is 0; expected 1 to 2147483647"},
      {store(kDescAt + offsetof(intact_grouped_desc, experts), int64_t{3}), true,
       "corrupted: the size does not match n, k and experts"},
      {store(kDescAt + offsetof(intact_grouped_desc, experts), int64_t{0}), true,
       "experts is 0; expected 1 to 65536"},
      {store(kDescAt + offsetof(intact_grouped_desc, a_source_type), int32_t{9}), true,
       "a_source_type is 9; expected INTACT_TYPE_NONE, INTACT_F32, INTACT_BF16 or INTACT_F16"},
      {store(kPackingAt + 4, uint32_t{2}), true, "corrupted: a flag is out of range"},
      {store(kPackingAt + 8, int32_t{24}), true,
       "corrupted: the number of columns of a panel is 24; expected 16 or 32"},
      {store(kPackingAt + 20, int32_t{9}), true, "corrupted: the zero point of all weights is wrong"},
      {store(kPackingAt + 24, int32_t{3}), true, "corrupted: the type of minimums is 3; expected 0, 4 or 6"},
      {store(kPackingAt + 28, uint32_t{2}), true, "corrupted: a flag is out of range"},
      {store((kHeaderBytes + 63) / 64 * 64, uint16_t{0x7c00}), true,
       "b_scales of column 0, group 0 is inf; expected a finite value"},
  };
  for (const Case& test : cases) {
    std::vector<uint8_t> image = good;
    test.change(&image);
    if (test.is_sealed) fuzz::Seal(image);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(image.data()), std::ssize(image));
    const auto loaded = Grouped::Load(path);
    ASSERT_FALSE(loaded) << test.message;
    EXPECT_EQ(loaded.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_EQ(loaded.error().message, "intact_grouped_load: '" + path + "': " + test.message);
  }
  EXPECT_FALSE(Grouped::Load(path + ".missing"));
  std::filesystem::remove(path);
}

// A row of A has 128 bytes, and a column of packed weights 18. So a share has 256 rows and 1024 columns, not
// 512 rows and 512 columns.
TEST(GroupedTest, PartsReadFewBytes) {
  constexpr int64_t kRows = 512, kColumns = 4096, kDepth = 32;
  const std::vector<uint8_t> b(kColumns * kDepth / 2, 0x98);
  const std::vector<uint16_t> scales(kColumns * kDepth / 32, 0x3c00);
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = kColumns;
  desc.k = kDepth;
  desc.b_scales = scales.data();
  const auto plan = Grouped::Create(desc, b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  const std::vector<float> a(kRows * kDepth, 1.0f);
  std::vector<float> c(kRows * kColumns, -1.0f);
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = kRows;
  args.a = a.data();
  args.c = c.data();
  ASSERT_TRUE(plan->RunPart(args, 0, 8).ok());
  int64_t rows = 0;
  while (rows < kRows && c[static_cast<size_t>(rows * kColumns)] >= 0) ++rows;
  const int64_t columns = std::find(c.begin(), c.begin() + kColumns, -1.0f) - c.begin();
  EXPECT_EQ(rows, 256);
  EXPECT_EQ(columns, 1024);
}

// Any number of threads may run one plan at once.
TEST(GroupedTest, RunsOfSeveralThreads) {
  const verify::Problem problem =
      *verify::Problem::Parse("grouped u8u4f32 m=300 n=70 k=300 zb=yes per=group");
  const reference::Grouped grouped = verify::MaterializeGrouped(problem);
  const std::vector<uint8_t> expected = reference::Outputs(grouped), b = reference::BytesOfB(grouped);
  const std::vector<uint8_t> points(grouped.b_zero_points.begin(), grouped.b_zero_points.end());
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = grouped.n;
  desc.k = grouped.k;
  desc.a_type = INTACT_U8;
  desc.a_granularity = INTACT_GRANULARITY_GROUPS;
  desc.b_scales = grouped.b_scales.data();
  desc.b_zero_points = points.data();
  const auto plan = Grouped::Create(desc, b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  constexpr int64_t kThreads = 4;
  constexpr int kRuns = 5;
  std::vector<int> right(kThreads);  // runs with the right bytes
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
      args.m = grouped.m / (i + 1);  // runs of different sizes
      args.a = grouped.a_source.data();
      args.threads = i == 0 ? 2 : 1;
      std::vector<uint8_t> c(static_cast<size_t>(args.m * grouped.n) * sizeof(float));
      args.c = c.data();
      for (int run = 0; run < kRuns; ++run) {
        std::fill(c.begin(), c.end(), uint8_t{0xff});
        const bool has_run = plan->Run(args).ok();
        right[static_cast<size_t>(i)] += has_run && std::equal(c.begin(), c.end(), expected.begin()) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(kThreads, kRuns));
}

TEST(GroupedTest, RunsNothing) {
  const Small small;
  const auto plan = Grouped::Create(small.desc, small.b.data());
  ASSERT_TRUE(plan);
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  EXPECT_TRUE(plan->Run(args).ok());
  EXPECT_EQ(plan->Prepare(args)->scratch_bytes, 0);
}

}  // namespace
}  // namespace intact::tests
