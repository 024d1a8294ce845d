// The C ABI of the table of engines (include/intact/engines.h).
#include <intact/engines.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/engines.h"
#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/api/guard.h"
#include "kernels/problem/checks.h"

namespace {

using intact::Error;
using intact::Result;
using namespace intact::kernels;  // NOLINT(google-build-using-namespace): this file is their C ABI
namespace core = intact::core;

Error CheckType(const char* name, int32_t type) {
  if (core::IsInt8(static_cast<intact_type>(type))) return {};
  return Unexpected(name, type, "INTACT_U8 or INTACT_S8");
}

Error CheckPositive(const char* name, int64_t value) {
  if (value >= 1) return {};
  return Unexpected(name, value, "1 or more");
}

Result<core::EngineLayer> LayerOf(const intact_engine_layer& given) {
  if (given.op == nullptr) return NullArgument("op");
  RETURN_IF_ERROR(CheckType("a_type", given.a_type));
  RETURN_IF_ERROR(CheckType("b_type", given.b_type));
  RETURN_IF_ERROR(CheckPositive("depth", given.depth));
  RETURN_IF_ERROR(CheckPositive("groups", given.groups));
  RETURN_IF_ERROR(CheckPositive("group_inputs", given.group_inputs));
  RETURN_IF_ERROR(CheckPositive("group_outputs", given.group_outputs));
  if (given.is_wide != 0 && given.is_wide != 1) return Unexpected("is_wide", given.is_wide, "0 or 1");
  const core::EngineLayer layer = {given.op,
                                   static_cast<intact_type>(given.a_type),
                                   static_cast<intact_type>(given.b_type),
                                   given.depth,
                                   given.groups,
                                   given.group_inputs,
                                   given.group_outputs,
                                   given.is_wide == 1};
  if (layer.IsConv() && layer.depth % layer.group_inputs != 0) {
    return InvalidArgument("depth is " + std::to_string(layer.depth) +
                           "; expected a multiple of group_inputs, which is " +
                           std::to_string(layer.group_inputs));
  }
  return layer;
}

Error Ask(const intact_engine_layer& given, intact_engine_answer* answer) {
  if (given.engine == nullptr) return NullArgument("engine");
  const core::Engine* const engine = core::FindEngine(given.engine);
  if (engine == nullptr) {
    std::string known;
    for (const core::Engine& one : core::Engines()) known.append(known.empty() ? "" : ", ").append(one.name);
    return InvalidArgument("engine is '" + std::string(given.engine) + "'; expected one of " + known);
  }
  ASSIGN_OR_RETURN(const core::EngineLayer layer, LayerOf(given));
  const std::optional<core::Isa> isa = core::IsaOf(given.isa);
  if (!isa) return Unexpected("isa", given.isa, "an intact_isa other than INTACT_ISA_ANY");
  const std::optional<intact_engine_pairs> pairs = core::PairsOf(*engine, layer, *isa);
  if (!pairs) {
    return {INTACT_UNSUPPORTED,
            "op is '" + std::string(given.op) + "' with types " + std::string(core::NameOf(layer.a_type)) +
                std::string(core::NameOf(layer.b_type)) + "; it is not known which of these products " +
                std::string(engine->words) + " adds in int16"};
  }
  intact_engine_answer made = INTACT_ENGINE_ANSWER_INIT;
  made.pairs = *pairs;
  made.is_measured = given.version == nullptr || engine->IsMeasured(given.version) ? 1 : 0;
  WriteStruct(made, answer);
  return {};
}

}  // namespace

extern "C" {

int32_t intact_engine_count(void) { return static_cast<int32_t>(core::Engines().size()); }

intact_status intact_engine_describe(int32_t index, intact_engine_info* info) {
  return Guard("engine", "describe", [=]() -> Error {
    RETURN_IF_ERROR(CheckStructSize("info", info));
    if (index < 0 || index >= intact_engine_count()) {
      return Unexpected("index", index, "0 to " + std::to_string(intact_engine_count() - 1));
    }
    const core::Engine& engine = core::Engines()[static_cast<size_t>(index)];
    intact_engine_info made = INTACT_ENGINE_INFO_INIT;
    made.name = engine.name.data();
    made.words = engine.words.data();
    made.versions = engine.versions.data();
    made.skips_padding = engine.skips_padding ? 1 : 0;
    WriteStruct(made, info);
    return {};
  });
}

intact_status intact_engine_ask(const intact_engine_layer* layer, intact_engine_answer* answer) {
  return Guard("engine", "ask", [=] {
    const intact_engine_layer defaults = INTACT_ENGINE_LAYER_INIT;
    return WithStruct("layer", layer, defaults, [&](const intact_engine_layer& given) -> Error {
      RETURN_IF_ERROR(CheckStructSize("answer", answer));
      return Ask(given, answer);
    });
  });
}

}  // extern "C"
