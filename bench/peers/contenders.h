// Makes the contender of a case: intact, or a peer.
#ifndef INTACT_BENCH_PEERS_CONTENDERS_H_
#define INTACT_BENCH_PEERS_CONTENDERS_H_

#include <intact/intact.hpp>
#include <memory>

#include "bench/cases/case.h"
#include "bench/cases/contender.h"
#include "bench/cases/workload.h"

namespace intact::bench {

/// The contender that `c` names, with the weights of `workload`. `workload` must outlive the contender.
/// UNSUPPORTED if it cannot run `c` on exactly c.isa. `tuning_milliseconds`: the budget to tune a plan, if
/// c.is_tuned.
Result<std::unique_ptr<Contender>> MakeContender(const Workload& workload, const Case& c,
                                                 double tuning_milliseconds = 100);

/// The description of `c`, a GEMM or a convolution, for intact.
GemmDesc GemmDescOf(const Workload& workload, const Case& c);
ConvDesc ConvDescOf(const Workload& workload, const Case& c);

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_CONTENDERS_H_
