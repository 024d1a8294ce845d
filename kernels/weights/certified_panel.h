// The sums of a certificate (certificate.h) for one panel, by AVX2.
#ifndef INTACT_KERNELS_WEIGHTS_CERTIFIED_PANEL_H_
#define INTACT_KERNELS_WEIGHTS_CERTIFIED_PANEL_H_

#include <array>
#include <cstdint>

#include "kernels/weights/pack.h"

namespace intact::kernels {

struct PanelSums {
  using Columns = std::array<int64_t, kPanelColumns>;
  Columns positive = {}, negative = {};  // of the weights of each sign
  Columns above = {}, below = {};        // pairs with more than `most`, or less than `least`
};

/// For a panel of 16 columns. Counts a pair if its positive weights add up to more than `most`, or its negative
/// weights to less than `least`. Needs AVX2.
PanelSums SumPanelByAvx2(const PackedWeights& weights, int64_t panel, int16_t most, int16_t least);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_CERTIFIED_PANEL_H_
