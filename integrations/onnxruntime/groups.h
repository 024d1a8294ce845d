// Nodes that are one quantized operator together: between DequantizeLinear and QuantizeLinear, or behind
// DynamicQuantizeLinear.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_GROUPS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_GROUPS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ort.h"

namespace intact::onnxruntime {

/// The domain of operators that stand for groups only: ONNX Runtime has no such operators.
inline constexpr char kGroupDomain[] = "intact";
/// Such an operator: a product with weights in blocks (matmul_nbits.h).
inline constexpr char kProductOfBlocks[] = "ProductOfBlocks";

/// The neighbors of a float Conv that are computed with it.
struct ConvNeighbors {
  /// Whether a Transpose to NHWC before the Conv, or one back to NCHW behind it, belongs to the group.
  bool has_input_transpose = false, has_output_transpose = false;
  /// The bounds of a Relu or Clip behind it: least, most.
  std::optional<std::pair<float, float>> clamp = {};
};

/// An operator and the nodes of the model that it stands for.
struct Group {
  std::string domain, type;  ///< the operator
  /// The operator's inputs, in the order of its definition; null: not given.
  std::vector<Ort::ConstValueInfo> inputs;
  Ort::ConstValueInfo output = {};  ///< the operator's first output
  /// The operator's other outputs, in the order of its definition; null: not given.
  std::vector<Ort::ConstValueInfo> more_outputs = {};
  std::vector<Ort::ConstNode> nodes;  ///< the first one has the operator's attributes
  /// Whether A is s8 and ONNX Runtime adds 128 to it: ONNX Runtime moves an s8 tensor between a QuantizeLinear and a
  /// DequantizeLinear to u8, if no other node reads the tensor.
  bool is_moved_to_u8 = false;
  bool is_b_moved_to_u8 = false;       ///< whether ONNX Runtime moves a B that each run gives, too
  bool is_output_moved_to_u8 = false;  ///< of a ByteFunction and a Softmax: whether it moves the output
  ConvNeighbors neighbors = {};
  std::string note =
      {};  ///< if ONNX Runtime's own operator computes another function than the group's nodes: why
};

/// Whether the types that tensors have in ONNX Runtime decide if it computes integers or floats: the node is a product, a
/// convolution, a sum or a Softmax between DequantizeLinear and QuantizeLinear, and its input or output is s8.
bool DependsOnMoves(Ort::ConstNode node);

/// The nodes on the other side of the tensors of a QDQ operator that ONNX Runtime moves from s8 to u8: a QuantizeLinear before each such
/// operand, a DequantizeLinear behind such an output. If intact computes a group with such a node, ONNX Runtime does not see the
/// tensor, and leaves it s8.
std::vector<Ort::ConstNode> NodesAcrossMoves(Ort::ConstNode node);

/// What is wrong if ONNX Runtime computes a node in integers, in words; "": nothing. It ignores the scale and the zero point of the
/// bias of a Gemm, and it does not load an Add or a Mul with a scale or a zero point that has dimensions.
std::string HarmOfIntegers(Ort::ConstNode node);

/// Whether the types allow ONNX Runtime to compute a node with NodesAcrossMoves() in integers, if intact computes groups with
/// `hidden`, some of these nodes.
bool IsOfIntegers(Ort::ConstNode node, const std::vector<Ort::ConstNode>& hidden);

/// Whether ONNX Runtime makes an integer operator of an AveragePool or GlobalAveragePool between DequantizeLinear and QuantizeLinear.
bool IsPoolOfIntegers(Ort::ConstNode node);

/// The group around `node`: a product, a convolution, a sum or product element by element, MaxPool, Softmax. Any other
/// node is a group by itself. ONNX Runtime's CPU provider makes the same operators of the same groups, except where Group::note
/// says otherwise.
/// Throws Refusal if such a node of floats is no group.
Group GroupOf(Ort::ConstNode node);

/// A node as it is, whatever is around it.
Group NodeAlone(Ort::ConstNode node);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_GROUPS_H_
