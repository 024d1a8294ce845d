// A target whose code may have instructions that this CPU lacks: the emulator executes them (emulator/emulator.h).
#ifndef INTACT_VERIFY_TARGETS_EMULATED_TARGET_H_
#define INTACT_VERIFY_TARGETS_EMULATED_TARGET_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "verify/problem/target.h"
#include "verify/targets/isolated_target.h"

namespace intact::verify {

/// Makes the target of `factory` in a Worker. The worker emulates the target's code until the process ends. A
/// fault, such as tiles that are not configured, fails the run. If the emulator lacks an instruction, the run
/// is UNSUPPORTED.
TargetFactory Emulated(TargetFactory factory);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_EMULATED_TARGET_H_
