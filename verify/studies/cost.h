// What exactness costs or gains on this CPU: a layer's GEMM or convolution, with its own epilogue and number
// of rows, in exact mode against the saturating kernels that it replaces, on one thread.
//
//   ISA without VNNI    saturating; exact; exact with an activation range of 7 bits, which
//                       reduce_range promises, if the layer's activations and zero point keep the promise
//   VNNI and AMX        only exact: the saturating mode uses the same kernel
//
// Every output is compared with its model's, byte for byte, before it is timed. The contenders of an ISA take
// turns, so that a change of the clock rate affects all contenders equally. A turn is one run that brings the
// weights into the caches, and one timed run. The result is the median over the turns; the spread of the
// turns is reported too.
#ifndef INTACT_VERIFY_STUDIES_COST_H_
#define INTACT_VERIFY_STUDIES_COST_H_

#include <intact/intact.h>

#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verify/studies/layer.h"

namespace intact::verify {

/// The time over several turns.
struct Time {
  double microseconds = 0;  // median
  double spread = 0;        // interquartile range over the median
};

struct Timing {
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  bool seven_bits = false;              // activation range [0, 127]; checked at run time
  std::string kernel;                   // the plan's main kernel; a run of few rows may use another
  intact_certificate certificate = {};  // for the activation range; 0 items if no schedule is run
  /// Sizes of the plan's schedule, which runs of few rows may not use; nullopt if there is none.
  std::optional<double> ItemsPerQuad() const;
  std::optional<double> GroupsPerQuad() const;
  std::optional<Time> time;  // nullopt: the output was wrong, so it was not timed
};

struct Cost {
  std::string layer;
  int64_t m = 0, n = 0, k = 0;  // of a convolution: output pixels, output channels, taps × a group's channels
  std::string why_not_seven_bits;  // "" if the layer keeps to 7 bits
  std::vector<Timing> timings;     // ISAs of this machine, weakest first; in the order above

  bool AllRight() const;
  /// The weights' certificate for all activations of the type; nullptr if this machine runs nothing.
  const intact_certificate* FullRangeCertificate() const;
  /// nullptr if there is no such timing.
  const Timing* Find(intact_isa isa, intact_mode mode, bool seven_bits) const;
  /// Speed relative to the saturating kernel of the same ISA.
  std::optional<double> SpeedUp(const Timing& timing) const;
};

/// A way to compute an output, and the bytes that it must give.
struct Contender {
  std::function<intact_status(uint8_t* output)> run;
  std::span<const uint8_t> expected;
};

/// The time of each contender, over about 5 ms of turns in all; nullopt if its output is wrong.
std::vector<std::optional<Time>> Race(std::span<const Contender> contenders);

/// The saturating kernels and the certificates use the layer's own pairing. Errors are those of creating a
/// plan.
Result<Cost> MeasureCost(const Layer& layer);

/// The costs of the built-in layers, and of two larger ones, as networks have: 128×768×768, Laplace weights,
/// 8-bit and 7-bit activations.
Result<std::vector<Cost>> MeasureBuiltinCosts();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_COST_H_
