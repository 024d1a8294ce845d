// A quantized layer with the parameters of a call (layers.cc has the arithmetic).
#ifndef INTACT_INTEGRATIONS_PYTORCH_STEP_H_
#define INTACT_INTEGRATIONS_PYTORCH_STEP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "../parts.h"
#include "layer.h"

namespace intact::pytorch {

/// The parameters of a call, except tensors' data. `x_sizes`: as in Step. `scale`: of the output, also where
/// its type is a float type and a function follows.
struct Parameters {
  ScalarType x_type;
  Sizes x_sizes;
  Window window;
  ScalarType type;
  double scale;
  int64_t zero_point;
  std::optional<ScalarType> residual_type;
  double residual_scale;
  int64_t residual_zero_point;
  bool is_sum;
  double lowest, highest;
  bool operator==(const Parameters&) const = default;
};

/// A layer with the parameters of a call, except tensors' data, the scale and the zero point of x, and the
/// number of rows or images.
struct Step {
  std::shared_ptr<const Plan> plan;
  int64_t address = 0;  // of the packed weights, if PyTorch packed them
  ScalarType x_type;
  Sizes x_sizes, sizes;  // of x and of the output, without the number of images; of rows, their length
  ScalarType type;       // of the output
  float scale, q;        // of the output; q: see layers.cc
  bool is_sum;           // whether the output takes the place of the residual
  std::optional<ScalarType> residual_type;
  std::vector<float> scales;
  std::optional<std::vector<float>> bias;
  integrations::PlanWork work;  // of one row or image

  bool is_image() const { return sizes.size() == 3; }

  bool TakesScale(std::optional<float> x_scale) const;
  bool TakesZeroPoint(std::optional<int64_t> x_zero_point) const;

  /// The sizes of the output of x.
  Sizes OutputSizes(const Tensor& x) const;

  /// The output, or nothing if the call needs another step. Tensors may be of any device: packed weights
  /// choose the dispatch key.
  std::optional<Tensor> Run(const Tensor& given_x, const Tensor& given_x_scale,
                            const Tensor& given_x_zero_point, const Tensor& w_scale,
                            const std::optional<Tensor>& other,
                            const std::optional<Tensor>& given_bias) const;

 private:
  /// Whether the tensor has the sizes after one other (images) or after others (rows).
  bool EndsWith(const Tensor& tensor, const Sizes& tail) const;

  /// The work of a run of `count` rows or images.
  integrations::PlanWork WorkOf(int64_t count) const;
  void Compute(const Tensor& x, float x_scale, int32_t x_zero_point, const std::optional<Tensor>& residual,
               Tensor& out) const;
};

/// The layer with the parameters. Throws NoPlan.
std::shared_ptr<Step> StepOf(Layer& layer, const Parameters& parameters, const Tensor& w_scale,
                             const std::optional<Tensor>& bias);

}  // namespace intact::pytorch

#endif  // INTACT_INTEGRATIONS_PYTORCH_STEP_H_
