#include "kernels/weights/certified_panel.h"

#include <cstdlib>

namespace intact::kernels {

PanelSums SumPanelByAvx2(const PackedWeights& /*weights*/, int64_t /*panel*/, int16_t /*most*/,
                         int16_t /*least*/) {
  std::abort();  // needs AVX2
}

}  // namespace intact::kernels
