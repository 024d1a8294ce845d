// AMX's instructions, on the tiles of the thread.
#ifndef INTACT_EMULATOR_TILE_OPERATIONS_H_
#define INTACT_EMULATOR_TILE_OPERATIONS_H_

#include "emulator/instruction.h"

namespace intact::emulator {

/// Sets the function that executes `instruction`; false if the instruction is not one of these.
bool FindTileOperation(Instruction* instruction);

/// Whether the calling thread's tiles are configured.
bool AreTilesConfigured();

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_TILE_OPERATIONS_H_
