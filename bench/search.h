// A search for traps: random problems, each beside its neighbours. A neighbour differs in one extent (by 1, or
// by a factor of 2), lacks one option (quantization, runtime B, a layout, a post-operation, …), has another
// element type, or has a weaker ISA.
//
// A problem is a trap if it takes more than kLimit times as long as its neighbour, or more than kLimitOfIsas
// times as long as on a weaker ISA. If the problem multiplies more, or reads and writes more, the neighbour's
// time is first multiplied by the larger of the two ratios. A trap is reduced to the smallest problem that is
// one, and measured again.
#ifndef INTACT_BENCH_SEARCH_H_
#define INTACT_BENCH_SEARCH_H_

#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measure.h"
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

/// Prepares a problem. The measurement returns microseconds per run.
using Stopwatch = std::function<Result<support::Measurement>(const verify::Problem&)>;
/// The stopwatch for runs of intact. It does not check the results of runs: the random sweep does.
Result<support::Measurement> TimeRuns(const verify::Problem& problem);

/// A problem and a neighbour that is faster.
struct Finding {
  verify::Problem slow, fast;
  double microseconds = 0;  // medians of turns
  double neighbour_microseconds = 0;
  double work = 1;   // the ratio of their work, at least 1: `slow` may take so many times as long
  double ratio = 0;  // of the times, over `work`; the median of turns
};

struct SearchRequest {
  std::vector<core::Isa> isas;  // of the problems, at least one
  Seconds time{60};
  uint64_t seed = 1;
};

struct SearchResults {
  support::Machine machine;
  uint64_t seed = 1;
  int64_t problems = 0, neighbours = 0;  // that were measured
  std::vector<Finding> findings;         // different, the smallest problem first
};

/// The multiplications of a problem, without the zeros around an input and between its pixels.
double Products(const verify::Problem& problem);

SearchResults Search(const SearchRequest& request, const Stopwatch& stopwatch,
                     const verify::Progress& progress);

/// A table with two lines for each finding: the problem and its neighbour.
std::string ToText(const SearchResults& results);
/// schema "intact-bench-search"; schema_version 1; version; machine, as in report.json; seed; problems;
/// neighbours; findings[]: slow and fast (problem lines), microseconds, neighbour_microseconds, work, ratio.
nlohmann::ordered_json ToJson(const SearchResults& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_SEARCH_H_
