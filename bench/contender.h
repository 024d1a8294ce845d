// A contender computes a case: intact, or a peer. It packs the weights when it is made, and runs many times.
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

  /// The kernel's name, as reported by its library.
  virtual std::string Implementation() const = 0;
  /// The kernel that intact's cost model would run, if tuning chose another; else "".
  virtual std::string Replaced() const { return {}; }
  /// Computes C from A (or a convolution's output from its input), both dense. Returns false if it failed.
  /// Throws std::runtime_error if it knows why.
  virtual bool Run(const uint8_t* a, uint8_t* c) = 0;
  /// Runs `times` times, and returns the mean time of a run. Throws std::runtime_error if this fails.
  virtual double Microseconds(const uint8_t* a, uint8_t* c, int64_t times);
};

/// A contender that multiplies f32 activations by grouped weights. C is f32. A and C have memory for the
/// largest number of rows.
class GroupedContender : public Contender {
 public:
  /// The next runs compute the first `m` rows.
  virtual void SetRows(int64_t m) = 0;
};

/// The contender that `c` names, with the weights of `workload`. `workload` must outlive the contender.
/// UNSUPPORTED if it cannot run `c` on exactly c.isa. `tuning_milliseconds`: the budget to tune a plan, if
/// c.is_tuned.
Result<std::unique_ptr<Contender>> MakeContender(const Workload& workload, const Case& c,
                                                 double tuning_milliseconds = 100);

/// The description of `c`, a GEMM or a convolution, for intact.
GemmDesc GemmDescOf(const Workload& workload, const Case& c);
ConvDesc ConvDescOf(const Workload& workload, const Case& c);

}  // namespace intact::bench
#endif  // INTACT_BENCH_CONTENDER_H_
