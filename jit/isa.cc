#include "jit/isa.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "jit/code_memory.h"
#include "jit/detection.h"

namespace intact::jit {
namespace {

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
  const CpuIdentity identity = IdentifyCpu();
  return {identity.vendor, identity.family, identity.model};
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
