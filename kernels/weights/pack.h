// Packing: the one canonical layout of weights, and panels of activations.
//
//   B   [n/16][k/4][16][4]   panels of 16 columns; a quad's row is 64 bytes: one zmm, two ymm, or one row
//                            of an AMX B tile, with no further shuffle. Columns are padded with zeros to
//                            16, depth to 64.
//       [k/4][w][4]          the only panel of a matrix of at most 8 columns, w = 1, 2, 4 or 8: padding to
//                            16 would multiply its memory. Kernels still read 16 columns: columns beyond
//                            w are the next quads, and their results are dropped, as with padding. A line
//                            of zeros follows the last quad, so that kernels can read 16 columns there.
//   A   [k/4][rows][4]       a panel of up to mr rows as u8; depth is padded with zeros to 4
//
// A and B are as kernels see them: operands.h.
#ifndef INTACT_KERNELS_WEIGHTS_PACK_H_
#define INTACT_KERNELS_WEIGHTS_PACK_H_

#include <intact/intact.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/isas.h"
#include "jit/emitters/dot.h"
#include "kernels/problem/operands.h"
#include "kernels/runtime/aligned_buffer.h"

namespace intact::kernels {

/// A quad of a panel of 16 columns: one zmm, two ymm, or one row of an AMX B tile. In any panel, this number
/// of bytes is readable from the beginning of each quad.
inline constexpr int kPanelQuadBytes = kPanelColumns * kQuad;

/// Columns that the panels of a matrix of n columns hold.
constexpr int PanelWidth(int64_t n) {
  return n > kPanelColumns / 2 ? kPanelColumns : static_cast<int>(std::bit_ceil(static_cast<uint64_t>(n)));
}

/// The suffix of kernels that read narrow panels, for example "_of4"; else "".
inline std::string NarrowName(int width) {
  return width == kPanelColumns ? "" : "_of" + std::to_string(width);
}

/// The offset of depth k of column n in a panel with quads `quad_bytes` apart.
constexpr int64_t OffsetInPanel(int64_t k, int64_t n, int64_t quad_bytes) {
  return k / kQuad * quad_bytes + n * kQuad + k % kQuad;
}

/// Canonical B panels, in their own memory or in a mapped pack file.
struct PackedWeights {
  PackedWeights() = default;
  /// Sizes without data.
  PackedWeights(int64_t depth, int64_t columns) : k(depth), n(columns), width(PanelWidth(columns)) {}

  int64_t k = 0, n = 0;
  int width = kPanelColumns;  // columns of a panel
  const int8_t* data = nullptr;
  AlignedBuffer<int8_t> owned;  // the memory of `data`, unless it is borrowed

  int64_t panels() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  /// Quads that kernels must run; later quads are padding.
  int64_t quads() const { return (k + kQuad - 1) / kQuad; }
  int quad_bytes() const { return width * kQuad; }  // from a quad of a panel to the next
  int64_t panel_stride_bytes() const { return (k + 63) / 64 * 64 * width; }
  int64_t bytes() const {
    return panels() * panel_stride_bytes() + (width == kPanelColumns ? 0 : kPanelQuadBytes);
  }
  const int8_t* Panel(int64_t panel) const { return data + panel * panel_stride_bytes(); }
  int8_t At(int64_t row, int64_t column) const {
    return Panel(column / kPanelColumns)[OffsetInPanel(row, column % kPanelColumns, quad_bytes())];
  }
};

/// Panels of int16 for the wide dot variant. A pair of depths takes the place of a quad. The last pairs of
/// the taps are left out if their weights are 0 in all taps and columns:
///
///   [n/16][taps][pairs of a tap][16][2], or [taps][pairs of a tap][w][2]
class WidePanels {
 public:
  /// Taps of `tap_depth` depths follow each other in the depth. False if memory ran out.
  [[nodiscard]] bool Widen(const PackedWeights& weights, int64_t tap_depth) noexcept;
  /// The pairs of a tap that Widen() does not leave out.
  static int64_t TapPairs(const PackedWeights& weights, int64_t tap_depth) noexcept;
  int64_t tap_depth() const { return tap_depth_; }
  int64_t tap_pairs() const { return tap_pairs_; }
  int64_t panel_stride_bytes() const { return panel_stride_bytes_; }
  int64_t bytes() const { return static_cast<int64_t>(words_.bytes()); }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(words_.data()); }

 private:
  int64_t tap_depth_ = 0, tap_pairs_ = 0, panel_stride_bytes_ = 0;
  AlignedBuffer<int16_t> words_;
};

/// Whether this machine has AVX2 or AVX-512, independent of the plan's ISA. Compiled code that prepares
/// weights and rows needs to know.
bool HasAvx2();
bool HasAvx512();

/// False if memory ran out.
[[nodiscard]] bool PackWeights(const WeightView& b, PackedWeights* packed) noexcept;

/// Writes the panels of `b`: sizes.bytes() bytes, if `sizes` has b's k and n.
void PackPanels(const WeightView& b, const PackedWeights& sizes, int8_t* panels) noexcept;

/// Copies the weights of column n at depths [k, k + count) to `to`.
void CopyDepths(const PackedWeights& weights, int64_t k, int64_t n, int64_t count, int8_t* to) noexcept;

/// Copies all columns to `to`, `weights.k` bytes each.
void CopyColumns(const PackedWeights& weights, int8_t* to) noexcept;

/// Adds to sums[n] the weights of column n at depths [k_begin, k_end): whole quads, modulo 2³². `sums` are
/// padded to 16 columns; sums beyond n are undefined.
void AddDepths(const PackedWeights& weights, int64_t k_begin, int64_t k_end, uint32_t* sums) noexcept;

/// Packs `k` activations at `offset` of each of `rows` into a panel of `panel_rows` ≥ rows.size() rows. The
/// panel's other rows are not written. `shift` is ActivationShift(). Returns the largest activation packed,
/// after the shift.
uint8_t PackActivations(std::span<const uint8_t* const> rows, int64_t offset, int64_t k, uint8_t shift,
                        int64_t panel_rows, uint8_t* panel) noexcept;

/// Copies `count` activations, shifted like PackActivations().
void CopyActivations(const uint8_t* a, int64_t count, uint8_t shift, uint8_t* to) noexcept;

/// The first four of `count` activations as a dword, shifted like PackActivations(), and zeros if there are
/// fewer.
inline uint32_t FirstQuad(const uint8_t* a, int64_t count, uint8_t shift) noexcept {
  constexpr uint32_t kEveryByte = 0x01010101;
  uint32_t quad = 0;
  if (count >= kQuad) {
    std::memcpy(&quad, a, sizeof(quad));
    return quad ^ (shift * kEveryByte);
  }
  for (int64_t i = 0; i < count; ++i) quad |= static_cast<uint32_t>(a[i] ^ shift) << (8 * i);
  return quad;
}

/// Copies a row of `k` activations, padded with zeros to whole quads, and shifts it like PackActivations().
void StageRow(const uint8_t* a, int64_t k, uint8_t shift, uint8_t* staged) noexcept;

/// StageRow() for the wide dot variant: each activation becomes an int16, and rows are padded to whole pairs.
/// Needs AVX2.
void StageWide(const uint8_t* a, int64_t k, uint8_t shift, uint8_t* staged) noexcept;
/// Needs AVX-512.
void StageWideByAvx512(const uint8_t* a, int64_t k, uint8_t shift, uint8_t* staged) noexcept;

/// StageRow() for the split dot variant. Each activation a = 16·h + l becomes two bytes: a0 a1 a2 a3 → l0 l1
/// l2 l3 | h0 h1 h2 h3. Needs AVX2.
void StageSplit(const uint8_t* a, int64_t k, uint8_t shift, uint8_t* staged) noexcept;

/// The function that stages a row for kernels of variant `dot` on `isa`. The function uses AVX-512 only if
/// `isa` does.
using StageFunction = void (*)(const uint8_t* a, int64_t k, uint8_t shift, uint8_t* staged) noexcept;
StageFunction StageFor(jit::DotKind dot, core::Isa isa);

inline int64_t ActivationPanelBytes(int64_t rows, int64_t k) { return (k + 3) / 4 * 4 * rows; }

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_PACK_H_
