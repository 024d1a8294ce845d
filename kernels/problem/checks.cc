#include "kernels/problem/checks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"

namespace intact::kernels {
namespace {

constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxWeights = int64_t{1} << 40;

std::string Got(const char* field, int64_t value) {
  return std::string(field) + " is " + std::to_string(value);
}

std::string NameOf(intact_type type) {
  std::string name = "INTACT_";
  for (const char letter : core::NameOf(type)) name += static_cast<char>(std::toupper(letter));
  return name;
}

struct Limits {
  int32_t min, max;
};

// The range of u8 or s8; 0 to 0 for other types.
Limits TypeLimits(int32_t type) {
  const auto known = static_cast<intact_type>(type);
  return {core::LowestOf(known), core::HighestOf(known)};
}

Error CheckTypes(const intact_linear_desc& desc) {
  const int32_t a_type = desc.a_type;
  const int64_t b_type = desc.b_type;
  const int64_t c_type = desc.c_type;
  const int64_t mode = desc.mode;
  if (!IsOneOf(a_type, {INTACT_U8, INTACT_S8})) {
    return InvalidArgument(Got("a_type", a_type) + "; expected INTACT_U8 or INTACT_S8");
  }
  if (!IsOneOf(b_type, {INTACT_U8, INTACT_S8})) {
    return InvalidArgument(Got("b_type", b_type) + "; expected INTACT_U8 or INTACT_S8");
  }
  if (!IsOneOf(c_type, core::kOutputTypes)) {
    return InvalidArgument(Got("c_type", c_type) + "; expected " + NamesOf(core::kOutputTypes));
  }
  if (!IsOneOf(mode, {INTACT_EXACT, INTACT_SATURATING})) {
    return InvalidArgument(Got("mode", mode) + "; expected INTACT_EXACT or INTACT_SATURATING");
  }
  return {};
}

Error CheckShape(const intact_gemm_desc& desc) {
  if (desc.n < 1 || desc.n > kMaxDimension)
    return InvalidArgument(Got("n", desc.n) + "; expected 1 to 2147483647");
  if (desc.k < 1 || desc.k > kMaxDimension)
    return InvalidArgument(Got("k", desc.k) + "; expected 1 to 2147483647");
  if (desc.n * desc.k > kMaxWeights)
    return InvalidArgument("n·k is " + std::to_string(desc.n * desc.k) + "; expected at most 2^40");
  if (desc.b_stride_k < 0 || desc.b_stride_n < 0 || desc.b_stride_k > kMaxWeights ||
      desc.b_stride_n > kMaxWeights) {
    return InvalidArgument("b_stride_k is " + std::to_string(desc.b_stride_k) + " and b_stride_n is " +
                           std::to_string(desc.b_stride_n) + "; expected 0 to 2^40");
  }
  // Each product is below 2^71, and compared as a quotient.
  const int64_t stride_k = desc.b_stride_k == 0 ? desc.n : desc.b_stride_k;
  const int64_t stride_n = desc.b_stride_n == 0 ? 1 : desc.b_stride_n;
  const auto steps_over = [](int64_t stride, int64_t count, int64_t inner) {
    return count == 1 || (stride - 1) / (count - 1) >= inner;
  };
  if (!steps_over(stride_k, desc.n, stride_n) && !steps_over(stride_n, desc.k, stride_k)) {
    return InvalidArgument("b_stride_k is " + std::to_string(stride_k) + " and b_stride_n is " +
                           std::to_string(stride_n) +
                           ", so elements of b overlap; expected b_stride_k > (n − 1)·" +
                           "b_stride_n (K×N) or b_stride_n > (k − 1)·b_stride_k (N×K: 1 and k)");
  }
  if (!IsOneOf(desc.runtime_b, {0, 1})) {
    return InvalidArgument(Got("runtime_b", desc.runtime_b) + "; expected 0 or 1");
  }
  if (desc.reserved != 0) return InvalidArgument(Got("reserved", desc.reserved) + "; expected 0");
  if (desc.usual_m < 0 || desc.usual_m > kMaxDimension) {
    return InvalidArgument(Got("usual_m", desc.usual_m) + "; expected 0 to 2147483647");
  }
  return {};
}

std::string RangeText(Limits limits) {
  return std::to_string(limits.min) + " to " + std::to_string(limits.max);
}

// The activation range; the whole type if a_min and a_max are 0.
Limits ActivationLimits(const intact_linear_desc& desc) {
  return desc.a_min == 0 && desc.a_max == 0 ? TypeLimits(desc.a_type) : Limits{desc.a_min, desc.a_max};
}

Error CheckRange(const intact_linear_desc& desc) {
  const Limits type = TypeLimits(desc.a_type);
  const Limits range = ActivationLimits(desc);
  if (range.min > range.max || range.min < type.min || range.max > type.max) {
    return InvalidArgument("a_min is " + std::to_string(desc.a_min) + " and a_max is " +
                           std::to_string(desc.a_max) + "; expected a range within " + RangeText(type));
  }
  const int64_t range_check = desc.range_check;
  if (!IsOneOf(range_check, {INTACT_RANGE_CHECKED, INTACT_RANGE_UNCHECKED})) {
    return InvalidArgument(Got("range_check", range_check) + "; expected an intact_range_check");
  }
  return {};
}

Error CheckQuantization(const intact_linear_desc& desc) {
  const int64_t quantization = desc.a_quantization;
  const int64_t source = desc.a_source_type;
  const bool is_dynamic =
      IsOneOf(quantization, {INTACT_QUANTIZATION_DYNAMIC_ROWS, INTACT_QUANTIZATION_DYNAMIC_TENSOR});
  if (!is_dynamic && !IsOneOf(quantization, {INTACT_QUANTIZATION_STATIC, INTACT_QUANTIZATION_ROWS,
                                             INTACT_QUANTIZATION_TENSOR})) {
    return InvalidArgument(Got("a_quantization", quantization) + "; expected an intact_quantization");
  }
  if (is_dynamic && !IsOneOf(source, core::kSourceTypes)) {
    return InvalidArgument(Got("a_source_type", source) + "; expected " + NamesOf(core::kSourceTypes) +
                           " with a dynamic a_quantization");
  }
  if (!is_dynamic && source != INTACT_TYPE_NONE) {
    return InvalidArgument(Got("a_source_type", source) +
                           "; expected INTACT_TYPE_NONE, because a_quantization is not dynamic");
  }
  if (quantization != INTACT_QUANTIZATION_STATIC && desc.a_zero_point != 0) {
    return InvalidArgument(Got("a_zero_point", desc.a_zero_point) +
                           "; expected 0, because each run has its own (a_quantization)");
  }
  if (!is_dynamic) return {};
  if (desc.c_type == INTACT_S32) {
    return InvalidArgument("c_type is INTACT_S32 with a dynamic a_quantization; expected a type with scales");
  }
  if (desc.a_min != 0 || desc.a_max != 0) {
    return InvalidArgument("a_min is " + std::to_string(desc.a_min) + " and a_max is " +
                           std::to_string(desc.a_max) + "; expected 0 with a dynamic a_quantization");
  }
  return {};
}

Error CheckZeroPoints(const intact_linear_desc& desc) {
  const Limits a = ActivationLimits(desc);
  const bool is_static = desc.a_quantization == INTACT_QUANTIZATION_STATIC;
  if (is_static && (desc.a_zero_point < a.min || desc.a_zero_point > a.max)) {
    return InvalidArgument(Got("a_zero_point", desc.a_zero_point) + "; expected " + RangeText(a));
  }
  const Limits c = TypeLimits(desc.c_type);
  if (desc.c_zero_point < c.min || desc.c_zero_point > c.max) {
    return InvalidArgument(Got("c_zero_point", desc.c_zero_point) + "; expected " + RangeText(c) +
                           " for this c_type");
  }
  return {};
}

Error CheckWeightZeroPoints(const intact_linear_desc& desc, int64_t n) {
  if (desc.b_zero_points == nullptr && desc.b_zero_point_count == 0) return {};
  if (desc.b_zero_points == nullptr) {
    return InvalidArgument("b_zero_points is NULL and " + Got("b_zero_point_count", desc.b_zero_point_count) +
                           "; expected 1 or n values, or a count of 0");
  }
  if (desc.b_zero_point_count != 1 && desc.b_zero_point_count != n) {
    return InvalidArgument(Got("b_zero_point_count", desc.b_zero_point_count) +
                           "; expected 1 or n = " + std::to_string(n));
  }
  const Limits b = TypeLimits(desc.b_type);
  for (int64_t i = 0; i < desc.b_zero_point_count; ++i) {
    if (desc.b_zero_points[i] < b.min || desc.b_zero_points[i] > b.max) {
      return InvalidArgument("b_zero_points[" + std::to_string(i) + "] is " +
                             std::to_string(desc.b_zero_points[i]) + "; expected " + RangeText(b));
    }
  }
  return {};
}

// Checks that no other field contradicts a fixed_point.
Error CheckAlone(const intact_linear_desc& desc) {
  if (!core::IsInt8(static_cast<intact_type>(desc.c_type))) {
    return InvalidArgument(Got("c_type", desc.c_type) +
                           " with a fixed_point; expected INTACT_U8 or INTACT_S8");
  }
  if (desc.scales != nullptr) return InvalidArgument("scales are given with a fixed_point; expected NULL");
  if (desc.bias_f32 != nullptr) return InvalidArgument("bias_f32 is given with a fixed_point; expected NULL");
  if (desc.a_quantization != INTACT_QUANTIZATION_STATIC) {
    return InvalidArgument(Got("a_quantization", desc.a_quantization) +
                           " with a fixed_point; expected INTACT_QUANTIZATION_STATIC");
  }
  if (desc.residual_type != INTACT_TYPE_NONE) {
    return InvalidArgument(Got("residual_type", desc.residual_type) +
                           " with a fixed_point; expected INTACT_TYPE_NONE");
  }
  return {};
}

Error CheckScaleCount(const intact_linear_desc& desc, int64_t n) {
  if (desc.scale_count == 1 || desc.scale_count == n) return {};
  return InvalidArgument(Got("scale_count", desc.scale_count) + "; expected 1 or n = " + std::to_string(n));
}

Error CheckFixedPoint(const intact_linear_desc& desc, int64_t n) {
  const int64_t fixed_point = desc.fixed_point;
  if (!IsOneOf(fixed_point, {INTACT_FIXED_POINT_HALF_AWAY, INTACT_FIXED_POINT_HALF_UP})) {
    return InvalidArgument(Got("fixed_point", fixed_point) + "; expected an intact_fixed_point");
  }
  RETURN_IF_ERROR(CheckAlone(desc));
  if (desc.shifts == nullptr) {
    return InvalidArgument("shifts is NULL with a fixed_point; expected 1 or n values");
  }
  RETURN_IF_ERROR(CheckScaleCount(desc, n));
  for (int64_t i = 0; i < desc.scale_count; ++i) {
    if (desc.shifts[i] < -31 || desc.shifts[i] > 30) {
      return Unexpected("shifts[" + std::to_string(i) + "]", desc.shifts[i], "-31 to 30");
    }
    if (desc.multipliers == nullptr || desc.multipliers[i] == 0 || desc.multipliers[i] >= 1 << 30) continue;
    return Unexpected("multipliers[" + std::to_string(i) + "]", desc.multipliers[i],
                      "0 or 1073741824 to 2147483647");
  }
  return {};
}

Error CheckScales(const intact_linear_desc& desc, int64_t n) {
  if (desc.fixed_point != INTACT_FIXED_POINT_NONE) return CheckFixedPoint(desc, n);
  if (desc.multipliers != nullptr || desc.shifts != nullptr) {
    return InvalidArgument(
        "multipliers or shifts are given, and fixed_point is INTACT_FIXED_POINT_NONE; "
        "expected NULL");
  }
  if (desc.c_type == INTACT_S32) {
    if (desc.scales != nullptr || desc.scale_count != 0)
      return InvalidArgument(
          "scales are given for s32 output, which never passes through float; expected NULL and scale_count "
          "0");
    if (desc.bias_f32 != nullptr)
      return InvalidArgument(
          "bias_f32 is given for s32 output, which never passes through float; expected NULL");
    if (desc.activation != INTACT_ACTIVATION_NONE)
      return InvalidArgument("activation is given for s32 output; expected INTACT_ACTIVATION_NONE");
    return {};
  }
  if (desc.scales == nullptr)
    return InvalidArgument("scales is NULL; expected 1 or n values for this c_type");
  RETURN_IF_ERROR(CheckScaleCount(desc, n));
  for (int64_t i = 0; i < desc.scale_count; ++i) {
    RETURN_IF_ERROR(CheckScale("scales", i, desc.scales[i]));
  }
  for (int64_t i = 0; desc.bias_f32 != nullptr && i < n; ++i) {
    if (!IsFinite(desc.bias_f32[i])) {
      return UnexpectedNumber("bias_f32[" + std::to_string(i) + "]", desc.bias_f32[i], "a finite value");
    }
  }
  return {};
}

Error CheckActivation(const intact_linear_desc& desc) {
  const int64_t activation = desc.activation;
  if (!IsOneOf(activation, {INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU, INTACT_ACTIVATION_CLAMP})) {
    return InvalidArgument(Got("activation", activation) + "; expected an intact_activation");
  }
  // Not "min > max": a NaN must fail too.
  if (desc.activation == INTACT_ACTIVATION_CLAMP && !(desc.clamp_min <= desc.clamp_max)) {
    return InvalidArgument("clamp_min is " + Text(desc.clamp_min) + " and clamp_max is " +
                           Text(desc.clamp_max) + "; expected clamp_min ≤ clamp_max");
  }
  return {};
}

Error CheckResidualFields(const intact_linear_desc& desc) {
  const int64_t type = desc.residual_type;
  if (!IsOneOf(type, {INTACT_TYPE_NONE, INTACT_U8, INTACT_S8, INTACT_F32})) {
    return InvalidArgument(Got("residual_type", type) +
                           "; expected INTACT_TYPE_NONE, INTACT_U8, INTACT_S8 or INTACT_F32");
  }
  const bool has_residual = type != INTACT_TYPE_NONE;
  if (has_residual && desc.c_type == INTACT_S32) {
    return InvalidArgument(Got("residual_type", type) +
                           " with s32 output, which never passes through float; expected INTACT_TYPE_NONE");
  }
  const float scale = desc.residual_scale;
  if (has_residual ? !IsFiniteAndPositive(scale) : scale != 0.0f) {
    return UnexpectedNumber(
        "residual_scale", scale,
        has_residual ? "a finite value above 0" : "0, because residual_type is INTACT_TYPE_NONE");
  }
  const Limits limits = TypeLimits(desc.residual_type);
  if (desc.residual_zero_point < limits.min || desc.residual_zero_point > limits.max) {
    return InvalidArgument(Got("residual_zero_point", desc.residual_zero_point) + "; expected " +
                           RangeText(limits) + " for this residual_type");
  }
  return {};
}

// The activation's bounds, within the output type's range.
core::Clamp BoundsOf(const core::Linear& linear) {
  const float infinity = std::numeric_limits<float>::infinity();
  core::Clamp bounds{-infinity, infinity};
  if (linear.post_ops.Has<core::Relu>()) bounds.low = 0.0f;
  if (const auto* given = linear.post_ops.Find<core::Clamp>()) bounds = *given;
  if (!core::IsInt8(linear.c_type)) return bounds;
  const Limits limits = TypeLimits(linear.c_type);
  const auto type_low = static_cast<float>(limits.min - linear.c_zero_point);
  const auto type_high = static_cast<float>(limits.max - linear.c_zero_point);
  const auto clamp = [&](float bound) {
    return bound < type_low ? type_low : bound > type_high ? type_high : bound;
  };
  return {clamp(bounds.low), clamp(bounds.high)};
}

// The output of checked numbers. Normalizes the post-operations.
Requantization TakeOutput(core::Linear* linear) {
  const core::Clamp bounds = BoundsOf(*linear);
  linear->post_ops = linear->post_ops.WithoutActivation();
  if (linear->c_type != INTACT_S32) linear->post_ops.Add(bounds);
  Requantization output{linear->c_type, {bounds.low, bounds.high, linear->c_zero_point}, {}, {}};
  if (const auto* residual = linear->post_ops.Find<core::AddResidual>()) {
    output.residual_type = residual->type;
    output.residual = {residual->scale, residual->zero_point};
  }
  return output;
}

// The values of `n` columns from `count` values at `from`: one for all columns, or one for each.
template <class T>
std::vector<T> ReadColumns(const T* from, int64_t count, int64_t n) {
  if (from == nullptr) return {};
  std::vector<T> values;
  if (count == 1) {
    values.assign(static_cast<size_t>(n), *from);
  } else {
    values.assign(from, from + n);
  }
  PadColumns(&values);
  return values;
}

// Empty if all are 0 as kernels see them.
std::vector<int32_t> ReadWeightZeroPoints(const intact_linear_desc& desc, int64_t n) {
  const int32_t shift = WeightShift(static_cast<intact_type>(desc.b_type));
  std::vector<int32_t> values = ReadColumns(desc.b_zero_points, desc.b_zero_point_count, n);
  if (values.empty() && shift != 0) {
    values.assign(static_cast<size_t>(n), 0);
    PadColumns(&values);
  }
  for (int32_t& value : values) value -= shift;
  const bool are_zero = std::all_of(values.begin(), values.end(), [](int32_t value) { return value == 0; });
  return are_zero ? std::vector<int32_t>() : values;
}

}  // namespace

Error InvalidArgument(const std::string& message) { return {INTACT_INVALID_ARGUMENT, message}; }
Error Unsupported(const std::string& message) { return {INTACT_UNSUPPORTED, message}; }

namespace {

template <class Float>
std::string Shortest(Float value) {
  std::array<char, 32> text;  // the longest double takes 24
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// Checks what happens to sums in int16 (pairing) and beyond int32 (overflow).
Error CheckSums(const intact_linear_desc& desc) {
  if (!IsOneOf(desc.overflow, {INTACT_OVERFLOW_REFUSED, INTACT_OVERFLOW_WRAPS})) {
    return InvalidArgument(Got("overflow", desc.overflow) + "; expected an intact_overflow");
  }
  RETURN_IF_ERROR(CheckPairing(desc.pairing));
  if (desc.pairing != INTACT_PAIRING_WITHIN_TAP && desc.mode != INTACT_SATURATING) {
    return InvalidArgument(Got("pairing", desc.pairing) +
                           " in exact mode; expected 0, or the mode INTACT_SATURATING");
  }
  return {};
}

}  // namespace

std::string Text(float value) { return Shortest(value); }
std::string Text(double value) { return Shortest(value); }

// They test bits: under DAZ a comparison treats denormals as 0.
bool IsFinite(float value) { return (std::bit_cast<uint32_t>(value) & 0x7f800000u) != 0x7f800000u; }
bool IsFiniteAndPositive(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return bits > 0 && bits < 0x7f800000u;
}

Error CheckScale(const char* field, int64_t i, float scale) {
  if (IsFiniteAndPositive(scale) || std::bit_cast<uint32_t>(scale) << 1 == 0) return {};  // 0 of either sign
  return UnexpectedNumber(std::string(field) + "[" + std::to_string(i) + "]", scale,
                          "a finite value of at least 0");
}

std::string NamesOf(std::span<const intact_type> types) {
  std::string names;
  for (const intact_type& type : types) {
    names += &type == &types.front() ? "" : &type == &types.back() ? " or " : ", ";
    names += NameOf(type);
  }
  return names;
}

Error Unexpected(const std::string& field, int64_t value, const std::string& expected) {
  return InvalidArgument(field + " is " + std::to_string(value) + "; expected " + expected);
}

Error UnexpectedNumber(const std::string& field, float value, const std::string& expected) {
  return InvalidArgument(field + " is " + Text(value) + "; expected " + expected);
}

Result<core::IsaSet> PermittedIsas(int32_t max_isa) {
  const std::optional<core::Isa> cap = core::IsaOf(max_isa);
  if (max_isa != INTACT_ISA_ANY && !cap) return Unexpected("max_isa", max_isa, "an intact_isa");
  return jit::PermittedIsas(cap);
}

Error CheckClampBounds(const intact_linear_desc& desc) {
  const auto is_unset = [](float bound) { return std::bit_cast<uint32_t>(bound) == 0; };
  if (desc.activation != INTACT_ACTIVATION_CLAMP || !is_unset(desc.clamp_min) || !is_unset(desc.clamp_max))
    return {};
  return InvalidArgument("clamp_min and clamp_max are 0; expected the bounds of INTACT_ACTIVATION_CLAMP");
}

Result<LinearProblem> CheckLinear(const intact_linear_desc& desc, int64_t n) {
  RETURN_IF_ERROR(CheckTypes(desc));
  RETURN_IF_ERROR(CheckActivation(desc));
  RETURN_IF_ERROR(CheckScales(desc, n));
  RETURN_IF_ERROR(CheckRange(desc));
  RETURN_IF_ERROR(CheckQuantization(desc));
  RETURN_IF_ERROR(CheckZeroPoints(desc));
  RETURN_IF_ERROR(CheckWeightZeroPoints(desc, n));
  RETURN_IF_ERROR(CheckResidualFields(desc));
  RETURN_IF_ERROR(CheckSums(desc));
  if (desc.lookup_table != nullptr && !core::IsInt8(static_cast<intact_type>(desc.c_type))) {
    return InvalidArgument(Got("c_type", desc.c_type) +
                           " with a lookup_table; expected INTACT_U8 or INTACT_S8");
  }
  LinearProblem problem;
  static_cast<core::Linear&>(problem) = core::NumbersOf(desc);
  problem.n = n;
  const Limits range = ActivationLimits(desc);
  problem.range = {range.min + problem.a_shift(), range.max + problem.a_shift()};
  if (problem.range.IsFull()) problem.a_min = problem.a_max = 0;
  problem.output = TakeOutput(&problem);
  problem.b_zero_points = ReadWeightZeroPoints(desc, n);
  problem.bias_s32 = ReadColumns(desc.bias_s32, n, n);
  problem.bias_f32 = ReadColumns(desc.bias_f32, n, n);
  problem.scales = ReadColumns(desc.scales, desc.scale_count, n);
  problem.lookup_table = core::LookupTableOf(desc);
  problem.shifts = ReadColumns(desc.shifts, desc.scale_count, n);
  problem.multipliers = ReadColumns(desc.multipliers, desc.scale_count, n);
  return problem;
}

Result<LinearProblem> CheckConvLinear(const intact_linear_desc& desc, int64_t n) {
  if (IsOneOf(desc.a_quantization, {INTACT_QUANTIZATION_ROWS, INTACT_QUANTIZATION_DYNAMIC_ROWS})) {
    return Unsupported(Got("a_quantization", desc.a_quantization) +
                       "; expected STATIC, TENSOR or DYNAMIC_TENSOR for a convolution");
  }
  return CheckLinear(desc, n);
}

Result<WeightView> CheckGemm(const intact_gemm_desc& desc, const void* b) {
  RETURN_IF_ERROR(CheckShape(desc));
  if (desc.runtime_b != 0 && b != nullptr) {
    return InvalidArgument("b is given, and runtime_b is 1; expected NULL, because each run passes B");
  }
  if (desc.runtime_b == 0 && b == nullptr) return InvalidArgument("b is NULL");
  return WeightView{static_cast<const int8_t*>(b),
                    desc.k,
                    desc.n,
                    desc.b_stride_k == 0 ? desc.n : desc.b_stride_k,
                    desc.b_stride_n == 0 ? 1 : desc.b_stride_n,
                    0};
}

// ----- a run's arguments -----------------------------------------------------------------------------------

Error CheckPairing(int32_t pairing) {
  if (IsOneOf(pairing, {INTACT_PAIRING_WITHIN_TAP, INTACT_PAIRING_FLATTENED})) return {};
  return Unexpected("pairing", pairing, "an intact_pairing");
}

Error CheckRowsApart(const MemoryRows& c, const MemoryRows& other) {
  if (c.stride_bytes == other.stride_bytes) {
    const int64_t stride = c.stride_bytes;
    const auto distance = static_cast<int64_t>(other.begin() - c.begin());
    const int64_t ahead = (distance % stride + stride) % stride;
    if (ahead >= c.row_bytes && ahead + other.row_bytes <= stride) return {};
  }
  return InvalidArgument(std::string("c overlaps ") + other.name + "; expected separate buffers");
}

Error CheckResidual(const Requantization& output, int64_t columns, const OutputArguments& arguments) {
  const bool is_given = arguments.residual != nullptr;
  if (is_given != output.has_residual()) {
    return InvalidArgument(is_given ? "residual is given; expected NULL, because the plan has none"
                                    : "residual is NULL; expected a tensor of the plan's type");
  }
  const int64_t stride = arguments.residual_stride;
  if (!is_given || arguments.residual != arguments.c) return {};
  const int bytes = core::BytesOf(output.residual_type);
  if (bytes != core::BytesOf(output.c_type)) {
    return InvalidArgument("residual is c, whose elements have another size; expected a separate tensor of " +
                           std::to_string(bytes) + "-byte elements");
  }
  const auto or_dense = [&](int64_t given) { return given == 0 ? columns : given; };
  if (or_dense(stride) != or_dense(arguments.c_stride)) {
    return Unexpected("residual_stride", stride,
                      "c_stride, which is " + std::to_string(arguments.c_stride) + ", because residual is c");
  }
  return {};
}

Error CheckRowValues(const LinearProblem& problem, int64_t m, const int32_t* zero_points,
                     const float* scales) {
  const bool has_one = problem.a_quantization == INTACT_QUANTIZATION_TENSOR;
  const bool takes_values = has_one || problem.a_quantization == INTACT_QUANTIZATION_ROWS;
  const bool takes_scales = takes_values && problem.HasRowScales();
  if (zero_points != nullptr && !takes_values) {
    return InvalidArgument(
        "a_zero_points are given; expected NULL, because the plan's a_quantization is neither ROWS nor "
        "TENSOR");
  }
  if ((scales != nullptr) != takes_scales) {
    const std::string wanted = has_one ? "one value" : "a value for each row";
    return InvalidArgument(takes_scales ? "a_scales is NULL; expected " + wanted
                                        : "a_scales are given; expected NULL, because the plan takes none");
  }
  // A convolution's padding has the value of the zero point, so that must lie in the activation range.
  const Limits limits =
      has_one ? Limits{problem.range.low - problem.a_shift(), problem.range.high - problem.a_shift()}
              : TypeLimits(problem.a_type);
  if (has_one && zero_points == nullptr && (limits.min > 0 || limits.max < 0)) {
    return InvalidArgument("a_zero_points is NULL, so the zero point is 0; expected one from " +
                           RangeText(limits) + ", the activation range");
  }
  const int64_t values = has_one ? 1 : m;
  for (int64_t row = 0; zero_points != nullptr && row < values; ++row) {
    if (zero_points[row] < limits.min || zero_points[row] > limits.max) {
      return Unexpected("a_zero_points[" + std::to_string(row) + "]", zero_points[row], RangeText(limits));
    }
  }
  for (int64_t row = 0; takes_scales && row < values; ++row) {
    RETURN_IF_ERROR(CheckScale("a_scales", row, scales[row]));
  }
  return {};
}

}  // namespace intact::kernels
