// The microkernel: C[mr × nr] = Requantize(A rows · B panels), the innermost function of everything.
//
// One generator over a dot variant (jit/emitters/dot.h) and an emitter; the loops exist here, once.
//
//   A through row pointers and taps     B panels, canonical   [nr/16][quads][16][4]
//
//     rows[0] + tap ─► k0 k1 k2 k3 | …    quad 0  n0: k0 k1 k2 k3 | n1: k0 k1 k2 k3 | … n15
//     rows[1] + tap ─► k0 k1 k2 k3 | …    quad 1  n0: k4 …
//     …                                   …
//
// Taps (access.h) follow each other in the depth: a GEMM has one, a convolution's filter several. Each quad
// broadcasts four bytes of every row and multiplies them with all columns' vectors; accumulators stay in
// registers over the whole depth, so the epilogue is fused. They start from `compensation`, which carries bias and
// the constant term of zero points per column (pack.h), so those of activations cost nothing. Small tiles
// have too few accumulators to hide the latency of vpdpbusd: they spread the quads over several sets, added
// at the end.
//
// The first pixel of a convolution's line meets padding at the begin of each tap, the last one at its end.
// The kernels of tiles that begin or end lines leave those rows out there:
//
//   a tap of 3 pixels     rows[0]      · · · | k0 … | k0 …      · not computed
//                         rows[1 …]    k0 …  | k0 … | k0 …
//                         rows[mr − 1] k0 …  | k0 … | · · ·
//                                        head          tail
//
// Vectors of a grouped convolution may read channels of their own (Taps::vector_step): then each product
// needs a quad of its own, and loads are what it waits for. But rows of a line read the same pixels, with
// different taps: where the taps along the width are few, each quad is loaded once for all of them
// (Taps::shared). Which rows and taps share pixels is a pattern (tap_pattern.h); where the pixels lie is read
// from a table.
//
//   pixels of a line     x0        x1             x2                       x3                 …
//   rows[0] ×            tap 0     tap 1          tap 2
//   rows[1] ×                      tap 0          tap 1                    tap 2
//   rows[2] ×                                     tap 0                    tap 1              tap 2
//
// Weights come from L2 or beyond, in one stream a panel. Hardware prefetchers stop at the end of a page, so
// each pass of the loop fetches a line of the page after, and the split variant, whose tiles are of few rows,
// every line a stretch ahead. Kernels that prefetch also fetch another region, a line a quad, for the tiles
// to come.
//
// The scheduled variant takes its weights from a strip (scheduled_vectors.h): a group's quads lie anywhere in
// the rows, at the numbers that the strip gives.
//
// A call runs tiles one below the other, so that short ones do not wait for calls.
//
// Contract: rows and `b` are readable for whole quads, `compensation` (each that a kernel at a line's end reads),
// scales and bias for nr elements, and exactly tiles × mr × nr elements of C are written. No alignment is
// needed. Registers follow the System V ABI.
#ifndef INTACT_KERNELS_CODEGEN_MICROKERNEL_H_
#define INTACT_KERNELS_CODEGEN_MICROKERNEL_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/emitters/dot.h"
#include "jit/function.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/codegen/tap_pattern.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

/// Kernels move on in them, from tile to tile. Members are stored and read one by one: code that copies
/// several at once would wait for their stores.
struct MicrokernelArgs {
  int64_t tiles = 1;                     // one below the other
  const uint8_t* const* rows = nullptr;  // mr pointers for each
  const int64_t* taps = nullptr;         // offsets in bytes, at least one
  const int64_t* taps_end = nullptr;
  int64_t tap_bytes = 0;  // of a row in each tap, ≥ one quad
  // Where in a tap the head ends that a line's first row leaves out, and where the tail begins that its last
  // row leaves out; for kernels that begin or end lines.
  int64_t head_end = 0, tail_begin = 0;
  // Where each vector of columns reads activations of its own: added to taps for the first vector, and from
  // vector to vector.
  int64_t a_offset = 0, vector_step = 0;
  const int64_t* pixel_offsets = nullptr;  // of each column of SharedTaps::pattern
  const void* b = nullptr;                 // panels; the scheduled variant's strip (scheduled_vectors.h)
  int64_t b_panel_stride_bytes = 0;
  int64_t windows = 0;             // of a strip
  const void* prefetch = nullptr;  // the region that a prefetching kernel brings into L2; may end anywhere
  void* c = nullptr;
  int64_t c_stride_bytes = 0;
  const int32_t* compensation = nullptr;
  // From `compensation` to that of the first row, in kernels that begin lines; twice it to that of the last row,
  // in those that end lines.
  int64_t compensation_stride_bytes = 0;
  EpilogueArgs epilogue;
};

using MicrokernelFunction = jit::Function<void(MicrokernelArgs*)>;

/// The taps of a line of the filter, all of whose quads are unrolled.
struct SharedTaps {
  TapPattern pattern;  // of the rows of a tile
  int quads = 0;       // of each tap
  auto operator<=>(const SharedTaps&) const = default;
  std::string Name() const;  // "taps3x4_x1_s1"
};

struct MicrokernelSpec {
  core::Isa isa = core::Isa::kAvx2;
  jit::DotKind dot = jit::DotKind::kMaddubs;
  jit::DotSigns signs;
  int mr = 1;       // rows
  int vectors = 1;  // columns, in vectors of the ISA
  bool prefetches = false;
  // Each vector of columns reads activations of its own. Not with variants of several steps, nor with
  // prefetching.
  bool steps = false;
  std::optional<SharedTaps> shared;  // where rows share pixels; with steps, and not at a line's ends
  // The first row begins a line, the last one ends it; from mr = 2 on. Not with variants whose A is
  // staged.
  bool begins_line = false, ends_line = false;
  // Items of the largest group in the schedule that the scheduled variant runs; 0 for the other variants. Its tiles
  // are one vector wide and their rows one tap long, and it has none of the above.
  int largest_group = 0;
  int width = kPanelColumns;  // PackedWeights::width; of a narrow panel a kernel reads one vector
  EpilogueSpec epilogue;

  int nr() const { return vectors * (jit::VectorBytes(isa) / 4); }
  std::string Name() const;  // "u8s8s32_gemm_8x48c4_vnni_avx512vnni"
  auto operator<=>(const MicrokernelSpec&) const = default;
};

/// Bytes that a prefetching kernel fetches in a quad.
inline constexpr int kPrefetchQuadBytes = 64;

/// The function for `spec`, which its owners share. CODEGEN_FAILED names the kernel.
Result<MicrokernelFunction> GetMicrokernel(const MicrokernelSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_MICROKERNEL_H_
