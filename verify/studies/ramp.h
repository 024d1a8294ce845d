// The ramp: a linear layer probed with constant inputs. All activations of a row have one value, so each
// exact output is a straight line over this value. The line rises if the column's weights have a positive
// sum, and falls if the sum is negative. After rounding it is still monotonic. A step in the wrong direction
// is a *kink*. Kinks show saturation to users without a reference. Each kink is attributed to the pairs that
// clamp at its step.
#ifndef INTACT_VERIFY_STUDIES_RAMP_H_
#define INTACT_VERIFY_STUDIES_RAMP_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <string>
#include <vector>

#include "verify/explain/compare.h"
#include "verify/studies/layer.h"

namespace intact::verify {

/// A step from row m − 1 to row m in the wrong direction.
struct Kink {
  int64_t m = 0, n = 0;
  int32_t activation_before = 0, activation = 0;
  int32_t output_before = 0, output = 0;
  bool explained = false;  // the maddubs model predicts both outputs, and pairs clamp at one of them
  std::vector<SaturatedPair> pairs;  // of row m, or of m − 1 if row m has none; at most kMaxPairsListed
  int64_t pair_count = 0;
};

struct Ramp {
  std::string layer;
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  int64_t steps = 0;  // the number of rows
  int64_t columns = 0;
  std::vector<Kink> kinks;
  std::vector<int32_t> activations;     // the activation of each step
  std::vector<int32_t> outputs, exact;  // steps×columns: the kernel's outputs, the reference's outputs

  int64_t NonMonotonic() const { return static_cast<int64_t>(kinks.size()); }
  int64_t ColumnsWithKinks() const;
  /// The column with the most kinks, which pictures show.
  int64_t ShownColumn() const;
  int64_t Unexplained() const;
  /// Whether there are no kinks. If the mode saturates on this ISA: whether all kinks are explained.
  bool Passed() const;
};

/// `layer` as a ramp: its activations are replaced by a constant row for every value of their type, unless
/// `layer` is a ramp already. An error if layer.json calls `layer` a ramp and a row is not constant. Also an
/// error if `layer` is not linear, or has a residual, dynamic activations or outputs that are not 8-bit.
Result<Layer> AsRamp(Layer layer);

/// The kinks in `output`, the bytes of a ramp's output (u8 or s8).
Ramp FindKinks(const Layer& ramp, const std::vector<uint8_t>& output);

/// Runs a ramp on `target` and finds its kinks; `isa` ANY = the target's choice.
Result<Ramp> RunRamp(const Target& target, const Layer& ramp, intact_mode mode, intact_isa isa);
/// Runs a ramp on our own kernels and finds its kinks; `isa` ANY = the best ISA here.
Result<Ramp> RunRamp(const Layer& ramp, intact_mode mode, intact_isa isa);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_RAMP_H_
