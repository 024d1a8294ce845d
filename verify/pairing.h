// Which depths of an output engines add in int16, two at a time, on CPUs without VNNI. This is the one table of it;
// docs/peers.md says how each row was measured.
#ifndef INTACT_VERIFY_PAIRING_H_
#define INTACT_VERIFY_PAIRING_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/models.h"
#include "verify/place.h"

namespace intact::verify {

/// The engines of the table, as of their versions below.
enum class Engine : uint8_t { kFbgemm, kOnnxRuntime, kOneDnn, kOpenVino };
inline constexpr std::array kEngines = {Engine::kFbgemm, Engine::kOnnxRuntime, Engine::kOneDnn,
                                        Engine::kOpenVino};
std::string_view NameOf(Engine engine);     // for options: "fbgemm", "onnxruntime", "onednn", "openvino"
std::string_view InWords(Engine engine);    // for people: "FBGEMM", "ONNX Runtime", …
std::string_view VersionOf(Engine engine);  // "of PyTorch 2.13.0", "1.32.0", …
std::optional<Engine> EngineOf(std::string_view name);

/// For programs: "within_tap", "flattened".
std::string_view NameOf(intact_pairing pairing);
/// For people: "adjacent channels of a tap", "adjacent depths of the flattened window"; of a GEMM "adjacent depths".
std::string_view InWords(intact_pairing pairing, const MaybeConv& conv);
/// The same for models of instructions.
reference::DepthOrder OrderOf(intact_pairing pairing);

/// What decides how an engine pairs the depths of u8 activations and s8 weights; the default is a GEMM. Extents do not
/// matter.
struct PairedShape {
  bool is_conv = false;
  int64_t groups = 1, group_inputs = 1, group_outputs = 1, taps = 1;
  bool IsDepthwise() const { return is_conv && groups > 1 && group_inputs == 1; }
};
PairedShape ShapeOf(const MaybeConv& conv);

/// The pairings that pair other depths: one if the two agree, as for a GEMM or an even number of channels.
std::vector<intact_pairing> PairingsOf(const PairedShape& shape);
/// The pairing of an engine; nothing if it adds no products in int16 there.
std::optional<intact_pairing> PairingOf(Engine engine, const PairedShape& shape);
/// The engines of this pairing, "FBGEMM, ONNX Runtime", or "no known engine". Where the pairings agree: of both.
/// `skips_padding`: those that do not multiply padding.
std::string EnginesOf(intact_pairing pairing, const PairedShape& shape, bool skips_padding = false);
std::vector<Engine> EnginesWith(intact_pairing pairing, const PairedShape& shape, bool skips_padding = false);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PAIRING_H_
