// Products with weights of 2, 4 or 8 bits in blocks, as models of language store them.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_NBITS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_NBITS_H_

#include <array>
#include <cstdint>
#include <string>

#include "linear.h"
#include "node.h"
#include "operators.h"
#include "plans.h"
#include "run.h"

namespace intact::onnxruntime {

/// C = A·B of com.microsoft's MatMulNBits: A of float32 or float16, [..., K]; B of constant weights, N columns in blocks of
/// `block_size` depths, each block with a scale and, if given, a zero point.
///
/// Each run quantizes A block by block to s8. C is then what include/intact/grouped.h defines with INTACT_GRANULARITY_GROUPS:
/// exact integer sums of blocks, and their products with the scales added in the order of the blocks. So C has the same bytes on
/// every CPU, for every number of threads, and rows do not depend on other rows. ONNX Runtime has the same integer sums, and
/// adds their products in an order that depends on the ISA, the rows and the column.
///
/// Refuses nodes with an accuracy level other than 4, except with the option `quantize_activations`, and all nodes with `like`.
class MatMulNBits : public Layer {
 public:
  /// The operator's inputs, as its definition names them.
  static constexpr std::array kInputs = {"A", "B", "scales", "zero_points", "g_idx", "bias"};

  MatMulNBits(const Node& node, const Context& context);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return KernelOf(*plan_); }

 private:
  GroupedPlan plan_;
  int64_t n_ = 0, k_ = 0;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_NBITS_H_
