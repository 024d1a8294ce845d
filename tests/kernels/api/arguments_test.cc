// What the header says about arguments, where tests of single functions do not look: bounds of sums, scratch
// for any pointers, numbers of threads, names in messages, structs that end within a field, zeros.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/grouped.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace intact::tests {
namespace {

using testing::HasSubstr;

struct DestroyGemm {
  void operator()(intact_gemm* gemm) const noexcept { intact_gemm_destroy(gemm); }
};
using GemmPointer = std::unique_ptr<intact_gemm, DestroyGemm>;

GemmPointer MakeGemm(int64_t n, int64_t k, const intact_linear_desc& linear, const void* b) {
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = n;
  desc.k = k;
  intact_gemm* gemm = nullptr;
  (void)intact_gemm_create(&desc, &linear, b, &gemm);
  return GemmPointer(gemm);
}

void ExpectRefused(intact_status status, const std::string& words) {
  EXPECT_EQ(status, INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr(words));
}

// ----- bounds of sums --------------------------------------------------------------------------------------

struct Bounds {
  int64_t least = std::numeric_limits<int64_t>::max(), most = std::numeric_limits<int64_t>::min();
};

// The sums of a column of weights `w`, with every zero point from `zero_low` to `zero_high`: each depth's
// activation is the one that makes its product the smallest, or the largest.
Bounds BoundsOf(const std::vector<int>& w, int low, int high, int zero_low, int zero_high) {
  Bounds bounds;
  for (int zero = zero_low; zero <= zero_high; ++zero) {
    int64_t least = 0, most = 0;
    for (const int weight : w) {
      least += std::min(weight * (low - zero), weight * (high - zero));
      most += std::max(weight * (low - zero), weight * (high - zero));
    }
    bounds.least = std::min(bounds.least, least);
    bounds.most = std::max(bounds.most, most);
  }
  return bounds;
}

// Zero points that runs give: the bounds that a plan reports are reached, and a bias up to them is accepted.
TEST(Bounds, WithZeroPointsOfRunsAreReached) {
  std::minstd_rand random(7);
  const auto from = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int i = 0; i < 400; ++i) {
    const bool is_tensor = i % 2 == 0, is_signed = i % 4 < 2;
    const int type_low = is_signed ? -128 : 0, type_high = type_low + 255;
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    linear.a_type = is_signed ? INTACT_S8 : INTACT_U8;
    linear.a_quantization = is_tensor ? INTACT_QUANTIZATION_TENSOR : INTACT_QUANTIZATION_ROWS;
    linear.range_check = INTACT_RANGE_UNCHECKED;
    linear.a_min = from(type_low, type_high);
    linear.a_max = from(linear.a_min, type_high);
    if (linear.a_min == 0 && linear.a_max == 0) continue;  // the whole range
    const int32_t weight_zero = from(-3, 3);
    linear.b_zero_points = &weight_zero;
    linear.b_zero_point_count = 1;
    std::vector<int8_t> b(static_cast<size_t>(from(1, 9)));
    std::vector<int> w;
    for (int8_t& weight : b) {
      weight = static_cast<int8_t>(from(-128, 127));
      w.push_back(weight - weight_zero);
    }
    const Bounds expected = BoundsOf(w, linear.a_min, linear.a_max, is_tensor ? linear.a_min : type_low,
                                     is_tensor ? linear.a_max : type_high);
    const auto k = static_cast<int64_t>(b.size());
    const GemmPointer gemm = MakeGemm(1, k, linear, b.data());
    ASSERT_NE(gemm, nullptr) << intact_last_error();
    intact_gemm_info info = INTACT_GEMM_INFO_INIT;
    ASSERT_EQ(intact_gemm_query(gemm.get(), &info), INTACT_OK);
    EXPECT_EQ(info.accumulator_min, expected.least);
    EXPECT_EQ(info.accumulator_max, expected.most);
    auto bias =
        static_cast<int32_t>(std::numeric_limits<int32_t>::max() - std::max<int64_t>(expected.most, 0));
    linear.bias_s32 = &bias;
    EXPECT_NE(MakeGemm(1, k, linear, b.data()), nullptr) << intact_last_error();
    if (expected.most < 1) continue;
    ++bias;
    EXPECT_EQ(MakeGemm(1, k, linear, b.data()), nullptr);
    EXPECT_THAT(intact_last_error(), HasSubstr("leaves int32"));
  }
}

// ----- what prepare() reports ------------------------------------------------------------------------------

// Dense items are computed as one. Items of pointers are not, even if they are as dense.
TEST(Prepare, ReportsEnoughForPointersToItems) {
  const std::vector<int8_t> b(64 * 800, 1);
  const std::vector<uint8_t> a(4 * 800, 1);
  std::vector<int32_t> c(4 * 64);
  for (const int32_t isa : {INTACT_ISA_AVX2, INTACT_ISA_AVX512, INTACT_ISA_ANY, INTACT_ISA_PORTABLE}) {
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    linear.max_isa = isa;
    for (const int64_t n : {1, 10, 19, 64}) {
      for (const int64_t k : {8, 105, 687}) {
        const GemmPointer gemm = MakeGemm(n, k, linear, b.data());
        if (gemm == nullptr) continue;  // this CPU lacks the ISA
        for (const int64_t m : {1, 2}) {
          for (const int32_t transposed : {0, 1}) {
            intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
            args.m = m;
            args.batch = 2;
            args.a_transposed = transposed;
            args.threads = 1;
            intact_run_info info = INTACT_RUN_INFO_INIT;
            ASSERT_EQ(intact_gemm_prepare(gemm.get(), &args, &info), INTACT_OK) << intact_last_error();
            std::vector<uint8_t> scratch(info.scratch_bytes);
            args.scratch = scratch.data();
            args.scratch_bytes = scratch.size();
            const std::array<const void*, 2> a_items = {&a[static_cast<size_t>(m * k)], a.data()};
            const std::array<void*, 2> c_items = {&c[static_cast<size_t>(m * n)], c.data()};
            args.a_items = a_items.data();
            args.c_items = c_items.data();
            EXPECT_EQ(intact_gemm_run(gemm.get(), &args), INTACT_OK) << intact_last_error();
            scratch.resize(info.part_scratch_bytes);
            args.scratch = scratch.data();
            args.scratch_bytes = scratch.size();
            EXPECT_EQ(intact_gemm_run_part(gemm.get(), &args, 0, 1), INTACT_OK) << intact_last_error();
            args.a_items = nullptr;
            args.c_items = nullptr;
            args.a = a.data();
            args.c = c.data();
            EXPECT_EQ(intact_gemm_run_part(gemm.get(), &args, 0, 1), INTACT_OK) << intact_last_error();
          }
        }
      }
    }
  }
}

// ----- threads ---------------------------------------------------------------------------------------------

// A run of experts, or of items, on more threads than any machine has: its time is that of the work.
TEST(Threads, MayBeAnyNumber) {
  constexpr int64_t kExperts = 2, kK = 16;
  const std::array<uint8_t, 16> b = {0x11, 0x11};
  const std::array<float, 2> scales = {1, 1};
  std::array<float, kK> a = {};
  a.fill(127);
  const std::array<int64_t, kExperts> rows = {1, 0};
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = 1;
  desc.k = kK;
  desc.group = kK;
  desc.scale_type = INTACT_F32;
  desc.b_scales = scales.data();
  desc.experts = kExperts;
  intact_grouped* plan = nullptr;
  ASSERT_EQ(intact_grouped_create(&desc, b.data(), &plan), INTACT_OK) << intact_last_error();
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = 1;
  args.a = a.data();
  args.expert_rows = rows.data();
  float expected = 0, c = 0;
  args.c = &expected;
  args.threads = 1;
  ASSERT_EQ(intact_grouped_run(plan, &args), INTACT_OK) << intact_last_error();
  args.c = &c;
  args.threads = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(intact_grouped_run(plan, &args), INTACT_OK) << intact_last_error();
  EXPECT_EQ(c, expected);
  EXPECT_EQ(intact_grouped_run_part(plan, &args, 0, args.threads), INTACT_OK) << intact_last_error();
  intact_grouped_destroy(plan);
}

// ----- messages --------------------------------------------------------------------------------------------

TEST(Messages, NameTheStrideBetweenRows) {
  const std::array<int8_t, 10> b = {};
  const GemmPointer gemm = MakeGemm(5, 2, INTACT_LINEAR_DESC_INIT, b.data());
  const std::array<uint8_t, 64> a = {};
  std::array<int32_t, 64> c;
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 3;
  args.batch = 2;
  args.a = a.data();
  args.c = c.data();
  args.c_stride = 4;
  ExpectRefused(intact_gemm_run(gemm.get(), &args), "c_stride is 4; expected 0 or at least 5");
  intact_run_info info = INTACT_RUN_INFO_INIT;
  ExpectRefused(intact_gemm_prepare(gemm.get(), &args, &info), "c_stride is 4; expected 0 or at least 5");
  args.c_stride = 0;
  std::array<const void*, 2> items = {c.data(), c.data()};
  args.residual_items = items.data();
  ExpectRefused(intact_gemm_run(gemm.get(), &args),
                "residual_items are given; expected NULL, because the plan has no residual");
}

TEST(Messages, SayThatAZeroPointIsMissing) {
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  linear.a_quantization = INTACT_QUANTIZATION_TENSOR;
  linear.a_min = 5;
  linear.a_max = 9;
  const std::array<int8_t, 10> b = {};
  const GemmPointer gemm = MakeGemm(5, 2, linear, b.data());
  const std::array<uint8_t, 2> a = {5, 9};
  std::array<int32_t, 5> c;
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 1;
  args.a = a.data();
  args.c = c.data();
  ExpectRefused(intact_gemm_run(gemm.get(), &args),
                "a_zero_points is NULL, so the zero point is 0; expected one from 5 to 9");
}

struct alignas(64) Image {
  std::array<uint8_t, 16384> bytes;
  size_t size = sizeof(bytes);
};

TEST(Messages, SayWhatAFileHolds) {
  const std::array<uint8_t, 16> b = {};
  const float scale = 1;
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = 1;
  desc.k = 16;
  desc.group = 16;
  desc.scale_type = INTACT_F32;
  desc.b_scales = &scale;
  intact_grouped* grouped = nullptr;
  ASSERT_EQ(intact_grouped_create(&desc, b.data(), &grouped), INTACT_OK) << intact_last_error();
  const auto of_grouped = std::make_unique<Image>(), of_gemm = std::make_unique<Image>();
  ASSERT_EQ(intact_grouped_save_memory(grouped, of_grouped->bytes.data(), &of_grouped->size), INTACT_OK);
  intact_grouped_destroy(grouped);
  const GemmPointer gemm = MakeGemm(1, 16, INTACT_LINEAR_DESC_INIT, b.data());
  ASSERT_EQ(intact_gemm_save_memory(gemm.get(), of_gemm->bytes.data(), &of_gemm->size), INTACT_OK);
  intact_gemm* no_gemm = nullptr;
  intact_conv* no_conv = nullptr;
  const auto* const image = of_grouped->bytes.data();
  ExpectRefused(intact_gemm_load_memory(image, of_grouped->size, INTACT_ISA_ANY, &no_gemm),
                "it holds grouped weights; expected a pack file of intact (use intact_grouped_load)");
  ExpectRefused(intact_conv_load_memory(image, of_grouped->size, INTACT_ISA_ANY, &no_conv),
                "it holds grouped weights");
  ExpectRefused(intact_grouped_load_memory(of_gemm->bytes.data(), of_gemm->size, INTACT_ISA_ANY, &grouped),
                "it holds a GEMM or a convolution; expected a file of grouped weights");
}

// ----- structs that end within a field ---------------------------------------------------------------------

TEST(StructSize, DoesNotCutAField) {
  const std::array<int8_t, 1> b = {1};
  const GemmPointer gemm = MakeGemm(1, 1, INTACT_LINEAR_DESC_INIT, b.data());
  const std::array<uint8_t, 1> a = {1};
  std::array<int32_t, 1> c = {-1};
  const std::array<const void*, 1> items = {a.data()};
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 1;
  args.c = c.data();
  args.a_items = items.data();
  args.struct_size = offsetof(intact_gemm_args, a_items) + sizeof(void*) / 2;  // half a pointer
  ExpectRefused(intact_gemm_run(gemm.get(), &args),
                "args->struct_size is " + std::to_string(args.struct_size) + "; expected 224");
  EXPECT_EQ(c[0], -1);
  args.struct_size = offsetof(intact_gemm_args, a_items) + sizeof(void*);
  EXPECT_EQ(intact_gemm_run(gemm.get(), &args), INTACT_OK) << intact_last_error();
  EXPECT_EQ(c[0], 1);
}

// ----- zeros of activations --------------------------------------------------------------------------------

// RELU is f > 0 ? f : +0. CLAMP returns the bound if f equals it.
TEST(Activation, HasTheZeroOfItsBound) {
  constexpr uint32_t kPlus = 0, kMinus = 0x80000000u;
  struct Case {
    int32_t activation;
    float low, high;
    uint32_t of_plus, of_minus;  // the bits of the output for f = +0, and for f = −0
  };
  for (const Case& activation :
       {Case{INTACT_ACTIVATION_NONE, 0, 0, kPlus, kMinus}, Case{INTACT_ACTIVATION_RELU, 0, 0, kPlus, kPlus},
        Case{INTACT_ACTIVATION_CLAMP, 0.0f, 5, kPlus, kPlus},
        Case{INTACT_ACTIVATION_CLAMP, -0.0f, 5, kMinus, kMinus},
        Case{INTACT_ACTIVATION_CLAMP, -5, 0.0f, kPlus, kPlus},
        Case{INTACT_ACTIVATION_CLAMP, -5, -0.0f, kMinus, kMinus},
        Case{INTACT_ACTIVATION_CLAMP, -5, 5, kPlus, kMinus}}) {
    for (const int32_t isa : {INTACT_ISA_PORTABLE, INTACT_ISA_AVX2, INTACT_ISA_ANY}) {
      const float scale = 0;
      const std::array<int8_t, 2> b = {1, -1};
      intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
      linear.c_type = INTACT_F32;
      linear.scales = &scale;
      linear.scale_count = 1;
      linear.activation = activation.activation;
      linear.clamp_min = activation.low;
      linear.clamp_max = activation.high;
      linear.max_isa = isa;
      const GemmPointer gemm = MakeGemm(2, 1, linear, b.data());
      if (gemm == nullptr) continue;  // this CPU lacks the ISA
      const std::array<uint8_t, 1> a = {1};
      std::array<float, 2> c = {};
      intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
      args.m = 1;
      args.a = a.data();
      args.c = c.data();
      ASSERT_EQ(intact_gemm_run(gemm.get(), &args), INTACT_OK) << intact_last_error();
      EXPECT_EQ(std::bit_cast<uint32_t>(c[0]), activation.of_plus) << activation.activation;
      EXPECT_EQ(std::bit_cast<uint32_t>(c[1]), activation.of_minus) << activation.activation;
    }
  }
}

}  // namespace
}  // namespace intact::tests
