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
  Columns above = {}, below = {};        // pairs that SumPanelByAvx2() counts
};

/// The sums of a panel of 16 columns. A pair is in `above` if its positive weights add up to more than `most`,
/// and in `below` if its negative weights add up to less than `least`. Needs AVX2.
PanelSums SumPanelByAvx2(const PackedWeights& weights, int64_t panel, int16_t most, int16_t least);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_CERTIFIED_PANEL_H_
