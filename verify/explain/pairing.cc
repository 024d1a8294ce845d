#include "verify/explain/pairing.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/names.h"

namespace intact::verify {

std::string_view NameOf(intact_pairing pairing) {
  return pairing == INTACT_PAIRING_FLATTENED ? "flattened" : "within_tap";
}

std::string_view NameOf(intact_engine_pairs pairs) {
  static constexpr Name<intact_engine_pairs> kPairs[] = {
      {"none", INTACT_ENGINE_PAIRS_NONE},
      {"depths", INTACT_ENGINE_PAIRS_DEPTHS},
      {"halves", INTACT_ENGINE_PAIRS_HALVES},
      {"within_tap", INTACT_ENGINE_PAIRS_WITHIN_TAP},
      {"flattened", INTACT_ENGINE_PAIRS_FLATTENED},
      {"kernel_row", INTACT_ENGINE_PAIRS_KERNEL_ROW},
      {"kernel_column", INTACT_ENGINE_PAIRS_KERNEL_COLUMN}};
  return intact::NameOf(kPairs, pairs);
}

std::string_view InWords(intact_engine_pairs pairs) {
  static constexpr Name<intact_engine_pairs> kPairs[] = {
      {"no products", INTACT_ENGINE_PAIRS_NONE},
      {"adjacent depths", INTACT_ENGINE_PAIRS_DEPTHS},
      {"adjacent depths of each half", INTACT_ENGINE_PAIRS_HALVES},
      {"adjacent channels of a tap", INTACT_ENGINE_PAIRS_WITHIN_TAP},
      {"adjacent depths of the flattened window", INTACT_ENGINE_PAIRS_FLATTENED},
      {"adjacent taps of a kernel row", INTACT_ENGINE_PAIRS_KERNEL_ROW},
      {"adjacent taps column by column", INTACT_ENGINE_PAIRS_KERNEL_COLUMN}};
  return intact::NameOf(kPairs, pairs);
}

reference::Model MaddubsOf(intact_pairing pairing) {
  reference::Model model = reference::Model::kMaddubs;
  if (pairing == INTACT_PAIRING_FLATTENED) model.order = reference::DepthOrder::kFlattened;
  return model;
}

reference::Model MaddubsOf(intact_engine_pairs pairs, int64_t depth) {
  if (pairs == INTACT_ENGINE_PAIRS_NONE) return reference::Model::kExact;
  reference::Model model = reference::Model::kMaddubs;
  if (pairs == INTACT_ENGINE_PAIRS_FLATTENED) model.order = reference::DepthOrder::kFlattened;
  if (pairs == INTACT_ENGINE_PAIRS_KERNEL_ROW) model.order = reference::DepthOrder::kRows;
  if (pairs == INTACT_ENGINE_PAIRS_KERNEL_COLUMN) model.order = reference::DepthOrder::kColumns;
  if (pairs == INTACT_ENGINE_PAIRS_HALVES) {
    model.cut = {static_cast<int32_t>(depth), static_cast<int32_t>(depth)};
  }
  return model;
}

EngineLayer EngineLayerOf(const MaybeConv& conv, int64_t depth, intact_type b_type) {
  if (!conv) return {"MatMul", INTACT_U8, b_type, depth};
  return {"Conv",
          INTACT_U8,
          b_type,
          conv->Taps() * conv->GroupInputs(),
          conv->groups,
          conv->GroupInputs(),
          conv->GroupOutputs()};
}

EngineLayer EngineLayerOf(const reference::Operation& operation) {
  if (const auto* gemm = std::get_if<reference::Gemm>(&operation)) {
    return EngineLayerOf(std::nullopt, gemm->k, gemm->b_type);
  }
  const auto& conv = std::get<reference::Conv>(operation);
  return EngineLayerOf(conv.geometry, 0, conv.b_type);
}

std::array<EngineLayer, 2> WithAllWidths(const EngineLayer& layer) {
  std::array<EngineLayer, 2> layers = {layer, layer};
  layers[0].is_wide = false;
  layers[1].is_wide = true;
  return layers;
}

bool AreSame(intact_engine_pairs one, intact_engine_pairs other, const EngineLayer& layer) {
  const auto is_of_conv = [](intact_engine_pairs pairs) {
    return pairs == INTACT_ENGINE_PAIRS_WITHIN_TAP || pairs == INTACT_ENGINE_PAIRS_FLATTENED;
  };
  return one == other || (is_of_conv(one) && is_of_conv(other) && layer.PairingsAgree());
}

std::vector<intact_engine_pairs> PairsOf(const EngineLayer& layer) {
  if (layer.IsConv()) {
    std::vector<intact_engine_pairs> found = {INTACT_ENGINE_PAIRS_WITHIN_TAP};
    if (!layer.PairingsAgree()) found.push_back(INTACT_ENGINE_PAIRS_FLATTENED);
    for (const auto pairs : {INTACT_ENGINE_PAIRS_KERNEL_ROW, INTACT_ENGINE_PAIRS_KERNEL_COLUMN}) {
      if (!EnginesWith(pairs, layer).empty()) found.push_back(pairs);
    }
    return found;
  }
  if (EnginesWith(INTACT_ENGINE_PAIRS_HALVES, layer).empty()) return {INTACT_ENGINE_PAIRS_DEPTHS};
  return {INTACT_ENGINE_PAIRS_DEPTHS, INTACT_ENGINE_PAIRS_HALVES};
}

std::vector<EngineUse> EnginesWith(intact_engine_pairs pairs, const EngineLayer& layer, bool skips_padding) {
  std::vector<EngineUse> engines;
  for (const Engine& engine : core::Engines()) {
    if (skips_padding && !engine.skips_padding) continue;
    const auto has = [&](core::Isa isa) {
      return std::ranges::any_of(WithAllWidths(layer), [&](const EngineLayer& one) {
        const std::optional<intact_engine_pairs> own = core::PairsOf(engine, one, isa);
        return own && AreSame(*own, pairs, layer);
      });
    };
    const bool with_avx2 = has(core::Isa::kAvx2);
    if (with_avx2 || has(core::Isa::kAvx512)) engines.push_back({&engine, !with_avx2});
  }
  return engines;
}

std::string InWords(const std::vector<EngineUse>& engines) {
  std::string names;
  for (const EngineUse& use : engines) {
    names.append(names.empty() ? "" : ", ").append(use.engine->words);
    if (use.only_with_avx512) names += " with AVX-512";
  }
  return names.empty() ? "no known engine" : names;
}

}  // namespace intact::verify
