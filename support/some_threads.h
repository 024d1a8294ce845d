// Threads where the system may refuse them: as many as there can be, which may be none.
#ifndef INTACT_SUPPORT_SOME_THREADS_H_
#define INTACT_SUPPORT_SOME_THREADS_H_

#include <algorithm>
#include <cstddef>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace intact::support {

/// Starts up to `count` threads, of which number i calls `work(i)`, and returns those that were made, from
/// number 0 on. What the others would have done is the caller's to deal out.
template <class Work>
std::vector<std::jthread> StartSomeThreads(int count, const Work& work) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(std::max(count, 0)));
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  } catch (const std::system_error&) {
    // A limit of processes or of memory: those that run do the work.
  } catch (const std::bad_alloc&) {
  }
  return threads;
}

}  // namespace intact::support
#endif  // INTACT_SUPPORT_SOME_THREADS_H_
