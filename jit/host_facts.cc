// The facts of the machine that this process runs on.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "jit/detection.h"
#include "jit/topology.h"

namespace intact::jit {
namespace {

// Never deleted through its base. NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor)
class Host final : public MachineFacts {
 public:
  CpuidRegisters Cpuid(uint32_t leaf, uint32_t subleaf) const noexcept override {
    return HostCpuid(leaf, subleaf);
  }

  std::string_view ReadFile(const char* name, std::span<char> buffer) const noexcept override {
    std::array<char, 128> path = {};
    const int length = std::snprintf(path.data(), path.size(), "/sys/devices/system/cpu/%s", name);
    if (length < 0 || static_cast<size_t>(length) >= path.size()) return {};
    const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    const ssize_t bytes = read(file, buffer.data(), buffer.size());
    close(file);
    if (bytes <= 0 || static_cast<size_t>(bytes) == buffer.size()) return {};
    return {buffer.data(), static_cast<size_t>(bytes)};
  }

  int64_t Sysconf(int name) const noexcept override { return sysconf(name); }

  std::vector<int> UsableCpus() const override {
    // The kernel refuses a set that is smaller than its own.
    constexpr size_t kMostCpus = 1 << 16;
    std::vector<cpu_set_t> sets(1);
    while (sched_getaffinity(0, sets.size() * sizeof(cpu_set_t), sets.data()) != 0) {
      if (sets.size() * CPU_SETSIZE >= kMostCpus) return {};
      sets.resize(2 * sets.size());
    }
    std::vector<int> cpus;
    const size_t bytes = sets.size() * sizeof(cpu_set_t);
    for (size_t cpu = 0; cpu < sets.size() * CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, sets.data())) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
  }
};

}  // namespace

const MachineFacts& HostFacts() noexcept {
  static const Host kHost;
  return kHost;
}

}  // namespace intact::jit
