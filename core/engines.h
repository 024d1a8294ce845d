// The table of inference engines: which products each engine adds in int16. core/engines.json has the rows
// and explains them. All code that asks about an engine asks this header.
#ifndef INTACT_CORE_ENGINES_H_
#define INTACT_CORE_ENGINES_H_

#include <intact/engines.h>
#include <intact/intact.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/isas.h"

namespace intact::core {

/// Depths from `from` to `to`, both inclusive; none if `to` is 0.
struct DepthRange {
  int64_t from = 0, to = 0;
  constexpr bool Has(int64_t depth) const { return from <= depth && depth <= to; }
};

/// A row of the table; see "about" of engines.json. Lists have spaces between their words.
struct EngineRow {
  std::string_view operators;
  std::string_view types = {};  // "": all
  bool grouped = false;
  bool one_input_channel = false;
  int64_t channels_multiple_of = 1;
  std::optional<intact_engine_pairs> pairing = {};  // nullopt: unknown
  DepthRange halves = {};
  std::optional<intact_engine_pairs> with_avx512 = {};
  std::optional<intact_engine_pairs> with_avx512_wide = {};  // nullopt: as with_avx512
  bool with_vnni = false;
};

struct Engine {
  std::string_view name;      // for options: "fbgemm", "onnxruntime"; the three strings end with a zero
  std::string_view words;     // for people: "FBGEMM", "ONNX Runtime"
  std::string_view versions;  // "1.32.0", "3.12.0, PyTorch 2.13.0"
  bool skips_padding = false;
  std::span<const EngineRow> rows;

  /// Whether the rows were measured with `version`.
  bool IsMeasured(std::string_view version) const;
};
/// All engines, in the table's order.
std::span<const Engine> Engines();
/// nullptr: no engine has that name.
const Engine* FindEngine(std::string_view name);

/// The properties of a layer that determine its pairs; see intact_engine_layer. The default is a matrix
/// product of one depth.
struct EngineLayer {
  std::string_view op = "MatMul";
  intact_type a_type = INTACT_U8, b_type = INTACT_S8;
  int64_t depth = 1;
  int64_t groups = 1, group_inputs = 1, group_outputs = 1;  // of a convolution
  bool is_wide = true;                                      // of a convolution: its outputs

  bool IsConv() const;
  bool IsDepthwise() const { return IsConv() && group_inputs == 1 && group_outputs == 1; }
  /// Whether pairs of adjacent channels of a tap are the pairs of the flattened window.
  bool PairingsAgree() const { return !IsConv() || depth == group_inputs || group_inputs % 2 == 0; }
};

/// The pairs of products that `engine` adds in int16, if it computes `layer` on a CPU whose best ISA is `isa`. nullopt: the
/// table does not know the operator with these types, or the CPU has no AVX2.
std::optional<intact_engine_pairs> PairsOf(const Engine& engine, const EngineLayer& layer, Isa isa);

}  // namespace intact::core
#endif  // INTACT_CORE_ENGINES_H_
