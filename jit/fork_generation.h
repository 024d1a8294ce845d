// A number that differs between a process and its forked children, to mark data that belongs to one process
// only.
#ifndef INTACT_JIT_FORK_GENERATION_H_
#define INTACT_JIT_FORK_GENERATION_H_

#include <cstdint>

namespace intact::jit {

/// Not 0. The child of a fork gets another number than its parent and its parent's ancestors, no matter how
/// it was made (even by clone() without the C library) and which process ID it has. Thread-safe.
uint64_t ForkGeneration() noexcept;

}  // namespace intact::jit
#endif  // INTACT_JIT_FORK_GENERATION_H_
