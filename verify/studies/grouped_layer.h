// A product with grouped weights (include/intact/grouped.h) of one expert and one item, from a framework, as a
// folder like the folders of layer.h:
//
//   layer.json       see below
//   activations.npy  f4 or f2, [M, K]: numbers, which each run quantizes; or u1 or i1, with the next two files
//   a_scales.npy     f4, [M] or, with "per": "group", [M, groups]
//   a_zero_points.npy  i4, shaped as a_scales.npy; absent if all are 0
//   weights.npy      i1 or u1, [N, K]: one weight in each byte, also with 4 bits
//   scales.npy       f4 or f2, [N, groups]
//   zero_points.npy  the type of weights.npy, [N, groups]; absent: 0, with u4 8, with u8 128
//   bias.npy         f4, [N]; absent when the layer has none
//   output_*.npy     an engine's output, [M, N], in the output's type
//
// layer.json:
//   { "operator": "linear_grouped",
//     "group": 32,                                   depths of a group: 16, 32, 64, 128, 256; 0: all depths
//     "weight": {"type": "u4"},                      or "s4", "u8", "s8"
//     "input":  {"type": "s8", "per": "row"},        or "u8"; or "group": what has a scale
//     "activation": "none",                          or "relu", or bounds, {"min": -1, "max": 1}
//     "output": {"type": "f32"} }                    optional; or "f16"
#ifndef INTACT_VERIFY_STUDIES_GROUPED_LAYER_H_
#define INTACT_VERIFY_STUDIES_GROUPED_LAYER_H_

#include <intact/grouped.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/contract/grouped.h"
#include "verify/explain/grouped.h"
#include "verify/studies/layer_check.h"
#include "verify/studies/layer_fields.h"

namespace intact::verify {

inline constexpr std::string_view kGroupedOperator = "linear_grouped";

/// Reads all fields of layer.json except "operator", and the tensors in `folder`.
std::optional<Error> ReadGrouped(const std::string& folder, LayerFields* fields, reference::Grouped* grouped);

struct GroupedLayerCheck {
  std::string layer, operation;  // "linear_grouped s8u4f32, 4×64×128 in groups of 32"
  std::string by;                // the ISA or the target
  GroupedJudgement judgement;    // of the output
  intact_pairs_certificate certificate = INTACT_PAIRS_CERTIFICATE_INIT;
  std::string expect_file;
  std::optional<int64_t> unexpected;  // outputs that differ from the file's
  /// Outputs that engines recorded, by file, judged as if any arithmetic were claimed.
  std::vector<std::pair<std::string, GroupedJudgement>> recorded;

  /// Whether the output is the expected one; without an expected one, whether it is as claimed.
  bool Passed() const { return unexpected ? *unexpected == 0 : judgement.Passed(); }
};

/// Runs a layer with grouped weights on `target`, which is our own kernels if `isa` is not ANY. `recorded`:
/// outputs to explain. `expected`: the output that the layer should have.
Result<GroupedLayerCheck> CheckGroupedLayer(const Layer& layer, const Target& target, const std::string& by,
                                            intact_isa isa, const std::vector<Expectation>& recorded,
                                            const std::optional<Expectation>& expected);

std::string ToText(const GroupedLayerCheck& check);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_GROUPED_LAYER_H_
