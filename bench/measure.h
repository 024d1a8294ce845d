// How the table's measurements are taken.
//
// A row is one shape on one ISA: intact and the peers, with s32 and with u8 output, the instruction peak and
// the read bandwidth take turns in one process, on one thread, and medians count. A turn of a contender is a
// run that brings its operands into the caches and runs that are timed. Nothing is timed that has not been
// recognised as what the reference, or for a peer also the triple model, computes.
#ifndef INTACT_BENCH_MEASURE_H_
#define INTACT_BENCH_MEASURE_H_

#include <chrono>
#include <intact/intact.hpp>
#include <memory>
#include <vector>

#include "bench/contender.h"
#include "bench/results.h"
#include "bench/suites.h"
#include "verify/sweep.h"

namespace intact::bench {

/// A case, and who runs it or why nobody does.
struct Entrant {
  Case what;
  Result<std::unique_ptr<Contender>> contender;
};

/// Checks `entrants`, whose cases are of one shape and ISA, and measures those that are right.
Result<Row> MeasureRow(const Workload& workload, std::vector<Entrant> entrants,
                       std::chrono::duration<double> budget);

struct Plan {
  const Suite* suite = nullptr;
  Weights weights = kLaplace;
  std::vector<jit::Isa> isas;
  std::chrono::duration<double> budget{0.25};  // for the turns of a row
};

/// The whole table, a process for each row. An error if this machine's peaks cannot be measured; what else
/// goes wrong is told in the results.
Result<Results> MeasureAll(const Plan& plan, const verify::Progress& progress);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_H_
