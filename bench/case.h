// A benchmark as a value: what is computed, by whom and on which ISA. The table and the named benchmarks are
// made of the same cases.
#ifndef INTACT_BENCH_CASE_H_
#define INTACT_BENCH_CASE_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "jit/isa.h"
#include "verify/problem.h"

namespace intact::bench {

/// A 2-D convolution, channels last, its filter square and its input padded by (kernel − 1)/2 on every side.
/// Or a transposed one, whose output is cropped to stride times the input: kernel ≥ stride.
struct Geometry {
  int64_t height = 1, width = 1;  // of the input
  int64_t c_in = 1, c_out = 1;
  int64_t kernel = 1, stride = 1, groups = 1, batch = 1;
  bool transposed = false;
  bool operator==(const Geometry&) const = default;

  constexpr int64_t PadBegin() const { return transposed ? (kernel - stride + 1) / 2 : (kernel - 1) / 2; }
  constexpr int64_t PadEnd() const { return transposed ? (kernel - stride) / 2 : (kernel - 1) / 2; }
  constexpr int64_t OutHeight() const { return OutOf(height); }
  constexpr int64_t OutWidth() const { return OutOf(width); }
  constexpr int64_t Taps() const { return kernel * kernel; }
  /// Input channels that an output channel reads.
  constexpr int64_t Channels() const { return c_in / groups; }
  // "64×56×56→256 3×3/2 g32"; "dw 32×112×112 3×3"; "transposed 64×28×28→32 4×4/2"
  std::string ToString() const;

 private:
  constexpr int64_t OutOf(int64_t in) const {
    return transposed ? in * stride : (in + PadBegin() + PadEnd() - kernel) / stride + 1;
  }
};

/// A GEMM: C is m×n, the depth is k. Or a convolution, with the sizes of the GEMM that it is: m output
/// pixels, n output channels, and a depth of taps × the channels of a group.
struct Shape {
  int64_t m = 1, n = 1, k = 1;
  std::optional<Geometry> conv = std::nullopt;

  static constexpr Shape Of(const Geometry& g) {
    return {g.batch * g.OutHeight() * g.OutWidth(), g.c_out, g.Taps() * g.Channels(), g};
  }
  bool operator==(const Shape&) const = default;
  /// Multiplications and additions, without padding of the depth; with the zeros around an input, but not
  /// those that a transposed convolution has between its pixels.
  double Operations() const {
    const auto stride = static_cast<double>(conv && conv->transposed ? conv->stride : 1);
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / (stride * stride);
  }
  int64_t WeightBytes() const { return n * k; }
  int64_t InputElements() const;
  /// The convolution; a GEMM as the one by 1×1 that it is, over a line of m pixels.
  Geometry AsConvolution() const { return conv.value_or(Geometry{1, m, k, n, 1, 1, 1, 1}); }
  std::string ToString() const;  // "128×768×3072", or the geometry's
};

/// What a shape's speed is summed up with.
enum class Kind : uint8_t { kGemm, kDense, kFirstLayer, kGrouped, kDepthwise, kTransposed };
/// kFirstLayer: dense, of at most four channels.
Kind KindOf(const Shape& shape);

/// Per-channel symmetric weights of some distribution, the largest at ±127.
struct Weights {
  const char* name;
  verify::Fill fill;
};

inline constexpr std::array kWeights = {
    Weights{"t4", verify::Fill::kStudent}, Weights{"laplace", verify::Fill::kLaplace},
    Weights{"gauss", verify::Fill::kGauss}, Weights{"uniform", verify::Fill::kUniform}};
/// What networks have; the default.
inline constexpr Weights kLaplace = kWeights[1];

struct Case {
  Shape shape;
  Weights weights = kLaplace;
  int amax = 0;  // the declared range of activations, and the largest of them; 0 = full range
  jit::Isa isa = jit::Isa::kAvx2;
  std::string peer;                 // "" for intact
  intact_mode mode = INTACT_EXACT;  // of intact
  // s32; u8: per-channel scales and ReLU; f32: a convolution in float, activations, weights and all, and
  // ReLU, which peers have.
  intact_type c_type = INTACT_S32;
  int threads = 1;
  bool is_open = false;   // a convolution whose plan leaves the input's extents to the run; of intact
  bool is_tuned = false;  // what runs is chosen by measurement; of intact

  /// gemm/isa:avx2/mode:exact/weights:laplace/m:128/n:768/k:3072; a peer's has peer:onednn in mode's place;
  /// /amax:127, /c:u8 and /threads:2 where they differ from the default.
  /// conv/isa:avx2/mode:exact/weights:laplace/c:u8/in:56x56/c_in:64/c_out:64/kernel:3x3/stride:1/groups:1/
  /// batch:1 (in one word): the same, with /c: always; /transposed at the end of a transposed one's, /open at
  /// that of an open one's, /tuned at that of a tuned plan's.
  std::string Name() const;
};

/// The outputs that a shape is measured with, by intact ("") or by a peer. Not in float if transposed: that
/// oneDNN does, channels last, by its reference.
std::span<const intact_type> TypesOf(const Shape& shape, std::string_view peer);

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASE_H_
