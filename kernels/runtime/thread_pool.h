// Threads that help the calling thread with a run. The caller takes one part after the other, and *helpers*
// that are awake in time take some of them.
//
//   caller    part 0 | part 2 | waits for parts that others have begun | returns
//   helper        wakes | part 1         |
//   helper                                   never came: nobody waits for it
//
// OpenMP's regions are unsuitable for a library: they wait for a thread that another process keeps from its
// core, end the process if a thread cannot be created, and hang in the child of a fork. OpenMP is only asked
// for numbers of threads (threads.h).
//
// Helpers are created when a run first wants them, unless the system refuses. After a short spin they sleep.
// They take no signals except those of their own faults, and run on the processors of the thread that they
// help. They never end: the shared library stays loaded (-z nodelete). A forked child creates its own.
#ifndef INTACT_KERNELS_RUNTIME_THREAD_POOL_H_
#define INTACT_KERNELS_RUNTIME_THREAD_POOL_H_

namespace intact::kernels {

/// Calls run(context, part, thread) once for each part in [0, parts), on the calling thread, which is thread
/// 0, and on up to threads − 1 helpers. Returns when all calls have returned. Thread-safe; allocates only for
/// new helpers.
void RunOnPool(int parts, int threads, void (*run)(void* context, int part, int thread),
               void* context) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_THREAD_POOL_H_
