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

#include <optional>
#include <string>
#include <string_view>

#include "reference/contract/grouped.h"
#include "verify/studies/layer_fields.h"

namespace intact::verify {

inline constexpr std::string_view kGroupedOperator = "linear_grouped";

/// Reads all fields of layer.json except "operator", and the tensors in `folder`.
std::optional<Error> ReadGrouped(const std::string& folder, LayerFields* fields, reference::Grouped* grouped);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_GROUPED_LAYER_H_
