// How the table's measurements are taken: in this process and on one thread.
//
// A row is one shape on one ISA: intact and the peers, in all formats, the instruction peak and the read
// bandwidth take turns, and medians count. A turn of a contender is a run that brings its operands
// into the caches, then runs that are timed. Nothing is timed that has not been recognised as what the
// reference, or for a peer also the maddubs model, computes.
#ifndef INTACT_BENCH_MEASURE_H_
#define INTACT_BENCH_MEASURE_H_

#include <chrono>
#include <intact/intact.hpp>
#include <memory>
#include <span>

#include "bench/contender.h"
#include "bench/results.h"
#include "core/isas.h"

namespace intact::bench {

using Seconds = std::chrono::duration<double>;

/// A case, what it computes on, and who runs it or why nobody does.
struct Entrant {
  Case what;
  const Workload* workload;
  Result<std::unique_ptr<Contender>> contender;
};

/// Shape and ISA of `c`, nothing measured.
Row EmptyRow(const Case& c);

/// Checks `entrants`, whose cases are of one shape, but for the type of a batch's Bs, and one ISA, and
/// measures those that are right, for `budget` or a few turns. An error if there is no memory for the read
/// bandwidth.
Result<Row> MeasureRow(std::span<const Entrant> entrants, Seconds budget);

/// `tiny` is of kTinyShape, `large` of kThreadsShape.
FirstCall MeasureFirstCall(const Workload& tiny, const Workload& large, core::Isa isa, Seconds budget);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_H_
