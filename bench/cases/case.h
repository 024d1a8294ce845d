// A benchmark case: what is computed, by which library and on which ISA.
#ifndef INTACT_BENCH_CASES_CASE_H_
#define INTACT_BENCH_CASES_CASE_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bench/cases/trained_weights.h"
#include "core/isas.h"
#include "verify/problem/problem.h"

namespace intact::bench {

/// A number for each dimension of an image. A single number stands for both.
struct Extents {
  int64_t height = 1, width = 1;

  constexpr Extents() = default;
  constexpr Extents(int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor)
  constexpr Extents(int64_t of_height, int64_t of_width) : height(of_height), width(of_width) {}
  bool operator==(const Extents&) const = default;
};

/// A 2-D convolution, channels last. Its input is padded by dilation·(kernel − 1)/2 on every side. A
/// transposed convolution is not dilated; its output is cropped to stride times the input, and kernel ≥
/// stride.
struct Geometry {
  int64_t height = 1, width = 1;  // input extents
  int64_t c_in = 1, c_out = 1;
  Extents kernel = 1, stride = 1;
  int64_t groups = 1, batch = 1;
  bool transposed = false;
  int64_t dilation = 1;
  bool operator==(const Geometry&) const = default;

  constexpr Extents PadBegin() const {
    return {PadBegin(kernel.height, stride.height), PadBegin(kernel.width, stride.width)};
  }
  constexpr Extents PadEnd() const {
    return {PadEnd(kernel.height, stride.height), PadEnd(kernel.width, stride.width)};
  }
  constexpr int64_t OutHeight() const { return OutOf(height, kernel.height, stride.height); }
  constexpr int64_t OutWidth() const { return OutOf(width, kernel.width, stride.width); }
  constexpr int64_t Taps() const { return kernel.height * kernel.width; }
  /// Input channels that an output channel reads.
  constexpr int64_t Channels() const { return c_in / groups; }
  // "64×56×56→256 3×3/2 g32"; "dw 32×112×112 3×3"; "transposed 64×28×28→32 4×4/2"; "64×56×28→64 1×3/2×1 d4"
  std::string ToString() const;

 private:
  constexpr int64_t PadBegin(int64_t taps, int64_t step) const {
    return transposed ? (taps - step + 1) / 2 : dilation * (taps - 1) / 2;
  }
  constexpr int64_t PadEnd(int64_t taps, int64_t step) const {
    return transposed ? (taps - step) / 2 : dilation * (taps - 1) / 2;
  }
  constexpr int64_t OutOf(int64_t in, int64_t taps, int64_t step) const {
    if (transposed) return in * step;
    return (in + PadBegin(taps, step) + PadEnd(taps, step) - dilation * (taps - 1) - 1) / step + 1;
  }
};

/// GEMMs of one size, each with its own runtime B. All Bs have the zero point 0 and one scale.
struct Batch {
  int64_t items = 1;
  intact_type b_type = INTACT_S8;
  bool b_by_columns = false;  // Bs are N×K in memory, like the keys of attention
  bool operator==(const Batch&) const = default;
};

/// Weights in blocks (include/intact/grouped.h): each block of depths of a column has an f16 scale.
struct Blocks {
  intact_type b_type = INTACT_U4;  // U4 with zero points of 8, or S8
  int64_t depth = 32;              // of a block
  bool operator==(const Blocks&) const = default;
};

/// A GEMM (C is m×n, the depth is k), a batch of GEMMs, or a convolution. m, n and k of a convolution are its
/// output pixels, its output channels, and taps × the channels of a group.
struct Shape {
  int64_t m = 1, n = 1, k = 1;
  std::optional<Geometry> conv = std::nullopt;
  std::optional<Batch> batch = std::nullopt;
  bool is_dynamic = false;  // a GEMM of float32 activations, measured with all ways to quantize them
  std::optional<Blocks> blocks = std::nullopt;  // a GEMM of float32 activations, which runs quantize to s8

  static constexpr Shape Of(const Geometry& g) {
    return {g.batch * g.OutHeight() * g.OutWidth(), g.c_out, g.Taps() * g.Channels(), g};
  }
  bool operator==(const Shape&) const = default;
  constexpr int64_t Items() const { return batch ? batch->items : 1; }
  /// Rows of A and C, over all items.
  constexpr int64_t Rows() const { return Items() * m; }
  /// Multiplications and additions. Zeros around an input count. Padding of the depth does not count, nor do
  /// the zeros that a transposed convolution has between its pixels.
  double Operations() const {
    const Extents stride = conv && conv->transposed ? conv->stride : 1;
    return 2.0 * static_cast<double>(Rows()) * static_cast<double>(n) * static_cast<double>(k) /
           static_cast<double>(stride.height * stride.width);
  }
  /// With the scales of blocks.
  int64_t WeightBytes() const;
  int64_t InputElements() const;
  /// The convolution. A GEMM is returned as a 1×1 convolution over one line of pixels, one for each row.
  Geometry AsConvolution() const { return conv.value_or(Geometry{1, Rows(), k, n, 1, 1, 1, 1}); }
  // "128×768×3072"; "128×4096×4096 u4/32"; "12×(128×128×64) u8×s8ᵀ"; or the geometry's
  std::string ToString() const;
};

/// The shape that ToString() writes as `text`, in which x may stand for ×, T for ᵀ and -> for →. Nothing if no
/// shape has that text.
std::optional<Shape> ParseShape(std::string_view text);

struct Layer {
  Shape shape;
  int times = 1;                                        // occurrences in the network
  std::optional<WeightFigures> weights = std::nullopt;  // set for a trained network's layer
};

/// Groups of shapes that get a mean.
enum class Kind : uint8_t {
  kGemm,
  kDynamic,
  kBlocks,
  kBatch,
  kDense,
  kFirstLayer,
  kGrouped,
  kDepthwise,
  kTransposed
};
/// kFirstLayer: dense, with at most four input channels.
Kind KindOf(const Shape& shape);

/// Per-channel symmetric weights of some distribution. The largest weight of a channel is ±127.
struct Weights {
  std::string_view name;
  verify::Fill fill;                                    // the distribution of weights and activations
  std::optional<WeightFigures> trained = std::nullopt;  // if given: weights are drawn to have these figures
  bool operator==(const Weights&) const = default;
};

inline constexpr std::array kWeights = {
    Weights{"t4", verify::Fill::kStudent}, Weights{"laplace", verify::Fill::kLaplace},
    Weights{"gauss", verify::Fill::kGauss}, Weights{"uniform", verify::Fill::kUniform}};
/// The distribution nearest to that of networks; the default.
inline constexpr Weights kLaplace = kWeights[1];

/// The name of the weights that a trained network's layers have.
inline constexpr std::string_view kTrained = "trained";

/// How activations are quantized.
enum class Quantization : uint8_t {
  kStatic,  // A is u8: quantized before the run, with a fixed scale
  kTensor,  // A is float32; each run quantizes it to u8 with one scale
  kRow,  // A is float32; each run quantizes it to u8, or s8 for weights in blocks, with a scale for each row
  kBlock,  // A is float32; each run quantizes it to s8 with a scale for each block of a row
  kNone,   // A and weights are float32: the product is computed in float. Peers only
};
std::string_view ToString(Quantization quantization);  // "static", "tensor", "row", "block", "none"
/// Whether runs quantize A.
constexpr bool IsDynamic(Quantization quantization) {
  return quantization != Quantization::kStatic && quantization != Quantization::kNone;
}

/// The types of a case's input and output.
struct Format {
  Quantization quantization = Quantization::kStatic;
  // s32: sums. u8: per-channel scales and ReLU. f32: scales; kNone: no scales, and ReLU for a convolution.
  intact_type c_type = INTACT_S32;
  bool operator==(const Format&) const = default;
};
/// "s32", "u8", "f32"; "f32 by tensor", "f32 by row", "f32 by block"; "float".
std::string ToString(const Format& format);

inline constexpr Format kS32 = {};
inline constexpr Format kU8 = {Quantization::kStatic, INTACT_U8};
inline constexpr Format kF32 = {Quantization::kStatic, INTACT_F32};
inline constexpr Format kByTensor = {Quantization::kTensor, INTACT_F32};
inline constexpr Format kByRow = {Quantization::kRow, INTACT_F32};
inline constexpr Format kByBlock = {Quantization::kBlock, INTACT_F32};
inline constexpr Format kFloat = {Quantization::kNone, INTACT_F32};
/// In the order of reports.
inline constexpr std::array kFormats = {kS32, kU8, kF32, kByTensor, kByRow, kByBlock, kFloat};

struct Case {
  Shape shape;
  Format format;
  Weights weights = kLaplace;
  core::Isa isa = core::Isa::kAvx2;
  std::string peer;                 // "" for intact
  std::string kernels;              // the peer's, if it has several kinds for the shape
  intact_mode mode = INTACT_EXACT;  // intact's mode
  int threads = 1;
  bool is_tuned = false;  // intact only: kernels are chosen by measurement
  bool is_bound = false;  // intact only: runs are bound (intact/bound.h)
};

/// The formats that a shape and its weights are measured with, by intact or by the case's peer. Peers compute
/// convolutions, batches, dynamic GEMMs and GEMMs of trained networks in float too, but not transposed
/// convolutions: oneDNN has only reference code for them, channels last. No peer takes a batch with u8
/// Bs.
std::span<const Format> FormatsOf(const Case& c);

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASES_CASE_H_
