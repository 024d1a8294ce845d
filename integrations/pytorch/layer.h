// The weights of a quantized layer, and its plans.
#ifndef INTACT_INTEGRATIONS_PYTORCH_LAYER_H_
#define INTACT_INTEGRATIONS_PYTORCH_LAYER_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "tensors.h"

namespace intact::pytorch {

/// A convolution's window: stride, padding and dilation, two numbers each, and the number of groups. Empty
/// for a linear layer.
using Window = Sizes;

using Plan = std::variant<Gemm, Conv>;

/// No plan has these parameters.
struct NoPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How many plans and steps a layer keeps. Each plan has the packed weights. Scales that change with every
/// call must not fill memory.
constexpr size_t kMostPlans = 4;

/// Refuses weights that no layer has.
void CheckWeights(const Tensor& weights);

/// Weights with the plans that were used last. Thread-safe.
class Layer {
 public:
  /// What a plan depends on, in addition to the weights.
  struct Key {
    int32_t a_type = 0, c_type = 0, residual_type = INTACT_TYPE_NONE;
    int32_t c_zero_point = 0, residual_zero_point = 0;
    float residual_scale = 0, lowest = 0, highest = 0;
    std::vector<float> scales, bias;
    Window window;
    Sizes extents;  // of a convolution's input, or INTACT_ANY_EXTENT
    bool operator==(const Key&) const = default;
  };

  /// `weights`: dense, K×N of a linear layer, output channels × height × width × input channels of a
  /// convolution's group.
  explicit Layer(const Tensor& weights);

  const Sizes& sizes() const { return sizes_; }

  /// Whether the layer has these weights.
  bool Has(const Tensor& weights) const;

  /// Throws NoPlan. A convolution's first input gets a plan for its extents, which is the fastest. One plan
  /// serves all other extents: they share its packed weights.
  std::shared_ptr<const Plan> Get(const Key& given);

 private:
  std::shared_ptr<const Plan> Find(const Key& key);
  std::shared_ptr<const Plan> Make(const Key& key) const;
  std::shared_ptr<const Plan> MakeGemm(const intact_linear_desc& linear) const;
  std::shared_ptr<const Plan> MakeConv(const intact_linear_desc& linear, const Key& key) const;

  Sizes sizes_;
  std::vector<int8_t> weights_;
  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Plan>>> plans_;
};

}  // namespace intact::pytorch

#endif  // INTACT_INTEGRATIONS_PYTORCH_LAYER_H_
