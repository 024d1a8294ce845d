// Weights that a run gives, packed into a thread's scratch in place of a plan's.
#ifndef INTACT_KERNELS_WEIGHTS_GIVEN_WEIGHTS_H_
#define INTACT_KERNELS_WEIGHTS_GIVEN_WEIGHTS_H_

#include <cstdint>

#include "kernels/weights/linear_weights.h"
#include "kernels/weights/run_columns.h"

namespace intact::kernels {

/// What a run gives of one item: B, laid out as LinearWeights::layout() tells, and for all of its columns a
/// scale and a zero point in b_type, or null: the plan's.
struct GivenB {
  const int8_t* data = nullptr;
  const float* scale = nullptr;
  const int32_t* zero_point = nullptr;
};

/// What engines read of them. Columns count from those of C; only those that were asked for are there, and
/// the rest of their panels.
struct GivenWeights : RunColumns {
  const int8_t* panels = nullptr;  // canonical (pack.h)
  const int32_t* column_sums = nullptr;
  const int32_t* zero_points = nullptr;  // where there may be any
};

/// Scratch that PackGiven() takes.
int64_t GivenBytes(const LinearWeights& weights);

/// Packs columns [begin, end) of `b`. `weights` are LinearWeights::Given(), and live as long as what comes
/// out.
GivenWeights PackGiven(const LinearWeights& weights, const GivenB& b, int64_t begin, int64_t end,
                       uint8_t* scratch) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_GIVEN_WEIGHTS_H_
