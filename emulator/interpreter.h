// Executes instructions one after the other in software, on a State.
//
// Instructions are decoded in blocks, up to a branch. Each thread keeps its blocks, by address. Code may be
// replaced between calls. So before a call executes a block for the first time, it compares the block with
// the bytes in memory.
#ifndef INTACT_EMULATOR_INTERPRETER_H_
#define INTACT_EMULATOR_INTERPRETER_H_

#include <cstdint>
#include <string>

#include "emulator/state.h"

namespace intact::emulator {

/// Executes instructions from state->rip on, until the function returns to its caller or an unknown
/// instruction follows. Then state->rip is the address of the next instruction. An instruction that the CPU
/// would refuse only sets state->fault.
void Interpret(State* state);

/// The bytes of the instruction at `address`, or its first bytes if its length is not known: "62 f1 7c 48".
std::string BytesAt(uint64_t address);

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_INTERPRETER_H_
