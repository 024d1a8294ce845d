#include "linear.h"

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

}  // namespace

Linear::Linear(const Context& context, Pairs pairs, intact_type a, intact_type b, intact_type c) {
  const Settings& settings = context.settings;
  desc.mode = settings.mode;
  desc.max_isa = settings.max_isa;
  const bool is_u8s8 =
      (a == INTACT_U8 || context.is_moved_to_u8) && b == INTACT_S8 && !context.is_b_moved_to_u8;
  if (settings.is_like_avx2 && pairs == Pairs::kClamped && is_u8s8) {
    desc.mode = INTACT_SATURATING;
    desc.max_isa = WithoutVnni(settings.max_isa);
  }
  if (desc.mode == INTACT_SATURATING) desc.pairing = INTACT_PAIRING_FLATTENED;  // ONNX Runtime's
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

}  // namespace intact::onnxruntime
