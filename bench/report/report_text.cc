#include <fmt/format.h>

#include <algorithm>

#include "bench/report/beside_measured.h"
#include "bench/report/report.h"
#include "bench/report/report_table.h"

namespace intact::bench {
namespace {

size_t Width(const std::string& text) { return fmt::detail::compute_width(text); }

}  // namespace

// Aligns columns: the first to the left, the others to the right.
std::string ToText(const Table& table) {
  std::vector<std::vector<std::string>> lines = table.rows;
  lines.insert(lines.begin(), table.head);
  std::vector<size_t> widths(table.head.size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], Width(line[i]));
  }
  std::string text = fmt::format("\n{}\n", table.title);
  for (const auto& line : lines) {
    std::string row = fmt::format("  {:<{}}", line[0], widths[0]);
    for (size_t i = 1; i < line.size(); ++i) row += fmt::format("  {:>{}}", line[i], widths[i]);
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  for (const std::string& note : table.notes) text += fmt::format("  {}\n", note);
  return text;
}

std::string Title(const Results& results) {
  return fmt::format("intact {}, suite {}, {} weights; one thread, medians of turns", intact_version(),
                     results.suite, results.weights);
}

std::string ToText(const Results& results) {
  std::string text = fmt::format("{}\n", Title(results));
  for (const auto& line : MachineTable(results).rows) text += fmt::format("  {:<22} {}\n", line[0], line[1]);
  text += MissingText(results.not_measured);
  for (const Table& table : Tables(results)) text += ToText(table);
  if (const Table table = BesideMeasured(results); !table.rows.empty())
    text += ToText(table);  // last, so that it stays on the screen
  return text;
}

}  // namespace intact::bench
