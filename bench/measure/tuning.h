// Compares choices by stopwatch with choices of the cost models. For each shape, a new plan and a tuned plan
// are measured in turns; both compute the same bytes. On a new CPU this shows which choices of the models are
// wrong, and by how much.
#ifndef INTACT_BENCH_MEASURE_TUNING_H_
#define INTACT_BENCH_MEASURE_TUNING_H_

#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measure/run.h"
#include "verify/report/report.h"

namespace intact::bench {

/// A shape on one ISA: a GEMM with s32 outputs, a convolution with u8.
struct TunedRow {
  std::string isa;
  Shape shape;
  int times = 1;                  // occurrences in the suite's network
  std::string error;              // "" or why it was not measured
  std::string model, tuned;       // kernels; of a transposed convolution, in its longest phase
  bool is_same = true;            // tuning chose what the model chose: both run the same code
  double model_microseconds = 0;  // medians of turns
  double tuned_microseconds = 0;  // if is_same: model_microseconds
  double ratio = 1;               // model over tuned, the median of turns
  bool IsMeasured() const { return error.empty(); }
};

struct TunedResults {
  std::string suite, weights;
  support::Machine machine;
  std::vector<TunedRow> rows;  // by ISA, weakest first
  int64_t not_measured = 0;    // rows that a deadline prevented

  /// Whether nothing failed.
  bool AllRight() const;
};

/// A choice of the model counts as wrong if its time over the tuned time exceeds this.
inline constexpr double kWrongChoice = 1.03;

/// Whether plans of this layer can be tuned: not those of a batch or with weights in blocks.
bool IsTunable(const Layer& layer);

/// Measures the suite's layers that can be tuned. Tuning a plan takes request.budget, and
/// measuring the turns of a shape takes as long.
TunedResults RunTuned(const Request& request, const verify::Progress& progress);

/// A table for each ISA with the geometric mean of the ratios, how many choices were wrong, and the worst.
std::string ToText(const TunedResults& results);
/// schema "intact-bench-tune"; schema_version 1; version; suite; weights; machine, as in report.json; not_measured; rows[]:
/// isa, m, n, k, conv, batch, dynamic and times as in bench.json (report.h), error ("" or why it was not
/// measured), model and tuned (kernels), model_microseconds, tuned_microseconds, ratio.
nlohmann::ordered_json ToJson(const TunedResults& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_TUNING_H_
