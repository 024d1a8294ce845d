// A mixture of experts with weights in blocks.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_QMOE_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_QMOE_H_

#include <array>
#include <cstdint>
#include <string>

#include "layer.h"
#include "linear.h"
#include "node.h"
#include "plans.h"
#include "run.h"

namespace intact::onnxruntime {

/// com.microsoft's QMoE with `quant_type` int and a `block_size`. For a row x of the input and the row p of router_probs:
///
///     experts j = 0 … k−1: the k largest elements of p, the largest first, of equal ones the one with the larger number
///     weights:  e[j] = exp(p[j] − p[0]), w[j] = e[j] · (1 / (e[0] + e[1] + …))
///               with router_weights instead their elements of these experts, if `normalize_routing_weights` times
///               1 / (their sum); a sum of 0 has the inverse 0
///     h = x·FC1 + bias, y[j] = activation(h)·FC2 + bias       products of ProductOfBlocks of expert j, float32
///     output = ((0 + w[0]·y[0]) + w[1]·y[1]) + …              without the experts with w[j] ≤ 1e−8
///
///     relu: x < 0 ? 0 : x   identity: x   silu: x·s(x)   gelu: x·s(2·(0.7978845608·(x + ((0.044715·x)·x)·x)))
///     swiglu: of the elements g and l of a pair of h: (G·s(alpha·G))·(L + beta) with G = min(g, limit) and
///     L = l, clamped to −limit … limit
///     s(x) = Sigmoid() of float_function.h; exp(x) there
///
/// Each operation is rounded to float32. A NaN in p is below all numbers. So outputs have the same bytes on every CPU, for
/// every number of threads, and a row does not depend on other rows. ONNX Runtime adds the outputs of experts in an order that depends
/// on the number of rows that each expert has.
class QMoE : public Layer {
 public:
  static constexpr std::array kInputs = {"input",
                                         "router_probs",
                                         "fc1_experts_weights",
                                         "fc1_scales",
                                         "fc1_experts_bias",
                                         "fc2_experts_weights",
                                         "fc2_scales",
                                         "fc2_experts_bias",
                                         "fc3_experts_weights",
                                         "fc3_scales",
                                         "fc3_experts_bias",
                                         "fc1_zero_points",
                                         "fc2_zero_points",
                                         "fc3_zero_points",
                                         "router_weights",
                                         "fc1_global_scale",
                                         "fc2_global_scale",
                                         "fc1_act_scale",
                                         "fc2_act_scale",
                                         "fc1_act_block_scale",
                                         "fc2_act_block_scale"};

  /// Refuses nodes with an accuracy level other than 4, except with the option `quantize_activations`, and all nodes with `like`.
  QMoE(const Node& node, const Context& context);
  void Compute(Run& run) const override;
  std::string Kernel() const override { return KernelOf(*fc1_); }

 private:
  enum class Activation { kIdentity, kRelu, kSilu, kGelu, kSwiglu };
  // Which expert computes a row, and the factor of its output.
  struct Route {
    int64_t expert;
    float weight;
  };

  void Choose(const float* probabilities, const float* weights, Route* routes) const;
  // Writes `inter_` elements of the activation of a row of h. `scratch` has room for them.
  void Activate(const float* h, float* scratch, float* activated) const;

  bool is_half_, normalizes_, has_weights_;
  int64_t top_, experts_, hidden_, inter_;
  Activation activation_;
  float alpha_, beta_, limit_;
  GroupedPlan fc1_, fc2_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_QMOE_H_
