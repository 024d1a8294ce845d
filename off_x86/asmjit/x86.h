// The names of asmjit that headers mention. Nothing generates code off x86, so none of them does anything.
#ifndef INTACT_OFF_X86_ASMJIT_X86_H_
#define INTACT_OFF_X86_ASMJIT_X86_H_

#include <cstdint>

namespace asmjit {

struct Operand_ {};

namespace x86 {

class Assembler;
struct Register : Operand_ {
  uint32_t id() const { return 0; }
};
struct Vec : Register {};
struct Gp : Register {};
struct Tmm : Register {};
struct Mem : Operand_ {};
inline constexpr Gp rdi;
inline Mem ptr(const Gp& /*base*/, int /*offset*/) { return {}; }

}  // namespace x86
}  // namespace asmjit
#endif  // INTACT_OFF_X86_ASMJIT_X86_H_
