// Weights that a run gives, packed into a thread's scratch in place of a plan's.
#ifndef INTACT_KERNELS_WEIGHTS_GIVEN_WEIGHTS_H_
#define INTACT_KERNELS_WEIGHTS_GIVEN_WEIGHTS_H_

#include <cstdint>

#include "kernels/weights/linear_weights.h"
#include "kernels/weights/run_columns.h"

namespace intact::kernels {

/// What a run gives of one item: B, laid out as LinearWeights::layout() tells; scales, and zero points in
/// b_type, one for each column or one for all, or null: the plan's.
struct RuntimeB {
  const int8_t* data = nullptr;
  const float* scales = nullptr;
  bool has_column_scales = false;
  const int32_t* zero_points = nullptr;
  bool has_column_zero_points = false;
};

/// What engines read of them. Columns count from those of C; only those that were asked for are there, and
/// the tail of their panels.
struct RuntimeWeights : RunColumns {
  const int8_t* panels = nullptr;  // canonical (pack.h)
  const int32_t* column_sums = nullptr;
  const int32_t* zero_points = nullptr;  // where there may be any
};

/// Scratch that PackRuntimeB() takes.
int64_t RuntimeWeightBytes(const LinearWeights& weights);

/// Packs columns [begin, end) of `b`. `weights` are LinearWeights::OfRuntimeB(), and live as long as what comes
/// out.
RuntimeWeights PackRuntimeB(const LinearWeights& weights, const RuntimeB& b, int64_t begin, int64_t end,
                            uint8_t* scratch) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_GIVEN_WEIGHTS_H_
