// Carries instructions out one after the other in software, on a State.
//
// They are decoded in blocks, up to a branch, and kept by address for the thread. Code may be replaced by
// other code at its address between calls: a block is compared with the bytes that lie there before a call
// executes it for the first time.
#ifndef INTACT_EMULATOR_INTERPRETER_H_
#define INTACT_EMULATOR_INTERPRETER_H_

#include <cstdint>
#include <string>

#include "emulator/state.h"

namespace intact::emulator {

/// Goes on from state->rip until the function returns to its caller or an instruction is met that is not
/// known here; rip is then what follows. What the CPU would refuse does nothing, and is state->fault.
void Interpret(State* state);

/// The bytes of the instruction at `address`, or the first ones if its length is not known: "62 f1 7c 48".
std::string BytesAt(uint64_t address);

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_INTERPRETER_H_
