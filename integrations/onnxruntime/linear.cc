#include "linear.h"

#include <intact/engines.h>

#include <algorithm>
#include <utility>

#include "node.h"

namespace intact::onnxruntime {
namespace {

// The cap on ISAs under which INTACT_SATURATING clamps: `cap` without VNNI.
constexpr int32_t WithoutVnni(int32_t cap) {
  const bool has_avx512 =
      cap != INTACT_ISA_AVX2 && cap != INTACT_ISA_AVX_VNNI && cap != INTACT_ISA_AVX_VNNI_INT8;
  return has_avx512 ? INTACT_ISA_AVX512 : INTACT_ISA_AVX2;
}

// The intact_engine_pairs of ONNX Runtime on a CPU with AVX2 and no VNNI.
int32_t PairsWithAvx2(const Product& product, intact_type a, intact_type b) {
  intact_engine_layer layer = INTACT_ENGINE_LAYER_INIT;
  layer.engine = "onnxruntime";
  layer.op = product.op;
  layer.a_type = a;
  layer.b_type = b;
  layer.depth = product.depth;
  layer.groups = product.groups;
  layer.group_inputs = product.group_inputs;
  layer.group_outputs = product.group_outputs;
  intact_engine_answer answer = INTACT_ENGINE_ANSWER_INIT;
  if (intact_engine_ask(&layer, &answer) != INTACT_OK)
    throw Refusal(std::string("like: ") + intact_last_error());
  if (answer.pairs == INTACT_ENGINE_PAIRS_HALVES)
    throw Refusal("like: ONNX Runtime pairs the depths of each half; no plan does so");
  return answer.pairs;
}

}  // namespace

void Context::RequireReproducible() const {
  if (!settings.is_reproducible)
    throw Refusal("operator: computes floats; expected quantized tensors, or the option reproducible");
}

Product ConvProduct(const char* op, const Shape& weights, int64_t groups) {
  // An invalid number of groups is refused when the plan is made.
  const int64_t outputs = groups > 0 ? std::max<int64_t>(weights.front() / groups, 1) : 1;
  return {op, CountOf(weights) / weights.front(), std::max<int64_t>(groups, 1), weights[1], outputs};
}

Linear::Linear(const Context& context, const Product& product, intact_type a, intact_type b, intact_type c) {
  const Settings& settings = context.settings;
  desc.mode = settings.mode;
  desc.max_isa = settings.max_isa;
  if (desc.mode == INTACT_SATURATING) desc.pairing = INTACT_PAIRING_FLATTENED;
  if (settings.is_like_avx2) {
    const int32_t pairs = PairsWithAvx2(product, context.is_moved_to_u8 ? INTACT_U8 : a,
                                        context.is_b_moved_to_u8 ? INTACT_U8 : b);
    if (pairs != INTACT_ENGINE_PAIRS_NONE) {
      desc.mode = INTACT_SATURATING;
      desc.max_isa = WithoutVnni(settings.max_isa);
      desc.pairing =
          pairs == INTACT_ENGINE_PAIRS_FLATTENED ? INTACT_PAIRING_FLATTENED : INTACT_PAIRING_WITHIN_TAP;
    }
  }
  desc.a_type = a;
  desc.b_type = b;
  desc.c_type = c;
}

void Linear::SetDynamicQuantization(std::vector<float> b_scales) {
  desc.a_quantization = INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  desc.a_source_type = INTACT_F32;
  scales = std::move(b_scales);
}

const intact_linear_desc* Linear::Complete() {
  if (std::ranges::any_of(b_zero_points, [](int32_t value) { return value != 0; })) {
    desc.b_zero_points = b_zero_points.data();
    desc.b_zero_point_count = static_cast<int64_t>(b_zero_points.size());
  }
  if (!bias_s32.empty()) desc.bias_s32 = bias_s32.data();
  if (!bias_f32.empty()) desc.bias_f32 = bias_f32.data();
  if (!scales.empty()) desc.scales = scales.data();
  desc.scale_count = static_cast<int64_t>(scales.size());
  return &desc;
}

void RefuseUnlessOk(intact_status status) {
  if (status != INTACT_OK) throw Refusal(intact_last_error());
}

std::vector<float> OutputScales(float a_scale, std::vector<float> b_scales, std::optional<float> y_scale) {
  for (float& scale : b_scales) {
    scale = a_scale * scale;
    if (y_scale) scale /= *y_scale;
  }
  return b_scales;
}

void SetBias(const Node& node, const Context& context, size_t bias, size_t scale, int64_t columns,
             float y_scale, Linear& linear) {
  linear.bias_s32 = Bias<int32_t>(node, bias, INTACT_S32, columns);
  if (linear.bias_s32.empty() || !node.Has(scale) || context.settings.is_like_avx2) return;
  const auto scales = node.Scales(scale, columns);
  const auto zero_points = node.ZeroPoints(scale + 1, INTACT_S32, columns);
  const auto integers = std::exchange(linear.bias_s32, {});
  for (size_t i = 0; i < integers.size(); ++i) {
    const double value = static_cast<double>(integers[i]) - zero_points[i % zero_points.size()];
    linear.bias_f32.push_back(static_cast<float>(value * scales[i % scales.size()] / y_scale));
  }
}

Ort::ConstValue ElementOf(const Run& run, size_t input, const char* name) {
  const auto value = run.Input(input);
  const size_t count = value.GetTensorTypeAndShapeInfo().GetElementCount();
  if (count != 1)
    throw std::invalid_argument(std::string(name) + ": has " + std::to_string(count) + " values; expected 1");
  return value;
}

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

Linear QLinear(const Node& node, const Context& context, const Product& product, intact_type b,
               int64_t columns) {
  const intact_type a = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type y = node.OutputType({INTACT_U8, INTACT_S8});
  Linear linear(context, product, a, b, y);
  linear.desc.a_zero_point = node.ZeroPoint(2, a);
  linear.desc.c_zero_point = node.ZeroPoint(7, y);
  linear.b_zero_points = node.ZeroPoints(5, b, columns);
  linear.scales = OutputScales(node.Scale(1), node.Scales(4, columns), node.Scale(6));
  return linear;
}

}  // namespace intact::onnxruntime
