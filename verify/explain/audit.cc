#include "verify/explain/audit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>

#include "core/names.h"
#include "reference/models/lowering.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "verify/explain/pairing.h"

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

/// The operands of a GEMM, or of each group of a convolution (the groups' columns follow one another), and
/// their pairs of depths: elements 2i and 2i+1.
struct Groups {
  std::vector<reference::Operands> operands;
  std::vector<int64_t> in_pairs;
};

/// Calls visit(n, k, k1, w0, w1) for each pair. A depth without a partner gets w1 = 0 and k1 = k.
template <class Visit>
void ForEachPair(const Groups& groups, Visit visit) {
  int64_t n = 0;
  for (const reference::Operands& operands : groups.operands) {
    for (int64_t column = 0; column < operands.n; ++column, ++n) {
      const std::span<const int8_t> w = operands.Column(column);
      for (size_t i = 0; i < groups.in_pairs.size(); i += 2) {
        const int64_t k = groups.in_pairs[i];
        const int64_t k1 = groups.in_pairs[i + 1];
        if (k == reference::kNoDepth) continue;
        if (k1 == reference::kNoDepth) {
          visit(n, k, k, w[static_cast<size_t>(k)], int8_t{0});
        } else {
          visit(n, k, k1, w[static_cast<size_t>(k)], w[static_cast<size_t>(k1)]);
        }
      }
    }
  }
}

int64_t CountClampedPairs(const Groups& groups) {
  int64_t count = 0;
  for (const reference::Operands& operands : groups.operands) {
    for (int64_t m = 0; m < operands.m; ++m) {
      for (int64_t n = 0; n < operands.n; ++n) {
        const reference::PairSums pairs = reference::PairSumsOf(
            reference::Signs::kUnsignedActivations, operands.Row(m), operands.Column(n), groups.in_pairs);
        count +=
            std::ranges::count_if(pairs.sums, [](int32_t sum) { return sum < kInt16Min || sum > kInt16Max; });
      }
    }
  }
  return count;
}

/// Whether `predicate` holds for each activation.
template <class Predicate>
bool AllActivations(const Groups& groups, Predicate predicate) {
  return std::ranges::all_of(groups.operands, [&](const reference::Operands& operands) {
    return std::ranges::all_of(operands.a, predicate);
  });
}

Verdict Judge(bool clamps, bool premise_holds, int64_t pairs_at_risk) {
  if (clamps) return Verdict::kViolated;
  return premise_holds && pairs_at_risk == 0 ? Verdict::kProven : Verdict::kHoldsOnData;
}

/// Audits under `bound`; the caller adds the name.
BoundAudit AuditBound(const Groups& groups, ActivationBound bound, bool clamps) {
  BoundAudit audit;
  audit.bound = bound;
  int64_t at_risk_at_full_range = 0;
  ForEachPair(groups, [&](int64_t n, int64_t k, int64_t k1, int8_t w0, int8_t w1) {
    if (FindWitness(w0, w1, kFullRange)) ++at_risk_at_full_range;
    if (std::optional<Witness> witness = FindWitness(w0, w1, bound)) {
      witness->n = n;
      witness->k = k;
      witness->k1 = k1;
      if (audit.pairs_at_risk++ == 0) audit.witness = witness;
    }
  });
  audit.premise_holds = AllActivations(groups, [&](uint8_t a) { return a >= bound.low && a <= bound.high; });
  audit.verdict = Judge(clamps, audit.premise_holds || at_risk_at_full_range == 0, audit.pairs_at_risk);
  return audit;
}

BoundAudit Named(BoundAudit audit, std::string name, std::string premise) {
  audit.name = std::move(name);
  audit.premise = std::move(premise);
  return audit;
}

BoundAudit AuditStated(const Groups& groups, intact_type a_type, bool reduce_range, bool clamps) {
  if (!reduce_range) return Named(AuditBound(groups, kFullRange, clamps), "stated", "8-bit activations");
  const ActivationBound bound = a_type == INTACT_S8 ? kShiftedSevenBits : kSevenBits;
  return Named(AuditBound(groups, bound, clamps), "stated", "7-bit activations (reduce_range)");
}

BoundAudit AuditSevenBitWeights(const Groups& groups, int32_t max_weight, bool clamps) {
  BoundAudit audit = Named(AuditBound(groups, kFullRange, clamps), "onnxruntime_7bit_weights",
                           "weights within [-64, 64], activations at full range");
  audit.premise_holds = max_weight <= kSevenBitWeight;
  return audit;
}

/// Audits the activations as a quantizer to 7-bit s8 would make them.
BoundAudit AuditShifted(Groups groups, intact_type a_type) {
  if (a_type == INTACT_U8) {
    const bool is_wide = !AllActivations(groups, [](uint8_t a) { return a <= kSevenBits.high; });
    for (reference::Operands& operands : groups.operands) {
      for (uint8_t& a : operands.a) a = static_cast<uint8_t>((is_wide ? a / 2 : a) + kShiftedSevenBits.low);
    }
  }
  const bool clamps = CountClampedPairs(groups) > 0;
  return Named(AuditBound(groups, kShiftedSevenBits, clamps), "s8_shifted_7bit_activations",
               "s8 activations in [-64, 63], seen as [64, 191]");
}

/// x without its lowest bit: a nearest even integer.
int32_t DropBit(int32_t x) { return 2 * static_cast<int32_t>(std::nearbyint(x / 2.0)); }

template <class Range>
std::vector<int32_t> WithoutLowestBit(const Range& values) {
  std::vector<int32_t> reduced;
  reduced.reserve(values.size());
  for (const int32_t value : values) reduced.push_back(DropBit(value));
  return reduced;
}

/// The energies of a layer's float output and of its error.
struct SignalAndNoise {
  double signal = 0, noise = 0;
  /// The ratio in dB; nullopt if the error is 0.
  std::optional<double> Decibels() const {
    if (noise == 0 || signal == 0) return std::nullopt;
    return 10 * std::log10(signal / noise);
  }
};

/// Adds the outputs of a group, and the errors that other operands (a − za, m×k; b − zb, n×k) cause.
void AddOutputs(const reference::Gemm& gemm, std::span<const int32_t> a, std::span<const int32_t> w,
                std::span<const int32_t> other_a, std::span<const int32_t> other_w, SignalAndNoise* sums) {
  const auto depth = static_cast<size_t>(gemm.k);
  const auto dot = [depth](std::span<const int32_t> x, int64_t row, std::span<const int32_t> y,
                           int64_t column) {
    return std::inner_product(&x[static_cast<size_t>(row) * depth],
                              &x[static_cast<size_t>(row) * depth] + depth,
                              &y[static_cast<size_t>(column) * depth], int64_t{0});
  };
  for (int64_t n = 0; n < gemm.n; ++n) {
    const reference::Requantization column = reference::RequantizationOf(gemm, n);
    for (int64_t m = 0; m < gemm.rows(); ++m) {
      const reference::Requantization q = reference::AtOutput(column, gemm, gemm.n, m * gemm.n + n);
      if (std::isnan(q.scale)) continue;
      const int64_t full = dot(a, m, w, n);
      const double output = static_cast<double>(full) * double{q.scale} + double{q.bias_f32};
      const double error = static_cast<double>(dot(other_a, m, other_w, n) - full) * double{q.scale};
      sums->signal += output * output;
      sums->noise += error * error;
    }
  }
}

void SetSqnr(std::span<const reference::Gemm> gemms, std::span<const reference::Operands> groups,
             bool is_seven_bits, Audit* audit) {
  SignalAndNoise of_activations, of_weights;
  for (size_t i = 0; i < groups.size(); ++i) {
    std::vector<int32_t> a;
    for (int64_t m = 0; m < groups[i].m; ++m) {
      const int32_t zero_point = groups[i].a_zero_points[static_cast<size_t>(m)];
      for (const uint8_t x : groups[i].Row(m)) a.push_back(x - zero_point);
    }
    std::vector<int32_t> w;
    for (int64_t n = 0; n < groups[i].n; ++n) {
      const std::vector<int32_t> column = groups[i].CenteredColumn(n);
      w.insert(w.end(), column.begin(), column.end());
    }
    if (!is_seven_bits) AddOutputs(gemms[i], a, w, WithoutLowestBit(a), w, &of_activations);
    AddOutputs(gemms[i], a, w, a, WithoutLowestBit(w), &of_weights);
  }
  audit->sqnr_7bit_activations_db = of_activations.Decibels();
  audit->sqnr_7bit_weights_db = of_weights.Decibels();
}

int32_t LargestSafeActivation(const Groups& groups) {
  int32_t safe = 255;
  ForEachPair(groups, [&](int64_t, int64_t, int64_t, int8_t w0, int8_t w1) {
    const int32_t positive = std::max<int32_t>(w0, 0) + std::max<int32_t>(w1, 0);
    const int32_t negative = std::max<int32_t>(-w0, 0) + std::max<int32_t>(-w1, 0);
    if (positive > 0) safe = std::min(safe, kInt16Max / positive);
    if (negative > 0) safe = std::min(safe, -kInt16Min / negative);
  });
  return safe;
}

// `gemms`: a GEMM, or the groups of a convolution.
Audit AuditGroups(std::span<const reference::Gemm> gemms, bool reduce_range, intact_engine_pairs pairs) {
  Groups groups;
  for (const reference::Gemm& gemm : gemms) groups.operands.emplace_back(gemm);
  const reference::Model model = MaddubsOf(pairs, gemms.front().k);
  groups.in_pairs = reference::InPairs(model, groups.operands.front().depths);
  const intact_type a_type = gemms.front().a_type;
  int32_t max_activation = 0;
  int32_t min_activation = 255;
  Audit audit;
  audit.pairs = pairs;
  for (const reference::Operands& operands : groups.operands) {
    const auto [min, max] = std::ranges::minmax(operands.a);
    min_activation = std::min<int32_t>(min_activation, min);
    max_activation = std::max<int32_t>(max_activation, max);
    audit.weight_pairs += operands.n * (std::ssize(groups.in_pairs) / 2);
    for (const int8_t w : operands.w) audit.max_weight = std::max(audit.max_weight, std::abs(int32_t{w}));
  }
  audit.clamped_pairs = CountClampedPairs(groups);
  audit.max_activation = max_activation - reference::ActivationShift(gemms.front());
  audit.min_activation = min_activation - reference::ActivationShift(gemms.front());
  audit.largest_safe_activation = LargestSafeActivation(groups);

  const bool clamps = audit.clamped_pairs > 0;
  audit.stated = AuditStated(groups, a_type, reduce_range, clamps);
  audit.remedies = {
      Named(AuditBound(groups, kSevenBits, clamps), "pytorch_7bit_activations", "u8 activations in [0, 127]"),
      AuditSevenBitWeights(groups, audit.max_weight, clamps), AuditShifted(groups, a_type)};
  const bool is_seven_bits = max_activation - min_activation <= kSevenBits.high;
  SetSqnr(gemms, groups.operands, is_seven_bits, &audit);
  return audit;
}

}  // namespace

std::string_view ToString(Verdict verdict) {
  static constexpr Name<Verdict> kVerdicts[] = {{"proven", Verdict::kProven},
                                                {"holds_on_data", Verdict::kHoldsOnData},
                                                {"violated", Verdict::kViolated}};
  return intact::NameOf(kVerdicts, verdict);
}

std::string_view InWords(Verdict verdict) {
  return verdict == Verdict::kHoldsOnData ? "holds on data" : ToString(verdict);
}

Audit AuditReduceRange(const reference::Operation& operation, bool reduce_range,
                       std::optional<intact_engine_pairs> pairs) {
  Audit audit;
  if (const auto* gemm = std::get_if<reference::Gemm>(&operation)) {
    audit = AuditGroups({gemm, 1}, reduce_range, pairs.value_or(INTACT_ENGINE_PAIRS_DEPTHS));
  } else {
    const auto& conv = std::get<reference::Conv>(operation);
    audit = AuditGroups(reference::Lower(conv), reduce_range, pairs.value_or(INTACT_ENGINE_PAIRS_WITHIN_TAP));
    audit.conv = conv.geometry;
  }
  audit.layer = EngineLayerOf(operation);
  return audit;
}

std::vector<Audit> AuditEachPairing(const reference::Operation& operation, bool reduce_range) {
  std::vector<Audit> audits;
  for (const intact_engine_pairs pairs : PairsOf(EngineLayerOf(operation))) {
    audits.push_back(AuditReduceRange(operation, reduce_range, pairs));
  }
  // Verdicts are ordered from the best to the worst.
  std::ranges::stable_sort(audits, std::greater(), [](const Audit& audit) { return audit.verdict(); });
  return audits;
}

intact_isa BestIsa() {
  GemmDesc desc = MakeGemmDesc();
  desc.n = 1;
  desc.k = 1;
  const int8_t weight = 1;
  const Result<Gemm> plan = Gemm::Create(desc, &weight);
  return plan ? static_cast<intact_isa>(plan->Info().isa) : INTACT_ISA_ANY;
}

}  // namespace intact::verify
