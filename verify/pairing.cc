#include "verify/pairing.h"

namespace intact::verify {
namespace {

struct Row {
  Engine engine;
  std::string_view name, words, version;
};

// Measured on 2026-11-25 on an AMD Zen 3, with wheels from PyPI.
constexpr std::array kRows = {
    Row{Engine::kFbgemm, "fbgemm", "FBGEMM", "of PyTorch 2.13.0"},
    Row{Engine::kOnnxRuntime, "onnxruntime", "ONNX Runtime", "1.32.0"},
    Row{Engine::kOneDnn, "onednn", "oneDNN", "3.12.0"},
    Row{Engine::kOpenVino, "openvino", "OpenVINO", "2026.4.1"},
};

const Row& RowOf(Engine engine) { return kRows[static_cast<size_t>(engine)]; }

bool PairingsAgree(const PairedShape& shape) {
  return !shape.is_conv || shape.taps == 1 || shape.group_inputs % 2 == 0;
}

// oneDNN's kernels fill up the channels of a tap, and do not add pairs where a group has one channel.
std::optional<intact_pairing> OfOneDnn(const PairedShape& shape) {
  const bool is_odd = shape.group_inputs % 2 != 0;
  if (shape.group_inputs == 1 || (shape.groups > 1 && is_odd)) return std::nullopt;
  return INTACT_PAIRING_WITHIN_TAP;
}

}  // namespace

std::string_view NameOf(Engine engine) { return RowOf(engine).name; }

std::string_view InWords(Engine engine) { return RowOf(engine).words; }

std::string_view VersionOf(Engine engine) { return RowOf(engine).version; }

std::optional<Engine> EngineOf(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.engine;
  }
  return std::nullopt;
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

PairedShape ShapeOf(const MaybeConv& conv) {
  if (!conv) return {};
  return {true, conv->groups, conv->GroupInputs(), conv->GroupOutputs(), conv->Taps()};
}

std::vector<intact_pairing> PairingsOf(const PairedShape& shape) {
  if (PairingsAgree(shape)) return {INTACT_PAIRING_WITHIN_TAP};
  return {INTACT_PAIRING_WITHIN_TAP, INTACT_PAIRING_FLATTENED};
}

std::optional<intact_pairing> PairingOf(Engine engine, const PairedShape& shape) {
  if (!shape.is_conv) return INTACT_PAIRING_WITHIN_TAP;
  switch (engine) {
    case Engine::kFbgemm:
      return INTACT_PAIRING_FLATTENED;
    case Engine::kOnnxRuntime:
      if (shape.IsDepthwise() && shape.group_outputs == 1) return std::nullopt;
      return INTACT_PAIRING_FLATTENED;
    case Engine::kOneDnn:
      return OfOneDnn(shape);
    case Engine::kOpenVino:
      if (shape.groups > 1 && shape.group_inputs > 1 && shape.group_inputs % 2 != 0)
        return INTACT_PAIRING_FLATTENED;
      return OfOneDnn(shape);
  }
  return std::nullopt;
}

std::vector<Engine> EnginesWith(intact_pairing pairing, const PairedShape& shape, bool skips_padding) {
  std::vector<Engine> engines;
  for (const Engine engine : kEngines) {
    if (skips_padding && engine != Engine::kOneDnn && engine != Engine::kOpenVino) continue;
    const std::optional<intact_pairing> own = PairingOf(engine, shape);
    if (own && (*own == pairing || PairingsAgree(shape))) engines.push_back(engine);
  }
  return engines;
}

std::string EnginesOf(intact_pairing pairing, const PairedShape& shape, bool skips_padding) {
  std::string names;
  for (const Engine engine : EnginesWith(pairing, shape, skips_padding)) {
    names.append(names.empty() ? "" : ", ").append(InWords(engine));
  }
  return names.empty() ? "no known engine" : names;
}

}  // namespace intact::verify
