#include "jit/detection.h"

#include <string>

namespace intact::jit {

std::string MissingInHardware(core::Isa isa) {
  return core::IsCompiled(isa) ? "" : "this build of intact is not for x86-64";
}

std::string WhyTileDataIsRefused() { return MissingInHardware(core::Isa::kAmxInt8); }

std::string CpuKind::ToString() const { return "no x86-64 CPU"; }

CpuKind HostCpu() { return {}; }

CpuidRegisters HostCpuid(uint32_t /*leaf*/, uint32_t /*subleaf*/) noexcept { return {}; }

}  // namespace intact::jit
