#include "bench/report/beside_measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/isas.h"

namespace intact::bench {
namespace {

constexpr std::array kAll = {
    Measured{"Zen 5", "AMD", 26, 2, "avx2", {0.65, 1.16, 1.42, 1.37, 1.47, 1.42, 1.45, 1.42}},
    Measured{"Zen 5", "AMD", 26, 2, "avx_vnni", {0.88, 0.90, 0.97, 0.97, 0.97, 0.98, 0.97, 0.98}},
    Measured{"Zen 5", "AMD", 26, 2, "avx512", {0.80, 1.15, 1.33, 1.33, 1.42, 1.33, 1.37, 1.34}},
    Measured{"Zen 5", "AMD", 26, 2, "avx512_vnni", {0.99, 0.91, 0.97, 0.98, 0.97, 0.96, 0.94, 0.96}},
    Measured{"Xeon 167", "Intel", 6, 167, "avx2", {0.87, 0.79, 1.26, 1.10, 1.27, 1.22, 1.16, 1.15}},
    Measured{"Xeon 167", "Intel", 6, 167, "avx_vnni", {0.90, 0.67, 0.92, 0.90, 0.90, 0.92, 0.90, 0.91}},
    Measured{"Xeon 167", "Intel", 6, 167, "avx512", {0.76, 0.93, 1.17, 1.07, 1.24, 1.17, 1.15, 1.13}},
    Measured{"Xeon 167", "Intel", 6, 167, "avx512_vnni", {0.94, 0.92, 0.92, 0.88, 0.93, 0.90, 0.90, 0.87}},
    // Not model 167's tiles: their peak was measured with zeros, which the CPU multiplies faster.
    Measured{"Xeon 207", "Intel", 6, 207, "amx_int8", {0, 0, 0.73, 0.46, 0.48, 0.66, 0.64, 0.66}},
};

constexpr double kUsual = 1.33;  // the largest usual ratio of two CPUs' shares, either way
// Only the maddubs sequence of ISAs without VNNI widens more often than exact kernels do, so these may exceed it.
constexpr double kMostOfPeak = 1.05;

const Measured* Nearest(const support::Machine& machine, std::string_view isa) {
  const auto distance = [&](const Measured& measured) {
    return std::tuple(measured.isa != isa, machine.cpu.find(measured.vendor) == std::string::npos,
                      std::abs(machine.family - measured.family), std::abs(machine.model - measured.model));
  };
  const Measured* const nearest = std::ranges::min_element(kAll, {}, distance);
  return nearest->isa == isa ? nearest : nullptr;
}

std::string Percent(double share) { return fmt::format("{:.0f}", 100 * share); }

/// One column. Its cells are: a head, the nearest CPU, the peak, then a share for each shape.
std::vector<std::string> Column(const Results& results, const std::string& isa,
                                std::vector<std::string>* unusual) {
  const Measured* const nearest = Nearest(results.machine, isa);
  const std::vector<Row> rows = results.RowsOf(isa);
  std::vector<std::string> cells = {isa, nearest == nullptr ? "(none)" : fmt::format("({})", nearest->cpu),
                                    fmt::format("{:.0f}", rows.front().peak_gops)};
  const auto known = core::ParseIsa(isa);
  for (size_t i = 0; i < kMeasuredShapes.size(); ++i) {
    const std::string name = kMeasuredShapes.at(i).ToString();
    const auto row = std::ranges::find(rows, name, [](const Row& each) { return each.shape.ToString(); });
    const Timing* const timing = row == rows.end() ? nullptr : row->Find(kIntact, kS32);
    const double usual = nearest == nullptr ? 0 : nearest->shares.at(i);
    const std::string in_parentheses = usual == 0 ? "" : fmt::format(" ({})", Percent(usual));
    if (timing == nullptr) {
      cells.push_back("-" + in_parentheses);
      continue;
    }
    const double share = OfRoof(*row, *timing);
    std::string why;
    if (usual != 0 && share * kUsual < usual)
      why = fmt::format("only {:.2f} of the nearest CPU's share", share / usual);
    if (usual != 0 && share > usual * kUsual)
      why = fmt::format("{:.2f} of the nearest CPU's share", share / usual);
    if (known && !core::SaturatesInt16(*known) && share > kMostOfPeak)
      why = "above the roof, which must be wrong";
    if (row->IsUnsteady()) why = "unsteady: the core was shared, or its clock changed";
    cells.push_back((why.empty() ? "" : "! ") + Percent(share) + in_parentheses);
    if (!why.empty()) unusual->push_back(fmt::format("! {}, {}: {}", isa, name, why));
  }
  return cells;
}

}  // namespace

std::span<const Measured> AllMeasured() { return kAll; }

Table BesideMeasured(const Results& results) {
  Table table;
  table.title = "percent of the roof, s32; in parentheses: the nearest CPU that was measured";
  std::vector<std::vector<std::string>> lines = {{"M×N×K"}, {"nearest"}, {"peak, GOPS"}};
  for (const Shape& shape : kMeasuredShapes) lines.push_back({shape.ToString()});
  std::vector<std::string> unusual;
  bool has_shapes = false;
  for (const std::string& isa : results.Isas()) {
    const std::vector<std::string> cells = Column(results, isa, &unusual);
    has_shapes = has_shapes || std::any_of(cells.begin() + 3, cells.end(),
                                           [](const std::string& cell) { return cell[0] != '-'; });
    for (size_t i = 0; i < lines.size(); ++i) lines[i].push_back(cells.at(i));
  }
  if (!has_shapes) return table;
  table.head = lines.front();
  table.rows.assign(std::make_move_iterator(lines.begin() + 1), std::make_move_iterator(lines.end()));
  constexpr size_t kMostNotes = 8;
  table.notes.push_back(unusual.empty() ? results.not_measured > 0 ? "nothing that was measured is unusual"
                                                                   : "nothing is unusual"
                                        : fmt::format("{} shares are unusual:", unusual.size()));
  for (size_t i = 0; i < std::min(unusual.size(), kMostNotes); ++i)
    table.notes.push_back(std::move(unusual[i]));
  return table;
}

}  // namespace intact::bench
