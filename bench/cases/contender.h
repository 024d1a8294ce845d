// A contender computes a case: intact, or a peer. It packs the weights when it is made, and runs many times.
#ifndef INTACT_BENCH_CASES_CONTENDER_H_
#define INTACT_BENCH_CASES_CONTENDER_H_

#include <chrono>
#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>

#include "bench/cases/case.h"

namespace intact::bench {

using Seconds = std::chrono::duration<double>;

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
  /// The type that a peer rounds the scales of blocks of A to.
  virtual intact_type BlockScaleType() const { return INTACT_F32; }
};

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASES_CONTENDER_H_
