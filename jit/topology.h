// Detects the machine's caches and logical CPUs. The library chooses block sizes by the detected caches, and
// the programs print the topology. No other code detects them.
//
// Hypervisors may hide some of what the hardware reports. So each cache level is looked up by itself, and the
// first source that reports a plausible size wins:
//
//   1. CPUID leaf 4                      cache parameters, as Intel's CPUs report them
//   2. CPUID leaf 8000001D               cache parameters, as AMD's CPUs report them
//   3. CPUID leaves 80000005, 80000006   only sizes; of AMD's CPUs, even if leaf 8000001D is hidden
//   4. the operating system              cpu0/cache in /sys/devices/system/cpu, then sysconf()
//
// A size that no source reports stays unknown. Detection reads raw facts through an interface, so that tests
// can replay the facts of other machines.
#ifndef INTACT_JIT_TOPOLOGY_H_
#define INTACT_JIT_TOPOLOGY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace intact::jit {

/// What CPUID returns for one leaf and subleaf.
struct CpuidRegisters {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// The raw facts about a machine. None of them is trusted: detection checks what it reads.
class MachineFacts {
 public:
  virtual CpuidRegisters Cpuid(uint32_t leaf, uint32_t subleaf) const noexcept = 0;
  /// Reads the file `name` in /sys/devices/system/cpu into `buffer`. Returns the text read, or "" if the file
  /// cannot be read or does not fit. Allocates nothing.
  virtual std::string_view ReadFile(const char* name, std::span<char> buffer) const noexcept = 0;
  /// sysconf(name).
  virtual int64_t Sysconf(int name) const noexcept = 0;
  /// The numbers of the logical CPUs that the calling thread may run on; empty if unknown.
  virtual std::vector<int> UsableCpus() const = 0;

 protected:
  ~MachineFacts() = default;
};

/// The machine that this process runs on.
const MachineFacts& HostFacts() noexcept;

enum class CacheLevel : uint8_t { kL1d = 1, kL2, kL3 };

/// The size of one cache of `level`; 0 if unknown. Asks the operating system only if CPUID does not report
/// the size. Allocates nothing.
int64_t DetectCacheBytes(const MachineFacts& facts, CacheLevel level) noexcept;

/// The number of logical CPUs that are online; 0 if unknown. Allocates nothing.
int64_t DetectOnlineCpus(const MachineFacts& facts) noexcept;

/// The number of logical CPUs that the calling thread may run on. If this number is unknown: the number of
/// online CPUs.
int64_t DetectUsableCpus(const MachineFacts& facts);

struct Cache {
  int64_t bytes = 0;      // 0: unknown
  int64_t shared_by = 0;  // logical CPUs that share this cache; 0: unknown
};

/// Everything that is printed about a machine. Unknown numbers are 0.
struct Topology {
  std::string brand;  // "AMD EPYC 7763 64-Core Processor"; "" if unknown
  Cache l1d, l2, l3;
  int64_t online_cpus = 0;       // logical CPUs that are online
  int64_t usable_cpus = 0;       // logical CPUs that the calling thread may run on
  int64_t usable_cores = 0;      // cores that the usable logical CPUs belong to
  int64_t threads_per_core = 0;  // logical CPUs of a core; the maximum if cores differ
};

/// Detects everything. If the machine has cores of several kinds, their caches may differ. CPUID then
/// describes the core that this thread runs on. The operating system's files describe CPU 0.
Topology DetectTopology(const MachineFacts& facts);

}  // namespace intact::jit
#endif  // INTACT_JIT_TOPOLOGY_H_
