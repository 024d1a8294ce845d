// What CPUID, XCR0 and the operating system say about this CPU: the base of jit/isa.h and jit/topology.h.
//
// No other code detects ISAs, and none asks CPUID. Builds without x86 (docs/architecture.md) have off_x86/jit/detection.cc.
#ifndef INTACT_JIT_DETECTION_H_
#define INTACT_JIT_DETECTION_H_

#include <cstdint>
#include <string>

#include "core/isas.h"
#include "jit/topology.h"

namespace intact::jit {

/// The CPU's vendor as asmjit spells it, family and model; from CPUID, with the extended fields.
struct CpuIdentity {
  std::string vendor;
  uint32_t family = 0, model = 0;
};
CpuIdentity IdentifyCpu();

/// The first thing that is missing for `isa` in CPU or operating system; "" if nothing is missing.
std::string MissingInHardware(core::Isa isa);

/// Requests AMX tile data, once for the whole process. Returns why the request is refused, or "".
std::string WhyTileDataIsRefused();

/// Zeros on a CPU without CPUID.
CpuidRegisters HostCpuid(uint32_t leaf, uint32_t subleaf) noexcept;

}  // namespace intact::jit
#endif  // INTACT_JIT_DETECTION_H_
