// Layers of constant int8 weights with float scales, for PyTorch's operators onednn::qlinear_pointwise and
// onednn::qconv_pointwise. python/intact/_torch_layers.py takes the place of these operators, and calls
//
//   intact::layer        keeps the weights; intact_pytorch_free_layer() frees them
//   intact::run_layer    computes a layer; or returns false, and writes nothing, if no plan has its parameters
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
#include <array>
#include <cmath>
#include <initializer_list>
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

using Sizes = std::vector<int64_t>;

Sizes SizesOf(const Tensor& tensor) {
  Sizes sizes;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) sizes.push_back(tensor.size(dim));
  return sizes;
}

std::string TextOf(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

[[noreturn]] void Refuse(const char* name, const std::string& is, const std::string& expected) {
  throw std::runtime_error(std::string("intact: ") + name + " " + is + "; expected " + expected);
}

/// Refuses a tensor of another type or other sizes, and one with gaps between its elements: row-major, or
/// channels-last with 4 dimensions.
void Check(const char* name, const Tensor& tensor, std::initializer_list<ScalarType> types,
           const Sizes& sizes) {
  if (std::find(types.begin(), types.end(), tensor.scalar_type()) == types.end()) {
    std::string expected;
    for (const ScalarType type : types)
      expected += std::string(expected.empty() ? "" : " or ") + torch::headeronly::toString(type);
    Refuse(name, std::string("has the type ") + torch::headeronly::toString(tensor.scalar_type()), expected);
  }
  if (SizesOf(tensor) != sizes) Refuse(name, "has the sizes " + TextOf(SizesOf(tensor)), TextOf(sizes));
  const bool is_image = sizes.size() == 4;
  int64_t adjacent = 1;
  for (size_t i = sizes.size(); tensor.numel() != 0 && i-- > 0;) {
    const int64_t dim = !is_image ? static_cast<int64_t>(i) : std::array<int64_t, 4>{0, 2, 3, 1}[i];
    if (tensor.size(dim) != 1 && tensor.stride(dim) != adjacent)
      Refuse(name,
             "has the stride " + std::to_string(tensor.stride(dim)) + " in dimension " + std::to_string(dim),
             std::to_string(adjacent));
    adjacent *= tensor.size(dim);
  }
}

int32_t TypeOf(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Byte:
      return INTACT_U8;
    case ScalarType::Char:
      return INTACT_S8;
    case ScalarType::Float:
      return INTACT_F32;
    default:
      return INTACT_BF16;
  }
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  const auto* const begin = static_cast<const float*>(tensor.const_data_ptr());
  return {begin, begin + tensor.numel()};
}

/// A convolution's window: stride, padding and dilation, two numbers each, and the number of groups. Empty
/// for a linear layer.
using Window = Sizes;

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

class Layer {
 public:
  /// `weights`: dense, K×N of a linear layer, output channels × height × width × input channels of a
  /// convolution's group.
  explicit Layer(const Tensor& weights) : sizes_(SizesOf(weights)) {
    const auto* const begin = static_cast<const int8_t*>(weights.const_data_ptr());
    weights_.assign(begin, begin + weights.numel());
  }

  const Sizes& sizes() const { return sizes_; }

  /// Returns false, and writes nothing, if no plan has these parameters.
  bool Run(const Key& key, const Tensor& x, float x_scale, int32_t x_zero_point, const Tensor* residual,
           Tensor& out) {
    if (out.numel() == 0) return true;
    const auto plan = Get(key);
    if (plan == nullptr) return false;
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
      for (size_t i = 0; i < 2; ++i) {
        args.input[i] = x.size(static_cast<int64_t>(2 + i));
        args.output[i] = out.size(static_cast<int64_t>(2 + i));
      }
      RunParts(static_cast<double>(out.numel()) * static_cast<double>(sizes_[1] * sizes_[2] * sizes_[3]),
               [&](int32_t part, int32_t parts) {
                 return intact_conv_run_part(std::get<Conv>(*plan).handle(), &args, part, parts);
               });
    }
    return true;
  }

 private:
  using Plan = std::variant<Gemm, Conv>;

  /// The plan, or nullptr if none has these parameters. A convolution's first input gets a plan for its
  /// extents, which is the fastest. One plan serves all other extents: they share its packed weights.
  std::shared_ptr<const Plan> Get(const Key& given) {
    const std::lock_guard lock(mutex_);
    auto plan = Find(given);
    if (plan != nullptr) return plan;
    Key key = given;
    if (!plans_.empty() && !key.extents.empty()) {
      key.extents = {INTACT_ANY_EXTENT, INTACT_ANY_EXTENT};
      plan = Find(key);
      if (plan != nullptr) return plan;
    }
    plan = Make(key);
    if (plan == nullptr) return nullptr;
    plans_.emplace_front(std::move(key), plan);
    if (plans_.size() > kMost) plans_.pop_back();
    return plan;
  }

  std::shared_ptr<const Plan> Find(const Key& key) {
    const auto found =
        std::find_if(plans_.begin(), plans_.end(), [&](const auto& entry) { return entry.first == key; });
    if (found == plans_.end()) return nullptr;
    plans_.splice(plans_.begin(), plans_, found);
    return found->second;
  }

  std::shared_ptr<const Plan> Make(const Key& key) const {
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

  /// The plan, or nullptr if none has these parameters.
  template <class Type>
  std::shared_ptr<const Plan> Made(Result<Type> plan) const {
    if (plan) return std::make_shared<const Plan>(std::move(*plan));
    const intact_status status = plan.error().status;
    if (status == INTACT_INVALID_ARGUMENT || status == INTACT_UNSUPPORTED) return nullptr;
    throw std::runtime_error("intact: " + plan.error().message);
  }

  std::shared_ptr<const Plan> MakeGemm(const intact_linear_desc& linear) const {
    GemmDesc desc = MakeGemmDesc();
    desc.linear = linear;
    desc.k = sizes_[0];
    desc.n = sizes_[1];
    return Made(Gemm::Create(desc, weights_.data()));
  }

  std::shared_ptr<const Plan> MakeConv(const intact_linear_desc& linear, const Key& key) const {
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

  // Each plan has the packed weights. Scales that change with every call must not fill memory.
  static constexpr size_t kMost = 4;

  Sizes sizes_;
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
      Refuse("layer", "is " + std::to_string(number), "a number that intact::layer returned");
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

int64_t AddLayer(const Tensor& weights) {
  if (weights.dim() != 2 && weights.dim() != 4)
    Refuse("weights", "have the sizes " + TextOf(SizesOf(weights)), "2 or 4 sizes");
  if (weights.scalar_type() != ScalarType::Char)
    Refuse("weights", std::string("have the type ") + torch::headeronly::toString(weights.scalar_type()),
           "Char");
  if (!weights.is_contiguous()) Refuse("weights", "are not contiguous", "adjacent elements");
  return TheLayers().Add(weights);
}

/// Refuses tensors that do not fit the weights. The plan refuses wrong extents of a convolution's output.
void CheckTensors(const Sizes& weights, const Tensor& x, const Tensor& w_scale, const Tensor* bias,
                  const Window& window, const Tensor* residual, const Tensor& out) {
  const bool is_conv = weights.size() == 4;
  if (window.size() != (is_conv ? 7 : 0))
    Refuse("window", "has " + std::to_string(window.size()) + " numbers", is_conv ? "7" : "0");
  const int64_t outputs = weights[is_conv ? 0 : 1];
  Sizes inputs = SizesOf(x), result = SizesOf(out);
  if (inputs.size() != 4 && is_conv) Refuse("x", "has the sizes " + TextOf(inputs), "4 sizes");
  if (inputs.empty()) Refuse("x", "has no dimension", "at least one");
  if (is_conv) {
    if (result.size() != 4) Refuse("out", "has the sizes " + TextOf(result), "4 sizes");
    inputs[1] = weights[3] * window[6];
    result[0] = inputs[0];
    result[1] = outputs;
  } else {
    inputs.back() = weights[0];
    result = inputs;
    result.back() = outputs;
  }
  constexpr auto kFloat = ScalarType::Float;
  Check("x", x, {ScalarType::Byte, ScalarType::Char}, inputs);
  Check("out", out, {ScalarType::Byte, ScalarType::Char, kFloat, ScalarType::BFloat16}, result);
  if (residual != nullptr) Check("residual", *residual, {ScalarType::Byte, ScalarType::Char, kFloat}, result);
  Check("w_scale", w_scale, {kFloat}, {w_scale.numel() == 1 ? 1 : outputs});
  if (bias != nullptr) Check("bias", *bias, {kFloat}, {outputs});
}

bool RunLayer(int64_t number, const Tensor& x, double x_scale, int64_t x_zero_point, const Tensor& w_scale,
              std::optional<Tensor> bias, Window window, double output_scale, int64_t output_zero_point,
              std::optional<Tensor> residual, double residual_scale, int64_t residual_zero_point,
              double lowest, double highest, Tensor out) {
  const auto layer = TheLayers().Get(number);
  CheckTensors(layer->sizes(), x, w_scale, bias ? &*bias : nullptr, window, residual ? &*residual : nullptr,
               out);
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
  return layer->Run(key, x, static_cast<float>(x_scale) / scale, static_cast<int32_t>(x_zero_point),
                    residual ? &*residual : nullptr, out);
}

}  // namespace
}  // namespace intact::pytorch

STABLE_TORCH_LIBRARY_FRAGMENT(intact, library) {
  library.def("layer(Tensor weights) -> int");
  library.def(
      "run_layer(int layer, Tensor x, float x_scale, int x_zero_point, Tensor w_scale, Tensor? bias, "
      "int[] window, float output_scale, int output_zero_point, Tensor? residual, float residual_scale, "
      "int residual_zero_point, float lowest, float highest, Tensor(a!) out) -> bool");
}
STABLE_TORCH_LIBRARY_IMPL(intact, CPU, library) {
  library.impl("layer", TORCH_BOX(&intact::pytorch::AddLayer));
  library.impl("run_layer", TORCH_BOX(&intact::pytorch::RunLayer));
}

/// Frees the weights and the plans of a layer.
extern "C" __attribute__((visibility("default"))) void intact_pytorch_free_layer(int64_t layer) {
  intact::pytorch::TheLayers().Remove(layer);
}
