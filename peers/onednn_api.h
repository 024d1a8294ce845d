// oneDNN's C++ API for the peer (onednn.cc) and the benchmarks (bench/peers/onednn_peer.cc). Versions 2 (Debian 12)
// and 3 (Debian 13) differ; this header hides all differences.
//
//                   version 2                          version 3
//   primitives      an operation descriptor, then      a primitive_desc
//                   a primitive_desc
//   scales          scales of the output;              scales of the weights;
//                   attributes hold the values         attributes hold a mask, runs get the values
//   zero points     attributes hold the values         attributes hold a mask, runs get the values
//   bias            added before scaling               added after scaling
//
// Both versions compute in float32, with the post-operations in order:
//
//   version 2       post((A·B + bias)·scale) + zero point of C
//   version 3       post(A·B·scale + bias) + zero point of C
//
// So AddBias() gives version 3 the float32 bias bias[n]·scale[n], rounded once, if there are scales. Without
// scales the bias stays s32.
#ifndef INTACT_PEERS_ONEDNN_API_H_
#define INTACT_PEERS_ONEDNN_API_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace intact::onednn {

using Dimensions = dnnl::memory::dims;
using Descriptor = dnnl::memory::desc;
using Layout = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

#if DNNL_VERSION_MAJOR >= 3
inline constexpr bool kIsVersion3 = true;
#else
inline constexpr bool kIsVersion3 = false;
#endif

/// A primitive's attributes, and the arguments that these attributes add to each run.
struct Attributes {
  dnnl::primitive_attr attributes;
  std::unordered_map<int, dnnl::memory> arguments;
};

/// The dimensions of C and of the weights that hold the columns, as masks: bit i is dimension i.
struct ColumnMasks {
  int c, weights;
};

/// The masks of a matmul: its columns are the last dimension.
constexpr ColumnMasks MatmulColumns(size_t dimensions) {
  const int last = 1 << (dimensions - 1);
  return {.c = last, .weights = last};
}

/// The masks of an inner product: its weights are N×K.
constexpr ColumnMasks InnerProductColumns() { return {.c = 1 << 1, .weights = 1 << 0}; }

/// The masks of a convolution: its weights are [outputs][inputs]… or, if grouped, [groups][outputs of a
/// group][inputs of a group]….
constexpr ColumnMasks ConvolutionColumns(bool is_grouped) {
  return {.c = 1 << 1, .weights = is_grouped ? 1 << 0 | 1 << 1 : 1 << 0};
}

/// A memory of `engine` with `extents` that holds `values`, row-major.
template <class Value>
dnnl::memory MemoryOf(const dnnl::engine& engine, const Dimensions& extents, Type type,
                      std::span<const Value> values) {
  Dimensions strides(extents.size());
  int64_t stride = 1;
  for (size_t i = extents.size(); i-- > 0; stride *= extents[i]) strides[i] = stride;
  dnnl::memory memory({extents, type, strides}, engine);
  std::ranges::copy(values, static_cast<Value*>(memory.get_data_handle()));
  return memory;
}

/// Multiplies the products by `scales`: one scale, or one per column. Without scales, does nothing.
inline void SetScales(const dnnl::engine& engine, std::span<const float> scales, ColumnMasks columns,
                      Attributes* attributes) {
  if (scales.empty()) return;
#if DNNL_VERSION_MAJOR >= 3
  attributes->attributes.set_scales_mask(DNNL_ARG_WEIGHTS, scales.size() == 1 ? 0 : columns.weights);
  attributes->arguments.insert_or_assign(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS,
                                         MemoryOf(engine, {std::ssize(scales)}, Type::f32, scales));
#else
  static_cast<void>(engine);
  attributes->attributes.set_output_scales(scales.size() == 1 ? 0 : columns.c,
                                           {scales.begin(), scales.end()});
#endif
}

/// Sets the zero points of `argument` (DNNL_ARG_SRC, DNNL_ARG_WEIGHTS or DNNL_ARG_DST): one, or one per index
/// of the dimensions in `mask`. Does nothing if all are 0.
inline void SetZeroPoints(const dnnl::engine& engine, int argument, std::span<const int32_t> zero_points,
                          int mask, Attributes* attributes) {
  if (std::ranges::all_of(zero_points, [](int32_t zero_point) { return zero_point == 0; })) return;
  if (zero_points.size() == 1) mask = 0;
#if DNNL_VERSION_MAJOR >= 3
  attributes->attributes.set_zero_points_mask(argument, mask);
  attributes->arguments.insert_or_assign(DNNL_ARG_ATTR_ZERO_POINTS | argument,
                                         MemoryOf(engine, {std::ssize(zero_points)}, Type::s32, zero_points));
#else
  static_cast<void>(engine);
  attributes->attributes.set_zero_points(argument, mask, {zero_points.begin(), zero_points.end()});
#endif
}

/// Adds `bias`, one value per column, to the products before `scales` multiply them. Returns the bias's
/// descriptor, which is empty if there is no bias. `extents` is the bias's shape.
inline Descriptor AddBias(const dnnl::engine& engine, std::span<const int32_t> bias,
                          std::span<const float> scales, const Dimensions& extents, Attributes* attributes) {
  if (bias.empty()) return {};
  dnnl::memory memory;
  if (kIsVersion3 && !scales.empty()) {
    std::vector<float> scaled(bias.size());
    for (size_t n = 0; n < bias.size(); ++n) {
      const float scale = scales[scales.size() == 1 ? 0 : n];
      scaled[n] = static_cast<float>(static_cast<double>(bias[n]) * static_cast<double>(scale));
    }
    memory = MemoryOf<float>(engine, extents, Type::f32, scaled);
  } else {
    memory = MemoryOf(engine, extents, Type::s32, bias);
  }
  attributes->arguments.insert_or_assign(DNNL_ARG_BIAS, memory);
  return memory.get_desc();
}

inline void AppendEltwise(dnnl::algorithm algorithm, float alpha, float beta, dnnl::post_ops* operations) {
#if DNNL_VERSION_MAJOR >= 3
  operations->append_eltwise(algorithm, alpha, beta);
#else
  operations->append_eltwise(1.0f, algorithm, alpha, beta);
#endif
}

/// A primitive's description. `operation`: the arguments that describe the operation. Both versions have the
/// same order of these arguments.
template <class Primitive, class... Operation>
typename Primitive::primitive_desc Describe(const dnnl::engine& engine,
                                            const dnnl::primitive_attr& attributes,
                                            const Operation&... operation) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, operation..., attributes};
#else
  return {typename Primitive::desc(operation...), attributes, engine};
#endif
}

/// The tensor of `descriptor` in the layout that a primitive prefers.
inline Descriptor InAnyLayout(const Descriptor& descriptor) {
#if DNNL_VERSION_MAJOR >= 3
  return {descriptor.get_dims(), descriptor.get_data_type(), Layout::any};
#else
  return {descriptor.dims(), descriptor.data_type(), Layout::any};
#endif
}

/// kAnyIsa: all ISAs that the library knows. kAvxVnniInt8Isa: the ISA with AVX-VNNI-INT8, or with AVX-VNNI
/// for version 2, which does not know AVX-VNNI-INT8.
#if DNNL_VERSION_MAJOR >= 3
inline constexpr dnnl::cpu_isa kAnyIsa = dnnl::cpu_isa::isa_default;
inline constexpr dnnl::cpu_isa kAvxVnniInt8Isa = dnnl::cpu_isa::avx2_vnni_2;
#else
inline constexpr dnnl::cpu_isa kAnyIsa = dnnl::cpu_isa::all;
inline constexpr dnnl::cpu_isa kAvxVnniInt8Isa = dnnl::cpu_isa::avx2_vnni;
#endif

/// The ISAs that a user may name, by oneDNN's names.
inline constexpr auto kIsaNames = std::to_array<std::pair<std::string_view, dnnl::cpu_isa>>({
  {"sse41", dnnl::cpu_isa::sse41}, {"avx", dnnl::cpu_isa::avx}, {"avx2", dnnl::cpu_isa::avx2},
      {"avx2_vnni", dnnl::cpu_isa::avx2_vnni},
#if DNNL_VERSION_MAJOR >= 3
      {"avx2_vnni_2", dnnl::cpu_isa::avx2_vnni_2},
#endif
      {"avx512_core", dnnl::cpu_isa::avx512_core}, {"avx512_core_vnni", dnnl::cpu_isa::avx512_core_vnni},
      {"avx512_core_bf16", dnnl::cpu_isa::avx512_core_bf16},
#if DNNL_VERSION_MAJOR >= 3
      {"avx512_core_fp16", dnnl::cpu_isa::avx512_core_fp16},
#endif
      {"avx512_core_amx", dnnl::cpu_isa::avx512_core_amx},
#if DNNL_VERSION_MAJOR >= 3
      {"avx512_core_amx_fp16", dnnl::cpu_isa::avx512_core_amx_fp16},
#endif
});

}  // namespace intact::onednn
#endif  // INTACT_PEERS_ONEDNN_API_H_
