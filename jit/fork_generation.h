// Which of the processes, along a line of forks, this is: what belongs to one process alone is marked with
// it.
#ifndef INTACT_JIT_FORK_GENERATION_H_
#define INTACT_JIT_FORK_GENERATION_H_

#include <cstdint>

namespace intact::jit {

/// Not 0; in the child of a fork another number than its parent had or will have before the child forks.
/// However the child was made (clone() without the C library, too), and whatever its process ID is.
/// Thread-safe.
uint64_t ForkGeneration() noexcept;

}  // namespace intact::jit
#endif  // INTACT_JIT_FORK_GENERATION_H_
