// The items of a run: where each item's A, B, C and residual are.
#ifndef INTACT_KERNELS_PLANS_BATCH_H_
#define INTACT_KERNELS_PLANS_BATCH_H_

#include <intact/intact.h>

#include <cstdint>

#include "core/result.h"
#include "kernels/problem/linear_problem.h"

namespace intact::kernels {

class Batch {
 public:
  /// `args` have been checked and are not IsEmpty(). The plan's B is k×n. `args` and `problem` outlive the
  /// batch. Dense items become one item with the rows of all items, if in every tensor the next item begins
  /// where the next row would. Single-row items are merged at any stride that keeps them apart.
  Batch(const intact_gemm_args& args, const LinearProblem& problem, int64_t k);

  int64_t items() const { return items_; }
  int64_t m() const { return m_; }  // rows of each item
  int64_t rows() const { return items_ * m_; }
  /// The arguments of item `i` alone; its a_stride is never 0.
  intact_gemm_args Item(int64_t i) const;
  /// How many parts each item is cut into, so that `parts` threads have about equal work.
  int PartsPerItem(int parts) const;

 private:
  const intact_gemm_args& args_;
  const LinearProblem& problem_;
  int64_t items_, m_;
  int64_t a_stride_;  // elements between A's rows; if A is transposed, between its depths
  // Elements from an item to the next item.
  int64_t a_step_, c_step_, residual_step_, b_step_;
  bool joins_rows_ = false;  // single-row items are merged: rows are the steps above apart
};

/// Whether a run has no rows or no items, and so nothing to do.
inline bool IsEmpty(const intact_gemm_args& args) { return args.m == 0 || args.batch == 0; }
/// Checks the number of items and their strides, and that each tensor has either a pointer and strides or an
/// array of pointers. Reads no array. Errors name the argument.
Error CheckBatch(const intact_gemm_args& args, const LinearProblem& problem, int64_t k);
/// Checks the contents of a run's arrays: pointers of items, scales and zero points of B. CheckBatch() has
/// accepted `args`.
Error CheckBatchArrays(const intact_gemm_args& args, const LinearProblem& problem);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_BATCH_H_
