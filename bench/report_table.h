// The results as tables of text cells, which the terminal and the page share.
#ifndef INTACT_BENCH_REPORT_TABLE_H_
#define INTACT_BENCH_REPORT_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "bench/results.h"

namespace intact::bench {

/// What a speed ends with that is of other numbers than the exact ones.
inline constexpr std::string_view kMark = "!";

struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;  // what marks mean, and why something is not timed
};

/// CPU, caches, ISAs, peaks: a label and its text each. No head.
Table MachineTable(const Results& results);
/// All others. For each ISA its GEMMs, convolutions, dynamic GEMMs and batches, if there are, of a network
/// together, with geometric means, and a network's worst ratios and sums; what quantizing in the run costs,
/// of a wide and of a thin shape; plans and threads.
std::vector<Table> Tables(const Results& results);

/// For the terminal.
std::string ToText(const Table& table);

}  // namespace intact::bench
#endif  // INTACT_BENCH_REPORT_TABLE_H_
