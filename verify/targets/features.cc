#include "verify/targets/features.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <intact/target.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "verify/problem/fields.h"

namespace intact::verify {
namespace {

constexpr auto kNames = [] {
  std::array<std::string_view, INTACT_TARGET_FEATURES> names;
  names[INTACT_TARGET_A_U8] = "u8 activations";
  names[INTACT_TARGET_A_S8] = "s8 activations";
  names[INTACT_TARGET_B_S8] = "s8 weights";
  names[INTACT_TARGET_B_U8] = "u8 weights";
  names[INTACT_TARGET_C_S32] = "s32 outputs";
  names[INTACT_TARGET_C_F32] = "f32 outputs";
  names[INTACT_TARGET_C_U8] = "u8 outputs";
  names[INTACT_TARGET_C_S8] = "s8 outputs";
  names[INTACT_TARGET_C_BF16] = "bf16 outputs";
  names[INTACT_TARGET_A_ZERO_POINT] = "a zero point of activations";
  names[INTACT_TARGET_B_ZERO_POINT] = "a zero point of weights";
  names[INTACT_TARGET_B_ZERO_POINTS] = "zero points of columns";
  names[INTACT_TARGET_C_ZERO_POINT] = "a zero point of outputs";
  names[INTACT_TARGET_BIAS_S32] = "an s32 bias";
  names[INTACT_TARGET_BIAS_F32] = "an f32 bias";
  names[INTACT_TARGET_CHANNEL_SCALES] = "scales of columns";
  names[INTACT_TARGET_RELU] = "ReLU";
  names[INTACT_TARGET_CLAMP] = "a clamp";
  names[INTACT_TARGET_RESIDUAL] = "a residual";
  names[INTACT_TARGET_STRIDES] = "strides";
  names[INTACT_TARGET_B_LAYOUTS] = "layouts of B";
  names[INTACT_TARGET_RUNTIME_B] = "runtime B";
  names[INTACT_TARGET_BATCH] = "batches";
  names[INTACT_TARGET_ROW_QUANTIZATION] = "a quantization of each row";
  names[INTACT_TARGET_DYNAMIC_ROWS] = "dynamic quantization of rows";
  names[INTACT_TARGET_DYNAMIC_TENSOR] = "dynamic quantization of tensors";
  names[INTACT_TARGET_THREADS] = "threads";
  names[INTACT_TARGET_CONV_1D] = "1-D convolutions";
  names[INTACT_TARGET_CONV_2D] = "2-D convolutions";
  names[INTACT_TARGET_CONV_3D] = "3-D convolutions";
  names[INTACT_TARGET_CONV_GROUPS] = "groups";
  names[INTACT_TARGET_CONV_DEPTHWISE] = "depthwise convolutions";
  names[INTACT_TARGET_CONV_PADDING] = "padding";
  names[INTACT_TARGET_CONV_PADDING_ENDS] = "padding that differs at the ends";
  names[INTACT_TARGET_CONV_STRIDE] = "strides of convolutions";
  names[INTACT_TARGET_CONV_DILATION] = "dilation";
  names[INTACT_TARGET_CONV_TRANSPOSED] = "transposed convolutions";
  names[INTACT_TARGET_GEMM] = "GEMMs";
  names[INTACT_TARGET_BATCH_POINTERS] = "batches with item pointers";
  names[INTACT_TARGET_RESIDUAL_IN_PLACE] = "a residual in place";
  names[INTACT_TARGET_C_F16] = "f16 outputs";
  names[INTACT_TARGET_DYNAMIC_F16] = "dynamic quantization of f16 numbers";
  names[INTACT_TARGET_DYNAMIC_NAN] = "dynamic quantization of NaNs and infinities";
  names[INTACT_TARGET_FIXED_POINT] = "fixed-point multipliers";
  names[INTACT_TARGET_LOOKUP_TABLE] = "a lookup table";
  names[INTACT_TARGET_OVERFLOW_WRAPS] = "sums that wrap";
  names[INTACT_TARGET_SCALE_ZERO] = "a scale of 0";
  names[INTACT_TARGET_EMPTY] = "empty runs";
  names[INTACT_TARGET_TENSOR_QUANTIZATION] = "a quantization of the tensor per run";
  names[INTACT_TARGET_A_TRANSPOSED] = "a transposed A";
  names[INTACT_TARGET_ITEM_COLUMNS] = "per-column values of items";
  names[INTACT_TARGET_GROUPED] = "grouped weights";
  names[INTACT_TARGET_B_U4] = "u4 weights";
  names[INTACT_TARGET_B_S4] = "s4 weights";
  names[INTACT_TARGET_EXPERTS] = "several experts";
  names[INTACT_TARGET_B_MINIMUMS] = "minimums of weights";
  return names;
}();
static_assert(std::ranges::none_of(kNames, &std::string_view::empty));

// Gathers bits.
class Features {
 public:
  void AddIf(bool is_needed, intact_target_feature feature) {
    if (is_needed) bits_ |= INTACT_TARGET_BIT(feature);
  }
  uint64_t bits() const { return bits_; }

 private:
  uint64_t bits_ = 0;
};

// In the order of core::kOutputTypes.
constexpr std::array kOutputFeatures = {INTACT_TARGET_C_S32, INTACT_TARGET_C_F32,  INTACT_TARGET_C_U8,
                                        INTACT_TARGET_C_S8,  INTACT_TARGET_C_BF16, INTACT_TARGET_C_F16};
static_assert(kOutputFeatures.size() == core::kOutputTypes.size());

intact_target_feature OutputFeature(intact_type type) {
  const auto place = std::ranges::find(core::kOutputTypes, type) - core::kOutputTypes.begin();
  return kOutputFeatures.at(static_cast<size_t>(place));
}

bool HasZero(std::span<const float> values) { return std::ranges::find(values, 0.0f) != values.end(); }

bool HasNan(std::span<const float> values) {
  return std::ranges::any_of(values, [](float value) { return std::isnan(value); });
}

bool HasNonZero(std::span<const int32_t> values) {
  return std::ranges::any_of(values, [](int32_t value) { return value != 0; });
}

uint64_t LinearFeatures(const reference::Linear& operation, const RunOptions& options) {
  Features features;
  features.AddIf(true, operation.a_type == INTACT_S8 ? INTACT_TARGET_A_S8 : INTACT_TARGET_A_U8);
  features.AddIf(true, operation.b_type == INTACT_U8 ? INTACT_TARGET_B_U8 : INTACT_TARGET_B_S8);
  features.AddIf(true, OutputFeature(operation.c_type));
  features.AddIf(operation.a_zero_point != 0, INTACT_TARGET_A_ZERO_POINT);
  const bool has_zero_points = HasNonZero(operation.b_zero_points);
  const bool is_per_tensor = operation.b_zero_points.size() == 1;
  features.AddIf(has_zero_points && is_per_tensor, INTACT_TARGET_B_ZERO_POINT);
  features.AddIf(has_zero_points && !is_per_tensor, INTACT_TARGET_B_ZERO_POINTS);
  features.AddIf(operation.c_zero_point != 0, INTACT_TARGET_C_ZERO_POINT);
  features.AddIf(!operation.bias_s32.empty(), INTACT_TARGET_BIAS_S32);
  features.AddIf(!operation.bias_f32.empty(), INTACT_TARGET_BIAS_F32);
  features.AddIf(operation.scales.size() > 1 || operation.shifts.size() > 1, INTACT_TARGET_CHANNEL_SCALES);
  features.AddIf(!operation.shifts.empty(), INTACT_TARGET_FIXED_POINT);
  features.AddIf(!operation.lookup_table.empty(), INTACT_TARGET_LOOKUP_TABLE);
  features.AddIf(operation.overflow == INTACT_OVERFLOW_WRAPS, INTACT_TARGET_OVERFLOW_WRAPS);
  features.AddIf(HasZero(operation.scales) || HasZero(operation.a_scales), INTACT_TARGET_SCALE_ZERO);
  features.AddIf(operation.post_ops.Has<core::Relu>(), INTACT_TARGET_RELU);
  features.AddIf(operation.post_ops.Has<core::Clamp>(), INTACT_TARGET_CLAMP);
  const bool has_residual = operation.HasResidual();
  features.AddIf(has_residual, INTACT_TARGET_RESIDUAL);
  features.AddIf(has_residual && options.in_place, INTACT_TARGET_RESIDUAL_IN_PLACE);
  features.AddIf(options.a_pad != 0 || options.c_pad != 0 || (has_residual && options.res_pad != 0),
                 INTACT_TARGET_STRIDES);
  features.AddIf(options.threads != 1, INTACT_TARGET_THREADS);
  const intact_quantization quantization = operation.a_quantization;
  features.AddIf(quantization == INTACT_QUANTIZATION_ROWS, INTACT_TARGET_ROW_QUANTIZATION);
  features.AddIf(quantization == INTACT_QUANTIZATION_TENSOR, INTACT_TARGET_TENSOR_QUANTIZATION);
  features.AddIf(quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS, INTACT_TARGET_DYNAMIC_ROWS);
  features.AddIf(quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR, INTACT_TARGET_DYNAMIC_TENSOR);
  features.AddIf(operation.a_source_type == INTACT_F16, INTACT_TARGET_DYNAMIC_F16);
  features.AddIf(HasNan(operation.a_scales), INTACT_TARGET_DYNAMIC_NAN);
  return features.bits();
}

uint64_t ShapeFeatures(const reference::Gemm& gemm, const RunOptions& options) {
  Features features;
  features.AddIf(true, INTACT_TARGET_GEMM);
  features.AddIf(gemm.rows() == 0, INTACT_TARGET_EMPTY);
  features.AddIf(options.b_by_columns || options.b_pad != 0, INTACT_TARGET_B_LAYOUTS);
  features.AddIf(gemm.has_runtime_b, INTACT_TARGET_RUNTIME_B);
  features.AddIf(HasNonZero(gemm.item_zero_points), INTACT_TARGET_B_ZERO_POINTS);
  features.AddIf(!gemm.item_scales.empty(), INTACT_TARGET_CHANNEL_SCALES);
  features.AddIf(HasZero(gemm.item_scales), INTACT_TARGET_SCALE_ZERO);
  features.AddIf(
      std::max(gemm.item_scales.size(), gemm.item_zero_points.size()) > static_cast<size_t>(gemm.batch),
      INTACT_TARGET_ITEM_COLUMNS);
  features.AddIf(options.a_by_columns, INTACT_TARGET_A_TRANSPOSED);
  features.AddIf(options.item_pointers, INTACT_TARGET_BATCH_POINTERS);  // a batch of one item needs it too
  features.AddIf(gemm.batch > 1 && !options.item_pointers, INTACT_TARGET_BATCH);
  return features.bits();
}

uint64_t ShapeFeatures(const reference::Conv& conv, const RunOptions& /*options*/) {
  const reference::ConvGeometry& geometry = conv.geometry;
  Features features;
  constexpr std::array kDims = {INTACT_TARGET_CONV_1D, INTACT_TARGET_CONV_2D, INTACT_TARGET_CONV_3D};
  features.AddIf(true, kDims.at(static_cast<size_t>(geometry.dims) - 1));
  features.AddIf(geometry.batch == 0, INTACT_TARGET_EMPTY);
  if (geometry.groups > 1) {
    features.AddIf(true,
                   geometry.GroupInputs() == 1 ? INTACT_TARGET_CONV_DEPTHWISE : INTACT_TARGET_CONV_GROUPS);
  }
  features.AddIf(geometry.IsTransposed(), INTACT_TARGET_CONV_TRANSPOSED);
  for (const reference::Axis& axis : geometry.axes) {
    features.AddIf(axis.pad_begin != 0 || axis.pad_end != 0, INTACT_TARGET_CONV_PADDING);
    features.AddIf(axis.pad_begin != axis.pad_end, INTACT_TARGET_CONV_PADDING_ENDS);
    features.AddIf(axis.stride != 1, INTACT_TARGET_CONV_STRIDE);
    features.AddIf(axis.dilation != 1, INTACT_TARGET_CONV_DILATION);
  }
  return features.bits();
}

intact_target_feature WeightFeature(intact_type type) {
  switch (type) {
    case INTACT_S8:
      return INTACT_TARGET_B_S8;
    case INTACT_S4:
      return INTACT_TARGET_B_S4;
    case INTACT_U4:
      return INTACT_TARGET_B_U4;
    default:
      return INTACT_TARGET_B_U8;
  }
}

uint64_t GroupedFeatures(const reference::Grouped& grouped, const RunOptions& options) {
  Features features;
  const bool is_dynamic = grouped.a_source_type != INTACT_TYPE_NONE;
  features.AddIf(true, INTACT_TARGET_GROUPED);
  features.AddIf(true, grouped.a_type == INTACT_S8 ? INTACT_TARGET_A_S8 : INTACT_TARGET_A_U8);
  features.AddIf(true, WeightFeature(grouped.b_type));
  features.AddIf(true, OutputFeature(grouped.c_type));
  features.AddIf(true, is_dynamic ? INTACT_TARGET_DYNAMIC_ROWS : INTACT_TARGET_ROW_QUANTIZATION);
  features.AddIf(grouped.a_source_type == INTACT_F16, INTACT_TARGET_DYNAMIC_F16);
  features.AddIf(HasNan(grouped.a_scales), INTACT_TARGET_DYNAMIC_NAN);
  features.AddIf(HasNonZero(grouped.a_zero_points), INTACT_TARGET_A_ZERO_POINT);
  features.AddIf(grouped.has_b_zero_points, INTACT_TARGET_B_ZERO_POINTS);
  features.AddIf(grouped.has_b_minimums, INTACT_TARGET_B_MINIMUMS);
  features.AddIf(!grouped.bias_f32.empty(), INTACT_TARGET_BIAS_F32);
  features.AddIf(grouped.post_ops.Has<core::Relu>(), INTACT_TARGET_RELU);
  features.AddIf(grouped.post_ops.Has<core::Clamp>(), INTACT_TARGET_CLAMP);
  bool has_zero_scale = HasZero(grouped.a_scales);
  for (int64_t i = 0; i < grouped.columns(); ++i) {
    for (int64_t g = 0; g < grouped.groups(); ++g) has_zero_scale |= grouped.Scale(i, g) == 0;
  }
  features.AddIf(has_zero_scale, INTACT_TARGET_SCALE_ZERO);
  features.AddIf(grouped.experts > 1, INTACT_TARGET_EXPERTS);
  features.AddIf(grouped.m == 0, INTACT_TARGET_EMPTY);
  Problem settings;
  settings.grouped.emplace();
  static_cast<RunSettings&>(settings) = options;
  return features.bits() | NeedsOf(settings);
}

}  // namespace

uint64_t FeaturesOf(const reference::Operation& operation, const RunOptions& options) {
  if (const auto* grouped = std::get_if<reference::Grouped>(&operation)) {
    return GroupedFeatures(*grouped, options);
  }
  const auto of_shape = [&](const auto& one) { return ShapeFeatures(one, options); };
  return LinearFeatures(reference::LinearOf(operation), options) |
         reference::VisitLinear(of_shape, operation);
}

uint64_t OutputFeatures() {
  uint64_t bits = 0;
  for (const intact_target_feature feature : kOutputFeatures) bits |= INTACT_TARGET_BIT(feature);
  return bits;
}

std::string FeatureNames(uint64_t features) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if ((features >> i & 1) != 0) names.push_back(kNames.at(i));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace intact::verify
