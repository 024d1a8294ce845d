// What exactness costs or gains on this CPU. Times a layer's GEMM or convolution in exact mode and in
// saturating mode, with the layer's epilogue and number of rows, on one thread.
//
//   ISA without VNNI    saturating; exact; exact with an activation range of 7 bits (as with reduce_range),
//                       if the layer's activations and zero point are within 7 bits
//   VNNI and AMX        only exact: the saturating mode uses the same kernel
//
// Before a plan is timed, its output is compared byte for byte with the reference model's output. The
// contenders of an ISA take turns, so that a change of the clock rate affects all contenders equally. A turn
// is one run that brings the weights into the caches, and one timed run. The result is the median over the
// turns; the spread of the turns is reported too.
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

/// The time of a run, measured in several turns.
struct Time {
  double microseconds = 0;  // median
  double spread = 0;        // interquartile range over the median
};

struct Timing {
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  bool seven_bits = false;              // activation range [0, 127]; checked at run time
  std::string kernel;                   // the plan's main kernel; a run of few rows may use another
  intact_certificate certificate = {};  // for the activation range; 0 items if there is no schedule
  /// Sizes of the plan's schedule; nullopt without a schedule. Runs of few rows may use another kernel.
  std::optional<double> ItemsPerQuad() const;
  std::optional<double> GroupsPerQuad() const;
  std::optional<Time> time;  // nullopt: the output was wrong, so the plan was not timed
};

struct Cost {
  std::string layer;
  int64_t m = 0, n = 0, k = 0;  // of a convolution: output pixels, output channels, taps × a group's channels
  std::string why_not_seven_bits;  // "" if activations and zero point are within 7 bits
  std::vector<Timing> timings;     // by ISA, weakest first; of an ISA in the order of the table above

  bool AllRight() const;
  /// The weights' certificate for all activations of the type; nullptr if there are no timings.
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

/// Times each contender. All turns together take about 5 ms. nullopt for a contender with wrong output.
std::vector<std::optional<Time>> Race(std::span<const Contender> contenders);

/// The saturating kernels and the certificates use the layer's own pairing. Returns an error if a plan cannot
/// be created.
Result<Cost> MeasureCost(const Layer& layer);

/// The costs of the built-in layers, and of two layers of a size common in networks: 128×768×768, Laplace
/// weights, one with 8-bit activations, one with 7-bit activations.
Result<std::vector<Cost>> MeasureBuiltinCosts();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_COST_H_
