#include "kernels/plans/conv_transposed.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/dispatch.h"

namespace intact::kernels {
namespace {

// A phase in one dimension: taps first_tap, first_tap + tap_step, …, and the extents of its convolution.
struct AxisPhase {
  int64_t first_tap = 0, tap_step = 1, taps = 1;
  int64_t dilation = 1, pad_begin = 0, pad_end = 0;
  int64_t residue = 0, outputs = 0;
};

int64_t Modulo(int64_t value, int64_t divisor) { return (value % divisor + divisor) % divisor; }

std::vector<AxisPhase> AxisPhasesOf(const ConvGeometry& geometry, Dimension dimension) {
  const int64_t stride = geometry.stride[dimension];
  const int64_t dilation = geometry.dilation[dimension];
  const int64_t kernel = geometry.kernel[dimension];
  const int64_t pad = geometry.pad_begin[dimension];
  const int64_t tap_step = stride / std::gcd(stride, dilation);
  std::vector<AxisPhase> phases;
  for (int64_t tap = 0; tap < std::min(kernel, tap_step); ++tap) {
    AxisPhase phase;
    phase.residue = Modulo(tap * dilation - pad, stride);
    if (phase.residue >= geometry.output[dimension]) continue;
    phase.outputs = (geometry.output[dimension] - 1 - phase.residue) / stride + 1;
    phase.first_tap = tap;
    phase.tap_step = tap_step;
    phase.taps = (kernel - 1 - tap) / tap_step + 1;
    if (phase.taps > 1) phase.dilation = tap_step * dilation / stride;
    // Output 0 of the phase reads input `last` with tap first_tap, which is the phase's last tap.
    const int64_t last = (phase.residue + pad - tap * dilation) / stride;
    const int64_t span = (phase.taps - 1) * phase.dilation;
    phase.pad_begin = span - last;
    phase.pad_end = phase.outputs + span - geometry.input[dimension] - phase.pad_begin;
    phases.push_back(phase);
  }
  return phases;
}

// The caller's taps of the phase with `axes` in the three dimensions.
std::vector<int64_t> TapsOf(const ConvGeometry& geometry,
                            const std::array<AxisPhase, INTACT_MAX_SPATIAL>& axes) {
  std::vector<int64_t> taps = {0};
  for (size_t i = 0; i < axes.size(); ++i) {
    std::vector<int64_t> longer;
    for (const int64_t outer : taps) {
      for (int64_t tap = axes[i].taps - 1; tap >= 0; --tap) {
        longer.push_back(outer * geometry.kernel[i] + axes[i].first_tap + tap * axes[i].tap_step);
      }
    }
    taps = std::move(longer);
  }
  return taps;
}

ConvPhase MakePhase(const ConvGeometry& transposed, const std::array<AxisPhase, INTACT_MAX_SPATIAL>& axes) {
  ConvPhase phase;
  phase.geometry = transposed;
  phase.geometry.is_transposed = false;
  phase.grid.step = transposed.stride;
  phase.grid.extents = transposed.output;
  for (size_t i = 0; i < axes.size(); ++i) {
    phase.geometry.kernel[i] = axes[i].taps;
    phase.geometry.stride[i] = 1;
    phase.geometry.dilation[i] = axes[i].dilation;
    phase.geometry.pad_begin[i] = axes[i].pad_begin;
    phase.geometry.pad_end[i] = axes[i].pad_end;
    phase.geometry.output[i] = axes[i].outputs;
    phase.grid.first[i] = axes[i].residue;
    phase.grid.count[i] = axes[i].outputs;
  }
  phase.taps = TapsOf(transposed, axes);
  return phase;
}

}  // namespace

std::vector<ConvPhase> PhasesOf(const ConvGeometry& transposed) {
  std::vector<ConvPhase> phases;
  for (const AxisPhase& depth : AxisPhasesOf(transposed, kDepth)) {
    for (const AxisPhase& height : AxisPhasesOf(transposed, kHeight)) {
      for (const AxisPhase& width : AxisPhasesOf(transposed, kWidth)) {
        phases.push_back(MakePhase(transposed, {depth, height, width}));
      }
    }
  }
  return phases;
}

std::vector<int8_t> WeightsOf(const std::vector<int64_t>& taps, const ConvGeometry& transposed,
                              const WeightView& weights) {
  const int64_t inputs = transposed.group_inputs();
  std::vector<int8_t> own;
  own.reserve(taps.size() * static_cast<size_t>(inputs * weights.n));
  for (int64_t column = 0; column < weights.n; ++column) {
    for (const int64_t tap : taps) {
      const int8_t* const from = weights.data + (column * transposed.taps() + tap) * inputs;
      own.insert(own.end(), from, from + inputs);
    }
  }
  return own;
}

// ----- padding that clamps ---------------------------------------------------------------------------------

PaddingExcess::PaddingExcess(const ConvGeometry& geometry, const LinearProblem& problem,
                             const WeightView& weights, int32_t zero_point) {
  if (problem.mode != INTACT_SATURATING) return;
  constexpr int64_t kMin = std::numeric_limits<int16_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int16_t>::max();
  const int64_t inputs = geometry.group_inputs();
  tap_excess_.resize(static_cast<size_t>(geometry.taps() * problem.n));
  all_taps_.resize(static_cast<size_t>(problem.n));
  for (int64_t column = 0; column < problem.n; ++column) {
    for (int64_t tap = 0; tap < geometry.taps(); ++tap) {
      int64_t& excess = tap_excess_[static_cast<size_t>(tap * problem.n + column)];
      for (int64_t i = tap * inputs; i + 1 < (tap + 1) * inputs; i += 2) {
        const int64_t sum = int64_t{zero_point} * (weights.At(i, column) + weights.At(i + 1, column));
        excess += std::clamp(sum, kMin, kMax) - sum;
      }
      all_taps_[static_cast<size_t>(column)] += excess;
    }
  }
}

std::vector<int64_t> PaddingExcess::WithoutTaps(const std::vector<int64_t>& taps) const {
  std::vector<int64_t> excess = all_taps_;
  for (const int64_t tap : taps) {
    for (size_t i = 0; i < excess.size(); ++i) {
      excess[i] -= tap_excess_[static_cast<size_t>(tap) * excess.size() + i];
    }
  }
  return excess;
}

std::vector<std::vector<int64_t>> ExcessWithoutTaps(const std::vector<PaddingExcess>& of_zero_points,
                                                    const std::vector<int64_t>& taps) {
  std::vector<std::vector<int64_t>> all;
  for (const PaddingExcess& excess : of_zero_points) {
    std::vector<int64_t> columns = excess.WithoutTaps(taps);
    if (columns.empty()) return {};
    PadColumns(&columns);
    all.push_back(std::move(columns));
  }
  return all;
}

// ----- bare pixels -----------------------------------------------------------------------------------------

Result<std::unique_ptr<UnitPlan>> MakeBarePlan(LinearProblem problem, core::Isa isa) {
  std::vector<int8_t> weights;
  for (int64_t n = 0; n < problem.n; ++n) {
    const auto neutral = static_cast<uint8_t>(problem.WeightZeroPoint(n));
    weights.push_back(static_cast<int8_t>(neutral ^ problem.b_shift()));
  }
  const WeightView view{weights.data(), 1, problem.n, problem.n, 1, problem.b_shift()};
  const bool pairs_saturate = PairsSaturate(isa, problem.mode);
  ASSIGN_OR_RETURN(auto packed, LinearWeights::Pack(std::move(problem), view,
                                                    {"output channel", "weights", 0, 0}, pairs_saturate));
  Taps taps;
  taps.depth = 1;
  ASSIGN_OR_RETURN(std::unique_ptr<UnitPlan> plan, UnitPlan::Create(std::move(packed), std::move(taps), isa));
  for (const Engine* const engine : plan->engines().Made()) RETURN_IF_ERROR(engine->FindSchedule(1));
  return plan;
}

bool BarePixels::Has(const ConvGeometry& transposed, const std::vector<ConvPhase>& phases) {
  const auto pixels = [](const Spatial& extents) { return extents[0] * extents[1] * extents[2]; };
  int64_t bare = pixels(transposed.output);
  for (const ConvPhase& phase : phases) bare -= pixels(phase.grid.count);
  return bare != 0;
}

BarePixels::BarePixels(const ConvGeometry& transposed, const UnitPlan& plan)
    : geometry_(transposed), plan_(plan) {
  for (const Dimension dimension : {kDepth, kHeight, kWidth}) {
    std::vector<int64_t>& residues = residues_[dimension];
    for (const AxisPhase& phase : AxisPhasesOf(transposed, dimension)) residues.push_back(phase.residue);
    std::sort(residues.begin(), residues.end());
  }
}

bool BarePixels::HasTaps(Dimension dimension, int64_t output) const {
  const std::vector<int64_t>& residues = residues_[dimension];
  return std::binary_search(residues.begin(), residues.end(), output % geometry_.stride[dimension]);
}

template <class Run>
void BarePixels::ForEachRun(int64_t batch, int64_t part, int64_t parts, const Run& run) const {
  const int64_t width = geometry_.output[kWidth];
  // A stride beyond the width reaches no other pixel of the line. Its product with the distance of pixels may
  // overflow.
  const int64_t stride = std::min<int64_t>(geometry_.stride[kWidth], width);
  const int64_t height = geometry_.output[kHeight];
  const int64_t lines = Parts(batch);
  parts = std::min(parts, lines);
  if (part >= parts) return;
  for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) {
    const int64_t first = line * width;
    if (!HasTaps(kHeight, line % height) || !HasTaps(kDepth, line / height % geometry_.output[kDepth])) {
      run(first, 1, width);
      continue;
    }
    for (int64_t x = 0; x < stride; ++x) {
      if (!HasTaps(kWidth, x)) run(first + x, stride, (width - 1 - x) / stride + 1);
    }
  }
}

Error BarePixels::PrepareRows(const Engine& engine) const {
  const int64_t width = geometry_.output[kWidth];
  const int64_t stride = std::min<int64_t>(geometry_.stride[kWidth], width);
  for (const int64_t count : {width, CeilDivide(width, stride), width / stride}) {
    RETURN_IF_ERROR(plan_.PrepareRows(engine, count, false, false));
  }
  return {};
}

void BarePixels::RunShare(const Engine& engine, const ConvInput& input, const PerRunColumnConstants* columns,
                          const OutputMap& output, int64_t batch, int part, int parts,
                          uint8_t* scratch) const {
  RunBuffers buffers;
  buffers.a = RowMap(input.padding, 0);  // all rows are one pixel of padding
  buffers.columns = columns;
  ForEachRun(batch, part, parts, [&](int64_t pixel, int64_t step, int64_t count) {
    buffers.output = output.EveryRow(step, pixel);
    plan_.RunShare(engine, buffers, {0, count, 0, plan_.data().n}, scratch);
  });
}

}  // namespace intact::kernels
