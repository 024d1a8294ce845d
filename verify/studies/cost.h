// What exactness costs or gains on this CPU: a layer's GEMM or convolution, its own epilogue and number of
// rows included, in exact mode against the saturating kernels that it replaces, on one thread.
//
//   ISA without VNNI    saturating; exact; exact with activations declared to be 7 bits wide, which is what
//                       reduce_range promises, where the layer's activations and zero point keep the promise
//   VNNI and AMX        exact alone: the saturating mode is the same kernel
//
// Every output is compared with its model's, byte for byte, before it is timed. The contenders of an ISA take
// turns, so that a change of the clock rate meets all of them alike; a turn is a run that brings the weights
// into the caches and one that is timed; the median of the turns counts, and their spread is told beside it.
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

/// Of some turns.
struct Time {
  double microseconds = 0;  // median
  double spread = 0;        // interquartile range over the median
};

struct Timing {
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  bool seven_bits = false;              // activations declared to lie in [0, 127]; checked at run time
  std::string kernel;                   // the plan's main one; a run of few rows may take another
  intact_certificate certificate = {};  // for the activation range; 0 items where no schedule is run
  /// What the plan's schedule has, which runs of few rows may do without; nothing if there is none.
  std::optional<double> ItemsPerQuad() const;
  std::optional<double> GroupsPerQuad() const;
  std::optional<Time> time;  // nothing: the output was wrong, and is not timed
};

struct Cost {
  std::string layer;
  int64_t m = 0, n = 0, k = 0;  // of a convolution: output pixels, output channels, taps × a group's channels
  std::string why_not_seven_bits;  // "" if the layer keeps to 7 bits
  std::vector<Timing> timings;     // ISAs of this machine, weakest first; in the order above

  bool AllRight() const;
  /// The weights' certificate for all activations of the type; nullptr if this machine runs nothing.
  const intact_certificate* FullRangeCertificate() const;
  /// nullptr if that was not run.
  const Timing* Find(intact_isa isa, intact_mode mode, bool seven_bits) const;
  /// How many times as fast as the saturating kernel of the same ISA.
  std::optional<double> SpeedUp(const Timing& timing) const;
};

/// A way to compute an output, and the bytes that it must give.
struct Contender {
  std::function<intact_status(uint8_t* output)> run;
  std::span<const uint8_t> expected;
};

/// The time of each contender, of some 5 ms of turns in all; nothing for those whose output is wrong.
std::vector<std::optional<Time>> Race(std::span<const Contender> contenders);

/// The saturating kernels and the certificates have the layer's own pairing. Errors are those of creating a
/// plan.
Result<Cost> MeasureCost(const Layer& layer);

/// The costs of the built-in layers, and of two of a size that networks have: 128×768×768, Laplace weights,
/// 8-bit and 7-bit activations.
Result<std::vector<Cost>> MeasureBuiltinCosts();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_COST_H_
