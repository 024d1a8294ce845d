// Starts threads although the system may refuse some of them, or all.
#ifndef INTACT_SUPPORT_SOME_THREADS_H_
#define INTACT_SUPPORT_SOME_THREADS_H_

#include <algorithm>
#include <cstddef>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace intact::support {

/// Starts up to `count` threads; thread i calls `work(i)`. Returns the threads that started, from number 0
/// on. The caller must do the work of all other threads.
template <class Work>
std::vector<std::jthread> StartSomeThreads(int count, const Work& work) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(std::max(count, 0)));
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  } catch (const std::system_error&) {
    // A limit of processes or of memory was reached. The threads that run do the work.
  } catch (const std::bad_alloc&) {
  }
  return threads;
}

}  // namespace intact::support
#endif  // INTACT_SUPPORT_SOME_THREADS_H_
