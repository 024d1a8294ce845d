#include "kernels/engines/cost_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <system_error>
#include <tuple>

#include "kernels/codegen/dispatch.h"

namespace intact::kernels {
namespace {

using core::Isa;

constexpr CostTable Zen3() {
  CostTable table;
#include "kernels/engines/cost_tables/amd_25_zen_3.inc"
  return table;
}

constexpr CostTable Zen5() {
  CostTable table;
#include "kernels/engines/cost_tables/amd_26_zen_5.inc"
  return table;
}

constexpr CostTable IntelWithoutAvx512() {
  CostTable table;
#include "kernels/engines/cost_tables/intel_without_avx512.inc"
  return table;
}

constexpr CostTable IntelWithAmx() {
  CostTable table;
#include "kernels/engines/cost_tables/intel_6_167.inc"
  return table;
}

// The ISAs of a table's CPU. IntelWithoutAvx512() belongs to no model: it is only the nearest.
constexpr core::IsaSet kAvx2Only = {Isa::kPortable, Isa::kAvx2};
constexpr core::IsaSet kUpToVnni = {Isa::kPortable, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512,
                                    Isa::kAvx512Vnni};
constexpr core::IsaSet kUpToAmx = {Isa::kPortable, Isa::kAvx2,       Isa::kAvxVnni,
                                   Isa::kAvx512,   Isa::kAvx512Vnni, Isa::kAmxInt8};
// Models 0x10 to 0x1f of family 25 are Zen 4, which has AVX-512 and no table.
constexpr std::array kTables = {
    CpuCosts{"Zen 3", "AMD", 25, 0x00, 0x0f, kAvx2Only, Zen3()},
    CpuCosts{"Zen 3", "AMD", 25, 0x20, 0x5f, kAvx2Only, Zen3()},
    CpuCosts{"Zen 5", "AMD", 26, 0x00, 0x1f, kUpToVnni, Zen5()},
    CpuCosts{"Intel without AVX-512", "INTEL", 6, 1, 0, kAvx2Only, IntelWithoutAvx512()},
    CpuCosts{"Intel Xeon with AMX", "INTEL", 6, 167, 167, kUpToAmx, IntelWithAmx()},
};

// The number of ISAs of `isas` that `others` lacks.
int64_t Lacking(core::IsaSet isas, core::IsaSet others) {
  return std::ranges::count_if(core::kAllIsas, [&](Isa isa) { return isas.Has(isa) && !others.Has(isa); });
}

CostTable& MutableCosts() {
  static CostTable table = CostsFor(jit::HostCpu(), jit::HardwareIsas()).costs;
  return table;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

}  // namespace

std::span<const CpuCosts> CpuTables() { return kTables; }

const CpuCosts& CostsFor(const jit::CpuKind& cpu, core::IsaSet isas) {
  const auto distance = [&](const CpuCosts& table) {
    return std::tuple(!table.IsOf(cpu), table.vendor != cpu.vendor, Lacking(isas, table.isas),
                      Lacking(table.isas, isas));
  };
  return *std::ranges::min_element(kTables, {}, distance);
}

const CostTable& Costs() { return MutableCosts(); }

double HalfCycles(core::Isa isa) {
  const VectorCosts& costs = Costs().Of(isa);
  return DotOf(isa, INTACT_EXACT) == jit::DotKind::kVnni ? costs.half_cycles_vnni : costs.half_cycles_maddubs;
}

void SetCosts(const CostTable& table) { MutableCosts() = table; }

// The shortest digits that give the value back.
std::string ToText(const CostTable& table) {
  std::string text;
  ForEachCost(table, [&](const std::string& name, const char* unit, auto value) {
    std::array<char, 32> digits;
    char* const end = std::to_chars(digits.begin(), digits.end(), value).ptr;
    text += "table." + name + " = " + std::string(digits.begin(), end) + ";  // " + unit + "\n";
  });
  return text;
}

Result<CostTable> ParseCostTable(std::string_view text) {
  std::map<std::string, std::string_view, std::less<>> values;
  int number = 0;
  const auto wrong = [&](const std::string& what) {
    return Error{INTACT_INVALID_ARGUMENT, "line " + std::to_string(number) + ": " + what};
  };
  while (!text.empty()) {
    ++number;
    const size_t line_end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trimmed(text.substr(0, line_end));
    text.remove_prefix(std::min(line_end + 1, text.size()));
    if (line.empty() || line.starts_with("//")) continue;
    constexpr std::string_view kTable = "table.", kEquals = " = ";
    const size_t equals = line.find(kEquals), end = line.find(';');
    if (!line.starts_with(kTable) || equals == line.npos || end == line.npos || end < equals) {
      return wrong("is \"" + std::string(line) + "\"; expected table.NAME = VALUE;");
    }
    const std::string name(line.substr(kTable.size(), equals - kTable.size()));
    const size_t value = equals + kEquals.size();
    if (!values.emplace(name, line.substr(value, end - value)).second) {
      return wrong("table." + name + " is given twice");
    }
  }
  CostTable table;
  Error error;
  ForEachCost(table, [&](const std::string& name, const char* unit, auto& cost) {
    if (!error.ok()) return;
    const auto found = values.find(name);
    if (found == values.end()) {
      error = {INTACT_INVALID_ARGUMENT, "table." + name + " is missing; expected its value in " + unit};
      return;
    }
    const std::string_view digits = found->second;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), cost);
    const bool is_number = status == std::errc() && end == digits.data() + digits.size();
    if (!is_number || !(cost >= 0 && cost <= 1'000'000'000)) {
      error = {INTACT_INVALID_ARGUMENT,
               "table." + name + " is " + std::string(digits) + "; expected a number from 0 to 1e9"};
    }
    values.erase(found);
  });
  if (!error.ok()) return error;
  if (!values.empty()) {
    return Error{INTACT_INVALID_ARGUMENT, "table." + values.begin()->first + " is unknown"};
  }
  return table;
}

}  // namespace intact::kernels
