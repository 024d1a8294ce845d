#include "integrations/pytorch_legacy/operators/common.h"

#include <cmath>

namespace intact_torch {
namespace {

// Throws unless IsActivation(tensor).
void CheckActivation(const char* argument, const at::Tensor& tensor, const Options& options) {
  if (!IsActivation(tensor)) {
    Fail(options.layer, argument, " is ", tensor.scalar_type(), " on ", tensor.device(),
         "; expected quint8 or qint8, quantized per tensor, on cpu");
  }
  CheckAffine(std::string(argument) + "'s ", tensor.q_scale(), tensor.q_zero_point(), tensor.scalar_type(),
              options);
}

int32_t TypeOf(at::ScalarType type) { return type == at::kQUInt8 ? INTACT_U8 : INTACT_S8; }

}  // namespace

bool IsActivation(const at::Tensor& tensor) {
  return tensor.is_quantized() && tensor.device().is_cpu() && tensor.qscheme() == at::kPerTensorAffine &&
         (tensor.scalar_type() == at::kQUInt8 || tensor.scalar_type() == at::kQInt8);
}

void CheckReal(const char* argument, const at::Tensor& tensor, const Options& options) {
  if (tensor.scalar_type() == at::kFloat && tensor.device().is_cpu() && tensor.layout() == at::kStrided)
    return;
  Fail(options.layer, argument, " is ", tensor.scalar_type(), " on ", tensor.device(), ", ", tensor.layout(),
       "; expected Float on cpu, Strided");
}

void CheckAffine(const std::string& whose, double scale, int64_t zero_point, at::ScalarType type,
                 const Options& options) {
  const auto rounded = static_cast<float>(scale);
  if (!(rounded > 0) || std::isinf(rounded)) {
    Fail(options.layer, whose, "scale is ", scale, "; expected a finite float32 above 0");
  }
  const int64_t lowest = type == at::kQUInt8 ? 0 : -128;
  if (zero_point < lowest || zero_point > lowest + 255) {
    Fail(options.layer, whose, "zero_point is ", zero_point, "; expected ", lowest, " to ", lowest + 255,
         ", values of ", type);
  }
}

WeightQuantization QuantizationOf(const at::Tensor& weight, int64_t axis, int64_t output_channels,
                                  const Options& options) {
  if (!weight.is_quantized() || weight.scalar_type() != at::kQInt8 || !weight.device().is_cpu()) {
    Fail(options.layer, "weight is ", weight.scalar_type(), " on ", weight.device(),
         "; expected qint8 on cpu");
  }
  WeightQuantization quantization;
  const auto channels = static_cast<size_t>(output_channels);
  if (weight.qscheme() == at::kPerTensorAffine) {
    CheckAffine("weight's ", weight.q_scale(), weight.q_zero_point(), at::kQInt8, options);
    quantization.scales.assign(channels, weight.q_scale());
    quantization.zero_points.assign(channels, static_cast<int32_t>(weight.q_zero_point()));
    return quantization;
  }
  if (weight.qscheme() != at::kPerChannelAffine) {
    Fail(options.layer, "weight is quantized ", toString(weight.qscheme()),
         "; expected per tensor or per channel, with integer zero points");
  }
  if (weight.q_per_channel_axis() != axis) {
    Fail(options.layer, "weight is quantized per channel of axis ", weight.q_per_channel_axis(),
         "; expected ", axis);
  }
  const at::Tensor scales = weight.q_per_channel_scales().to(at::kDouble).contiguous();
  const at::Tensor zero_points = weight.q_per_channel_zero_points().to(at::kLong).contiguous();
  for (int64_t n = 0; n < output_channels; ++n) {
    const int64_t channel = n % scales.numel();
    const double scale = scales.data_ptr<double>()[channel];
    const int64_t zero_point = zero_points.data_ptr<int64_t>()[channel];
    CheckAffine("weight channel " + std::to_string(channel) + "'s ", scale, zero_point, at::kQInt8, options);
    quantization.scales.push_back(scale);
    quantization.zero_points.push_back(static_cast<int32_t>(zero_point));
  }
  return quantization;
}

void CheckBias(const c10::optional<at::Tensor>& bias, int64_t output_channels, const Options& options) {
  if (!bias) return;
  CheckReal("bias", *bias, options);
  if (bias->dim() == 1 && bias->numel() == output_channels) return;
  Fail(options.layer, "bias has shape ", bias->sizes(), "; expected [", output_channels, "]");
}

Arithmetic::Arithmetic(const WeightQuantization& weights, const Options& options)
    : weight_zero_points_(weights.zero_points) {
  desc_.mode = options.mode == "saturating" ? INTACT_SATURATING : INTACT_EXACT;
  desc_.max_isa = IsaNamed(options.max_isa);
}

Arithmetic::Arithmetic(const CallKey& key, const WeightQuantization& weights,
                       const c10::optional<at::Tensor>& bias, const Options& options)
    : Arithmetic(weights, options) {
  desc_.a_type = desc_.c_type = TypeOf(key.type);
  desc_.a_zero_point = static_cast<int32_t>(key.input_zero_point);
  desc_.c_zero_point = static_cast<int32_t>(key.output_zero_point);
  desc_.activation = key.relu ? INTACT_ACTIVATION_RELU : INTACT_ACTIVATION_NONE;
  if (key.has_residual) {
    desc_.residual_type = TypeOf(key.residual_type);
    desc_.residual_scale = static_cast<float>(key.residual_scale / key.output_scale);
    desc_.residual_zero_point = static_cast<int32_t>(key.residual_zero_point);
  }
  SetScales(key.input_scale, weights, key.output_scale, bias);
}

Arithmetic::Arithmetic(bool per_row, bool relu, const WeightQuantization& weights,
                       const c10::optional<at::Tensor>& bias, const Options& options)
    : Arithmetic(weights, options) {
  desc_.a_quantization = per_row ? INTACT_QUANTIZATION_DYNAMIC_ROWS : INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  desc_.a_source_type = desc_.c_type = INTACT_F32;
  desc_.activation = relu ? INTACT_ACTIVATION_RELU : INTACT_ACTIVATION_NONE;
  SetScales(1, weights, 1, bias);
}

// scale[n] = si·sw[n]/so and bias[n]/so in double precision, rounded to float32 once, as in
// verify/studies/layer.h.
void Arithmetic::SetScales(double input_scale, const WeightQuantization& weights, double output_scale,
                           const c10::optional<at::Tensor>& bias) {
  for (const double scale : weights.scales) {
    scales_.push_back(static_cast<float>(input_scale * scale / output_scale));
  }
  if (!bias) return;
  const at::Tensor values = bias->contiguous();
  for (int64_t n = 0; n < values.numel(); ++n) {
    bias_.push_back(static_cast<float>(static_cast<double>(values.data_ptr<float>()[n]) / output_scale));
  }
}

intact_linear_desc Arithmetic::desc() const {
  intact_linear_desc desc = desc_;
  desc.scales = scales_.data();
  desc.scale_count = static_cast<int64_t>(scales_.size());
  desc.bias_f32 = bias_.empty() ? nullptr : bias_.data();
  desc.b_zero_points = weight_zero_points_.data();
  desc.b_zero_point_count = static_cast<int64_t>(weight_zero_points_.size());
  return desc;
}

CallKey KeyOf(const at::Tensor& input, const c10::optional<at::Tensor>& residual, double output_scale,
              int64_t output_zero_point, bool relu, const Options& options) {
  CheckActivation("input", input, options);
  CheckAffine("output_", output_scale, output_zero_point, input.scalar_type(), options);
  CallKey key;
  key.type = input.scalar_type();
  key.input_scale = input.q_scale();
  key.input_zero_point = input.q_zero_point();
  key.output_scale = output_scale;
  key.output_zero_point = output_zero_point;
  key.relu = relu;
  if (!residual) return key;
  CheckActivation("residual", *residual, options);
  key.has_residual = true;
  key.residual_type = residual->scalar_type();
  key.residual_scale = residual->q_scale();
  key.residual_zero_point = residual->q_zero_point();
  return key;
}

}  // namespace intact_torch

TORCH_LIBRARY_FRAGMENT(intact, library) {
  library.def("isa_available(str name) -> bool", [](const std::string& name) {
    const int32_t isa = intact_torch::IsaNamed(name);
    return isa >= 0 && intact_isa_available(isa) != 0;
  });
  library.def("check_options(str mode, str max_isa) -> ()",
              [](const std::string& mode, const std::string& max_isa) {
                intact_torch::CheckOptions({"", mode, max_isa});
              });
}
