#include "jit/detection.h"

#include <asmjit/core.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace intact::jit {
namespace {

using Features = asmjit::CpuFeatures::X86;

// CPUID leaf 7, subleaf 1: EAX bit 4 is AVX-VNNI, EDX bit 4 AVX-VNNI-INT8. asmjit of 2022 overlooks AVX-VNNI
// on CPUs that have AVX-512 too, and does not know AVX-VNNI-INT8. Their register state is AVX's, which asmjit
// checks with AVX2.
std::string MissingForVnni(bool int8) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvxVnniBit = 1u << 4, kAvxVnniInt8Bit = 1u << 4;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0 || (eax & kAvxVnniBit) == 0) {
    return "the CPU or operating system lacks AVX-VNNI";
  }
  return int8 && (edx & kAvxVnniInt8Bit) == 0 ? "the CPU lacks AVX-VNNI-INT8" : "";
}

// CPUID leaf 7, subleaf 1: EDX bit 19 is AVX10. Leaf 0x24: EBX bits 0 to 7 are its version, bit 18 says that
// it has zmm registers. asmjit checks their state with AVX512F.
std::string MissingForAvx10() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvx10Bit = 1u << 19, kVersion = 0xff, kZmmBit = 1u << 18;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAvx10Bit) == 0) {
    return "the CPU lacks AVX10";
  }
  if (__get_cpuid_count(0x24, 0, &eax, &ebx, &ecx, &edx) == 0 || (ebx & kVersion) < 2) {
    return "the CPU lacks AVX10.2";
  }
  return (ebx & kZmmBit) == 0 ? "the CPU lacks AVX10.2 on zmm registers" : "";
}

uint64_t EnabledState() {  // XCR0
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// CPUID leaf 7, subleaf 0, EDX bits 24 (AMX-TILE) and 25 (AMX-INT8); XCR0 bits 17 and 18. Read here, because
// asmjit of 2022 is not reliable. Needs AVX, and with it XGETBV.
std::string MissingForAmx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kTileBit = 1u << 24, kInt8Bit = 1u << 25;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kTileBit) == 0) {
    return "the CPU lacks AMX-TILE";
  }
  if ((edx & kInt8Bit) == 0) return "the CPU lacks AMX-INT8";
  constexpr uint64_t kTileState = uint64_t{3} << 17;
  if ((EnabledState() & kTileState) != kTileState) {
    return "the operating system does not enable AMX tile state in XCR0";
  }
  return {};
}

}  // namespace

// Linux grants tile data on request, to the whole process and its later threads. Requested once.
std::string WhyTileDataIsRefused() {
  static const std::string kWhy = []() -> std::string {
    constexpr int64_t kArchReqXcompPerm = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr int64_t kXfeatureXtiledata = 18;
    if (syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0) return {};
    return "the kernel refuses AMX tile data (arch_prctl ARCH_REQ_XCOMP_PERM): " +
           std::generic_category().message(errno);
  }();
  return kWhy;
}

// The first thing that is missing for an ISA; "" if nothing is. asmjit's features already account for the
// register state that the operating system enables in XCR0.
std::string MissingInHardware(core::Isa isa) {
  const auto& features = asmjit::CpuInfo::host().features().x86();
  const auto missing =
      [&](std::initializer_list<std::pair<Features::Id, const char*>> needed) -> std::string {
    for (const auto& [id, name] : needed) {
      if (!features.has(id)) return std::string("the CPU or operating system lacks ") + name;
    }
    return {};
  };
  switch (isa) {
    case core::Isa::kPortable:
      return {};
    case core::Isa::kAvx2:
      return missing({{Features::kAVX2, "AVX2"}, {Features::kFMA, "FMA"}, {Features::kF16C, "F16C"}});
    case core::Isa::kAvxVnni:
    case core::Isa::kAvxVnniInt8: {
      const std::string why = MissingInHardware(core::Isa::kAvx2);
      return why.empty() ? MissingForVnni(isa == core::Isa::kAvxVnniInt8) : why;
    }
    case core::Isa::kAvx512:
    case core::Isa::kAvx512Vnni: {
      std::string why = MissingInHardware(core::Isa::kAvx2);
      if (why.empty())
        why = missing({{Features::kAVX512_F, "AVX512F"},
                       {Features::kAVX512_BW, "AVX512BW"},
                       {Features::kAVX512_DQ, "AVX512DQ"},
                       {Features::kAVX512_VL, "AVX512VL"}});
      if (why.empty() && isa == core::Isa::kAvx512Vnni)
        why = missing({{Features::kAVX512_VNNI, "AVX512_VNNI"}});
      return why;
    }
    case core::Isa::kAvx10_2: {
      std::string why = MissingInHardware(core::Isa::kAvx512Vnni);
      return why.empty() ? MissingForAvx10() : why;
    }
    case core::Isa::kAmxInt8: {
      std::string why = MissingInHardware(core::Isa::kAvx512Vnni);
      return why.empty() ? MissingForAmx() : why;
    }
  }
  return "unknown ISA";
}

CpuIdentity IdentifyCpu() {
  const asmjit::CpuInfo& host = asmjit::CpuInfo::host();
  return {host.vendor(), host.familyId(), host.modelId()};
}

CpuidRegisters HostCpuid(uint32_t leaf, uint32_t subleaf) noexcept {
  CpuidRegisters registers;
  __cpuid_count(leaf, subleaf, registers.eax, registers.ebx, registers.ecx, registers.edx);
  return registers;
}

}  // namespace intact::jit
