#include "float_matrix_conv.h"

#include <algorithm>
#include <span>

namespace intact::onnxruntime {

FloatMatrixConv::FloatMatrixConv(const Node& node, const Context& context)
    : product_(FloatProductOf(context.settings)), geometry_(node, node.ShapeOf(1)) {
  context.RequireReproducible();
  node.Type(0, {INTACT_F32});
  const Constant w = node.Weights(1, INTACT_F32);
  const intact_conv_desc& desc = geometry_.desc;
  if (HasOneOrder(w.shape, desc.groups))
    throw Refusal(
        "W: has one output and " + std::to_string(w.count / w.shape[0]) +
        " depths in each group, which ONNX Runtime adds in one order on every CPU; expected more than " +
        std::to_string(FloatMatMul::kMostDepthOfOneOrder));
  const auto dims = static_cast<size_t>(desc.spatial_dims);
  const auto in_three = [&](const int64_t* values, int64_t otherwise) {
    std::array<int64_t, 3> all;
    all.fill(otherwise);
    std::copy_n(values, dims, all.end() - static_cast<std::ptrdiff_t>(dims));
    return all;
  };
  kernel_ = in_three(desc.kernel, 1);
  stride_ = in_three(desc.stride, 1);
  dilation_ = in_three(desc.dilation, 1);
  pad_ = in_three(desc.pad_begin, 0);
  channels_ = w.shape[1];
  outputs_ = w.shape[0] / desc.groups;
  taps_ = kernel_[0] * kernel_[1] * kernel_[2];
  bias_ = Bias<float>(node, 2, INTACT_F32, w.shape[0]);
  weights_.resize(static_cast<size_t>(w.count));
  const float* const source = w.As<float>().data();
  float* target = weights_.data();
  const int64_t depths = channels_ * taps_;
  for (int64_t group = 0; group < desc.groups; ++group)
    for (int64_t depth = 0; depth < depths; ++depth)
      for (int64_t o = 0; o < outputs_; ++o) *target++ = source[(group * outputs_ + o) * depths + depth];
}

bool FloatMatrixConv::HasOneOrder(const Shape& weights, int64_t groups) {
  return (weights.size() == 3 || weights.size() == 5) && weights[0] == groups &&
         CountOf(std::span(weights).subspan(1)) <= FloatMatMul::kMostDepthOfOneOrder;
}

FloatMatrixConv::Image FloatMatrixConv::ImageOf(const Shape& shape) const {
  Image image{};
  image.extents.fill(1);
  const auto dims = static_cast<std::ptrdiff_t>(geometry_.desc.spatial_dims);
  std::copy_n(shape.begin() + static_cast<std::ptrdiff_t>(geometry_.FirstExtent()), dims,
              image.extents.end() - dims);
  image.channel_step = geometry_.channels_last ? 1 : image.Pixels();
  image.pixel_step = geometry_.channels_last ? shape.back() : 1;
  return image;
}

void FloatMatrixConv::ReadTaps(const Image& in, const Image& out, const float* x, int64_t pixel,
                               float* row) const {
  const std::array<int64_t, 3> place = {pixel / out.extents[2] / out.extents[1],
                                        pixel / out.extents[2] % out.extents[1], pixel % out.extents[2]};
  for (int64_t tap = 0; tap < taps_; ++tap) {
    const std::array<int64_t, 3> of_tap = {tap / kernel_[2] / kernel_[1], tap / kernel_[2] % kernel_[1],
                                           tap % kernel_[2]};
    int64_t from = 0;
    bool is_inside = true;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t at = place[i] * stride_[i] - pad_[i] + of_tap[i] * dilation_[i];
      is_inside = is_inside && at >= 0 && at < in.extents[i];
      from = from * in.extents[i] + at;
    }
    for (int64_t channel = 0; channel < channels_; ++channel)
      row[channel * taps_ + tap] = is_inside ? x[channel * in.channel_step + from * in.pixel_step] : 0.0f;
  }
}

void FloatMatrixConv::Compute(Run& run) const {
  const auto input = run.Input(0);
  const Shape shape = input.GetTensorTypeAndShapeInfo().GetShape();
  const Shape of_y = geometry_.OutputShape(shape);
  auto* const y = static_cast<float*>(run.Output(of_y));
  if (CountOf(of_y) == 0) return;
  const auto* const x = static_cast<const float*>(input.GetTensorRawData());
  const Image in = ImageOf(shape), out = ImageOf(of_y);
  const int64_t k = channels_ * taps_, pixels = out.Pixels(), groups = geometry_.desc.groups;
  // A task computes some pixels of one group of an image, with enough work to wake a thread.
  constexpr int64_t kRows = 24, kWork = int64_t{1} << 18;
  const int64_t rows = std::min(pixels, std::max(kRows, kWork / (outputs_ * k) / kRows * kRows));
  const int64_t of_group = (pixels + rows - 1) / rows;
  const Terms terms{.block = FloatBlockOf(pixels, k)};
  run.ForEach(shape[0] * groups * of_group, [&](int64_t task) {
    const int64_t group = task / of_group % groups, image = task / of_group / groups;
    const int64_t first = task % of_group * rows, count = std::min(rows, pixels - first);
    std::vector<float> a(static_cast<size_t>(count * k)), sums(static_cast<size_t>(count * outputs_));
    const float* const from =
        x + image * in.Pixels() * channels_ * groups + group * channels_ * in.channel_step;
    for (int64_t row = 0; row < count; ++row) ReadTaps(in, out, from, first + row, a.data() + row * k);
    product_.multiply(a.data(), weights_.data() + group * k * outputs_, sums.data(), count, outputs_, k,
                      terms);
    float* const to = y + image * pixels * outputs_ * groups + group * outputs_ * out.channel_step;
    for (int64_t o = 0; o < outputs_; ++o)
      for (int64_t row = 0; row < count; ++row) {
        const float sum = sums[static_cast<size_t>(row * outputs_ + o)];
        to[o * out.channel_step + (first + row) * out.pixel_step] =
            bias_.empty() ? sum : sum + bias_[static_cast<size_t>(group * outputs_ + o)];
      }
  });
}

}  // namespace intact::onnxruntime
