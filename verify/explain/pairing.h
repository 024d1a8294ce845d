// The pairs of products that engines add in int16 on CPUs without VNNI, in the terms of the reference models.
// The table of engines is core/engines.h. docs/peers_methods.md describes how each row was measured.
#ifndef INTACT_VERIFY_EXPLAIN_PAIRING_H_
#define INTACT_VERIFY_EXPLAIN_PAIRING_H_

#include <intact/engines.h>
#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/engines.h"
#include "reference/contract/operation.h"
#include "reference/models/models.h"
#include "verify/problem/place.h"

namespace intact::verify {

using core::Engine;
using core::EngineLayer;

/// For programs: "within_tap", "flattened".
std::string_view NameOf(intact_pairing pairing);
/// For programs: "none", "depths", "halves", "within_tap", "flattened", "kernel_row", "kernel_column".
std::string_view NameOf(intact_engine_pairs pairs);
/// For people: "adjacent depths", "adjacent channels of a tap", "adjacent depths of the flattened window".
std::string_view InWords(intact_engine_pairs pairs);

/// Pairs of products, clamped to int16 and widened at once: what INTACT_SATURATING computes without VNNI.
reference::Model MaddubsOf(intact_pairing pairing);
/// The arithmetic of an engine with these pairs, for a layer of `depth`. The engine does not skip padding.
reference::Model MaddubsOf(intact_engine_pairs pairs, int64_t depth);

/// A layer as engines see it: the operator of a product or a convolution between DequantizeLinear and
/// QuantizeLinear, with u8 activations. Engines shift s8 activations to u8. `depth`: of a matrix product.
/// Convolutions have taps times the input channels of a group.
EngineLayer EngineLayerOf(const MaybeConv& conv, int64_t depth, intact_type b_type);
EngineLayer EngineLayerOf(const reference::Operation& operation);

/// The layer with narrow outputs, and with wide outputs. What holds for outputs of every size must hold for both.
std::array<EngineLayer, 2> WithAllWidths(const EngineLayer& layer);

/// Whether two kinds of pairs are the same pairs of `layer`.
bool AreSame(intact_engine_pairs one, intact_engine_pairs other, const EngineLayer& layer);
/// The kinds of pairs of this layer that differ. Of a matrix product: adjacent depths, and the depths of each
/// half if an engine has such pairs. Of a convolution: both pairings, and pairs of the kernel's rows and columns if an
/// engine has such pairs.
std::vector<intact_engine_pairs> PairsOf(const EngineLayer& layer);

/// An engine with certain pairs. `only_with_avx512`: only on CPUs with AVX-512 and without VNNI, not on CPUs
/// with AVX2.
struct EngineUse {
  const Engine* engine;
  bool only_with_avx512;
};
/// The engines with these pairs, or with equal pairs of `layer`, on CPUs without VNNI. `skips_padding`: only
/// engines that do not multiply padding.
std::vector<EngineUse> EnginesWith(intact_engine_pairs pairs, const EngineLayer& layer,
                                   bool skips_padding = false);
/// The names of `engines`: "FBGEMM, ONNX Runtime, OpenVINO with AVX-512", or "no known engine".
std::string InWords(const std::vector<EngineUse>& engines);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_PAIRING_H_
