#include "jit/detection.h"

#include <string>

namespace intact::jit {

std::string MissingInHardware(core::Isa isa) {
  return core::IsCompiled(isa) ? "" : "this build of intact is not for x86-64";
}

std::string WhyTileDataIsRefused() { return MissingInHardware(core::Isa::kAmxInt8); }

CpuIdentity IdentifyCpu() { return {"unknown", 0, 0}; }

CpuidRegisters HostCpuid(uint32_t /*leaf*/, uint32_t /*subleaf*/) noexcept { return {}; }

}  // namespace intact::jit
