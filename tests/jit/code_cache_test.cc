// Generated code belongs to the plans that run it: plans share it, and it is freed with the last one.
#include "jit/code_cache.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <cstdio>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "jit/code_memory.h"
#include "tests/support/code_pages.h"
#include "tests/support/resident.h"

#if defined(__SANITIZE_ADDRESS__)
// From sanitizer/allocator_interface.h, which GCC does not ship.
extern "C" size_t __sanitizer_get_current_allocated_bytes();  // NOLINT(bugprone-reserved-identifier)
#endif

namespace intact {
namespace {

const std::vector<int8_t>& Weights() {
  static const std::vector<int8_t> kWeights = [] {
    std::vector<int8_t> weights(768 * 768);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<int8_t>(i * 37 % 255 - 127);
    return weights;
  }();
  return kWeights;
}

Gemm MakeGemm(int64_t n, int64_t k, intact_mode mode = INTACT_EXACT, int64_t usual_m = 0) {
  GemmDesc desc = MakeGemmDesc();
  desc.usual_m = usual_m;
  desc.n = n;
  desc.k = k;
  desc.linear.mode = mode;
  Result<Gemm> gemm = Gemm::Create(desc, Weights().data());
  EXPECT_TRUE(gemm) << gemm.error().message;
  return std::move(*gemm);
}

struct Shape {
  int64_t inputs = 1, outputs = 1, groups = 1;
  int64_t height = 4, width = 4, kernel = 3, stride = 1, dilation = 1;
  intact_mode mode = INTACT_EXACT;
};

Conv MakeConv(const Shape& shape) {
  ConvDesc desc = MakeConvDesc();
  desc.linear.mode = shape.mode;
  desc.spatial_dims = 2;
  desc.input_channels = shape.inputs;
  desc.output_channels = shape.outputs;
  desc.groups = shape.groups;
  for (const int i : {0, 1}) {
    desc.input[i] = i == 0 ? shape.height : shape.width;
    desc.kernel[i] = shape.kernel;
    desc.stride[i] = shape.stride;
    desc.dilation[i] = shape.dilation;
    desc.pad_begin[i] = desc.pad_end[i] = shape.dilation * (shape.kernel / 2);
  }
  Result<Conv> conv = Conv::Create(desc, Weights().data());
  EXPECT_TRUE(conv) << conv.error().message;
  return std::move(*conv);
}

Shape GroupedShape(int64_t i) {
  Shape shape;
  const bool is_depthwise = i % 2 == 0;
  shape.groups = is_depthwise ? 1 + i % 97 : 2;
  shape.inputs = shape.outputs = is_depthwise ? shape.groups : 16 + 16 * (i / 2 % 3);
  shape.height = 3 + i / 5 % 7;
  shape.width = 4 + i / 3 % 53;
  shape.stride = 1 + i / 7 % 4;
  shape.dilation = 1 + i / 11 % 3;
  shape.mode = i % 3 == 0 ? INTACT_SATURATING : INTACT_EXACT;
  return shape;
}

// Makes another plan for each i. Most of them have other strides and extents too.
void MakeAndDestroy(int64_t i) {
  const intact_mode mode = i / 4 % 2 == 0 ? INTACT_EXACT : INTACT_SATURATING;
  switch (i % 4) {
    case 0:
      MakeGemm(1 + i / 4 % 61, 1 + i / 244, mode);
      break;
    case 1:
      MakeConv({.inputs = 1 + i / 4 % 13,
                .outputs = 1 + i / 52 % 17,
                .height = 3 + i / 8 % 5,
                .width = 3 + i / 16 % 41,
                .stride = 1 + i / 32 % 3,
                .mode = mode});
      break;
    default:
      MakeConv(GroupedShape(i));
      break;
  }
}

// The sanitizer keeps freed memory for a while, so allocated memory counts instead. That is no less strict.
int64_t HeldBytes() {
#if defined(__SANITIZE_ADDRESS__)
  return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
#else
  return tests::ResidentBytes();
#endif
}

int64_t HeapBytes() { return static_cast<int64_t>(mallinfo2().uordblks + mallinfo2().hblkhd); }

// Makes the allocations that plans of any kind need once per process.
void WarmUp() {
  for (int64_t i = 0; i < 64; ++i) MakeAndDestroy(i);
}

TEST(CodeOfPlans, GoesWithTheLastPlan) {
  const jit::CodeUsage before = jit::GetCodeUsage();
  jit::CodeUsage one;
  {
    std::optional<Gemm> first = MakeGemm(100, 64, INTACT_EXACT, 16);
    one = jit::GetCodeUsage();
    EXPECT_GT(one.functions, before.functions);
    EXPECT_GT(one.bytes, before.bytes);
    const Gemm second = MakeGemm(100, 64, INTACT_EXACT, 16);
    EXPECT_EQ(jit::GetCodeUsage(), one) << "plans of one shape share their code";
    first.reset();
    EXPECT_EQ(jit::GetCodeUsage(), one) << "the second plan owns it still";
  }
  EXPECT_EQ(jit::GetCodeUsage(), before);
  const Gemm again = MakeGemm(100, 64, INTACT_EXACT, 16);
  EXPECT_EQ(jit::GetCodeUsage(), one) << "it is generated again";
}

TEST(CodeOfPlans, KnowsNoStrides) {
  const Conv depthwise = MakeConv({.inputs = 64, .outputs = 64, .groups = 64, .width = 20});
  // Long lines have another kernel for inner pixels: all their taps are inside.
  const Conv long_lines = MakeConv({.inputs = 64, .outputs = 64, .groups = 64, .width = 40});
  // All numbers of outputs are multiples of each kernel's columns: 48, 64 or 96.
  const Conv grouped = MakeConv({.inputs = 192, .outputs = 192, .groups = 12, .mode = INTACT_SATURATING});
  const jit::CodeUsage before = jit::GetCodeUsage();
  for (const int64_t width : {8, 32, 56}) {
    const Conv other = MakeConv({.inputs = 128, .outputs = 128, .groups = 128, .width = width});
    EXPECT_EQ(jit::GetCodeUsage(), before) << "depthwise, width " << width;
  }
  for (const int64_t groups : {24, 36}) {
    const Conv other = MakeConv(
        {.inputs = 16 * groups, .outputs = 16 * groups, .groups = groups, .mode = INTACT_SATURATING});
    EXPECT_EQ(jit::GetCodeUsage(), before) << groups << " groups";
  }
}

// With VNNI all kernels are panel kernels.
TEST(CodeOfPlans, IsMadeForTheRowsThatPlansHave) {
  bool has_vnni = false;
  const auto functions = [&](int64_t usual_m) {
    const int64_t before = jit::GetCodeUsage().functions;
    GemmDesc desc = MakeGemmDesc();
    desc.n = 100;
    desc.k = 64;
    desc.usual_m = usual_m;
    desc.linear.max_isa = INTACT_ISA_AVX512_VNNI;
    const Result<Gemm> gemm = Gemm::Create(desc, Weights().data());
    EXPECT_TRUE(gemm) << gemm.error().message;
    has_vnni = std::string(gemm->Info().kernel).find("_vnni_") != std::string::npos;
    return jit::GetCodeUsage().functions - before;
  };
  const int64_t without = functions(0);
  if (!has_vnni) GTEST_SKIP() << "no VNNI";
  EXPECT_EQ(without, 0);
  EXPECT_EQ(functions(1), functions(4)) << "tiles of one height";
}

TEST(CodeOfPlans, HasTheTailsOfItsLines) {
  bool has_tails = false;
  const auto functions = [&](int64_t width) {
    const int64_t before = jit::GetCodeUsage().functions;
    const Conv conv = MakeConv({.inputs = 64, .outputs = 64, .groups = 64, .width = width});
    has_tails = std::string(conv.Info().kernel).find("_4x64_") != std::string::npos;
    return jit::GetCodeUsage().functions - before;
  };
  const int64_t whole = functions(16);
  EXPECT_EQ(functions(17), whole) << "a single pixel";
  EXPECT_EQ(functions(19) - whole, has_tails ? 1 : 0);
}

// Unrolled, they would take 146 MB and most of a minute, or never finish.
TEST(CodeOfPlans, IsBoundedWhateverTheFilter) {
  constexpr int64_t kMostBytes = 32 << 10;
  const jit::CodeUsage before = jit::GetCodeUsage();
  const Conv large =
      MakeConv({.inputs = 2, .outputs = 2, .groups = 2, .height = 500, .width = 500, .kernel = 500});
  EXPECT_LT(jit::GetCodeUsage().bytes - before.bytes, kMostBytes);

  ConvDesc desc = MakeConvDesc();
  desc.spatial_dims = 1;
  desc.input_channels = desc.output_channels = desc.groups = 2;
  desc.input[0] = desc.kernel[0] = 100000;
  const Result<Conv> line = Conv::Create(desc, Weights().data());
  ASSERT_TRUE(line) << line.error().message;
  EXPECT_LT(jit::GetCodeUsage().bytes - before.bytes, kMostBytes);
}

TEST(CodeOfPlans, LeavesMemoryFlat) {
  constexpr int64_t kPlans = 10000;
  constexpr int64_t kMostGrowth = 8 << 20;
  WarmUp();
  const jit::CodeUsage before = jit::GetCodeUsage();
  const int64_t resident_before = HeldBytes();
  for (int64_t i = 0; i < kPlans; ++i) {
    MakeAndDestroy(i);
    if (i % 1000 == 0) {
      ASSERT_EQ(jit::GetCodeUsage(), before) << "after plan " << i;
    }
  }
  EXPECT_EQ(jit::GetCodeUsage(), before);
  const int64_t growth = HeldBytes() - resident_before;
  EXPECT_LT(growth, kMostGrowth);
  RecordProperty("resident_growth_bytes", std::to_string(growth));
  std::printf("%ld plans: resident memory grew by %ld bytes\n", kPlans, growth);
}

TEST(CodeOfPlans, IsSharedByThreads) {
  constexpr int kThreads = 8;
  constexpr int64_t kPlans = 200;
  WarmUp();
  const jit::CodeUsage before = jit::GetCodeUsage();
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::atomic<int> wrong = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&wrong] {
      const std::vector<uint8_t> a(16, 1);
      for (int64_t i = 0; i < kPlans; ++i) {
        const Gemm gemm = MakeGemm(8, 16, i % 2 == 0 ? INTACT_EXACT : INTACT_SATURATING);
        std::vector<int32_t> c(8);
        intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
        args.m = 1;
        args.a = a.data();
        args.c = c.data();
        args.threads = 1;
        int32_t sum = 0;
        for (size_t k = 0; k < a.size(); ++k) sum += Weights()[k * 8];
        if (intact_gemm_run(gemm.handle(), &args) != INTACT_OK || c[0] != sum) ++wrong;
        MakeAndDestroy(i % 16);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(jit::GetCodeUsage(), before);
}

intact_status RunOnce(const Gemm& gemm, const std::vector<uint8_t>& a, std::vector<int32_t>* c) {
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 3;
  args.a = a.data();
  args.c = c->data();
  args.threads = 2;
  return intact_gemm_run(gemm.handle(), &args);
}

intact_status RunOnce(const Conv& conv, const std::vector<uint8_t>& a, std::vector<int32_t>* c) {
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  args.batch = 1;
  args.a = a.data();
  args.c = c->data();
  args.threads = 2;
  return intact_conv_run(conv.handle(), &args);
}

// Plans of every engine live, run, and are created and destroyed at the same time.
TEST(CodeOfPlans, IsNeverWritableWhileTheyRun) {
  const Gemm exact = MakeGemm(100, 64);
  const Gemm saturating = MakeGemm(33, 70, INTACT_SATURATING);
  const Conv dense = MakeConv({.inputs = 16, .outputs = 24});
  const Conv grouped = MakeConv({.inputs = 16, .outputs = 16, .groups = 2});
  const Conv depthwise = MakeConv({.inputs = 24, .outputs = 24, .groups = 24});
  EXPECT_GT(jit::GetCodeUsage().functions, 0);
  std::atomic<bool> stops = false;
  const auto run = [&](const auto& plan) {
    const std::vector<uint8_t> a(4 * 4 * 64, 1);
    std::vector<int32_t> c(4 * 4 * 100);
    int64_t runs = 0;
    for (; runs == 0 || !stops; ++runs) EXPECT_EQ(RunOnce(plan, a, &c), INTACT_OK);
  };
  std::vector<std::jthread> threads;
  threads.emplace_back([&] { run(exact); });
  threads.emplace_back([&] { run(saturating); });
  threads.emplace_back([&] { run(dense); });
  threads.emplace_back([&] { run(grouped); });
  threads.emplace_back([&] { run(depthwise); });
  threads.emplace_back([&stops] {
    for (int64_t i = 0; !stops; ++i) MakeAndDestroy(i);
  });
  for (int look = 0; look < 100; ++look) EXPECT_EQ(tests::WritableCodePages(), "");
  stops = true;
}

// Reports a figure for users who keep many plans; not a limit.
TEST(CodeOfPlans, ReportsWhatAPlanCosts) {
  const auto tell = [](const char* name, const auto& make) {
    const jit::CodeUsage code = jit::GetCodeUsage();
    const int64_t heap = HeapBytes();
    const auto plan = make();
    const jit::CodeUsage with = jit::GetCodeUsage();
    std::printf("%s: %ld bytes of heap, %ld functions of %ld bytes\n", name, HeapBytes() - heap,
                with.functions - code.functions, with.bytes - code.bytes);
    EXPECT_GT(with.bytes, code.bytes);
  };
  tell("GEMM 768x768", [] { return MakeGemm(768, 768, INTACT_EXACT, 64); });
  tell("conv 3x3 64 to 64 on 56x56",
       [] { return MakeConv({.inputs = 64, .outputs = 64, .height = 56, .width = 56}); });
  tell("depthwise conv 3x3 of 64 on 56x56",
       [] { return MakeConv({.inputs = 64, .outputs = 64, .groups = 64, .height = 56, .width = 56}); });
}

// ----- the cache by itself ---------------------------------------------------------------------------------

struct Number {
  int value = 0;
  auto operator<=>(const Number&) const = default;
};

TEST(CodeCaches, KeepNoFailedGeneration) {
  using F = jit::Function<void()>;
  static const int kCode = 0;
  const auto fail = [](const Number&) -> Result<jit::Code> { return Error{INTACT_CODEGEN_FAILED, "no"}; };
  const auto succeed = [](const Number&) -> Result<jit::Code> { return jit::Code(&kCode, [](auto*) {}); };
  EXPECT_EQ(jit::GetFunction<F>(Number{1}, fail).error().message, "no");
  const Result<F> made = jit::GetFunction<F>(Number{1}, succeed);
  ASSERT_TRUE(made);
  EXPECT_TRUE(*made);
  EXPECT_TRUE(jit::GetFunction<F>(Number{1}, fail)) << "it is there";
  EXPECT_FALSE(jit::GetFunction<F>(Number{2}, fail)) << "another one is not";
}

}  // namespace
}  // namespace intact
