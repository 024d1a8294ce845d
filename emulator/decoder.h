// Decodes instructions of 64-bit mode:
//
//   legacy  [66 F2 F3 2E] | [0100WRXB] | [0F [38 3A]] opcode
//   VEX     C5 | ~R ~vvvv L pp                                       | opcode
//   VEX     C4 | ~R ~X ~B mmmmm   | W ~vvvv L pp                     | opcode
//   EVEX    62 | ~R ~X ~B ~R' 0mmm | W ~vvvv 1 pp | z L'L b ~V' aaa  | opcode
//
// each followed by [mod reg rm] [scale index base] [disp8 or disp32] [immediate]. The decoder knows which of
// these fields follow an opcode, for the instructions in the tables of operations and for related
// instructions.
#ifndef INTACT_EMULATOR_DECODER_H_
#define INTACT_EMULATOR_DECODER_H_

#include <cstdint>
#include <optional>

#include "emulator/instruction.h"

namespace intact::emulator {

/// The instruction at `code`, not yet looked up in the tables of operations. nullopt if the instruction has
/// another encoding. Reads no byte beyond the instruction.
std::optional<Instruction> Decode(const uint8_t* code);

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_DECODER_H_
