// Layers of constant int8 weights with float scales, for PyTorch's operators onednn::qlinear_pointwise and
// onednn::qconv_pointwise. python/intact/torch/_layers.py takes the place of these operators, and calls
//
//   intact::layer       keeps the weights; intact_pytorch_free_layer() frees them
//   intact::step        the layer with the parameters of a call; intact_pytorch_free_step() frees it
//   intact::run_step    the output of a call; or nothing, if the call needs another step
//
// packaged_layers.cc has the layers of AOTInductor's packages.
//
// The arithmetic, each operation rounded to float32, with q = 1 for float outputs, else the output's scale:
//
//   f = float(acc) · ((x_scale/q) · w_scale[n]) + bias[n]/q
//   f = f + float(residual − residual_zero_point) · (residual_scale/q)
//   f = min(max(f, lowest/q), highest/q)
//   c = f, or clamp(rne(f) + output_zero_point, the type's range)
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "layer.h"
#include "step.h"

namespace intact::pytorch {
namespace {

/// Objects by their numbers. A number is never used twice. Thread-safe.
template <class Type>
class Numbered {
 public:
  /// `name`: of the operator's argument.
  explicit Numbered(const char* name) : name_(name) {}

  int64_t Add(std::shared_ptr<Type> object) {
    const std::lock_guard lock(mutex_);
    objects_.emplace(++last_, std::move(object));
    return last_;
  }
  std::shared_ptr<Type> Get(int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(number);
    if (found == objects_.end())
      Refuse(name_, "is " + std::to_string(number),
             std::string("a number that intact::") + name_ + " returned");
    return found->second;
  }
  void Remove(int64_t number) {
    const std::lock_guard lock(mutex_);
    objects_.erase(number);
  }

 private:
  const char* name_;
  std::mutex mutex_;
  int64_t last_ = 0;
  std::unordered_map<int64_t, std::shared_ptr<Type>> objects_;
};

Numbered<Layer>& TheLayers() {
  static Numbered<Layer> layers("layer");
  return layers;
}

Numbered<const Step>& TheSteps() {
  static Numbered<const Step> steps("step");
  return steps;
}

int64_t AddLayer(const Tensor& weights) {
  CheckWeights(weights);
  return TheLayers().Add(std::make_shared<Layer>(weights));
}

/// The step's number, or 0 if no plan has these parameters.
int64_t MakeStep(int64_t number, int64_t packed, ScalarType x_type, Sizes x_sizes, const Tensor& w_scale,
                 std::optional<Tensor> bias, Window window, ScalarType type, double scale, int64_t zero_point,
                 std::optional<ScalarType> residual_type, double residual_scale, int64_t residual_zero_point,
                 bool is_sum, double lowest, double highest) try {
  const auto step = StepOf(*TheLayers().Get(number),
                           {x_type, std::move(x_sizes), std::move(window), type, scale, zero_point,
                            residual_type, residual_scale, residual_zero_point, is_sum, lowest, highest},
                           w_scale, bias);
  step->address = packed;
  return TheSteps().Add(step);
} catch (const NoPlan&) {
  return 0;
}

std::optional<Tensor> RunStep(int64_t number, const Tensor& weight, const Tensor& x, const Tensor& x_scale,
                              const Tensor& x_zero_point, const Tensor& w_scale, std::optional<Tensor> other,
                              std::optional<Tensor> bias) {
  const auto step = TheSteps().Get(number);
  std::optional<Tensor> out;
  if (AddressOf(weight) == step->address) out = step->Run(x, x_scale, x_zero_point, w_scale, other, bias);
  return out;
}

}  // namespace
}  // namespace intact::pytorch

STABLE_TORCH_LIBRARY_FRAGMENT(intact, library) {
  library.def("layer(Tensor weights) -> int");
  library.def(
      "step(int layer, int packed, ScalarType x_type, int[] x_sizes, Tensor w_scale, Tensor? bias, "
      "int[] window, ScalarType type, float scale, int zero_point, ScalarType? residual_type, "
      "float residual_scale, int residual_zero_point, bool is_sum, float lowest, float highest) -> int");
  // A sum in place returns `other` itself. A schema cannot express that the output is sometimes an alias.
  library.def(
      "run_step(int step, Tensor weight, Tensor x, Tensor x_scale, Tensor x_zero_point, Tensor w_scale, "
      "Tensor(a!)? other, Tensor? bias) -> Tensor?");
}
STABLE_TORCH_LIBRARY_IMPL(intact, CPU, library) {
  library.impl("layer", TORCH_BOX(&intact::pytorch::AddLayer));
  library.impl("step", TORCH_BOX(&intact::pytorch::MakeStep));
}
// The packed weights choose the key.
STABLE_TORCH_LIBRARY_IMPL(intact, MkldnnCPU, library) {
  library.impl("run_step", TORCH_BOX(&intact::pytorch::RunStep));
}

/// Frees the weights and the plans of a layer.
extern "C" __attribute__((visibility("default"))) void intact_pytorch_free_layer(int64_t layer) {
  intact::pytorch::TheLayers().Remove(layer);
}

extern "C" __attribute__((visibility("default"))) void intact_pytorch_free_step(int64_t step) {
  intact::pytorch::TheSteps().Remove(step);
}
