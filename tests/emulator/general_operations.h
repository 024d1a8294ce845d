// Instructions of general registers, 32 and 64 bits wide, as they occur between vector instructions: moves,
// LEA, arithmetic and logic, shifts by a constant, POP, jumps, RET, prefetches and NOPs.
//
// The signal frame lies below RSP: what would lower RSP (PUSH, SUB RSP) is not among them, and is left to the
// CPU.
#ifndef INTACT_TESTS_EMULATOR_GENERAL_OPERATIONS_H_
#define INTACT_TESTS_EMULATOR_GENERAL_OPERATIONS_H_

#include "tests/emulator/instruction.h"

namespace intact::emulator {

/// Sets what carries out `instruction`; false if it is none of these.
bool FindGeneralOperation(Instruction* instruction);

}  // namespace intact::emulator
#endif  // INTACT_TESTS_EMULATOR_GENERAL_OPERATIONS_H_
