// Traps (suites.h) beside their neighbours. A trap and its neighbour are measured in turns, so their ratio
// depends on the CPU less than their times do.
#ifndef INTACT_BENCH_MEASURE_TRAPS_H_
#define INTACT_BENCH_MEASURE_TRAPS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cases/suites.h"
#include "bench/measure/run.h"
#include "verify/report/report.h"

namespace intact::bench {

/// A trap on one ISA.
struct TrapRow {
  std::string isa;
  Trap trap;
  std::string neighbour;    // "dw 128×56×56 3×3/2 u8", "naive loop", "avx2", "reading B", "0.15 us"
  std::string error;        // "" or why it was not measured
  double microseconds = 0;  // medians of turns
  double neighbour_microseconds = 0;
  double ratio = 0;  // the trap over its neighbour, the median of turns
  bool IsMeasured() const { return error.empty(); }
  bool MeetsTarget() const { return IsMeasured() && ratio <= trap.target; }
};

struct TrapResults {
  std::string weights;
  support::Machine machine;
  std::vector<TrapRow> rows;  // by ISA, weakest first
  int64_t not_measured = 0;   // rows that a deadline prevented

  /// Whether nothing failed.
  bool AllRight() const;
};

/// Measures all traps, for request.budget each. The weakest ISA of the machine has no traps of lower caps.
TrapResults RunTraps(const Request& request, const verify::Progress& progress);

/// A table for each ISA.
std::string ToText(const TrapResults& results);
/// schema "intact-bench-traps"; schema_version 1; version; weights; machine, as in report.json; not_measured; rows[]: isa,
/// trap (its number), m, n, k, conv, batch and dynamic as in bench.json (report.h), format, bound, neighbour, error
/// ("" or why it was not measured), microseconds, neighbour_microseconds, ratio, target.
nlohmann::ordered_json ToJson(const TrapResults& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_TRAPS_H_
