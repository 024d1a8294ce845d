#include "support/machine.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "core/isas.h"
#include "jit/detection.h"
#include "jit/isa.h"
#include "jit/topology.h"
#include "kernels/engines/cost_table.h"

namespace intact::support {
namespace {

// The value of the first line "microcode : …" of /proc/cpuinfo; "" if there is none.
std::string Microcode() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t value = line.find(": ");
    if (line.starts_with("microcode") && value != std::string::npos) return line.substr(value + 2);
  }
  return {};
}

}  // namespace

Machine DescribeMachine() {
  Machine machine;
  const jit::Topology topology = jit::DetectTopology(jit::HostFacts());
  if (!topology.brand.empty()) machine.cpu = topology.brand;
  const jit::CpuKind kind = jit::HostCpu();
  machine.family = static_cast<int>(kind.family);
  machine.model = static_cast<int>(kind.model);
  machine.stepping = static_cast<int>(jit::HostCpuid(1, 0).eax & 0xf);
  machine.microcode = Microcode();
  machine.cores = topology.usable_cores;
  machine.threads = topology.usable_cpus;
  machine.online_threads = topology.online_cpus;
  machine.threads_per_core = topology.threads_per_core;
  machine.l1d_bytes = topology.l1d.bytes;
  machine.l2_bytes = topology.l2.bytes;
  machine.l3_bytes = topology.l3.bytes;
  machine.l1d_threads = topology.l1d.shared_by;
  machine.l2_threads = topology.l2.shared_by;
  machine.l3_threads = topology.l3.shared_by;
  const kernels::CpuCosts& costs = kernels::CostsFor(kind, jit::HardwareIsas());
  machine.costs = costs.IsOf(kind) ? std::string(costs.name) + ", measured on this CPU"
                                   : std::string(costs.name) + ", the nearest to this CPU";
  return machine;
}

int UsableThreads() {
  return static_cast<int>(std::max<int64_t>(jit::DetectUsableCpus(jit::HostFacts()), 1));
}

std::string WhyNotAvailable(intact_isa isa) {
  const std::string missing = jit::WhyNotPermitted(static_cast<core::Isa>(isa));
  return missing.empty() ? "this version has no kernels for it" : missing;
}

std::vector<IsaStatus> DescribeIsas() {
  std::vector<IsaStatus> ladder;
  for (const intact_isa isa : core::kIsaLadder) {
    IsaStatus status;
    status.isa = isa;
    status.available = intact_isa_available(isa) != 0;
    if (!status.available) status.reason = WhyNotAvailable(isa);
    ladder.push_back(status);
  }
  return ladder;
}

}  // namespace intact::support
