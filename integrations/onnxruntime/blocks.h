// DequantizeLinear of constant weights in blocks.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_BLOCKS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_BLOCKS_H_

#include <string>
#include <vector>

#include "layer.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

inline constexpr char kDequantizeBlocks[] = "DequantizeBlocks";  ///< in kGroupDomain

/// Weights that a DequantizeLinear with a `block_size` makes of constants, computed once. ONNX Runtime would make an
/// integer operator of the Conv or MatMul behind the node, and this operator fails in each run.
class DequantizedBlocks : public Layer {
 public:
  static constexpr const char* kInputs[] = {"x", "x_scale", "x_zero_point"};

  explicit DequantizedBlocks(const Node& node);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return "dequantized_blocks"; }

 private:
  Shape shape_;
  std::vector<float> weights_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_BLOCKS_H_
