#include "tools/machine.h"

#include <cpuinfo.h>

#include "jit/isa.h"
#include "verify/audit.h"

namespace intact::tools {

namespace {

// From CPUID leaf 1, EAX. The extended model counts for families 6 and 15, the extended family for 15.
void SetFamilyAndModel(uint32_t signature, verify::Machine* machine) {
  const auto field = [signature](int lowest_bit, int bits) {
    return static_cast<int>((signature >> lowest_bit) & ((1u << bits) - 1));
  };
  const int family = field(8, 4);
  machine->family = family == 15 ? family + field(20, 8) : family;
  machine->model = field(4, 4) + (family == 6 || family == 15 ? field(16, 4) << 4 : 0);
}

}  // namespace

verify::Machine DescribeMachine() {
  verify::Machine machine;
  if (!cpuinfo_initialize()) return machine;
  const auto size_of = [](const cpuinfo_cache* cache) { return cache == nullptr ? 0 : int64_t{cache->size}; };
  machine.cpu = cpuinfo_get_package(0)->name;
  SetFamilyAndModel(cpuinfo_get_core(0)->cpuid, &machine);
  machine.cores = cpuinfo_get_cores_count();
  machine.threads = cpuinfo_get_processors_count();
  machine.l1d_bytes = size_of(cpuinfo_get_l1d_cache(0));
  machine.l2_bytes = size_of(cpuinfo_get_l2_cache(0));
  machine.l3_bytes = size_of(cpuinfo_get_l3_cache(0));
  return machine;
}

std::string WhyNotAvailable(intact_isa isa) {
  const std::string missing = jit::WhyNotPermitted(static_cast<jit::Isa>(isa));
  return missing.empty() ? "this version has no kernels for it" : missing;
}

std::vector<verify::IsaStatus> DescribeIsas() {
  std::vector<verify::IsaStatus> ladder;
  for (const intact_isa isa : verify::kIsaLadder) {
    verify::IsaStatus status;
    status.isa = isa;
    status.available = intact_isa_available(isa) != 0;
    if (!status.available) status.reason = WhyNotAvailable(isa);
    ladder.push_back(status);
  }
  return ladder;
}

}  // namespace intact::tools
