// A number that changes in a forked child, to mark data that belongs to one process only.
#ifndef INTACT_JIT_FORK_GENERATION_H_
#define INTACT_JIT_FORK_GENERATION_H_

#include <cstdint>

namespace intact::jit {

/// Not 0. After a fork, the child's number differs from every number that its ancestors returned before. This
/// holds for every way to make a child (even clone() without the C library), and for every process ID.
/// Thread-safe.
uint64_t ForkGeneration() noexcept;

}  // namespace intact::jit
#endif  // INTACT_JIT_FORK_GENERATION_H_
