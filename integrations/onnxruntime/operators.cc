#include "operators.h"

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "byte_function.h"
#include "elementwise.h"
#include "linear.h"
#include "lstm.h"
#include "node.h"
#include "plans.h"
#include "pool.h"
#include "softmax.h"

namespace intact::onnxruntime {
namespace {

// Of each operator, as the operator's definition names its inputs.
constexpr std::array kMatMulInteger = {"A", "B", "a_zero_point", "b_zero_point"};
constexpr std::array kQLinearMatMul = {"a",       "a_scale",      "a_zero_point", "b",
                                       "b_scale", "b_zero_point", "y_scale",      "y_zero_point"};
constexpr std::array kQGemm = {"A", "a_scale", "a_zero_point", "B", "b_scale", "b_zero_point",
                               "C", "y_scale", "y_zero_point"};
constexpr std::array kDynamicQuantizeMatMul = {"A", "B", "b_scale", "b_zero_point", "bias"};
constexpr std::array kMatMulIntegerToFloat = {
    "A", "B", "a_scale", "b_scale", "a_zero_point", "b_zero_point", "bias"};
// Convolutions of a group, for which ONNX Runtime has no operators: as DynamicQuantizeMatMul and
// MatMulIntegerToFloat.
constexpr std::array kDynamicQuantizeConv = {"x", "w", "w_scale", "w_zero_point", "bias"};
constexpr std::array kConvIntegerToFloat = {"x",   "w", "x_scale", "w_scale", "x_zero_point", "w_zero_point",
                                            "bias"};
constexpr std::array kConvInteger = {"x", "w", "x_zero_point", "w_zero_point"};
constexpr std::array kQLinearElementwise = {"A",       "A_scale",      "A_zero_point", "B",
                                            "B_scale", "B_zero_point", "C_scale",      "C_zero_point"};
constexpr std::array kMaxPool = {"X"};
constexpr std::array kQLinearConv = {
    "x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "B"};

// Bytes of an element; of eight bits also without a type.
constexpr size_t SizeOf(int32_t type) { return type == INTACT_S32 || type == INTACT_F32 ? 4 : 1; }

// O…I from OI….
std::vector<std::byte> ChannelsLast(const Constant& weights) {
  const int64_t channels = weights.shape[1];
  const int64_t taps = CountOf(std::span(weights.shape).subspan(2));
  const auto* const source = static_cast<const std::byte*>(weights.data);
  std::vector<std::byte> reordered(static_cast<size_t>(weights.count));
  std::byte* target = reordered.data();
  for (int64_t o = 0; o < weights.shape[0]; ++o)
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t c = 0; c < channels; ++c) *target++ = source[(o * channels + c) * taps + t];
  return reordered;
}

// O…I from the weights of a transposed convolution: I, output channels of a group, ….
std::vector<std::byte> TransposedChannelsLast(const Constant& weights, int64_t groups) {
  const int64_t inputs = weights.shape[0] / groups, outputs = weights.shape[1];
  const int64_t taps = CountOf(std::span(weights.shape).subspan(2));
  const auto* const source = static_cast<const std::byte*>(weights.data);
  std::vector<std::byte> reordered(static_cast<size_t>(weights.count));
  std::byte* target = reordered.data();
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t t = 0; t < taps; ++t)
        for (int64_t c = 0; c < inputs; ++c) *target++ = source[((g * inputs + c) * outputs + o) * taps + t];
  return reordered;
}

// Scales of outputs as ONNX Runtime computes them: each product and the quotient rounded to float32, in this
// order.
std::vector<float> OutputScales(float a_scale, std::vector<float> b_scales, std::optional<float> y_scale) {
  for (float& scale : b_scales) {
    scale = a_scale * scale;
    if (y_scale) scale /= *y_scale;
  }
  return b_scales;
}

// The bias of an input, if there is one: one value, repeated, or one for each column. `behind`: how many
// dimensions of extent 1 follow the columns.
template <class T>
std::vector<T> Bias(const Node& node, size_t input, intact_type type, int64_t columns, size_t behind = 0) {
  if (!node.Has(input)) return {};
  const Constant constant = node.ConstantOf(input, type);
  const auto values = constant.As<T>();
  if (constant.count == 1) return std::vector<T>(static_cast<size_t>(columns), values[0]);
  const size_t dimensions = constant.shape.size();
  const bool has_columns = dimensions > behind && constant.shape[dimensions - 1 - behind] == columns;
  if (constant.count != columns || !has_columns)
    throw Refusal("bias: has another shape than the columns; expected 1 or " + std::to_string(columns) +
                  " values");
  return {values.begin(), values.end()};
}

// An input of one element.
Ort::ConstValue ElementOf(const Run& run, size_t input, const char* name) {
  const auto value = run.Input(input);
  const size_t count = value.GetTensorTypeAndShapeInfo().GetElementCount();
  if (count != 1)
    throw std::invalid_argument(std::string(name) + ": has " + std::to_string(count) + " values; expected 1");
  return value;
}

// The zero point and the scale of A where each run gives at least one of them: its input, or else the
// constant.
struct FromRun {
  std::optional<size_t> zero_point_input = {}, scale_input = {};
  int32_t zero_point = 0;
  std::optional<float> scale = {};  // with neither, outputs have no scales

  struct Values {
    int32_t zero_point = 0;
    float scale = 1;
  };
  // Reads a run's values, and lets `args` point to them.
  template <class Args>
  void Read(const Run& run, Values& values, Args& args) const {
    values.zero_point = zero_point;
    if (zero_point_input) {
      const auto given = ElementOf(run, *zero_point_input, "zero point of A");
      const bool is_signed =
          given.GetTensorTypeAndShapeInfo().GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
      values.zero_point = is_signed ? *static_cast<const int8_t*>(given.GetTensorRawData())
                                    : *static_cast<const uint8_t*>(given.GetTensorRawData());
    }
    args.a_zero_points = &values.zero_point;
    if (!scale_input && !scale) return;
    values.scale = scale_input ? *ElementOf(run, *scale_input, "scale of A").GetTensorData<float>() : *scale;
    args.a_scales = &values.scale;
  }
};

// Sets the zero point of A and the scales of outputs, which are products with the scale of A. `scale`: none
// where outputs are sums. Returns how runs give one of them, if they do.
std::optional<FromRun> SetQuantization(const Node& node, size_t zero_point, std::optional<size_t> scale,
                                       std::vector<float> b_scales, Linear& linear) {
  const auto a = static_cast<intact_type>(linear.desc.a_type);
  if (!node.IsFromRun(zero_point) && !(scale && node.IsFromRun(*scale))) {
    linear.desc.a_zero_point = node.ZeroPoint(zero_point, a);
    if (scale) linear.scales = OutputScales(node.Scale(*scale), std::move(b_scales), {});
    return {};
  }
  FromRun from_run;
  if (node.IsFromRun(zero_point)) {
    from_run.zero_point_input = zero_point;
  } else {
    from_run.zero_point = node.ZeroPoint(zero_point, a);
  }
  if (scale && node.IsFromRun(*scale)) {
    from_run.scale_input = scale;
  } else if (scale) {
    from_run.scale = node.Scale(*scale);
  }
  linear.scales = std::move(b_scales);
  linear.desc.a_quantization = INTACT_QUANTIZATION_TENSOR;
  return from_run;
}

// Products of matrices. A is [..., K]; leading extents make rows.
class MatMul : public Layer {
 public:
  // `b`: the weights; `transposed`: N×K. `a_transposed`: A is K×M.
  MatMul(const Constant& b, bool transposed, Linear linear, std::optional<FromRun> from_run = {},
         bool a_transposed = false)
      : from_run_(from_run), a_transposed_(a_transposed) {
    if (b.shape.size() != 2)
      throw Refusal("B: has " + std::to_string(b.shape.size()) + " dimensions; expected 2");
    intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
    desc.k = k_ = b.shape[transposed ? 1 : 0];
    desc.n = n_ = b.shape[transposed ? 0 : 1];
    if (transposed) desc.b_stride_k = 1, desc.b_stride_n = desc.k;
    plan_ = MakeGemmPlan(desc, linear, b.data);
  }

  void Compute(Run& run) const override {
    const auto a = run.Input(0);
    Shape shape = a.GetTensorTypeAndShapeInfo().GetShape();
    if (a_transposed_ && shape.size() == 2) std::swap(shape[0], shape[1]);
    if (shape.empty() || shape.back() != k_)
      throw std::invalid_argument("A: has rows of " + std::to_string(shape.empty() ? 0 : shape.back()) +
                                  " elements; expected " + std::to_string(k_));
    shape.back() = n_;
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = CountOf(shape) / n_;
    args.a = a.GetTensorRawData();
    args.a_transposed = a_transposed_;
    args.c = run.Output(shape);
    if (args.m == 0) return;
    FromRun::Values values;
    if (from_run_) from_run_->Read(run, values, args);
    run.Compute(*plan_, args,
                static_cast<double>(args.m) * static_cast<double>(n_) * static_cast<double>(k_));
  }

  std::string Kernel() const override { return KernelOf(*plan_); }

 private:
  GemmPlan plan_;
  int64_t n_ = 0, k_ = 0;
  std::optional<FromRun> from_run_;
  bool a_transposed_;
};

// Products of matrices that each run gives: the items of [..., M, K] and [..., K, N], with broadcasting.
class MatMulOfRun : public Layer {
 public:
  // `b_input`: where B is among the operator's inputs.
  MatMulOfRun(const Node& node, size_t b_input, Linear linear, std::optional<FromRun> from_run = {})
      : b_input_(b_input), linear_(std::move(linear)), from_run_(from_run) {
    for (const size_t input : {size_t{0}, b_input})
      if (const size_t dimensions = node.ShapeOf(input).size(); dimensions < 2)
        throw Refusal(std::string(input == 0 ? "A" : "B") + ": has " + std::to_string(dimensions) +
                      " dimensions; expected at least 2, known before the run");
    linear_.desc.overflow = INTACT_OVERFLOW_WRAPS;  // the depth is not known yet
    kernel_ = KernelOf(*PlanOf(64, 64));
  }

  void Compute(Run& run) const override {
    const auto a = run.Input(0), b = run.Input(b_input_);
    const Shape a_shape = a.GetTensorTypeAndShapeInfo().GetShape();
    const Shape b_shape = b.GetTensorTypeAndShapeInfo().GetShape();
    for (const auto& [name, shape] : {std::pair{"A", &a_shape}, {"B", &b_shape}})
      if (shape->size() < 2)
        throw std::invalid_argument(std::string(name) + ": has " + std::to_string(shape->size()) +
                                    " dimensions; expected at least 2");
    const int64_t m = a_shape.end()[-2], k = a_shape.back(), n = b_shape.back();
    if (b_shape.end()[-2] != k)
      throw std::invalid_argument("B: has " + std::to_string(b_shape.end()[-2]) + " rows; expected " +
                                  std::to_string(k));
    Shape shape = BroadcastItems(a_shape, b_shape);
    const std::span<const int64_t> items(shape);
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.batch = CountOf(items);
    const auto a_items = PlacesOf(a.GetTensorRawData(), m * k, a_shape, items);
    const auto b_items = PlacesOf(b.GetTensorRawData(), k * n, b_shape, items);
    shape.insert(shape.end(), {m, n});
    args.c = run.Output(shape);
    if (CountOf(shape) == 0) return;
    if (k == 0) throw std::invalid_argument("A: has rows of 0 elements; expected at least 1");
    args.m = m;
    args.a_items = a_items.data();
    args.b_items = b_items.data();
    FromRun::Values values;
    if (from_run_) from_run_->Read(run, values, args);
    run.Compute(*PlanOf(k, n), args, static_cast<double>(args.batch * m) * static_cast<double>(n * k));
  }

  std::string Kernel() const override { return kernel_; }

 private:
  static constexpr size_t kMostPlans = 64;

  // The leading extents of both shapes, broadcast.
  static Shape BroadcastItems(const Shape& a, const Shape& b) {
    Shape items(std::max(a.size(), b.size()) - 2);
    for (size_t i = 0; i < items.size(); ++i) {  // from the last one
      const int64_t of_a = i + 2 < a.size() ? a.end()[-3 - static_cast<std::ptrdiff_t>(i)] : 1;
      const int64_t of_b = i + 2 < b.size() ? b.end()[-3 - static_cast<std::ptrdiff_t>(i)] : 1;
      if (of_a != of_b && of_a != 1 && of_b != 1)
        throw std::invalid_argument("B: has " + std::to_string(of_b) + " items where A has " +
                                    std::to_string(of_a) + "; expected equal numbers, or 1");
      items.end()[-1 - static_cast<std::ptrdiff_t>(i)] = of_a == 1 ? of_b : of_a;
    }
    return items;
  }

  // Where the matrix of each item begins in a tensor of `shape`, with `elements` bytes for each matrix.
  static std::vector<const void*> PlacesOf(const void* data, int64_t elements, const Shape& shape,
                                           std::span<const int64_t> items) {
    std::vector<const void*> places(static_cast<size_t>(CountOf(items)));
    for (size_t item = 0; item < places.size(); ++item) {
      int64_t left = static_cast<int64_t>(item), place = 0, stride = elements;
      for (size_t i = 0; i < items.size() && i + 2 < shape.size(); ++i) {  // from the last extent
        const int64_t extent = items[items.size() - 1 - i];
        const int64_t own = shape.end()[-3 - static_cast<std::ptrdiff_t>(i)];
        if (own != 1) place += left % extent * stride;
        left /= extent;
        stride *= own;
      }
      places[item] = static_cast<const std::byte*>(data) + place;
    }
    return places;
  }

  // The plan of products of this depth and width. The plans used last are kept.
  GemmPlan PlanOf(int64_t k, int64_t n) const {
    const std::lock_guard lock(mutex_);
    auto found = std::ranges::find_if(plans_, [&](const Plan& plan) { return plan.k == k && plan.n == n; });
    if (found == plans_.end()) {
      intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
      desc.k = k;
      desc.n = n;
      desc.runtime_b = 1;
      plans_.push_front({k, n, MakeGemmPlan(desc, linear_, nullptr)});
      if (plans_.size() > kMostPlans) plans_.pop_back();
    } else {
      plans_.splice(plans_.begin(), plans_, found);
    }
    return plans_.front().plan;
  }

  struct Plan {
    int64_t k, n;
    GemmPlan plan;
  };
  const size_t b_input_;
  mutable Linear linear_;
  const std::optional<FromRun> from_run_;
  mutable std::mutex mutex_;
  mutable std::list<Plan> plans_;  // the one used last is first
  std::string kernel_;
};

// The number of columns with own scales and zero points; 1 for a runtime B.
int64_t ColumnsOf(const Node& node, size_t b_input, intact_type b) {
  return node.IsFromRun(b_input) ? 1 : node.Weights(b_input, b).shape.back();
}

std::unique_ptr<Layer> MakeProduct(const Node& node, size_t b_input, Linear linear,
                                   std::optional<FromRun> from_run = {}) {
  if (node.IsFromRun(b_input))
    return std::make_unique<MatMulOfRun>(node, b_input, std::move(linear), from_run);
  const Constant weights = node.Weights(b_input, static_cast<intact_type>(linear.desc.b_type));
  return std::make_unique<MatMul>(weights, false, std::move(linear), from_run);
}

std::unique_ptr<Layer> MakeMatMulInteger(const Node& node, const Context& context) {
  const intact_type a = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type b = node.Type(1, {INTACT_U8, INTACT_S8});
  Linear linear(context, Pairs::kClamped, a, b, INTACT_S32);
  linear.b_zero_points = node.ZeroPoints(3, b, ColumnsOf(node, 1, b));
  const auto from_run = SetQuantization(node, 2, {}, {}, linear);
  return MakeProduct(node, 1, std::move(linear), from_run);
}

// The arithmetic of QLinearMatMul and QLinearConv: the activations are inputs 0 to 2, each with its scale and its
// zero point, the weights inputs 3 to 5. Inputs 6 and 7 are the scale and the zero point of the output.
Linear QLinear(const Node& node, const Context& context, Pairs pairs, intact_type b, int64_t columns) {
  const intact_type a = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type y = node.OutputType({INTACT_U8, INTACT_S8});
  Linear linear(context, pairs, a, b, y);
  linear.desc.a_zero_point = node.ZeroPoint(2, a);
  linear.desc.c_zero_point = node.ZeroPoint(7, y);
  linear.b_zero_points = node.ZeroPoints(5, b, columns);
  linear.scales = OutputScales(node.Scale(1), node.Scales(4, columns), node.Scale(6));
  return linear;
}

std::unique_ptr<Layer> MakeQLinearMatMul(const Node& node, const Context& context) {
  const intact_type b = node.Type(3, {INTACT_U8, INTACT_S8});
  return MakeProduct(node, 3, QLinear(node, context, Pairs::kClamped, b, ColumnsOf(node, 3, b)));
}

std::unique_ptr<Layer> MakeQGemm(const Node& node, const Context& context) {
  const bool transposed = node.Integer("transB", 0) != 0;
  const intact_type a = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type b = node.Type(3, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(3, b);
  const int64_t columns = transposed ? weights.shape.front() : weights.shape.back();
  Linear linear(context, Pairs::kClamped, a, b, node.OutputType({INTACT_F32, INTACT_U8, INTACT_S8}));
  linear.desc.a_zero_point = node.ZeroPoint(2, a);
  linear.b_zero_points = node.ZeroPoints(5, b, columns);
  linear.bias_s32 = Bias<int32_t>(node, 6, INTACT_S32, columns);
  std::optional<float> y_scale;
  if (linear.desc.c_type != INTACT_F32) {
    y_scale = node.Scale(7);
    linear.desc.c_zero_point = node.ZeroPoint(8, static_cast<intact_type>(linear.desc.c_type));
  }
  linear.scales = OutputScales(node.Float("alpha", 1) * node.Scale(1), node.Scales(4, columns), y_scale);
  return std::make_unique<MatMul>(weights, transposed, std::move(linear), std::nullopt,
                                  node.Integer("transA", 0) != 0);
}

std::unique_ptr<Layer> MakeDynamicQuantizeMatMul(const Node& node, const Context& context) {
  node.Type(0, {INTACT_F32});
  const intact_type b = node.Type(1, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(1, b);
  const int64_t columns = weights.shape.back();
  Linear linear(context, Pairs::kClamped, INTACT_U8, b, INTACT_F32);
  linear.SetDynamicQuantization(node.Scales(2, columns));
  linear.b_zero_points = node.ZeroPoints(3, b, columns);
  linear.bias_f32 = Bias<float>(node, 4, INTACT_F32, columns);
  return std::make_unique<MatMul>(weights, false, std::move(linear));
}

std::unique_ptr<Layer> MakeMatMulIntegerToFloat(const Node& node, const Context& context) {
  const intact_type a = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type b = node.Type(1, {INTACT_U8, INTACT_S8});
  if (node.IsFromRun(1) && node.Has(6))
    throw Refusal("bias: is given, and each run gives B; expected one of them");
  const int64_t columns = ColumnsOf(node, 1, b);
  Linear linear(context, Pairs::kClamped, a, b, INTACT_F32);
  linear.b_zero_points = node.ZeroPoints(5, b, columns);
  linear.bias_f32 = Bias<float>(node, 6, INTACT_F32, columns);
  const auto from_run = SetQuantization(node, 4, 2, node.Scales(3, columns), linear);
  return MakeProduct(node, 1, std::move(linear), from_run);
}

enum class Direction { kForward, kTransposed };

// Convolutions of NC… tensors, or N…C ones with `channels_last`.
class Conv : public Layer {
 public:
  // Reads the geometry of a node with weights OI…, or of a transposed convolution with weights I, output channels of
  // a group, ….
  Conv(const Node& node, const Constant& w, Linear linear, std::optional<FromRun> from_run = {},
       Direction direction = Direction::kForward)
      : from_run_(from_run),
        x_bytes_(SizeOf(linear.desc.a_source_type)),
        y_bytes_(SizeOf(linear.desc.c_type)) {
    if (w.shape.size() < 3 || w.shape.size() > 2 + INTACT_MAX_SPATIAL)
      throw Refusal("W: has " + std::to_string(w.shape.size()) + " dimensions; expected 3 to 5");
    const size_t dims = w.shape.size() - 2;
    channels_last_ = node.IsChannelsLast();
    desc_.spatial_dims = static_cast<int32_t>(dims);
    desc_.groups = node.Integer("group", 1);
    const bool is_transposed = direction == Direction::kTransposed;
    desc_.transposed = is_transposed;
    desc_.output_channels = is_transposed ? w.shape[1] * desc_.groups : w.shape[0];
    desc_.input_channels = is_transposed ? w.shape[0] : w.shape[1] * desc_.groups;
    if (desc_.groups < 1 || w.shape[0] % desc_.groups != 0)
      throw Refusal("group: is " + std::to_string(desc_.groups) + "; expected a divisor of " +
                    std::to_string(w.shape[0]));
    const Shape strides = node.Integers("strides", dims, 1);
    const Shape dilations = node.Integers("dilations", dims, 1);
    for (size_t i = 0; i < dims; ++i) {
      desc_.input[i] = INTACT_ANY_EXTENT;
      desc_.kernel[i] = w.shape[2 + i];
      desc_.stride[i] = strides[i];
      desc_.dilation[i] = dilations[i];
    }
    SetPadding(node, dims);
    if (is_transposed) std::ranges::copy(node.Integers("output_padding", dims, 0), desc_.output_pad);
    multiply_adds_ = static_cast<double>(w.count);
    const std::span weights(static_cast<const std::byte*>(w.data), static_cast<size_t>(w.count));
    plan_ = MakeConvPlan(desc_, linear, weights, [&] {
      return is_transposed ? TransposedChannelsLast(w, desc_.groups) : ChannelsLast(w);
    });
  }

  void Compute(Run& run) const override {
    const auto x = run.Input(0);
    const Shape shape = x.GetTensorTypeAndShapeInfo().GetShape();
    const auto dims = static_cast<size_t>(desc_.spatial_dims);
    const size_t first = channels_last_ ? 1 : 2;
    if (shape.size() != dims + 2)
      throw std::invalid_argument("X: has " + std::to_string(shape.size()) + " dimensions; expected " +
                                  std::to_string(dims + 2));
    const int64_t channels = shape[channels_last_ ? dims + 1 : 1];
    if (channels != desc_.input_channels)
      throw std::invalid_argument("X: has " + std::to_string(channels) + " channels; expected " +
                                  std::to_string(desc_.input_channels));

    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = shape[0];
    Shape out(dims + 2);
    out[0] = shape[0];
    out[channels_last_ ? dims + 1 : 1] = desc_.output_channels;
    for (size_t i = 0; i < dims; ++i) {
      args.input[i] = shape[first + i];
      out[first + i] = OutputExtent(i, args.input[i]);
    }
    void* const y = run.Output(out);
    if (args.batch == 0) return;

    const int64_t in_pixels = CountOf(std::span(args.input).first(dims));
    const int64_t out_pixels = CountOf(std::span(out).subspan(first, dims));
    // A matrix of one row or one column is its own transpose.
    const bool turns_x = !channels_last_ && desc_.input_channels > 1 && in_pixels > 1;
    const bool turns_y = !channels_last_ && desc_.output_channels > 1 && out_pixels > 1;
    args.a = x.GetTensorRawData();
    if (turns_x) {
      void* const pixels = run.Allocate(static_cast<size_t>(args.batch * channels * in_pixels) * x_bytes_);
      run.Transpose(args.a, pixels, x_bytes_, args.batch, channels, in_pixels);
      args.a = pixels;
    }
    args.c = turns_y ? run.Allocate(static_cast<size_t>(CountOf(out)) * y_bytes_) : y;
    FromRun::Values values;
    if (from_run_) from_run_->Read(run, values, args);
    const int64_t pixels = desc_.transposed != 0 ? in_pixels : out_pixels;
    run.Compute(*plan_, args, static_cast<double>(args.batch * pixels) * multiply_adds_);
    if (turns_y) run.Transpose(args.c, y, y_bytes_, args.batch, out_pixels, desc_.output_channels);
  }

  std::string Kernel() const override { return KernelOf(*plan_); }

 private:
  // The extent of the kernel with its dilation.
  int64_t Reach(size_t i) const { return desc_.dilation[i] * (desc_.kernel[i] - 1) + 1; }

  int64_t OutputExtent(size_t i, int64_t input) const {
    if (desc_.transposed != 0) {
      const int64_t output = (input - 1) * desc_.stride[i] - desc_.pad_begin[i] - desc_.pad_end[i] +
                             Reach(i) + desc_.output_pad[i];
      if (input < 1 || output < 1)
        throw std::invalid_argument("X: has extent " + std::to_string(input) + ", which makes an output of " +
                                    std::to_string(output) + "; expected at least 1");
      return output;
    }
    const int64_t padded = input + desc_.pad_begin[i] + desc_.pad_end[i];
    if (padded < Reach(i))
      throw std::invalid_argument("X: has extent " + std::to_string(padded) +
                                  " with its padding; expected at least " + std::to_string(Reach(i)));
    return (padded - Reach(i)) / desc_.stride[i] + 1;
  }

  void SetPadding(const Node& node, size_t dims) {
    const std::string automatic = node.String("auto_pad", "NOTSET");
    if (automatic == "VALID") return;
    if (automatic == "NOTSET") {
      const Shape pads = node.Integers("pads", 2 * dims, 0);
      std::copy_n(pads.begin(), dims, desc_.pad_begin);
      std::copy_n(pads.begin() + static_cast<int64_t>(dims), dims, desc_.pad_end);
      return;
    }
    if (desc_.transposed != 0) throw Refusal("auto_pad: is " + automatic + "; expected explicit pads");
    // SAME_UPPER, SAME_LOWER: ⌈input/stride⌉ outputs. With a stride the padding depends on the input's
    // extents.
    const Shape shape = node.ShapeOf(0);
    for (size_t i = 0; i < dims; ++i) {
      const size_t place = (channels_last_ ? 1 : 2) + i;
      const int64_t stride = desc_.stride[i];
      const int64_t input = place < shape.size() ? shape[place] : -1;
      if (stride > 1 && input < 0)
        throw Refusal("auto_pad: is " + automatic + " with stride " + std::to_string(stride) +
                      " and an input of unknown extents; expected explicit pads");
      const int64_t last = stride > 1 ? (input + stride - 1) / stride * stride - stride - input : -1;
      const int64_t padding = std::max<int64_t>(last + Reach(i), 0);
      const int64_t less = padding / 2;
      desc_.pad_begin[i] = automatic == "SAME_LOWER" ? padding - less : less;
      desc_.pad_end[i] = padding - desc_.pad_begin[i];
    }
  }

  intact_conv_desc desc_ = INTACT_CONV_DESC_INIT;
  ConvPlan plan_;
  std::optional<FromRun> from_run_;
  size_t x_bytes_, y_bytes_;  // of an element
  bool channels_last_ = false;
  double multiply_adds_ = 0;  // of an output pixel; of an input pixel if transposed
};

std::unique_ptr<Layer> MakeConvInteger(const Node& node, const Context& context) {
  const intact_type x = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type w = node.Type(1, {INTACT_U8, INTACT_S8});
  // Its kernel multiplies weights by activations, and clamps if the weights are u8 and the activations s8.
  if (context.settings.is_like_avx2 && x == INTACT_S8 && w == INTACT_U8)
    throw Refusal(
        "like: w is u8 and x is s8, where ONNX Runtime clamps other pairs; expected u8 activations or s8 "
        "weights");
  const Constant weights = node.Weights(1, w);
  Linear linear(context, Pairs::kNone, x, w, INTACT_S32);
  linear.b_zero_points = node.ZeroPoints(3, w, weights.shape.front());
  const auto from_run = SetQuantization(node, 2, {}, {}, linear);
  return std::make_unique<Conv>(node, weights, std::move(linear), from_run);
}

std::unique_ptr<Layer> MakeDynamicQuantizeConv(const Node& node, const Context& context) {
  const intact_type w = node.Type(1, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(1, w);
  const int64_t channels = weights.shape.front();
  Linear linear(context, Pairs::kNone, INTACT_U8, w, INTACT_F32);
  linear.SetDynamicQuantization(node.Scales(2, channels));
  linear.b_zero_points = node.ZeroPoints(3, w, channels);
  linear.bias_f32 = Bias<float>(node, 4, INTACT_F32, channels, weights.shape.size() - 2);
  return std::make_unique<Conv>(node, weights, std::move(linear));
}

std::unique_ptr<Layer> MakeConvIntegerToFloat(const Node& node, const Context& context) {
  const intact_type x = node.Type(0, {INTACT_U8});
  const intact_type w = node.Type(1, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(1, w);
  const int64_t channels = weights.shape.front();
  Linear linear(context, Pairs::kNone, x, w, INTACT_F32);
  linear.b_zero_points = node.ZeroPoints(5, w, channels);
  linear.bias_f32 = Bias<float>(node, 6, INTACT_F32, channels, weights.shape.size() - 2);
  const auto from_run = SetQuantization(node, 4, 2, node.Scales(3, channels), linear);
  return std::make_unique<Conv>(node, weights, std::move(linear), from_run);
}

std::unique_ptr<Layer> MakeQLinearConv(const Node& node, const Context& context) {
  const intact_type w = node.Type(3, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(3, w);
  const int64_t channels = weights.shape.front();
  const bool is_depthwise = weights.shape[1] == 1 && channels == node.Integer("group", 1);
  Linear linear = QLinear(node, context, is_depthwise ? Pairs::kNone : Pairs::kClamped, w, channels);
  linear.bias_s32 = Bias<int32_t>(node, 8, INTACT_S32, channels);
  return std::make_unique<Conv>(node, weights, std::move(linear));
}

// ONNX Runtime's CPU provider has no operator for this group: it computes floats.
std::unique_ptr<Layer> MakeQLinearConvTranspose(const Node& node, const Context& context) {
  if (context.settings.is_like_avx2) throw Refusal("like: ONNX Runtime computes ConvTranspose in floats");
  if (node.HasAttribute("output_shape")) throw Refusal("output_shape: is given; expected explicit pads");
  const intact_type w = node.Type(3, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(3, w);
  const int64_t channels = weights.shape[1], groups = node.Integer("group", 1);
  Linear linear = QLinear(node, context, Pairs::kNone, w, channels);
  // Scales and zero points are those of a group's channels, the same ones for each group.
  const auto repeat = [&](auto& values) {
    if (std::ssize(values) < 2) return;
    const auto of_group = values;
    for (int64_t g = 1; g < groups; ++g) values.insert(values.end(), of_group.begin(), of_group.end());
  };
  repeat(linear.scales);
  repeat(linear.b_zero_points);
  linear.bias_s32 = Bias<int32_t>(node, 8, INTACT_S32, channels * groups);
  return std::make_unique<Conv>(node, weights, std::move(linear), std::nullopt, Direction::kTransposed);
}

std::unique_ptr<Layer> MakeQLinearAdd(const Node& node, const Context& context) {
  return std::make_unique<QLinearAdd>(node, context);
}

std::unique_ptr<Layer> MakeQLinearMul(const Node& node, const Context& context) {
  return std::make_unique<QLinearMul>(node, context);
}

std::unique_ptr<Layer> MakeMaxPool(const Node& node, const Context&) {
  return std::make_unique<MaxPool>(node);
}

std::unique_ptr<Layer> MakeQLinearSoftmax(const Node& node, const Context& context) {
  return std::make_unique<QLinearSoftmax>(node, context, node.Integer("opset", node.SinceVersion()));
}

std::unique_ptr<Layer> MakeDynamicQuantizeLstm(const Node& node, const Context& context) {
  return std::make_unique<DynamicQuantizeLstm>(node, context);
}

struct Operator {
  const char* domain;
  const char* type;
  std::span<const char* const> inputs;  // as the operator's definition names them
  std::unique_ptr<Layer> (*make)(const Node& node, const Context& context);
  bool may_have_constant_a = false;
};

const std::array kOperators = {
    Operator{"", "MatMulInteger", kMatMulInteger, MakeMatMulInteger},
    Operator{"", "QLinearMatMul", kQLinearMatMul, MakeQLinearMatMul},
    Operator{"", "ConvInteger", kConvInteger, MakeConvInteger},
    Operator{"", "QLinearConv", kQLinearConv, MakeQLinearConv},
    Operator{"", "MaxPool", kMaxPool, MakeMaxPool},
    Operator{kGroupDomain, "DynamicQuantizeConv", kDynamicQuantizeConv, MakeDynamicQuantizeConv},
    Operator{kGroupDomain, "ConvIntegerToFloat", kConvIntegerToFloat, MakeConvIntegerToFloat},
    Operator{kGroupDomain, "QLinearConvTranspose", kQLinearConv, MakeQLinearConvTranspose},
    Operator{"com.microsoft", "QLinearConv", kQLinearConv, MakeQLinearConv},
    Operator{"com.microsoft", "DynamicQuantizeLSTM", DynamicQuantizeLstm::kInputs, MakeDynamicQuantizeLstm},
    Operator{"com.microsoft", "QLinearAdd", kQLinearElementwise, MakeQLinearAdd, true},
    Operator{"com.microsoft", "QLinearMul", kQLinearElementwise, MakeQLinearMul, true},
    Operator{"com.microsoft", "QLinearSoftmax", QLinearSoftmax::kInputs, MakeQLinearSoftmax},
    Operator{"com.microsoft", "QGemm", kQGemm, MakeQGemm},
    Operator{"com.microsoft", "DynamicQuantizeMatMul", kDynamicQuantizeMatMul, MakeDynamicQuantizeMatMul},
    Operator{"com.microsoft", "MatMulIntegerToFloat", kMatMulIntegerToFloat, MakeMatMulIntegerToFloat},
};

}  // namespace

std::unique_ptr<Layer> MakeLayer(const Group& group, const Settings& settings) {
  if (group.domain == kGroupDomain && group.type == kByteFunction)
    return std::make_unique<ByteFunction>(group, settings);
  for (const Operator& each : kOperators) {
    if (group.domain != each.domain || group.type != each.type) continue;
    const Node node(group.nodes.front(), group.inputs, group.output,
                    {each.inputs.begin(), each.inputs.end()});
    if (!node.IsFromRun(0) && !each.may_have_constant_a)
      throw Refusal(std::string(each.inputs[0]) + ": is a constant; expected one that each run gives");
    return each.make(node,
                     {settings, group.is_moved_to_u8, group.is_b_moved_to_u8, group.is_output_moved_to_u8});
  }
  throw Refusal("no operator of this provider");
}

}  // namespace intact::onnxruntime
