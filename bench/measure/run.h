// The whole table. Each row is measured in its own process: a peer can be confined to an ISA only once per
// process.
#ifndef INTACT_BENCH_MEASURE_RUN_H_
#define INTACT_BENCH_MEASURE_RUN_H_

#include <intact/intact.hpp>
#include <optional>
#include <vector>

#include "bench/cases/suites.h"
#include "bench/measure/measure.h"
#include "core/isas.h"
#include "support/deadline.h"
#include "verify/sweep/sweep.h"

namespace intact::bench {

struct Request {
  Suite suite;
  std::optional<Weights> weights;  // nothing: each layer's default
  std::vector<core::Isa> isas;     // at least one; weakest first
  Seconds budget{0.25};            // for the turns of a row
  support::Deadline deadline;      // no row is begun after it

  Weights WeightsFor(const Layer& layer) const { return weights.value_or(DefaultWeights(layer)); }
};

/// An error if this machine's read bandwidth cannot be measured. The results report all other failures.
Result<Results> Run(const Request& request, const verify::Progress& progress);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_RUN_H_
