// How evenly runs on many threads are cut, computed and not measured: from the shares that the plans of this
// machine's ISAs cut (kernels/plans/share.h), for numbers of threads that the machine need not have.
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

/// The cut of a run for `threads` threads.
struct Balance {
  int threads = 1;
  int used = 0;             // threads that have any work
  double of_used = 0;       // the mean work of these over the largest
  double efficiency = 0;    // the work of a run on one thread over `threads` times the largest: idle threads
                            // count, and what tiles cost more that are cut smaller
  double shared_lines = 0;  // the share of C's cache lines that several threads write
};

/// Of m×n outputs, dense from the begin of a cache line on. `single`: the work of a run on one thread.
Balance BalanceOf(std::span<const kernels::Share> shares, int threads, double single, int64_t m,
                  int64_t element_bytes, int64_t n);

/// A line for each layer of the suite but batches, the worst of them, and how many are below 0.85: by the
/// threads that have work, and by all.
Result<std::string> BalanceTable(const Request& request, core::Isa isa);

}  // namespace intact::bench
#endif  // INTACT_BENCH_BALANCE_H_
