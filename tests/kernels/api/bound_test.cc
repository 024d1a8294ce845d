// Bound runs (intact/bound.h) give the bytes of plain runs, also after the bound memory has changed.
#include <gtest/gtest.h>
#include <intact/bound.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <intact/bound.hpp>
#include <intact/intact.hpp>
#include <string>
#include <vector>

#include "tests/support/require_isas.h"

namespace intact::tests {
namespace {

using Bytes = std::vector<uint8_t>;

// Activations of floats are small whole numbers.
void Fill(int seed, bool are_floats, Bytes* a) {
  for (size_t i = 0; i < a->size(); ++i) (*a)[i] = static_cast<uint8_t>(i * 37 + i / 7 + 11 * seed);
  if (!are_floats) return;
  for (size_t i = 0; i + 4 <= a->size(); i += 4) {
    const auto value = static_cast<float>((*a)[i] % 100);
    std::memcpy(&(*a)[i], &value, sizeof(value));
  }
}

const std::vector<int8_t> kWeights = [] {
  std::vector<int8_t> weights(size_t{64} * 64 * 9);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<int8_t>(i * 53 + i / 3);
  return weights;
}();
const std::vector<float> kScales(64, 0.01F);

class BoundRuns : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }

  // Compares three bound runs, of different activations, with plain runs. `args` has no buffers yet.
  template <class Plan, class Args>
  static void Compare(const Plan& plan, Args args, size_t a_bytes, size_t c_bytes) {
    const bool are_floats = plan.Info().a_source_type == INTACT_F32;
    Bytes a(a_bytes), c(c_bytes), expected(c_bytes);
    args.a = a.data();
    args.c = c.data();
    Result<Bound> bound = Bound::Create(plan, args);
    ASSERT_TRUE(bound) << bound.error().message;
    Args plain = args;
    plain.c = expected.data();
    for (int seed = 0; seed < 3; ++seed) {
      Fill(seed, are_floats, &a);
      ASSERT_TRUE(plan.Run(plain).ok());
      std::fill(c.begin(), c.end(), uint8_t{0x55});
      const Error error = bound->Run();
      ASSERT_TRUE(error.ok()) << error.message;
      EXPECT_EQ(c, expected) << "run " << seed;
    }
  }

  struct Product {
    int64_t m, n, k;
    int32_t quantization = INTACT_QUANTIZATION_STATIC, threads = 1;
    int64_t batch = 1, usual_m = 0;
  };
  static void CompareProduct(const Product& product, intact_type a_type) {
    GemmDesc desc = MakeGemmDesc();
    desc.n = product.n;
    desc.k = product.k;
    desc.usual_m = product.usual_m;
    desc.linear.max_isa = GetParam();
    desc.linear.a_type = a_type;
    desc.linear.c_type = INTACT_F32;
    desc.linear.scales = kScales.data();
    desc.linear.scale_count = product.n;
    desc.linear.a_quantization = product.quantization;
    const bool is_dynamic = product.quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS ||
                            product.quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR;
    if (is_dynamic) desc.linear.a_source_type = INTACT_F32;
    const Result<Gemm> plan = Gemm::Create(desc, kWeights.data());
    ASSERT_TRUE(plan) << plan.error().message;
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = product.m;
    args.batch = product.batch;
    args.threads = product.threads;
    const std::vector<float> scales(static_cast<size_t>(product.m * product.batch), 0.5F);
    if (product.quantization == INTACT_QUANTIZATION_ROWS) args.a_scales = scales.data();
    const int64_t rows = product.m * product.batch;
    Compare(*plan, args, static_cast<size_t>(rows * product.k * (is_dynamic ? 4 : 1)),
            static_cast<size_t>(rows * product.n * 4));
  }

  struct Layer {
    int64_t inputs, outputs, groups = 1, side = 9, kernel = 3;
    int32_t transposed = 0, quantization = INTACT_QUANTIZATION_STATIC, threads = 1;
    int64_t batch = 1;
    bool is_open = false;
  };
  static void CompareLayer(const Layer& layer) {
    ConvDesc desc = MakeConvDesc();
    desc.input_channels = layer.inputs;
    desc.output_channels = layer.outputs;
    desc.groups = layer.groups;
    desc.transposed = layer.transposed;
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    for (const int i : {0, 1}) {
      desc.input[i] = layer.is_open ? INTACT_ANY_EXTENT : layer.side;
      if (layer.is_open) args.input[i] = layer.side;
      desc.kernel[i] = layer.kernel;
      desc.stride[i] = 1 + layer.transposed;
      desc.pad_begin[i] = desc.pad_end[i] = layer.kernel / 2;
    }
    desc.linear.max_isa = GetParam();
    desc.linear.a_quantization = layer.quantization;
    const Result<Conv> plan = Conv::Create(desc, kWeights.data());
    ASSERT_TRUE(plan) << plan.error().message;
    args.batch = layer.batch;
    args.threads = layer.threads;
    const Result<intact_run_info> info = plan->Prepare(args);
    ASSERT_TRUE(info) << info.error().message;
    Compare(*plan, args, static_cast<size_t>(layer.batch * layer.side * layer.side * layer.inputs),
            static_cast<size_t>(layer.batch * info->output[0] * info->output[1] * layer.outputs * 4));
  }
};

TEST_P(BoundRuns, OfProductsEqualPlainRuns) {
  for (const Product& product : {
           Product{1, 12, 64},
           Product{1, 12, 64, INTACT_QUANTIZATION_STATIC, 1, 1, 1},
           Product{37, 33, 50},
           Product{37, 33, 50, INTACT_QUANTIZATION_STATIC, 3},
           Product{5, 17, 30, INTACT_QUANTIZATION_STATIC, 1, 3},
           Product{5, 17, 30, INTACT_QUANTIZATION_ROWS},
           Product{5, 17, 30, INTACT_QUANTIZATION_DYNAMIC_ROWS},
           Product{5, 17, 30, INTACT_QUANTIZATION_DYNAMIC_TENSOR},
           Product{1000, 33, 576},  // several calls; some fetch the next rows
           Product{0, 17, 30},
       }) {
    SCOPED_TRACE(testing::PrintToString(std::array{product.m, product.n, product.k}));
    for (const intact_type a_type : {INTACT_U8, INTACT_S8}) CompareProduct(product, a_type);
  }
}

TEST_P(BoundRuns, OfConvolutionsEqualPlainRuns) {
  for (const Layer& layer : {
           Layer{1, 1, 1, 1, 1},
           Layer{16, 24, 1, 2},
           Layer{5, 7, 1, 2},
           Layer{3, 5, 1, 2, 1},
           Layer{16, 24},
           Layer{16, 24, 1, 9, 3, 0, INTACT_QUANTIZATION_STATIC, 2},
           Layer{16, 24, 1, 9, 3, 0, INTACT_QUANTIZATION_STATIC, 1, 2},
           Layer{16, 24, 1, 9, 3, 0, INTACT_QUANTIZATION_STATIC, 1, 2, true},
           Layer{24, 24, 24},
           Layer{24, 24, 24, 1},
           Layer{8, 8, 1, 5, 3, 1},
           Layer{8, 8, 1, 5, 1, 1},
           Layer{16, 24, 1, 9, 1},
           Layer{16, 40, 1, 50},           // several calls and chunks
           Layer{64, 64, 1, 24, 3, 0, 0},  // rows that lie in the input
           Layer{3, 5, 1, 70},             // too many rows to be bound
           Layer{16, 24, 1, 9, 3, 0, INTACT_QUANTIZATION_TENSOR},
           Layer{16, 24, 1, 9, 3, 0, INTACT_QUANTIZATION_STATIC, 1, 0},
       }) {
    SCOPED_TRACE(testing::PrintToString(std::array{layer.inputs, layer.outputs, layer.groups, layer.kernel}));
    CompareLayer(layer);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BoundRuns,
                         testing::Values(INTACT_ISA_PORTABLE, INTACT_ISA_AVX2, INTACT_ISA_AVX_VNNI,
                                         INTACT_ISA_AVX512, INTACT_ISA_AVX512_VNNI, INTACT_ISA_AMX_INT8),
                         [](const auto& tested) { return std::string(intact_isa_name(tested.param)); });

TEST(BoundTest, RefusesWhatPlainRunsRefuse) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = desc.k = 8;
  const Result<Gemm> plan = Gemm::Create(desc, kWeights.data());
  ASSERT_TRUE(plan) << plan.error().message;
  std::array<uint8_t, 8> a = {};
  std::array<int32_t, 8> c = {};
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 1;
  args.a = a.data();
  args.c = a.data();
  const auto message_of = [&](const intact_gemm* gemm, const intact_gemm_args* given) {
    auto* bound = reinterpret_cast<intact_bound*>(a.data());
    EXPECT_EQ(intact_gemm_bind(gemm, given, &bound), INTACT_INVALID_ARGUMENT);
    EXPECT_EQ(bound, nullptr);
    return std::string(intact_last_error());
  };
  EXPECT_EQ(message_of(plan->handle(), &args).substr(0, 18), "intact_gemm_bind: ");
  EXPECT_NE(message_of(plan->handle(), &args).find("overlap"), std::string::npos);
  EXPECT_EQ(message_of(nullptr, &args), "intact_gemm_bind: gemm is NULL");
  EXPECT_EQ(message_of(plan->handle(), nullptr), "intact_gemm_bind: args is NULL");
  args.c = nullptr;
  EXPECT_EQ(message_of(plan->handle(), &args), "intact_gemm_bind: c is NULL");
  args.c = c.data();
  args.scratch_bytes = 1;
  EXPECT_EQ(message_of(plan->handle(), &args),
            "intact_gemm_bind: scratch_bytes is 1 and scratch is NULL; expected 0");
  args.scratch_bytes = 0;
  // Of runs that check their arguments again, too.
  intact_gemm_args items = args;
  const std::array<const void*, 2> a_items = {a.data(), a.data()};
  std::array<std::array<int32_t, 8>, 2> outputs = {};
  const std::array<void*, 2> c_items = {outputs[0].data(), outputs[1].data()};
  std::array<uint8_t, 1> scratch = {};
  items.batch = 2;
  items.a = items.c = nullptr;
  items.a_items = a_items.data();
  items.c_items = c_items.data();
  items.scratch = scratch.data();
  items.scratch_bytes = scratch.size();
  EXPECT_EQ(message_of(plan->handle(), &items), "intact_gemm_bind: scratch_bytes is 1; expected at least 63");
  EXPECT_EQ(intact_gemm_bind(plan->handle(), &args, nullptr), INTACT_INVALID_ARGUMENT);
  EXPECT_STREQ(intact_last_error(), "intact_gemm_bind: bound is NULL");
  EXPECT_EQ(intact_bound_run(nullptr), INTACT_INVALID_ARGUMENT);
  EXPECT_STREQ(intact_last_error(), "intact_bound_run: bound is NULL");
  intact_bound_destroy(nullptr);
}

}  // namespace
}  // namespace intact::tests
