// Nodes that are one quantized operator together: between DequantizeLinear and QuantizeLinear, or behind
// DynamicQuantizeLinear.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_GROUPS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_GROUPS_H_

#include <string>
#include <vector>

#include "ort.h"

namespace intact::onnxruntime {

/// The domain of operators that only groups are.
inline constexpr char kGroupDomain[] = "intact";

/// An operator and the nodes of the model that it stands for.
struct Group {
  std::string domain, type;  ///< the operator
  /// The operator's, in the order of its definition; null: not given.
  std::vector<Ort::ConstValueInfo> inputs;
  Ort::ConstValueInfo output = {};  ///< the operator's first one
  /// The operator's others, in the order of its definition; null: not given.
  std::vector<Ort::ConstValueInfo> more_outputs = {};
  std::vector<Ort::ConstNode> nodes;  ///< the first one has the operator's attributes
  /// Whether ONNX Runtime adds 128 to the operator's s8 activations and outputs: it moves a tensor between a
  /// QuantizeLinear and a DequantizeLinear to u8, if nothing else reads it.
  bool is_moved_to_u8 = false;
  bool has_dequantized_s8 = false;  ///< whether A is s8 and behind a DequantizeLinear
};

/// The group around `node`, a product or a convolution. Any other node is a group by itself.
/// ONNX Runtime's CPU provider makes the same operators of the same groups. Throws Refusal if a product or a
/// convolution of floats is no such group.
Group GroupOf(Ort::ConstNode node);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_GROUPS_H_
