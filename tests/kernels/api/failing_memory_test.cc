// Out of memory: whichever allocation of an operation fails, the operation reports it, and the next one
// works. Each failure happens in a child process that has not used the library yet, because one-time
// initialization must survive it too.
#include <gtest/gtest.h>
#include <intact/bound.h>
#include <intact/grouped.h>
#include <intact/intact.h>
#include <omp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

// ----- failing allocations ---------------------------------------------------------------------------------

namespace {

constexpr int64_t kNever = -1, kAlways = -2;
std::atomic<int64_t> until_failure = kNever;  // allocations; kAlways: all fail
std::atomic<int64_t> always_failed = 0;       // of kAlways
std::atomic<size_t> allocated_bytes = 0;      // by malloc()

}  // namespace

// Sanitizers replace the same functions.
#if !defined(__SANITIZE_ADDRESS__)
namespace {

constexpr bool kCanFail = true;

bool Fails() {
  const int64_t left = until_failure.load(std::memory_order_relaxed);
  if (left == kNever) return false;
  if (left == kAlways) {
    ++always_failed;
  } else if (until_failure.fetch_sub(1) != 0) {
    return false;
  }
  errno = ENOMEM;
  return true;
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
  allocated_bytes += size;
  return Fails() ? nullptr : __libc_malloc(size);
}
INTACT_REPLACES void* calloc(size_t count, size_t size) {
  return Fails() ? nullptr : __libc_calloc(count, size);
}
INTACT_REPLACES void* realloc(void* memory, size_t size) {
  return Fails() ? nullptr : __libc_realloc(memory, size);
}
INTACT_REPLACES void* aligned_alloc(size_t alignment, size_t size) {
  return Fails() ? nullptr : __libc_memalign(alignment, size);
}
#else
namespace {
constexpr bool kCanFail = false;
}  // namespace
#endif

namespace intact::tests {
namespace {

constexpr int64_t kM = 40, kN = 33, kK = 70, kSide = 12, kMostOutputs = 24;

struct Case {
  const char* name;
  std::function<intact_status()> operation;  // must leave nothing behind
};
void PrintTo(const Case& one, std::ostream* os) { *os << one.name; }

template <class T>
std::vector<T> Values(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i * 37 + i / 5);
  return values;
}

const std::vector<int8_t> kWeights = Values<int8_t>(64 * 64 * 9);
// Half of the range, so that no pair saturates.
const std::vector<uint8_t> kActivations = [] {
  std::vector<uint8_t> values = Values<uint8_t>(64 * 64 * 16);
  for (uint8_t& value : values) value /= 2;
  return values;
}();

// Of this process: other cases run at the same time.
const std::string kPath =
    std::filesystem::temp_directory_path() / ("intact_failing_memory_" + std::to_string(getpid()) + ".pack");

intact_status CreateGemm(intact_gemm** gemm, intact_mode mode, int64_t usual_m, int32_t max_isa = 0) {
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  desc.n = kN;
  desc.k = kK;
  desc.usual_m = usual_m;
  linear.mode = mode;
  linear.max_isa = max_isa;
  linear.c_type = INTACT_S32;
  return intact_gemm_create(&desc, &linear, kWeights.data(), gemm);
}

constexpr intact_status kWrong = INTACT_CODEGEN_FAILED;  // not an error of runs: the first output is wrong

intact_status RunGemm(const intact_gemm* gemm, int threads) {
  std::array<int32_t, kM* kN> c = {};
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = kM;
  args.a = kActivations.data();
  args.c = c.data();
  args.threads = threads;
  intact_run_info info = INTACT_RUN_INFO_INIT;
  intact_status status = intact_gemm_prepare(gemm, &args, &info);
  if (status == INTACT_OK) status = intact_gemm_run(gemm, &args);
  int32_t sum = 0;
  for (size_t k = 0; k < kK; ++k) sum += kActivations[k] * kWeights[k * kN];
  return status == INTACT_OK && c[0] != sum ? kWrong : status;
}

intact_status CreateAndRun(intact_mode mode, int64_t usual_m) {
  intact_gemm* gemm = nullptr;
  intact_status status = CreateGemm(&gemm, mode, usual_m);
  if (status == INTACT_OK) status = RunGemm(gemm, 2);
  intact_gemm_destroy(gemm);
  return status;
}

/// A convolution of kSide×kSide pixels by 3×3 taps, padded to equal extents, and its run.
struct Layer {
  int64_t inputs, outputs, groups;
  int32_t transposed = 0;
  bool is_open = false;  // its extents
  int32_t quantization = INTACT_QUANTIZATION_STATIC, max_isa = 0;

  intact_conv_desc Desc() const {
    intact_conv_desc desc = INTACT_CONV_DESC_INIT;
    desc.spatial_dims = 2;
    desc.input_channels = inputs;
    desc.output_channels = outputs;
    desc.groups = groups;
    desc.transposed = transposed;
    for (const int i : {0, 1}) {
      desc.input[i] = is_open ? INTACT_ANY_EXTENT : kSide;
      desc.kernel[i] = 3;
      desc.stride[i] = 1 + transposed;
      desc.pad_begin[i] = desc.pad_end[i] = 1;
    }
    return desc;
  }

  intact_status Create(intact_conv** conv) const {
    const intact_conv_desc desc = Desc();
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    linear.c_type = INTACT_S32;
    linear.a_quantization = quantization;
    linear.max_isa = max_isa;
    return intact_conv_create(&desc, &linear, kWeights.data(), conv);
  }

  intact_conv_args Args() const {
    static std::array<int32_t, 4 * kSide * kSide * kMostOutputs> c;  // for twice the extents, transposed
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = 1;
    args.a = kActivations.data();
    args.c = c.data();
    args.threads = 2;
    if (is_open) args.input[0] = args.input[1] = kSide;
    return args;
  }

  // Only taps outside the padding add to the first output.
  intact_status Run(const intact_conv* conv) const {
    const intact_conv_args args = Args();
    intact_run_info info = INTACT_RUN_INFO_INIT;
    intact_status status = intact_conv_prepare(conv, &args, &info);
    if (status == INTACT_OK) status = intact_conv_run(conv, &args);
    if (status != INTACT_OK || transposed != 0) return status;
    const int64_t channels = inputs / groups;
    int32_t sum = 0;
    for (const int64_t y : {0, 1}) {
      for (const int64_t x : {0, 1}) {
        for (int64_t c = 0; c < channels; ++c) {
          sum += kActivations[static_cast<size_t>((y * kSide + x) * inputs + c)] *
                 kWeights[static_cast<size_t>(((y + 1) * 3 + x + 1) * channels + c)];
        }
      }
    }
    return static_cast<const int32_t*>(args.c)[0] == sum ? status : kWrong;
  }
};

intact_status Convolve(const Layer& layer) {
  intact_conv* conv = nullptr;
  intact_status status = layer.Create(&conv);
  if (status == INTACT_OK) status = layer.Run(conv);
  intact_conv_destroy(conv);
  return status;
}

intact_status PrepareOpenExtents() {
  const Layer layer = {.inputs = 16, .outputs = 24, .groups = 1, .is_open = true};
  intact_conv* conv = nullptr;
  intact_status status = layer.Create(&conv);
  const intact_conv_args args = layer.Args();
  intact_run_info info = INTACT_RUN_INFO_INIT;
  if (status == INTACT_OK) status = intact_conv_prepare(conv, &args, &info);
  if (status == INTACT_OK) status = layer.Run(conv);
  intact_conv_destroy(conv);
  return status;
}

constexpr Layer kDense = {.inputs = 16, .outputs = 24, .groups = 1};

intact_status SaveAndLoadConv() {
  intact_conv* conv = nullptr;
  intact_status status = kDense.Create(&conv);
  if (status == INTACT_OK) status = intact_conv_save(conv, kPath.c_str());
  intact_conv_destroy(conv);
  conv = nullptr;
  if (status == INTACT_OK) status = intact_conv_load(kPath.c_str(), INTACT_ISA_ANY, &conv);
  if (status == INTACT_OK) status = kDense.Run(conv);
  intact_conv_destroy(conv);
  unlink(kPath.c_str());
  return status;
}

/// Memory for a saved plan.
struct alignas(64) Image {
  std::array<uint8_t, 1 << 16> bytes;
  size_t size;
};
Image image;

intact_status KeepConvInMemory() {
  intact_conv* conv = nullptr;
  intact_status status = kDense.Create(&conv);
  image.size = image.bytes.size();
  if (status == INTACT_OK) status = intact_conv_save_memory(conv, image.bytes.data(), &image.size);
  intact_conv_destroy(conv);
  conv = nullptr;
  if (status == INTACT_OK) {
    status = intact_conv_load_memory(image.bytes.data(), image.size, INTACT_ISA_ANY, &conv);
  }
  if (status == INTACT_OK) status = kDense.Run(conv);
  intact_conv_destroy(conv);
  return status;
}

intact_status TuneConv() {
  intact_conv* conv = nullptr;
  intact_status status = kDense.Create(&conv);
  intact_tune_info info = INTACT_TUNE_INFO_INIT;
  if (status == INTACT_OK) status = intact_conv_tune(conv, nullptr, 0, &info);
  if (status == INTACT_OK) status = kDense.Run(conv);
  intact_conv_destroy(conv);
  return status;
}

intact_status SaveAndLoad() {
  intact_gemm* gemm = nullptr;
  intact_status status = CreateGemm(&gemm, INTACT_EXACT, 0);
  if (status == INTACT_OK) status = intact_gemm_save(gemm, kPath.c_str());
  intact_gemm_destroy(gemm);
  gemm = nullptr;
  if (status == INTACT_OK) status = intact_gemm_load(kPath.c_str(), INTACT_ISA_ANY, &gemm);
  if (status == INTACT_OK) status = RunGemm(gemm, 1);
  intact_gemm_destroy(gemm);
  unlink(kPath.c_str());
  return status;
}

intact_status KeepInMemory() {
  intact_gemm* gemm = nullptr;
  intact_status status = CreateGemm(&gemm, INTACT_EXACT, 0);
  image.size = image.bytes.size();
  if (status == INTACT_OK) status = intact_gemm_save_memory(gemm, image.bytes.data(), &image.size);
  intact_gemm_destroy(gemm);
  gemm = nullptr;
  if (status == INTACT_OK) {
    status = intact_gemm_load_memory(image.bytes.data(), image.size, INTACT_ISA_ANY, &gemm);
  }
  if (status == INTACT_OK) status = RunGemm(gemm, 1);
  intact_gemm_destroy(gemm);
  return status;
}

constexpr int64_t kItems = 3;

/// Items of kM rows each, with one constant B, or with the same runtime B for each item.
intact_status RunBatch(int32_t runtime_b) {
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = kN;
  desc.k = kK;
  desc.runtime_b = runtime_b;
  intact_gemm* gemm = nullptr;
  intact_status status =
      intact_gemm_create(&desc, nullptr, runtime_b != 0 ? nullptr : kWeights.data(), &gemm);
  static std::array<int32_t, kItems * kM * kN> c;
  c = {};
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = kM;
  args.a = kActivations.data();
  args.c = c.data();
  args.threads = 2;
  args.batch = kItems;
  std::array<const void*, kItems> b_items = {};
  b_items.fill(kWeights.data());
  if (runtime_b != 0) args.b_items = b_items.data();
  intact_run_info info = INTACT_RUN_INFO_INIT;
  if (status == INTACT_OK) status = intact_gemm_prepare(gemm, &args, &info);
  if (status == INTACT_OK) status = intact_gemm_run(gemm, &args);
  intact_gemm_destroy(gemm);
  if (status != INTACT_OK) return status;
  for (int64_t item = 0; item < kItems; ++item) {
    const uint8_t* const a = &kActivations[static_cast<size_t>(item * kM * kK)];
    int32_t sum = 0;
    for (size_t k = 0; k < kK; ++k) sum += a[k] * kWeights[k * kN];
    if (c[static_cast<size_t>(item * kM * kN)] != sum) return kWrong;
  }
  return status;
}

uint16_t ToBf16(int32_t whole) {  // at most 255: the upper half of a float has all its bits
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(whole)) >> 16);
}

// Rows of integers from 0 to 255. Quantization does not change them.
template <class T>
const std::vector<T>& Numbers() {
  static const std::vector<T> numbers = [] {
    std::vector<T> made(kM * kK);
    for (size_t i = 0; i < made.size(); ++i) {
      const size_t k = i % kK;
      const int32_t whole = k < 2 ? 255 * static_cast<int32_t>(k) : kActivations[i];
      if constexpr (sizeof(T) == 2) {
        made[i] = ToBf16(whole);
      } else {
        made[i] = static_cast<T>(whole);
      }
    }
    return made;
  }();
  return numbers;
}
const auto& kFloats = Numbers<float>();
const auto& kBf16s = Numbers<uint16_t>();

/// The run quantizes numbers of `type`, and outputs have `type`.
intact_status Quantize(int32_t quantization, int32_t type) {
  const bool is_f32 = type == INTACT_F32;
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  const float scale = 1;
  desc.n = kN;
  desc.k = kK;
  linear.a_quantization = quantization;
  linear.a_source_type = linear.c_type = type;
  linear.scales = &scale;
  linear.scale_count = 1;
  intact_gemm* gemm = nullptr;
  intact_status status = intact_gemm_create(&desc, &linear, kWeights.data(), &gemm);
  static std::array<float, kM * kN> c;  // or half the bytes
  c = {};
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = kM;
  args.a = is_f32 ? static_cast<const void*>(kFloats.data()) : kBf16s.data();
  args.c = c.data();
  args.threads = 2;
  intact_run_info info = INTACT_RUN_INFO_INIT;
  if (status == INTACT_OK) status = intact_gemm_prepare(gemm, &args, &info);
  if (status == INTACT_OK) status = intact_gemm_run(gemm, &args);
  intact_gemm_destroy(gemm);
  if (status != INTACT_OK) return status;
  float sum = 0;
  for (size_t k = 0; k < kK; ++k) sum += kFloats[k] * static_cast<float>(kWeights[k * kN]);
  const auto upper = std::bit_cast<std::array<uint16_t, 2>>(c[0])[0];
  const float first = is_f32 ? c[0] : std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
  const float error = is_f32 ? 0 : std::abs(sum) / 256;
  return std::abs(first - sum) <= error ? status : kWrong;
}

intact_status MultiplyGroups() {
  constexpr int64_t kGroups = (kK + 31) / 32;
  std::array<float, kN* kGroups> scales = {};
  scales.fill(1);
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = desc.b_stride_k = kN;
  desc.k = kK;
  desc.b_type = INTACT_S8;
  desc.b_stride_n = 1;
  desc.b_scales = scales.data();
  desc.scale_type = INTACT_F32;
  desc.a_type = INTACT_U8;
  intact_grouped* grouped = nullptr;
  intact_status status = intact_grouped_create(&desc, kWeights.data(), &grouped);
  image.size = image.bytes.size();
  if (status == INTACT_OK) status = intact_grouped_save_memory(grouped, image.bytes.data(), &image.size);
  intact_pairs_certificate certificate = INTACT_PAIRS_CERTIFICATE_INIT;
  if (status == INTACT_OK) status = intact_grouped_certificate(grouped, &certificate);
  intact_grouped_destroy(grouped);
  grouped = nullptr;
  if (status == INTACT_OK) {
    status = intact_grouped_load_memory(image.bytes.data(), image.size, INTACT_ISA_ANY, &grouped);
  }
  static std::array<float, kM * kN> c;
  c = {};
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = kM;
  args.a = kFloats.data();
  args.c = c.data();
  args.threads = 2;
  if (status == INTACT_OK) status = intact_grouped_run(grouped, &args);
  intact_grouped_destroy(grouped);
  if (status != INTACT_OK) return status;
  float sum = 0;
  for (size_t k = 0; k < kK; ++k) sum += kFloats[k] * static_cast<float>(kWeights[k * kN]);
  return c[0] == sum ? status : kWrong;
}

intact_status TuneAndAsk() {
  intact_gemm* gemm = nullptr;
  intact_status status = CreateGemm(&gemm, INTACT_EXACT, 0);
  intact_tune_info info = INTACT_TUNE_INFO_INIT;
  if (status == INTACT_OK) status = intact_gemm_tune(gemm, kM, 0, &info);
  intact_failing_pair pair;
  int64_t written = 0;
  if (status == INTACT_OK) status = intact_gemm_failing_pairs(gemm, 0, 1, &pair, &written);
  if (status == INTACT_OK) status = RunGemm(gemm, 1);
  intact_gemm_destroy(gemm);
  return status;
}

constexpr unsigned kDeadlineSeconds = 60;

class FailingMemory : public testing::TestWithParam<Case> {};

enum Verdict : char { kPassedOver = 'p', kReported = 'r', kUnreported = 'u', kBroken = 'b', kOther = 'o' };

// In a child process: runs the operation, whose allocation number `n` fails, and then runs it again.
std::string Meet(const Case& one, int64_t n) {
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(kDeadlineSeconds);
    // LLVM's OpenMP library initializes itself in the first call, and again in the child of a fork. If it
    // lacks memory, the process hangs or ends. So it comes before the failure. GCC's library is already
    // initialized.
    (void)omp_get_max_threads();
    until_failure = n;
    const intact_status status = one.operation();
    const bool has_failed = until_failure.exchange(kNever) < 0;
    std::string said(1, !has_failed                      ? kPassedOver
                        : status == INTACT_OUT_OF_MEMORY ? kReported
                        : status == INTACT_OK            ? kUnreported
                                                         : kOther);
    if (said[0] == kOther) {
      said += std::to_string(status);
      said += " ";
      said += intact_last_error();
    }
    const intact_status again = one.operation();
    if (again != INTACT_OK) {
      said.assign(1, kBroken);
      said += std::to_string(again);
      said += " ";
      said += intact_last_error();
    }
    (void)!write(ends[1], said.data(), said.size());
    _exit(0);
  }
  close(ends[1]);
  std::array<char, 600> buffer = {};
  const ssize_t bytes = read(ends[0], buffer.data(), buffer.size());
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return {buffer.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
}

// The distance to the next allocation that fails: 1 for the first 200, then larger, because most later ones
// are by generators. The 20 operations make 39,900 allocations, 11,900 of them for a depthwise convolution.
// All of them (INTACT_EVERY_ALLOCATION) take 70 s of a CPU in the preset release; these 9,200 take 16 s.
int64_t Step(int64_t n) {
  constexpr int64_t kEach = 200;
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  static const bool kAll = std::getenv("INTACT_EVERY_ALLOCATION") != nullptr;
  return kAll ? 1 : 1 + n / kEach;
}

TEST_P(FailingMemory, IsReportedAndSurvived) {
  if (!kCanFail) GTEST_SKIP() << "the sanitizer has the allocator";
  if (__builtin_cpu_supports("avx2") == 0) GTEST_SKIP() << "no AVX2 here";
  int64_t met = 0, survived = 0;
  for (int64_t n = 0;; n += Step(n)) {
    const std::string said = Meet(GetParam(), n);
    ASSERT_FALSE(said.empty()) << "allocation " << n;
    if (said[0] == kPassedOver) break;
    // A run survives with fewer helpers, and INTACT_VERBOSE without a line.
    survived += said[0] == kUnreported ? 1 : 0;
    ASSERT_TRUE(said == std::string(1, kReported) || said == std::string(1, kUnreported))
        << "allocation " << n << ": " << said;
    ++met;
  }
  std::filesystem::remove(kPath);
  EXPECT_GT(met, 10);
  EXPECT_LE(survived, met / 10);
  RecordProperty("failures", static_cast<int>(met));
}

INSTANTIATE_TEST_SUITE_P(
    All, FailingMemory,
    testing::Values(
        Case{"exact", [] { return CreateAndRun(INTACT_EXACT, 0); }},
        Case{"exact_for_one_m", [] { return CreateAndRun(INTACT_EXACT, kM); }},
        Case{"saturating", [] { return CreateAndRun(INTACT_SATURATING, 0); }},
        Case{"save_and_load", SaveAndLoad}, Case{"memory", KeepInMemory}, Case{"tune", TuneAndAsk},
        Case{"batch", [] { return RunBatch(0); }}, Case{"runtime_b", [] { return RunBatch(1); }},
        Case{"dynamic_rows", [] { return Quantize(INTACT_QUANTIZATION_DYNAMIC_ROWS, INTACT_F32); }},
        Case{"dynamic_tensor", [] { return Quantize(INTACT_QUANTIZATION_DYNAMIC_TENSOR, INTACT_F32); }},
        Case{"grouped", MultiplyGroups},
        Case{"bf16", [] { return Quantize(INTACT_QUANTIZATION_DYNAMIC_ROWS, INTACT_BF16); }},
        Case{"dense_convolution", [] { return Convolve(kDense); }},
        Case{"grouped_convolution",
             [] {
               return Convolve({16, 16, 4});
             }},
        Case{"depthwise_convolution",
             [] {
               return Convolve({24, 24, 24});
             }},
        Case{"transposed_convolution",
             [] {
               return Convolve({8, 8, 1, 1});
             }},
        Case{"zero_point_of_the_run",
             [] {
               return Convolve({16, 24, 1, 0, false, INTACT_QUANTIZATION_TENSOR});
             }},
        Case{"depthwise_zero_point_of_the_run",
             [] {
               return Convolve({24, 24, 24, 0, false, INTACT_QUANTIZATION_TENSOR});
             }},
        Case{"open_extents", PrepareOpenExtents}, Case{"conv_save_and_load", SaveAndLoadConv},
        Case{"conv_memory", KeepConvInMemory}, Case{"conv_tune", TuneConv}),
    [](const auto& tested) { return tested.param.name; });

// A run that was not prepared generates its kernels. Without memory for them, it uses slower kernels. Preparation then
// generates them.
TEST(FailingMemoryTest, RunsWithoutMemoryForKernelsGiveTheSameBytes) {
  if (!kCanFail) GTEST_SKIP() << "the sanitizer has the allocator";
  static std::array<uint8_t, 1 << 20> scratch;
  int64_t failures = 0;
  const auto fail_all = [&](const std::function<intact_status()>& run) {
    until_failure = kAlways;
    const intact_status status = run();
    until_failure = kNever;
    failures += always_failed.exchange(0) > 0 ? 1 : 0;
    ASSERT_EQ(status, INTACT_OK) << intact_last_error();
  };
  // Allocations of a preparation that succeeds.
  const auto prepare = [&](const intact_gemm* gemm, const intact_gemm_args& args) {
    constexpr int64_t kMany = int64_t{1} << 40;
    intact_run_info info = INTACT_RUN_INFO_INIT;
    until_failure = kMany;
    EXPECT_EQ(intact_gemm_prepare(gemm, &args, &info), INTACT_OK) << intact_last_error();
    return kMany - until_failure.exchange(kNever);
  };
  const auto find_schedules = [](const intact_gemm* gemm) {  // the size of a file depends on them
    size_t size = 0;
    ASSERT_EQ(intact_gemm_save_memory(gemm, nullptr, &size), INTACT_OK);
  };
  int64_t unfound = 0;
  const auto run_all = [&](int32_t max_isa) {
    failures = unfound = 0;
    for (int64_t m = 1; m <= kM; ++m) {
      std::vector<int32_t> expected(kM * kN), c(kM * kN);
      intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
      args.m = m;
      args.a = kActivations.data();
      args.threads = 1;
      args.scratch = scratch.data();
      args.scratch_bytes = scratch.size();
      int64_t in_order = 0;
      for (const bool fails : {false, true}) {
        intact_gemm* gemm = nullptr;
        ASSERT_EQ(CreateGemm(&gemm, INTACT_EXACT, 0, max_isa), INTACT_OK);
        args.c = fails ? c.data() : expected.data();
        const auto run = [&] { return intact_gemm_run(gemm, &args); };
        if (fails) {
          args.threads = 2;
          until_failure = kAlways;
          const intact_status status = run();
          until_failure = kNever;
          args.threads = 1;
          if (status == INTACT_OUT_OF_MEMORY) {  // for a schedule
            always_failed = 0;
            ++unfound;
            EXPECT_EQ(c, std::vector<int32_t>(kM * kN)) << "m = " << m;
            find_schedules(gemm);
          }
          fail_all(run);
          constexpr int64_t kGrowth = 4;  // of the code cache, now and then; a kernel takes 10 or more
          EXPECT_GE(prepare(gemm, args) + kGrowth, in_order) << "m = " << m;
        } else {
          find_schedules(gemm);
          in_order = prepare(gemm, args);
          ASSERT_EQ(run(), INTACT_OK);
        }
        intact_gemm_destroy(gemm);
      }
      EXPECT_EQ(c, expected) << "m = " << m;
    }
  };
  run_all(0);
  EXPECT_GT(failures, kM / 2);
  if (__builtin_cpu_supports("avx2") != 0) {  // also schedules
    run_all(INTACT_ISA_AVX2);
    EXPECT_GT(failures, kM / 2);
    EXPECT_GT(unfound, 0);
  }
  // Parts of convolutions. Tiles may skip padding, and vectors may read other channels.
  constexpr int32_t kParts = 5;
  const auto run_parts = [&](const Layer& layer, bool fails, std::vector<int32_t>* to) {
    intact_conv* conv = nullptr;
    ASSERT_EQ(layer.Create(&conv), INTACT_OK);
    size_t size = 0;
    ASSERT_EQ(intact_conv_save_memory(conv, nullptr, &size), INTACT_OK);  // finds schedules
    intact_conv_args args = layer.Args();
    args.c = to->data();
    args.scratch = scratch.data();
    args.scratch_bytes = scratch.size();
    for (int32_t part = 0; part < kParts; ++part) {
      const auto run = [&] { return intact_conv_run_part(conv, &args, part, kParts); };
      if (fails) {
        fail_all(run);
      } else {
        ASSERT_EQ(run(), INTACT_OK);
      }
    }
    intact_conv_destroy(conv);
  };
  for (const Layer& layer : {Layer{.inputs = 64, .outputs = 24, .groups = 1}, Layer{24, 24, 3}}) {
    for (const int32_t max_isa : {0, int32_t{INTACT_ISA_AVX_VNNI}, int32_t{INTACT_ISA_AVX2}}) {
      if (max_isa != 0 && __builtin_cpu_supports("avx2") == 0) continue;
      Layer capped = layer;
      capped.max_isa = max_isa;
      std::vector<int32_t> expected(4 * kSide * kSide * kMostOutputs), c(expected.size());
      run_parts(capped, false, &expected);
      run_parts(capped, true, &c);
      EXPECT_EQ(c, expected) << "groups: " << layer.groups << ", max_isa: " << max_isa;
    }
  }
}

// ----- runs that allocate nothing --------------------------------------------------------------------------

// Plans of both kinds, and the arguments of their runs on one thread. Memory of the arguments is larger than needed.
struct Plan {
  intact_gemm* gemm = nullptr;
  intact_conv* conv = nullptr;
  intact_gemm_args gemm_args = INTACT_GEMM_ARGS_INIT;
  intact_conv_args conv_args = INTACT_CONV_ARGS_INIT;

  ~Plan() {
    intact_gemm_destroy(gemm);
    intact_conv_destroy(conv);
  }
  intact_status Bind(intact_bound** bound) const {
    return gemm != nullptr ? intact_gemm_bind(gemm, &gemm_args, bound)
                           : intact_conv_bind(conv, &conv_args, bound);
  }
  intact_status Prepare(intact_run_info* info) const {
    return gemm != nullptr ? intact_gemm_prepare(gemm, &gemm_args, info)
                           : intact_conv_prepare(conv, &conv_args, info);
  }
  intact_status Run(void* scratch, size_t bytes) {
    gemm_args.scratch = conv_args.scratch = scratch;
    gemm_args.scratch_bytes = conv_args.scratch_bytes = bytes;
    return gemm != nullptr ? intact_gemm_run(gemm, &gemm_args) : intact_conv_run(conv, &conv_args);
  }
};

std::array<int32_t, 1 << 16> large_c;
constexpr float kOneScale = 0.01F;

struct Product {
  int64_t m, n = kN, k = kK, batch = 1;
  int32_t quantization = INTACT_QUANTIZATION_STATIC, runtime_b = 0;
  intact_status Create(intact_isa isa, Plan* plan) const {
    intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    desc.n = n;
    desc.k = k;
    desc.runtime_b = runtime_b;
    linear.max_isa = isa;
    linear.a_quantization = quantization;
    const bool is_dynamic = quantization != INTACT_QUANTIZATION_STATIC;
    if (is_dynamic) {
      linear.a_source_type = INTACT_F32;
      linear.c_type = INTACT_F32;
      linear.scales = &kOneScale;
      linear.scale_count = 1;
    }
    plan->gemm_args.m = m;
    plan->gemm_args.batch = batch;
    plan->gemm_args.threads = 1;
    plan->gemm_args.a = is_dynamic ? static_cast<const void*>(kFloats.data()) : kActivations.data();
    plan->gemm_args.c = large_c.data();
    if (runtime_b != 0) plan->gemm_args.b = kWeights.data();
    return intact_gemm_create(&desc, &linear, runtime_b != 0 ? nullptr : kWeights.data(), &plan->gemm);
  }
};

struct Image2D {
  int64_t inputs, outputs, groups = 1, side = kSide, kernel = 3, stride = 1, batch = 1;
  int32_t transposed = 0, quantization = INTACT_QUANTIZATION_STATIC;
  intact_status Create(intact_isa isa, Plan* plan, const int8_t* weights = kWeights.data()) const {
    intact_conv_desc desc = INTACT_CONV_DESC_INIT;
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    desc.spatial_dims = 2;
    desc.input_channels = inputs;
    desc.output_channels = outputs;
    desc.groups = groups;
    desc.transposed = transposed;
    for (const int i : {0, 1}) {
      desc.input[i] = side;
      desc.kernel[i] = kernel;
      desc.stride[i] = stride;
      desc.pad_begin[i] = desc.pad_end[i] = kernel / 2;
    }
    linear.max_isa = isa;
    linear.a_quantization = quantization;
    if (quantization != INTACT_QUANTIZATION_STATIC) {
      linear.a_source_type = INTACT_F32;
      linear.c_type = INTACT_F32;
      linear.scales = &kOneScale;
      linear.scale_count = 1;
    }
    plan->conv_args.batch = batch;
    plan->conv_args.threads = 1;
    plan->conv_args.a = quantization != INTACT_QUANTIZATION_STATIC ? static_cast<const void*>(kFloats.data())
                                                                   : kActivations.data();
    plan->conv_args.c = large_c.data();
    return intact_conv_create(&desc, &linear, weights, &plan->conv);
  }
};

// Whether `run` allocates memory, in a thread that has kept none from earlier runs.
bool Allocates(const std::function<intact_status()>& run) {
  bool allocates = false;
  std::thread([&] {
    until_failure = 0;
    const intact_status status = run();
    allocates = until_failure.exchange(kNever) < 0;
    EXPECT_TRUE(status == INTACT_OK || allocates) << intact_last_error();
  }).join();
  return allocates;
}

template <class Layer>
void ExpectNoAllocations(const Layer& layer, const std::string& name) {
  for (const intact_isa isa : {INTACT_ISA_PORTABLE, INTACT_ISA_AVX2, INTACT_ISA_AVX_VNNI, INTACT_ISA_AVX512,
                               INTACT_ISA_AVX512_VNNI, INTACT_ISA_AMX_INT8}) {
    if (intact_isa_available(isa) == 0) continue;
    SCOPED_TRACE(name + " " + intact_isa_name(isa));
    {
      Plan plan;
      intact_run_info info = INTACT_RUN_INFO_INIT;
      ASSERT_EQ(layer.Create(isa, &plan), INTACT_OK) << intact_last_error();
      ASSERT_EQ(plan.Prepare(&info), INTACT_OK) << intact_last_error();
      std::vector<uint8_t> scratch(info.scratch_bytes);
      EXPECT_FALSE(Allocates([&] { return plan.Run(scratch.data(), scratch.size()); })) << "prepared";
    }
    Plan plan;
    intact_bound* bound = nullptr;
    ASSERT_EQ(layer.Create(isa, &plan), INTACT_OK) << intact_last_error();
    ASSERT_EQ(plan.Bind(&bound), INTACT_OK) << intact_last_error();
    EXPECT_FALSE(Allocates([&] { return intact_bound_run(bound); })) << "bound";
    intact_bound_destroy(bound);
  }
}

TEST(FailingMemoryTest, PreparedAndBoundRunsAllocateNothing) {
  if (!kCanFail) GTEST_SKIP() << "the sanitizer has the allocator";
  EXPECT_TRUE(Allocates([] {
    void* volatile memory = std::malloc(1);
    std::free(memory);
    return INTACT_OK;
  }));
  for (const Product& product : {
           Product{1},
           Product{5},
           Product{kM},
           Product{23, 100, 64},
           Product{7, 9, 300},
           Product{7, kN, kK, 3},
           Product{1, kN, kK, 40},
           Product{7, kN, kK, 3, INTACT_QUANTIZATION_DYNAMIC_ROWS},
           Product{7, kN, kK, 1, INTACT_QUANTIZATION_DYNAMIC_ROWS},
           Product{7, kN, kK, 1, INTACT_QUANTIZATION_DYNAMIC_TENSOR},
           Product{7, kN, kK, 1, INTACT_QUANTIZATION_STATIC, 1},
           Product{40, kN, kK, 1, INTACT_QUANTIZATION_STATIC, 1},
       }) {
    ExpectNoAllocations(product,
                        testing::PrintToString(std::array{product.m, product.n, product.k, product.batch,
                                                          int64_t{product.quantization}}));
  }
  for (const Image2D& layer : {
           Image2D{16, 24},
           Image2D{64, 24},
           Image2D{16, 16, 4},
           Image2D{24, 24, 24},
           Image2D{3, 17},
           Image2D{.inputs = 16, .outputs = 24, .kernel = 1},
           Image2D{.inputs = 16, .outputs = 24, .stride = 2},
           Image2D{.inputs = 16, .outputs = 24, .side = 7, .batch = 3},
           Image2D{.inputs = 8, .outputs = 8, .stride = 2, .transposed = 1},
           Image2D{.inputs = 8, .outputs = 8, .side = 23, .stride = 2, .transposed = 1},
           Image2D{.inputs = 8, .outputs = 8, .kernel = 1, .stride = 2, .transposed = 1},
           Image2D{
               .inputs = 8, .outputs = 8, .side = 7, .kernel = 1, .stride = 3, .batch = 2, .transposed = 1},
           Image2D{.inputs = 16, .outputs = 24, .quantization = INTACT_QUANTIZATION_DYNAMIC_TENSOR},
       }) {
    ExpectNoAllocations(layer, testing::PrintToString(std::array{
                                   layer.inputs, layer.outputs, layer.groups, layer.side, layer.kernel,
                                   layer.stride, int64_t{layer.transposed}, int64_t{layer.quantization}}));
  }
}

// The engine for a tail of rows may not cut columns where shares are cut. The other engine then runs the tail.
TEST(FailingMemoryTest, BoundRunsOfSharesOnOneThreadAllocateNothing) {
  if (!kCanFail) GTEST_SKIP() << "the sanitizer has the allocator";
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);  // of this thread and of the ones that it starts
    for (const intact_isa isa : {INTACT_ISA_AVX2, INTACT_ISA_AVX512}) {
      if (intact_isa_available(isa) == 0) continue;
      for (const int64_t m : {17, 25, 33, 40, 49, 65, 73}) {
        for (const int32_t threads : {4, 6}) {
          Plan plan;
          intact_bound* bound = nullptr;
          ASSERT_EQ((Product{m, 52, 600}).Create(isa, &plan), INTACT_OK) << intact_last_error();
          plan.gemm_args.threads = threads;
          ASSERT_EQ(plan.Bind(&bound), INTACT_OK) << intact_last_error();
          EXPECT_FALSE(Allocates([&] { return intact_bound_run(bound); }))
              << intact_isa_name(isa) << " " << m << " rows, " << threads << " shares";
          intact_bound_destroy(bound);
        }
      }
    }
  }).join();
}

// Runs of many kernel calls are not bound: 4096 rows by many columns; many chunks of a convolution.
TEST(FailingMemoryTest, BoundRunsTakeLittleMemory) {
  if (!kCanFail) GTEST_SKIP() << "the sanitizer has the allocator";
  constexpr int64_t kSideOfMany = 64, kInputs = 1024;
  const std::vector<int8_t> weights(64 * kInputs * 9, 1);
  const std::vector<uint8_t> input(kSideOfMany * kSideOfMany * kInputs);
  std::vector<int32_t> c(4096 * 2001);
  std::vector<uint8_t> scratch(32 << 20);
  for (const intact_isa isa : {INTACT_ISA_AVX_VNNI, INTACT_ISA_AVX512_VNNI}) {
    if (intact_isa_available(isa) == 0) continue;
    const auto expect_little = [&](Plan* plan) {
      intact_run_info info = INTACT_RUN_INFO_INIT;
      ASSERT_EQ(plan->Prepare(&info), INTACT_OK) << intact_last_error();
      plan->gemm_args.c = plan->conv_args.c = c.data();
      plan->gemm_args.scratch = plan->conv_args.scratch = scratch.data();
      plan->gemm_args.scratch_bytes = plan->conv_args.scratch_bytes = scratch.size();
      intact_bound* bound = nullptr;
      const size_t before = allocated_bytes;
      ASSERT_EQ(plan->Bind(&bound), INTACT_OK) << intact_last_error();
      EXPECT_LT(allocated_bytes - before, 400'000) << intact_isa_name(isa);
      intact_bound_destroy(bound);
    };
    Plan product, layer;
    ASSERT_EQ((Product{4096, 2001, 16}).Create(isa, &product), INTACT_OK) << intact_last_error();
    expect_little(&product);
    const Image2D deep{.inputs = kInputs, .outputs = 64, .side = kSideOfMany};
    ASSERT_EQ(deep.Create(isa, &layer, weights.data()), INTACT_OK) << intact_last_error();
    layer.conv_args.a = input.data();
    expect_little(&layer);
  }
}

// A batch of one is always prepared, also by the kernels that tuning chose.
TEST(FailingMemoryTest, TunedConvolutionsFromMemoryArePrepared) {
  if (!kCanFail) GTEST_SKIP() << "the sanitizer has the allocator";
  intact_conv* conv = nullptr;
  ASSERT_EQ(kDense.Create(&conv), INTACT_OK);
  EXPECT_EQ(intact_conv_tune(conv, nullptr, 0, nullptr), INTACT_OK);
  image.size = image.bytes.size();
  EXPECT_EQ(intact_conv_save_memory(conv, image.bytes.data(), &image.size), INTACT_OK);
  intact_conv_destroy(conv);
  ASSERT_EQ(intact_conv_load_memory(image.bytes.data(), image.size, INTACT_ISA_ANY, &conv), INTACT_OK);
  intact_conv_args args = kDense.Args();
  std::vector<uint8_t> scratch(1 << 20);
  args.threads = 1;
  args.scratch = scratch.data();
  args.scratch_bytes = scratch.size();
  EXPECT_FALSE(Allocates([&] { return intact_conv_run(conv, &args); }));
  intact_conv_destroy(conv);
}

// The size of a saved plan follows from its descriptor: no weights are packed.
TEST(FailingMemoryTest, TheSizeOfGroupedPlansNeedsNoMemory) {
  const std::array<float, 1> scales = {1};
  const std::array<uint8_t, 16> weights = {};
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = 1;
  desc.k = 32;
  desc.b_scales = scales.data();
  desc.scale_type = INTACT_F32;
  for (const intact_isa isa : {INTACT_ISA_PORTABLE, INTACT_ISA_ANY}) {
    desc.max_isa = isa;
    intact_grouped* grouped = nullptr;
    ASSERT_EQ(intact_grouped_create(&desc, weights.data(), &grouped), INTACT_OK);
    size_t size = 0, saved = size_t{1} << 20;
    until_failure = 0;
    const intact_status status = intact_grouped_save_memory(grouped, nullptr, &size);
    const bool has_failed = until_failure.exchange(kNever) < 0;
    EXPECT_EQ(status, INTACT_OK);
    EXPECT_FALSE(has_failed);
    std::vector<uint8_t> bytes(saved);
    EXPECT_EQ(intact_grouped_save_memory(grouped, bytes.data(), &saved), INTACT_OK);
    EXPECT_EQ(size, saved);
    intact_grouped_destroy(grouped);
  }
}

}  // namespace
}  // namespace intact::tests
