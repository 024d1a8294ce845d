// For each engine: the pairs of depths of an output that it adds in int16 on CPUs without VNNI. The table is
// engines.json, which the Python package reads too; docs/peers.md describes how each row was measured.
#ifndef INTACT_VERIFY_EXPLAIN_PAIRING_H_
#define INTACT_VERIFY_EXPLAIN_PAIRING_H_

#include <intact/intact.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/models/models.h"
#include "verify/problem/place.h"

namespace intact::verify {

/// An engine of the table.
struct Engine {
  std::string name;      // for options: "fbgemm", "onnxruntime", "onednn", "openvino"
  std::string words;     // for people: "FBGEMM", "ONNX Runtime", ...
  std::string versions;  // "1.32.0", "PyTorch 2.13.0", ...
  bool skips_padding = false;
  nlohmann::ordered_json rows;  // as in engines.json
};
/// All engines, by name. Thread-safe.
const std::vector<Engine>& Engines();
/// nullptr: no engine has that name.
const Engine* FindEngine(std::string_view name);

/// For programs: "within_tap", "flattened".
std::string_view NameOf(intact_pairing pairing);
/// For people: "adjacent channels of a tap", "adjacent depths of the flattened window"; for a GEMM "adjacent
/// depths".
std::string_view InWords(intact_pairing pairing, const MaybeConv& conv);
/// The pairing as an order of depths.
reference::DepthOrder OrderOf(intact_pairing pairing);
/// Pairs of products, clamped to int16 and widened at once: what INTACT_SATURATING computes without VNNI.
reference::Model MaddubsOf(intact_pairing pairing);

/// The properties that decide how an engine pairs the depths of u8 activations and s8 weights; the default is
/// a GEMM. Extents do not matter.
struct PairedShape {
  bool is_conv = false;
  int64_t groups = 1, group_inputs = 1, group_outputs = 1, taps = 1;
  bool IsDepthwise() const { return is_conv && groups > 1 && group_inputs == 1; }
};
PairedShape ShapeOf(const MaybeConv& conv);

/// The pairings that differ for this shape: only one if the two agree, as for a GEMM or an even number of
/// channels.
std::vector<intact_pairing> PairingsOf(const PairedShape& shape);
/// The pairing of an engine; nullopt if it adds no products in int16 for this shape.
std::optional<intact_pairing> PairingOf(const Engine& engine, const PairedShape& shape);
/// The names of the engines with this pairing, "FBGEMM, ONNX Runtime", or "no known engine". If the two
/// pairings agree: the engines with either. `skips_padding`: only engines that do not multiply padding.
std::string EnginesOf(intact_pairing pairing, const PairedShape& shape, bool skips_padding = false);
/// The engines that EnginesOf() names.
std::vector<const Engine*> EnginesWith(intact_pairing pairing, const PairedShape& shape,
                                       bool skips_padding = false);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_PAIRING_H_
