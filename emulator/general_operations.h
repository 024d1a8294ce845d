// Instructions of general registers, 32 and 64 bits wide, as they occur between vector instructions: moves,
// LEA, arithmetic and logic, shifts by a constant, PUSH and POP, jumps, RET, prefetches and NOPs.
//
// The signal frame lies below RSP and the red zone of 128 bytes: PUSH has room there, and is left to the CPU
// beyond it, and so is what else changes RSP.
#ifndef INTACT_EMULATOR_GENERAL_OPERATIONS_H_
#define INTACT_EMULATOR_GENERAL_OPERATIONS_H_

#include "emulator/instruction.h"

namespace intact::emulator {

/// Sets what carries out `instruction`; false if it is none of these.
bool FindGeneralOperation(Instruction* instruction);

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_GENERAL_OPERATIONS_H_
