// How evenly the work of a run is divided among threads. This is computed, not measured: from the shares of
// plans for this machine's ISAs (kernels/plans/share.h). The machine need not have that number of threads.
#ifndef INTACT_BENCH_BALANCE_H_
#define INTACT_BENCH_BALANCE_H_

#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <span>
#include <string>

#include "bench/run.h"
#include "core/isas.h"
#include "kernels/plans/share.h"

namespace intact::bench {

inline constexpr std::array kBalanceThreads = {2, 8, 32, 64, 128};

/// The division of a run for `threads` threads.
struct Balance {
  int threads = 1;
  int used = 0;             // threads that have any work
  double of_used = 0;       // mean work of these threads over the largest work
  double efficiency = 0;    // the work of a run on one thread over `threads` times the largest work: includes
                            // idle threads, and the extra cost of smaller tiles
  double shared_lines = 0;  // the share of C's cache lines that several threads write
};

/// For m×n dense outputs that begin at a cache line. `single`: the work of a run on one thread.
Balance BalanceOf(std::span<const kernels::Share> shares, int threads, double single, int64_t m,
                  int64_t element_bytes, int64_t n);

/// A line for each layer of the suite except batches. Then the worst figure and the number of layers below
/// 0.85, for threads that have work and for all threads.
Result<std::string> BalanceTable(const Request& request, core::Isa isa);

}  // namespace intact::bench
#endif  // INTACT_BENCH_BALANCE_H_
