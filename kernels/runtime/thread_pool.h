// The threads that share a run with the thread that calls for it. Parts are taken one by one by whoever is
// there: the caller works through them itself, and *helpers* that are awake in time take some.
//
//   caller    part 0 | part 2 | waits for parts that others have begun | returns
//   helper        wakes | part 1         |
//   helper                                   never came: nobody waits for it
//
// OpenMP's regions do not do for a guest: they wait for a thread that another process keeps from its core,
// end the process where a thread cannot be made, and hang in the child of a fork. OpenMP is asked for numbers
// of threads only (threads.h).
//
// Helpers are made when they are first wanted, as many as the system gives; they wait asleep after a short
// spin, take no signals but those of their own faults, and run where the thread may run that they help. They
// never end: the shared library stays loaded (-z nodelete). A forked child makes its own.
#ifndef INTACT_KERNELS_RUNTIME_THREAD_POOL_H_
#define INTACT_KERNELS_RUNTIME_THREAD_POOL_H_

namespace intact::kernels {

/// Calls run(context, part, thread) for each part in [0, parts) once, on the calling thread, which is thread
/// 0, and on up to threads − 1 others; returns when all have returned. Thread-safe; takes no memory but for
/// new helpers.
void RunOnPool(int parts, int threads, void (*run)(void* context, int part, int thread),
               void* context) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_THREAD_POOL_H_
