// Requests to valgrind's memcheck. If the process does not run under memcheck, a request is six instructions
// without effect.
//
// Memcheck tracks each bit in generated code too. Exception: VPMADDWD. If any source of eight bytes of its
// result is undefined, all eight bytes are undefined. A scratch lane that stands for no row is never written,
// and its sum is never read. So this lane would make the adjacent row undefined.
#ifndef INTACT_KERNELS_RUNTIME_VALGRIND_H_
#define INTACT_KERNELS_RUNTIME_VALGRIND_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace intact::kernels {

/// Makes memcheck treat [data, data + bytes) as defined. Bytes that are not addressable stay so.
inline void DefineForValgrind(const void* data, size_t bytes) noexcept {
  constexpr uint64_t kMakeDefinedIfAddressable = 0x4d43000b;  // 'M' 'C' 11
  const std::array<uint64_t, 6> request = {kMakeDefinedIfAddressable, reinterpret_cast<uintptr_t>(data),
                                           bytes};
  uint64_t answer = 0;
  // The mark of a request: rotations by 128 bits in total, and an exchange of a register with itself.
  asm volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
               : "+d"(answer)
               : "a"(request.data())
               : "cc", "memory");
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_VALGRIND_H_
