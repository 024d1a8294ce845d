// Panels for the maddubs sequence, exact for all weights: if a pair of a quad's weights adds up to more than
// int16 sums allow, the quad is cut. The cut quad keeps weights that fit. An extra quad gets the excess:
//
//   quad   n0: 127  3 | n1: 100 100 | …        quad   n0: 125  3 | n1:  28 100 | …     (at most 128 per pair)
//                                        ─►    extra  n0:   2  0 | n1:  72   0 | …
//
// Few columns of a quad have an excess. So an extra quad has a window of eight quads. In each column, it
// holds the excess of one quad of the window. Kernels take each column's activations from the window by
// vpermd. Kernels multiply the extra quads of a panel after its quads. Cutting takes only one pass over the
// panels, so it is used for a runtime B. Constant weights are scheduled instead (schedule.h).
#ifndef INTACT_KERNELS_WEIGHTS_CUT_PANELS_H_
#define INTACT_KERNELS_WEIGHTS_CUT_PANELS_H_

#include <array>
#include <cstdint>

#include "kernels/weights/pack.h"

namespace intact::kernels {

/// Quads of the window of an extra quad. Panels that are cut have at least this number of quads.
inline constexpr int64_t kWindowQuads = 8;

/// The excess of one quad of the window in each column.
struct ExtraQuad {
  std::array<int8_t, kPanelQuadBytes> weights;
  std::array<int32_t, kPanelColumns> quads;  // of each column; 0 to kWindowQuads − 1
};

/// The extra quads of adjacent panels.
struct ExtraQuads {
  int64_t* begins = nullptr;   // [panels + 1]: panel p has extra quads begins[p] to begins[p + 1] − 1
  int64_t* offsets = nullptr;  // of each extra quad: bytes from a row of A to the window
  ExtraQuad* quads = nullptr;
};

/// Cuts the panels of `sizes` for activations up to `amax`. The panels are 16 columns wide. If there would be
/// more than `most` extra quads, or if the first windows have too many extra quads, returns false and leaves
/// the panels unchanged. `extra` has memory for `most` extra quads. The CPU has AVX2.
bool CutPanels(const PackedWeights& sizes, int amax, int64_t most, int8_t* panels,
               const ExtraQuads& extra) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_CUT_PANELS_H_
