// Instructions of vector registers: VEX-encoded, and EVEX-encoded with opmasks, broadcast operands and
// compressed displacements. A table gives the operands and the computation of each.
//
//   vvvv ────────────────┐
//   rm, or memory ───────┼──► compute 64 bytes ──► keep the instruction's bytes, by the mask ──► destination
//   destination, before ─┘                         and zero the bytes above
#ifndef INTACT_EMULATOR_VECTOR_OPERATIONS_H_
#define INTACT_EMULATOR_VECTOR_OPERATIONS_H_

#include "emulator/instruction.h"

namespace intact::emulator {

/// Sets the function that executes `instruction`, and scales a compressed displacement; false if the
/// instruction is not one of these.
bool FindVectorOperation(Instruction* instruction);

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_VECTOR_OPERATIONS_H_
