// A search for traps: it compares random problems with their neighbours. A neighbour differs in one extent
// (by 1, or by a factor of 2), lacks one option (quantization, runtime B, a layout, a post-operation, …), has
// another element type, or has a weaker ISA.
//
// A problem is a trap if it takes more than kLimit times as long as its neighbour, or more than kLimitOfIsas
// times as long as on a weaker ISA. If the problem multiplies more, or reads and writes more, the neighbour's
// time is first multiplied by the larger of the two ratios. A trap is reduced for up to half a second to a
// smaller problem that is a trap too, and measured again.
//
// The search does not know caches: if a neighbour's tensors fit in a cache and the problem's do not, this
// step from one cache to the next may be reported as a trap.
#ifndef INTACT_BENCH_MEASURE_SEARCH_H_
#define INTACT_BENCH_MEASURE_SEARCH_H_

#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measure/measure.h"
#include "core/isas.h"
#include "support/machine.h"
#include "support/turns.h"
#include "verify/problem/problem.h"
#include "verify/sweep/sweep.h"

namespace intact::bench {

inline constexpr double kLimit = 2;
inline constexpr double kLimitOfIsas = 1.3;
/// The least time that a trap loses: the fixed costs of two calls may differ by less.
inline constexpr double kLeastMicroseconds = 1;

/// Prepares a problem. The measurement returns microseconds per run, in a turn of `shortest` or longer.
using Stopwatch =
    std::function<Result<support::Measurement>(const verify::Problem& problem, Seconds shortest)>;
/// The stopwatch for runs of intact. It does not check the results of runs: the random sweep does.
Result<support::Measurement> TimeRuns(const verify::Problem& problem, Seconds shortest);

/// A problem and a neighbour that is faster.
struct Finding {
  verify::Problem slow, fast;
  double microseconds = 0;  // medians of turns
  double neighbour_microseconds = 0;
  double work = 1;   // at least 1: the factor by which `slow` may take longer
  double ratio = 0;  // of the times, over `work`; the median of turns
};

struct SearchRequest {
  std::vector<core::Isa> isas;  // of the problems, at least one
  Seconds time{60};
  uint64_t seed = 1;
  /// The search ends after `time` or after this number of problems.
  int64_t problems = std::numeric_limits<int64_t>::max();
  Seconds reduction{0.5};  // the longest time in which a trap is reduced
};

struct SearchResults {
  support::Machine machine;
  uint64_t seed = 1;
  int64_t problems = 0, neighbours = 0;  // that were measured
  /// Problems and neighbours that could not be measured, except UNSUPPORTED ones.
  int64_t errors = 0;
  std::string first_error;        // the problem line and the message
  std::vector<Finding> findings;  // different, the smallest problem first

  bool AllRight() const { return problems > 0 && errors == 0; }
};

/// The multiplications of a problem, without the zeros around an input and between its pixels.
double Products(const verify::Problem& problem);

SearchResults Search(const SearchRequest& request, const Stopwatch& stopwatch,
                     const verify::Progress& progress);

/// A table with two lines for each finding: the problem and its neighbour.
std::string ToText(const SearchResults& results);
/// schema "intact-bench-search"; schema_version 1; version; machine, as in report.json; seed; problems;
/// neighbours; errors; first_error, if there is one; findings[]: slow and fast (problem lines), microseconds,
/// neighbour_microseconds, work, ratio.
nlohmann::ordered_json ToJson(const SearchResults& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_SEARCH_H_
