// Layers of constant int8 weights with float scales, for PyTorch's operators onednn::qlinear_pointwise and
// onednn::qconv_pointwise. python/intact/_torch_layers.py takes the place of these operators, and calls
//
//   intact::layer       keeps the weights; intact_pytorch_free_layer() frees them
//   intact::step        the layer with the parameters of a call; intact_pytorch_free_step() frees it
//   intact::run_step    the output of a call; or nothing, if the call needs another step
//
// Packages of AOTInductor run without Python. They call
//
//   intact::packaged_layer    the output of a layer; its first call makes the plan
//
// The arithmetic, each operation rounded to float32, with q = 1 for float outputs, else the output's scale:
//
//   f = float(acc) · ((x_scale/q) · w_scale[n]) + bias[n]/q
//   f = f + float(residual − residual_zero_point) · (residual_scale/q)
//   f = min(max(f, lowest/q), highest/q)
//   c = f, or clamp(rne(f) + output_zero_point, the type's range)
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <intact/intact.hpp>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
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

int32_t TypeOf(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
      return INTACT_U8;
    case ScalarType::Char:
      return INTACT_S8;
    case ScalarType::Float:
      return INTACT_F32;
    case ScalarType::BFloat16:
      return INTACT_BF16;
    default:
      Refuse("type", std::string("is ") + torch::headeronly::toString(type), "Byte, Char, Float or BFloat16");
  }
}

std::vector<float> FloatsOf(const char* name, const Tensor& tensor) {
  if (tensor.scalar_type() != ScalarType::Float)
    Refuse(name, std::string("has the type ") + torch::headeronly::toString(tensor.scalar_type()), "Float");
  if (!tensor.is_contiguous()) Refuse(name, "has gaps", "adjacent elements");
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

using Plan = std::variant<Gemm, Conv>;

/// No plan has these parameters.
struct NoPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How many plans and steps a layer keeps. Each plan has the packed weights. Scales that change with every
/// call must not fill memory.
constexpr size_t kMostPlans = 4;

class Layer {
 public:
  /// `weights`: dense, K×N of a linear layer, output channels × height × width × input channels of a
  /// convolution's group.
  explicit Layer(const Tensor& weights) : sizes_(SizesOf(weights)) {
    const auto* const begin = static_cast<const int8_t*>(weights.const_data_ptr());
    weights_.assign(begin, begin + weights.numel());
  }

  const Sizes& sizes() const { return sizes_; }

  /// Whether the layer has these weights.
  bool Has(const Tensor& weights) const {
    return SizesOf(weights) == sizes_ &&
           std::memcmp(weights_.data(), weights.const_data_ptr(), weights_.size()) == 0;
  }

  /// Throws NoPlan. A convolution's first input gets a plan for its extents, which is the fastest. One plan
  /// serves all other extents: they share its packed weights.
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
    plans_.emplace_front(std::move(key), plan);
    if (plans_.size() > kMostPlans) plans_.pop_back();
    return plan;
  }

 private:
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

  template <class Type>
  std::shared_ptr<const Plan> Made(Result<Type> plan) const {
    if (plan) return std::make_shared<const Plan>(std::move(*plan));
    const intact_status status = plan.error().status;
    const std::string message = "intact: " + plan.error().message;
    if (status == INTACT_INVALID_ARGUMENT || status == INTACT_UNSUPPORTED) throw NoPlan(message);
    throw std::runtime_error(message);
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

  Sizes sizes_;
  std::vector<int8_t> weights_;
  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Plan>>> plans_;
};

/// The elements lie row-major, images channels-last, without gaps.
bool IsDense(const Tensor& tensor, bool is_image) {
  if (!is_image) return tensor.is_contiguous();
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  int64_t adjacent = 1;
  for (const size_t dim : {1, 3, 2, 0}) {
    if (sizes[dim] != 1 && strides[dim] != adjacent) return false;
    adjacent *= sizes[dim];
  }
  return true;
}

Tensor Dense(const Tensor& tensor, bool is_image) {
  if (IsDense(tensor, is_image)) return tensor;
  using torch::headeronly::MemoryFormat;
  return torch::stable::contiguous(tensor, is_image ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
}

/// A tensor without gaps and without values.
Tensor Empty(const Sizes& sizes, bool is_image, ScalarType type) {
  Sizes strides(sizes.size());
  int64_t adjacent = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    const size_t dim = is_image ? std::array<size_t, 4>{0, 2, 3, 1}[i] : i;
    strides[dim] = adjacent;
    adjacent *= sizes[dim];
  }
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                               torch::stable::detail::to<int32_t>(torch::stable::detail::from(type)),
                               aoti_torch_device_type_cpu(), 0, &handle));
  return Tensor(handle);
}

/// The address of packed weights, which have no storage.
int64_t AddressOf(const Tensor& packed) {
  std::array stack{torch::stable::detail::from(packed)};
  STABLE_TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("mkldnn::data_ptr", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<int64_t>(stack[0]);
}

/// Whether dense tensors have memory in common.
bool Overlap(const Tensor& a, const Tensor& b) {
  const auto range = [](const Tensor& tensor) {
    const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    return std::pair(begin, begin + static_cast<size_t>(tensor.numel()) * tensor.element_size());
  };
  const auto [a_begin, a_end] = range(a);
  const auto [b_begin, b_end] = range(b);
  return a_begin < b_end && b_begin < a_end;
}

/// The only element, or nothing if there are more, or if it has another type or lies on another device.
std::optional<float> ScaleOf(const Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.numel() != 1 || tensor.scalar_type() != ScalarType::Float)
    return std::nullopt;
  return *static_cast<const float*>(tensor.const_data_ptr());
}
std::optional<int64_t> ZeroPointOf(const Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.numel() != 1) return std::nullopt;
  if (tensor.scalar_type() == ScalarType::Int) return *static_cast<const int32_t*>(tensor.const_data_ptr());
  if (tensor.scalar_type() == ScalarType::Long) return *static_cast<const int64_t*>(tensor.const_data_ptr());
  return std::nullopt;
}

/// Whether an 8-bit type has the value.
bool IsValueOf(ScalarType type, int64_t value) {
  const int64_t lowest = type == ScalarType::Byte ? 0 : -128;
  return value >= lowest && value <= lowest + 255;
}

bool IsScale(float value) { return std::isnormal(value) && value > 0 && value < 0x1p127f; }

/// A layer with the parameters of a call, except tensors' data, the scale and the zero point of x, and the
/// number of rows or images.
struct Step {
  std::shared_ptr<const Plan> plan;
  int64_t address = 0;  // of the packed weights, if PyTorch packed them
  ScalarType x_type;
  Sizes x_sizes, sizes;  // of x and of the output, without the number of images; of rows, their length
  ScalarType type;       // of the output
  float scale, q;        // of the output; q: see above
  bool is_sum;           // whether the output takes the place of the residual
  std::optional<ScalarType> residual_type;
  std::vector<float> scales;
  std::optional<std::vector<float>> bias;
  double multiply_adds;  // of one row or image

  bool is_image() const { return sizes.size() == 3; }

  bool TakesScale(std::optional<float> x_scale) const {
    return x_scale && IsScale(*x_scale) && IsScale(*x_scale / scale);
  }
  bool TakesZeroPoint(std::optional<int64_t> x_zero_point) const {
    return x_zero_point && IsValueOf(x_type, *x_zero_point);
  }

  /// The sizes of the output of x.
  Sizes OutputSizes(const Tensor& x) const {
    Sizes all = SizesOf(x);
    std::copy(sizes.begin(), sizes.end(), all.end() - static_cast<ptrdiff_t>(sizes.size()));
    return all;
  }

  /// The output, or nothing if the call needs another step. Tensors may be of any device: packed weights
  /// choose the dispatch key.
  std::optional<Tensor> Run(const Tensor& given_x, const Tensor& given_x_scale,
                            const Tensor& given_x_zero_point, const Tensor& w_scale,
                            const std::optional<Tensor>& other,
                            const std::optional<Tensor>& given_bias) const {
    const auto x_scale = ScaleOf(given_x_scale);
    const auto x_zero_point = ZeroPointOf(given_x_zero_point);
    if (!given_x.is_cpu() || given_x.scalar_type() != x_type || !EndsWith(given_x, x_sizes) ||
        !TakesScale(x_scale) || !TakesZeroPoint(x_zero_point) || !Has(scales, w_scale) ||
        given_bias.has_value() != bias.has_value() || (bias && !Has(*bias, *given_bias)))
      return std::nullopt;
    const Sizes out_sizes = OutputSizes(given_x);
    const Tensor x = Dense(given_x, is_image());
    std::optional<Tensor> residual, out;
    if (residual_type) {
      if (!other || !other->is_cpu() || other->scalar_type() != *residual_type ||
          SizesOf(*other) != out_sizes)
        return std::nullopt;
      residual = Dense(*other, is_image());
      if (is_sum && *residual_type == type && residual->get() == other->get() && !Overlap(x, *other))
        out = other;
    }
    if (!out) out = Empty(out_sizes, is_image(), type);
    if (out->numel() != 0) Compute(x, *x_scale / q, static_cast<int32_t>(*x_zero_point), residual, *out);
    return out;
  }

 private:
  /// Whether the tensor has the sizes after one other (images) or after others (rows).
  bool EndsWith(const Tensor& tensor, const Sizes& tail) const {
    const auto all = tensor.sizes();
    return all.size() >= tail.size() && (!is_image() || all.size() == 4) &&
           std::equal(tail.begin(), tail.end(), all.end() - static_cast<ptrdiff_t>(tail.size()));
  }

  static bool Has(const std::vector<float>& values, const Tensor& tensor) {
    return tensor.is_cpu() && tensor.scalar_type() == ScalarType::Float &&
           tensor.numel() == static_cast<int64_t>(values.size()) && tensor.is_contiguous() &&
           std::memcmp(values.data(), tensor.const_data_ptr(), values.size() * sizeof(float)) == 0;
  }

  void Compute(const Tensor& x, float x_scale, int32_t x_zero_point, const std::optional<Tensor>& residual,
               Tensor& out) const {
    const auto set = [&](auto* args) {
      args->a = x.const_data_ptr();
      args->a_scales = &x_scale;
      args->a_zero_points = &x_zero_point;
      args->residual = residual ? residual->const_data_ptr() : nullptr;
      args->c = out.mutable_data_ptr();
    };
    if (const auto* const gemm = std::get_if<Gemm>(plan.get())) {
      intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
      set(&args);
      args.m = out.numel() / sizes[0];
      RunParts(static_cast<double>(args.m) * multiply_adds, [&](int32_t part, int32_t parts) {
        return intact_gemm_run_part(gemm->handle(), &args, part, parts);
      });
    } else {
      intact_conv_args args = INTACT_CONV_ARGS_INIT;
      set(&args);
      args.batch = out.size(0);
      std::copy_n(x_sizes.begin() + 1, 2, args.input);
      std::copy_n(sizes.begin() + 1, 2, args.output);
      RunParts(static_cast<double>(args.batch) * multiply_adds, [&](int32_t part, int32_t parts) {
        return intact_conv_run_part(std::get<Conv>(*plan).handle(), &args, part, parts);
      });
    }
  }
};

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

void CheckWeights(const Tensor& weights) {
  if (weights.dim() != 2 && weights.dim() != 4)
    Refuse("weights", "have the sizes " + TextOf(SizesOf(weights)), "2 or 4 sizes");
  if (weights.scalar_type() != ScalarType::Char)
    Refuse("weights", std::string("have the type ") + torch::headeronly::toString(weights.scalar_type()),
           "Char");
  if (!weights.is_contiguous()) Refuse("weights", "are not contiguous", "adjacent elements");
}

int64_t AddLayer(const Tensor& weights) {
  CheckWeights(weights);
  return TheLayers().Add(std::make_shared<Layer>(weights));
}

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

/// As Step::sizes.
Sizes OutputSizes(const Sizes& weights, const Sizes& x, const Window& window) {
  if (weights.size() == 2) return {weights[1]};
  Sizes sizes{weights[0]};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t last = x[1 + i] + 2 * window[2 + i] - window[4 + i] * (weights[1 + i] - 1) - 1;
    if (last < 0) Refuse("x", "has the last sizes " + TextOf(x), "images that contain the window");
    sizes.push_back(last / window[i] + 1);
  }
  return sizes;
}

/// Throws NoPlan.
std::shared_ptr<Step> StepOf(Layer& layer, const Parameters& parameters, const Tensor& w_scale,
                             const std::optional<Tensor>& bias) {
  const Sizes &weights = layer.sizes(), &x_sizes = parameters.x_sizes, &window = parameters.window;
  const bool is_conv = weights.size() == 4;
  const auto expect = [](const char* name, size_t is, size_t expected) {
    if (is != expected) Refuse(name, "has " + std::to_string(is) + " numbers", std::to_string(expected));
  };
  const auto expect_values = [](const char* name, ScalarType type, double scale, int64_t zero_point) {
    if (!IsScale(static_cast<float>(scale)))
      Refuse(name, "has the scale " + std::to_string(scale), "a normal float32 number above 0");
    if (type != ScalarType::Float && type != ScalarType::BFloat16 && !IsValueOf(type, zero_point))
      Refuse(name, "has the zero point " + std::to_string(zero_point), "a value of its type");
  };
  expect("window", window.size(), is_conv ? 7 : 0);
  if (is_conv && (window[0] < 1 || window[1] < 1))
    Refuse("window", "is " + TextOf(window), "strides above 0");
  if (parameters.x_type != ScalarType::Byte && parameters.x_type != ScalarType::Char)
    Refuse("x", std::string("has the type ") + torch::headeronly::toString(parameters.x_type),
           "Byte or Char");
  const int64_t depth = is_conv ? weights[3] * window[6] : weights[0];
  if (x_sizes.size() != (is_conv ? 3 : 1) || x_sizes[0] != depth)
    Refuse("x", "has the last sizes " + TextOf(x_sizes),
           "[" + std::to_string(depth) + (is_conv ? ", height, width]" : "]"));
  expect_values("output", parameters.type, parameters.scale, parameters.zero_point);
  if (parameters.residual_type)
    expect_values("other", *parameters.residual_type, parameters.residual_scale,
                  parameters.residual_zero_point);
  Key key;
  key.scales = FloatsOf("w_scale", w_scale);
  if (bias) key.bias = FloatsOf("bias", *bias);
  const auto outputs = static_cast<size_t>(weights[is_conv ? 0 : 1]);
  expect("w_scale", key.scales.size(), key.scales.size() == 1 ? 1 : outputs);
  if (bias) expect("bias", key.bias.size(), outputs);

  auto step = std::make_shared<Step>();
  step->sizes = OutputSizes(weights, x_sizes, window);
  step->scales = key.scales;
  if (bias) step->bias = key.bias;
  key.a_type = TypeOf(parameters.x_type);
  key.c_type = TypeOf(parameters.type);
  const bool is_float = key.c_type == INTACT_F32 || key.c_type == INTACT_BF16;
  const auto q = is_float ? 1.0f : static_cast<float>(parameters.scale);
  key.c_zero_point = is_float ? 0 : static_cast<int32_t>(parameters.zero_point);
  for (float& value : key.bias) value /= q;
  if (parameters.residual_type) {
    key.residual_type = TypeOf(*parameters.residual_type);
    key.residual_scale = static_cast<float>(parameters.residual_scale) / q;
    key.residual_zero_point = static_cast<int32_t>(parameters.residual_zero_point);
  }
  key.lowest = static_cast<float>(parameters.lowest) / q;
  key.highest = static_cast<float>(parameters.highest) / q;
  key.window = window;
  if (is_conv) key.extents = {x_sizes[1], x_sizes[2]};
  step->plan = layer.Get(key);
  step->x_type = parameters.x_type;
  step->x_sizes = x_sizes;
  step->multiply_adds =
      is_conv ? static_cast<double>(step->sizes[1]) * static_cast<double>(step->sizes[2]) : 1;
  for (const int64_t size : weights) step->multiply_adds *= static_cast<double>(size);
  step->type = parameters.type;
  step->scale = static_cast<float>(parameters.scale);
  step->q = q;
  step->is_sum = parameters.is_sum;
  step->residual_type = parameters.residual_type;
  return step;
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

// Packages.

/// A layer of a package. The package has its weights as a constant. Thread-safe.
class PackagedLayer {
 public:
  explicit PackagedLayer(const Tensor& weights) : layer_(weights) {}

  Layer& layer() { return layer_; }

  /// Compares weights with the first ones, unless they are at one of the last addresses: a package that was
  /// loaded again has equal weights. Other weights at these addresses are not noticed.
  void Check(const Tensor& weights) {
    const void* const address = weights.const_data_ptr();
    const std::lock_guard lock(mutex_);
    if (std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end()) return;
    if (!layer_.Has(weights))
      Refuse("weights", "differ from the weights of the first call",
             "weights that the process did not replace");
    addresses_.insert(addresses_.begin(), address);
    if (addresses_.size() > kMostAddresses) addresses_.pop_back();
  }

  /// The last steps, the newest first.
  using Steps = std::vector<std::pair<Parameters, std::shared_ptr<const Step>>>;
  std::shared_ptr<const Steps> steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  /// Puts the step first.
  void Add(const Parameters& parameters, const std::shared_ptr<const Step>& step) {
    const std::lock_guard lock(mutex_);
    auto steps = std::make_shared<Steps>(*steps_);
    std::erase_if(*steps, [&](const auto& entry) { return entry.second == step; });
    steps->emplace(steps->begin(), parameters, step);
    if (steps->size() > kMostPlans) steps->pop_back();
    steps_ = std::move(steps);
  }

 private:
  static constexpr size_t kMostAddresses = 4;

  Layer layer_;
  mutable std::mutex mutex_;
  std::vector<const void*> addresses_;  // the newest first
  std::shared_ptr<const Steps> steps_ = std::make_shared<Steps>();
};

/// The layers of packages that ran last, by the digests of their weights. PyTorch does not report that a
/// package is unloaded. Thread-safe.
class PackagedLayers {
 public:
  std::shared_ptr<PackagedLayer> Get(const std::string& digest, const Tensor& weights) {
    std::shared_ptr<PackagedLayer> layer;
    {
      const std::lock_guard lock(mutex_);
      auto& entry = layers_[digest];
      if (entry.first == nullptr) entry.first = std::make_shared<PackagedLayer>(weights);
      entry.second = ++clock_;
      layer = entry.first;
      if (layers_.size() > kMost)
        layers_.erase(std::min_element(layers_.begin(), layers_.end(), [](const auto& a, const auto& b) {
          return a.second.second < b.second.second;
        }));
    }
    layer->Check(weights);
    return layer;
  }

 private:
  // Most processes run fewer layers. Models that come and go must not fill memory.
  static constexpr size_t kMost = 2048;

  std::mutex mutex_;
  int64_t clock_ = 0;
  std::unordered_map<std::string, std::pair<std::shared_ptr<PackagedLayer>, int64_t>> layers_;
};

/// `weight`: dense, as in Layer. `digest`: of the weights. A function may follow, if the type is Float.
/// AOTInductor passes no empty list, so linear layers have no window.
Tensor RunPackaged(const Tensor& x, const Tensor& x_scale, const Tensor& x_zero_point, const Tensor& weight,
                   std::string digest, const Tensor& w_scale, std::optional<Tensor> bias,
                   std::optional<Tensor> other, std::optional<Window> given_window, ScalarType type,
                   double scale, int64_t zero_point, double other_scale, int64_t other_zero_point,
                   std::optional<double> lowest, std::optional<double> highest) {
  static PackagedLayers layers;
  Window window = std::move(given_window).value_or(Window{});
  CheckWeights(weight);
  Sizes x_sizes = SizesOf(x);
  const size_t images = std::min<size_t>(1, x_sizes.size()), rows = std::max<size_t>(x_sizes.size(), 1) - 1;
  const auto begin = static_cast<ptrdiff_t>(weight.dim() == 4 ? images : rows);
  x_sizes.erase(x_sizes.begin(), x_sizes.begin() + begin);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Parameters parameters{x.scalar_type(),
                              std::move(x_sizes),
                              std::move(window),
                              type,
                              scale,
                              zero_point,
                              other ? std::optional(other->scalar_type()) : std::nullopt,
                              other_scale,
                              other_zero_point,
                              false,
                              lowest.value_or(-kInfinity),
                              highest.value_or(kInfinity)};
  const auto layer = layers.Get(digest, weight);
  const auto run = [&](const Step& step) { return step.Run(x, x_scale, x_zero_point, w_scale, other, bias); };
  const auto steps = layer->steps();
  for (const auto& [given, step] : *steps) {
    if (given != parameters) continue;
    if (auto out = run(*step)) {
      if (step != steps->front().second) layer->Add(parameters, step);
      return *out;
    }
  }
  const std::shared_ptr<const Step> step = StepOf(layer->layer(), parameters, w_scale, bias);
  if (auto out = run(*step)) {
    layer->Add(parameters, step);
    return *out;
  }
  const auto number = [](const auto& value) { return value ? std::to_string(*value) : "not one number"; };
  if (const auto value = ScaleOf(x_scale); !step->TakesScale(value))
    Refuse("x_scale", "is " + number(value),
           "one normal float32 number above 0, also divided by the output's");
  if (const auto value = ZeroPointOf(x_zero_point); !step->TakesZeroPoint(value))
    Refuse("x_zero_point", "is " + number(value), "one int32 or int64 number that x's type has");
  Refuse("other", "has the sizes " + TextOf(other ? SizesOf(*other) : Sizes{}), TextOf(step->OutputSizes(x)));
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
  library.def(
      "packaged_layer(Tensor x, Tensor x_scale, Tensor x_zero_point, Tensor weight, str digest, Tensor "
      "w_scale, Tensor? bias, Tensor? other, int[]? window, ScalarType type, float scale, int zero_point, "
      "float other_scale, int other_zero_point, float? lowest, float? highest) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(intact, CPU, library) {
  library.impl("layer", TORCH_BOX(&intact::pytorch::AddLayer));
  library.impl("step", TORCH_BOX(&intact::pytorch::MakeStep));
  library.impl("packaged_layer", TORCH_BOX(&intact::pytorch::RunPackaged));
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
