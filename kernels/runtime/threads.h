// What every run needs: scratch memory and threads.
#ifndef INTACT_KERNELS_RUNTIME_THREADS_H_
#define INTACT_KERNELS_RUNTIME_THREADS_H_

#include <cstdint>
#include <limits>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/runtime/thread_pool.h"

namespace intact::kernels {

/// The size of a caller's scratch, of any alignment, that holds `bytes` bytes aligned to 64.
inline size_t ScratchSize(int64_t bytes) { return static_cast<size_t>(bytes) + 63; }

/// Scratch, aligned to 64: `shared_bytes` for all threads, then `*threads` shares of `share_bytes` each, in
/// the caller's `scratch`. Null: the calling thread keeps the memory between runs. If `scratch` serves fewer
/// threads, reduces `*threads`. Errors: INVALID_ARGUMENT (serves no thread; null with a size), OUT_OF_MEMORY.
Result<uint8_t*> ScratchOf(void* scratch, size_t scratch_bytes, int64_t share_bytes, int* threads,
                           int64_t shared_bytes = 0);

/// The number of threads of a run: `wanted`. If `wanted` is 0: OpenMP's default, or fewer threads, so that
/// the run's `multiply_adds` give each thread a few microseconds of work with kernels of `isa`.
int ThreadsOf(int32_t wanted, double multiply_adds, core::Isa isa);

/// The parts of a run, and the number of threads that run them: at most `threads`, and one for each
/// processor. The pool may supply fewer threads. This changes neither the parts nor the result.
struct ThreadCount {
  int parts, threads;
};
ThreadCount CountThreads(int parts, int threads = std::numeric_limits<int>::max());

/// Calls run(part, thread) for each part.
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
