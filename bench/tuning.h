// Choices by stopwatch beside those of the cost models: for each shape a plan as it is made and one that was
// tuned, which compute the same bytes, measured in turns. For a new CPU this tells which choices of the
// models are wrong, and by how much.
#ifndef INTACT_BENCH_TUNING_H_
#define INTACT_BENCH_TUNING_H_

#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/run.h"
#include "verify/report/report.h"

namespace intact::bench {

/// A shape on one ISA: a GEMM with s32 outputs, a convolution with u8.
struct TunedRow {
  std::string isa;
  Shape shape;
  int times = 1;                  // that the suite's network has it
  std::string error;              // "" or why it was not measured
  std::string model, tuned;       // what runs; of a transposed convolution in its longest phase
  bool is_same = true;            // tuning chose as the model does: it is the same code
  double model_microseconds = 0;  // medians of turns
  double tuned_microseconds = 0;  // the model's where it is the same
  double ratio = 1;               // model over tuned, the median of turns
  bool IsMeasured() const { return error.empty(); }
};

struct TunedResults {
  std::string suite, weights;
  support::Machine machine;
  std::vector<TunedRow> rows;  // by ISA, weakest first

  /// Every row was measured.
  bool AllRight() const;
};

/// A choice of the model counts as wrong where the tuned plan is faster by more.
inline constexpr double kWrongChoice = 1.03;

/// Measures the suite's shapes, but batches, of which nothing can be tuned: the budget is for tuning a plan,
/// and for the turns as well.
TunedResults RunTuned(const Request& request, const verify::Progress& progress);

/// A table for each ISA with the geometric mean of the ratios, how many choices were wrong, and the worst.
std::string ToText(const TunedResults& results);
/// schema "intact-bench-tune"; schema_version 1; version; suite; weights; machine, as in report.json; rows[]:
/// isa, m, n, k, conv, batch, dynamic and times as in bench.json (report.h), error ("" or why it was not
/// measured), model and tuned (what runs), model_microseconds, tuned_microseconds, ratio.
nlohmann::ordered_json ToJson(const TunedResults& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_TUNING_H_
