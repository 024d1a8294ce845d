// A runtime B: packed into a thread's scratch in place of a plan's weights, or read where it lies.
#ifndef INTACT_KERNELS_WEIGHTS_RUNTIME_WEIGHTS_H_
#define INTACT_KERNELS_WEIGHTS_RUNTIME_WEIGHTS_H_

#include <cstdint>

#include "kernels/weights/cut_panels.h"
#include "kernels/weights/linear_weights.h"
#include "kernels/weights/per_run_column_constants.h"

namespace intact::kernels {

/// The runtime B of one item, with the strides of LinearWeights::layout(). Scales and zero points: one for each
/// column, or one for all. Zero points are within the range of b_type. If scales or zero points are null, the
/// plan's are used.
struct RuntimeB {
  const int8_t* data = nullptr;
  const float* scales = nullptr;
  bool has_column_scales = false;
  const int32_t* zero_points = nullptr;
  bool has_column_zero_points = false;
};

/// How engines read a runtime B: from panels, from panels that may be cut (cut_panels.h), or where it lies.
enum class RuntimeForm : uint8_t { kPanels, kCutPanels, kUnpacked };

/// What engines read of a runtime B. Arrays are indexed by the columns of C. Only the requested columns are
/// present, padded to whole panels.
struct RuntimeWeights : PerRunColumnConstants {
  const int8_t* panels =
      nullptr;                // canonical (pack.h), or cut; the address of panel 0, also if it is not present
  ExtraQuads extra;           // of cut panels, by panels of C
  bool is_cut = false;        // false: too many quads would be cut, so the panels are canonical
  const int8_t* b = nullptr;  // B where it lies, column 0
  const int32_t* column_sums = nullptr;
  const int32_t* zero_points = nullptr;  // null: no zero points
  // The arrays of this struct that are in scratch, to be written. If B is not packed, FinishColumns() fills them.
  int32_t *own_compensation = nullptr, *own_unshifted_compensation = nullptr, *own_sums = nullptr;
};

/// Bytes of scratch for `columns` columns.
int64_t RuntimeWeightBytes(const LinearWeights& weights, RuntimeForm form, int64_t columns);

/// Packs columns [begin, end) of `b`; `begin` is a multiple of 16. `weights` must outlive the result.
/// `scratch` has the columns from `first` on. With kPanels, several calls may fill one scratch. With
/// kUnpacked, an engine must call FinishColumns() before it reads the columns' values.
RuntimeWeights PackRuntimeB(const LinearWeights& weights, const RuntimeB& b, RuntimeForm form, int64_t first,
                            int64_t begin, int64_t end, uint8_t* scratch) noexcept;

/// The packed columns of `b` in `scratch`: calls of PackRuntimeB() with kPanels and `first` = 0 have filled it.
RuntimeWeights PackedRuntimeB(const LinearWeights& weights, const RuntimeB& b,
                              const uint8_t* scratch) noexcept;

/// Whether values of columns depend on the sums of their weights. Otherwise FinishColumns() may get any sums.
inline bool NeedsColumnSums(const LinearProblem& problem) {
  return problem.ActivationZeroPoint() != 0 || problem.a_shift() != 0 || problem.HasOpenZeroPoint();
}

/// Computes the values of columns [begin, end), rounded to whole panels. `given.own_sums` has the sums of
/// their weights.
void FinishColumns(const LinearWeights& weights, const RuntimeWeights& given, int64_t begin,
                   int64_t end) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_RUNTIME_WEIGHTS_H_
