// The C ABI gives equal bytes for any threads, parts, rows and floating-point environments.
#include <gtest/gtest.h>
#include <immintrin.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/plan.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"

namespace intact::tests {
namespace {

using verify::Problem;
using Bytes = std::vector<uint8_t>;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

class SameBytes : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }

  // Sets the line's problem on this ISA: its tensors, its plan, and the expected bytes.
  void Use(const char* line) {
    Problem problem = Parsed(line);
    problem.isa = GetParam();
    gemm_ = verify::MaterializeGemm(problem);
    Result<Plan> plan = CreatePlan(problem, gemm_);
    ASSERT_TRUE(plan) << plan.error().message;
    plan_ = std::move(*plan);
    expected_ = reference::Outputs(gemm_, reference::Accumulators(gemm_, reference::Model::kExact));
  }

  int64_t RowBytes() const { return gemm_.n * core::BytesOf(gemm_.c_type); }

  // The arguments for rows [begin, begin + m) of A, written to these rows of c.
  intact_gemm_args Rows(int64_t begin, int64_t m, Bytes* c) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = m;
    args.a = gemm_.a.data() + begin * gemm_.k;
    args.c = c->data() + begin * RowBytes();
    if (gemm_.HasResidual()) {
      args.residual = gemm_.residual.data() + begin * gemm_.n * core::BytesOf(gemm_.residual_type());
    }
    args.threads = 1;
    return args;
  }

  // All values, or every third if runs are emulated, which takes long.
  template <class T>
  static std::vector<T> SomeOf(std::initializer_list<T> all) {
    std::vector<T> some;
    const size_t step = EmulatedIsas::Has(GetParam()) ? 3 : 1;
    for (size_t i = 0; i < all.size(); i += step) some.push_back(all.begin()[i]);
    return some;
  }

  reference::Gemm gemm_;
  Plan plan_;
  Bytes expected_;
};

constexpr int kThreads = 8;
constexpr const char* kLines[] = {
    "gemm u8s8s32 m=157 n=85 k=137 za=3 fill=laplace",
    "gemm s8s8u8 m=157 n=85 k=137 za=-3 zc=9 scale=channel bias=f32",
    "gemm u8s8f32 m=70 n=33 k=900 fill=student scale=channel",
    "gemm u8s8s32 m=330 n=40 k=64 arange=127 fill=stray",
    "gemm u8u8s32 m=157 n=85 k=137 za=3 zb=131 zbper=channel",
    "gemm s8u8u8 m=70 n=33 k=900 za=-7 zb=17 zc=128 fill=laplace scale=channel bias=f32",
    "gemm u8s8u8 m=157 n=85 k=137 za=3 zc=7 bias=f32 act=relu res=s8 zres=-9",
    "gemm u8u8f32 m=157 n=85 k=137 zb=131 bias=f32 res=f32",
};

TEST_P(SameBytes, ForAnyNumberOfThreads) {
  for (const char* line : kLines) {
    ASSERT_NO_FATAL_FAILURE(Use(line));
    for (const int32_t threads : SomeOf<int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8})) {
      const Result<Bytes> output = RunPlan(plan_, gemm_, threads);
      ASSERT_TRUE(output) << output.error().message;
      EXPECT_EQ(*output, expected_) << line << " threads=" << threads;
    }
  }
}

TEST_P(SameBytes, ForAnyNumberOfParts) {
  for (const char* line : kLines) {
    ASSERT_NO_FATAL_FAILURE(Use(line));
    for (const int32_t parts : SomeOf<int32_t>({1, 2, 3, 4, 5, 7, 8, 16, 61})) {
      Bytes c(expected_.size(), 0xa5);
      const intact_gemm_args args = Rows(0, gemm_.m, &c);
      for (int32_t part = parts - 1; part >= 0; --part) {
        ASSERT_EQ(intact_gemm_run_part(plan_.get(), &args, part, parts), INTACT_OK) << intact_last_error();
      }
      EXPECT_EQ(c, expected_) << line << " parts=" << parts;
    }
  }
}

TEST_P(SameBytes, HoweverMIsSplit) {
  for (const char* line : kLines) {
    ASSERT_NO_FATAL_FAILURE(Use(line));
    for (const int64_t rows : SomeOf<int64_t>({1, 2, 3, 5, 7, 8, 15, 16, 17, 24, 33, 64, 100})) {
      Bytes c(expected_.size(), 0xa5);
      for (int64_t begin = 0; begin < gemm_.m; begin += rows) {
        const intact_gemm_args args = Rows(begin, std::min(rows, gemm_.m - begin), &c);
        ASSERT_EQ(intact_gemm_run(plan_.get(), &args), INTACT_OK) << intact_last_error();
      }
      EXPECT_EQ(c, expected_) << line << " rows=" << rows;
    }
  }
}

TEST_P(SameBytes, FromManyThreadsAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Use(kLines[0]));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t run = 0; run < 10; ++run) {
        // Each thread has its own rows. They are so many that each engine of the plan runs.
        const int64_t begin = (thread * 13 + run) % 50;
        const int64_t m = 1 + (thread + run * 11) % 100;
        Bytes c(expected_.size());
        const intact_gemm_args args = Rows(begin, m, &c);
        const bool is_run = intact_gemm_run(plan_.get(), &args) == INTACT_OK;
        const int64_t at = begin * RowBytes();
        const bool is_right =
            std::equal(c.begin() + at, c.begin() + at + m * RowBytes(), expected_.begin() + at);
        wrong += is_run && is_right ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(SameBytes, FromPlansMadeByManyThreadsAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Use(kLines[1]));
  Problem problem = Parsed(kLines[1]);
  problem.isa = GetParam();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      const Result<Plan> plan = CreatePlan(problem, gemm_);
      const Result<Bytes> output = plan ? RunPlan(*plan, gemm_) : Result<Bytes>(plan.error());
      wrong += output && *output == expected_ ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Each output's residual is read before the output is written, and not again.
TEST_P(SameBytes, WithAResidualInPlaceOfTheOutput) {
  for (const char* line : {"gemm u8s8u8 m=157 n=85 k=137 za=3 zc=7 bias=f32 act=relu res=s8 zres=-9",
                           "gemm s8s8s8 m=157 n=85 k=137 res=s8 zres=5 scale=channel",
                           "gemm u8u8f32 m=157 n=85 k=137 zb=131 bias=f32 res=f32",
                           "gemm u8s8f32 m=330 n=40 k=64 arange=127 fill=stray res=f32"}) {
    ASSERT_NO_FATAL_FAILURE(Use(line));
    for (const int32_t parts : {1, 2, 5, 16}) {
      Bytes c = gemm_.residual;
      intact_gemm_args args = Rows(0, gemm_.m, &c);
      args.residual = args.c;
      for (int32_t part = parts - 1; part >= 0; --part) {
        ASSERT_EQ(intact_gemm_run_part(plan_.get(), &args, part, parts), INTACT_OK) << intact_last_error();
      }
      EXPECT_EQ(c, expected_) << line << " parts=" << parts;
      c = gemm_.residual;
      args.threads = parts;
      ASSERT_EQ(intact_gemm_run(plan_.get(), &args), INTACT_OK) << intact_last_error();
      EXPECT_EQ(c, expected_) << line << " threads=" << parts;
    }
  }
}

// C is larger than L2, in rows of whole cache lines: kernels may store past the caches. 500 columns leave a
// partial vector and padding in each row. The padding must not change.
TEST_P(SameBytes, InLargeAlignedOutputs) {
  ASSERT_NO_FATAL_FAILURE(Use("gemm u8s8s32 m=1500 n=500 k=7"));
  constexpr int64_t kStride = 512;
  const auto size = static_cast<size_t>(gemm_.m * kStride);
  const std::unique_ptr<int32_t, decltype(&std::free)> c(
      static_cast<int32_t*>(std::aligned_alloc(64, size * sizeof(int32_t))), &std::free);
  for (const int32_t threads : {1, 3}) {
    std::fill_n(c.get(), size, 0x5a5a5a5a);
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = gemm_.m;
    args.a = gemm_.a.data();
    args.c = c.get();
    args.c_stride = kStride;
    args.threads = threads;
    ASSERT_EQ(intact_gemm_run(plan_.get(), &args), INTACT_OK);
    int64_t wrong = 0;
    for (int64_t row = 0; row < gemm_.m; ++row) {
      const int32_t* const at = c.get() + row * kStride;
      wrong += std::memcmp(at, &expected_[static_cast<size_t>(row * RowBytes())],
                           static_cast<size_t>(RowBytes())) == 0
                   ? 0
                   : 1;
      wrong += std::count(at + gemm_.n, at + kStride, 0x5a5a5a5a) == kStride - gemm_.n ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << "threads=" << threads;
  }
}

// Rounding up; denormals are flushed to zero in inputs and outputs.
class ScopedOddFloats {
 public:
  ScopedOddFloats() { _mm_setcsr(kOdd); }
  ~ScopedOddFloats() {
    EXPECT_EQ(_mm_getcsr() & ~kFlags, kOdd & ~kFlags) << "the library left the caller another environment";
    _mm_setcsr(saved_);
  }
  ScopedOddFloats(const ScopedOddFloats&) = delete;
  ScopedOddFloats& operator=(const ScopedOddFloats&) = delete;

 private:
  static constexpr unsigned kFlags = 0x3f;
  static constexpr unsigned kOdd = 0x1f80 | _MM_ROUND_UP | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON;
  const unsigned saved_ = _mm_getcsr();
};

TEST_P(SameBytes, WhateverTheCallersFloatEnvironment) {
  for (const char* line :
       {"gemm u8s8u8 m=70 n=33 k=64 za=9 zc=128 fill=ties bias=f32",
        "gemm s8s8s8 m=5 n=33 k=64 scale=channel", "gemm u8s8f32 m=70 n=33 k=64 bias=f32",
        "gemm u8s8f32 m=70 n=33 k=64 res=f32", "gemm u8s8u8 m=70 n=33 k=64 za=9 fill=ties res=u8"}) {
    ASSERT_NO_FATAL_FAILURE(Use(line));
    Bytes whole, threaded, parts(expected_.size());
    {
      const ScopedOddFloats odd;
      whole = *RunPlan(plan_, gemm_);
      threaded = *RunPlan(plan_, gemm_, 3);
      const intact_gemm_args args = Rows(0, gemm_.m, &parts);
      for (int32_t part = 0; part < 2; ++part) (void)intact_gemm_run_part(plan_.get(), &args, part, 2);
    }
    EXPECT_EQ(whole, expected_) << line;
    EXPECT_EQ(threaded, expected_) << line;
    EXPECT_EQ(parts, expected_) << line;
  }
}

TEST_P(SameBytes, WithDenormalOutputs) {
  const std::vector<int8_t> b(12, 1);
  const float scale = 1e-41f;
  GemmDesc desc = MakeGemmDesc();
  desc.n = 3;
  desc.k = 4;
  desc.linear.c_type = INTACT_F32;
  desc.linear.scales = &scale;
  desc.linear.scale_count = 1;
  desc.linear.max_isa = GetParam();
  const Result<Gemm> gemm = [&] {
    const ScopedOddFloats odd;  // here the scale would be 0
    return Gemm::Create(desc, b.data());
  }();
  ASSERT_TRUE(gemm) << gemm.error().message;
  const std::array<uint8_t, 4> a = {1, 2, 3, 1};
  std::array<float, 3> c = {};
  {
    const ScopedOddFloats odd;
    (void)gemm->Run(MatrixView<const uint8_t>(a.data(), 1, 4), MatrixView<float>(c.data(), 1, 3));
  }
  for (const float value : c) EXPECT_EQ(value, 7.0f * scale);
}

// An activation range of a single value, for s8: kernels see only 0.
TEST_P(SameBytes, WithAnActivationRangeOfOneValue) {
  for (const intact_range_check check : {INTACT_RANGE_CHECKED, INTACT_RANGE_UNCHECKED}) {
    const std::vector<int8_t> b(64 * 16, 127);
    GemmDesc desc = MakeGemmDesc();
    desc.n = 16;
    desc.k = 64;
    desc.linear.a_type = INTACT_S8;
    desc.linear.a_zero_point = desc.linear.a_min = desc.linear.a_max = -128;
    desc.linear.range_check = check;
    desc.linear.max_isa = GetParam();
    const Result<Gemm> gemm = Gemm::Create(desc, b.data());
    ASSERT_TRUE(gemm) << gemm.error().message;
    const int8_t value = check == INTACT_RANGE_CHECKED ? 127 : -128;
    const std::vector<int8_t> a(static_cast<size_t>(70 * desc.k), value);
    std::vector<int32_t> c(70 * 16);
    ASSERT_EQ(
        gemm->Run(MatrixView<const int8_t>(a.data(), 70, 64), MatrixView<int32_t>(c.data(), 70, 16)).status,
        INTACT_OK);
    const int32_t expected = (value + 128) * 127 * 64;
    EXPECT_TRUE(std::all_of(c.begin(), c.end(), [&](int32_t y) { return y == expected; }));
  }
}

INSTANTIATE_TEST_SUITE_P(All, SameBytes, testing::ValuesIn(core::kIsaLadder),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

}  // namespace
}  // namespace intact::tests
