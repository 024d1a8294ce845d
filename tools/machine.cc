#include "tools/machine.h"

#include <cpuinfo.h>

#include "jit/isa.h"
#include "verify/audit.h"

namespace intact::tools {

verify::Machine DescribeMachine() {
  verify::Machine machine;
  if (!cpuinfo_initialize()) return machine;
  const auto size_of = [](const cpuinfo_cache* cache) { return cache == nullptr ? 0 : int64_t{cache->size}; };
  machine.cpu = cpuinfo_get_package(0)->name;
  const jit::CpuKind kind = jit::HostCpu();
  machine.family = static_cast<int>(kind.family);
  machine.model = static_cast<int>(kind.model);
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
