// Products with weights of 2, 4 or 8 bits in blocks, as models of language store them.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_NBITS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_NBITS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "layer.h"
#include "linear.h"
#include "node.h"
#include "plans.h"
#include "run.h"

namespace intact::onnxruntime {

/// C = A·B with A of float32 or float16, [..., K], and constant weights B, N columns in blocks of depths, each block with a scale
/// and, if given, a zero point.
///
/// Each run quantizes A block by block to s8. C is then what include/intact/grouped.h defines with INTACT_GRANULARITY_GROUPS:
/// exact integer sums of blocks, and their products with the scales added in the order of the blocks. So C has the same bytes on
/// every CPU, for every number of threads, and rows do not depend on other rows. ONNX Runtime adds the products of
/// the sums in an order that depends on the ISA, the rows and the column, and rounds some activations that lie between two steps in
/// the other direction: it multiplies by 127/max.
class ProductOfBlocks : public Layer {
 public:
  ProductOfBlocks(GroupedPlan plan, int64_t n, int64_t k) : plan_(std::move(plan)), n_(n), k_(k) {}
  void Compute(Run& run) const override;
  std::string Kernel() const override { return KernelOf(*plan_); }

 private:
  const GroupedPlan plan_;
  const int64_t n_, k_;
};

/// Weights in blocks as MatMulNBits and QMoE store them, and where a node has them.
struct Blocks {
  size_t b, scales, zero_points, bias;  ///< inputs; the last two are optional
  int64_t bits, experts, n, k, block;
};

/// The plan of `experts` matrices of weights, with activations of float32 or float16, which each run quantizes, and outputs of `c`.
/// Scales have type `scale_type`, and so does the bias. Throws Refusal.
GroupedPlan MakePlanOfBlocks(const Node& node, const Settings& settings, const Blocks& blocks, intact_type a,
                             intact_type scale_type, intact_type c);

/// Throws Refusal unless the session's options allow products of quantized activations. `name`: the attribute or option that has
/// the accuracy level.
void CheckIsQuantized(const Settings& settings, const char* name, int64_t level);

/// An attribute that must be at least 1.
int64_t PositiveOf(const Node& node, const char* attribute);

/// com.microsoft's MatMulNBits: inputs A, B, scales, zero_points, g_idx, bias. Refuses nodes with an accuracy level other than 4, except
/// with the option `quantize_activations`, and all nodes with `like`.
std::unique_ptr<Layer> MakeMatMulNBits(const Node& node, const Context& context);

/// A product of floats and a DequantizeLinear of constant weights, K×N. ONNX Runtime makes a MatMulNBits of it. Inputs: A, x,
/// x_scale, x_zero_point, bias; the attributes are the DequantizeLinear's. Without `block_size` blocks have Settings::nbits_block depths.
std::unique_ptr<Layer> MakeProductOfBlocks(const Node& node, const Context& context);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_MATMUL_NBITS_H_
