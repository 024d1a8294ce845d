// Products with grouped weights (include/intact/grouped.h) in the shapes of decoders, on one thread. Runs
// quantize f32 activations to s8, a scale for each row; weights are packed once, with f16 scales.
//
// A run of few rows is compared with the read bandwidth for the bytes of the packed weights, a run of many
// rows with the instruction peak. All are measured in turns.
#ifndef INTACT_BENCH_GROUPED_H_
#define INTACT_BENCH_GROUPED_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/run.h"
#include "support/machine.h"
#include "verify/report/report.h"

namespace intact::bench {

struct GroupedShape {
  int bits = 4;  // of a weight
  int64_t n = 1, k = 1, group = 32;
};

/// A shape on one ISA, with m rows of A.
struct GroupedRow {
  std::string isa;
  GroupedShape shape;
  int64_t m = 1;
  std::string error;  // "" or why it was not measured
  std::string kernel;
  std::string peak;             // the kernels' peak. With AMX, kernels of AVX-512-VNNI run
  double bytes_per_weight = 0;  // of the packed weights, with scales
  double microseconds = 0;      // the median of turns
  double of_bandwidth = 0;      // of the read bandwidth, the median of turns
  double of_peak = 0;           // of the kernels' instruction peak, the median of turns
  bool IsMeasured() const { return error.empty(); }
};

struct GroupedResults {
  support::Machine machine;
  std::vector<GroupedRow> rows;  // by ISA, weakest first

  /// Whether every row was measured.
  bool AllRight() const;
};

/// 4 and 8 bits, groups of 32 and 128.
std::vector<GroupedShape> GroupedShapes();

/// Measures `shapes` with 1, 4, 16 and 128 rows on the ISAs of `request`, for request.budget each. A row is
/// measured only if its outputs equal the reference's.
GroupedResults RunGrouped(const Request& request, const std::vector<GroupedShape>& shapes,
                          const verify::Progress& progress);

/// A table for each ISA.
std::string ToText(const GroupedResults& results);
/// schema "intact-bench-grouped"; schema_version 1; version; machine, as in report.json; rows[]: isa, bits,
/// m, n, k, group, error ("" or why it was not measured), kernel, peak, bytes_per_weight, microseconds,
/// of_bandwidth, of_peak.
nlohmann::ordered_json ToJson(const GroupedResults& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_GROUPED_H_
