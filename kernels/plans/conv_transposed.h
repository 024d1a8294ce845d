// A transposed convolution as several ordinary ones, so that no multiplications by inserted zeros are
// computed.
//
// With tap k, output o reads input (o + pad_begin − k·dilation) / stride, if that is an integer. So in each
// dimension the outputs fall into *phases*, o mod stride, and all outputs of a phase have the same taps:
// every stride/g-th tap, g = gcd(stride, dilation). A phase is a convolution of stride 1 with these taps in
// reverse. Its outputs lie stride apart:
//
//   kernel 4, stride 2, pad 1         taps         inputs
//     output 0 2 4 …  (phase 0)       3, 1         i − 1, i
//     output 1 3 5 …  (phase 1)       2, 0         i, i + 1
//
// Each tap belongs to one phase. So there are no more phases than taps, and no weight is stored twice. If no
// tap belongs to a residue o mod stride, pixels of this residue are *bare*: their accumulator is the bias.
//
// In saturating mode, taps that a phase leaves out count as padding: clamping changes the sum of their pairs
// by a constant per column, their *excess*.
#ifndef INTACT_KERNELS_PLANS_CONV_TRANSPOSED_H_
#define INTACT_KERNELS_PLANS_CONV_TRANSPOSED_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/plans/unit_plan.h"
#include "kernels/problem/conv_geometry.h"
#include "kernels/problem/output_grid.h"
#include "kernels/staging/band.h"

namespace intact::kernels {

/// An ordinary convolution that computes a part of a transposed convolution's output.
struct ConvPhase {
  ConvGeometry geometry;
  OutputGrid grid;
  std::vector<int64_t> taps;  // [tap of the phase]: number of the caller's tap
};

/// The phases of a transposed convolution with known extents, at most one for each tap. Phases without taps
/// or outputs are left out.
std::vector<ConvPhase> PhasesOf(const ConvGeometry& transposed);

/// The weights of `taps`, [output channel][tap][channel], in the caller's type.
std::vector<int8_t> WeightsOf(const std::vector<int64_t>& taps, const ConvGeometry& transposed,
                              const WeightView& weights);

/// What clamping adds to accumulators in saturating mode if taps read padding: the sum of clamp(p) − p over a
/// tap's pair sums p, computed with the zero point as activations. 0 in exact mode.
class PaddingExcess {
 public:
  /// `zero_point`: the value of padding after the u8 shift.
  PaddingExcess(const ConvGeometry& geometry, const LinearProblem& problem, const WeightView& weights,
                int32_t zero_point);
  /// The excess of all taps except `taps`, for each output channel; empty in exact mode.
  std::vector<int64_t> WithoutTaps(const std::vector<int64_t>& taps) const;

 private:
  std::vector<int64_t> tap_excess_;  // [tap][output channel]; empty in exact mode
  std::vector<int64_t> all_taps_;    // [output channel]: the sum over all taps; empty in exact mode
};

/// LinearProblem::clamp_excess of all taps except `taps`, from the excess for each zero point; empty in exact
/// mode.
std::vector<std::vector<int64_t>> ExcessWithoutTaps(const std::vector<PaddingExcess>& of_zero_points,
                                                    const std::vector<int64_t>& taps);

/// The plan of bare pixels, for any extents. Its depth is 1, and its weights equal their zero points, so
/// products add nothing. The clamp_excess of `problem` is the excess of all taps.
Result<std::unique_ptr<UnitPlan>> MakeBarePlan(LinearProblem problem, core::Isa isa);

/// The bare pixels of an output.
class BarePixels {
 public:
  /// All extents of `transposed` are known. `plan` computes the pixels, and must outlive this object.
  BarePixels(const ConvGeometry& transposed, const UnitPlan& plan);

  /// Whether the phases leave any pixels of the output bare.
  static bool Has(const ConvGeometry& transposed, const std::vector<ConvPhase>& phases);

  /// The maximum number of shares that have pixels.
  int64_t Parts(int64_t batch) const { return batch * geometry_.output[kDepth] * geometry_.output[kHeight]; }
  /// The engine for all runs.
  const Engine& EngineOf() const { return plan_.engines().For(geometry_.output[kWidth]); }
  /// Scratch that a part needs, aligned to 64 bytes.
  int64_t ScratchBytes(const Engine& engine) const {
    return plan_.ShareBytes(engine, geometry_.output[kWidth]);
  }
  /// Generates the kernels for RunShare().
  Error PrepareRows(const Engine& engine) const;
  const UnitPlan& plan() const { return plan_; }
  /// `columns`: from KernelData::MakePerRunColumnConstants(); null for the plan's own. `output`: the caller's pixels.
  void RunShare(const Engine& engine, const ConvInput& input, const PerRunColumnConstants* columns,
                const OutputMap& output, int64_t batch, int part, int parts, uint8_t* scratch) const;

 private:
  /// Calls run(pixel, step, count) for a part's bare pixels: `count` pixels from `pixel` on, `step` apart.
  template <class Run>
  void ForEachRun(int64_t batch, int64_t part, int64_t parts, const Run& run) const;
  bool HasTaps(Dimension dimension, int64_t output) const;

  ConvGeometry geometry_;
  const UnitPlan& plan_;
  std::array<std::vector<int64_t>, INTACT_MAX_SPATIAL> residues_;  // residues that have taps, ascending
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_TRANSPOSED_H_
