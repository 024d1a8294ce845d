// Who computes a case: intact, or a peer. Weights are packed when a contender is made; it runs many times.
#ifndef INTACT_BENCH_CONTENDER_H_
#define INTACT_BENCH_CONTENDER_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>

#include "bench/case.h"

namespace intact::bench {

class Workload;

class Contender {
 public:
  Contender() = default;
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;

  /// The name of what runs, as its library tells it.
  virtual std::string Implementation() const = 0;
  /// What the cost model of intact would run, where measurement chose otherwise; else "".
  virtual std::string Replaced() const { return {}; }
  /// C from A (or a convolution's output from its input), both dense. False if it failed.
  virtual bool Run(const uint8_t* a, uint8_t* c) = 0;
};

/// The contender that `c` names, on the weights of `workload`, which outlives it. UNSUPPORTED where it cannot
/// run `c` on exactly c.isa. `tuning_milliseconds`: the budget of plans that are tuned.
Result<std::unique_ptr<Contender>> MakeContender(const Workload& workload, const Case& c,
                                                 double tuning_milliseconds = 100);

/// How intact is asked for `c`, a GEMM or a convolution.
GemmDesc GemmDescOf(const Workload& workload, const Case& c);
ConvDesc ConvDescOf(const Workload& workload, const Case& c);

}  // namespace intact::bench
#endif  // INTACT_BENCH_CONTENDER_H_
