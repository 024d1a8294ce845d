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

/// Makes the target of `factory` in a Worker, where its code is emulated for the rest of the process. A fault, such
/// as tiles that are not configured, fails the run. An instruction that the emulator lacks makes it UNSUPPORTED.
TargetFactory Emulated(TargetFactory factory);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_EMULATED_TARGET_H_
