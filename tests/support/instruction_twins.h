// Instructions that have a VEX and an EVEX encoding, for tests of both.
#ifndef INTACT_TESTS_SUPPORT_INSTRUCTION_TWINS_H_
#define INTACT_TESTS_SUPPORT_INSTRUCTION_TWINS_H_

#include <asmjit/x86.h>

#include <cstddef>
#include <cstdint>

#include "tests/support/emulated_machine.h"

namespace intact::tests {

/// The operands of an instruction, except its destination.
enum class Sources : uint8_t { kTwo, kOne, kTwoAndImmediate, kOneAndImmediate };

/// An instruction with both encodings. EVEX extends it to 512 bits: each further 128 or 256 bits are computed
/// alike.
struct Twin {
  const char* name;
  asmjit::InstId vex, evex;
  size_t element;    // bytes that a mask bit covers; 0: no masking
  size_t broadcast;  // 0: no broadcast
  Sources sources = Sources::kTwo;
};

inline void EmitTwin(x86::Assembler& as, const Twin& twin, bool is_vex, const x86::Vec& to,
                     const x86::Vec& first, const asmjit::Operand_& second, int immediate) {
  const asmjit::InstId id = is_vex ? twin.vex : twin.evex;
  if (is_vex) as.vex();
  switch (twin.sources) {
    case Sources::kTwo:
      as.emit(id, to, first, second);
      break;
    case Sources::kOne:
      as.emit(id, to, second);
      break;
    case Sources::kTwoAndImmediate:
      as.emit(id, to, first, second, immediate);
      break;
    case Sources::kOneAndImmediate:
      as.emit(id, to, second, immediate);
      break;
  }
}

#define INTACT_SAME(name) #name, x86::Inst::kIdV##name, x86::Inst::kIdV##name
#define INTACT_D(name) #name, x86::Inst::kIdV##name, x86::Inst::kIdV##name##d

inline const Twin kTwins[] = {
    {INTACT_SAME(paddb), 1, 0},
    {INTACT_SAME(paddw), 2, 0},
    {INTACT_SAME(paddd), 4, 4},
    {INTACT_SAME(paddq), 8, 8},
    {INTACT_SAME(paddsb), 1, 0},
    {INTACT_SAME(paddsw), 2, 0},
    {INTACT_SAME(paddusb), 1, 0},
    {INTACT_SAME(paddusw), 2, 0},
    {INTACT_SAME(psubb), 1, 0},
    {INTACT_SAME(psubw), 2, 0},
    {INTACT_SAME(psubd), 4, 4},
    {INTACT_SAME(psubq), 8, 8},
    {INTACT_SAME(psubsb), 1, 0},
    {INTACT_SAME(psubsw), 2, 0},
    {INTACT_SAME(psubusb), 1, 0},
    {INTACT_SAME(psubusw), 2, 0},
    {INTACT_SAME(pmullw), 2, 0},
    {INTACT_SAME(pmulhw), 2, 0},
    {INTACT_SAME(pmulhuw), 2, 0},
    {INTACT_SAME(pmulld), 4, 4},
    {INTACT_SAME(pmuludq), 8, 8},
    {INTACT_SAME(pmuldq), 8, 8},
    {INTACT_SAME(pmaddwd), 4, 0},
    {INTACT_SAME(pmaddubsw), 2, 0},
    {INTACT_SAME(psadbw), 0, 0},
    {INTACT_SAME(pavgb), 1, 0},
    {INTACT_SAME(pavgw), 2, 0},
    {INTACT_SAME(pminub), 1, 0},
    {INTACT_SAME(pmaxub), 1, 0},
    {INTACT_SAME(pminsw), 2, 0},
    {INTACT_SAME(pmaxsw), 2, 0},
    {INTACT_SAME(pminsb), 1, 0},
    {INTACT_SAME(pmaxsb), 1, 0},
    {INTACT_SAME(pminsd), 4, 4},
    {INTACT_SAME(pmaxsd), 4, 4},
    {INTACT_SAME(pminuw), 2, 0},
    {INTACT_SAME(pmaxuw), 2, 0},
    {INTACT_SAME(pminud), 4, 4},
    {INTACT_SAME(pmaxud), 4, 4},
    {INTACT_D(pand), 4, 4},
    {INTACT_D(pandn), 4, 4},
    {INTACT_D(por), 4, 4},
    {INTACT_D(pxor), 4, 4},
    {INTACT_SAME(psrlvd), 4, 4},
    {INTACT_SAME(psravd), 4, 4},
    {INTACT_SAME(psllvd), 4, 4},
    {INTACT_SAME(packsswb), 1, 0},
    {INTACT_SAME(packuswb), 1, 0},
    {INTACT_SAME(packssdw), 2, 4},
    {INTACT_SAME(packusdw), 2, 4},
    {INTACT_SAME(punpcklbw), 1, 0},
    {INTACT_SAME(punpckhbw), 1, 0},
    {INTACT_SAME(punpcklwd), 2, 0},
    {INTACT_SAME(punpckhwd), 2, 0},
    {INTACT_SAME(punpckldq), 4, 4},
    {INTACT_SAME(punpckhdq), 4, 4},
    {INTACT_SAME(punpcklqdq), 8, 8},
    {INTACT_SAME(punpckhqdq), 8, 8},
    {INTACT_SAME(pshufb), 1, 0},
    {INTACT_SAME(addps), 4, 4},
    {INTACT_SAME(mulps), 4, 4},
    {INTACT_SAME(subps), 4, 4},
    {INTACT_SAME(minps), 4, 4},
    {INTACT_SAME(divps), 4, 4},
    {INTACT_SAME(fmadd213ps), 4, 4},
    {INTACT_SAME(fmadd231ps), 4, 4},
    {INTACT_SAME(maxps), 4, 4},
    {INTACT_SAME(pabsb), 1, 0, Sources::kOne},
    {INTACT_SAME(pabsw), 2, 0, Sources::kOne},
    {INTACT_SAME(pabsd), 4, 4, Sources::kOne},
    {INTACT_SAME(cvtdq2ps), 4, 4, Sources::kOne},
    {INTACT_SAME(cvtps2dq), 4, 4, Sources::kOne},
    {INTACT_SAME(cvttps2dq), 4, 4, Sources::kOne},
    {INTACT_SAME(pshufd), 4, 4, Sources::kOneAndImmediate},
    {INTACT_SAME(palignr), 1, 0, Sources::kTwoAndImmediate},
};

/// In VEX encoding, shifts by an immediate have no memory operand.
inline const Twin kShifts[] = {
    {INTACT_SAME(psrlw), 2, 0, Sources::kOneAndImmediate},
    {INTACT_SAME(psraw), 2, 0, Sources::kOneAndImmediate},
    {INTACT_SAME(psllw), 2, 0, Sources::kOneAndImmediate},
    {INTACT_SAME(psrld), 4, 4, Sources::kOneAndImmediate},
    {INTACT_SAME(psrad), 4, 4, Sources::kOneAndImmediate},
    {INTACT_SAME(pslld), 4, 4, Sources::kOneAndImmediate},
    {INTACT_SAME(psrlq), 8, 8, Sources::kOneAndImmediate},
    {INTACT_SAME(psllq), 8, 8, Sources::kOneAndImmediate},
};

inline constexpr int kImmediates[] = {0, 1, 4, 8, 15, 16, 27, 31, 40, 0xb1, 255};

#undef INTACT_SAME
#undef INTACT_D

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_INSTRUCTION_TWINS_H_
