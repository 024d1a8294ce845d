// Plans whose runs quantize A: refusals, and each float16 as input and as output. batch_test.cc compares them with the
// reference.
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <intact/intact.hpp>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "reference/contract/gemm.h"
#include "reference/contract/quantize.h"
#include "tests/support/on_every_isa.h"
#include "tests/support/plan.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

class DynamicGemm : public OnEachIsa<> {};

// The last error without the call's name, which it must begin with.
std::string MessageOf(const std::string& call) {
  const std::string message = intact_last_error();
  EXPECT_EQ(message.substr(0, call.size() + 2), call + ": ");
  return message.substr(std::min(message.size(), call.size() + 2));
}

constexpr const char* kDynamic = "gemm u8s8f32 m=4 n=16 k=32 quant=dynamic_rows scale=channel";
constexpr const char* kRows = "gemm u8s8f32 m=4 n=16 k=32 quant=rows zaper=row scale=channel";

// The error of the valid descriptor of a line after `change`; "" if it is accepted.
template <class Change>
std::string MessageOfPlan(const char* line, const Change& change) {
  const verify::Problem problem = Parsed(line);
  const reference::Gemm gemm = verify::MaterializeGemm(problem);
  GemmDesc desc = verify::DescOf(gemm, verify::RunOptionsOf(problem));
  change(&desc);
  intact_gemm* plan = nullptr;
  const intact_status status = intact_gemm_create(&desc, &desc.linear, gemm.b.data(), &plan);
  EXPECT_EQ(status == INTACT_OK, plan != nullptr);
  const std::string message = status == INTACT_OK ? "" : MessageOf("intact_gemm_create");
  intact_gemm_destroy(plan);
  return message;
}

TEST(DynamicRefusals, OfDescriptorsNameTheField) {
  const auto of = [&](const auto& change) {
    return MessageOfPlan(kDynamic, [&](GemmDesc* desc) { change(&desc->linear); });
  };
  EXPECT_EQ(of([](intact_linear_desc*) {}), "");
  EXPECT_EQ(of([](auto* linear) { linear->a_quantization = 9; }),
            "a_quantization is 9; expected an intact_quantization");
  EXPECT_TRUE(of([](auto* linear) {
                linear->a_source_type = INTACT_U8;
              }).starts_with("a_source_type is 1; expected INTACT_F32"));
  EXPECT_EQ(of([](auto* linear) { linear->a_quantization = INTACT_QUANTIZATION_STATIC; }),
            "a_source_type is 4; expected INTACT_TYPE_NONE, because a_quantization is not dynamic");
  EXPECT_EQ(of([](auto* linear) { linear->a_zero_point = 3; }),
            "a_zero_point is 3; expected 0, because each run has its own (a_quantization)");
  EXPECT_EQ(of([](auto* linear) { linear->a_max = 127; }),
            "a_min is 0 and a_max is 127; expected 0 with a dynamic a_quantization");
  EXPECT_EQ(of([](auto* linear) {
              linear->c_type = INTACT_S32;
              linear->scales = nullptr;
              linear->scale_count = 0;
            }),
            "c_type is INTACT_S32 with a dynamic a_quantization; expected a type with scales");
  EXPECT_EQ(MessageOfPlan(kDynamic, [](auto* desc) { desc->runtime_b = 2; }),
            "runtime_b is 2; expected 0 or 1");
  EXPECT_EQ(MessageOfPlan(kDynamic, [](auto* desc) { desc->runtime_b = 1; }),
            "b is given, and runtime_b is 1; expected NULL, because each run passes B");
}

// The error of the valid run of a line after `change`; "" if it runs.
template <class Change>
std::string MessageOfRun(const char* line, const Change& change) {
  const verify::Problem problem = Parsed(line);
  const reference::Gemm gemm = verify::MaterializeGemm(problem);
  const Result<Plan> plan = CreatePlan(problem, gemm);
  if (!plan) return plan.error().message;
  const std::vector<uint8_t> before(static_cast<size_t>(gemm.m * gemm.n * core::BytesOf(gemm.c_type)), 0xAB);
  std::vector<uint8_t> c = before;
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = gemm.m;
  args.a = gemm.GivenA().data();
  args.c = c.data();
  if (!gemm.IsDynamic()) {
    args.a_zero_points = gemm.a_zero_points.data();
    args.a_scales = gemm.a_scales.data();
  }
  change(&args);
  if (intact_gemm_run(plan->get(), &args) == INTACT_OK) return "";
  const std::string message = MessageOf("intact_gemm_run");
  EXPECT_EQ(c, before) << "written before it was refused";
  return message;
}

TEST(DynamicRefusals, OfRunsNameTheArgument) {
  static const std::array<int32_t, 4> zero_points = {0, 1, 256, 3};
  static const std::array<float, 4> scales = {1.0f, 1.0f, 1.0f, -0.5f};
  static const std::array<const void*, 2> pointers = {&scales, nullptr};
  EXPECT_EQ(MessageOfRun(kDynamic, [](auto*) {}), "");
  EXPECT_EQ(MessageOfRun(kRows, [](auto*) {}), "");
  EXPECT_EQ(MessageOfRun(kRows, [](auto* args) { args->a_zero_points = nullptr; }), "");
  EXPECT_EQ(MessageOfRun(kRows, [](auto* args) { args->a_zero_points = zero_points.data(); }),
            "a_zero_points[2] is 256; expected 0 to 255");
  EXPECT_EQ(MessageOfRun(kRows, [](auto* args) { args->a_scales = scales.data(); }),
            "a_scales[3] is -0.5; expected a finite value of at least 0");
  EXPECT_EQ(MessageOfRun(kRows, [](auto* args) { args->a_scales = nullptr; }),
            "a_scales is NULL; expected a value for each row");
  EXPECT_EQ(MessageOfRun(kDynamic, [](auto* args) { args->a_scales = scales.data(); }),
            "a_scales are given; expected NULL, because the plan takes none");
  EXPECT_EQ(MessageOfRun(kDynamic, [](auto* args) { args->batch = -1; }),
            "batch is -1; expected 0 to 2147483647");
  EXPECT_EQ(MessageOfRun(kDynamic, [](auto* args) { args->batch = int64_t{1} << 30; }),
            "m·batch is 4294967296; expected at most 2147483647");
  EXPECT_EQ(MessageOfRun(kDynamic, [](auto* args) { args->c_batch_stride = -4; }),
            "c_batch_stride is -4; expected 0 to 2^40");
  EXPECT_EQ(MessageOfRun(kDynamic, [](auto* args) { args->a_items = pointers.data(); }),
            "a_items and a are both given; expected one of them");
  EXPECT_EQ(MessageOfRun(kDynamic,
                         [](auto* args) {
                           args->a = nullptr;
                           args->batch = 2;
                           args->m = 2;
                           args->a_items = pointers.data();
                         }),
            "a_items[1] is NULL");
  // Items of one row have no stride between rows, but it must still be valid.
  const auto items_of_one_row = [](intact_gemm_args* args) {
    args->batch = 4;
    args->m = 1;
    args->c_batch_stride = 16;
  };
  EXPECT_EQ(MessageOfRun(kDynamic, items_of_one_row), "");
  EXPECT_EQ(MessageOfRun(kDynamic,
                         [&](auto* args) {
                           items_of_one_row(args);
                           args->c_stride = 15;
                         }),
            "c_stride is 15; expected 0 or at least 16, at most 2^40");
  EXPECT_EQ(MessageOfRun(kDynamic,
                         [&](auto* args) {
                           items_of_one_row(args);
                           args->residual_batch_stride = 16;
                           args->residual_stride = 15;
                         }),
            "residual_stride is 15; expected 0 or at least 16, at most 2^40");
  EXPECT_EQ(MessageOfRun(kDynamic, [](auto* args) { args->b = scales.data(); }),
            "b is given to a run; expected none: the plan's B is constant");
}

// A finite float16 in units of the smallest, 2⁻²⁴, computed with integers only; 65536 for infinity.
int64_t UnitsOf(uint32_t half) {
  const uint32_t exponent = half >> 10, fraction = half & 0x3ff;
  return exponent == 0 ? fraction : int64_t{fraction + 0x400} << (exponent - 1);
}

// The middle of each two adjacent float16s, and its neighbours. Each is a scale; its accumulator is 1 or −1.
TEST_P(DynamicGemm, RoundsToEachFloat16) {
  std::vector<float> scales;
  std::vector<int8_t> b;
  std::vector<uint16_t> expected;
  const auto add = [&](float scale, uint32_t half) {
    for (const int sign : {1, -1}) {
      scales.push_back(scale);
      b.push_back(static_cast<int8_t>(sign));
      expected.push_back(static_cast<uint16_t>(sign > 0 ? half : half | 0x8000));
    }
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const auto middle = static_cast<float>(std::ldexp(UnitsOf(half) + UnitsOf(half + 1), -25));
    add(std::nextafter(middle, 0.0f), half);
    add(middle, half % 2 == 0 ? half : half + 1);
    add(std::nextafter(middle, kInfinity), half + 1);
    if (half != 0) add(static_cast<float>(std::ldexp(UnitsOf(half), -24)), half);
  }
  add(std::numeric_limits<float>::denorm_min(), 0);
  add(std::numeric_limits<float>::max(), 0x7c00);

  GemmDesc desc = MakeGemmDesc();
  desc.n = std::ssize(b);
  desc.k = 1;
  desc.linear.c_type = INTACT_F16;
  desc.linear.max_isa = ThisIsa();
  desc.linear.scales = scales.data();
  desc.linear.scale_count = desc.n;
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const uint8_t one = 1;
  std::vector<Float16> c(b.size());
  ASSERT_TRUE(
      gemm->Run(MatrixView<const uint8_t>(&one, 1, 1), MatrixView<Float16>(c.data(), 1, desc.n)).ok());
  for (size_t i = 0; i < c.size(); ++i) {
    ASSERT_EQ(c[i].bits, expected[i]) << scales[i] << " · " << int{b[i]};
  }
}

// All bit patterns: one in each row, whose scale then gives the number; and 64 in each row, as whole vectors.
TEST_P(DynamicGemm, QuantizesEachFloat16) {
  std::vector<Float16> x;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) x.push_back({static_cast<uint16_t>(bits)});
  for (const intact_type a_type : {INTACT_U8, INTACT_S8}) {
    for (const int64_t k : {1, 64}) {
      GemmDesc desc = MakeGemmDesc();
      desc.n = k;
      desc.k = k;
      desc.linear.a_type = a_type;
      desc.linear.a_source_type = INTACT_F16;
      desc.linear.a_quantization = INTACT_QUANTIZATION_DYNAMIC_ROWS;
      desc.linear.c_type = INTACT_F32;
      desc.linear.max_isa = ThisIsa();
      const float scale = 1.0f;
      desc.linear.scales = &scale;
      desc.linear.scale_count = 1;
      std::vector<int8_t> b(static_cast<size_t>(k * k));
      for (int64_t i = 0; i < k; ++i) b[static_cast<size_t>(i * k + i)] = 1;
      const Result<Gemm> gemm = Gemm::Create(desc, b.data());
      ASSERT_TRUE(gemm) << gemm.error().message;
      std::vector<float> c(x.size());
      const int64_t m = std::ssize(x) / k;
      const Error error =
          gemm->Run(MatrixView<const Float16>(x.data(), m, k), MatrixView<float>(c.data(), m, k));
      ASSERT_TRUE(error.ok()) << error.message;
      for (int64_t row = 0; row < m; ++row) {
        std::vector<float> numbers;
        for (int64_t i = row * k; i < (row + 1) * k; ++i) {
          const uint32_t magnitude = static_cast<uint32_t>(i) & 0x7fff;
          const auto number = static_cast<float>(std::ldexp(UnitsOf(magnitude), -24));
          const bool is_finite = magnitude < 0x7c00;  // all infinities and NaNs have one effect
          numbers.push_back(!is_finite   ? std::numeric_limits<float>::infinity()
                            : i < 0x8000 ? number
                                         : -number);
        }
        const auto how = reference::ChooseQuantization(a_type, numbers);
        for (size_t i = 0; i < numbers.size(); ++i) {
          const float actual = c[static_cast<size_t>(row * k) + i];
          const auto y = static_cast<float>(reference::Quantize(numbers[i], a_type, how) - how.zero_point);
          if (std::isnan(how.scale)) {
            ASSERT_EQ(std::bit_cast<uint32_t>(actual), 0x7fc00000u) << row << " " << i;
          } else {
            ASSERT_EQ(actual, y * how.scale) << row << " " << i;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DynamicGemm, testing::Combine(testing::ValuesIn(core::kIsaLadder)),
                         [](const auto& test) {
                           return std::string(intact_isa_name(std::get<0>(test.param)));
                         });

}  // namespace
}  // namespace intact::tests
