#include "step.h"

#include <intact/intact.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <variant>

#include "run.h"

namespace intact::pytorch {
namespace {

/// Whether an 8-bit type has the value.
bool IsValueOf(ScalarType type, int64_t value) {
  const int64_t lowest = type == ScalarType::Byte ? 0 : -128;
  return value >= lowest && value <= lowest + 255;
}

bool IsScale(float value) { return std::isnormal(value) && value > 0 && value < 0x1p127f; }

bool Has(const std::vector<float>& values, const Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == ScalarType::Float &&
         tensor.numel() == static_cast<int64_t>(values.size()) && tensor.is_contiguous() &&
         std::memcmp(values.data(), tensor.const_data_ptr(), values.size() * sizeof(float)) == 0;
}

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

}  // namespace

bool Step::TakesScale(std::optional<float> x_scale) const {
  return x_scale && IsScale(*x_scale) && IsScale(*x_scale / scale);
}

bool Step::TakesZeroPoint(std::optional<int64_t> x_zero_point) const {
  return x_zero_point && IsValueOf(x_type, *x_zero_point);
}

Sizes Step::OutputSizes(const Tensor& x) const {
  Sizes all = SizesOf(x);
  std::copy(sizes.begin(), sizes.end(), all.end() - static_cast<ptrdiff_t>(sizes.size()));
  return all;
}

std::optional<Tensor> Step::Run(const Tensor& given_x, const Tensor& given_x_scale,
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
    if (!other || !other->is_cpu() || other->scalar_type() != *residual_type || SizesOf(*other) != out_sizes)
      return std::nullopt;
    residual = Dense(*other, is_image());
    if (is_sum && *residual_type == type && residual->get() == other->get() && !Overlap(x, *other))
      out = other;
  }
  if (!out) out = Empty(out_sizes, is_image(), type);
  if (out->numel() != 0) Compute(x, *x_scale / q, static_cast<int32_t>(*x_zero_point), residual, *out);
  return out;
}

bool Step::EndsWith(const Tensor& tensor, const Sizes& tail) const {
  const auto all = tensor.sizes();
  return all.size() >= tail.size() && (!is_image() || all.size() == 4) &&
         std::equal(tail.begin(), tail.end(), all.end() - static_cast<ptrdiff_t>(tail.size()));
}

integrations::PlanWork Step::WorkOf(int64_t count) const {
  return {count * work.rows, work.columns, work.depth};
}

void Step::Compute(const Tensor& x, float x_scale, int32_t x_zero_point,
                   const std::optional<Tensor>& residual, Tensor& out) const {
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
    RunParts(WorkOf(args.m), [&](int32_t part, int32_t parts) {
      return intact_gemm_run_part(gemm->handle(), &args, part, parts);
    });
  } else {
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    set(&args);
    args.batch = out.size(0);
    std::copy_n(x_sizes.begin() + 1, 2, args.input);
    std::copy_n(sizes.begin() + 1, 2, args.output);
    RunParts(WorkOf(args.batch), [&](int32_t part, int32_t parts) {
      return intact_conv_run_part(std::get<Conv>(*plan).handle(), &args, part, parts);
    });
  }
}

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
  Layer::Key key;
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
  step->work = {is_conv ? step->sizes[1] * step->sizes[2] : 1, weights[0], 1};
  for (size_t i = 1; i < weights.size(); ++i) step->work.depth *= weights[i];
  step->type = parameters.type;
  step->scale = static_cast<float>(parameters.scale);
  step->q = q;
  step->is_sum = parameters.is_sum;
  step->residual_type = parameters.residual_type;
  return step;
}

}  // namespace intact::pytorch
