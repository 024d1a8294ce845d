// What valgrind's memcheck is told, where a process runs under it. Elsewhere it is six instructions that do
// nothing.
//
// Memcheck follows each bit of generated code too, but VPMADDWD only as a whole: of each eight bytes of its
// result all are undefined if one of their sources is. A lane of scratch that stands for no row, is never
// written and whose sum nobody reads would so taint the row beside it.
#ifndef INTACT_KERNELS_RUNTIME_VALGRIND_H_
#define INTACT_KERNELS_RUNTIME_VALGRIND_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace intact::kernels {

/// Has memcheck take what is in [data, data + bytes) for defined. What is not addressable stays so.
inline void DefineForValgrind(const void* data, size_t bytes) noexcept {
  constexpr uint64_t kMakeDefinedIfAddressable = 0x4d43000b;  // 'M' 'C' 11
  const std::array<uint64_t, 6> request = {kMakeDefinedIfAddressable, reinterpret_cast<uintptr_t>(data),
                                           bytes};
  uint64_t answer = 0;
  // A request is marked by rotations of 128 bits in all and an exchange of a register with itself.
  asm volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
               : "+d"(answer)
               : "a"(request.data())
               : "cc", "memory");
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_VALGRIND_H_
