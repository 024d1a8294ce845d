#include "convolution.h"

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "plans.h"

namespace intact::onnxruntime {
namespace {

// Bytes of an element; of eight bits also without a type.
constexpr size_t SizeOf(int32_t type) { return type == INTACT_S32 || type == INTACT_F32 ? 4 : 1; }

// O…I from OI…; empty if both are the same.
std::vector<uint8_t> ChannelsLast(const Constant& weights) {
  const int64_t channels = weights.shape[1];
  const int64_t taps = CountOf(std::span(weights.shape).subspan(2));
  if (channels == 1 || taps == 1) return {};
  const auto* const source = static_cast<const uint8_t*>(weights.data);
  std::vector<uint8_t> reordered(static_cast<size_t>(weights.count));
  for (int64_t first = 0; first < weights.count; first += channels * taps)
    Transpose(source + first, taps, &reordered[static_cast<size_t>(first)], channels, channels, taps);
  return reordered;
}

// Convolutions of NC… tensors, or N…C ones with `channels_last`.
class Conv : public Layer {
 public:
  // Reads the geometry of a node with weights OI….
  Conv(const Node& node, const Constant& w, Linear linear, std::optional<FromRun> from_run = {})
      : geometry_(node, w.shape),
        from_run_(from_run),
        x_bytes_(SizeOf(linear.desc.a_source_type)),
        y_bytes_(SizeOf(linear.desc.c_type)),
        depth_(w.count / w.shape.front()) {
    const std::span weights(static_cast<const uint8_t*>(w.data), static_cast<size_t>(w.count));
    plan_ = MakeConvPlan(geometry_.desc, linear, weights, [&] { return ChannelsLast(w); });
  }

  ElementOrder GetOrder() const override {
    return geometry_.channels_last ? ElementOrder::kChannelsFirst : ElementOrder::kEither;
  }

  void Compute(Run& run) const override {
    const auto x = run.Input(0);
    const Shape shape = x.GetTensorTypeAndShapeInfo().GetShape();
    const Shape out = geometry_.OutputShape(shape);
    const auto dims = static_cast<size_t>(geometry_.desc.spatial_dims);
    const size_t first = geometry_.FirstExtent();
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = shape[0];
    std::copy_n(shape.begin() + static_cast<int64_t>(first), dims, args.input);
    void* const y = run.Output(out);
    if (args.batch == 0) return;

    const int64_t channels = geometry_.desc.input_channels, output_channels = geometry_.desc.output_channels;
    const int64_t in_pixels = CountOf(std::span(args.input).first(dims));
    const int64_t out_pixels = CountOf(std::span(out).subspan(first, dims));
    // A matrix of one row or one column is its own transpose.
    const bool turns_x = !geometry_.channels_last && !run.IsChannelsLast(0) && channels > 1 && in_pixels > 1;
    const bool turns_y =
        !geometry_.channels_last && !run.IsOutputChannelsLast() && output_channels > 1 && out_pixels > 1;
    args.a = x.GetTensorRawData();
    if (turns_x) {
      void* const pixels = run.Allocate(static_cast<size_t>(args.batch * channels * in_pixels) * x_bytes_);
      run.Transpose(args.a, pixels, x_bytes_, args.batch, channels, in_pixels);
      args.a = pixels;
    }
    args.c = turns_y ? run.Allocate(static_cast<size_t>(CountOf(out)) * y_bytes_) : y;
    FromRun::Values values;
    if (from_run_) from_run_->Read(run, values, args);
    run.Compute(*plan_, args, {args.batch * out_pixels, output_channels, depth_});
    if (turns_y) run.Transpose(args.c, y, y_bytes_, args.batch, out_pixels, output_channels);
  }

  std::string Kernel() const override { return KernelOf(*plan_); }

 private:
  const ConvGeometry geometry_;
  ConvPlan plan_;
  std::optional<FromRun> from_run_;
  size_t x_bytes_, y_bytes_;  // of an element
  int64_t depth_;             // products of an output
};

}  // namespace

ConvGeometry::ConvGeometry(const Node& node, const Shape& weights) : channels_last(node.IsChannelsLast()) {
  if (weights.size() < 3 || weights.size() > 2 + INTACT_MAX_SPATIAL)
    throw Refusal("W: has " + std::to_string(weights.size()) + " dimensions; expected 3 to 5");
  const size_t dims = weights.size() - 2;
  desc.spatial_dims = static_cast<int32_t>(dims);
  desc.groups = node.Integer("group", 1);
  desc.output_channels = weights[0];
  desc.input_channels = weights[1] * desc.groups;
  if (desc.groups < 1 || weights[0] % desc.groups != 0)
    throw Refusal("group: is " + std::to_string(desc.groups) + "; expected a divisor of " +
                  std::to_string(weights[0]));
  const Shape strides = node.Integers("strides", dims, 1);
  const Shape dilations = node.Integers("dilations", dims, 1);
  for (size_t i = 0; i < dims; ++i) {
    desc.input[i] = INTACT_ANY_EXTENT;
    desc.kernel[i] = weights[2 + i];
    desc.stride[i] = strides[i];
    desc.dilation[i] = dilations[i];
  }
  SetPadding(node, dims);
}

Shape ConvGeometry::OutputShape(const Shape& x) const {
  const auto dims = static_cast<size_t>(desc.spatial_dims);
  if (x.size() != dims + 2)
    throw std::invalid_argument("X: has " + std::to_string(x.size()) + " dimensions; expected " +
                                std::to_string(dims + 2));
  const int64_t channels = x[channels_last ? dims + 1 : 1];
  if (channels != desc.input_channels)
    throw std::invalid_argument("X: has " + std::to_string(channels) + " channels; expected " +
                                std::to_string(desc.input_channels));
  Shape y(dims + 2);
  y[0] = x[0];
  y[channels_last ? dims + 1 : 1] = desc.output_channels;
  for (size_t i = 0; i < dims; ++i) {
    const int64_t padded = x[FirstExtent() + i] + desc.pad_begin[i] + desc.pad_end[i];
    if (padded < Reach(i))
      throw std::invalid_argument("X: has extent " + std::to_string(padded) +
                                  " with its padding; expected at least " + std::to_string(Reach(i)));
    y[FirstExtent() + i] = (padded - Reach(i)) / desc.stride[i] + 1;
  }
  return y;
}

void ConvGeometry::SetPadding(const Node& node, size_t dims) {
  const std::string automatic = node.String("auto_pad", "NOTSET");
  if (automatic == "VALID") return;
  if (automatic == "NOTSET") {
    const Shape pads = node.Integers("pads", 2 * dims, 0);
    std::copy_n(pads.begin(), dims, desc.pad_begin);
    std::copy_n(pads.begin() + static_cast<int64_t>(dims), dims, desc.pad_end);
    return;
  }
  // SAME_UPPER, SAME_LOWER: ⌈input/stride⌉ outputs. With a stride the padding depends on the input's
  // extents.
  const Shape shape = node.ShapeOf(0);
  for (size_t i = 0; i < dims; ++i) {
    const size_t place = FirstExtent() + i;
    const int64_t stride = desc.stride[i];
    const int64_t input = place < shape.size() ? shape[place] : -1;
    if (stride > 1 && input < 0)
      throw Refusal("auto_pad: is " + automatic + " with stride " + std::to_string(stride) +
                    " and an input of unknown extents; expected explicit pads");
    const int64_t last = stride > 1 ? (input + stride - 1) / stride * stride - stride - input : -1;
    const int64_t padding = std::max<int64_t>(last + Reach(i), 0);
    const int64_t less = padding / 2;
    desc.pad_begin[i] = automatic == "SAME_LOWER" ? padding - less : less;
    desc.pad_end[i] = padding - desc.pad_begin[i];
  }
}

std::unique_ptr<Layer> MakeConvInteger(const Node& node, const Context& context) {
  const intact_type x = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type w = node.Type(1, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(1, w);
  Linear linear(context, ConvProduct("ConvInteger", weights.shape, node.Integer("group", 1)), x, w,
                INTACT_S32);
  linear.b_zero_points = node.ZeroPoints(3, w, weights.shape.front());
  const auto from_run = SetQuantization(node, 2, {}, {}, linear);
  return std::make_unique<Conv>(node, weights, std::move(linear), from_run);
}

std::unique_ptr<Layer> MakeDynamicQuantizeConv(const Node& node, const Context& context) {
  const intact_type w = node.Type(1, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(1, w);
  const int64_t channels = weights.shape.front();
  const Product product = ConvProduct("ConvInteger", weights.shape, node.Integer("group", 1));
  Linear linear(context, product, INTACT_U8, w, INTACT_F32);
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
  Linear linear(context, ConvProduct("ConvInteger", weights.shape, node.Integer("group", 1)), x, w,
                INTACT_F32);
  linear.b_zero_points = node.ZeroPoints(5, w, channels);
  linear.bias_f32 = Bias<float>(node, 6, INTACT_F32, channels, weights.shape.size() - 2);
  const auto from_run = SetQuantization(node, 4, 2, node.Scales(3, channels), linear);
  return std::make_unique<Conv>(node, weights, std::move(linear), from_run);
}

std::unique_ptr<Layer> MakeQLinearConv(const Node& node, const Context& context) {
  const intact_type w = node.Type(3, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(3, w);
  const int64_t channels = weights.shape.front();
  const Product product = ConvProduct("QLinearConv", weights.shape, node.Integer("group", 1));
  Linear linear = QLinear(node, context, product, w, channels);
  SetBias(node, context, 8, 9, channels, node.Scale(6), linear);
  return std::make_unique<Conv>(node, weights, std::move(linear));
}

}  // namespace intact::onnxruntime
