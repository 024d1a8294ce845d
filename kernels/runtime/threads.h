// What a run needs whatever it computes: the float environment, scratch memory, threads.
#ifndef INTACT_KERNELS_RUNTIME_THREADS_H_
#define INTACT_KERNELS_RUNTIME_THREADS_H_

#include <xmmintrin.h>

#include <cstdint>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/runtime/thread_pool.h"

namespace intact::kernels {

/// Requantization is defined in the default floating-point environment, and so is what a descriptor may hold;
/// callers may have set another. Each thread has its own.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() : saved_(_mm_getcsr()) {
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~ScopedFloatEnvironment() { _mm_setcsr(saved_); }  // the exception flags too
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  // All exceptions masked, round to nearest even, no flush to zero.
  static constexpr unsigned kDefault = 0x1f80;
  unsigned saved_;
};

/// What callers who bring their own scratch must bring where `bytes` are used, which are aligned to 64.
inline size_t ScratchSize(int64_t bytes) { return static_cast<size_t>(bytes) + 63; }

/// Scratch memory for `shared_bytes` that all threads share, and behind them `*threads` shares of
/// `share_bytes` each, all aligned to 64: the caller's, if there is any, or memory of the calling thread that
/// is kept between runs. OpenMP's default may have grown since the caller asked how much to bring: where the
/// caller's serves fewer, `*threads` becomes how many it serves. Errors: INVALID_ARGUMENT (it serves none, or
/// has a size and is NULL), OUT_OF_MEMORY.
Result<uint8_t*> ScratchOf(void* scratch, size_t scratch_bytes, int64_t share_bytes, int* threads,
                           int64_t shared_bytes = 0);

/// The threads that a caller asks for: `wanted`; where that is 0, OpenMP's default, or fewer if so many would
/// have less than a few microseconds' work each of `multiply_adds` by kernels of `isa`.
int ThreadsOf(int32_t wanted, double multiply_adds, core::Isa isa);

/// The parts of a run, and how many threads run them: more threads than processors gain nothing. The threads
/// may be fewer still, which changes neither the parts nor the result.
struct ThreadCount {
  int parts, threads;
};
ThreadCount CountThreads(int parts);

/// Calls run(part, thread) for each of count.parts.
template <class Run>
void RunParts(const ThreadCount& count, Run run) {
  if (count.threads == 1) {
    for (int part = 0; part < count.parts; ++part) run(part, 0);
    return;
  }
  const auto call = [](void* context, int part, int thread) { (*static_cast<Run*>(context))(part, thread); };
  RunOnPool(count.parts, count.threads, call, &run);
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_THREADS_H_
