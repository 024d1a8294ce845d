// The depthwise kernel: adjacent output pixels of one row, for one vector of channels.
//
// A vector of V channels (V bytes of a pixel) is computed in four vectors of int32:
//
//   load            the channels' activations at the 4 or 2 places of a group
//   unpack bytes    two vectors of pairs of taps
//   unpack again    four vectors, a dword per channel: 4 bytes, or 2 words extended with zeros (wide)
//   dot             for each pixel that uses the group: accumulator += dword · weights from memory
//
// depthwise_interleaving.h defines and chooses the groups.
//
// Unpacks work within 128-bit lanes ("quarters"), so the channels come out *quartered*: dword d of quarter q of
// vector i is channel 16q + 4i + d. Weights and compensation have this order too. Packing to bytes restores
// the order of channels. For 4-byte outputs, or with a residual, a transposition restores the order.
//
//   variant   dot                                        weights
//   vnni      vpdpbusd                                   4 × s8 per dword
//   maddubs   vpmaddubsw, vpmaddwd(1), vpaddd            4 × s8 per dword; pairs of adjacent taps saturate
//   wide      vpmaddwd, vpaddd; exact for any weights    2 × s16 per dword, so that w − zb fits too
//
// A record holds the data of a vector of channels: the compensation, then the weights.
//
//   [4][V/4] int32   |   [sets of weights][4][V/4] dwords of 4 or 2 weights
//
// Each small filter has its own unrolled kernel, in which neighbouring pixels share interleavings. For all
// other filters, one kernel loops over a list of taps, TapsPerGroup() taps at a time.
//
// A row is computed in blocks of pixels, because the pixels of a block share interleavings. The pixels after the last
// whole block have code of their own, a *tail*: the kernel jumps to it, and it continues with the kernel's registers.
// Without a tail, the kernel computes these pixels one by one. A plan generates the tails of the rows that it has.
//
// Contract: the kernel reads V bytes at each tap of each pixel, and writes exactly V elements per pixel. No
// alignment is needed. Registers follow the System V ABI.
#ifndef INTACT_KERNELS_CODEGEN_DEPTHWISE_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_DEPTHWISE_KERNEL_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "jit/emitters/dot.h"
#include "jit/function.h"
#include "kernels/codegen/depthwise_interleaving.h"
#include "kernels/codegen/epilogue.h"

namespace intact::kernels {

struct DepthwiseKernelArgs {
  const uint8_t* input = nullptr;   // the first pixel's first tap
  const int64_t* places = nullptr;  // the result of TapGrid::PlaceOffsets() for pixels() pixels
  const int64_t* taps = nullptr;    // if the kernel loops: the taps' offsets in bytes, group by group
  int64_t groups = 0;               // if the kernel loops: ≥ 1
  int64_t pixel_stride_bytes = 0;   // in the input
  int64_t block_stride_bytes = 0;   // in the input, from a block of DepthwiseKernelSpec::pixels() to the next
  int64_t pixels = 0;               // ≥ 0
  const void* tail = nullptr;       // for the pixels after the last whole block; null: they have no tail
  const uint8_t* record = nullptr;
  uint8_t* c = nullptr;
  int64_t c_stride_bytes = 0;
  EpilogueArgs epilogue;  // factors and addends are quartered if DepthwiseKernelSpec::is_quartered()
};

using DepthwiseKernelFunction = jit::Function<void(const DepthwiseKernelArgs*)>;

struct DepthwiseKernelSpec {
  core::Isa isa = core::Isa::kAvx2;
  jit::DotKind dot = jit::DotKind::kWide;  // or kVnni, kMaddubs
  FilterPattern taps;                      // the taps of pixels() pixels; one tap if the kernel loops
  bool loops = false;
  EpilogueSpec epilogue;  // has_b_zero_points is false: weights contain their zero points
  int tail = 0;           // pixels of a tail; 0: the kernel

  int channels() const { return jit::VectorBytes(isa); }
  /// The number of pixels that are computed at a time.
  int pixels() const { return taps.columns.pixels; }
  std::shared_ptr<const DepthwiseInterleaving> Interleaving() const {
    return DepthwiseInterleaving::Shared(taps, dot);
  }
  /// Whether the epilogue takes quartered vectors.
  bool is_quartered() const { return core::BytesOf(epilogue.c_type) == 1 && !epilogue.has_residual(); }
  auto operator<=>(const DepthwiseKernelSpec&) const = default;
  /// "u8s8u8_depthwise_3x3_x1_s1_4x64_vnni_avx512vnni".
  std::string Name() const;
};

/// How many pixels kernels of `isa` compute at a time.
int DepthwisePixels(core::Isa isa);

/// The index of a channel's dword in four quartered vectors of `lanes` dwords each.
constexpr int64_t QuarteredIndex(int64_t channel, int64_t lanes) {
  const int64_t quarter = channel / 16, vector = channel % 16 / 4, dword = channel % 4;
  return vector * lanes + quarter * 4 + dword;
}

/// `spec.tail` is 0.
Result<DepthwiseKernelFunction> GetDepthwiseKernel(const DepthwiseKernelSpec& spec);
/// DepthwiseKernelArgs::tail for the kernel of `spec`, with at least 2 and fewer than pixels() pixels.
Result<jit::Code> GetDepthwiseTail(DepthwiseKernelSpec spec, int pixels);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_DEPTHWISE_KERNEL_H_
