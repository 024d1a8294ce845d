// The results as tables of text cells, for the terminal and for the page.
#ifndef INTACT_BENCH_REPORT_REPORT_TABLE_H_
#define INTACT_BENCH_REPORT_REPORT_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "bench/report/results.h"

namespace intact::bench {

/// The suffix of a cell with the speed of a result that is not exact.
inline constexpr std::string_view kMark = "!";

struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;  // what marks mean, and why cases are not timed
};

/// CPU, caches, ISAs, peaks: a label and its text each. No head.
Table MachineTable(const Results& results);
/// A line that names missing measurements, or "".
std::string MissingText(int64_t not_measured);
/// All other tables. First the tables of each ISA, with geometric means: GEMMs, convolutions, dynamic GEMMs
/// and batches; or one table of a network, which has worst ratios and sums too. Then the cost of quantizing
/// in the run, for 128 rows and for one row; then plans and threads.
std::vector<Table> Tables(const Results& results);

/// For the terminal.
std::string ToText(const Table& table);

}  // namespace intact::bench
#endif  // INTACT_BENCH_REPORT_REPORT_TABLE_H_
