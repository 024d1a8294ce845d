// Instructions of AVX-512's opmasks: moves from and to memory and general registers, and logic between masks.
#ifndef INTACT_EMULATOR_MASK_OPERATIONS_H_
#define INTACT_EMULATOR_MASK_OPERATIONS_H_

#include "emulator/instruction.h"

namespace intact::emulator {

/// Sets the function that executes `instruction`; false if the instruction is not one of these.
bool FindMaskOperation(Instruction* instruction);

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_MASK_OPERATIONS_H_
