#include "jit/fork_generation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace intact::jit {
namespace {

using Counter = std::atomic<uint64_t>;

// A number that is 0 in each new process; null if the kernel is older than 4.14.
Counter* MakeWipedOnFork() {
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, bytes, MADV_WIPEONFORK) == 0) return new (page) Counter(0);
  munmap(page, bytes);
  return nullptr;
}

}  // namespace

uint64_t ForkGeneration() noexcept {
  static Counter* const kWiped = MakeWipedOnFork();
  static Counter last = 0;  // a child inherits it from its parent
  if (kWiped == nullptr) return static_cast<uint64_t>(getpid());
  uint64_t generation = kWiped->load();
  if (generation != 0) return generation;
  const uint64_t next = ++last;
  return kWiped->compare_exchange_strong(generation, next) ? next : generation;
}

}  // namespace intact::jit
