// Constants of columns that a run makes for itself, in place of its plan's: of weights that it gives
// (runtime_weights.h), or of the zero point and the scale of A.
//
// Where a run gives one zero point and one scale for all of A, kernels stay those of static plans. With a
// column's sum Σ_k (b − zb), accumulators start za·sum lower, and the column's scale is a_scale·scales[n].
#ifndef INTACT_KERNELS_WEIGHTS_RUN_COLUMNS_H_
#define INTACT_KERNELS_WEIGHTS_RUN_COLUMNS_H_

#include <cstdint>

namespace intact::kernels {

/// Columns count from those of C.
struct RunColumns {
  const int32_t* compensation = nullptr;            // LinearWeights::compensation()
  const int32_t* unshifted_compensation = nullptr;  // UnshiftCompensation()
  const int32_t* skipping_compensation = nullptr;   // GemmData::skipping_compensation, one after the other
  const void* factors = nullptr;                    // LinearProblem::Factors()
  bool has_scale = true;                            // else outputs are NaNs
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_RUN_COLUMNS_H_
