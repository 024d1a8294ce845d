// A run's own constants for the columns of C, in place of the plan's constants. A run computes them for a
// runtime B (runtime_weights.h), or from the zero point and the scale of A.
//
// If a run has one zero point and one scale for all of A, the kernels of static plans are used. For a
// column with sum Σ_k (b − zb), accumulators start za·sum lower, and the scale is a_scale·scales[n].
#ifndef INTACT_KERNELS_WEIGHTS_PER_RUN_COLUMN_CONSTANTS_H_
#define INTACT_KERNELS_WEIGHTS_PER_RUN_COLUMN_CONSTANTS_H_

#include <cstdint>

namespace intact::kernels {

/// Arrays are indexed by the columns of C.
struct PerRunColumnConstants {
  const int32_t* compensation = nullptr;            // as LinearWeights::compensation()
  const int32_t* unshifted_compensation = nullptr;  // `compensation` without the u8 shift
  const int32_t* skipping_compensation = nullptr;   // KernelData::skipping_compensation[i].columns, adjacent
  const void* factors = nullptr;                    // scales or multipliers: see LinearProblem::Factors()
  bool has_scale = true;                            // false: all outputs are NaNs
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_PER_RUN_COLUMN_CONSTANTS_H_
