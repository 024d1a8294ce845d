#include "verify/audit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <span>

#include "reference/models.h"

namespace intact::verify {
namespace {

constexpr ActivationBound kFullRange{0, 255};
constexpr ActivationBound kSevenBits{0, 127};
constexpr ActivationBound kShiftedSevenBits{64, 191};
constexpr int32_t kSevenBitWeight = 64;
constexpr int32_t kInt16Min = -32768;
constexpr int32_t kInt16Max = 32767;

/// The input within `bound` that drives the pair beyond int16, if there is one.
std::optional<Witness> FindWitness(int8_t w0, int8_t w1, ActivationBound bound) {
  const auto driven = [&](bool up) {
    Witness witness;
    witness.w0 = w0;
    witness.w1 = w1;
    witness.a0 = static_cast<uint8_t>((w0 > 0) == up ? bound.high : bound.low);
    witness.a1 = static_cast<uint8_t>((w1 > 0) == up ? bound.high : bound.low);
    witness.sum = reference::PairSum(witness.a0, witness.a1, w0, w1);
    return witness;
  };
  if (const Witness up = driven(true); up.sum > kInt16Max) return up;
  if (const Witness down = driven(false); down.sum < kInt16Min) return down;
  return std::nullopt;
}

/// Calls visit(n, k, w0, w1) for each pair of adjacent depths. A last odd depth cannot saturate: 255·128 <
/// 32768.
template <class Visit>
void ForEachPair(const reference::Operands& operands, Visit visit) {
  for (int64_t n = 0; n < operands.n; ++n) {
    const std::span<const int8_t> w = operands.Column(n);
    for (size_t k = 0; k + 1 < w.size(); k += 2) visit(n, static_cast<int64_t>(k), w[k], w[k + 1]);
  }
}

int64_t CountClampedPairs(const reference::Operands& operands) {
  int64_t count = 0;
  for (int64_t m = 0; m < operands.m; ++m) {
    for (int64_t n = 0; n < operands.n; ++n) {
      count += reference::CountClampedPairs(operands.Row(m), operands.Column(n));
    }
  }
  return count;
}

Verdict Judge(bool clamps, bool premise_holds, int64_t pairs_at_risk) {
  if (clamps) return Verdict::kViolated;
  return premise_holds && pairs_at_risk == 0 ? Verdict::kProven : Verdict::kHoldsOnData;
}

/// Audits `operands` under `bound`; the caller names it.
BoundAudit AuditBound(const reference::Operands& operands, ActivationBound bound, bool clamps) {
  BoundAudit audit;
  audit.bound = bound;
  int64_t at_risk_at_full_range = 0;
  ForEachPair(operands, [&](int64_t n, int64_t k, int8_t w0, int8_t w1) {
    if (FindWitness(w0, w1, kFullRange)) ++at_risk_at_full_range;
    if (std::optional<Witness> witness = FindWitness(w0, w1, bound)) {
      witness->n = n;
      witness->k = k;
      if (audit.pairs_at_risk++ == 0) audit.witness = witness;
    }
  });
  audit.premise_holds =
      std::ranges::all_of(operands.a, [&](uint8_t a) { return a >= bound.low && a <= bound.high; });
  audit.verdict = Judge(clamps, audit.premise_holds || at_risk_at_full_range == 0, audit.pairs_at_risk);
  return audit;
}

BoundAudit Named(BoundAudit audit, std::string name, std::string premise) {
  audit.name = std::move(name);
  audit.premise = std::move(premise);
  return audit;
}

BoundAudit AuditDeclared(const reference::Operands& operands, intact_type a_type, bool reduce_range,
                         bool clamps) {
  if (!reduce_range) return Named(AuditBound(operands, kFullRange, clamps), "declared", "8-bit activations");
  const ActivationBound bound = a_type == INTACT_S8 ? kShiftedSevenBits : kSevenBits;
  return Named(AuditBound(operands, bound, clamps), "declared", "7-bit activations (reduce_range)");
}

BoundAudit AuditSevenBitWeights(const reference::Operands& operands, int32_t max_weight, bool clamps) {
  BoundAudit audit = Named(AuditBound(operands, kFullRange, clamps), "onnxruntime_7bit_weights",
                           "weights within [-64, 64], activations at full range");
  audit.premise_holds = max_weight <= kSevenBitWeight;
  return audit;
}

/// The activations as they would come from a quantizer to s8 of 7 bits.
BoundAudit AuditShifted(reference::Operands operands, intact_type a_type) {
  if (a_type == INTACT_U8) {
    const bool is_wide = std::ranges::any_of(operands.a, [](uint8_t a) { return a > kSevenBits.high; });
    for (uint8_t& a : operands.a) a = static_cast<uint8_t>((is_wide ? a / 2 : a) + kShiftedSevenBits.low);
  }
  const bool clamps = CountClampedPairs(operands) > 0;
  return Named(AuditBound(operands, kShiftedSevenBits, clamps), "s8_shifted_7bit_activations",
               "s8 activations in [-64, 63], seen as [64, 191]");
}

/// What is left of x when its lowest bit is dropped: an even integer nearest to it.
int32_t DropBit(int32_t x) { return 2 * static_cast<int32_t>(std::nearbyint(x / 2.0)); }

template <class Range>
std::vector<int32_t> WithoutLowestBit(const Range& values) {
  std::vector<int32_t> reduced;
  reduced.reserve(values.size());
  for (const int32_t value : values) reduced.push_back(DropBit(value));
  return reduced;
}

/// SQNR in dB of the layer's float output with other operands in place of its own (a − za, m×k) and (b − zb,
/// n×k).
std::optional<double> OutputSqnr(const reference::Gemm& gemm, std::span<const int32_t> a,
                                 std::span<const int32_t> w, std::span<const int32_t> other_a,
                                 std::span<const int32_t> other_w) {
  const auto depth = static_cast<size_t>(gemm.k);
  const auto dot = [depth](std::span<const int32_t> x, int64_t row, std::span<const int32_t> y,
                           int64_t column) {
    return std::inner_product(&x[static_cast<size_t>(row) * depth],
                              &x[static_cast<size_t>(row) * depth] + depth,
                              &y[static_cast<size_t>(column) * depth], int64_t{0});
  };
  double signal = 0;
  double noise = 0;
  for (int64_t n = 0; n < gemm.n; ++n) {
    const reference::Requantization q = reference::RequantizationOf(gemm, n);
    for (int64_t m = 0; m < gemm.m; ++m) {
      const int64_t full = dot(a, m, w, n);
      const double output = static_cast<double>(full) * double{q.scale} + double{q.bias_f32};
      const double error = static_cast<double>(dot(other_a, m, other_w, n) - full) * double{q.scale};
      signal += output * output;
      noise += error * error;
    }
  }
  if (noise == 0 || signal == 0) return std::nullopt;
  return 10 * std::log10(signal / noise);
}

void SetSqnr(const reference::Gemm& gemm, const reference::Operands& operands, bool is_seven_bits,
             Audit* audit) {
  std::vector<int32_t> a;
  for (const uint8_t x : operands.a) a.push_back(x - operands.a_zero_point);
  std::vector<int32_t> w;
  for (int64_t n = 0; n < gemm.n; ++n) {
    const std::vector<int32_t> column = operands.CenteredColumn(n);
    w.insert(w.end(), column.begin(), column.end());
  }
  if (!is_seven_bits) audit->sqnr_7bit_activations_db = OutputSqnr(gemm, a, w, WithoutLowestBit(a), w);
  audit->sqnr_7bit_weights_db = OutputSqnr(gemm, a, w, a, WithoutLowestBit(w));
}

int32_t LargestSafeActivation(const reference::Operands& operands) {
  int32_t safe = 255;
  ForEachPair(operands, [&](int64_t, int64_t, int8_t w0, int8_t w1) {
    const int32_t positive = std::max<int32_t>(w0, 0) + std::max<int32_t>(w1, 0);
    const int32_t negative = std::max<int32_t>(-w0, 0) + std::max<int32_t>(-w1, 0);
    if (positive > 0) safe = std::min(safe, kInt16Max / positive);
    if (negative > 0) safe = std::min(safe, -kInt16Min / negative);
  });
  return safe;
}

}  // namespace

std::string_view ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProven:
      return "proven";
    case Verdict::kHoldsOnData:
      return "holds_on_data";
    case Verdict::kViolated:
      return "violated";
  }
  return "unknown";
}

Audit AuditReduceRange(const reference::Gemm& gemm, bool reduce_range) {
  const reference::Operands operands(gemm);
  const int32_t shift = gemm.a_type == INTACT_S8 ? 128 : 0;
  const auto [min_activation, max_activation] = std::ranges::minmax(operands.a);
  Audit audit;
  audit.weight_pairs = gemm.n * (gemm.k / 2);
  audit.clamped_pairs = CountClampedPairs(operands);
  audit.max_activation = max_activation - shift;
  audit.min_activation = min_activation - shift;
  for (const int8_t w : operands.w) audit.max_weight = std::max(audit.max_weight, std::abs(int32_t{w}));
  audit.largest_safe_activation = LargestSafeActivation(operands);

  const bool clamps = audit.clamped_pairs > 0;
  audit.declared = AuditDeclared(operands, gemm.a_type, reduce_range, clamps);
  audit.remedies = {Named(AuditBound(operands, kSevenBits, clamps), "pytorch_7bit_activations",
                          "u8 activations in [0, 127]"),
                    AuditSevenBitWeights(operands, audit.max_weight, clamps),
                    AuditShifted(operands, gemm.a_type)};
  const bool is_seven_bits = max_activation - min_activation <= kSevenBits.high;
  SetSqnr(gemm, operands, is_seven_bits, &audit);
  return audit;
}

bool SaturatesInt16(intact_isa isa) { return isa == INTACT_ISA_AVX2 || isa == INTACT_ISA_AVX512; }

intact_isa BestIsa() {
  GemmDesc desc = MakeGemmDesc();
  desc.n = 1;
  desc.k = 1;
  const int8_t weight = 1;
  const Result<Gemm> plan = Gemm::Create(desc, &weight);
  return plan ? plan->Info().isa : INTACT_ISA_ANY;
}

}  // namespace intact::verify
