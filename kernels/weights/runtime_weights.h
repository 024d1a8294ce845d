// A runtime B, packed into a thread's scratch in place of a plan's weights.
#ifndef INTACT_KERNELS_WEIGHTS_RUNTIME_WEIGHTS_H_
#define INTACT_KERNELS_WEIGHTS_RUNTIME_WEIGHTS_H_

#include <cstdint>

#include "kernels/weights/linear_weights.h"
#include "kernels/weights/run_columns.h"

namespace intact::kernels {

/// The runtime B of one item: B with the strides of LinearWeights::layout(); scales, and zero points in
/// b_type, one for each column or one for all. If scales or zero points are null, the
/// plan's are used.
struct RuntimeB {
  const int8_t* data = nullptr;
  const float* scales = nullptr;
  bool has_column_scales = false;
  const int32_t* zero_points = nullptr;
  bool has_column_zero_points = false;
};

/// What engines read of a runtime B. Arrays are indexed by the columns of C. Only the requested columns are
/// present, padded to whole panels.
struct RuntimeWeights : RunColumns {
  const int8_t* panels = nullptr;  // canonical (pack.h)
  const int32_t* column_sums = nullptr;
  const int32_t* zero_points = nullptr;  // null: no zero points
};

/// Bytes of scratch that PackRuntimeB() takes.
int64_t RuntimeWeightBytes(const LinearWeights& weights);

/// Packs columns [begin, end) of `b`. `weights` come from LinearWeights::OfRuntimeB() and must outlive the
/// result.
RuntimeWeights PackRuntimeB(const LinearWeights& weights, const RuntimeB& b, int64_t begin, int64_t end,
                            uint8_t* scratch) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_RUNTIME_WEIGHTS_H_
