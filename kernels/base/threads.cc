#include "kernels/base/threads.h"

#include <algorithm>

#include "kernels/base/aligned_buffer.h"

namespace intact::kernels {

uint8_t* ThreadScratch(int64_t bytes) {
  thread_local AlignedBuffer<uint8_t> buffer;
  const auto size = static_cast<size_t>(bytes);
  // The analyzer does not see that the unique_ptr in `buffer` is null after its reset.
  // NOLINTNEXTLINE(clang-analyzer-unix.Malloc)
  return buffer.size() >= size || buffer.Resize(size) ? buffer.data() : nullptr;
}

ThreadCount CountThreads(int32_t wanted, int64_t parts) {
  const int64_t threads = wanted == 0 ? omp_get_max_threads() : wanted;
  const int count = static_cast<int>(std::min(threads, parts));
  return {count, std::min(count, omp_get_num_procs())};
}

}  // namespace intact::kernels
