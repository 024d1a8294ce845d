// How the table's measurements are taken: on one thread, in this process or in a peer's own.
//
// A row is one shape on one ISA. Intact and the peers, in all formats, the instruction peak and the read
// bandwidth take turns; results are medians. A turn of a contender is a run that brings its operands into the
// caches, then timed runs. A contender is timed only if its results equal the reference's. A peer's results
// may equal the maddubs model's instead.
#ifndef INTACT_BENCH_MEASURE_MEASURE_H_
#define INTACT_BENCH_MEASURE_MEASURE_H_

#include <chrono>
#include <functional>
#include <intact/intact.hpp>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "bench/cases/contender.h"
#include "bench/cases/workload.h"
#include "bench/report/results.h"
#include "core/isas.h"
#include "support/turns.h"

namespace intact::bench {

/// A case, its workload, and its contender or why there is no contender.
struct Entrant {
  Case what;
  const Workload* workload;
  Result<std::unique_ptr<Contender>> contender;
};

/// As in Timing::contender.
std::string NameOf(const Case& c);

/// A contender that failed while it was timed.
class ContenderFailed : public std::runtime_error {
 public:
  ContenderFailed(std::string name, const std::string& why)
      : std::runtime_error(why), name_(std::move(name)) {}
  /// As in Timing::contender.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// A row with the shape and ISA of `c`, and no measurements.
Row EmptyRow(const Case& c);

/// The timing of `entrant` with the model that its outputs equal, but without times.
Timing Check(const Entrant& entrant);

/// Long enough for several runs: caches must hold this contender's data, not the data of the turn before.
/// Victim caches need more than one pass to hold a matrix.
inline constexpr Seconds kShortestTurn(4e-3);

/// Makes a number of calls, and returns the mean time of a call in microseconds.
using TimedCalls = std::function<double(int64_t calls)>;
/// A turn: one call that brings the operands into the caches, one that is timed to count the others, then calls
/// for about `shortest` or longer. It measures microseconds per call.
support::Measurement TurnOf(TimedCalls microseconds, Seconds shortest);
/// A turn of `entrant`, which writes to `c`. It measures microseconds per run, or throws
/// ContenderFailed.
support::Measurement TurnOf(const Entrant& entrant, uint8_t* c);

/// Checks `entrants`, and measures the correct ones for `budget`, or for a few turns if that takes longer.
/// Their cases are of one ISA and of one shape, except that the type of a batch's Bs may differ. An error if
/// there is no memory for the buffer of the read bandwidth. Throws ContenderFailed.
Result<Row> MeasureRow(std::span<const Entrant> entrants, Seconds budget);

/// `tiny` has kTinyShape, `large` has kThreadsShape.
FirstCall MeasureFirstCall(const Workload& tiny, const Workload& large, core::Isa isa, Seconds budget);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_MEASURE_H_
