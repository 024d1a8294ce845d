// The only detection of ISAs (core/isas.h): CPUID, XCR0, the operating system's permission for AMX tile data,
// and INTACT_MAX_ISA, which only removes. Everything else asks this header.
//
// Portable plans run compiled code alone; all others need the process to have executable memory too.
#ifndef INTACT_JIT_ISA_H_
#define INTACT_JIT_ISA_H_

#include <cstdint>
#include <optional>
#include <string>

#include "core/isas.h"
#include "core/result.h"

namespace intact::jit {

/// What CPU and operating system offer, before any cap. Constant over the process.
core::IsaSet HardwareIsas();

/// The kind of CPU, by which measurements of speed are told apart; as CPUID tells it, the extended fields
/// included.
struct CpuKind {
  std::string vendor;  // "AMD", "INTEL"; others as CPUID has them
  uint32_t family = 0, model = 0;
  bool IsAmd() const { return vendor == "AMD"; }
  std::string ToString() const;  // "AMD family 25 model 1"
};
CpuKind HostCpu();

/// HardwareIsas() under `cap`, if there is one, and under INTACT_MAX_ISA, which is read once. Error if the
/// variable names no ISA. Portable alone where the process may have no executable memory, which is asked each
/// time, unless the caps leave portable alone. For AMX, which needs it, the kernel's permission is asked
/// here, once and for the whole process, unless the caps exclude it.
Result<core::IsaSet> PermittedIsas(std::optional<core::Isa> cap = std::nullopt);

/// Why `isa` is not permitted, in words; "" if it is.
std::string WhyNotPermitted(core::Isa isa);

/// Who emulates an ISA in a signal handler (emulator/emulator.h) adds it here, so that plans may choose it.
void AddEmulatedIsa(core::Isa isa);

}  // namespace intact::jit
#endif  // INTACT_JIT_ISA_H_
