// The whole table, measured in a process for each row: a peer can be confined to an ISA only once in a
// process.
#ifndef INTACT_BENCH_RUN_H_
#define INTACT_BENCH_RUN_H_

#include <intact/intact.hpp>
#include <optional>
#include <vector>

#include "bench/measure.h"
#include "bench/suites.h"
#include "core/isas.h"
#include "verify/sweep/sweep.h"

namespace intact::bench {

struct Request {
  const Suite* suite = nullptr;
  std::optional<Weights> weights;  // nothing: what each layer's default is
  std::vector<core::Isa> isas;     // at least one; weakest first
  Seconds budget{0.25};            // for the turns of a row

  Weights WeightsFor(const Layer& layer) const { return weights.value_or(DefaultWeights(layer)); }
};

/// An error if this machine's peaks cannot be measured; what else goes wrong is told in the results.
Result<Results> Run(const Request& request, const verify::Progress& progress);

}  // namespace intact::bench
#endif  // INTACT_BENCH_RUN_H_
