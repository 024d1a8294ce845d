#include "verify/explain/pairing.h"

#include <algorithm>

namespace intact::verify {
namespace {

// engines.json.
constexpr std::string_view kTable =
#include "verify/engines.inc"
    ;

std::vector<Engine> ReadTable() {
  std::vector<Engine> engines;
  const auto table = nlohmann::ordered_json::parse(kTable);
  for (const auto& [name, engine] : table["engines"].items()) {
    engines.push_back(
        {name, engine["name"], engine["versions"], engine.value("skips_padding", false), engine["rows"]});
  }
  return engines;
}

bool PairingsAgree(const PairedShape& shape) {
  return !shape.is_conv || shape.taps == 1 || shape.group_inputs % 2 == 0;
}

// The operator that a row must list: a product or a convolution between DequantizeLinear and QuantizeLinear.
std::string_view OperatorOf(const PairedShape& shape) {
  if (!shape.is_conv) return "MatMul";
  return shape.IsDepthwise() && shape.group_outputs == 1 ? "DepthwiseConv" : "Conv";
}

bool Fits(const nlohmann::ordered_json& row, const PairedShape& shape) {
  const auto lists = [&row](const char* key, std::string_view word) {
    return std::ranges::any_of(
        row[key], [word](const auto& entry) { return entry.template get_ref<const std::string&>() == word; });
  };
  if (!lists("operators", "*") && !lists("operators", OperatorOf(shape))) return false;
  if (row.contains("types") && !lists("types", "u8s8")) return false;
  if (row.contains("grouped") && shape.groups == 1) return false;
  const int64_t multiple = row.value("channels_multiple_of", 1);
  return shape.group_inputs % multiple == 0 && shape.group_outputs % multiple == 0;
}

}  // namespace

const std::vector<Engine>& Engines() {
  static const std::vector<Engine> engines = ReadTable();
  return engines;
}

const Engine* FindEngine(std::string_view name) {
  const auto engine = std::ranges::find(Engines(), name, &Engine::name);
  return engine == Engines().end() ? nullptr : &*engine;
}

std::string_view NameOf(intact_pairing pairing) {
  return pairing == INTACT_PAIRING_FLATTENED ? "flattened" : "within_tap";
}

std::string_view InWords(intact_pairing pairing, const MaybeConv& conv) {
  if (!conv) return "adjacent depths";
  return pairing == INTACT_PAIRING_FLATTENED ? "adjacent depths of the flattened window"
                                             : "adjacent channels of a tap";
}

reference::DepthOrder OrderOf(intact_pairing pairing) {
  return pairing == INTACT_PAIRING_FLATTENED ? reference::DepthOrder::kFlattened
                                             : reference::DepthOrder::kTaps;
}

reference::Model MaddubsOf(intact_pairing pairing) {
  reference::Model model = reference::Model::kMaddubs;
  model.order = OrderOf(pairing);
  return model;
}

PairedShape ShapeOf(const MaybeConv& conv) {
  if (!conv) return {};
  return {true, conv->groups, conv->GroupInputs(), conv->GroupOutputs(), conv->Taps()};
}

std::vector<intact_pairing> PairingsOf(const PairedShape& shape) {
  if (PairingsAgree(shape)) return {INTACT_PAIRING_WITHIN_TAP};
  return {INTACT_PAIRING_WITHIN_TAP, INTACT_PAIRING_FLATTENED};
}

std::optional<intact_pairing> PairingOf(const Engine& engine, const PairedShape& shape) {
  const auto row =
      std::ranges::find_if(engine.rows, [&](const nlohmann::ordered_json& one) { return Fits(one, shape); });
  if (row == engine.rows.end() || (*row)["pairing"] == "none") return std::nullopt;
  if ((*row)["pairing"] == NameOf(INTACT_PAIRING_FLATTENED)) return INTACT_PAIRING_FLATTENED;
  if (shape.is_conv && shape.group_inputs == 1) return std::nullopt;  // a tap has no second channel
  return INTACT_PAIRING_WITHIN_TAP;
}

std::vector<const Engine*> EnginesWith(intact_pairing pairing, const PairedShape& shape, bool skips_padding) {
  std::vector<const Engine*> engines;
  for (const Engine& engine : Engines()) {
    if (skips_padding && !engine.skips_padding) continue;
    const std::optional<intact_pairing> own = PairingOf(engine, shape);
    if (own && (*own == pairing || PairingsAgree(shape))) engines.push_back(&engine);
  }
  return engines;
}

std::string EnginesOf(intact_pairing pairing, const PairedShape& shape, bool skips_padding) {
  std::string names;
  for (const Engine* engine : EnginesWith(pairing, shape, skips_padding)) {
    names.append(names.empty() ? "" : ", ").append(engine->words);
  }
  return names.empty() ? "no known engine" : names;
}

}  // namespace intact::verify
