// The fields of an operation, by name. Code that copies, saves, prints or sends operations goes through these
// lists, so a new field is added here once. Each function calls visit(name, field of the first object, field
// of the second object, …) for each field of its list. All objects must have these fields.
#ifndef INTACT_CORE_FIELDS_H_
#define INTACT_CORE_FIELDS_H_

#include <intact/intact.h>

#include <cstddef>
#include <iterator>
#include <string_view>
#include <type_traits>

namespace intact::core {

/// The numbers of the arithmetic that a GEMM and a convolution share: of intact_linear_desc,
/// reference::Operation, a pack file's header.
template <class Visit, class... Objects>
constexpr void ForEachArithmeticNumber(Visit&& visit, Objects&... o) {
  visit("a_type", o.a_type...);
  visit("b_type", o.b_type...);
  visit("c_type", o.c_type...);
  visit("a_zero_point", o.a_zero_point...);
  visit("c_zero_point", o.c_zero_point...);
  visit("activation", o.activation...);
  visit("clamp_min", o.clamp_min...);
  visit("clamp_max", o.clamp_max...);
  visit("residual_type", o.residual_type...);
  visit("residual_scale", o.residual_scale...);
  visit("residual_zero_point", o.residual_zero_point...);
}

/// The vectors with a value for each column: of intact_linear_desc and reference::Operation.
template <class Visit, class... Objects>
constexpr void ForEachColumnVector(Visit&& visit, Objects&... o) {
  visit("b_zero_points", o.b_zero_points...);
  visit("bias_s32", o.bias_s32...);
  visit("bias_f32", o.bias_f32...);
  visit("scales", o.scales...);
}

/// How activations are quantized, and their declared range: of intact_linear_desc and a pack file's header.
template <class Visit, class... Objects>
constexpr void ForEachActivationNumber(Visit&& visit, Objects&... o) {
  visit("a_min", o.a_min...);
  visit("a_max", o.a_max...);
  visit("range_check", o.range_check...);
  visit("a_quantization", o.a_quantization...);
  visit("a_source_type", o.a_source_type...);
}

/// A GEMM's shape and weights: of intact_gemm_desc.
template <class Visit, class... Objects>
constexpr void ForEachGemmNumber(Visit&& visit, Objects&... o) {
  visit("n", o.n...);
  visit("k", o.k...);
  visit("b_stride_k", o.b_stride_k...);
  visit("b_stride_n", o.b_stride_n...);
  visit("b_from_run", o.b_from_run...);
}

/// A convolution's geometry: of intact_conv_desc and a pack file's header. The last seven fields are arrays
/// with an entry for each spatial dimension.
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

}  // namespace intact::core
#endif  // INTACT_CORE_FIELDS_H_
