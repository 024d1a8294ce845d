// The library as a guest in processes that fork, that may have no threads or no executable memory.
#include <gtest/gtest.h>
#include <intact/intact.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <intact/intact.hpp>
#include <string>
#include <thread>
#include <vector>

namespace intact {
namespace {

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

  Result<Gemm> Create(int64_t columns = kN) const {
    GemmDesc desc = MakeGemmDesc();
    desc.n = columns;
    desc.k = kK;
    desc.b_stride_k = kN;
    return Gemm::Create(desc, b_.data());
  }

  bool IsRight(const Gemm& gemm, int threads) const {
    std::vector<int32_t> c(expected_.size());
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = kM;
    args.a = a_.data();
    args.c = c.data();
    args.threads = threads;
    return intact_gemm_run(gemm.handle(), &args) == INTACT_OK && c == expected_;
  }

 private:
  std::vector<uint8_t> a_;
  std::vector<int8_t> b_;
  std::vector<int32_t> expected_;
};

constexpr unsigned kDeadlineSeconds = 60;

/// What `body` returns in a child of this process: "" if all is well. A child that hangs is ended.
std::string InChild(const std::function<std::string()>& body) {
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(kDeadlineSeconds);
    const std::string said = body();
    (void)!write(ends[1], said.data(), said.size());
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 512> buffer = {};
  for (ssize_t bytes = 0; (bytes = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), static_cast<size_t>(bytes));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) said += "ended by signal " + std::to_string(WTERMSIG(status));
  return said;
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

// Parent and child share the pages of the code that was there when they parted.
TEST(Guest, CodeStaysWhateverTheOtherProcessGenerates) {
  const Workload workload(2);
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe(ends.data()), 0);
  Result<Gemm> gemm = workload.Create();
  ASSERT_TRUE(gemm) << gemm.error().message;
  const auto make_others = [&] {
    for (int64_t columns = 1; columns < 40; ++columns) {
      if (!workload.Create(columns)) return false;
    }
    return true;
  };
  const pid_t child = fork();
  if (child == 0) {
    alarm(kDeadlineSeconds);
    char go = 0;
    bool is_right = read(ends[0], &go, 1) == 1;  // the parent has written over what it freed, if it does
    is_right = is_right && RunsRight(workload, *gemm).empty() && make_others();
    _exit(is_right && RunsRight(workload, *gemm).empty() ? 0 : 1);
  }
  const Result<Gemm> kept = workload.Create(kN);
  { const Gemm gone = std::move(*gemm); }
  EXPECT_TRUE(make_others());
  EXPECT_EQ(write(ends[1], "g", 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(RunsRight(workload, *kept), "");
  close(ends[0]);
  close(ends[1]);
}

TEST(Guest, RunsWhereThreadsCannotBeMade) {
  const Workload workload(3);
  const Result<Gemm> gemm = workload.Create();
  ASSERT_TRUE(gemm) << gemm.error().message;
  const std::string said = InChild([&]() -> std::string {
    const rlimit none = {0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0) return "no limit";
    if (geteuid() == 0 && setuid(65534) != 0) return "root has no limit";
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

// PR_SET_MDWE: no page may become executable that is, or was, writable. Since Linux 6.3.
TEST(Guest, GeneratesCodeWherePagesMayNotChange) {
  constexpr int kSetMdwe = 65;
  constexpr unsigned long kRefuseExecGain = 1;
  const Workload workload(5);
  const std::string said = InChild([&]() -> std::string {
    if (prctl(kSetMdwe, kRefuseExecGain, 0, 0, 0) != 0) return "not there";
    const Result<Gemm> gemm = workload.Create();
    return gemm ? RunsRight(workload, *gemm) : gemm.error().message;
  });
  if (said == "not there") GTEST_SKIP() << "the kernel has no PR_SET_MDWE";
  EXPECT_EQ(said, "");
}

/// From now on memfd_create() fails, and whatever asks for executable pages.
bool RefuseExecutablePages() {
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
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  }};
  const sock_fprog program = {filter.size(), const_cast<sock_filter*>(filter.data())};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Guest, SaysThatExecutableMemoryIsRefused) {
  const Workload workload(6);
  const std::string said = InChild([&]() -> std::string {
    if (!RefuseExecutablePages()) return "not there";
    const Result<Gemm> gemm = workload.Create();
    if (gemm) return "a plan was made";
    return std::to_string(gemm.error().status) + " " + gemm.error().message;
  });
  if (said == "not there") GTEST_SKIP() << "the kernel has no seccomp filters";
  EXPECT_EQ(said, std::to_string(INTACT_UNSUPPORTED) +
                      " intact_gemm_create: this process may not have executable memory: mprotect: Operation "
                      "not permitted; this process may not have executable memory: memfd_create: Operation "
                      "not permitted");
}

}  // namespace
}  // namespace intact
