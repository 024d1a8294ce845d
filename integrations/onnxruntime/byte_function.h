// Functions of one quantized tensor, element by element: a table has the result of each byte.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_BYTE_FUNCTION_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_BYTE_FUNCTION_H_

#include <functional>
#include <string>
#include <vector>

#include "byte_table.h"
#include "groups.h"
#include "layer.h"

namespace intact::onnxruntime {

/// The type of the groups that FindByteFunctions() returns, in kGroupDomain.
inline constexpr char kByteFunction[] = "ByteFunction";

/// Groups whose output is quantized and depends on one quantized tensor only, element by element: operators that
/// compute each element by itself, of floats or of quantized tensors, with QuantizeLinear and DequantizeLinear
/// between them, and other operands of one constant element. GELU and hard swish of a quantized model are such
/// groups. Each group is as large as possible, and no two groups share a node. `nodes`: of a graph, in topological
/// order. Nodes of a group are in this order, too. `is_taken`: whether intact computes a product, a convolution, a
/// sum or a Softmax. If not, no group begins or ends at an s8 tensor between it and that node, if ONNX Runtime moves
/// the tensor to u8: the group would hide the tensor.
std::vector<Group> FindByteFunctions(const std::vector<Ort::ConstNode>& nodes,
                                     const std::function<bool(Ort::ConstNode)>& is_taken);

/// y[i] = table[x[i]]
class ByteFunction : public Layer {
 public:
  /// ONNX Runtime's CPU provider runs the nodes of `group` with each of 256 bytes. So the table has the bytes that this provider
  /// computes in the model. Throws Refusal if it cannot run them.
  ByteFunction(const Group& group, const Settings& settings);
  ElementOrder GetOrder() const override { return ElementOrder::kElementwise; }
  void Compute(Run& run) const override;
  std::string Kernel() const override { return "table"; }

 private:
  ByteTable table_;
  LookUpFunction look_up_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_BYTE_FUNCTION_H_
