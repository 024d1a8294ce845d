#include "float_conv_transpose.h"

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>

namespace intact::onnxruntime {
namespace {

// (group, output, tap, channel) of (group, channel, output, tap). `rows`: outputs times taps.
void TransposeWeights(const float* source, float* target, int64_t groups, int64_t channels, int64_t rows) {
  for (int64_t group = 0; group < groups; ++group)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t channel = 0; channel < channels; ++channel)
        *target++ = source[(group * channels + channel) * rows + row];
}

// The last `values` are the innermost ones; the others are `otherwise`.
std::array<int64_t, 3> InThreeDimensions(std::span<const int64_t> values, int64_t otherwise) {
  std::array<int64_t, 3> all;
  all.fill(otherwise);
  std::ranges::copy(values, all.end() - static_cast<std::ptrdiff_t>(values.size()));
  return all;
}

// The indices [first, second) of a dimension's input pixels that a tap takes into the image.
std::pair<int64_t, int64_t> PixelsInside(int64_t offset, int64_t stride, int64_t in, int64_t out) {
  const int64_t begin = offset < 0 ? (-offset + stride - 1) / stride : 0;
  const int64_t end = offset < out ? std::min(in, (out - 1 - offset) / stride + 1) : 0;
  return {std::min(begin, end), end};
}

}  // namespace

FloatConvTranspose::FloatConvTranspose(const Node& node, const Context& context)
    : product_(FloatProductOf(context.settings)),
      groups_(node.Integer("group", 1)),
      is_bias_from_run_(node.IsFromRun(2)) {
  node.Type(0, {INTACT_F32});
  context.RequireReproducible();
  if (HasOneOrder(node))
    throw Refusal("operator: has the same bytes in ONNX Runtime for every number of threads");
  const auto constant = node.FindConstant(1);
  const Shape shape = constant ? constant->shape : node.ShapeOf(1);
  if (shape.size() < 3 || shape.size() > 5)
    throw Refusal("W: has " + std::to_string(shape.size()) +
                  " dimensions; expected 3 to 5, known before the run");
  if (node.HasAttribute("output_shape"))
    throw Refusal("output_shape: is given; expected pads and output_padding");
  const std::string automatic = node.String("auto_pad", "NOTSET");
  if (automatic != "NOTSET" && automatic != "VALID")
    throw Refusal("auto_pad: is " + automatic + "; expected NOTSET or VALID");
  const size_t dims = shape.size() - 2;
  const Shape pads = automatic == "VALID" ? Shape(2 * dims, 0) : node.Integers("pads", 2 * dims, 0);
  strides_ = InThreeDimensions(node.Integers("strides", dims, 1), 1);
  dilations_ = InThreeDimensions(node.Integers("dilations", dims, 1), 1);
  pads_begin_ = InThreeDimensions(std::span(pads).first(dims), 0);
  pads_end_ = InThreeDimensions(std::span(pads).subspan(dims), 0);
  output_padding_ = InThreeDimensions(node.Integers("output_padding", dims, 0), 0);
  for (size_t i = 0; i < 3; ++i)
    if (output_padding_[i] >= strides_[i])
      throw Refusal("output_padding: is " + std::to_string(output_padding_[i]) +
                    "; expected less than the stride, " + std::to_string(strides_[i]));
  if (groups_ < 1 || (constant && constant->shape[0] % groups_ != 0))
    throw Refusal("group: is " + std::to_string(groups_) + "; expected a divisor of the channels");
  if (!is_bias_from_run_ && node.Has(2) && shape[1] < 0)
    throw Refusal("W: has an unknown number of outputs; expected a known one with a constant bias");
  if (!is_bias_from_run_) bias_ = Bias<float>(node, 2, INTACT_F32, shape[1] * groups_);
  if (!constant) return;
  weights_shape_ = constant->shape;
  weights_.resize(static_cast<size_t>(constant->count));
  TransposeWeights(constant->As<float>().data(), weights_.data(), groups_, shape[0] / groups_,
                   CountOf(std::span(shape).subspan(1)));
}

bool FloatConvTranspose::HasOneOrder(const Node& convolution) {
  // ONNX Runtime multiplies matrices: a depth is a channel of a group, a column is a pixel. One thread then adds the products.
  const Shape x = convolution.ShapeOf(0), weights = convolution.ShapeOf(1);
  const bool has_pixels =
      x.size() > 2 && std::any_of(x.begin() + 2, x.end(), [](int64_t n) { return n > 1; });
  return has_pixels && !weights.empty() && weights[0] > 0 &&
         weights[0] <= FloatMatMul::kMostDepthOfOneOrder * convolution.Integer("group", 1);
}

FloatConvTranspose::Sizes FloatConvTranspose::SizesOf(const Shape& x, const Shape& w, Shape* out) const {
  if (x.size() != w.size() || x.size() < 3 || x.size() > 5)
    throw std::invalid_argument("X, W: have " + std::to_string(x.size()) + " and " +
                                std::to_string(w.size()) + " dimensions; expected 3 to 5, the same number");
  if (x[1] != w[0] || x[1] % groups_ != 0)
    throw std::invalid_argument("X: has " + std::to_string(x[1]) + " channels; expected " +
                                std::to_string(w[0]) + ", a multiple of " + std::to_string(groups_));
  Sizes sizes{.batch = x[0], .channels = x[1] / groups_, .outputs = w[1]};
  sizes.in = InThreeDimensions(std::span(x).subspan(2), 1);
  sizes.kernel = InThreeDimensions(std::span(w).subspan(2), 1);
  for (size_t i = 0; i < 3; ++i) {
    sizes.out[i] = strides_[i] * (sizes.in[i] - 1) + output_padding_[i] +
                   dilations_[i] * (sizes.kernel[i] - 1) + 1 - pads_begin_[i] - pads_end_[i];
    if (sizes.out[i] < 0)
      throw std::invalid_argument("X: has extent " + std::to_string(sizes.in[i]) +
                                  ", too small for the padding; expected more");
  }
  *out = {x[0], w[1] * groups_};
  out->insert(out->end(), sizes.out.end() - static_cast<std::ptrdiff_t>(x.size() - 2), sizes.out.end());
  return sizes;
}

void FloatConvTranspose::AddColumns(const Sizes& sizes, const float* columns, float* y) const {
  std::fill_n(y, sizes.OutPixels(), 0.0f);
  for (int64_t tap = 0; tap < sizes.Taps(); ++tap, columns += sizes.InPixels()) {
    const std::array<int64_t, 3> of_tap = {tap / sizes.kernel[2] / sizes.kernel[1],
                                           tap / sizes.kernel[2] % sizes.kernel[1], tap % sizes.kernel[2]};
    std::array<int64_t, 3> offset, begin, end;
    for (size_t i = 0; i < 3; ++i) {
      offset[i] = of_tap[i] * dilations_[i] - pads_begin_[i];
      std::tie(begin[i], end[i]) = PixelsInside(offset[i], strides_[i], sizes.in[i], sizes.out[i]);
    }
    for (int64_t d = begin[0]; d < end[0]; ++d)
      for (int64_t h = begin[1]; h < end[1]; ++h) {
        const float* const from = columns + (d * sizes.in[1] + h) * sizes.in[2];
        float* const to =
            y + ((d * strides_[0] + offset[0]) * sizes.out[1] + h * strides_[1] + offset[1]) * sizes.out[2] +
            offset[2];
        for (int64_t w = begin[2]; w < end[2]; ++w) to[w * strides_[2]] += from[w];
      }
  }
}

void FloatConvTranspose::Compute(Run& run) const {
  const auto x = run.Input(0);
  const Shape shape = x.GetTensorTypeAndShapeInfo().GetShape();
  std::optional<Ort::ConstValue> given;
  if (weights_shape_.empty()) given = run.Input(1);
  const Shape of_weights = given ? given->GetTensorTypeAndShapeInfo().GetShape() : weights_shape_;
  Shape out;
  const Sizes sizes = SizesOf(shape, of_weights, &out);
  auto* const y = static_cast<float*>(run.Output(out));
  if (CountOf(out) == 0) return;
  const int64_t k = sizes.channels, n = sizes.InPixels(), taps = sizes.Taps(), rows = sizes.outputs * taps;
  const float* weights = weights_.data();
  if (given) {
    auto* const transposed =
        static_cast<float*>(run.Allocate(static_cast<size_t>(CountOf(of_weights)) * sizeof(float)));
    TransposeWeights(static_cast<const float*>(given->GetTensorRawData()), transposed, groups_, k, rows);
    weights = transposed;
  }
  const float* bias = nullptr;
  if (!bias_.empty()) bias = bias_.data();
  if (is_bias_from_run_) {
    const auto values = run.Input(2);
    if (CountOf(values.GetTensorTypeAndShapeInfo().GetShape()) != out[1])
      throw std::invalid_argument("B: has another number of values than the outputs; expected " +
                                  std::to_string(out[1]));
    bias = static_cast<const float*>(values.GetTensorRawData());
  }
  // A task computes outputs of one group of an image, with enough work to wake a thread.
  constexpr int64_t kWork = int64_t{1} << 18;
  const int64_t outputs =
      std::clamp<int64_t>(kWork / std::max<int64_t>(n * taps * std::max<int64_t>(k, 8), 1), 1, sizes.outputs);
  const int64_t of_group = (sizes.outputs + outputs - 1) / outputs;
  const Terms terms{.block = given || rows == 1 ? kFloatBlock : FloatBlockOf(n, k)};
  const auto* const pixels = static_cast<const float*>(x.GetTensorRawData());
  run.ForEach(sizes.batch * groups_ * of_group, [&](int64_t task) {
    const int64_t item = task / of_group, group = item % groups_;  // of (image, group)
    const int64_t first = task % of_group * outputs, count = std::min(outputs, sizes.outputs - first);
    std::vector<float> columns(static_cast<size_t>(count * taps * n));
    if (k > 0)
      product_.multiply(weights + (group * rows + first * taps) * k, pixels + item * k * n, columns.data(),
                        count * taps, n, k, terms);
    for (int64_t output = 0; output < count; ++output) {
      const int64_t channel = item * sizes.outputs + first + output;
      float* const to = y + channel * sizes.OutPixels();
      AddColumns(sizes, columns.data() + output * taps * n, to);
      if (bias == nullptr) continue;
      for (int64_t i = 0; i < sizes.OutPixels(); ++i) to[i] += bias[channel % out[1]];
    }
  });
}

}  // namespace intact::onnxruntime
