// How much memory a piece of work takes: operator new and delete are counted where this is linked.
#ifndef INTACT_FUZZ_PEAK_MEMORY_H_
#define INTACT_FUZZ_PEAK_MEMORY_H_

#include <cstdint>

namespace intact::fuzz {

/// Counts from its making. One at a time, of one thread's work.
class PeakMemory {
 public:
  PeakMemory() noexcept;
  /// The most bytes that were allocated at any time since, beside those that were before.
  int64_t Bytes() const noexcept;

 private:
  int64_t before_;
};

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_PEAK_MEMORY_H_
