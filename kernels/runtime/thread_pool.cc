#include "kernels/runtime/thread_pool.h"

#include <immintrin.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "jit/fork_generation.h"
#include "jit/topology.h"

namespace intact::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetry(100);
// About ten times the time to wake a sleeping thread.
constexpr std::chrono::microseconds kSpin(500);

// Spins until is_true() or kSpin has passed. Yields the processor to other threads.
template <class IsTrue>
void SpinUntil(const IsTrue& is_true) {
  constexpr int kPauses = 32;
  const auto end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < kPauses; ++i) {
      if (is_true()) return;
      _mm_pause();
    }
    sched_yield();
  } while (Clock::now() < end);
}

/// The processors that a thread may run on.
struct Processors {
  cpu_set_t set;
  bool is_known = false;

  // OMP_PROC_BIND binds the calling thread to one processor. Its helpers must not share it, so they may run
  // on all processors of OpenMP's threads.
  static Processors OfCaller() {
    if (omp_get_proc_bind() != omp_proc_bind_false && omp_get_num_places() > 0) {
      static const Processors kPlaces = OfPlaces();
      return kPlaces;
    }
    Processors caller;
    CPU_ZERO(&caller.set);
    caller.is_known = pthread_getaffinity_np(pthread_self(), sizeof(caller.set), &caller.set) == 0;
    return caller;
  }
  static Processors OfPlaces() {
    Processors all;
    CPU_ZERO(&all.set);
    std::array<int, CPU_SETSIZE> numbers = {};
    for (int place = 0; place < omp_get_num_places(); ++place) {
      const int count = omp_get_place_num_procs(place);
      if (count > std::ssize(numbers)) return all;
      omp_get_place_proc_ids(place, numbers.data());
      for (int i = 0; i < count; ++i) CPU_SET(static_cast<size_t>(numbers[static_cast<size_t>(i)]), &all.set);
    }
    all.is_known = true;
    return all;
  }
  bool operator==(const Processors& other) const {
    return is_known == other.is_known && CPU_EQUAL(&set, &other.set) != 0;
  }
};

class ThreadPool {
 public:
  /// The pool of this process; null if memory ran out.
  static ThreadPool* Instance() noexcept {
    static std::atomic<ThreadPool*> instance = nullptr;
    ThreadPool* pool = instance.load();
    if (pool != nullptr && pool->process_ == jit::ForkGeneration()) return pool;
    // A forked child has its parent's pool without the threads. That pool is left alone.
    auto* const fresh = new (std::nothrow) ThreadPool;
    if (fresh == nullptr || instance.compare_exchange_strong(pool, fresh)) return fresh;
    delete fresh;
    return pool;
  }

  void Run(int parts, int threads, void (*run)(void*, int, int), void* context) noexcept {
    Job job{run, context, parts, threads - 1, Processors::OfCaller()};
    Open(&job);
    job.RunParts(0);
    Close(&job);
    const auto is_done = [&] { return job.inside.load() == 0; };
    SpinUntil(is_done);
    if (is_done()) return;
    std::unique_lock lock(mutex_);
    part_done_.wait(lock, is_done);
  }

 private:
  /// A run, on its caller's stack. mutex_ guards its non-atomic members while the job is open.
  struct Job {
    void (*run)(void*, int, int);
    void* context;
    int parts;
    int wanted;  // helpers that may still join
    Processors processors;
    int joined = 0;
    Job* next_open = nullptr;
    std::atomic<int> next_part = 0;
    std::atomic<int> inside = 0;  // helpers at work

    void RunParts(int thread) {
      for (int part = next_part++; part < parts; part = next_part++) run(context, part, thread);
    }
  };

  void Open(Job* job) {
    int asleep = 0;
    {
      const std::lock_guard lock(mutex_);
      job->next_open = open_;
      open_ = job;
      wanted_ += job->wanted;
      while (idle_ < wanted_ && MakeHelper()) {
      }
      asleep = std::min(asleep_, job->wanted);
    }
    for (int i = 0; i < asleep; ++i) job_open_.notify_one();
  }

  /// No helper joins the job afterwards.
  void Close(Job* job) {
    const std::lock_guard lock(mutex_);
    for (Job** open = &open_; *open != nullptr; open = &(*open)->next_open) {
      if (*open != job) continue;
      *open = job->next_open;
      wanted_ -= job->wanted;
      return;
    }
  }

  // Helpers block the signals that others send, so that the process's handlers do not run on threads that it
  // does not know.
  bool MakeHelper() {
    static const int64_t kMostHelpers = jit::DetectOnlineCpus(jit::HostFacts()) - 1;
    if (helpers_ >= kMostHelpers || Clock::now() < retry_at_) return false;
    sigset_t ours, callers;
    sigfillset(&ours);
    for (const int fault : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP}) sigdelset(&ours, fault);
    pthread_sigmask(SIG_SETMASK, &ours, &callers);
    bool is_made = true;
    try {
      std::thread([this] { Help(); }).detach();
      ++helpers_;
      ++idle_;
    } catch (const std::exception&) {  // no thread, or no memory for one
      is_made = false;
      retry_at_ = Clock::now() + kRetry;
    }
    pthread_sigmask(SIG_SETMASK, &callers, nullptr);
    return is_made;
  }

  [[noreturn]] void Help() {
    (void)pthread_setname_np(pthread_self(), "intact");
    Processors processors;
    CPU_ZERO(&processors.set);
    for (;;) {
      SpinUntil([&] { return wanted_.load(std::memory_order_relaxed) > 0; });
      int thread = 0;
      Job* const job = Join(&thread);
      if (job->processors.is_known && !(job->processors == processors)) {
        processors = job->processors;
        (void)pthread_setaffinity_np(pthread_self(), sizeof(processors.set), &processors.set);
      }
      job->RunParts(thread);
      Leave(job);
    }
  }

  Job* Join(int* thread) {
    std::unique_lock lock(mutex_);
    ++asleep_;
    job_open_.wait(lock, [&] { return open_ != nullptr; });
    --asleep_;
    --idle_;
    Job* const job = open_;
    *thread = ++job->joined;
    ++job->inside;
    --wanted_;
    if (--job->wanted == 0) open_ = job->next_open;
    return job;
  }

  // Once no helper is inside, the caller may return, and the job is gone.
  void Leave(Job* job) {
    const bool is_last = job->inside.fetch_sub(1) == 1;
    const std::lock_guard lock(mutex_);
    ++idle_;
    if (is_last) part_done_.notify_all();
  }

  const uint64_t process_ = jit::ForkGeneration();
  std::mutex mutex_;  // guards the members below
  std::condition_variable job_open_, part_done_;
  Job* open_ = nullptr;          // a list of the jobs that want helpers
  std::atomic<int> wanted_ = 0;  // helpers that they want; written under mutex_
  int helpers_ = 0, idle_ = 0;   // idle: in no job
  int asleep_ = 0;
  Clock::time_point retry_at_ = {};  // if a thread could not be created
};

}  // namespace

void RunOnPool(int parts, int threads, void (*run)(void* context, int part, int thread),
               void* context) noexcept {
  ThreadPool* const pool = threads > 1 ? ThreadPool::Instance() : nullptr;
  if (pool != nullptr) return pool->Run(parts, threads, run, context);
  for (int part = 0; part < parts; ++part) run(context, part, 0);
}

}  // namespace intact::kernels
