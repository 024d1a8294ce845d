// Threads that help the calling thread with a run. The caller and the *helpers* each take the next part that
// nobody has begun. A helper that wakes too late takes none.
//
//   caller    part 0 | part 2 | waits for parts that helpers have begun | returns
//   helper        wakes | part 1         |
//   helper                                   never came: nobody waits for it
//
// OpenMP's parallel regions are unsuitable for a library. They wait for all their threads, even if another
// process holds a thread's core. They end the process if a thread cannot be created, and hang in the child of
// a fork. This library asks OpenMP only how many threads to use (threads.h).
//
// A run creates the helpers that it lacks. If the system refuses, the run proceeds without them. After a
// short spin, helpers sleep. Helpers block all signals except their own faults, and run on the processors of
// the thread that they help. Helpers never end: the shared library stays loaded (-z nodelete). A forked child
// creates new helpers.
#ifndef INTACT_KERNELS_RUNTIME_THREAD_POOL_H_
#define INTACT_KERNELS_RUNTIME_THREAD_POOL_H_

namespace intact::kernels {

/// Calls run(context, part, thread) once for each part in [0, parts), on the calling thread and on up to
/// threads − 1 helpers. The calling thread is thread 0. Returns when all calls have returned. Thread-safe.
/// Allocates only for new helpers.
void RunOnPool(int parts, int threads, void (*run)(void* context, int part, int thread),
               void* context) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_THREAD_POOL_H_
