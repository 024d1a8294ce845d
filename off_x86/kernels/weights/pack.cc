// kernels/weights/pack.h by loops over elements.
#include "kernels/weights/pack.h"

#include <algorithm>
#include <cstdlib>

namespace intact::kernels {

bool PackWeights(const WeightView& b, PackedWeights* packed) noexcept {
  *packed = PackedWeights(b.k, b.n);
  if (!packed->owned.Resize(static_cast<size_t>(packed->bytes()))) return false;
  packed->data = packed->owned.data();
  PackPanels(b, *packed, packed->owned.data());
  return true;
}

void PackPanels(const WeightView& b, const PackedWeights& sizes, int8_t* panels) noexcept {
  std::memset(panels, 0, static_cast<size_t>(sizes.bytes()));
  for (int64_t n = 0; n < b.n; ++n) {
    int8_t* const panel = panels + n / kPanelColumns * sizes.panel_stride_bytes();
    for (int64_t k = 0; k < b.k; ++k) {
      panel[OffsetInPanel(k, n % kPanelColumns, sizes.quad_bytes())] = b.At(k, n);
    }
  }
}

void CopyDepths(const PackedWeights& weights, int64_t k, int64_t n, int64_t count, int8_t* to) noexcept {
  for (int64_t i = 0; i < count; ++i) to[i] = weights.At(k + i, n);
}

void CopyColumns(const PackedWeights& weights, int8_t* to) noexcept {
  for (int64_t n = 0; n < weights.n; ++n) CopyDepths(weights, 0, n, weights.k, to + n * weights.k);
}

void AddDepths(const PackedWeights& weights, int64_t k_begin, int64_t k_end, uint32_t* sums) noexcept {
  for (int64_t n = 0; n < weights.n; ++n) {
    const int8_t* const column = weights.Panel(n / kPanelColumns);
    for (int64_t k = k_begin; k < k_end; ++k) {
      sums[n] += static_cast<uint32_t>(column[OffsetInPanel(k, n % kPanelColumns, weights.quad_bytes())]);
    }
  }
}

uint8_t PackActivations(std::span<const uint8_t* const> rows, int64_t offset, int64_t k, uint8_t shift,
                        int64_t panel_rows, uint8_t* panel) noexcept {
  uint8_t largest = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    uint8_t* to = panel + static_cast<int64_t>(row) * kQuad;
    for (int64_t depth = 0; depth < k; depth += kQuad, to += panel_rows * kQuad) {
      const uint32_t quad = FirstQuad(rows[row] + offset + depth, k - depth, shift);
      std::memcpy(to, &quad, sizeof(quad));
      largest = std::max(largest, *std::max_element(to, to + kQuad));
    }
  }
  return largest;
}

void CopyActivations(const uint8_t* a, int64_t count, uint8_t shift, uint8_t* to) noexcept {
  for (int64_t i = 0; i < count; ++i) to[i] = a[i] ^ shift;
}

void StageRow(const uint8_t* a, int64_t k, uint8_t shift, uint8_t* staged) noexcept {
  if (k % kQuad != 0) std::memset(staged + k / kQuad * kQuad, 0, kQuad);
  CopyActivations(a, k, shift, staged);
}

StageFunction StageFor(jit::DotKind /*dot*/, core::Isa /*isa*/) { return StageRow; }

bool HasAvx2() { return false; }
bool HasAvx512() { return false; }

// For generated kernels only.
bool WidePanels::Widen(const PackedWeights& /*weights*/, int64_t /*tap_depth*/) noexcept { std::abort(); }
int64_t WidePanels::TapPairs(const PackedWeights& /*weights*/, int64_t /*tap_depth*/) noexcept {
  std::abort();
}

}  // namespace intact::kernels
