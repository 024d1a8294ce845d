#include "jit/isa.h"

#include <asmjit/core.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "jit/code_memory.h"

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

const Result<core::IsaSet>& EnvironmentCap() {
  static const Result<core::IsaSet> kCap = []() -> Result<core::IsaSet> {
    const char* value = std::getenv("INTACT_MAX_ISA");
    if (value == nullptr || *value == '\0') {
      core::IsaSet all;
      for (const core::Isa isa : core::kAllIsas) all.Add(isa);
      return all;
    }
    const Result<core::Isa> isa = core::ParseIsa(value);
    if (!isa) return Error{isa.error().status, "INTACT_MAX_ISA: " + isa.error().message};
    return core::CappedAt(*isa);
  }();
  return kCap;
}

constexpr core::IsaSet kCompiledIsas = [] {
  core::IsaSet compiled;
  for (const core::Isa isa : core::kAllIsas) {
    if (core::IsCompiled(isa)) compiled.Add(isa);
  }
  return compiled;
}();

std::atomic<unsigned> emulated_isas{0};

bool IsEmulated(core::Isa isa) {
  return (emulated_isas.load(std::memory_order_relaxed) & (1u << static_cast<unsigned>(isa))) != 0;
}

core::IsaSet EmulatedIsas() {
  core::IsaSet set;
  for (const core::Isa isa : core::kAllIsas) {
    if (IsEmulated(isa)) set.Add(isa);
  }
  return set;
}

// Why the operating system refuses tiles; "" if it permits them, or if `isa` does not use the CPU's tiles.
std::string WhyTilesAreRefused(core::Isa isa) {
  return !core::TraitsOf(isa).has_tiles || IsEmulated(isa) ? std::string() : WhyTileDataIsRefused();
}

}  // namespace

core::IsaSet HardwareIsas() {
  static const core::IsaSet kHardware = [] {
    core::IsaSet set;
    for (const core::Isa isa : core::kAllIsas) {
      if (MissingInHardware(isa).empty()) set.Add(isa);
    }
    return set;
  }();
  return kHardware;
}

std::string CpuKind::ToString() const {
  return vendor + " family " + std::to_string(family) + " model " + std::to_string(model);
}

CpuKind HostCpu() {
  const asmjit::CpuInfo& host = asmjit::CpuInfo::host();
  return {host.vendor(), host.familyId(), host.modelId()};
}

Result<core::IsaSet> PermittedIsas(std::optional<core::Isa> cap) {
  const Result<core::IsaSet>& of_environment = EnvironmentCap();
  if (!of_environment) return of_environment;
  core::IsaSet capped = (HardwareIsas() | EmulatedIsas()) & *of_environment;
  if (cap) capped = capped & core::CappedAt(*cap);
  const core::IsaSet compiled = capped & kCompiledIsas;
  if (capped == compiled || !CodeSpace::WhyRefused().empty()) return compiled;
  core::IsaSet permitted;
  for (const core::Isa isa : core::kAllIsas) {
    if (capped.Has(isa) && WhyTilesAreRefused(isa).empty()) permitted.Add(isa);
  }
  return permitted;
}

std::string WhyNotPermitted(core::Isa isa) {
  if (!HardwareIsas().Has(isa) && !IsEmulated(isa)) return MissingInHardware(isa);
  const Result<core::IsaSet>& cap = EnvironmentCap();
  if (!cap) return cap.error().message;
  if (!cap->Has(isa)) return std::string("removed by INTACT_MAX_ISA=") + std::getenv("INTACT_MAX_ISA");
  if (core::IsCompiled(isa)) return {};
  std::string why = CodeSpace::WhyRefused();
  return why.empty() ? WhyTilesAreRefused(isa) : why;
}

void AddEmulatedIsa(core::Isa isa) {
  emulated_isas.fetch_or(1u << static_cast<unsigned>(isa), std::memory_order_relaxed);
}

}  // namespace intact::jit
