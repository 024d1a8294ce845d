// Valgrind's requests are sequences of x86 instructions.
#ifndef INTACT_KERNELS_RUNTIME_VALGRIND_H_
#define INTACT_KERNELS_RUNTIME_VALGRIND_H_

#include <cstddef>

namespace intact::kernels {

inline void DefineForValgrind(const void* /*data*/, size_t /*bytes*/) noexcept {}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_VALGRIND_H_
