// Products with grouped weights (include/intact/grouped.h) in the shapes of decoders, on one thread. Runs
// quantize f32 activations to s8, a scale for each row; weights are packed once, with f16 scales.
//
// A run of few rows is compared with the read bandwidth for the bytes of the packed weights, a run of many
// rows with the instruction peak. Peers quantize each group of a row. Their times are compared with runs of
// intact that quantize each group too. All are measured in turns.
#ifndef INTACT_BENCH_MEASURE_GROUPED_H_
#define INTACT_BENCH_MEASURE_GROUPED_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cases/case.h"
#include "bench/measure/run.h"
#include "bench/peers/peers.h"
#include "bench/report/results.h"
#include "support/machine.h"
#include "verify/report/report.h"

namespace intact::bench {

/// Every shape is measured with every number of rows.
struct GroupedSuite {
  std::vector<GroupedShape> shapes;
  std::vector<int64_t> rows;
};

/// 4 and 8 bits, groups of 32 and 128. "": 4096×4096; "llm": the shapes of models with 8 to 70 billion
/// weights, and more rows. Nothing if no suite has that name.
std::optional<GroupedSuite> FindGroupedSuite(std::string_view name);

/// A contender that quantizes each group of a row: intact, or kernels of a peer.
struct GroupedTiming {
  std::string name;            // "intact", "onnxruntime", "ggml AMX"
  std::string implementation;  // as reported by its library
  std::string error;           // "" or why it was not measured
  double microseconds = 0;     // the median of turns
  double of_intact = 0;        // the time relative to intact's, the median of turns
  bool IsMeasured() const { return error.empty(); }
};

/// A shape on one ISA, with m rows of A.
struct GroupedRow {
  std::string isa;
  GroupedShape shape;
  int64_t m = 1;
  std::string error;  // "" or why it was not measured
  std::string kernel;
  std::string peak;                      // the kernels' peak: with AMX, that of tiles or of AVX-512-VNNI
  double bytes_per_weight = 0;           // of the packed weights, with scales
  double microseconds = 0;               // the median of turns
  double of_bandwidth = 0;               // of the read bandwidth, the median of turns
  double of_peak = 0;                    // of the kernels' instruction peak, the median of turns
  std::vector<GroupedTiming> by_groups;  // with peers: intact and its peers
  bool IsMeasured() const { return error.empty(); }
};

struct GroupedResults {
  support::Machine machine;
  std::vector<PeerVersion> peers;
  std::vector<GroupedRow> rows;  // by ISA, weakest first

  /// Whether every row was measured. Peers do not count.
  bool AllRight() const;
};

/// Measures `suite` on the ISAs of `request`, for request.budget each. A row is measured only if intact's
/// outputs equal the reference's. A peer is measured only if its outputs are near the float64 product of its
/// own integers.
GroupedResults RunGrouped(const Request& request, const GroupedSuite& suite,
                          std::span<const Peer* const> peers, const verify::Progress& progress);

/// A table for each ISA.
std::string ToText(const GroupedResults& results);
/// schema "intact-bench-grouped"; schema_version 2; version; machine, as in report.json; peers[]: name,
/// version, call_microseconds; rows[]: isa, bits, m, n, k, group, error ("" or why it was not measured),
/// kernel, peak, bytes_per_weight, microseconds, of_bandwidth, of_peak, by_groups[]: name, implementation,
/// error, microseconds, of_intact.
nlohmann::ordered_json ToJson(const GroupedResults& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_GROUPED_H_
