// Instructions of general registers, 32 and 64 bits wide, as they occur between vector instructions: moves,
// LEA, arithmetic and logic, shifts by a constant, PUSH and POP, jumps, RET, prefetches and NOPs.
//
// The signal frame lies below RSP and the red zone of 128 bytes. The emulator executes a PUSH that stays
// in the red zone. It leaves a PUSH beyond the red zone, and all other operations with RSP as their
// destination, to the CPU.
#ifndef INTACT_EMULATOR_GENERAL_OPERATIONS_H_
#define INTACT_EMULATOR_GENERAL_OPERATIONS_H_

#include "emulator/instruction.h"

namespace intact::emulator {

/// Sets the function that executes `instruction`; false if it is left to the CPU or is not in the list above.
bool FindGeneralOperation(Instruction* instruction);

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_GENERAL_OPERATIONS_H_
