// Everything that a user can get wrong in a GEMM descriptor is found here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "kernels/plans/gemm_plan.h"

namespace intact::kernels {
namespace {

constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxWeights = int64_t{1} << 40;

Error Invalid(const std::string& message) { return {INTACT_INVALID_ARGUMENT, message}; }

std::string Got(const char* field, int64_t value) {
  return std::string(field) + " is " + std::to_string(value);
}

// An enumeration's field as the caller left it: in C it may hold any integer, which C++ must not load as an
// enumeration.
template <class E>
int64_t Raw(const E& field) {
  std::underlying_type_t<E> value{};
  std::memcpy(&value, &field, sizeof(value));
  return value;
}

bool IsOneOf(int64_t value, std::initializer_list<int64_t> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

struct Limits {
  int32_t min, max;
};

Limits TypeLimits(intact_type type) { return type == INTACT_S8 ? Limits{-128, 127} : Limits{0, 255}; }

Error CheckTypes(const intact_gemm_desc& desc) {
  const int64_t a_type = Raw(desc.a_type);
  const int64_t b_type = Raw(desc.b_type);
  const int64_t c_type = Raw(desc.c_type);
  const int64_t mode = Raw(desc.mode);
  if (!IsOneOf(a_type, {INTACT_U8, INTACT_S8})) {
    return Invalid(Got("a_type", a_type) + "; expected INTACT_U8 or INTACT_S8");
  }
  if (!IsOneOf(b_type, {INTACT_U8, INTACT_S8})) {
    return Invalid(Got("b_type", b_type) + "; expected INTACT_U8 or INTACT_S8");
  }
  if (!IsOneOf(c_type, {INTACT_U8, INTACT_S8, INTACT_S32, INTACT_F32})) {
    return Invalid(Got("c_type", c_type) + "; expected INTACT_U8, INTACT_S8, INTACT_S32 or INTACT_F32");
  }
  if (!IsOneOf(mode, {INTACT_EXACT, INTACT_SATURATING})) {
    return Invalid(Got("mode", mode) + "; expected INTACT_EXACT or INTACT_SATURATING");
  }
  return {};
}

Error CheckShape(const intact_gemm_desc& desc) {
  if (desc.n < 1 || desc.n > kMaxDimension) return Invalid(Got("n", desc.n) + "; expected 1 to 2147483647");
  if (desc.k < 1 || desc.k > kMaxDimension) return Invalid(Got("k", desc.k) + "; expected 1 to 2147483647");
  if (desc.n * desc.k > kMaxWeights)
    return Invalid("n·k is " + std::to_string(desc.n * desc.k) + "; expected at most 2^40");
  if (desc.b_stride_k < 0 || desc.b_stride_n < 0 || desc.b_stride_k > kMaxWeights ||
      desc.b_stride_n > kMaxWeights) {
    return Invalid("b_stride_k is " + std::to_string(desc.b_stride_k) + " and b_stride_n is " +
                   std::to_string(desc.b_stride_n) + "; expected 0 to 2^40");
  }
  return {};
}

std::string Text(Limits limits) { return std::to_string(limits.min) + " to " + std::to_string(limits.max); }

// The declared range of activations; all of the type if none is.
Limits DeclaredLimits(const intact_gemm_desc& desc) {
  return desc.a_min == 0 && desc.a_max == 0 ? TypeLimits(desc.a_type) : Limits{desc.a_min, desc.a_max};
}

Error CheckRange(const intact_gemm_desc& desc) {
  const Limits type = TypeLimits(desc.a_type);
  const Limits declared = DeclaredLimits(desc);
  if (declared.min > declared.max || declared.min < type.min || declared.max > type.max) {
    return Invalid("a_min is " + std::to_string(desc.a_min) + " and a_max is " + std::to_string(desc.a_max) +
                   "; expected a range within " + Text(type));
  }
  const int64_t range_check = Raw(desc.range_check);
  if (!IsOneOf(range_check, {INTACT_RANGE_CHECKED, INTACT_RANGE_UNCHECKED})) {
    return Invalid(Got("range_check", range_check) + "; expected an intact_range_check");
  }
  return {};
}

Error CheckZeroPoints(const intact_gemm_desc& desc) {
  const Limits a = DeclaredLimits(desc);
  if (desc.a_zero_point < a.min || desc.a_zero_point > a.max) {
    return Invalid(Got("a_zero_point", desc.a_zero_point) + "; expected " + Text(a));
  }
  const bool is_8bit = IsOneOf(desc.c_type, {INTACT_U8, INTACT_S8});
  const Limits c = is_8bit ? TypeLimits(desc.c_type) : Limits{0, 0};
  if (desc.c_zero_point < c.min || desc.c_zero_point > c.max) {
    return Invalid(Got("c_zero_point", desc.c_zero_point) + "; expected " + Text(c) + " for this c_type");
  }
  return {};
}

Error CheckWeightZeroPoints(const intact_gemm_desc& desc) {
  if (desc.b_zero_points == nullptr && desc.b_zero_point_count == 0) return {};
  if (desc.b_zero_points == nullptr) {
    return Invalid("b_zero_points is NULL and " + Got("b_zero_point_count", desc.b_zero_point_count) +
                   "; expected 1 or n values, or a count of 0");
  }
  if (desc.b_zero_point_count != 1 && desc.b_zero_point_count != desc.n) {
    return Invalid(Got("b_zero_point_count", desc.b_zero_point_count) +
                   "; expected 1 or n = " + std::to_string(desc.n));
  }
  const Limits b = TypeLimits(desc.b_type);
  for (int64_t i = 0; i < desc.b_zero_point_count; ++i) {
    if (desc.b_zero_points[i] < b.min || desc.b_zero_points[i] > b.max) {
      return Invalid("b_zero_points[" + std::to_string(i) + "] is " + std::to_string(desc.b_zero_points[i]) +
                     "; expected " + Text(b));
    }
  }
  return {};
}

Error CheckScales(const intact_gemm_desc& desc) {
  if (desc.c_type == INTACT_S32) {
    if (desc.scales != nullptr || desc.scale_count != 0)
      return Invalid(
          "scales are given for s32 output, which never passes through float; expected NULL and scale_count "
          "0");
    if (desc.bias_f32 != nullptr)
      return Invalid("bias_f32 is given for s32 output, which never passes through float; expected NULL");
    if (desc.activation != INTACT_ACTIVATION_NONE)
      return Invalid("activation is given for s32 output; expected INTACT_ACTIVATION_NONE");
    return {};
  }
  if (desc.scales == nullptr) return Invalid("scales is NULL; expected 1 or n values for this c_type");
  if (desc.scale_count != 1 && desc.scale_count != desc.n) {
    return Invalid("scale_count is " + std::to_string(desc.scale_count) +
                   "; expected 1 or n = " + std::to_string(desc.n));
  }
  for (int64_t i = 0; i < desc.scale_count; ++i) {
    if (!(desc.scales[i] > 0.0f) || !std::isfinite(desc.scales[i])) {
      return Invalid("scales[" + std::to_string(i) + "] is " + std::to_string(desc.scales[i]) +
                     "; expected a finite value above 0");
    }
  }
  for (int64_t i = 0; desc.bias_f32 != nullptr && i < desc.n; ++i) {
    if (!std::isfinite(desc.bias_f32[i])) {
      return Invalid("bias_f32[" + std::to_string(i) + "] is " + std::to_string(desc.bias_f32[i]) +
                     "; expected a finite value");
    }
  }
  return {};
}

Error CheckActivation(const intact_gemm_desc& desc) {
  const int64_t activation = Raw(desc.activation);
  if (!IsOneOf(activation, {INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU, INTACT_ACTIVATION_CLAMP})) {
    return Invalid(Got("activation", activation) + "; expected an intact_activation");
  }
  // Not "min > max": a NaN must fail too.
  if (desc.activation == INTACT_ACTIVATION_CLAMP && !(desc.clamp_min <= desc.clamp_max)) {
    return Invalid("clamp_min is " + std::to_string(desc.clamp_min) + " and clamp_max is " +
                   std::to_string(desc.clamp_max) + "; expected clamp_min ≤ clamp_max");
  }
  return {};
}

Error CheckResidualFields(const intact_gemm_desc& desc) {
  const int64_t type = Raw(desc.residual_type);
  if (!IsOneOf(type, {INTACT_TYPE_NONE, INTACT_U8, INTACT_S8, INTACT_F32})) {
    return Invalid(Got("residual_type", type) +
                   "; expected INTACT_TYPE_NONE, INTACT_U8, INTACT_S8 or INTACT_F32");
  }
  const bool has_residual = type != INTACT_TYPE_NONE;
  if (has_residual && desc.c_type == INTACT_S32) {
    return Invalid(Got("residual_type", type) +
                   " with s32 output, which never passes through float; expected INTACT_TYPE_NONE");
  }
  const float scale = desc.residual_scale;
  if (has_residual ? !(scale > 0.0f) || !std::isfinite(scale) : scale != 0.0f) {
    return Invalid("residual_scale is " + std::to_string(scale) + "; expected " +
                   (has_residual ? "a finite value above 0" : "0, for residual_type is INTACT_TYPE_NONE"));
  }
  const Limits limits = IsOneOf(type, {INTACT_U8, INTACT_S8}) ? TypeLimits(desc.residual_type) : Limits{0, 0};
  if (desc.residual_zero_point < limits.min || desc.residual_zero_point > limits.max) {
    return Invalid(Got("residual_zero_point", desc.residual_zero_point) + "; expected " + Text(limits) +
                   " for this residual_type");
  }
  return {};
}

// The activation's bounds, within what the output type can hold.
void SetBounds(const intact_gemm_desc& desc, GemmProblem* problem) {
  problem->lo = -std::numeric_limits<float>::infinity();
  problem->hi = std::numeric_limits<float>::infinity();
  if (desc.activation == INTACT_ACTIVATION_RELU) problem->lo = 0.0f;
  if (desc.activation == INTACT_ACTIVATION_CLAMP) {
    problem->lo = desc.clamp_min;
    problem->hi = desc.clamp_max;
  }
  if (!IsOneOf(desc.c_type, {INTACT_U8, INTACT_S8})) return;
  const Limits limits = TypeLimits(desc.c_type);
  const auto type_lo = static_cast<float>(limits.min - desc.c_zero_point);
  const auto type_hi = static_cast<float>(limits.max - desc.c_zero_point);
  const auto clamp = [&](float bound) {
    return bound < type_lo ? type_lo : bound > type_hi ? type_hi : bound;
  };
  problem->lo = clamp(problem->lo);
  problem->hi = clamp(problem->hi);
}

}  // namespace

Result<jit::IsaSet> PermittedIsas(int64_t max_isa) {
  const std::optional<jit::Isa> cap = jit::IsaOf(max_isa);
  if (!cap && max_isa != INTACT_ISA_ANY) {
    return Invalid(Got("max_isa", max_isa) + "; expected an intact_isa");
  }
  Result<jit::IsaSet> permitted = jit::PermittedIsas();
  if (!permitted || !cap) return permitted;
  return *permitted & jit::CappedAt(*cap);
}

Result<GemmProblem> CheckDescriptor(const intact_gemm_desc& desc, const void* b) {
  if (desc.struct_size != sizeof(intact_gemm_desc)) {
    return Invalid("desc->struct_size is " + std::to_string(desc.struct_size) + "; expected " +
                   std::to_string(sizeof(intact_gemm_desc)) + " (use INTACT_GEMM_DESC_INIT)");
  }
  if (b == nullptr) return Invalid("b is NULL");
  for (const auto check : {CheckTypes, CheckShape, CheckActivation, CheckScales, CheckRange, CheckZeroPoints,
                           CheckWeightZeroPoints, CheckResidualFields}) {
    Error error = check(desc);
    if (error.status != INTACT_OK) return error;
  }
  Result<jit::IsaSet> isas = PermittedIsas(Raw(desc.max_isa));
  if (!isas) return isas.error();
  GemmProblem problem;
  problem.n = desc.n;
  problem.k = desc.k;
  problem.a_type = desc.a_type;
  problem.b_type = desc.b_type;
  problem.mode = desc.mode;
  problem.isas = *isas;
  problem.a_zero_point = desc.a_zero_point;
  const Limits range = DeclaredLimits(desc);
  const int shift = desc.a_type == INTACT_S8 ? 128 : 0;
  problem.range = {range.min + shift, range.max + shift};
  problem.is_range_checked = desc.range_check == INTACT_RANGE_CHECKED;
  problem.b = {static_cast<const int8_t*>(b),
               desc.k,
               desc.n,
               desc.b_stride_k == 0 ? desc.n : desc.b_stride_k,
               desc.b_stride_n == 0 ? 1 : desc.b_stride_n,
               WeightFlip(desc.b_type)};
  problem.b_zero_points = desc.b_zero_points;
  problem.b_zero_point_count = desc.b_zero_point_count;
  problem.epilogue = {desc.c_type, desc.bias_f32 != nullptr};
  problem.epilogue.residual = desc.residual_type;
  problem.residual = {desc.residual_scale, desc.residual_zero_point};
  SetBounds(desc, &problem);
  problem.c_zero_point = desc.c_zero_point;
  problem.bias_s32 = desc.bias_s32;
  problem.bias_f32 = desc.bias_f32;
  problem.scales = desc.scales;
  problem.scale_count = desc.scale_count;
  return problem;
}

}  // namespace intact::kernels
