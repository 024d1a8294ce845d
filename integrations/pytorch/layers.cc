// Layers of constant int8 weights with float scales, for PyTorch's operators onednn::qlinear_pointwise and
// onednn::qconv_pointwise. python/intact/_torch_layers.py takes the place of these operators, and calls
//
//   intact::layer        keeps the weights; intact_pytorch_free_layer() frees them
//   intact::run_layer    computes a layer
//
// The arithmetic, each operation rounded to float32, with q = 1 for float outputs, else the output's scale:
//
//   f = float(acc) · ((x_scale/q) · w_scale[n]) + bias[n]/q
//   f = f + float(residual − residual_zero_point) · (residual_scale/q)
//   f = min(max(f, lowest/q), highest/q)
//   c = f, or clamp(rne(f) + output_zero_point, the type's range)
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <intact/intact.hpp>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "run.h"

namespace intact::pytorch {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

int32_t TypeOf(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Byte:
      return INTACT_U8;
    case ScalarType::Char:
      return INTACT_S8;
    case ScalarType::Float:
      return INTACT_F32;
    case ScalarType::BFloat16:
      return INTACT_BF16;
    default:
      throw std::runtime_error(std::string("intact: a tensor has the type ") +
                               torch::headeronly::toString(tensor.scalar_type()) +
                               "; expected uint8, int8, float or bfloat16");
  }
}

std::vector<int64_t> SizesOf(const Tensor& tensor) {
  std::vector<int64_t> sizes;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) sizes.push_back(tensor.size(dim));
  return sizes;
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  const auto* const begin = static_cast<const float*>(tensor.const_data_ptr());
  return {begin, begin + tensor.numel()};
}

/// A convolution's window: stride, padding and dilation, two numbers each, and the number of groups. Empty
/// for a linear layer.
using Window = std::vector<int64_t>;

/// What a plan depends on, in addition to the weights.
struct Key {
  int32_t a_type = 0, c_type = 0, residual_type = INTACT_TYPE_NONE;
  int32_t c_zero_point = 0, residual_zero_point = 0;
  float residual_scale = 0, lowest = 0, highest = 0;
  std::vector<float> scales, bias;
  Window window;
  std::vector<int64_t> extents;  // of a convolution's input
  bool operator==(const Key&) const = default;
};

class Layer {
 public:
  /// `weights`: dense, K×N of a linear layer, output channels × height × width × input channels of a
  /// convolution's group.
  explicit Layer(const Tensor& weights) : sizes_(SizesOf(weights)) {
    const auto* const begin = static_cast<const int8_t*>(weights.const_data_ptr());
    weights_.assign(begin, begin + weights.numel());
  }

  void Run(const Key& key, const Tensor& x, float x_scale, int32_t x_zero_point, const Tensor* residual,
           Tensor& out) {
    if (out.numel() == 0) return;
    const auto plan = Get(key);
    const auto set = [&](auto* args) {
      args->a = x.const_data_ptr();
      args->a_scales = &x_scale;
      args->a_zero_points = &x_zero_point;
      args->residual = residual != nullptr ? residual->const_data_ptr() : nullptr;
      args->c = out.mutable_data_ptr();
    };
    if (const auto* const gemm = std::get_if<Gemm>(plan.get())) {
      intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
      set(&args);
      args.m = x.numel() / sizes_[0];
      RunParts(static_cast<double>(args.m) * static_cast<double>(weights_.size()),
               [&](int32_t part, int32_t parts) {
                 return intact_gemm_run_part(gemm->handle(), &args, part, parts);
               });
    } else {
      intact_conv_args args = INTACT_CONV_ARGS_INIT;
      set(&args);
      args.batch = x.size(0);
      RunParts(static_cast<double>(out.numel()) * static_cast<double>(sizes_[1] * sizes_[2] * sizes_[3]),
               [&](int32_t part, int32_t parts) {
                 return intact_conv_run_part(std::get<Conv>(*plan).handle(), &args, part, parts);
               });
    }
  }

 private:
  using Plan = std::variant<Gemm, Conv>;

  std::shared_ptr<const Plan> Get(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(plans_.begin(), plans_.end(), [&](const auto& entry) { return entry.first == key; });
    if (found != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, found);
    } else {
      plans_.emplace_front(key, std::make_shared<const Plan>(Make(key)));
      if (plans_.size() > kMost) plans_.pop_back();
    }
    return plans_.front().second;
  }

  Plan Make(const Key& key) const {
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    linear.a_type = key.a_type;
    linear.c_type = key.c_type;
    linear.c_zero_point = key.c_zero_point;
    linear.a_quantization = INTACT_QUANTIZATION_TENSOR;
    linear.scales = key.scales.data();
    linear.scale_count = static_cast<int64_t>(key.scales.size());
    linear.bias_f32 = key.bias.empty() ? nullptr : key.bias.data();
    linear.residual_type = key.residual_type;
    linear.residual_scale = key.residual_scale;
    linear.residual_zero_point = key.residual_zero_point;
    linear.overflow = INTACT_OVERFLOW_WRAPS;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (key.lowest == 0 && key.highest == kInfinity) {
      linear.activation = INTACT_ACTIVATION_RELU;
    } else if (key.lowest != -kInfinity || key.highest != kInfinity) {
      linear.activation = INTACT_ACTIVATION_CLAMP;
      linear.clamp_min = key.lowest;
      linear.clamp_max = key.highest;
    }
    return sizes_.size() == 2 ? MakeGemm(linear) : MakeConv(linear, key);
  }

  template <class Type>
  Plan Made(Result<Type> plan) const {
    if (!plan) throw std::runtime_error("intact: " + plan.error().message);
    return std::move(*plan);
  }

  Plan MakeGemm(const intact_linear_desc& linear) const {
    GemmDesc desc = MakeGemmDesc();
    desc.linear = linear;
    desc.k = sizes_[0];
    desc.n = sizes_[1];
    return Made(Gemm::Create(desc, weights_.data()));
  }

  Plan MakeConv(const intact_linear_desc& linear, const Key& key) const {
    ConvDesc desc = MakeConvDesc();
    desc.linear = linear;
    desc.groups = key.window[6];
    desc.output_channels = sizes_[0];
    desc.input_channels = sizes_[3] * desc.groups;
    for (size_t i = 0; i < 2; ++i) {
      desc.input[i] = key.extents[i];
      desc.kernel[i] = sizes_[1 + i];
      desc.stride[i] = key.window[i];
      desc.pad_begin[i] = desc.pad_end[i] = key.window[2 + i];
      desc.dilation[i] = key.window[4 + i];
    }
    return Made(Conv::Create(desc, weights_.data()));
  }

  // Inputs of more sizes than a model has. Sizes that change with every call must not fill memory.
  static constexpr size_t kMost = 16;

  std::vector<int64_t> sizes_;
  std::vector<int8_t> weights_;
  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Plan>>> plans_;
};

/// The layers by their numbers. A number is never used twice. Thread-safe.
class Layers {
 public:
  int64_t Add(const Tensor& weights) {
    auto layer = std::make_shared<Layer>(weights);
    const std::lock_guard lock(mutex_);
    layers_.emplace(++last_, std::move(layer));
    return last_;
  }
  std::shared_ptr<Layer> Get(int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = layers_.find(number);
    if (found == layers_.end()) {
      throw std::runtime_error("intact: layer is " + std::to_string(number) + "; expected a number that " +
                               "intact::layer returned");
    }
    return found->second;
  }
  void Remove(int64_t number) {
    const std::lock_guard lock(mutex_);
    layers_.erase(number);
  }

 private:
  std::mutex mutex_;
  int64_t last_ = 0;
  std::map<int64_t, std::shared_ptr<Layer>> layers_;
};

Layers& TheLayers() {
  static Layers layers;
  return layers;
}

int64_t AddLayer(const Tensor& weights) { return TheLayers().Add(weights); }

void RunLayer(int64_t layer, const Tensor& x, double x_scale, int64_t x_zero_point, const Tensor& w_scale,
              std::optional<Tensor> bias, Window window, double output_scale, int64_t output_zero_point,
              std::optional<Tensor> residual, double residual_scale, int64_t residual_zero_point,
              double lowest, double highest, Tensor out) {
  Key key;
  key.a_type = TypeOf(x);
  key.c_type = TypeOf(out);
  const bool is_float = key.c_type == INTACT_F32 || key.c_type == INTACT_BF16;
  const auto scale = is_float ? 1.0f : static_cast<float>(output_scale);
  key.c_zero_point = is_float ? 0 : static_cast<int32_t>(output_zero_point);
  key.scales = FloatsOf(w_scale);
  if (bias) key.bias = FloatsOf(*bias);
  for (float& value : key.bias) value /= scale;
  if (residual) {
    key.residual_type = TypeOf(*residual);
    key.residual_scale = static_cast<float>(residual_scale) / scale;
    key.residual_zero_point = static_cast<int32_t>(residual_zero_point);
  }
  key.lowest = static_cast<float>(lowest) / scale;
  key.highest = static_cast<float>(highest) / scale;
  key.window = std::move(window);
  if (!key.window.empty()) key.extents = {x.size(2), x.size(3)};
  TheLayers().Get(layer)->Run(key, x, static_cast<float>(x_scale) / scale, static_cast<int32_t>(x_zero_point),
                              residual ? &*residual : nullptr, out);
}

}  // namespace
}  // namespace intact::pytorch

STABLE_TORCH_LIBRARY_FRAGMENT(intact, library) {
  library.def("layer(Tensor weights) -> int");
  library.def(
      "run_layer(int layer, Tensor x, float x_scale, int x_zero_point, Tensor w_scale, Tensor? bias, "
      "int[] window, float output_scale, int output_zero_point, Tensor? residual, float residual_scale, "
      "int residual_zero_point, float lowest, float highest, Tensor(a!) out) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(intact, CPU, library) {
  library.impl("layer", TORCH_BOX(&intact::pytorch::AddLayer));
  library.impl("run_layer", TORCH_BOX(&intact::pytorch::RunLayer));
}

/// Frees the weights and the plans of a layer.
extern "C" __attribute__((visibility("default"))) void intact_pytorch_free_layer(int64_t layer) {
  intact::pytorch::TheLayers().Remove(layer);
}
