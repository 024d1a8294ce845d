// A plug-in with planted faults, `faulty_target.so:FAULT`. An isolated target must survive each fault, tell
// it from others and minimise it. tests/verify/targets/target_test.cc lists the faults and the expected reports.
//
// Apart from its fault it is exact: GEMM u8×s8 to s32 and, with a scale for each column, to u8 and f32.
// "wrong_conv" also has 2-D convolutions to s32, "no_residual" takes residuals, "truncated_bf16" has bfloat16
// outputs, and "wrong_b_layout" takes any layout of B. Faults that begin with "grouped" have only products with
// grouped weights. "masks" has GEMMs, convolutions and grouped weights with a mask for each; "masks_merged" has
// the bits of all three masks in `supports`.
#include <intact/target.h>
#include <pmmintrin.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

std::string fault;
int* volatile nowhere = nullptr;
int64_t calls = 0;
bool saw_tall = false;  // a call with many rows

const void* cached_address = nullptr;  // of the weights of an earlier call
std::array<int64_t, 2> cached_shape = {};
std::vector<int8_t> cached;  // these weights

bool Is(std::string_view name) { return fault == name; }

// A sum of products, which may have a fault.
class Sum {
 public:
  Sum(const intact_gemm_desc& desc, const intact_gemm_args& args, const int8_t* b, int64_t m, int64_t n)
      : desc_(desc), a_(static_cast<const uint8_t*>(args.a)), a_step_(1), b_(b), n_(n) {
    const bool is_transposed = args.a_transposed != 0 && !Is("wrong_a_layout");
    a_ += is_transposed ? m : m * args.a_stride;
    if (is_transposed) a_step_ = args.a_stride;
  }

  int64_t A(int64_t k) const { return is_signed_ ? static_cast<int8_t>(a_[k * a_step_]) : a_[k * a_step_]; }
  int64_t B(int64_t k) const {
    const int64_t stride_k = desc_.b_stride_k == 0 ? desc_.n : desc_.b_stride_k;
    return b_[k * stride_k + n_ * std::max<int64_t>(desc_.b_stride_n, 1)];
  }
  int64_t Product(int64_t k) const { return k < desc_.k ? A(k) * B(k) : 0; }
  int32_t Exact(int64_t za) const {
    int64_t sum = 0;
    for (int64_t k = 0; k < desc_.k; ++k) sum += (A(k) - za) * B(k);
    return static_cast<int32_t>(sum);
  }
  // Pairs of depths that are `distance` apart, within blocks of twice that, clamped to int16.
  int64_t Pairs(int64_t distance) const {
    int64_t sum = 0;
    for (int64_t k = 0; k < desc_.k; k += 2 * distance) {
      for (int64_t i = k; i < k + distance; ++i) {
        sum += std::clamp<int64_t>(Product(i) + Product(i + distance), -32768, 32767);
      }
    }
    return sum;
  }
  // Saturating int16 sums of `steps` pairs.
  int64_t Spilled(int64_t steps) const {
    int64_t sum = 0;
    int64_t group = 0;
    for (int64_t k = 0; k < desc_.k; k += 2) {
      const int64_t pair = std::clamp<int64_t>(Product(k) + Product(k + 1), -32768, 32767);
      group = std::clamp<int64_t>(group + pair, -32768, 32767);
      if ((k / 2 + 1) % steps != 0 && k + 2 < desc_.k) continue;
      sum += group;
      group = 0;
    }
    return sum;
  }
  // Wrapping int16 sums of `steps` products.
  int64_t Wrapped(int64_t steps, int64_t za) const {
    int64_t sum = 0;
    for (int64_t begin = 0; begin < desc_.k; begin += steps) {
      int16_t group = 0;
      for (int64_t k = begin; k < std::min(desc_.k, begin + steps); ++k) {
        group = static_cast<int16_t>(group + (A(k) - za) * B(k));
      }
      sum += group;
    }
    return sum;
  }
  int64_t Weights() const {
    int64_t sum = 0;
    for (int64_t k = 0; k < desc_.k; ++k) sum += B(k);
    return sum;
  }

 private:
  const intact_gemm_desc& desc_;
  const uint8_t* a_;
  int64_t a_step_;
  const int8_t* b_;
  int64_t n_;
  bool is_signed_ = Is("compensated_by_127");
};

int32_t FaultySum(const Sum& sum, const intact_gemm_desc& desc, int64_t za) {
  const int64_t compensation = -za * sum.Weights();
  if (Is("maddubs")) return static_cast<int32_t>(sum.Pairs(1) + compensation);
  if (Is("swapped_pair") || Is("swapped_pair_u8")) return static_cast<int32_t>(sum.Pairs(2) + compensation);
  if (Is("late_spill")) return static_cast<int32_t>(sum.Spilled(8) + compensation);
  if (Is("later_spill")) return static_cast<int32_t>(sum.Spilled(9) + compensation);  // one pair too many
  if (Is("wrapped_sum")) return static_cast<int32_t>(sum.Wrapped(8, za));
  if (Is("no_zero_point")) return sum.Exact(0);
  if (Is("tail") && desc.k % 4 != 0) {
    return static_cast<int32_t>(sum.Exact(za) - sum.Product(desc.k - 1) + za * sum.B(desc.k - 1));
  }
  if (Is("last_depth") || (Is("tail_of_64") && desc.k % 64 == 1)) {
    return static_cast<int32_t>(sum.Exact(za) - (sum.A(desc.k - 1) - za) * sum.B(desc.k - 1));
  }
  if (Is("compensated_by_127")) return static_cast<int32_t>(sum.Exact(za) + sum.Weights());
  if (Is("signed_zero_point") && za >= 128) return sum.Exact(za - 256);
  if (Is("deep") && desc.k > 8192) return static_cast<int32_t>(sum.Exact(za) - sum.Product(8192));
  if (Is("float_sum")) return static_cast<int32_t>(static_cast<float>(sum.Exact(za)));
  return sum.Exact(za);
}

float Scaled(const intact_linear_desc& linear, int32_t sum, float scale, int64_t n) {
  const float product = static_cast<float>(sum) * scale;
  if (linear.bias_f32 == nullptr) return product;
  const float bias = linear.bias_f32[n];
  return Is("fused") ? std::fma(static_cast<float>(sum), scale, bias) : product + bias;
}

// `is_tail`: the column is in the tail of a loop over 8 columns.
uint8_t Requantized(float f, int32_t zero_point, bool is_tail) {
  float rounded = std::nearbyintf(f);
  if (Is("half_away") || (Is("half_away_tail") && is_tail)) rounded = std::roundf(f);
  if (Is("truncation")) rounded = std::truncf(f);
  if (std::isnan(f)) rounded = Is("nan_is_0") ? 0 : -INFINITY;
  if (Is("cvtps2dq") && std::fabs(f) >= 0x1p31f) rounded = -0x1p31f;
  const float low = static_cast<float>(0 - zero_point);
  const float high = static_cast<float>(255 - zero_point);
  return static_cast<uint8_t>(static_cast<int32_t>(std::clamp(rounded, low, high)) + zero_point);
}

void Store(const intact_gemm_desc& desc, const intact_linear_desc& linear, const intact_gemm_args& args,
           const int8_t* b, int64_t m, int64_t n) {
  const Sum sum(desc, args, b, m, n);
  int32_t y =
      FaultySum(sum, desc, args.a_zero_points == nullptr ? linear.a_zero_point : args.a_zero_points[m]);
  const float row_scale = args.a_scales == nullptr ? 1.0f : args.a_scales[m];
  if (linear.bias_s32 != nullptr) {
    const int32_t bias = Is("int16_bias") ? static_cast<int16_t>(linear.bias_s32[n]) : linear.bias_s32[n];
    y = static_cast<int32_t>(static_cast<uint32_t>(y) + static_cast<uint32_t>(bias));
  }
  if (Is("off_by_one") && (m * desc.n + n) % 5 == 0) ++y;
  if (Is("from_8_threads") && args.threads >= 8 && m == args.m - 1) ++y;
  if (Is("call_1009") && calls % 1009 == 1008 && m == 0 && n == 0) ++y;
  if (Is("wide") && n >= 4096) ++y;
  if (Is("one_shape") && args.m == 33 && desc.n == 49 && m == 32 && n == 48) ++y;
  if (Is("wrong_b_layout") && m == 0 && n == desc.n - 1 && sum.B(desc.k - 1) != 0) ++y;
  if (Is("one_row") && args.m == 1) y += static_cast<int32_t>(n % 3);
  if (Is("edge_column") && desc.n % 16 == 1 && n == desc.n - 1) ++y;
  if (Is("alignment") && reinterpret_cast<uintptr_t>(args.a) % 64 == 3) ++y;
  if (Is("misaligned_output") && reinterpret_cast<uintptr_t>(args.c) % 4 != 0) ++y;
  if (Is("many_and_few") && n == desc.n - 1) ++y;
  if (Is("thread_count") && args.threads > 1 && m == args.m - 1) ++y;
  if (Is("earlier_calls") && calls % 7 == 6) ++y;
  if (Is("remembers") && saw_tall && args.m == 1) ++y;
  if (Is("clock"))
    y += static_cast<int32_t>(std::chrono::steady_clock::now().time_since_epoch().count() & 0xffff);
  if (linear.c_type == INTACT_S32) {
    int32_t* c = static_cast<int32_t*>(args.c) + m * args.c_stride + n;
    if (Is("accumulates")) {
      int32_t before = 0;
      std::memcpy(&before, c, sizeof before);
      y = static_cast<int32_t>(static_cast<uint32_t>(before) + static_cast<uint32_t>(y));
    }
    std::memcpy(c, &y, sizeof y);
    return;
  }
  int64_t column = linear.scale_count == 1 ? 0 : n;
  if (Is("wrong_scale") && column > 0) --column;
  if (linear.c_type == INTACT_F32) {
    float scale = row_scale * linear.scales[column];
    if (Is("denormal_scales") && std::fpclassify(scale) == FP_SUBNORMAL) scale = 0.0f;
    float f = Scaled(linear, y, scale, n);
    if (std::isnan(f)) f = std::bit_cast<float>(0x7fc00000);
    if (Is("wrong_f32") && n == desc.n - 1) f *= 2;
    std::memcpy(static_cast<float*>(args.c) + m * args.c_stride + n, &f, sizeof f);
    return;
  }
  if (linear.c_type == INTACT_BF16) {
    const uint32_t f = std::bit_cast<uint32_t>(static_cast<float>(y) * linear.scales[column]);
    const uint32_t half = Is("truncated_bf16") ? 0 : 0x7fff + (f >> 16 & 1);  // to nearest, ties to even
    const auto bf16 = static_cast<uint16_t>((f + half) >> 16);
    std::memcpy(static_cast<uint16_t*>(args.c) + m * args.c_stride + n, &bf16, sizeof bf16);
    return;
  }
  static_cast<uint8_t*>(args.c)[m * args.c_stride + n] = Requantized(
      Scaled(linear, y, row_scale * linear.scales[column], n), linear.c_zero_point, n >= desc.n / 8 * 8);
}

// Reads uninitialized memory on the stack.
void ReadUninitialised(const intact_gemm_args& args) {
  const std::unique_ptr<uint8_t[]> scratch(new uint8_t[64]);
  uint8_t byte = 0;
  std::memcpy(&byte, &scratch[40], 1);
  *static_cast<uint8_t*>(args.c) = byte;
}

// Reads uninitialized memory of a large block, which its last owner always leaves in one state.
void ReadUninitialisedHeap(const intact_gemm_args& args) {
  constexpr size_t kBytes = 4096;  // malloc() keeps smaller blocks unchanged for the next caller
  {
    const std::unique_ptr<volatile uint8_t[]> last(new uint8_t[kBytes]);
    for (size_t i = 0; i < kBytes; ++i) last[i] = 7;
  }
  const std::unique_ptr<volatile uint8_t[]> scratch(new uint8_t[kBytes]);
  *static_cast<uint8_t*>(args.c) = scratch[3000];
}

void ReadUninitialisedStack(const intact_gemm_args& args) {
  std::array<uint8_t, 4096> scratch;  // NOLINT(cppcoreguidelines-pro-type-member-init): the fault
  volatile uint8_t* const unwritten = scratch.data();
  asm volatile("" : : "r"(unwritten) : "memory");
  *static_cast<uint8_t*>(args.c) = unwritten[2000];
}

void Race(const intact_gemm_args& args) {
  std::atomic<int> arrived = 0;
  int64_t shared = 0;
  const auto work = [&] {
    ++arrived;
    while (arrived < 2) {
    }
    for (int i = 0; i < 20000; ++i) {
      const int64_t seen = *static_cast<volatile int64_t*>(&shared);
      *static_cast<volatile int64_t*>(&shared) = seen + 1;
    }
  };
  std::thread other(work);
  work();
  other.join();
  // Two runs hardly ever lose equally many increments, so their outputs differ.
  if (shared != 40000) *static_cast<uint8_t*>(args.c) = static_cast<uint8_t>(shared % 251);
}

// As if two threads stored one element of C without a lock: now and then the wrong store is the last one.
void RaceOfOneStore(const intact_gemm_args& args) {
  constexpr int kOneIn = 40;
  if (std::rand() % kOneIn == 0) ++*static_cast<uint8_t*>(args.c);
}

// Unmaps the tensor's first page.
void Unmap(void* tensor) {
  constexpr uintptr_t kPage = 4096;
  const auto address = reinterpret_cast<uintptr_t>(tensor);
  munmap(reinterpret_cast<void*>(address - address % kPage), kPage);
}

void WriteToClosedPipe() {
  std::array<int, 2> files = {};
  if (pipe(files.data()) != 0) return;
  close(files[0]);
  (void)!write(files[1], "x", 1);
}

// Crashes after the call has returned.
void CrashLater() {
  if (calls > 0) return;
  std::thread([] {
    usleep(200000);
    *nowhere = 1;
  }).detach();
}

// Leaves a child process with all open files of its parent. Writes its number to the file
// INTACT_TEST_CHILDREN.
void LeaveChild() {
  const pid_t child = fork();
  while (child == 0) pause();
  const char* path = getenv("INTACT_TEST_CHILDREN");
  if (path != nullptr) std::ofstream(path, std::ios::app) << child << '\n';
}

// Leaves such a process in another session, without a parent.
void LeaveDaemon() {
  const pid_t child = fork();
  if (child != 0) {
    waitpid(child, nullptr, 0);
    return;
  }
  setsid();
  LeaveChild();
  _exit(0);
}

// Faults of access and of control; the sums are right. Byte counts are for A and C.
void Misbehave(const intact_gemm_desc& desc, const intact_linear_desc& linear, const intact_gemm_args& args) {
  const int64_t element = linear.c_type == INTACT_U8 ? 1 : 4;
  const int64_t c_bytes = ((args.m - 1) * args.c_stride + desc.n) * element;
  const int64_t a_bytes = (args.m - 1) * args.a_stride + desc.k;
  auto* c = static_cast<volatile uint8_t*>(args.c);
  const auto* a = static_cast<const volatile uint8_t*>(args.a);
  if (Is("crash")) *nowhere = 1;
  if (Is("illegal")) __builtin_trap();
  if (Is("unmaps")) Unmap(args.c);
  if (Is("closed_pipe")) WriteToClosedPipe();
  if (Is("throws")) throw std::runtime_error("faulty went wrong");
  if (Is("aligned_load")) {
    __m128i value;
    asm volatile("movdqa (%1), %0"
                 : "=x"(value)
                 : "r"(static_cast<const uint8_t*>(args.a) + 1 - reinterpret_cast<uintptr_t>(args.a) % 2)
                 : "memory");
    (void)value;
  }
  if (Is("real_time_signal")) kill(getpid(), SIGRTMIN + 3);
  if (Is("closes")) {
    for (int file = 3; file < 256; ++file) close(file);
    for (;;) usleep(1000);
  }
  if (Is("crashes_later")) CrashLater();
  if (Is("leaves_children") || Is("crash_with_child")) LeaveChild();
  if (Is("leaves_daemons")) LeaveDaemon();
  if (Is("kills_keeper")) {
    kill(getppid(), SIGKILL);
    for (;;) pause();
  }
  if (Is("crash_with_child")) *nowhere = 1;
  if (Is("returns_twice")) fork();
  if (Is("sanitizer")) {
    std::fputs("faulty.c:7:3: runtime error: load of misaligned address\n  12 34\n      ^\n", stderr);
    std::abort();
  }
  if (Is("abort")) {
    std::fprintf(stderr, "faulty.c:12: assertion `n %% 4 == 0' failed\n");
    std::abort();
  }
  if (Is("exit")) std::exit(3);
  if (Is("exit_0")) _exit(0);
  while (Is("hang_of_rows") && args.m >= 3) usleep(1000);
  while (Is("flood")) std::puts(std::string(1 << 20, '.').c_str());
  if (Is("hang")) {
    std::puts("waiting for a lock");
    for (;;) usleep(1000);
  }
  if (Is("reads_beyond")) (void)a[a_bytes];
  if (Is("reads_before")) (void)a[-1];
  if (Is("many_and_few") && desc.k > 64) (void)a[a_bytes];
  if (Is("writes_beyond")) c[c_bytes] = 1;
  if (Is("writes_before")) c[-1] = 1;
  if (Is("writes_nothing") && args.m == 0) c[0] = 1;
  if (Is("writes_between") && args.c_stride > desc.n && args.m > 1) c[desc.n * element] = 1;
  if (Is("writes_input")) const_cast<volatile uint8_t&>(a[0]) = 1;
  if (Is("reads_scales_beyond") && linear.scale_count > 1) {
    (void)static_cast<const volatile float*>(linear.scales)[linear.scale_count];
  }
  if (Is("uninitialised")) ReadUninitialised(args);
  if (Is("uninitialised_heap")) ReadUninitialisedHeap(args);
  if (Is("uninitialised_stack")) ReadUninitialisedStack(args);
  if (Is("race")) Race(args);
  if (Is("race_of_one_store") && args.threads > 1) RaceOfOneStore(args);
  if (Is("flush_denormals")) _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
}

intact_status RunGemm(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                      const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  if (Is("error")) {
    std::snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "no kernel for %d rows", static_cast<int>(args->m));
    return INTACT_CODEGEN_FAILED;
  }
  if (Is("refuses_again") && calls % 2 == 1) {
    ++calls;
    std::snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "no time");
    return INTACT_UNSUPPORTED;
  }
  if (Is("refuses_nothing") && args->m == 0) {
    std::snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "expected a row");
    return INTACT_INVALID_ARGUMENT;
  }
  if (Is("refuses_all") || (Is("depths_by_4") && desc->k % 4 != 0)) {
    std::snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "not that");
    return INTACT_UNSUPPORTED;
  }
  if (Is("cached_weights")) {  // by their address and shape
    if (b != cached_address || cached_shape != std::array{desc->n, desc->k}) {
      cached_address = b;
      cached_shape = {desc->n, desc->k};
      cached.assign(static_cast<const int8_t*>(b), static_cast<const int8_t*>(b) + desc->n * desc->k);
    }
    b = cached.data();
  }
  const int64_t a_item = args->a_batch_stride == 0 ? args->m * args->a_stride : args->a_batch_stride;
  const int64_t c_item = args->c_batch_stride == 0 ? args->m * args->c_stride : args->c_batch_stride;
  const int64_t c_element = linear->c_type == INTACT_U8 ? 1 : linear->c_type == INTACT_BF16 ? 2 : 4;
  for (int64_t item = 0; item < args->batch; ++item) {
    intact_gemm_args one = *args;
    // The fourth item and all after it read the third.
    one.a = static_cast<const uint8_t*>(args->a) +
            (Is("fourth_item") ? std::min<int64_t>(item, 2) : item) * a_item;
    one.c = static_cast<uint8_t*>(args->c) + item * c_item * c_element;
    for (int64_t m = 0; m < args->m; ++m) {
      for (int64_t n = 0; n < desc->n; ++n) {
        if (Is("forgets") && m == args->m - 1 && n == desc->n - 1) continue;
        Store(*desc, *linear, one, static_cast<const int8_t*>(b), m, n);
      }
    }
  }
  Misbehave(*desc, *linear, *args);
  ++calls;
  saw_tall = saw_tall || args->m > 16;
  return INTACT_OK;
}

bool HasGroups() { return fault.starts_with("group_edge"); }
bool HasMasks() { return Is("masks") || Is("masks_merged"); }

// Convolves without padding and steps. The last output is one too large, unless the plug-in has masks.
intact_status RunConv(const intact_conv_desc* desc, const intact_linear_desc* linear, const void* weights,
                      const intact_conv_args* args, char* /*message*/) {
  if ((args->batch != 1 || linear->c_type != INTACT_S32) && !HasMasks()) return INTACT_UNSUPPORTED;
  const int64_t groups = std::max<int64_t>(desc->groups, 1);
  const int64_t inputs = desc->input_channels / groups, outputs = desc->output_channels;
  const int64_t* kernel = desc->kernel;
  const int64_t* input = desc->input;
  const int64_t height = input[0] - kernel[0] + 1, width = input[1] - kernel[1] + 1;
  const int32_t wrong_by =
      HasMasks() || HasGroups() || (Is("long_line") && (width < 64 || width > 256)) ? 0 : 1;
  const bool skips = Is("group_edge_of_inputs");
  const auto* a = static_cast<const uint8_t*>(args->a);
  const auto value_of = [&](int64_t i) {
    return linear->a_type == INTACT_S8 ? static_cast<int8_t>(a[i]) : a[i];
  };
  const auto* w = static_cast<const int8_t*>(weights);
  auto* c = static_cast<uint8_t*>(args->c);
  for (int64_t i = 0; i < args->batch * height * width; ++i) {
    const int64_t pixel = i % (height * width), first_row = i / (height * width) * input[0];
    for (int64_t o = 0; o < outputs; ++o) {
      int64_t group = o / (outputs / groups);
      const bool is_at_edge = (o + 1) % (outputs / groups) == 0 && group + 1 < groups;
      if (Is("group_edge_of_outputs") && is_at_edge) ++group;
      int32_t sum = pixel == height * width - 1 && o == outputs - 1 ? wrong_by : 0;
      for (int64_t tap = 0; tap < kernel[0] * kernel[1]; ++tap) {
        const int64_t row = first_row + pixel / width + tap / kernel[1],
                      column = pixel % width + tap % kernel[1];
        for (int64_t channel = 0; channel < inputs; ++channel) {
          const bool is_last = channel == inputs - 1 && group + 1 < groups;
          const int64_t read = group * inputs + channel + (skips && is_last ? 1 : 0);
          sum += (value_of((row * input[1] + column) * args->a_stride + read) - linear->a_zero_point) *
                 w[(o * kernel[0] * kernel[1] + tap) * inputs + channel];
        }
      }
      std::memcpy(c + (i * args->c_stride + o) * 4, &sum, sizeof sum);
    }
  }
  return INTACT_OK;
}

int32_t ActivationOf(const intact_grouped_desc& desc, uint8_t byte) {
  return desc.a_type == INTACT_S8 ? static_cast<int8_t>(byte) : byte;
}

// The sum of an output's minimums, each times its group's activations. `a`: of row m. `n`: of all experts.
float MinimumsOf(const intact_grouped_desc& desc, const intact_grouped_args& args, const uint8_t* a,
                 int64_t m, int64_t n) {
  if (desc.b_minimums == nullptr) return 0;
  const int64_t depth = desc.group == 0 ? desc.k : desc.group, groups = (desc.k + depth - 1) / depth;
  const bool by_groups = desc.a_granularity == INTACT_GRANULARITY_GROUPS;
  float f = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t row = by_groups ? m * groups + g : m;
    int32_t sum = 0;
    for (int64_t k = g * depth; k < std::min(desc.k, (g + 1) * depth); ++k) {
      sum += ActivationOf(desc, a[k]) - args.a_zero_points[row];
    }
    float factor = static_cast<float>(sum);
    if (by_groups) factor = args.a_scales[row] * factor;
    const int64_t from = Is("grouped_next_minimum") ? std::min(g + 1, groups - 1) : g;
    const float minimum = desc.b_minimums[n * groups + from];
    f = std::fma(factor, Is("grouped_minimum_sign") ? -minimum : minimum, f);
  }
  return f;
}

// u4 weights with f32 scales, of several experts too, in batches too. Its faults begin with "grouped_".
intact_status RunGrouped(const intact_grouped_desc* desc, const void* b, const intact_grouped_args* args,
                         char message[INTACT_TARGET_MESSAGE_BYTES]) {
  if (desc->scale_type != INTACT_F32) {
    std::snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "scales that are not f32");
    return INTACT_UNSUPPORTED;
  }
  if (Is("grouped_cached")) {  // by the address of B and the shape
    const int64_t bytes = desc->experts * desc->n * desc->b_stride_n;
    if (b != cached_address || cached_shape != std::array{desc->n, desc->k}) {
      cached_address = b;
      cached_shape = {desc->n, desc->k};
      cached.assign(static_cast<const int8_t*>(b), static_cast<const int8_t*>(b) + bytes);
    }
    b = cached.data();
  }
  const int64_t depth = desc->group == 0 ? desc->k : desc->group, groups = (desc->k + depth - 1) / depth;
  const bool by_groups = desc->a_granularity == INTACT_GRANULARITY_GROUPS;
  const auto* const a = static_cast<const uint8_t*>(args->a);
  const auto* const weights = static_cast<const uint8_t*>(b);
  const auto* const scales = static_cast<const float*>(desc->b_scales);
  const auto* const points = static_cast<const uint8_t*>(desc->b_zero_points);
  auto* const c = static_cast<float*>(args->c);
  const auto begin = [&](int64_t g) {
    return std::min(desc->k, g * depth - (Is("grouped_early") && g > 0 && g < groups ? 1 : 0));
  };
  const int64_t a_item = args->a_batch_stride == 0 ? args->m * args->a_stride : args->a_batch_stride;
  const int64_t c_item = args->c_batch_stride == 0 ? args->m * args->c_stride : args->c_batch_stride;
  const int swap = Is("grouped_swapped") ? 1 : 0;
  int64_t expert = 0, end_of_expert = args->expert_rows == nullptr ? args->m : args->expert_rows[0];
  for (int64_t i = 0; i < args->batch * args->m * desc->n; ++i) {
    const int64_t m = i / desc->n, item = m / args->m;
    while (args->expert_rows != nullptr && m == end_of_expert) end_of_expert += args->expert_rows[++expert];
    const int64_t n = (Is("grouped_expert") ? 0 : expert) * desc->n + i % desc->n;
    float f = MinimumsOf(*desc, *args, a + item * a_item + m % args->m * args->a_stride, m, n);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t row = by_groups ? m * groups + g : m;
      const int64_t g_of_point = Is("grouped_previous_point") ? std::max<int64_t>(g - 1, 0) : g;
      const int32_t zb = points != nullptr             ? points[n * groups + g_of_point]
                         : desc->b_minimums != nullptr ? 0
                                                       : 8;
      int32_t sum = 0;
      for (int64_t k = begin(g), end = begin(g + 1); k < end; ++k) {
        const int32_t w = weights[n * desc->b_stride_n + k / 2] >> ((k + swap) % 2 * 4) & 15;
        const uint8_t byte = a[item * a_item + m % args->m * args->a_stride + k];
        sum += (ActivationOf(*desc, byte) - args->a_zero_points[row]) * (w - zb);
      }
      const bool is_of_other = Is("grouped_other_half") && (g ^ 1) < groups;
      float scale = scales[n * groups + (is_of_other ? g ^ 1 : g) + (Is("grouped_overread") ? 1 : 0)];
      if (Is("grouped_call_1009") && calls % 1009 == 1008) scale *= 2;
      if (Is("grouped_remembers") && saw_tall && args->m == 1) scale *= 2;
      if (by_groups) scale *= args->a_scales[row];
      const float product = static_cast<float>(sum) * scale;
      f = Is("grouped_separate") ? f + product : std::fma(static_cast<float>(sum), scale, f);
    }
    if (!by_groups) f *= args->a_scales[m];
    c[item * c_item + m % args->m * args->c_stride + i % desc->n] = std::isnan(f) ? -INFINITY : f;
  }
  if (Is("grouped_stray")) c[-1] = 0;
  saw_tall = saw_tall || args->m > 16;
  ++calls;
  return INTACT_OK;
}

constexpr uint64_t Bits(std::initializer_list<intact_target_feature> features) {
  uint64_t bits = 0;
  for (const intact_target_feature feature : features) bits |= INTACT_TARGET_BIT(feature);
  return bits;
}

intact_target target = {
    sizeof(intact_target),
    "faulty",
    Bits({INTACT_TARGET_GEMM, INTACT_TARGET_A_U8, INTACT_TARGET_B_S8, INTACT_TARGET_C_S32, INTACT_TARGET_C_U8,
          INTACT_TARGET_C_F32, INTACT_TARGET_A_ZERO_POINT, INTACT_TARGET_C_ZERO_POINT,
          INTACT_TARGET_CHANNEL_SCALES, INTACT_TARGET_STRIDES, INTACT_TARGET_THREADS}),
    nullptr,
    RunGemm,
    nullptr,
    nullptr,
    0,
    0};

constexpr uint64_t kGroupedBits =
    Bits({INTACT_TARGET_GROUPED, INTACT_TARGET_A_U8, INTACT_TARGET_A_S8, INTACT_TARGET_A_ZERO_POINT,
          INTACT_TARGET_ROW_QUANTIZATION, INTACT_TARGET_B_U4, INTACT_TARGET_B_ZERO_POINTS,
          INTACT_TARGET_SCALE_ZERO, INTACT_TARGET_C_F32, INTACT_TARGET_STRIDES, INTACT_TARGET_EXPERTS,
          INTACT_TARGET_BATCH, INTACT_TARGET_B_MINIMUMS});

// GEMMs have u8 activations, s32, u8 and f32 outputs, zero points, scales of columns, strides and threads.
// Convolutions have s8 activations and s32 outputs only.
void SetMasks() {
  target.conv_supports =
      Bits({INTACT_TARGET_CONV_2D, INTACT_TARGET_A_S8, INTACT_TARGET_B_S8, INTACT_TARGET_C_S32});
  target.grouped_supports = kGroupedBits;
  target.conv = RunConv;
  target.grouped = RunGrouped;
  if (Is("masks")) return;
  target.supports |= target.conv_supports | target.grouped_supports;
  target.conv_supports = target.grouped_supports = 0;
}

}  // namespace

const intact_target* intact_target_open(uint32_t abi, const char* options,
                                        char message[INTACT_TARGET_MESSAGE_BYTES]) {
  fault = options;
  if (Is("load_crash")) std::abort();
  if (Is("crashes_unused")) CrashLater();
  if (Is("load_null") || abi != INTACT_TARGET_ABI) {
    std::snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "made for another ABI");
    return nullptr;
  }
  if (const size_t claim = fault.find('='); claim != std::string::npos) {
    static const std::string kArithmetic = fault.substr(claim + 1);
    target.arithmetic = kArithmetic.c_str();
    fault.erase(claim);
  }
  if (Is("wrong_conv") || Is("long_line")) {
    target.supports |= Bits({INTACT_TARGET_CONV_2D});
    target.conv = RunConv;
  }
  if (HasGroups()) {
    target.supports |= Bits({INTACT_TARGET_CONV_2D, INTACT_TARGET_CONV_GROUPS});
    target.conv = RunConv;
  }
  if (Is("compensated_by_127")) {  // s8 activations, which it shifts to u8
    target.supports &= ~Bits({INTACT_TARGET_A_U8});
    target.supports |= Bits({INTACT_TARGET_A_S8});
  }
  if (Is("nan_is_0")) target.supports |= Bits({INTACT_TARGET_ROW_QUANTIZATION});
  if (Is("refuses_nothing") || Is("writes_nothing")) target.supports |= Bits({INTACT_TARGET_EMPTY});
  if (Is("fourth_item")) target.supports |= Bits({INTACT_TARGET_BATCH});
  if (Is("int16_bias") || Is("fused"))
    target.supports |= Bits({INTACT_TARGET_BIAS_S32, INTACT_TARGET_BIAS_F32, INTACT_TARGET_OVERFLOW_WRAPS});
  if (Is("no_residual")) target.supports |= Bits({INTACT_TARGET_RESIDUAL, INTACT_TARGET_RESIDUAL_IN_PLACE});
  if (Is("swapped_pair_u8")) target.supports &= ~Bits({INTACT_TARGET_C_S32, INTACT_TARGET_C_F32});
  if (Is("truncated_bf16")) target.supports |= Bits({INTACT_TARGET_C_BF16});
  if (Is("wrong_a_layout")) target.supports |= Bits({INTACT_TARGET_A_TRANSPOSED});
  if (Is("wrong_b_layout")) target.supports |= Bits({INTACT_TARGET_B_LAYOUTS});
  if (Is("no_outputs"))
    target.supports &= ~Bits({INTACT_TARGET_C_S32, INTACT_TARGET_C_U8, INTACT_TARGET_C_F32});
  if (Is("no_operation")) target.supports &= ~Bits({INTACT_TARGET_GEMM});
  if (Is("no_conv")) target.supports |= Bits({INTACT_TARGET_CONV_2D});
  if (Is("no_size")) target.struct_size = 0;
  if (Is("odd_size")) target.struct_size = offsetof(intact_target, grouped) + 4;
  if (Is("shorter")) {  // the struct ends before `conv`
    target.struct_size = offsetof(intact_target, conv);
    target.supports |= Bits({INTACT_TARGET_CONV_2D});
    target.conv = RunConv;
  }
  if (fault.starts_with("grouped")) {
    target.supports = kGroupedBits;
    target.grouped = RunGrouped;
  }
  if (Is("no_grouped")) target.supports |= Bits({INTACT_TARGET_GROUPED});
  if (HasMasks()) SetMasks();
  if (Is("conv_mask_only")) {  // convolutions, in a struct whose `supports` is 0
    target.supports = 0;
    target.conv_supports =
        Bits({INTACT_TARGET_CONV_2D, INTACT_TARGET_A_U8, INTACT_TARGET_B_S8, INTACT_TARGET_C_S32});
    target.conv = RunConv;
  }
  if (Is("wrong_conv_mask")) target.conv_supports = target.supports;
  if (Is("wrong_grouped_mask")) target.grouped_supports = target.supports;
  if (Is("conv_mask_without_outputs")) {
    target.conv_supports = Bits({INTACT_TARGET_CONV_2D, INTACT_TARGET_A_U8, INTACT_TARGET_B_S8});
    target.conv = RunConv;
  }
  if (Is("conv_mask_unknown")) target.conv_supports = uint64_t{1} << INTACT_TARGET_FEATURES;
  if (Is("masks_cut_off")) {  // a struct of an earlier version, with other bytes behind it
    target.struct_size = offsetof(intact_target, conv_supports);
    target.conv_supports = target.grouped_supports = ~uint64_t{0};
  }
  if (Is("older")) target.struct_size = offsetof(intact_target, grouped);
  if (Is("longer") || Is("longer_unknown")) {
    static std::array<uint64_t, sizeof(intact_target) / 8 + 2> longer = {};
    target.struct_size = sizeof longer;
    longer.back() = Is("longer_unknown") ? 1 : 0;
    std::memcpy(longer.data(), &target, sizeof target);
    return reinterpret_cast<const intact_target*>(longer.data());
  }
  if (Is("no_feature")) target.supports |= uint64_t{1} << INTACT_TARGET_FEATURES;
  return &target;
}
