// Packing: the one canonical layout of weights, and panels of activations.
//
//   B   [n/16][k/4][16][4]   panels of 16 columns; a quad's row is 64 bytes: one zmm, two ymm, or one row
//                            of an AMX B tile, with no further shuffle. Columns are padded with zeros to
//                            16, depth to 64.
//   A   [k/4][rows][4]       a panel of up to mr rows as u8; depth is padded with zeros to 4
//
// Both are as kernels see them: operands.h.
#ifndef INTACT_KERNELS_WEIGHTS_PACK_H_
#define INTACT_KERNELS_WEIGHTS_PACK_H_

#include <intact/intact.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "jit/emitters/dot.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/problem/operands.h"

namespace intact::kernels {

/// A quad of a panel: one zmm, two ymm, or one row of an AMX B tile.
inline constexpr int kPanelQuadBytes = kPanelColumns * kQuad;

/// Where depth k of column n of a panel lies in it.
constexpr int64_t OffsetInPanel(int64_t k, int64_t n) {
  return k / kQuad * kPanelQuadBytes + n * kQuad + k % kQuad;
}

/// Canonical B panels, in memory of their own or in a mapped pack file.
struct PackedWeights {
  int64_t k = 0, n = 0;
  const int8_t* data = nullptr;
  AlignedBuffer<int8_t> owned;  // what `data` points to, unless it is borrowed

  int64_t panels() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  int64_t quads() const { return (k + kQuad - 1) / kQuad; }  // those a kernel must run; the rest is padding
  int64_t panel_stride_bytes() const { return (k + 63) / 64 * 64 * kPanelColumns; }
  int64_t bytes() const { return panels() * panel_stride_bytes(); }
  const int8_t* Panel(int64_t panel) const { return data + panel * panel_stride_bytes(); }
  int8_t At(int64_t row, int64_t column) const {
    return Panel(column / kPanelColumns)[OffsetInPanel(row, column % kPanelColumns)];
  }
};

/// A form of weights that the panels can be made from again.
class PanelSource {
 public:
  virtual ~PanelSource() = default;
  PanelSource() = default;
  PanelSource(const PanelSource&) = default;
  PanelSource& operator=(const PanelSource&) = default;
  PanelSource(PanelSource&&) = default;
  PanelSource& operator=(PanelSource&&) = default;
  /// Adds the weights to `panels`, zeros of the form that PackedWeights has.
  virtual void AddTo(int8_t* panels, int64_t panel_stride_bytes) const noexcept = 0;
};

/// False if memory ran out.
[[nodiscard]] bool PackWeights(const WeightView& b, PackedWeights* packed) noexcept;

/// Writes the panels of `b`, as many bytes as PackedWeights has of its sizes.
void PackPanels(const WeightView& b, int8_t* panels) noexcept;

/// Copies the weights of column n at depths [k, k + count) to `to`.
void CopyDepths(const PackedWeights& weights, int64_t k, int64_t n, int64_t count, int8_t* to) noexcept;

/// Adds to sums[n] the weights of column n at depths [k_begin, k_end): whole quads, modulo 2³². `sums` are
/// padded to whole panels.
void AddDepths(const PackedWeights& weights, int64_t k_begin, int64_t k_end, uint32_t* sums) noexcept;

/// Packs `k` activations at `offset` of each of `rows` into a panel for `panel_rows` ≥ rows.size(); the rows
/// beyond are left as they are. `flip` is ActivationFlip(). Returns the largest activation packed, after the
/// shift.
uint8_t PackActivations(std::span<const uint8_t* const> rows, int64_t offset, int64_t k, uint8_t flip,
                        int64_t panel_rows, uint8_t* panel) noexcept;

/// Copies `count` activations, shifted like PackActivations().
void CopyActivations(const uint8_t* a, int64_t count, uint8_t flip, uint8_t* to) noexcept;

/// The first four of `count` activations as a dword, shifted like PackActivations(); zeros for those that
/// are not there.
inline uint32_t FirstQuad(const uint8_t* a, int64_t count, uint8_t flip) noexcept {
  constexpr uint32_t kEveryByte = 0x01010101;
  uint32_t quad = 0;
  if (count >= kQuad) {
    std::memcpy(&quad, a, sizeof(quad));
    return quad ^ (flip * kEveryByte);
  }
  for (int64_t i = 0; i < count; ++i) quad |= static_cast<uint32_t>(a[i] ^ flip) << (8 * i);
  return quad;
}

/// Copies a row of `k` activations, padded with zeros to whole quads, and shifts it like PackActivations().
void StageRow(const uint8_t* a, int64_t k, uint8_t flip, uint8_t* staged) noexcept;

/// The same spread to int16 for the wide dot form: a0 a1 a2 a3 → a0 a2 | a1 a3, twice the bytes.
void StageWide(const uint8_t* a, int64_t k, uint8_t flip, uint8_t* staged) noexcept;

/// The same taken apart for the split dot form, a = 16·h + l: a0 a1 a2 a3 → l0 l1 l2 l3 | h0 h1 h2 h3, twice
/// the bytes.
void StageSplit(const uint8_t* a, int64_t k, uint8_t flip, uint8_t* staged) noexcept;

/// What stages a row as kernels of form `dot` read it.
using StageFunction = void (*)(const uint8_t* a, int64_t k, uint8_t flip, uint8_t* staged) noexcept;
constexpr StageFunction StageFor(jit::DotKind dot) {
  return dot == jit::DotKind::kWide ? StageWide : dot == jit::DotKind::kSplit ? StageSplit : StageRow;
}

inline int64_t ActivationPanelBytes(int64_t rows, int64_t k) { return (k + 3) / 4 * 4 * rows; }

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_PACK_H_
