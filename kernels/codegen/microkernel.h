// The microkernel: C[mr × nr] = Requantize(A rows · B panels), the innermost function of GEMMs and
// convolutions.
//
// One generator serves all dot variants (jit/emitters/dot.h) and emitters.
//
//   A through row pointers and taps     B panels, canonical   [nr/16][quads][16][4]
//
//     rows[0] + tap ─► k0 k1 k2 k3 | …    quad 0  n0: k0 k1 k2 k3 | n1: k0 k1 k2 k3 | … n15
//     rows[1] + tap ─► k0 k1 k2 k3 | …    quad 1  n0: k4 …
//     …                                   …
//
// Taps (access.h) follow each other in the depth: a GEMM has one tap, a convolution's filter several. For
// each quad, four bytes of every row are broadcast and multiplied with all columns' vectors. Accumulators
// stay in registers over the whole depth, so the epilogue is fused. Accumulators start from `compensation`.
// `compensation` holds the bias and the constant term of zero points per column (pack.h), so zero points of
// activations cost nothing. Small tiles have too few accumulators to hide the latency of vpdpbusd. They
// distribute the quads among several sets of accumulators. These sets are added at the end.
//
// In each tap, the first pixel of a convolution's line begins with padding, and the last pixel ends with
// padding. Kernels of tiles that begin or end lines do not compute this padding:
//
//   a tap of 3 pixels     rows[0]      · · · | k0 … | k0 …      · not computed
//                         rows[1 …]    k0 …  | k0 … | k0 …
//                         rows[mr − 1] k0 …  | k0 … | · · ·
//                                        head          tail
//
// Vectors of a grouped convolution may read different channels (Taps::vector_step). Then each product needs
// its own quad, and loads are the bottleneck. But rows of a line read the same pixels, with different taps.
// If the taps along the width are few, each quad is loaded once for all these rows (Taps::shared). A pattern
// says which rows and taps share pixels (tap_pattern.h). The pixels' offsets are read from a table.
//
//   pixels of a line     x0        x1             x2                       x3                 …
//   rows[0] ×            tap 0     tap 1          tap 2
//   rows[1] ×                      tap 0          tap 1                    tap 2
//   rows[2] ×                                     tap 0                    tap 1              tap 2
//
// If the last vector of columns is at most half full, two rows may share it (MicrokernelSpec::pairs_rows): a register
// takes the quad of a row, and in its upper half the quad of the row below.
//
//   lanes of the last vector     columns 32 … 39 of rows[0] | columns 32 … 39 of rows[1]
//
// Weights come from L2 or beyond, as one stream per panel. Row kernels (row_kernel.h) read panel after panel.
// Hardware prefetchers stop at the end of a page, so each iteration of the loop over several streams fetches a
// line of the next page. Kernels that would wait for weights fetch every line some distance ahead
// (PanelLoop::ahead). Kernels that prefetch also fetch another region for later tiles:
// PrefetchQuadBytes() per quad.
//
// The scheduled variant reads its weights from a strip (scheduled_vectors.h). A group's quads may lie
// anywhere in the rows; the strip holds their indices.
//
// The cut variant multiplies the extra quads of a panel (cut_panels.h) after the depth. Its tiles are one
// panel wide.
//
// A call runs several tiles, one below the other, so that the cost of a call does not dominate short tiles.
// The tiles of a call may also lie at the same place of several lines, with a gap in C between them.
//
// Contract: rows and `b` are readable for whole quads. `compensation` (all three, for kernels at a line's
// end), scales and bias are readable for nr elements. Exactly tiles × mr × nr elements of C are written. No
// alignment is needed. Registers follow the System V ABI.
#ifndef INTACT_KERNELS_CODEGEN_MICROKERNEL_H_
#define INTACT_KERNELS_CODEGEN_MICROKERNEL_H_

#include <compare>
#include <cstdint>
#include <string>
#include <variant>

#include "core/isas.h"
#include "core/result.h"
#include "jit/emitters/dot.h"
#include "jit/function.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/codegen/tap_pattern.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

/// Kernels advance these arguments from tile to tile. Set and read members one by one: copying several at
/// once would wait for their stores.
struct MicrokernelArgs {
  int64_t tiles = 1;                     // number of tiles
  const uint8_t* const* rows = nullptr;  // mr pointers for each tile
  const int64_t* taps = nullptr;         // offsets in bytes of at least one tap
  const int64_t* taps_end = nullptr;
  int64_t tap_bytes = 0;  // bytes of a row in each tap, ≥ one quad
  // For kernels that begin or end lines: a line's first row skips each tap up to head_end, its last row skips
  // each tap from tail_begin on.
  int64_t head_end = 0, tail_begin = 0;
  // If vectors of columns read different activations: `a_offset` is added to taps for the first vector, and
  // `vector_step` again for each further vector.
  int64_t a_offset = 0, vector_step = 0;
  const int64_t* pixel_offsets = nullptr;  // the offset of each column of SharedTaps::pattern
  const void* b = nullptr;                 // panels, or the scheduled variant's strip (scheduled_vectors.h)
  int64_t b_panel_stride_bytes = 0;
  int64_t windows = 0;  // the windows of a strip
  // The cut variant's extra quads: the offsets of their windows in a row of A, and an array of ExtraQuad.
  const int64_t *extras = nullptr, *extras_end = nullptr;
  const void* extra_b = nullptr;
  const void* prefetch = nullptr;  // region that a prefetching kernel brings into L2; any address
  void* c = nullptr;
  int64_t c_stride_bytes = 0;
  // Bytes from the row below a tile to the next tile; 0 if the next tile begins in this row.
  int64_t c_gap_bytes = 0, residual_gap_bytes = 0;
  const int32_t* compensation = nullptr;
  // For kernels that begin lines: the distance from `compensation` to the compensation of a line's first row.
  // For kernels that end lines, the compensation of the last row is twice as far away.
  int64_t compensation_stride_bytes = 0;
  EpilogueArgs epilogue;
};

using MicrokernelFunction = jit::Function<void(MicrokernelArgs*)>;

/// Whether the first row of a tile begins a line, and whether the last row ends a line. These two rows
/// differ, and skip padding.
struct LineEnds {
  bool begins = false, ends = false;
  auto operator<=>(const LineEnds&) const = default;
  std::string Name() const;  // "_begin_end"
};

/// Multiplies the panels of a tile side by side.
struct PanelLoop {
  LineEnds line;
  bool prefetches = false;  // brings MicrokernelArgs::prefetch into L2
  int ahead = 0;  // the distance in bytes at which each line of weights is fetched; 0: a page's first line
  // The last rows of a tile are multiplied after the others, a few quads at a time. At the end of the depth,
  // accumulators of the first rows are stored while the last rows are still multiplied.
  bool in_parts = false;
  auto operator<=>(const PanelLoop&) const = default;
  std::string Name() const;  // "_prefetch_begin_parts"
};

/// Each vector of columns reads different activations. The dot variant has one step.
struct SteppingLoop {
  LineEnds line;
  auto operator<=>(const SteppingLoop&) const = default;
  std::string Name() const;  // "_step_begin"
};

/// A SteppingLoop whose rows share pixels: the taps of a line of the filter. All their quads are unrolled.
struct SharedTaps {
  TapPattern pattern;  // the pattern of a tile's rows
  int quads = 0;       // quads per tap
  auto operator<=>(const SharedTaps&) const = default;
  std::string Name() const;  // "_step_taps3x4_x1_s1"
};

/// The scheduled variant: the windows of a strip. Tiles are one vector wide, and rows have one tap.
struct StripLoop {
  int largest_group = 1;  // items of the schedule's largest group
  int ahead = 0;          // the distance in bytes at which weights are fetched into L2; 0: they are not
  auto operator<=>(const StripLoop&) const = default;
  std::string Name() const;  // "_by4"
};

using MicrokernelLoop = std::variant<PanelLoop, SteppingLoop, SharedTaps, StripLoop>;

struct MicrokernelSpec {
  core::Isa isa = core::Isa::kAvx2;
  jit::DotKind dot = jit::DotKind::kMaddubs;
  jit::DotSigns signs;
  int mr = 1;                 // rows
  int vectors = 1;            // columns, in vectors of the ISA
  int width = kPanelColumns;  // columns of a packed panel; a kernel reads one vector of a narrow panel
  // The last vector has at most half of its columns, and rows share it in pairs. Vnni, zmm registers, a PanelLoop, and an
  // epilogue that masks the last vector.
  bool pairs_rows = false;
  MicrokernelLoop loop;
  EpilogueSpec epilogue;

  int nr() const { return vectors * (jit::VectorBytes(isa) / 4); }
  std::string Name() const;  // "u8s8s32_gemm_8x48c4_vnni_avx512vnni"
  auto operator<=>(const MicrokernelSpec&) const = default;
};

/// Accumulators that hide the latency of vpdpbusd: 5 cycles, two products per cycle.
inline constexpr int kInFlight = 10;

/// Bytes that a prefetching kernel fetches per quad. VNNI multiplies one panel's quad faster than a line
/// arrives from L3. So kernels of one panel fetch half a line, and two tiles fetch one panel. AVX-VNNI on a
/// Xeon with AMX: 1.24 times as fast at 8×4096×4096 as with a line per quad. AVX-512-VNNI: not measured.
constexpr int PrefetchQuadBytes(jit::DotKind dot, int nr) {
  return dot == jit::DotKind::kVnni && nr == kPanelColumns ? 32 : 64;
}

/// The function for `spec`. All callers share it. A CODEGEN_FAILED error names the kernel.
Result<MicrokernelFunction> GetMicrokernel(const MicrokernelSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_MICROKERNEL_H_
