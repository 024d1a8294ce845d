// The caller's scratch memory. With as much as the plan reports, at any alignment, runs allocate nothing.
// With less they use fewer threads. With less than one thread needs, they are refused before anything is
// written.
//
// This binary replaces every allocating function of the C library and counts each call, also by operator new
// and by other libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <intact/intact.hpp>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "kernels/runtime/caches.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/support/conv_layers.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/plan.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"
#include "verify/targets/guarded_buffer.h"
#include "verify/targets/intact_target.h"

// ----- counting --------------------------------------------------------------------------------------------

namespace {

std::atomic<bool> is_counting = false;
std::atomic<int64_t> allocations = 0;

}  // namespace

// Sanitizers replace the same functions.
#if !defined(__SANITIZE_ADDRESS__)
namespace {

constexpr bool kCanCount = true;

void Count() {
  if (is_counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#define INTACT_REPLACES extern "C" __attribute__((visibility("default")))

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): these are glibc's names.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

INTACT_REPLACES void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}
INTACT_REPLACES void* calloc(size_t count, size_t size) {
  Count();
  return __libc_calloc(count, size);
}
INTACT_REPLACES void* realloc(void* memory, size_t size) {
  Count();
  return __libc_realloc(memory, size);
}
INTACT_REPLACES void* memalign(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
INTACT_REPLACES void* aligned_alloc(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
INTACT_REPLACES int posix_memalign(void** memory, size_t alignment, size_t size) {
  Count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
#else
namespace {
constexpr bool kCanCount = false;
}  // namespace
#endif

namespace intact::tests {
namespace {

using testing::Each;
using testing::HasSubstr;
using verify::Problem;
using Bytes = std::vector<uint8_t>;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

// The number of allocations by `body`; 0 if they cannot be counted.
template <class Body>
int64_t CountAllocations(const Body& body) {
  allocations = 0;
  is_counting = true;
  body();
  is_counting = false;
  return allocations;
}

// Keeps the compiler from removing an allocation.
void Keep(void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

TEST(AllocationCounter, SeesEveryWay) {
  if (!kCanCount) GTEST_SKIP() << "the sanitizer has the allocator";
  EXPECT_EQ(CountAllocations([] {}), 0);
  const auto free_it = [](void* memory) {
    Keep(memory);
    std::free(memory);
  };
  const std::pair<const char*, std::function<void()>> ways[] = {
      {"malloc", [&] { free_it(std::malloc(10)); }},
      {"calloc", [&] { free_it(std::calloc(10, 10)); }},
      {"realloc", [&] { free_it(std::realloc(nullptr, 10)); }},
      {"aligned_alloc", [&] { free_it(std::aligned_alloc(64, 640)); }},
      {"posix_memalign",
       [&] {
         void* memory = nullptr;
         if (posix_memalign(&memory, 64, 10) == 0) free_it(memory);
       }},
      {"new",
       [] {
         const auto made = std::make_unique<int64_t>(3);
         Keep(made.get());
       }},
      {"aligned new",
       [] {
         struct alignas(128) Wide {
           char bytes[128];
         };
         const auto made = std::make_unique<Wide>();
         Keep(made.get());
       }},
      {"string", [] { Keep(std::string(100, 'x').data()); }},
  };
  for (const auto& [name, way] : ways) EXPECT_GE(CountAllocations(way), 1) << name;
  // In another library: OpenMP's threads are new.
  EXPECT_GE(CountAllocations([] { std::thread([] {}).join(); }), 1);
}

// The library's own scratch must be allocated: the tests below would detect it.
TEST(AllocationCounter, SeesTheLibrary) {
  if (!kCanCount) GTEST_SKIP() << "the sanitizer has the allocator";
  const reference::Gemm gemm = verify::MaterializeGemm(Parsed("gemm u8s8s32 m=70 n=40 k=300"));
  const Result<Plan> plan = CreatePlan(Parsed("gemm u8s8s32 m=70 n=40 k=300"), gemm);
  ASSERT_TRUE(plan) << plan.error().message;
  Bytes c(static_cast<size_t>(gemm.m * gemm.n * 4));
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = gemm.m;
  args.a = gemm.a.data();
  args.c = c.data();
  args.threads = 1;
  // In a new thread, which keeps no scratch yet.
  int64_t first = 0;
  int64_t second = 0;
  std::thread([&] {
    first = CountAllocations([&] { (void)intact_gemm_run(plan->get(), &args); });
    second = CountAllocations([&] { (void)intact_gemm_run(plan->get(), &args); });
  }).join();
  EXPECT_GE(first, 1);
  EXPECT_EQ(second, 0);
}

// ----- runs ------------------------------------------------------------------------------------------------

// A run of the C ABI, for any kind of plan.
struct Runs {
  std::function<intact_status(intact_run_info*)> prepare;
  std::function<intact_status(void* scratch, size_t bytes)> run;
  std::function<intact_status(void* scratch, size_t bytes, int32_t part, int32_t parts)> run_part;
  Bytes* c;
  Bytes expected;
  int count;  // runs that must not allocate
};

// Scratch of exactly `bytes` that ends at a guard page. ScratchSize() makes `bytes` odd, so it is misaligned.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : buffer_(verify::GuardedBuffer::Allocate(bytes)) { EXPECT_TRUE(buffer_); }
  uint8_t* data() const { return buffer_->data().data(); }
  bool FrontIntact() const { return buffer_->FrontIntact(); }

 private:
  Result<verify::GuardedBuffer> buffer_;
};

constexpr int32_t kParts = 3;

void ExpectNoAllocations(const Runs& runs) {
  intact_run_info info = INTACT_RUN_INFO_INIT;
  ASSERT_EQ(runs.prepare(&info), INTACT_OK) << intact_last_error();
  const Scratch whole(info.scratch_bytes);
  const Scratch part(info.part_scratch_bytes);
  EXPECT_NE(reinterpret_cast<uintptr_t>(whole.data()) % 64, 0u);

  std::fill(runs.c->begin(), runs.c->end(), uint8_t{0xa5});
  ASSERT_EQ(runs.run(whole.data(), info.scratch_bytes), INTACT_OK) << intact_last_error();  // makes helpers
  EXPECT_TRUE(*runs.c == runs.expected) << "wrong in the caller's scratch";
  int failed = 0;
  const int64_t of_runs = CountAllocations([&] {
    for (int i = 0; i < runs.count; ++i)
      failed += runs.run(whole.data(), info.scratch_bytes) == INTACT_OK ? 0 : 1;
  });
  EXPECT_EQ(of_runs, 0) << "allocations in " << runs.count << " runs";
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(*runs.c == runs.expected);

  std::fill(runs.c->begin(), runs.c->end(), uint8_t{0xa5});
  const int64_t of_parts = CountAllocations([&] {
    for (int i = 0; i < runs.count; ++i) {
      const int32_t number = i % kParts;
      failed += runs.run_part(part.data(), info.part_scratch_bytes, number, kParts) == INTACT_OK ? 0 : 1;
    }
  });
  EXPECT_EQ(of_parts, 0) << "allocations in " << runs.count << " parts";
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(*runs.c == runs.expected) << "wrong in parts";
  EXPECT_TRUE(whole.FrontIntact());
  EXPECT_TRUE(part.FrontIntact());
}

void ExpectTooLittleIsRefused(const Runs& runs) {
  intact_run_info info = INTACT_RUN_INFO_INIT;
  ASSERT_EQ(runs.prepare(&info), INTACT_OK) << intact_last_error();
  const auto expect_refused = [&](intact_status status, size_t given, const std::string& why) {
    EXPECT_EQ(status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(intact_last_error(), HasSubstr("scratch_bytes is " + std::to_string(given) + why));
    EXPECT_THAT(*runs.c, Each(0xa5));
  };
  std::fill(runs.c->begin(), runs.c->end(), uint8_t{0xa5});
  const std::string too_little = "; expected at least " + std::to_string(info.part_scratch_bytes);
  for (const size_t missing : {size_t{1}, info.part_scratch_bytes / 2, info.part_scratch_bytes}) {
    const size_t given = info.part_scratch_bytes - missing;
    const Scratch scratch(std::max<size_t>(given, 1));
    expect_refused(runs.run(scratch.data(), given), given, too_little);
    expect_refused(runs.run_part(scratch.data(), given, 0, kParts), given, too_little);
    EXPECT_TRUE(scratch.FrontIntact());
    for (size_t i = 0; i < given; ++i) ASSERT_EQ(scratch.data()[i], verify::Surroundings().canary);
  }
  const std::string none = " and scratch is NULL; expected 0";
  expect_refused(runs.run(nullptr, info.scratch_bytes), info.scratch_bytes, none);
  expect_refused(runs.run_part(nullptr, 1, 0, kParts), 1, none);
}

// The size was reported for fewer threads, for example before OpenMP's default grew.
void ExpectLessServesFewerThreads(const Runs& runs) {
  intact_run_info info = INTACT_RUN_INFO_INIT;
  ASSERT_EQ(runs.prepare(&info), INTACT_OK) << intact_last_error();
  ASSERT_EQ(runs.run(Scratch(info.scratch_bytes).data(), info.scratch_bytes), INTACT_OK);  // makes helpers
  for (const size_t bytes : {info.part_scratch_bytes, info.scratch_bytes - 1}) {
    if (bytes < info.part_scratch_bytes) continue;
    const Scratch scratch(bytes);
    std::fill(runs.c->begin(), runs.c->end(), uint8_t{0xa5});
    intact_status status = INTACT_OK;
    EXPECT_EQ(CountAllocations([&] { status = runs.run(scratch.data(), bytes); }), 0);
    EXPECT_EQ(status, INTACT_OK) << intact_last_error();
    EXPECT_TRUE(*runs.c == runs.expected) << "wrong in " << bytes << " bytes";
    EXPECT_TRUE(scratch.FrontIntact());
  }
}

// The contents of scratch do not matter. Runs of other plans may use it in between.
void ExpectScratchMayHoldAnything(const Runs& runs) {
  intact_run_info info = INTACT_RUN_INFO_INIT;
  ASSERT_EQ(runs.prepare(&info), INTACT_OK) << intact_last_error();
  for (const uint8_t value : Bytes{0x00, 0x7f, 0x80, 0xff}) {
    for (const size_t shift : {size_t{0}, size_t{1}, size_t{63}, size_t{64}}) {
      Bytes memory(info.scratch_bytes + shift, value);
      std::fill(runs.c->begin(), runs.c->end(), uint8_t{0xa5});
      ASSERT_EQ(runs.run(memory.data() + shift, info.scratch_bytes), INTACT_OK) << intact_last_error();
      EXPECT_TRUE(*runs.c == runs.expected) << int{value} << " shifted by " << shift;
      EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift),
                              [&](uint8_t byte) { return byte == value; }));
    }
  }
}

class ScratchOnIsa : public testing::TestWithParam<std::tuple<intact_isa, int>> {
 protected:
  void SetUp() override {
    const auto& [isa, threads] = GetParam();
    if (intact_isa_available(isa) == 0) INTACT_SKIP_ISA(intact_isa_name(isa));
  }

  using Check = std::function<void(const Runs&)>;

  static void OnGemm(const char* line, const Check& check) {
    SCOPED_TRACE(line);
    Problem problem = Parsed(line);
    std::tie(problem.isa, problem.threads) = GetParam();
    const reference::Gemm gemm = verify::MaterializeGemm(problem);
    const Result<Plan> plan = CreatePlan(problem, gemm);
    ASSERT_TRUE(plan) << plan.error().message;
    const verify::RunOptions options = verify::RunOptionsOf(problem);
    Bytes expected =
        reference::Outputs(gemm, reference::Accumulators(gemm, verify::ExpectedModel(gemm, options.isa)));
    const Bytes a = verify::StoredInput(gemm, options);
    Bytes c(expected.size());
    intact_gemm_args args = verify::ArgsOf(gemm, options, {a.data(), c.data(), DataOrNull(gemm.residual)});
    const auto with = [&](void* scratch, size_t bytes) {
      intact_gemm_args own = args;
      own.scratch = scratch;
      own.scratch_bytes = bytes;
      return own;
    };
    const intact_gemm* const handle = plan->get();
    check({[&](intact_run_info* info) { return intact_gemm_prepare(handle, &args, info); },
           [&](void* scratch, size_t bytes) {
             const auto own = with(scratch, bytes);
             return intact_gemm_run(handle, &own);
           },
           [&](void* scratch, size_t bytes, int32_t part, int32_t parts) {
             const auto own = with(scratch, bytes);
             return intact_gemm_run_part(handle, &own, part, parts);
           },
           &c, std::move(expected), RunCount()});
  }

  // As given, with open extents, and with a batch of two.
  static void OnConv(const char* line, const Check& check) {
    for (const auto& [batch, is_open] : {std::pair(1, false), {1, true}, {2, false}}) {
      SCOPED_TRACE(std::string(line) + " batch=" + std::to_string(batch) + (is_open ? " open" : ""));
      OnConv(line, batch, is_open, check);
    }
  }

  static void OnConv(const char* line, int64_t batch, bool is_open, const Check& check) {
    Problem problem = Parsed(line);
    ASSERT_TRUE(problem.conv);
    std::tie(problem.isa, problem.threads) = GetParam();
    problem.in_place = false;  // a second run would add to the first one's output
    problem.conv->batch = batch;
    const reference::Conv conv = verify::MaterializeConv(problem);
    const verify::RunOptions options = verify::RunOptionsOf(problem);
    const unsigned open = is_open ? OpenDimensions(conv.geometry.dims).front() : 0;
    const Result<Conv> plan = Conv::Create(OpenDescOf(conv, options, open), conv.b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    Bytes expected = ExpectedOutput(conv, options);
    Bytes c(expected.size());
    intact_conv_args args =
        verify::ArgsOf(conv, options, {conv.a.data(), c.data(), DataOrNull(conv.residual)});
    const Extents extents = InputOf(conv.geometry);
    if (is_open) std::copy(extents.begin(), extents.end(), args.input);
    const auto with = [&](void* scratch, size_t bytes) {
      intact_conv_args own = args;
      own.scratch = scratch;
      own.scratch_bytes = bytes;
      return own;
    };
    const intact_conv* const handle = plan->handle();
    check({[&](intact_run_info* info) { return intact_conv_prepare(handle, &args, info); },
           [&](void* scratch, size_t bytes) {
             const auto own = with(scratch, bytes);
             return intact_conv_run(handle, &own);
           },
           [&](void* scratch, size_t bytes, int32_t part, int32_t parts) {
             const auto own = with(scratch, bytes);
             return intact_conv_run_part(handle, &own, part, parts);
           },
           &c, std::move(expected), RunCount()});
  }

 private:
  static int RunCount() {
    const intact_isa isa = std::get<0>(GetParam());
    return isa == INTACT_ISA_PORTABLE || EmulatedIsas::Has(isa) ? 20 : 1000;
  }
  static const uint8_t* DataOrNull(const Bytes& bytes) { return bytes.empty() ? nullptr : bytes.data(); }
};

// Rows packed and in place, few and many, row sums, a stray range, a residual, streamed output.
constexpr const char* kGemms[] = {
    "gemm u8s8s32 m=1 n=40 k=130 za=3",
    "gemm u8s8u8 m=70 n=33 k=129 za=3 zc=9 bias=f32 res=s8 zres=-9",
    "gemm s8s8s8 m=37 n=20 k=64 za=-3 scale=channel",
    "gemm u8u8s32 m=50 n=33 k=65 zb=9 zbper=channel",
    "gemm u8s8s32 m=160 n=20 k=64 arange=127 fill=stray",
    "gemm s8u8f32 m=9 n=20 k=63 zb=9 fill=bait mode=saturating",
    "gemm u8s8u8 m=70 n=33 k=129 alayout=km za=3 zc=9",
    "gemm u8u8f32 m=50 n=33 k=65 alayout=km quant=dynamic_rows zb=9",
    "gemm u8s8s32 m=1 n=20 k=64 runtimeb=yes za=3",
    "gemm u8s8s32 m=2 n=20 k=64 batch=4 runtimeb=yes za=3",
    "gemm u8s8u8 m=3 n=70 k=300 runtimeb=yes res=s8",
    "gemm u8s8s32 m=37 n=83 k=68 runtimeb=yes fill=gauss",
    "gemm u8s8s32 m=37 n=50 k=6000 runtimeb=yes za=3",
    "gemm u8s8s32 m=37 n=83 k=68 runtimeb=yes fill=extremes",
};

TEST_P(ScratchOnIsa, GemmsTakeNoMemory) {
  for (const char* line : kGemms) OnGemm(line, ExpectNoAllocations);
}

TEST_P(ScratchOnIsa, GemmsRefuseTooLittle) {
  for (const char* line : kGemms) OnGemm(line, ExpectTooLittleIsRefused);
}

TEST_P(ScratchOnIsa, LessServesFewerThreads) {
  for (const char* line : kGemms) OnGemm(line, ExpectLessServesFewerThreads);
  for (const ConvLayer& layer : kConvLayers) OnConv(layer.line, ExpectLessServesFewerThreads);
}

TEST_P(ScratchOnIsa, GemmsDoNotReadWhatItHolds) {
  for (const char* line : kGemms) OnGemm(line, ExpectScratchMayHoldAnything);
}

TEST_P(ScratchOnIsa, ConvolutionsTakeNoMemory) {
  for (const ConvLayer& layer : kConvLayers) OnConv(layer.line, ExpectNoAllocations);
}

TEST_P(ScratchOnIsa, ConvolutionsRefuseTooLittle) {
  for (const ConvLayer& layer : kConvLayers) OnConv(layer.line, ExpectTooLittleIsRefused);
}

TEST_P(ScratchOnIsa, ConvolutionsDoNotReadWhatItHolds) {
  for (const ConvLayer& layer : kConvLayers) OnConv(layer.line, ExpectScratchMayHoldAnything);
}

// The caller's threads run parts at once, each with its own scratch.
void ExpectPartsRunAtOnce(const Runs& runs) {
  intact_run_info info = INTACT_RUN_INFO_INIT;
  ASSERT_EQ(runs.prepare(&info), INTACT_OK) << intact_last_error();
  for (int round = 0; round < 5; ++round) {
    std::fill(runs.c->begin(), runs.c->end(), uint8_t{0xa5});
    std::atomic<int> failed = 0;
    std::vector<std::thread> threads;
    for (int32_t part = 0; part < kParts; ++part) {
      threads.emplace_back([&, part] {
        const Scratch scratch(info.part_scratch_bytes);
        const intact_status status = runs.run_part(scratch.data(), info.part_scratch_bytes, part, kParts);
        failed += status == INTACT_OK && scratch.FrontIntact() ? 0 : 1;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failed, 0);
    EXPECT_TRUE(*runs.c == runs.expected);
  }
}

TEST_P(ScratchOnIsa, PartsRunAtOnce) {
  for (const char* line : kGemms) OnGemm(line, ExpectPartsRunAtOnce);
  for (const ConvLayer& layer : kConvLayers) OnConv(layer.line, ExpectPartsRunAtOnce);
}

std::string NameOf(const testing::TestParamInfo<std::tuple<intact_isa, int>>& info) {
  const auto& [isa, threads] = info.param;
  return std::string(intact_isa_name(isa)).append("_threads").append(std::to_string(threads));
}

INSTANTIATE_TEST_SUITE_P(All, ScratchOnIsa,
                         testing::Combine(testing::ValuesIn(core::kIsaLadder), testing::Values(1, 2)),
                         NameOf);

// With the caches and the costs of test programs (machine_of_tests.cc), threads share a packed runtime B.
using SharedB = ScratchOnIsa;

TEST_P(SharedB, LiesInScratchOnce) {
  OnGemm("gemm u8s8s32 m=37 n=50 k=6000 runtimeb=yes za=3", [](const Runs& runs) {
    intact_run_info info = INTACT_RUN_INFO_INIT;
    ASSERT_EQ(runs.prepare(&info), INTACT_OK) << intact_last_error();
    ASSERT_GT(info.scratch_bytes, 2 * info.part_scratch_bytes) << "nothing is shared";
    ExpectNoAllocations(runs);
    ExpectLessServesFewerThreads(runs);
  });
}

INSTANTIATE_TEST_SUITE_P(WithVnni, SharedB,
                         testing::Combine(testing::Values(INTACT_ISA_AVX_VNNI, INTACT_ISA_AVX512_VNNI),
                                          testing::Values(2)),
                         NameOf);

// ----- C++ -------------------------------------------------------------------------------------------------

// The allocations by the second of two runs. The first run makes OpenMP's threads.
template <class Run>
int64_t CountAllocationsOf(const Run& run) {
  Error error = run();
  EXPECT_TRUE(error.ok()) << error.message;
  const int64_t count = CountAllocations([&] { error = run(); });
  EXPECT_TRUE(error.ok()) << error.message;
  return count;
}

intact_linear_desc WithResidual() {
  static constexpr float kOne = 1;
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  desc.c_type = INTACT_F32;
  desc.residual_type = INTACT_S8;
  desc.scales = &kOne;
  desc.scale_count = 1;
  desc.residual_scale = 1;
  return desc;
}

TEST(Wrapper, GemmsTakeNoMemory) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = 20;
  desc.k = 70;
  desc.linear = WithResidual();
  const std::vector<int8_t> b(20 * 70, 1);
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const std::vector<uint8_t> a(9 * 70, 1);
  const std::vector<int8_t> residual(9 * 20, -3);
  std::vector<float> c(9 * 20);
  const Result<intact_run_info> info = gemm->Prepare(9, {.threads = 2});
  ASSERT_TRUE(info) << info.error().message;
  Bytes memory(info->scratch_bytes);
  const RunOptions options{2, memory.data(), memory.size()};
  const MatrixView<const uint8_t> input(a.data(), 9, 70);
  const MatrixView<const int8_t> added(residual.data(), 9, 20);
  const MatrixView<float> output(c.data(), 9, 20);
  EXPECT_EQ(CountAllocationsOf([&] { return gemm->Run(input, output, added, options); }), 0);
  EXPECT_THAT(c, Each(67.0f));
}

TEST(Wrapper, ConvolutionsTakeNoMemory) {
  ConvDesc desc = MakeConvDesc();
  desc.input_channels = desc.output_channels = 16;
  desc.input[0] = desc.input[1] = INTACT_ANY_EXTENT;
  desc.kernel[0] = desc.kernel[1] = 3;
  desc.linear = WithResidual();
  const std::vector<int8_t> weights(size_t{16} * 16 * 9, 1);
  const Result<Conv> conv = Conv::Create(desc, weights.data());
  ASSERT_TRUE(conv) << conv.error().message;
  const std::vector<uint8_t> a(size_t{12} * 10 * 16, 1);
  const std::vector<int8_t> residual(size_t{10} * 8 * 16, -3);
  std::vector<float> c(residual.size());
  const Result<intact_run_info> info = conv->Prepare(1, {12, 10}, {.threads = 2});
  ASSERT_TRUE(info) << info.error().message;
  Bytes memory(info->scratch_bytes);
  const RunOptions options{2, memory.data(), memory.size()};
  const PixelView<const uint8_t> input{a.data(), 1, {12, 10}, 16};
  const PixelView<const int8_t> added{residual.data(), 1, {10, 8}, 16};
  const PixelView<float> output{c.data(), 1, {10, 8}, 16};
  EXPECT_EQ(CountAllocationsOf([&] { return conv->Run(input, output, added, options); }), 0);
  EXPECT_THAT(c, Each(141.0f));
}

// Runs without options, of one tile: on the calling thread, with the scratch that it keeps.
TEST(Wrapper, SmallRunsTakeNoMemory) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = 12;
  desc.k = 64;
  const std::vector<int8_t> b(12 * 64, 1);
  const std::vector<uint8_t> a(64, 1);
  std::vector<int32_t> c(12);
  ConvDesc conv_desc = MakeConvDesc();
  conv_desc.input_channels = 64;
  conv_desc.output_channels = 12;
  conv_desc.input[0] = conv_desc.input[1] = 1;
  for (const core::Isa isa : core::kAllIsas) {
    if (intact_isa_available(static_cast<int32_t>(isa)) == 0) continue;
    SCOPED_TRACE(core::ToString(isa));
    desc.linear.max_isa = conv_desc.linear.max_isa = static_cast<int32_t>(isa);
    const Result<Gemm> gemm = Gemm::Create(desc, b.data());
    const Result<Conv> conv = Conv::Create(conv_desc, b.data());
    ASSERT_TRUE(gemm) << gemm.error().message;
    ASSERT_TRUE(conv) << conv.error().message;
    const MatrixView<const uint8_t> row(a.data(), 1, 64);
    const MatrixView<int32_t> outputs(c.data(), 1, 12);
    EXPECT_EQ(CountAllocationsOf([&] { return gemm->Run(row, outputs); }), 0);
    EXPECT_THAT(c, Each(64));
    EXPECT_EQ(CountAllocationsOf([&] { return gemm->RunPart(row, outputs, 0, 1); }), 0);
    std::fill(c.begin(), c.end(), 0);
    const PixelView<const uint8_t> pixel{a.data(), 1, {1, 1}, 64};
    const PixelView<int32_t> channels{c.data(), 1, {1, 1}, 12};
    EXPECT_EQ(CountAllocationsOf([&] { return conv->Run(pixel, channels); }), 0);
    EXPECT_THAT(c, Each(64));
  }
}

TEST(ScratchOptions, ReachTheRun) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = 20;
  desc.k = 70;
  const std::vector<int8_t> b(20 * 70, 1);
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const std::vector<uint8_t> a(9 * 70, 1);
  std::vector<int32_t> c(9 * 20);
  const Result<intact_run_info> info = gemm->Prepare(9, {.threads = 1});
  ASSERT_TRUE(info) << info.error().message;
  Bytes memory(info->scratch_bytes);
  const RunOptions enough{1, memory.data(), memory.size()};
  const RunOptions too_little{1, memory.data(), memory.size() - 1};
  const MatrixView<const uint8_t> input(a.data(), 9, 70);
  const MatrixView<int32_t> output(c.data(), 9, 20);
  EXPECT_THAT(gemm->Run(input, output, too_little).message, HasSubstr("scratch_bytes is"));
  EXPECT_THAT(c, Each(0));
  EXPECT_TRUE(gemm->Run(input, output, enough).ok());
  EXPECT_THAT(c, Each(70));
}

// Random problems below 1,000 multiply-adds.
class ScratchOfSmallProblems : public testing::Test {
 protected:
  static constexpr int64_t kFew = 1000;
  static constexpr size_t kMost = size_t{16} << 10;
  static constexpr int kProblems = 500;  // of each ISA

  /// A number from 1 to 2^bits; small numbers are as likely as large ones.
  int64_t Extent(int bits) { return Number(1, int64_t{1} << Number(0, bits)); }
  int64_t Number(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  /// Types, zero points and residuals.
  intact_linear_desc Linear(core::Isa isa, bool is_static) {
    static constexpr float kScale = 0.01f;
    static constexpr int32_t kZeroPoint = 3;
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    linear.max_isa = static_cast<int32_t>(isa);
    linear.a_type = Number(0, 1) == 0 ? INTACT_U8 : INTACT_S8;
    linear.c_type = Number(0, 1) == 0 ? INTACT_F32 : INTACT_S8;
    linear.scales = &kScale;
    linear.scale_count = 1;
    if (Number(0, 1) == 0) {
      linear.b_zero_points = &kZeroPoint;
      linear.b_zero_point_count = 1;
    }
    if (Number(0, 1) == 0) {
      linear.residual_type = INTACT_S8;
      linear.residual_scale = 1;
    }
    if (is_static || Number(0, 1) == 0) return linear;
    linear.a_quantization = INTACT_QUANTIZATION_DYNAMIC_ROWS;
    linear.a_source_type = INTACT_F32;
    return linear;
  }

  std::mt19937_64 random_{1};
};

TEST_F(ScratchOfSmallProblems, OfGemms) {
  for (const core::Isa isa : core::kAllIsas) {
    if (intact_isa_available(static_cast<int32_t>(isa)) == 0) continue;
    for (int i = 0; i < kProblems;) {
      const int64_t m = Extent(9);
      GemmDesc desc = MakeGemmDesc();
      desc.n = Extent(9);
      desc.k = Extent(9);
      if (m * desc.n * desc.k >= kFew) continue;
      ++i;
      desc.linear = Linear(isa, false);
      const std::vector<int8_t> b(static_cast<size_t>(desc.n * desc.k), 1);
      const Result<Gemm> gemm = Gemm::Create(desc, b.data());
      ASSERT_TRUE(gemm) << gemm.error().message;
      const bool transposed = Number(0, 1) == 0;
      const Result<intact_run_info> info = gemm->Prepare(m, {.a_transposed = transposed});
      ASSERT_TRUE(info) << info.error().message;
      EXPECT_LE(info->part_scratch_bytes, kMost)
          << core::ToString(isa) << " m=" << m << " n=" << desc.n << " k=" << desc.k
          << " transposed=" << transposed << " quantization=" << desc.linear.a_quantization;
    }
  }
}

TEST_F(ScratchOfSmallProblems, OfConvolutions) {
  for (const core::Isa isa : core::kAllIsas) {
    if (intact_isa_available(static_cast<int32_t>(isa)) == 0) continue;
    if (core::TraitsOf(isa).has_tiles) continue;  // taps fill whole tiles
    for (int i = 0; i < kProblems;) {
      ConvDesc desc = MakeConvDesc();
      desc.input_channels = 4 * Extent(4);  // whole quads: padding counts as multiply-adds
      desc.output_channels = Extent(6);
      if (Number(0, 2) == 0) desc.output_channels = desc.groups = desc.input_channels;
      int64_t multiply_adds = desc.output_channels * desc.input_channels / std::max<int64_t>(desc.groups, 1);
      for (const int axis : {0, 1}) {
        desc.kernel[axis] = Number(1, 5);
        desc.pad_begin[axis] = Number(0, desc.kernel[axis] / 2);
        desc.stride[axis] = Number(1, 3);
        desc.input[axis] = desc.kernel[axis] + Number(0, 12);
        const int64_t positions = desc.input[axis] + desc.pad_begin[axis] - desc.kernel[axis];
        multiply_adds *= desc.kernel[axis] * (positions / desc.stride[axis] + 1);
      }
      if (multiply_adds >= kFew) continue;
      ++i;
      desc.linear = Linear(isa, true);
      const std::vector<int8_t> weights(static_cast<size_t>(multiply_adds),
                                        1);  // at least one for each weight
      const Result<Conv> conv = Conv::Create(desc, weights.data());
      ASSERT_TRUE(conv) << conv.error().message;
      const Result<intact_run_info> info = conv->Prepare(1);
      ASSERT_TRUE(info) << info.error().message;
      EXPECT_LE(info->part_scratch_bytes, kMost)
          << core::ToString(isa) << " " << desc.input[0] << "x" << desc.input[1] << "x" << desc.input_channels
          << " to " << desc.output_channels << ", kernel " << desc.kernel[0] << "x" << desc.kernel[1]
          << ", groups " << desc.groups;
    }
  }
}

// Depthwise kernels, which repeat the input channel for each output, would need 10 MB for the line.
TEST(ScratchOfConvolutions, HoldsNoLongLineForEachOutput) {
  constexpr int64_t kWidth = 160000;
  constexpr int32_t kZeroPoint = 1;
  for (const int64_t width : {kWidth, int64_t{INTACT_ANY_EXTENT}}) {
    ConvDesc desc = MakeConvDesc();
    desc.spatial_dims = 1;
    desc.input_channels = 1;
    desc.output_channels = 64;
    desc.input[0] = width;
    desc.kernel[0] = 3;
    desc.dilation[0] = 2;
    desc.linear.b_zero_points = &kZeroPoint;
    desc.linear.b_zero_point_count = 1;
    const std::vector<int8_t> weights(64 * 3, 1);
    const Result<Conv> conv = Conv::Create(desc, weights.data());
    ASSERT_TRUE(conv) << conv.error().message;
    const Result<intact_run_info> info = conv->Prepare(1, {kWidth});
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_LT(info->part_scratch_bytes, size_t{2} << 20) << "width " << width;
  }
}

// No more than L2 holds, even if the taps of an output lie gigabytes apart.
TEST(ScratchOfConvolutions, HoldsNothingOfWhatLiesBetweenTaps) {
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    ConvDesc desc = MakeConvDesc();
    desc.input_channels = 64;
    desc.output_channels = 2;
    desc.input[0] = desc.input[1] = 5;
    desc.kernel[axis] = 2;
    desc.input[axis] = 1 << 24;
    desc.dilation[axis] = (1 << 24) - 100;
    const std::vector<int8_t> weights(64 * 2 * 2, 1);
    const Result<Conv> conv = Conv::Create(desc, weights.data());
    ASSERT_TRUE(conv) << conv.error().message;
    const Result<intact_run_info> info = conv->Prepare(1);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->output[axis], 100);
    EXPECT_LT(info->part_scratch_bytes, size_t{8} << 20);
  }
}

// A row reads B where it lies; more rows pack a chunk of it at a time.
TEST(ScratchOfTiles, HoldsNoWaitingSumsWhereTheDepthIsWhole) {
  if (intact_isa_available(INTACT_ISA_AMX_INT8) == 0) INTACT_SKIP_ISA("amx_int8");
  GemmDesc desc = MakeGemmDesc();
  desc.n = 2048;
  desc.k = 8192;
  desc.linear.max_isa = INTACT_ISA_AMX_INT8;
  const std::vector<int8_t> b(static_cast<size_t>(desc.n * desc.k), 1);
  const Result<Gemm> gemm = Gemm::Create(desc, b.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const Result<intact_run_info> info = gemm->Prepare(4);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_LE(info->part_scratch_bytes, 64 << 10);
}

TEST(ScratchOfRuntimeB, OfFewRowsHoldsNoCopyOfB) {
  constexpr int64_t kSize = 4096;
  for (const intact_isa isa : core::kIsaLadder) {
    if (isa == INTACT_ISA_PORTABLE || intact_isa_available(isa) == 0) continue;
    for (const bool by_columns : {false, true}) {
      GemmDesc desc = MakeGemmDesc();
      desc.linear.max_isa = isa;
      desc.linear.a_zero_point = 3;
      desc.n = desc.k = kSize;
      desc.runtime_b = 1;
      desc.b_stride_k = by_columns ? 1 : kSize;
      desc.b_stride_n = by_columns ? kSize : 1;
      const Result<Gemm> gemm = Gemm::Create(desc, nullptr);
      ASSERT_TRUE(gemm) << gemm.error().message;
      for (const int64_t rows : {1, 32}) {
        const Result<intact_run_info> info = gemm->Prepare(rows);
        ASSERT_TRUE(info) << info.error().message;
        EXPECT_LT(info->part_scratch_bytes, size_t{kSize * kSize} / (rows == 1 ? 64 : 4)) << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace intact::tests
