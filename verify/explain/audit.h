// The reduce_range audit: can the int16 intermediates of kernels without VNNI saturate in this layer?
//
// Frameworks avoid saturation by dropping a bit ("reduce_range"), as a rule of thumb. The audit decides, from
// the weights alone if possible. With activations in [low, high], a pair of weights (w0, w1) has pair sums in
//
//   [ Σ min(low·w, high·w),  Σ max(low·w, high·w) ]
//
// and is *at risk* if that interval leaves [−32768, 32767]. Activations and weights are as the instruction
// sees them: s8 activations are shifted by +128, u8 weights by −128. The verdicts for a bound [low, high] on
// the activations:
//
//   violated       some pair sum clamps on this layer's own activations
//   proven         no pair is at risk within the bound, and the activations obey the bound: no input within
//                  the bound can saturate. (If no pair is at risk even at full range, no input can saturate.)
//   holds_on_data  nothing clamps on these activations, but another input could: a pair is at risk, or the
//                  activations left the bound (a quantizer calibrated for 7 bits still clamps only at 255)
//
// The layer's own verdict uses the bound that it declares: 7 bits if its reduce_range is true, otherwise full
// range. The audit also gives verdicts for the three remedies in use:
//
//   pytorch_7bit_activations     u8 in [0, 127]: then no weights can saturate, 2·127·128 < 32768
//   onnxruntime_7bit_weights     weights in [−64, 64], activations at full range: 2·255·64 < 32768
//   s8_shifted_7bit_activations  s8 in [−64, 63], which the shift by 128 turns into [64, 191]: no remedy.
//                                If a layer with u8 activations has one that exceeds 7 bits, the audit halves
//                                all activations. Then it shifts them
#ifndef INTACT_VERIFY_EXPLAIN_AUDIT_H_
#define INTACT_VERIFY_EXPLAIN_AUDIT_H_

#include <intact/engines.h>
#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engines.h"
#include "reference/contract/operation.h"

namespace intact::verify {

enum class Verdict : uint8_t { kProven, kHoldsOnData, kViolated };
std::string_view ToString(Verdict verdict);  // for programs: "proven", "holds_on_data", "violated"
std::string_view InWords(Verdict verdict);   // for people: "proven", "holds on data", "violated"

/// Activations as u8×s8 instructions see them.
struct ActivationBound {
  int32_t low = 0;
  int32_t high = 255;
};

/// An input of K = 2 that makes a pair of the layer's weights clamp.
struct Witness {
  // The weights' column and two depths; of a convolution: see reference/models/lowering.h.
  int64_t n = 0, k = 0, k1 = 0;
  uint8_t a0 = 0, a1 = 0;
  int8_t w0 = 0, w1 = 0;
  int32_t sum = 0;
};

/// The audit of a layer under one bound on its activations.
struct BoundAudit {
  std::string name;
  std::string premise;  // in words
  bool premise_holds = false;
  ActivationBound bound;
  int64_t pairs_at_risk = 0;
  std::optional<Witness> witness;  // an input for the first pair at risk
  Verdict verdict = Verdict::kProven;
};

struct Audit {
  std::optional<reference::ConvGeometry> conv;  // set for a convolution; locates a witness' n and k
  core::EngineLayer layer;                      // the layer as engines see it
  intact_engine_pairs pairs = INTACT_ENGINE_PAIRS_DEPTHS;  // which depths are pairs in the fields below
  int64_t weight_pairs = 0;                                // pairs in all columns
  int64_t clamped_pairs = 0;                               // pair sums that clamp on the layer's activations
  int32_t max_activation = 0;             // the largest value, including a convolution's padding
  int32_t min_activation = 0;             // the smallest value, including padding
  int32_t max_weight = 0;                 // largest magnitude, as the instruction sees weights
  int32_t largest_safe_activation = 255;  // the largest amax for which no u8 input in [0, amax] saturates
  BoundAudit stated;                      // the layer's own bound
  std::array<BoundAudit, 3> remedies;     // in the order of the list above
  // The signal-to-noise ratio in dB if one bit of activations or of weights is dropped. The signal is the
  // layer's float output. The noise is the error that dropping the bit adds. nullopt if the activations have
  // 7 bits already, or if there is no error.
  std::optional<double> sqnr_7bit_activations_db;
  std::optional<double> sqnr_7bit_weights_db;
  Verdict verdict() const { return stated.verdict; }
};

/// `reduce_range`: whether the layer states that its activations were calibrated for 7 bits. `pairs`: by
/// default adjacent depths, of a convolution adjacent channels of a tap. Padding is part of pairs, with the
/// value of the zero point.
Audit AuditReduceRange(const reference::Operation& operation, bool reduce_range,
                       std::optional<intact_engine_pairs> pairs = {});
/// One audit for each kind of pairs that differs for this operation, the worst verdict first.
std::vector<Audit> AuditEachPairing(const reference::Operation& operation, bool reduce_range);

/// The ISA that the library chooses here by default; ANY if the library can use none.
intact_isa BestIsa();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_AUDIT_H_
