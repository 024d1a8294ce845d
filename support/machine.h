// Describes this machine, for `intact info` and for the report.
#ifndef INTACT_SUPPORT_MACHINE_H_
#define INTACT_SUPPORT_MACHINE_H_

#include <intact/intact.h>

#include <cstdint>
#include <string>
#include <vector>

namespace intact::support {

/// The CPU, its cores and caches.
struct Machine {
  std::string cpu = "unknown";
  int family = 0, model = 0;  // as CPUID reports them, the extended fields included
  int stepping = 0;
  std::string microcode;  // as the system reports it, such as "0x2b000571"; "" if it does not
  // Counts and sizes are 0 if they are unknown.
  int64_t cores = 0;                                        // cores that this process may use
  int64_t threads = 0;                                      // logical CPUs that this process may use
  int64_t online_threads = 0;                               // logical CPUs of the machine
  int64_t threads_per_core = 0;                             // the maximum, if cores differ
  int64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;        // size of one cache
  int64_t l1d_threads = 0, l2_threads = 0, l3_threads = 0;  // logical CPUs that share one cache
  std::string costs;  // which table the cost models use (kernels/engines/cost_table.h)
};

/// Whether an ISA can be used here.
struct IsaStatus {
  intact_isa isa = INTACT_ISA_ANY;
  bool available = false;
  std::string reason;  // why the ISA is not available; "" if it is
};

/// CPU name, cores and caches, as jit/topology.h detects them.
Machine DescribeMachine();

/// The number of logical CPUs that this process may run on, at least 1.
int UsableThreads();

/// All ISAs, weakest first.
std::vector<IsaStatus> DescribeIsas();

/// Why plans cannot run on `isa` here. Call it only if intact_isa_available() is false.
std::string WhyNotAvailable(intact_isa isa);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_MACHINE_H_
