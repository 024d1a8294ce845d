// The library as a guest in processes that fork, or that are refused threads or executable memory.
#include <gtest/gtest.h>
#include <intact/intact.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "jit/code_memory.h"
#include "jit/isa.h"
#include "tests/support/in_child.h"
#include "tests/support/sanitized.h"

namespace intact {
namespace {

using tests::InChild;
using tests::kDeadlineSeconds;

constexpr int64_t kM = 64, kN = 96, kK = 1024;

/// A GEMM large enough to be shared by threads, and its expected output.
class Workload {
 public:
  explicit Workload(int seed) : a_(kM * kK), b_(kN * kK), expected_(kM * kN) {
    for (size_t i = 0; i < a_.size(); ++i) a_[i] = static_cast<uint8_t>((i * 37 + i / 5) % 256);
    for (size_t i = 0; i < b_.size(); ++i) {
      b_[i] = static_cast<int8_t>((i * 29 + i / 7 + static_cast<size_t>(seed)) % 255);
    }
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        int32_t sum = 0;
        for (int64_t k = 0; k < kK; ++k) sum += a_[m * kK + k] * b_[k * kN + n];
        expected_[m * kN + n] = sum;
      }
    }
  }

  Result<Gemm> Create(int64_t columns = kN, intact_isa max_isa = INTACT_ISA_ANY) const {
    GemmDesc desc = MakeGemmDesc();
    desc.n = columns;
    desc.k = kK;
    desc.b_stride_k = kN;
    desc.linear.max_isa = max_isa;
    return Gemm::Create(desc, b_.data());
  }

  bool IsRight(const Gemm& gemm, int threads) const {
    std::vector<int32_t> c(expected_.size());
    return RunsInto(gemm, threads, &c);
  }

  bool RunsInto(const Gemm& gemm, int threads, std::vector<int32_t>* c) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = kM;
    args.a = a_.data();
    args.c = c->data();
    args.threads = threads;
    return intact_gemm_run(gemm.handle(), &args) == INTACT_OK && *c == expected_;
  }

 private:
  std::vector<uint8_t> a_;
  std::vector<int8_t> b_;
  std::vector<int32_t> expected_;
};

// An error if the plan runs portable code although it could run generated code; else "".
std::string IsGenerated(const Gemm& gemm) {
  const bool could_be = jit::HardwareIsas().Has(core::Isa::kAvx2);
  return could_be && gemm.Info().isa == INTACT_ISA_PORTABLE ? "its code is not generated" : "";
}

std::string RunsRight(const Workload& workload, const Gemm& gemm) {
  for (const int threads : {1, 2, 0}) {
    if (!workload.IsRight(gemm, threads)) return "wrong with " + std::to_string(threads) + " threads";
  }
  return "";
}

TEST(Guest, RunsFinishInTheChildOfAFork) {
  const Workload workload(1);
  const Result<Gemm> gemm = workload.Create();
  ASSERT_TRUE(gemm) << gemm.error().message;
  ASSERT_EQ(RunsRight(workload, *gemm), "");
  EXPECT_EQ(InChild([&] { return RunsRight(workload, *gemm); }), "") << "the thread that had run forks";
  std::thread([&] {
    EXPECT_EQ(InChild([&] { return RunsRight(workload, *gemm); }), "") << "another thread forks";
  }).join();
  EXPECT_EQ(InChild([&] { return InChild([&] { return RunsRight(workload, *gemm); }); }), "")
      << "a grandchild";
  EXPECT_EQ(RunsRight(workload, *gemm), "") << "and the parent goes on";
}

// Whether `run`, which was called before, returns true in a child that is killed at its first system call.
bool RunsWithoutSystemCalls(const std::function<bool()>& run) {
  const pid_t child = fork();
  if (child == 0) {
    bool is_right = run();
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(2);
    is_right = run() && is_right;
    syscall(SYS_exit, is_right ? 0 : 1);  // _exit() calls exit_group(), which is not permitted
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Guest, RunsOnOneThreadMakeNoSystemCall) {
  if (tests::kSanitized) GTEST_SKIP() << "sanitizers make system calls of their own";
  const Workload workload(1);
  const Result<Gemm> gemm = workload.Create();
  ASSERT_TRUE(gemm) << gemm.error().message;
  std::vector<int32_t> c(kM * kN);
  EXPECT_TRUE(RunsWithoutSystemCalls([&] { return workload.RunsInto(*gemm, 1, &c); }));

  ConvDesc desc = MakeConvDesc();
  desc.input_channels = desc.output_channels = 4;
  desc.input[0] = desc.input[1] = INTACT_ANY_EXTENT;
  desc.kernel[0] = desc.kernel[1] = 3;
  const std::vector<int8_t> weights(4 * 9 * 4, 1);
  const Result<Conv> conv = Conv::Create(desc, weights.data());
  ASSERT_TRUE(conv) << conv.error().message;
  const std::vector<uint8_t> input(size_t{8} * 9 * 4, 1);
  std::vector<int32_t> output(size_t{6} * 7 * 4);
  RunOptions options;
  for (const int threads : {1, 0}) {  // 0: too little work for several threads
    options.threads = threads;
    EXPECT_TRUE(RunsWithoutSystemCalls([&] {
      return conv->Run(PixelView<const uint8_t>{input.data(), 1, {8, 9}, 4},
                       PixelView<int32_t>{output.data(), 1, {6, 7}, 4}, options)
                 .ok() &&
             output.front() == 36 && output.back() == 36;
    })) << threads;
  }
  // The check detects a system call.
  EXPECT_FALSE(RunsWithoutSystemCalls([] { return syscall(SYS_getpid) > 0; }));
}

// The bytes of a thread's stack that `work` needs.
size_t StackOf(const std::function<void()>& work) {
  constexpr size_t kSize = size_t{4} << 20;
  constexpr uint8_t kPaint = 0xa5;
  void* const stack = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return kSize;
  const std::span bytes(static_cast<uint8_t*>(stack), kSize);
  std::ranges::fill(bytes, kPaint);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kSize);
  pthread_t thread = {};
  const auto call = [](void* function) -> void* {
    (*static_cast<const std::function<void()>*>(function))();
    return nullptr;
  };
  const bool ran = pthread_create(&thread, &attributes, call, const_cast<std::function<void()>*>(&work)) == 0;
  if (ran) pthread_join(thread, nullptr);
  const auto untouched =
      std::ranges::find_if(bytes, [](uint8_t byte) { return byte != kPaint; }) - bytes.begin();
  munmap(stack, kSize);
  pthread_attr_destroy(&attributes);
  return ran ? kSize - static_cast<size_t>(untouched) : kSize;
}

// docs/embedding.md gives the limit.
TEST(Guest, NeedsLittleStack) {
  if (tests::kSanitized) GTEST_SKIP() << "sanitizers widen the stack";
  const size_t none = StackOf([] {});
  size_t creation = 0, run = 0;
  const auto measure = [none](size_t* most, const std::function<void()>& work) {
    *most = std::max(*most, StackOf(work) - none);
  };
  const Workload workload(1);
  const std::vector<int8_t> weights(size_t{64} * 9 * 64, 1);
  const std::vector<uint8_t> input(size_t{20} * 20 * 64, 1);
  for (int i = INTACT_ISA_AVX2; i <= INTACT_ISA_PORTABLE; ++i) {
    const auto isa = static_cast<intact_isa>(i);
    if (intact_isa_available(isa) == 0) continue;
    std::optional<Result<Gemm>> gemm;
    measure(&creation, [&] { gemm.emplace(workload.Create(kN, isa)); });
    ASSERT_TRUE(*gemm) << gemm->error().message;
    std::optional<Result<Conv>> conv;
    ConvDesc desc = MakeConvDesc();
    desc.input_channels = desc.output_channels = 64;
    desc.input[0] = desc.input[1] = INTACT_ANY_EXTENT;
    desc.kernel[0] = desc.kernel[1] = 3;
    desc.linear.max_isa = isa;
    measure(&creation, [&] { conv.emplace(Conv::Create(desc, weights.data())); });
    ASSERT_TRUE(*conv) << conv->error().message;
    std::vector<int32_t> c(kM * kN), output(size_t{18} * 18 * 64);
    for (const int threads : {1, 2}) {
      RunOptions options;
      options.threads = threads;
      measure(&run, [&] { EXPECT_TRUE(workload.RunsInto(**gemm, threads, &c)); });
      measure(&run, [&] {
        EXPECT_TRUE((*conv)
                        ->Run(PixelView<const uint8_t>{input.data(), 1, {20, 20}, 64},
                              PixelView<int32_t>{output.data(), 1, {18, 18}, 64}, options)
                        .ok());
      });
    }
  }
  RecordProperty("creation", std::to_string(creation));
  RecordProperty("run", std::to_string(run));
  EXPECT_LE(creation, size_t{64} << 10);
  EXPECT_LE(run, size_t{32} << 10);
}

using Plans = std::vector<Gemm>;

// Plans with other code than Create()'s.
Plans MakeOthers(const Workload& workload) {
  Plans plans;
  for (const int64_t columns : {1, 9, 17, 31}) {
    Result<Gemm> gemm = workload.Create(columns);
    if (gemm) plans.push_back(std::move(*gemm));
  }
  return plans;
}

/// Lets one process wait for another.
class Gate {
 public:
  Gate() : is_made_(pipe(ends_.data()) == 0) {}
  ~Gate() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  bool Open() const { return is_made_ && write(ends_[1], "g", 1) == 1; }
  bool Wait() const {
    char go = 0;
    return is_made_ && read(ends_[0], &go, 1) == 1;
  }

 private:
  std::array<int, 2> ends_ = {};
  bool is_made_;
};

// Parent and child share the code that existed at the fork. Code that the parent frees and generates later
// must not go to the memory of shared code.
TEST(Guest, CodeOfAChildStaysWhatItsParentDoes) {
  const Workload workload(2);
  const Gate gate;
  std::optional<Result<Gemm>> gemm = workload.Create();
  ASSERT_TRUE(*gemm) << gemm->error().message;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kDeadlineSeconds);
    _exit(gate.Wait() && RunsRight(workload, **gemm).empty() ? 0 : 1);
  }
  gemm.reset();  // the last plan of this code in the parent
  const Plans others = MakeOthers(workload);
  EXPECT_FALSE(others.empty());
  EXPECT_TRUE(gate.Open());
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// Parent and child must not append code at one place of shared memory.
TEST(Guest, CodeOfAParentStaysWhatItsChildDoes) {
  const Workload workload(7);
  const Gate child_may, parent_may;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kDeadlineSeconds);
    const bool may = child_may.Wait();
    Plans others;
    for (const intact_type type : {INTACT_S32, INTACT_F32, INTACT_U8, INTACT_S8}) {
      GemmDesc desc = MakeGemmDesc();
      desc.n = desc.k = 64;
      desc.linear.mode = INTACT_SATURATING;
      desc.linear.c_type = type;
      const float scale = 1;
      if (type != INTACT_S32) {
        desc.linear.scales = &scale;
        desc.linear.scale_count = 1;
      }
      const std::vector<int8_t> weights(64 * 64, 1);
      Result<Gemm> other = Gemm::Create(desc, weights.data());
      if (other) others.push_back(std::move(*other));
    }
    _exit(parent_may.Open() && may && others.size() == 4 ? 0 : 1);
  }
  const Result<Gemm> gemm = workload.Create();
  ASSERT_TRUE(gemm) << gemm.error().message;
  EXPECT_TRUE(child_may.Open() && parent_may.Wait());
  EXPECT_EQ(InChild([&] { return RunsRight(workload, *gemm); }), "");  // the child may crash
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Guest, RunsWhereThreadsCannotBeMade) {
  const Workload workload(3);
  const Result<Gemm> gemm = workload.Create();
  ASSERT_TRUE(gemm) << gemm.error().message;
  const std::string said = InChild([&]() -> std::string {
    if (const std::string why = tests::LimitProcesses(0); !why.empty()) return why;
    try {
      std::thread([] {}).join();
      return "threads can be made";
    } catch (const std::system_error&) {
    }
    return RunsRight(workload, *gemm);
  });
  EXPECT_EQ(said, "");
}

TEST(Guest, ManyCallersShareItsThreads) {
  const Workload workload(4);
  const Result<Gemm> gemm = workload.Create();
  ASSERT_TRUE(gemm) << gemm.error().message;
  std::vector<std::thread> callers;
  callers.reserve(8);
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      for (int run = 0; run < 50; ++run) EXPECT_TRUE(workload.IsRight(*gemm, i % 4)) << run;
    });
  }
  for (std::thread& caller : callers) caller.join();
}

std::string CreatesAndRuns(const Workload& workload) {
  const Result<Gemm> gemm = workload.Create();
  return gemm ? IsGenerated(*gemm) + RunsRight(workload, *gemm) : gemm.error().message;
}

// PR_SET_MDWE: a page that is or was writable must not become executable. Since Linux 6.3.
TEST(Guest, GeneratesCodeWherePagesMayNotChange) {
  constexpr int kSetMdwe = 65;
  constexpr unsigned long kRefuseExecGain = 1;
  const Workload workload(5);
  const std::string said = InChild([&]() -> std::string {
    if (prctl(kSetMdwe, kRefuseExecGain, 0, 0, 0) != 0) return "not there";
    return CreatesAndRuns(workload);
  });
  if (said == "not there") GTEST_SKIP() << "the kernel has no PR_SET_MDWE";
  EXPECT_EQ(said, "");
}

constexpr uint32_t kFails = SECCOMP_RET_ERRNO | EPERM;

/// From now on memfd_create() gets `answer`; if `all`, so does every call that asks for executable pages.
bool RefuseExecutablePages(bool all, uint32_t answer = kFails) {
  const auto load = [](size_t offset) {
    return sock_filter(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
  };
  constexpr size_t kProtection = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);
  const std::array<sock_filter, 8> filter = {{
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 2),
      load(kProtection),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (all ? PROT_EXEC : 0u), 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, answer),
  }};
  const sock_fprog program = {filter.size(), const_cast<sock_filter*>(filter.data())};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Guest, GeneratesCodeWithoutMemoryFiles) {
  const Workload workload(9);
  EXPECT_EQ(
      InChild([&]() -> std::string { return RefuseExecutablePages(false) ? CreatesAndRuns(workload) : ""; }),
      "");
  EXPECT_EQ(InChild([&] {
              (void)omp_get_max_threads();  // LLVM's OpenMP library writes a file when it initializes itself
              const rlimit small = {1000, 1000};  // limits of files; a longer file ends the process
              setrlimit(RLIMIT_FSIZE, &small);
              signal(SIGXFSZ, SIG_DFL);
              return CreatesAndRuns(workload);
            }),
            "");
}

TEST(Guest, RunsCompiledCodeWhereExecutableMemoryIsRefused) {
  const Workload workload(6);
  const std::string said = InChild([&]() -> std::string {
    if (!RefuseExecutablePages(true)) return "not there";
    const Result<Gemm> gemm = workload.Create();
    if (!gemm) return gemm.error().message;
    if (gemm->Info().isa != INTACT_ISA_PORTABLE) return intact_isa_name(gemm->Info().isa);
    if (intact_isa_available(INTACT_ISA_AVX2) != 0) return "AVX2 is said to be available";
    return RunsRight(workload, *gemm) + jit::WhyNotPermitted(core::Isa::kAvx2);
  });
  if (said == "not there") GTEST_SKIP() << "the kernel has no seccomp filters";
  if (!jit::HardwareIsas().Has(core::Isa::kAvx2)) GTEST_SKIP() << "avx2 is not available";
  EXPECT_EQ(
      said,
      "this process may not have executable memory: mprotect: Operation not permitted; this process may "
      "not have executable memory: memfd_create: Operation not permitted");
}

TEST(Guest, PortablePlansAskForNoExecutableMemory) {
  const Workload workload(11);
  const std::string said = InChild([&]() -> std::string {
    if (!RefuseExecutablePages(true, SECCOMP_RET_KILL_PROCESS)) return "not there";
    const Result<Gemm> gemm = workload.Create(kN, INTACT_ISA_PORTABLE);
    return gemm ? RunsRight(workload, *gemm) : gemm.error().message;
  });
  if (said == "not there") GTEST_SKIP() << "the kernel has no seccomp filters";
  EXPECT_EQ(said, "");
}

// Free room for code does not mean that more will be granted.
TEST(Guest, SeesThatExecutableMemoryIsRefusedLater) {
  const Workload workload(10);
  const std::string said = InChild([&]() -> std::string {
    const Result<Gemm> before = workload.Create();
    if (!before) return before.error().message;
    if (!RefuseExecutablePages(true)) return "not there";
    const Result<Gemm> after = workload.Create();
    if (!after) return after.error().message;
    return intact_isa_name(after->Info().isa) + RunsRight(workload, *after) + RunsRight(workload, *before);
  });
  if (said == "not there") GTEST_SKIP() << "the kernel has no seccomp filters";
  EXPECT_EQ(said, "portable");
}

TEST(Guest, PortablePlansGenerateNoCode) {
  const Workload workload(8);
  const jit::CodeUsage before = jit::GetCodeUsage();
  const Result<Gemm> gemm = workload.Create(kN, INTACT_ISA_PORTABLE);
  ASSERT_TRUE(gemm) << gemm.error().message;
  EXPECT_EQ(gemm->Info().isa, INTACT_ISA_PORTABLE);
  EXPECT_EQ(RunsRight(workload, *gemm), "");
  EXPECT_EQ(jit::GetCodeUsage(), before);
}

}  // namespace
}  // namespace intact
