// Measures peak memory: a program that links this counts its operator new and delete.
#ifndef INTACT_FUZZ_PEAK_MEMORY_H_
#define INTACT_FUZZ_PEAK_MEMORY_H_

#include <cstdint>

namespace intact::fuzz {

/// Counts from construction. Use one at a time, for the work of one thread.
class PeakMemory {
 public:
  PeakMemory() noexcept;
  /// The peak of allocated bytes since construction, minus the bytes allocated before.
  int64_t Bytes() const noexcept;

 private:
  int64_t before_;
};

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_PEAK_MEMORY_H_
