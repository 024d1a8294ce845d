#include "jit/topology.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <set>
#include <system_error>

namespace intact::jit {
namespace {

// ----- CPUID -----------------------------------------------------------------------------------------------

constexpr std::array<uint32_t, 2> kCacheParameterLeaves = {4, 0x8000001d};
constexpr uint32_t kL1Leaf = 0x80000005, kL2AndL3Leaf = 0x80000006;
constexpr std::array<uint32_t, 3> kBrandLeaves = {0x80000002, 0x80000003, 0x80000004};

// A missing leaf returns other data: Intel's CPUs return their highest basic leaf.
bool HasLeaf(const MachineFacts& facts, uint32_t leaf) {
  constexpr uint32_t kExtended = 0x80000000;
  const uint32_t highest = facts.Cpuid(leaf & kExtended, 0).eax;
  return highest >= leaf && (highest & kExtended) == (leaf & kExtended);
}

// `count` bits of `value`, from bit `low` on.
constexpr uint32_t Bits(uint32_t value, int low, int count) { return value >> low & ((1u << count) - 1); }

// Sizes outside these bounds come from malformed leaves or files.
constexpr int64_t kLeastCacheBytes = int64_t{1} << 10, kMostCacheBytes = int64_t{1} << 34;
int64_t PlausibleOrUnknown(int64_t bytes) {
  return bytes >= kLeastCacheBytes && bytes <= kMostCacheBytes ? bytes : 0;
}

// The cache of `level` in one of kCacheParameterLeaves. Each subleaf describes one cache:
//
//   EAX  bits 4:0 type (0: no more caches), 7:5 level, 25:14 logical CPUs that may share it, minus 1
//   EBX  bits 31:22 ways, 21:12 line partitions, 11:0 bytes of a line, each minus 1
//   ECX  sets, minus 1
Cache ReadCacheParameters(const MachineFacts& facts, uint32_t leaf, CacheLevel level) {
  constexpr uint32_t kNoMoreCaches = 0, kData = 1, kUnified = 3;
  constexpr uint32_t kMostSubleaves = 16;  // a malformed leaf may never end
  if (!HasLeaf(facts, leaf)) return {};
  for (uint32_t subleaf = 0; subleaf < kMostSubleaves; ++subleaf) {
    const CpuidRegisters cache = facts.Cpuid(leaf, subleaf);
    const uint32_t type = Bits(cache.eax, 0, 5);
    if (type == kNoMoreCaches) break;
    if (type != kData && type != kUnified) continue;
    if (Bits(cache.eax, 5, 3) != static_cast<uint32_t>(level)) continue;
    const int64_t ways = Bits(cache.ebx, 22, 10) + 1;
    const int64_t partitions = Bits(cache.ebx, 12, 10) + 1;
    const int64_t line_bytes = Bits(cache.ebx, 0, 12) + 1;
    const int64_t set_bytes = ways * partitions * line_bytes;
    const int64_t sets = int64_t{cache.ecx} + 1;
    if (sets > kMostCacheBytes / set_bytes) continue;  // the product could overflow
    if (PlausibleOrUnknown(set_bytes * sets) == 0) continue;
    return {set_bytes * sets, int64_t{Bits(cache.eax, 14, 12)} + 1};
  }
  return {};
}

// The size of the cache of `level` in kL1Leaf or kL2AndL3Leaf:
//
//   L1d  80000005 ECX  bits 31:24 KiB
//   L2   80000006 ECX  bits 31:16 KiB, 15:12 associativity (0: the cache is disabled)
//   L3   80000006 EDX  bits 31:18 units of 512 KiB, 15:12 associativity (0: the cache is disabled)
//
// The size of L3 is the sum of all L3 caches of the package.
int64_t ReadCacheSize(const MachineFacts& facts, CacheLevel level) {
  if (level == CacheLevel::kL1d) {
    if (!HasLeaf(facts, kL1Leaf)) return 0;
    return PlausibleOrUnknown(int64_t{Bits(facts.Cpuid(kL1Leaf, 0).ecx, 24, 8)} << 10);
  }
  if (!HasLeaf(facts, kL2AndL3Leaf)) return 0;
  const CpuidRegisters leaf = facts.Cpuid(kL2AndL3Leaf, 0);
  const uint32_t cache = level == CacheLevel::kL2 ? leaf.ecx : leaf.edx;
  if (Bits(cache, 12, 4) == 0) return 0;
  return PlausibleOrUnknown(level == CacheLevel::kL2 ? int64_t{Bits(cache, 16, 16)} << 10
                                                     : int64_t{Bits(cache, 18, 14)} << 19);
}

Cache CacheOfCpuid(const MachineFacts& facts, CacheLevel level) {
  for (const uint32_t leaf : kCacheParameterLeaves) {
    const Cache cache = ReadCacheParameters(facts, leaf, level);
    if (cache.bytes != 0) return cache;
  }
  return {ReadCacheSize(facts, level), 0};
}

// Logical CPUs of a core; 0 if unknown.
int64_t ThreadsPerCoreOfCpuid(const MachineFacts& facts) {
  constexpr uint32_t kCore = 1, kMostThreads = 16;
  // The first subleaf describes a core if ECX bits 15:8 say so; EBX bits 15:0 count its logical CPUs.
  for (const uint32_t leaf : {0x1fu, 0xbu}) {
    if (!HasLeaf(facts, leaf)) continue;
    const CpuidRegisters level = facts.Cpuid(leaf, 0);
    const uint32_t threads = Bits(level.ebx, 0, 16);
    if (Bits(level.ecx, 8, 8) == kCore && threads >= 1 && threads <= kMostThreads) return threads;
  }
  // AMD's CPUs before Zen 2 count them in 8000001E, EBX bits 15:8, minus 1. Bit 22 of 80000001's ECX says
  // whether that leaf is valid.
  if (!HasLeaf(facts, 0x8000001e) || Bits(facts.Cpuid(0x80000001, 0).ecx, 22, 1) == 0) return 0;
  const uint32_t threads = Bits(facts.Cpuid(0x8000001e, 0).ebx, 8, 8) + 1;
  return threads <= kMostThreads ? threads : 0;
}

// The CPU's name as CPUID reports it: printable ASCII characters only, and single spaces only.
std::string ReadBrand(const MachineFacts& facts) {
  std::string brand;
  if (!HasLeaf(facts, kBrandLeaves.back())) return brand;
  bool is_over = false, wants_space = false;
  for (const uint32_t leaf : kBrandLeaves) {
    const CpuidRegisters text = facts.Cpuid(leaf, 0);
    for (const uint32_t word : {text.eax, text.ebx, text.ecx, text.edx}) {
      for (int byte = 0; byte < 4; ++byte) {
        const auto character = static_cast<char>(Bits(word, 8 * byte, 8));
        is_over |= character == '\0';
        if (is_over || character < ' ' || character > '~') continue;
        if (character == ' ') {
          wants_space = !brand.empty();
          continue;
        }
        if (wants_space) brand += ' ';
        wants_space = false;
        brand += character;
      }
    }
  }
  return brand;
}

// ----- the operating system --------------------------------------------------------------------------------

// Reads `folder`/`name`; the result refers to `buffer`.
std::string_view ReadIn(const MachineFacts& facts, const char* folder, const char* name,
                        std::span<char> buffer) {
  std::array<char, 64> path = {};
  const int length = std::snprintf(path.data(), path.size(), "%s/%s", folder, name);
  if (length < 0 || static_cast<size_t>(length) >= path.size()) return {};
  std::string_view text = facts.ReadFile(path.data(), buffer);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// Takes a decimal number from the beginning of `text`. Numbers of more than seven digits count as malformed.
std::optional<int64_t> TakeNumber(std::string_view* text) {
  constexpr int64_t kMost = 9'999'999;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || number < 0 || number > kMost) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

// "48K" or "2M" in bytes; 0 if `text` is something else.
int64_t ParseCacheSize(std::string_view text) {
  const std::optional<int64_t> number = TakeNumber(&text);
  if (!number) return 0;
  const int shift = text == "K" ? 10 : text == "M" ? 20 : text.empty() ? 0 : -1;
  return shift < 0 ? 0 : PlausibleOrUnknown(*number << shift);
}

struct CpuList {
  int64_t first = 0;  // the lowest number
  int64_t count = 0;
};

// Returns {0, 5} for "0-3,8"; nothing if `text` is no list of CPUs.
std::optional<CpuList> ParseCpuList(std::string_view text) {
  CpuList list;
  while (true) {
    const std::optional<int64_t> begin = TakeNumber(&text);
    std::optional<int64_t> end = begin;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      end = TakeNumber(&text);
    }
    if (!begin || !end || *end < *begin) return std::nullopt;
    list.first = list.count == 0 ? *begin : std::min(list.first, *begin);
    list.count += *end - *begin + 1;
    if (text.empty()) return list;
    if (!text.starts_with(',')) return std::nullopt;
    text.remove_prefix(1);
  }
}

constexpr size_t kFileBytes = 4096;  // more than a list of CPUs takes

Cache CacheOfFiles(const MachineFacts& facts, CacheLevel level) {
  constexpr int kMostCaches = 16;
  for (int index = 0; index < kMostCaches; ++index) {
    std::array<char, 32> folder = {};
    (void)std::snprintf(folder.data(), folder.size(), "cpu0/cache/index%d", index);
    std::array<char, kFileBytes> buffer = {};
    const auto read = [&](const char* name) { return ReadIn(facts, folder.data(), name, buffer); };
    std::string_view text = read("level");
    if (text.empty()) return {};  // there are no more
    if (TakeNumber(&text) != static_cast<int64_t>(level)) continue;
    text = read("type");
    if (text != "Data" && text != "Unified") continue;
    Cache cache = {ParseCacheSize(read("size")), 0};
    if (cache.bytes == 0) continue;
    if (const std::optional<CpuList> cpus = ParseCpuList(read("shared_cpu_list"))) {
      cache.shared_by = cpus->count;
    }
    return cache;
  }
  return {};
}

int64_t CacheSizeOfSysconf(const MachineFacts& facts, CacheLevel level) {
  return PlausibleOrUnknown(facts.Sysconf(level == CacheLevel::kL1d  ? _SC_LEVEL1_DCACHE_SIZE
                                          : level == CacheLevel::kL2 ? _SC_LEVEL2_CACHE_SIZE
                                                                     : _SC_LEVEL3_CACHE_SIZE));
}

// The logical CPUs of the core that `cpu` belongs to.
std::optional<CpuList> CoreOfFiles(const MachineFacts& facts, int cpu) {
  std::array<char, 32> folder = {};
  (void)std::snprintf(folder.data(), folder.size(), "cpu%d/topology", cpu);
  std::array<char, kFileBytes> buffer = {};
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {  // the second before Linux 5.3
    if (const auto cpus = ParseCpuList(ReadIn(facts, folder.data(), name, buffer))) return cpus;
  }
  return std::nullopt;
}

// ----- both ------------------------------------------------------------------------------------------------

Cache DetectCache(const MachineFacts& facts, CacheLevel level, int64_t online_cpus) {
  const int64_t bytes = DetectCacheBytes(facts, level);
  if (bytes == 0) return {};
  // The operating system counts the logical CPUs that share the cache, if it means the same cache.
  const Cache of_files = CacheOfFiles(facts, level);
  if (of_files.bytes == bytes && of_files.shared_by != 0) return of_files;
  // CPUID counts the logical CPUs that could exist, which may be more than do exist.
  return {bytes, std::min(CacheOfCpuid(facts, level).shared_by, online_cpus)};
}

// Sets usable_cores and threads_per_core of a topology whose logical CPUs are counted.
void DetectCores(const MachineFacts& facts, Topology* topology) {
  std::set<int64_t> cores;  // the first logical CPU of each
  for (const int cpu : facts.UsableCpus()) {
    const std::optional<CpuList> core = CoreOfFiles(facts, cpu);
    if (!core) {
      cores.clear();
      break;
    }
    cores.insert(core->first);
    topology->threads_per_core = std::max(topology->threads_per_core, core->count);
  }
  topology->usable_cores = static_cast<int64_t>(cores.size());
  if (!cores.empty()) return;
  topology->threads_per_core = ThreadsPerCoreOfCpuid(facts);
  const bool is_whole_machine = topology->usable_cpus == topology->online_cpus;
  if (topology->threads_per_core == 1) {
    topology->usable_cores = topology->usable_cpus;
  } else if (topology->threads_per_core != 0 && is_whole_machine) {
    topology->usable_cores =
        (topology->usable_cpus + topology->threads_per_core - 1) / topology->threads_per_core;
  }
}

}  // namespace

int64_t DetectCacheBytes(const MachineFacts& facts, CacheLevel level) noexcept {
  if (const int64_t bytes = CacheOfCpuid(facts, level).bytes; bytes != 0) return bytes;
  if (const int64_t bytes = CacheOfFiles(facts, level).bytes; bytes != 0) return bytes;
  return CacheSizeOfSysconf(facts, level);
}

int64_t DetectOnlineCpus(const MachineFacts& facts) noexcept {
  return std::max<int64_t>(facts.Sysconf(_SC_NPROCESSORS_ONLN), 0);
}

int64_t DetectUsableCpus(const MachineFacts& facts) {
  const std::vector<int> usable = facts.UsableCpus();
  return usable.empty() ? DetectOnlineCpus(facts) : static_cast<int64_t>(usable.size());
}

Topology DetectTopology(const MachineFacts& facts) {
  Topology topology;
  topology.brand = ReadBrand(facts);
  topology.online_cpus = DetectOnlineCpus(facts);
  topology.usable_cpus = DetectUsableCpus(facts);
  DetectCores(facts, &topology);
  topology.l1d = DetectCache(facts, CacheLevel::kL1d, topology.online_cpus);
  topology.l2 = DetectCache(facts, CacheLevel::kL2, topology.online_cpus);
  topology.l3 = DetectCache(facts, CacheLevel::kL3, topology.online_cpus);
  return topology;
}

}  // namespace intact::jit
