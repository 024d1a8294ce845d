// Detection of caches and cores from the facts of several machines, recorded or made up, and from malformed
// facts; and their text.
#include "jit/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/runtime/caches.h"
#include "verify/report/report.h"
#include "verify/report/report_terminal.h"

namespace intact::jit {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kKibi = 1 << 10, kMebi = 1 << 20, kGibi = 1 << 30;

using CpuidTable = std::map<std::pair<uint32_t, uint32_t>, CpuidRegisters>;  // by leaf and subleaf

/// A machine made of tables. It counts queries to the operating system.
class Machine : public MachineFacts {
 public:
  Machine() = default;
  explicit Machine(CpuidTable table) : cpuid(std::move(table)) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  virtual ~Machine() = default;

  CpuidRegisters Cpuid(uint32_t leaf, uint32_t subleaf) const noexcept override {
    const auto found = cpuid.find({leaf, subleaf});
    return found == cpuid.end() ? absent : found->second;
  }
  std::string_view ReadFile(const char* name, std::span<char> buffer) const noexcept override {
    ++questions;
    const auto found = files.find(name);
    if (found == files.end() || found->second.size() > buffer.size()) return {};
    std::memcpy(buffer.data(), found->second.data(), found->second.size());
    return {buffer.data(), found->second.size()};
  }
  int64_t Sysconf(int name) const noexcept override {
    ++questions;
    const auto found = sysconf.find(name);
    return found == sysconf.end() ? -1 : found->second;
  }
  std::vector<int> UsableCpus() const override { return usable; }

  void AddCache(int index, int level, const std::string& type, const std::string& size,
                const std::string& shared) {
    const std::string folder = "cpu0/cache/index" + std::to_string(index) + "/";
    files[folder + "level"] = std::to_string(level) + "\n";
    files[folder + "type"] = type + "\n";
    files[folder + "size"] = size + "\n";
    files[folder + "shared_cpu_list"] = shared + "\n";
  }
  /// Adds the logical CPUs `cpus`. Their files describe the core as `siblings`.
  void AddCore(const std::vector<int>& cpus, const std::string& siblings) {
    for (const int cpu : cpus) {
      files["cpu" + std::to_string(cpu) + "/topology/core_cpus_list"] = siblings + "\n";
      usable.push_back(cpu);
      ++sysconf.try_emplace(_SC_NPROCESSORS_ONLN, 0).first->second;
    }
  }

  CpuidTable cpuid;
  CpuidRegisters absent;  // the result of leaves and subleaves that are not in the table
  std::map<std::string, std::string> files;
  std::map<int, int64_t> sysconf;
  std::vector<int> usable;
  mutable int64_t questions = 0;
};

// An Intel Xeon (family 6, model 167 to its guest) under KVM, two logical CPUs.
CpuidTable IntelGuest() {
  return {{{0, 0}, {0x24, 0x756e6547, 0x6c65746e, 0x49656e69}},
          {{4, 0}, {0x04000121, 0x02c0003f, 0x3f, 0}},
          {{4, 1}, {0x04000122, 0x03c0003f, 0x3f, 0}},
          {{4, 2}, {0x04000143, 0x03c0003f, 0x7ff, 0}},
          {{4, 3}, {0x04004163, 0x03c0003f, 0x77fff, 0}},
          {{0xb, 0}, {0, 1, 0x100, 1}},
          {{0xb, 1}, {5, 2, 0x201, 1}},
          {{0x80000000, 0}, {0x80000008, 0, 0, 0}},
          {{0x80000002, 0}, {0x65746e49, 0x2952286c, 0x6f655820, 0x2952286e}},
          {{0x80000003, 0}, {0x6f725020, 0x73736563, 0x0000726f, 0}},
          {{0x80000006, 0}, {0, 0, 0x08007040, 0}}};
}

// The first EPYC as QEMU emulates it: leaf 4 is empty.
CpuidTable EmulatedEpyc() {
  return {{{0, 0}, {0xd, 0x68747541, 0x444d4163, 0x69746e65}},
          {{0x80000000, 0}, {0x8000001e, 0x68747541, 0x444d4163, 0x69746e65}},
          {{0x80000001, 0}, {0x00800f12, 0, 0x75, 0x2dd3fbfd}},
          {{0x80000002, 0}, {0x20444d41, 0x43595045, 0x6f725020, 0x73736563}},
          {{0x80000003, 0}, {0x0000726f, 0, 0, 0}},
          {{0x80000005, 0}, {0x01ff01ff, 0x01ff01ff, 0x20080140, 0x40040140}},
          {{0x80000006, 0}, {0, 0x42004200, 0x02006140, 0x00408140}},
          {{0x8000001d, 0}, {0x121, 0x01c0003f, 0x3f, 1}},
          {{0x8000001d, 1}, {0x122, 0x00c0003f, 0xff, 1}},
          {{0x8000001d, 2}, {0x43, 0x01c0003f, 0x3ff, 0}},
          {{0x8000001d, 3}, {0x163, 0x03c0003f, 0x1fff, 6}}};
}

// QEMU's own CPU (`-cpu qemu64`): it reports sizes only, and its highest extended leaf is below 8000001D.
CpuidTable Qemu64() {
  return {{{0, 0}, {0xd, 0x68747541, 0x444d4163, 0x69746e65}},
          {{0x80000000, 0}, {0x8000000a, 0x68747541, 0x444d4163, 0x69746e65}},
          {{0x80000002, 0}, {0x554d4551, 0x72695620, 0x6c617574, 0x55504320}},
          {{0x80000003, 0}, {0x72657620, 0x6e6f6973, 0x352e3220, 0x0000002b}},
          {{0x80000005, 0}, {0x01ff01ff, 0x01ff01ff, 0x40020140, 0x40020140}},
          {{0x80000006, 0}, {0, 0x42004200, 0x02008140, 0x00808140}}};
}

// A guest on Zen 5 whose hypervisor hides the topology: leaves 4 and 8000001D exist, but are empty. Made up
// from the sizes that such a guest reports.
CpuidTable HiddenZen5() {
  return {{{0, 0}, {0x10, 0x68747541, 0x444d4163, 0x69746e65}},
          {{0x80000000, 0}, {0x80000028, 0x68747541, 0x444d4163, 0x69746e65}},
          {{0x80000005, 0}, {0xff48ff40, 0xff48ff40, 0x300c0140, 0x20080140}},
          {{0x80000006, 0}, {0x5c002200, 0x6c004200, 0x04009140, 0x01009140}}};
}

using Sizes = std::vector<int64_t>;  // L1d, L2, L3

Sizes SizesOf(const MachineFacts& facts) {
  return {DetectCacheBytes(facts, CacheLevel::kL1d), DetectCacheBytes(facts, CacheLevel::kL2),
          DetectCacheBytes(facts, CacheLevel::kL3)};
}

TEST(CacheBytes, OfIntelsLeaf) {
  const Machine machine(IntelGuest());
  EXPECT_EQ(SizesOf(machine), (Sizes{48 * kKibi, 2 * kMebi, 480 * kMebi}));
  EXPECT_EQ(machine.questions, 0) << "CPUID has all sizes";
}

TEST(CacheBytes, OfAmdsLeaf) {
  Machine machine(EmulatedEpyc());
  EXPECT_EQ(SizesOf(machine), (Sizes{32 * kKibi, 512 * kKibi, 8 * kMebi}));
  machine.cpuid.erase({0x80000005, 0});
  machine.cpuid.erase({0x80000006, 0});
  EXPECT_EQ(SizesOf(machine), (Sizes{32 * kKibi, 512 * kKibi, 8 * kMebi}));
  EXPECT_EQ(machine.questions, 0);
}

TEST(CacheBytes, OfSizesAlone) {
  EXPECT_EQ(SizesOf(Machine(Qemu64())), (Sizes{64 * kKibi, 512 * kKibi, 16 * kMebi}));
  const Machine zen5(HiddenZen5());
  EXPECT_EQ(SizesOf(zen5), (Sizes{48 * kKibi, 1 * kMebi, 32 * kMebi}));
  EXPECT_EQ(zen5.questions, 0);
}

// Above the highest leaf, CPUID returns the contents of another leaf.
TEST(CacheBytes, LeavesThatAreNotThereAreNotRead) {
  Machine machine(Qemu64());
  machine.absent = {0x04000121, 0x02c0003f, 0x3f, 0};
  machine.cpuid[{4, 0}] = {};
  EXPECT_EQ(SizesOf(machine), (Sizes{64 * kKibi, 512 * kKibi, 16 * kMebi}));
  machine.cpuid[{0, 0}].eax = 3;
  machine.cpuid[{4, 0}] = machine.absent;
  EXPECT_EQ(SizesOf(machine)[0], 64 * kKibi) << "the highest leaf is 3";
  machine.cpuid[{0x80000000, 0}].eax = 0x16;  // a CPU without extended leaves
  EXPECT_EQ(SizesOf(machine), (Sizes{0, 0, 0}));
}

TEST(CacheBytes, ADisabledCacheIsNotReported) {
  Machine machine(Qemu64());
  machine.cpuid[{0x80000006, 0}] = {0, 0, 0x02000140, 0x00800140};
  EXPECT_EQ(SizesOf(machine), (Sizes{64 * kKibi, 0, 0}));
}

// Each level comes from another source.
TEST(CacheBytes, OfSeveralSources) {
  Machine machine(HiddenZen5());
  machine.cpuid[{4, 0}] = {0x121, 0x01c0003f, 0x3f, 0};
  machine.cpuid[{0x80000006, 0}].ecx = 0;
  machine.AddCache(0, 1, "Data", "1024K", "0");
  machine.AddCache(1, 2, "Unified", "2M", "0");
  machine.AddCache(2, 3, "Unified", "99M", "0");
  EXPECT_EQ(SizesOf(machine), (Sizes{32 * kKibi, 2 * kMebi, 32 * kMebi}));
}

TEST(CacheBytes, OfTheOperatingSystem) {
  Machine machine;
  machine.AddCache(0, 1, "Instruction", "64K", "0");
  machine.AddCache(1, 1, "Data", "48K", "0,4");
  machine.AddCache(2, 2, "Unified", "2048K", "0,4");
  machine.AddCache(3, 3, "Unified", "491520K", "0-7");
  machine.sysconf = {{_SC_LEVEL1_DCACHE_SIZE, 4 * kMebi}};
  EXPECT_EQ(SizesOf(machine), (Sizes{48 * kKibi, 2 * kMebi, 480 * kMebi}));

  machine.files.clear();
  machine.sysconf = {{_SC_LEVEL1_DCACHE_SIZE, 32 * kKibi}, {_SC_LEVEL2_CACHE_SIZE, 256 * kKibi}};
  EXPECT_EQ(SizesOf(machine), (Sizes{32 * kKibi, 256 * kKibi, 0}));
}

TEST(CacheBytes, KernelsAssumeWhatIsUnknown) {
  Machine machine;
  EXPECT_EQ(SizesOf(machine), (Sizes{0, 0, 0}));
  kernels::CacheSizes sizes = kernels::CachesOf(machine);
  EXPECT_EQ(sizes.l1d_bytes, 32 * kKibi);
  EXPECT_EQ(sizes.l2_bytes, 512 * kKibi);

  machine.sysconf = {{_SC_LEVEL1_DCACHE_SIZE, 48 * kKibi}};
  sizes = kernels::CachesOf(machine);
  EXPECT_EQ(sizes.l1d_bytes, 48 * kKibi);
  EXPECT_EQ(sizes.l2_bytes, 512 * kKibi);

  sizes = kernels::CachesOf(Machine(HiddenZen5()));
  EXPECT_EQ(sizes.l1d_bytes, 48 * kKibi);
  EXPECT_EQ(sizes.l2_bytes, 1 * kMebi);
}

// ----- malformed facts -------------------------------------------------------------------------------------

/// Every leaf and subleaf returns the same registers, and every file the same text.
class Constant final : public Machine {
 public:
  CpuidRegisters Cpuid(uint32_t leaf, uint32_t /*subleaf*/) const noexcept override {
    return leaf == 0 || leaf == 0x80000000 ? CpuidRegisters{leaf | 0xffff, 0, 0, 0} : registers;
  }
  std::string_view ReadFile(const char* /*name*/, std::span<char> buffer) const noexcept override {
    const size_t bytes = std::min(text.size(), buffer.size());
    std::memcpy(buffer.data(), text.data(), bytes);
    return {buffer.data(), bytes};
  }
  CpuidRegisters registers;
  std::string text;
};

void ExpectPlausible(const MachineFacts& facts) {
  const Topology topology = DetectTopology(facts);
  for (const Cache& cache : {topology.l1d, topology.l2, topology.l3}) {
    EXPECT_TRUE(cache.bytes == 0 || (cache.bytes >= kKibi && cache.bytes <= 16 * kGibi)) << cache.bytes;
    EXPECT_GE(cache.shared_by, 0);
  }
  EXPECT_GE(topology.usable_cores, 0);
  EXPECT_GE(topology.threads_per_core, 0);
  for (const char character : topology.brand) EXPECT_TRUE(character >= ' ' && character <= '~');
  const kernels::CacheSizes sizes = kernels::CachesOf(facts);
  EXPECT_GE(sizes.l1d_bytes, kKibi);
  EXPECT_GE(sizes.l2_bytes, kKibi);
}

TEST(MalformedFacts, ACacheListThatNeverEnds) {
  Constant machine;
  machine.registers = {0x22, 0x01c0003f, 0x3f, 0};  // an instruction cache
  EXPECT_EQ(SizesOf(machine), (Sizes{0, 0, 0}));
  machine.registers = {0x1f, 0x01c0003f, 0x3f, 0};  // an undefined type
  EXPECT_EQ(SizesOf(machine), (Sizes{0, 0, 0}));
  machine.registers = {};
  machine.text = "1\n";
  EXPECT_EQ(SizesOf(machine), (Sizes{0, 0, 0}));
}

TEST(MalformedFacts, SizesThatOverflow) {
  Machine machine(IntelGuest());
  machine.cpuid[{4, 0}] = {0x21, 0xffffffff, 0xffffffff, 0};  // 2^64 bytes
  machine.cpuid[{4, 2}] = {0x43, 0, 0xffffffff, 0};           // 4 GiB: as much as some L3 may have
  machine.cpuid[{4, 3}] = {0x63, 0, 0, 0};                    // a byte
  EXPECT_EQ(SizesOf(machine), (Sizes{0, 4 * kGibi, 0}));
}

TEST(MalformedFacts, AnyRegistersAreSurvived) {
  std::mt19937 random(1);
  std::uniform_int_distribution<uint32_t> any;
  Constant machine;
  machine.usable = {0, 1, 2};
  machine.sysconf = {{_SC_NPROCESSORS_ONLN, 3}};
  for (int i = 0; i < 10000; ++i) {
    machine.registers = {any(random), any(random), any(random), any(random)};
    if (i % 2 == 0) machine.registers.eax &= 0x3ffffe3;  // a valid level and type
    if (i == 0) machine.registers = {~0u, ~0u, ~0u, ~0u};
    ExpectPlausible(machine);
  }
}

TEST(MalformedFacts, AnyFilesAreSurvived) {
  Constant machine;
  machine.usable = {0, 1, 2};
  machine.sysconf = {{_SC_NPROCESSORS_ONLN, 3}};
  for (const char* text : {"", "\n", "-1", "0-", "-", ",", "3-1", "0,", "0-1-2", "99999999999999999999",
                           "0-99999999", "1K", "K", "1\n2", "Data", "\xff\xfe", "0x10"}) {
    SCOPED_TRACE(text);
    machine.text = text;
    ExpectPlausible(machine);
    EXPECT_EQ(DetectTopology(machine).usable_cores, 0);
  }
}

TEST(MalformedFacts, FilesOfCaches) {
  for (const char* size : {"", "K", "-48K", "48X", "0K", "48 K", "99999999999999999999K", "1", "9999999M"}) {
    Machine machine;
    machine.AddCache(0, 1, "Data", size, "0");
    EXPECT_EQ(SizesOf(machine)[0], 0) << size;
  }
  Machine machine;
  machine.AddCache(0, 1, "Data", "48K", "1-0");
  const Topology topology = DetectTopology(machine);
  EXPECT_EQ(topology.l1d.bytes, 48 * kKibi);
  EXPECT_EQ(topology.l1d.shared_by, 0);
}

// ----- logical CPUs and cores ------------------------------------------------------------------------------

TEST(Topology, OfAGuestWithTwoCores) {
  Machine machine(IntelGuest());
  machine.AddCore({0}, "0");
  machine.AddCore({1}, "1");
  machine.AddCache(0, 1, "Data", "48K", "0");
  machine.AddCache(3, 3, "Unified", "491520K", "0-1");
  const Topology topology = DetectTopology(machine);
  EXPECT_EQ(topology.brand, "Intel(R) Xeon(R) Processor");
  EXPECT_EQ(topology.online_cpus, 2);
  EXPECT_EQ(topology.usable_cpus, 2);
  EXPECT_EQ(topology.usable_cores, 2);
  EXPECT_EQ(topology.threads_per_core, 1);
  EXPECT_EQ(topology.l1d.shared_by, 1);
  EXPECT_EQ(topology.l3.shared_by, 2);
}

TEST(Topology, OfCoresWithTwoThreads) {
  Machine machine;
  machine.AddCore({0, 2}, "0,2");
  machine.AddCore({1, 3}, "1,3");
  Topology topology = DetectTopology(machine);
  EXPECT_EQ(topology.usable_cpus, 4);
  EXPECT_EQ(topology.usable_cores, 2);
  EXPECT_EQ(topology.threads_per_core, 2);

  machine.usable = {1, 3};
  topology = DetectTopology(machine);
  EXPECT_EQ(topology.online_cpus, 4);
  EXPECT_EQ(topology.usable_cpus, 2);
  EXPECT_EQ(topology.usable_cores, 1);
  EXPECT_EQ(topology.threads_per_core, 2);

  machine.AddCore({4}, "4");
  machine.usable = {0, 1, 2, 3, 4};
  topology = DetectTopology(machine);
  EXPECT_EQ(topology.usable_cores, 3);
  EXPECT_EQ(topology.threads_per_core, 2) << "the most";
}

TEST(Topology, BeforeLinux53) {
  Machine machine;
  machine.files = {{"cpu0/topology/thread_siblings_list", "0-1\n"},
                   {"cpu1/topology/thread_siblings_list", "0-1\n"}};
  machine.usable = {0, 1};
  const Topology topology = DetectTopology(machine);
  EXPECT_EQ(topology.usable_cores, 1);
  EXPECT_EQ(topology.threads_per_core, 2);
}

// If the operating system does not describe cores, CPUID may. It does not report which cores are usable.
TEST(Topology, OfCpuidAlone) {
  Machine machine(IntelGuest());
  machine.usable = {0, 1};
  machine.sysconf = {{_SC_NPROCESSORS_ONLN, 8}};
  Topology topology = DetectTopology(machine);
  EXPECT_EQ(topology.threads_per_core, 1);
  EXPECT_EQ(topology.usable_cores, 2);
  EXPECT_EQ(topology.l3.shared_by, 2);

  machine.cpuid[{0xb, 0}].ebx = 2;
  topology = DetectTopology(machine);
  EXPECT_EQ(topology.threads_per_core, 2);
  EXPECT_EQ(topology.usable_cores, 0) << "the two may be of one core or of two";
  machine.sysconf = {{_SC_NPROCESSORS_ONLN, 2}};
  EXPECT_EQ(DetectTopology(machine).usable_cores, 1);

  Machine zen(EmulatedEpyc());
  zen.usable = {0, 1, 2, 3};
  zen.sysconf = {{_SC_NPROCESSORS_ONLN, 4}};
  zen.cpuid[{0x8000001e, 0}] = {0, 0x100, 0, 0};
  EXPECT_EQ(DetectTopology(zen).threads_per_core, 0) << "the leaf has no meaning";
  zen.cpuid[{0x80000001, 0}].ecx |= 1u << 22;
  EXPECT_EQ(DetectTopology(zen).threads_per_core, 2);
  EXPECT_EQ(DetectTopology(zen).usable_cores, 2);
}

// Leaf 80000006 reports the sum of a package's L3 caches. The operating system reports how many CPUs share
// one of them.
TEST(Topology, SharesAreOfTheCacheWhoseSizeIsKnown) {
  Machine machine(HiddenZen5());
  machine.AddCache(0, 3, "Unified", "16M", "0-7");
  const Topology topology = DetectTopology(machine);
  EXPECT_EQ(topology.l3.bytes, 32 * kMebi);
  EXPECT_EQ(topology.l3.shared_by, 0);
  machine.AddCache(0, 3, "Unified", "32M", "0-7");
  EXPECT_EQ(DetectTopology(machine).l3.shared_by, 8);
}

TEST(Topology, SharesAreNoMoreThanThereAre) {
  Machine machine(EmulatedEpyc());
  machine.cpuid[{0x8000001d, 3}].eax |= 15u << 14;
  machine.sysconf = {{_SC_NPROCESSORS_ONLN, 12}};
  EXPECT_EQ(DetectTopology(machine).l3.shared_by, 12);
  machine.sysconf = {{_SC_NPROCESSORS_ONLN, 64}};
  EXPECT_EQ(DetectTopology(machine).l3.shared_by, 16);
  EXPECT_EQ(DetectTopology(Machine(HiddenZen5())).l3.shared_by, 0);
}

TEST(Topology, OfNothing) {
  const Topology topology = DetectTopology(Machine());
  EXPECT_EQ(topology.brand, "");
  EXPECT_EQ(topology.online_cpus, 0);
  EXPECT_EQ(topology.usable_cpus, 0);
  EXPECT_EQ(topology.usable_cores, 0);
  EXPECT_EQ(topology.threads_per_core, 0);
}

// ----- this machine ----------------------------------------------------------------------------------------

TEST(Host, HasWhatTheOperatingSystemSays) {
  const Topology topology = DetectTopology(HostFacts());
  EXPECT_EQ(topology.online_cpus, sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    EXPECT_EQ(topology.usable_cpus, CPU_COUNT(&set));
  }
  EXPECT_LE(topology.usable_cores, topology.usable_cpus);
  EXPECT_NE(topology.l1d.bytes, 0);
  EXPECT_NE(topology.l2.bytes, 0);
  const kernels::CacheSizes caches = kernels::CachesOf(HostFacts());
  EXPECT_EQ(caches.l1d_bytes, topology.l1d.bytes);
  EXPECT_EQ(caches.l2_bytes, topology.l2.bytes);
}

TEST(Host, CountsWhatMayBeUsed) {
  std::thread([] {
    const std::vector<int> cpus = HostFacts().UsableCpus();
    ASSERT_FALSE(cpus.empty());
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus.back(), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    EXPECT_EQ(HostFacts().UsableCpus(), std::vector<int>{cpus.back()});
    const Topology topology = DetectTopology(HostFacts());
    EXPECT_EQ(topology.usable_cpus, 1);
    EXPECT_LE(topology.usable_cores, 1);
  }).join();
}

TEST(Host, ReadsFiles) {
  std::array<char, 64> buffer = {};
  EXPECT_EQ(HostFacts().ReadFile("there/is/none", buffer), "");
  EXPECT_EQ(HostFacts().ReadFile(std::string(1000, 'x').c_str(), buffer), "");
  EXPECT_EQ(HostFacts().ReadFile("", buffer), "") << "a folder";
  const std::string_view online = HostFacts().ReadFile("online", buffer);
  if (online.empty()) GTEST_SKIP() << "no /sys/devices/system/cpu";
  EXPECT_EQ(HostFacts().ReadFile("online", {buffer.data(), 1}), "") << "does not fit";
}

// ----- what is printed -------------------------------------------------------------------------------------

TEST(MachineText, Cores) {
  support::Machine machine;
  EXPECT_EQ(verify::CoresText(machine), "cores unknown");
  machine.threads = machine.online_threads = 4;
  EXPECT_EQ(verify::CoresText(machine), "cores unknown, 4 threads");
  machine.cores = 4;
  EXPECT_EQ(verify::CoresText(machine), "4 cores, 4 threads");
  machine.threads_per_core = 1;
  EXPECT_EQ(verify::CoresText(machine), "4 cores, 4 threads (1 per core)");
  machine.cores = machine.threads_per_core = 2;
  EXPECT_EQ(verify::CoresText(machine), "2 cores, 4 threads (2 per core)");
  machine.cores = machine.threads = 1;
  EXPECT_EQ(verify::CoresText(machine), "1 core, 1 of 4 online threads (up to 2 per core)");
}

TEST(MachineText, Caches) {
  support::Machine machine;
  EXPECT_EQ(verify::CachesText(machine), "L1d unknown, L2 unknown, L3 unknown");
  machine.l1d_bytes = 48 * kKibi;
  machine.l2_bytes = 2 * kMebi;
  machine.l3_bytes = 32 * kMebi;
  machine.l1d_threads = 1;
  machine.l3_threads = 8;
  EXPECT_EQ(verify::CachesText(machine), "L1d 48 KiB, L2 2 MiB, L3 32 MiB per 8 threads");
}

TEST(MachineText, NothingIsCalledNone) {
  const std::string text = verify::ToText(support::Machine());
  EXPECT_THAT(text, HasSubstr("unknown"));
  EXPECT_THAT(text, Not(HasSubstr("none")));
  EXPECT_THAT(text, Not(HasSubstr("1 core")));
}

}  // namespace
}  // namespace intact::jit
