// The weights of a linear problem: packed, certified, and proven to keep accumulators within int32, unless
// accumulators may wrap. These weights do not depend on engines, extents or register blocks, so plans of any
// size share them.
#ifndef INTACT_KERNELS_WEIGHTS_LINEAR_WEIGHTS_H_
#define INTACT_KERNELS_WEIGHTS_LINEAR_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/result.h"
#include "kernels/problem/linear_problem.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/weights/certificate.h"
#include "kernels/weights/lazy_schedule.h"
#include "kernels/weights/pack.h"
#include "kernels/weights/schedule_records.h"

namespace intact::kernels {

/// What messages call the weights and their columns.
struct Naming {
  const char* column = "column";
  const char* weights = "b";
  int64_t first_column = 0;
  int64_t depth = 0;  // 0: k
};

class LinearWeights {
 public:
  /// Packs `b`. `pairs_saturate`: whether int16 pair sums saturate in the kernels that use these weights.
  /// Errors: OVERFLOW (names the column), OUT_OF_MEMORY.
  static Result<std::shared_ptr<const LinearWeights>> Pack(LinearProblem problem, const WeightView& b,
                                                           const Naming& naming, bool pairs_saturate);
  /// Uses packed panels and their certificate. `mapping` keeps the panels' memory alive. If `mapping` is
  /// null, the caller keeps the memory alive until OwnPanels().
  static Result<std::shared_ptr<const LinearWeights>> Borrow(LinearProblem problem, PackedWeights packed,
                                                             Certificate certificate,
                                                             std::shared_ptr<const void> mapping,
                                                             const Naming& naming, bool pairs_saturate);
  /// Copies borrowed panels, unless they are dropped or a mapping keeps them. Not thread-safe. OUT_OF_MEMORY.
  Error OwnPanels() const;

  /// For a runtime B with the strides of `layout`: sizes, and bounds for the worst weights. Errors: OVERFLOW,
  /// OUT_OF_MEMORY.
  static Result<std::shared_ptr<const LinearWeights>> OfRuntimeB(LinearProblem problem,
                                                                 const WeightView& layout);

  const LinearProblem& problem() const { return problem_; }
  int64_t n() const { return problem_.n; }
  int64_t k() const { return packed_.k; }
  /// The panels; without data while they are dropped.
  const PackedWeights& packed() const { return packed_; }
  /// The panels, or a rebuilt copy while they are dropped. Thread-safe. OUT_OF_MEMORY.
  Result<std::shared_ptr<const PackedWeights>> Panels() const;
  /// Frees the panels' memory as soon as all schedules are found: no kernel reads them, and `source` holds the
  /// weights. The weights' values do not change. Not thread-safe, like RestorePanels().
  void DropPanels(std::shared_ptr<const LazySchedule> source) const;
  /// Frees the memory of dropped panels, unless a schedule must still be found. Thread-safe.
  void FreeUnreadPanels() const noexcept;
  /// Rebuilds dropped panels for kernels that read them. OUT_OF_MEMORY.
  Error RestorePanels() const;
  /// The strides of a runtime B. `data` is not set.
  const WeightView& layout() const { return layout_; }
  const Certificate& certificate() const { return certificate_; }
  /// Schedules of these weights that plans have estimated or made.
  ScheduleRecords& schedules() const { return schedules_; }
  /// Makes a schedule: `Made` is ScheduledWeights or ScheduledVectors. If a held record has its order, the schedule is
  /// restored at once. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT (the order is not one of these weights). Throws
  /// std::bad_alloc.
  template <class Made>
  Result<std::shared_ptr<LazyScheduleOf<Made>>> MakeSchedule(const ScheduleSpec& spec) const;
  /// The compensation of each column: bias_s32 − za·Σ_k (b − zb), with A and B as kernels see them. Padded to
  /// whole panels. For a runtime B, only the bias.
  const AlignedBuffer<int32_t>& compensation() const { return compensation_; }
  /// Writes the compensation of a run that gives A's zero point, `zero_point` in a_type, to `to`.
  void CompensationOf(int32_t zero_point, int32_t* to) const noexcept;
  /// Σ_k (b − zb) of each column, as kernels see it, padded to whole panels. Empty unless only runs know A's
  /// zero point.
  const AlignedBuffer<int32_t>& column_sums() const { return column_sums_; }
  /// The largest |float(y)·scale + bias| over all admissible activations.
  double largest_output() const { return largest_output_; }
  /// Memory of the panels, unless they are dropped, and of the columns' values.
  int64_t bytes() const;

 private:
  LinearWeights() = default;
  Error BoundAccumulators();
  Error BoundRuntimeB();
  /// The error of column `n` of `what`: its sums reach `sum`, beyond int32. If the products alone are within
  /// int32, the message names the bias.
  Error Overflow(int64_t n, int64_t sum, const std::string& what) const;
  Error BoundColumn(int64_t n, const ColumnParts& parts, ActivationRange admissible);

  LinearProblem problem_;
  Naming naming_;
  WeightView layout_;
  mutable PackedWeights packed_;
  mutable std::mutex freeing_;                              // of packed_
  mutable std::shared_ptr<const LazySchedule> dropped_to_;  // null: panels are kept
  std::shared_ptr<const void> mapping_;
  Certificate certificate_;
  mutable ScheduleRecords schedules_;
  AlignedBuffer<int32_t> compensation_;
  AlignedBuffer<int32_t> column_sums_;
  double largest_output_ = 0;
  bool pairs_saturate_ = false;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_LINEAR_WEIGHTS_H_
