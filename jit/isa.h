// The only detection of ISAs (core/isas.h): CPUID, XCR0, the operating system's permission for AMX tile data,
// and INTACT_MAX_ISA. INTACT_MAX_ISA only removes ISAs. All other code asks this header.
//
// Portable plans run only compiled code. All other plans need executable memory.
#ifndef INTACT_JIT_ISA_H_
#define INTACT_JIT_ISA_H_

#include <cstdint>
#include <optional>
#include <string>

#include "core/isas.h"
#include "core/result.h"

namespace intact::jit {

/// The ISAs that CPU and operating system offer, before any cap. Compiled code may use these only: the
/// emulator knows the instructions of generated code.
core::IsaSet HardwareIsas();

/// The kind of CPU, to distinguish measurements of speed; from CPUID, with the extended fields.
struct CpuKind {
  std::string vendor;  // "AMD", "INTEL"; others as in CPUID
  uint32_t family = 0, model = 0;
  std::string ToString() const;  // "AMD family 25 model 1"
};
CpuKind HostCpu();

/// HardwareIsas() and emulated ISAs under `cap`, if given, and under INTACT_MAX_ISA (read once). Error if the
/// variable names no ISA. Only portable if the process may have no executable memory. If the caps keep AMX,
/// the first call requests the operating system's permission for AMX.
Result<core::IsaSet> PermittedIsas(std::optional<core::Isa> cap = std::nullopt);

/// The reason why `isa` is not permitted; "" if it is.
std::string WhyNotPermitted(core::Isa isa);

/// Called by the emulator of an ISA in a signal handler (emulator/emulator.h), so that plans may choose the
/// ISA.
void AddEmulatedIsa(core::Isa isa);

}  // namespace intact::jit
#endif  // INTACT_JIT_ISA_H_
