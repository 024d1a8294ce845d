#include "core/engines.h"

#include <algorithm>
#include <string>

#include "core/types.h"

namespace intact::core {
namespace {

#include "core/engines.inc"  // kEngines

// Whether `word` is one of the words of `list`, which `separator` separates.
bool Lists(std::string_view list, std::string_view word, std::string_view separator = " ") {
  while (!list.empty()) {
    const size_t end = std::min(list.find(separator), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + separator.size(), list.size()));
  }
  return false;
}

bool Fits(const EngineRow& row, const EngineLayer& layer) {
  const bool has_operator = row.operators == "*" || Lists(row.operators, layer.op) ||
                            (layer.IsDepthwise() && Lists(row.operators, "DepthwiseConv"));
  if (!has_operator) return false;
  const std::string types = std::string(NameOf(layer.a_type)).append(NameOf(layer.b_type));
  if (!row.types.empty() && !Lists(row.types, types)) return false;
  if (row.grouped && layer.groups == 1) return false;
  if (row.one_input_channel && layer.group_inputs != 1) return false;
  return layer.group_inputs % row.channels_multiple_of == 0 &&
         layer.group_outputs % row.channels_multiple_of == 0;
}

// Whether a layer has a second product where `pairs` look for one.
bool HasPairs(intact_engine_pairs pairs, const EngineLayer& layer) {
  return (pairs == INTACT_ENGINE_PAIRS_WITHIN_TAP ? layer.group_inputs : layer.depth) > 1;
}

}  // namespace

bool Engine::IsMeasured(std::string_view version) const { return Lists(versions, version, ", "); }

bool EngineLayer::IsConv() const { return Lists("Conv QLinearConv ConvInteger", op); }

std::span<const Engine> Engines() { return kEngines; }

const Engine* FindEngine(std::string_view name) {
  const auto* const engine = std::ranges::find(kEngines, name, &Engine::name);
  return engine == std::end(kEngines) ? nullptr : engine;
}

std::optional<intact_engine_pairs> PairsOf(const Engine& engine, const EngineLayer& layer, Isa isa) {
  const auto row =
      std::ranges::find_if(engine.rows, [&layer](const EngineRow& one) { return Fits(one, layer); });
  if (row == engine.rows.end()) return std::nullopt;
  if (IsCompiled(isa)) return std::nullopt;  // the table has no rows for CPUs without AVX2
  if (!SaturatesInt16(isa) && !row->with_vnni) return INTACT_ENGINE_PAIRS_NONE;
  const bool is_with_avx512 = isa == Isa::kAvx512 && row->with_avx512.has_value();
  const bool is_wide = layer.is_wide && row->with_avx512_wide.has_value();
  const std::optional<intact_engine_pairs> pairs = !is_with_avx512 ? row->pairing
                                                   : is_wide       ? row->with_avx512_wide
                                                                   : row->with_avx512;
  if (!pairs || !HasPairs(*pairs, layer)) return pairs ? std::optional(INTACT_ENGINE_PAIRS_NONE) : pairs;
  const bool begins_anew = !is_with_avx512 && row->halves.Has(layer.depth) && (layer.depth + 1) / 2 % 2 == 1;
  return begins_anew ? INTACT_ENGINE_PAIRS_HALVES : pairs;
}

}  // namespace intact::core
