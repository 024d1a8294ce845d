// The items of a run: where each has its part of A, of C and of the residual.
#ifndef INTACT_KERNELS_PLANS_BATCH_H_
#define INTACT_KERNELS_PLANS_BATCH_H_

#include <intact/intact.h>

#include <cstdint>

#include "core/result.h"
#include "kernels/problem/linear_problem.h"

namespace intact::kernels {

class Batch {
 public:
  /// `args` are checked, not IsEmpty(), and to a plan whose B is k×n; they and `problem` outlive the batch.
  /// Items whose rows follow one another at one distance, of A and of all else, are joined: they are one item
  /// of all the rows. So do those of one row, whatever the distance.
  Batch(const intact_gemm_args& args, const LinearProblem& problem, int64_t k);

  int64_t items() const { return items_; }
  int64_t m() const { return m_; }  // rows of each
  int64_t rows() const { return items_ * m_; }
  /// The arguments of item `i` alone; its a_stride is never 0.
  intact_gemm_args Item(int64_t i) const;
  /// How many parts each item is cut into, so that `parts` threads have about as much to do each.
  int PartsPerItem(int parts) const;

 private:
  const intact_gemm_args& args_;
  const LinearProblem& problem_;
  int64_t items_, m_;
  int64_t a_stride_;  // elements between A's rows, or its depths where it is transposed
  // Elements from an item to the next.
  int64_t a_step_, c_step_, residual_step_, b_step_;
  bool joins_rows_ = false;  // which are those steps apart
};

/// Whether a run has no rows, or no items: then there is nothing to do.
inline bool IsEmpty(const intact_gemm_args& args) { return args.m == 0 || args.batch == 0; }
/// How many items a run has, and that they are told in one way. Reads no array. Errors name the argument.
Error CheckBatch(const intact_gemm_args& args, const LinearProblem& problem, int64_t k);
/// What the arrays of a run hold that CheckBatch() takes: pointers of items, scales and zero points of Bs.
Error CheckBatchArrays(const intact_gemm_args& args, const LinearProblem& problem);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_BATCH_H_
