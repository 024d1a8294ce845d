// The description of an operation: Linear, the common part of a GEMM and a convolution, and functions that
// list the fields of descriptions by name. Code that copies, saves, prints or sends operations uses these
// lists. So a new field is added here once. Nothing here computes: the kernels and the reference share only
// data.
//
// Each ForEach function calls visit(name, field of the first object, field of the second object, …) for each
// field of its list. All objects must have these fields.
#ifndef INTACT_CORE_OPERATION_H_
#define INTACT_CORE_OPERATION_H_

#include <intact/intact.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/post_ops.h"

namespace intact::core {

/// The common part of a GEMM and a convolution, without tensors: an intact_linear_desc that owns its vectors.
/// A column is a column of B, or an output channel; N is the number of columns.
struct Linear {
  intact_type a_type = INTACT_U8;  // u8 or s8
  intact_type b_type = INTACT_S8;
  intact_type c_type = INTACT_S32;
  intact_mode mode = INTACT_EXACT;
  int32_t a_zero_point = 0;  // 0 unless a_quantization is STATIC
  int32_t c_zero_point = 0;
  int32_t a_min = 0, a_max = 0;  // activation range; both 0: all values of the type
  intact_range_check range_check = INTACT_RANGE_CHECKED;
  intact_quantization a_quantization = INTACT_QUANTIZATION_STATIC;
  intact_type a_source_type =
      INTACT_TYPE_NONE;  // A's type before quantization; NONE if runs do not quantize A
  PostOps post_ops;
  std::vector<int32_t> b_zero_points;  // N, 1, or empty (all 0)
  std::vector<int32_t> bias_s32;       // N or empty
  std::vector<float> bias_f32;         // N or empty
  std::vector<float> scales;           // N, 1, or empty (s32 output, fixed point)
  intact_fixed_point fixed_point = INTACT_FIXED_POINT_NONE;
  std::vector<int32_t> multipliers, shifts;  // of fixed point: N or 1; if multipliers are empty: only shifts
  std::vector<uint8_t> lookup_table;         // 256 elements of c_type, or empty
  intact_overflow overflow = INTACT_OVERFLOW_REFUSED;
  intact_pairing pairing = INTACT_PAIRING_WITHIN_TAP;  // for INTACT_SATURATING

  bool IsDynamic() const { return a_source_type != INTACT_TYPE_NONE; }
  bool HasResidual() const { return post_ops.Has<AddResidual>(); }
  /// INTACT_TYPE_NONE if no residual is added.
  intact_type residual_type() const {
    return HasResidual() ? post_ops.Find<AddResidual>()->type : INTACT_TYPE_NONE;
  }
};

/// The scalar fields of intact_linear_desc and Linear, except post-operations.
template <class Visit, class... Objects>
constexpr void ForEachScalar(Visit&& visit, Objects&... o) {
  visit("a_type", o.a_type...);
  visit("b_type", o.b_type...);
  visit("c_type", o.c_type...);
  visit("mode", o.mode...);
  visit("a_zero_point", o.a_zero_point...);
  visit("c_zero_point", o.c_zero_point...);
  visit("a_min", o.a_min...);
  visit("a_max", o.a_max...);
  visit("range_check", o.range_check...);
  visit("a_quantization", o.a_quantization...);
  visit("a_source_type", o.a_source_type...);
  visit("fixed_point", o.fixed_point...);
  visit("overflow", o.overflow...);
  visit("pairing", o.pairing...);
}

/// The vectors of intact_linear_desc and Linear with a value for each column.
template <class Visit, class... Objects>
constexpr void ForEachColumnVector(Visit&& visit, Objects&... o) {
  visit("b_zero_points", o.b_zero_points...);
  visit("bias_s32", o.bias_s32...);
  visit("bias_f32", o.bias_f32...);
  visit("scales", o.scales...);
  visit("multipliers", o.multipliers...);
  visit("shifts", o.shifts...);
}

/// The number of elements of the column vector `name` of a descriptor for `columns` columns.
constexpr int64_t ElementsOf(std::string_view name, const intact_linear_desc& desc, int64_t columns) {
  if (name.starts_with("bias")) return columns;
  return name == "b_zero_points" ? desc.b_zero_point_count : desc.scale_count;
}

/// All fields of Linear.
template <class Visit, class... Linears>
constexpr void ForEachField(Visit&& visit, Linears&... o) {
  ForEachScalar(visit, o...);
  visit("post_ops", o.post_ops...);
  ForEachColumnVector(visit, o...);
  visit("lookup_table", o.lookup_table...);
}

/// The scalar fields of intact_gemm_desc: a GEMM's shape, and the layout of its weights.
template <class Visit, class... Objects>
constexpr void ForEachGemmNumber(Visit&& visit, Objects&... o) {
  visit("n", o.n...);
  visit("k", o.k...);
  visit("b_stride_k", o.b_stride_k...);
  visit("b_stride_n", o.b_stride_n...);
  visit("runtime_b", o.runtime_b...);
}

/// A convolution's geometry, in intact_conv_desc and in a pack file's header. The last seven fields are
/// arrays with an entry for each spatial dimension.
template <class Visit, class... Objects>
constexpr void ForEachGeometryField(Visit&& visit, Objects&... o) {
  visit("spatial_dims", o.spatial_dims...);
  visit("transposed", o.transposed...);
  visit("input_channels", o.input_channels...);
  visit("output_channels", o.output_channels...);
  visit("groups", o.groups...);
  visit("input", o.input...);
  visit("kernel", o.kernel...);
  visit("stride", o.stride...);
  visit("dilation", o.dilation...);
  visit("pad_begin", o.pad_begin...);
  visit("pad_end", o.pad_end...);
  visit("output_pad", o.output_pad...);
}

/// A visitor that copies the second object's field to the first object. Arrays are copied entry by entry.
inline constexpr auto kCopyField = [](std::string_view /*name*/, auto& to, const auto& from) {
  if constexpr (requires { std::begin(to); }) {
    for (size_t i = 0; i < std::size(to); ++i) to[i] = from[i];
  } else {
    to = static_cast<std::remove_reference_t<decltype(to)>>(from);
  }
};

/// The scalar fields and post-operations of an intact_linear_desc, without its vectors.
inline Linear NumbersOf(const intact_linear_desc& desc) {
  Linear linear;
  ForEachScalar(kCopyField, linear, desc);
  linear.post_ops = PostOpsOf(desc);
  return linear;
}

/// A descriptor that points to the vectors of `linear`. A vector of one element stands for all columns.
inline intact_linear_desc DescOf(const Linear& linear) {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  ForEachScalar(kCopyField, desc, linear);
  SetPostOps(linear.post_ops, &desc);
  const auto point = [](auto, auto& to, const auto& from) { to = from.empty() ? nullptr : from.data(); };
  ForEachColumnVector(point, desc, linear);
  desc.b_zero_point_count = static_cast<int64_t>(linear.b_zero_points.size());
  const bool is_fixed = !linear.shifts.empty();  // then there are no scales
  desc.scale_count = static_cast<int64_t>(is_fixed ? linear.shifts.size() : linear.scales.size());
  if (!linear.lookup_table.empty()) desc.lookup_table = linear.lookup_table.data();
  return desc;
}

/// Elements of a lookup table, one for each value of an 8-bit output.
inline constexpr int64_t kTableElements = 256;
/// The elements of a descriptor's lookup table; empty if it has none.
inline std::vector<uint8_t> LookupTableOf(const intact_linear_desc& desc) {
  const auto* const table = static_cast<const uint8_t*>(desc.lookup_table);
  return table == nullptr ? std::vector<uint8_t>() : std::vector<uint8_t>(table, table + kTableElements);
}

}  // namespace intact::core
#endif  // INTACT_CORE_OPERATION_H_
