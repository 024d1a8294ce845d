// An ordinary convolution as a simpler one with the same outputs: without taps that only padding meets, without
// padding that no tap reads, and with its extents in the inner dimensions.
//
//   7×7, padding 3, on one pixel     ─►  1×1: the other 48 taps see padding in every output
//   3×1 on H×1 pixels                ─►  1×3 on 1×H pixels: the same bytes, but kernels run along lines
#ifndef INTACT_KERNELS_PLANS_CONV_SIMPLIFIED_H_
#define INTACT_KERNELS_PLANS_CONV_SIMPLIFIED_H_

#include "kernels/plans/conv_transposed.h"
#include "kernels/problem/conv_geometry.h"

namespace intact::kernels {

/// The simpler convolution. `geometry` has known extents and is not transposed. A dimension that is open in
/// the plan keeps its taps, so that all its extents give the same taps. `drops_taps`: false if padding
/// changes accumulators.
ConvPhase Simplified(const ConvGeometry& geometry, bool drops_taps);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_SIMPLIFIED_H_
