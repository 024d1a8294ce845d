// The items of a run: where each item's A, B, C and residual are.
#ifndef INTACT_KERNELS_PLANS_BATCH_H_
#define INTACT_KERNELS_PLANS_BATCH_H_

#include <intact/intact.h>

#include <cstdint>
#include <limits>
#include <string>

#include "core/result.h"
#include "kernels/problem/checks.h"
#include "kernels/problem/linear_problem.h"

namespace intact::kernels {

/// a·b, or the largest int64 if a·b overflows: strides may be anything until they are checked.
inline int64_t Times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

/// a + b, or the largest int64 if a + b overflows; b is not negative.
inline int64_t Plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

/// Where the rows and the items of a tensor lie, in elements.
struct ItemSteps {
  int64_t columns;    // of a row; the largest int64 if a row's elements are not adjacent (transposed A)
  int64_t row, item;  // from a row to the next, and from an item to the next
  /// The steps of items of `m` rows. Strides of 0 are dense.
  static ItemSteps Of(int64_t m, int64_t columns, int64_t row_stride, int64_t item_stride) {
    const int64_t row = row_stride == 0 ? columns : row_stride;
    return {columns, row, item_stride == 0 ? Times(m, row) : item_stride};
  }
};

/// Whether the items of a run can be joined into one. First case: in every tensor, the next item begins where
/// the next row would begin. Second case: items have one row and do not overlap. In the second case the item
/// stride becomes the row stride.
template <class... Tensors>
bool JoinItems(int64_t m, Tensors*... tensors) {
  if (((tensors->item == Times(m, tensors->row)) && ...)) return true;
  if (m != 1 || !((tensors->item >= tensors->columns) && ...)) return false;
  ((tensors->row = tensors->item), ...);
  return true;
}

/// Checks that `batch` and m·batch are at most 2^31 − 1. The caller has checked `m`.
inline Error CheckItemNumbers(int64_t m, int64_t batch) {
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
  if (batch < 0 || batch > kMostRows) {
    return Refuse([=] { return Unexpected("batch", batch, "0 to 2147483647"); });
  }
  if (m * batch <= kMostRows) return {};
  return Refuse([=] { return Unexpected("m·batch", m * batch, "at most 2147483647"); });
}
/// Checks that items of `c` do not overlap. `given`: the stride of the caller, for the message.
inline Error CheckItemsApart(const ItemSteps& c, int64_t m, int64_t batch, int64_t given) {
  // Items follow each other, or alternate row by row.
  const int64_t item = Plus(Times(m - 1, c.row), c.columns);
  const bool alternate =
      c.item >= c.columns && (m == 1 || c.row >= Plus(Times(batch - 1, c.item), c.columns));
  if (c.item >= item || alternate) return {};
  return Refuse([=] {
    return Unexpected("c_batch_stride", given,
                      "0 or at least " + std::to_string(item) + ", because items of c must not overlap");
  });
}

/// Where item `i` begins: items are `step` elements of `bytes` bytes apart. Addresses wrap. Null for null.
template <class Pointer>
Pointer* ItemAt(Pointer* base, int64_t i, int64_t step, int bytes) {
  if (base == nullptr) return base;
  const uint64_t offset =
      static_cast<uint64_t>(i) * static_cast<uint64_t>(step) * static_cast<uint64_t>(bytes);
  const uintptr_t address = reinterpret_cast<uintptr_t>(base) + offset;
  return reinterpret_cast<Pointer*>(address);  // NOLINT(performance-no-int-to-ptr): see RowMap
}

/// One item of a run. Strides are in elements.
struct BatchItem {
  const void* a;
  int64_t a_stride;  // from a row to the next, or from a depth to the next of a transposed A; never 0
  void* c;
  int64_t c_stride;  // 0: dense
  const void* residual;
  int64_t residual_stride;  // 0: dense
  const void* b;
  const float* b_scales;
  const int32_t* a_zero_points;  // read and copied together with a_scales: see MicrokernelArgs
  const float* a_scales;
  const int32_t* b_zero_points;
};

/// Whether a run sets none of the fields for batches, runtime B and transposed A. Its one item is then
/// described by the other fields.
inline bool IsLoneItem(const intact_gemm_args& args) {
  const bool has_pointers = args.a_items != nullptr || args.c_items != nullptr ||
                            args.residual_items != nullptr || args.b_items != nullptr || args.b != nullptr ||
                            args.b_scales != nullptr || args.b_zero_points != nullptr;
  const int64_t numbers = args.a_batch_stride | args.c_batch_stride | args.residual_batch_stride |
                          args.b_batch_stride | args.a_transposed | args.reserved | args.b_scale_count |
                          args.b_zero_point_count;
  return args.batch == 1 && !has_pointers && numbers == 0;
}

/// Whether A is transposed. A single row of adjacent depths is an ordinary row.
inline bool IsTransposed(const intact_gemm_args& args) {
  return args.a_transposed != 0 && (args.m != 1 || args.a_stride > 1);
}
/// BatchItem::a_stride of an item.
inline int64_t StrideOfA(const intact_gemm_args& args, int64_t k) {
  const int64_t dense = IsTransposed(args) ? args.m : k;
  const bool is_given = args.a_stride != 0 && (args.a_transposed != 0) == IsTransposed(args);
  return is_given ? args.a_stride : dense;
}

class Batch {
 public:
  /// `args` have been checked and are not IsEmpty(). The plan's B is k×n. `args` and `problem` outlive the
  /// batch. Items are joined (JoinItems()) if `may_join`, and if no pointers give the items.
  Batch(const intact_gemm_args& args, const LinearProblem& problem, int64_t k, bool may_join = true)
      : args_(args), problem_(problem), items_(args.batch), m_(args.m) {
    first_ = {args.a,        StrideOfA(args, k), args.c,
              args.c_stride, args.residual,      args.residual_stride,
              args.b,        args.b_scales,      args.a_zero_points,
              args.a_scales, args.b_zero_points};
    if (!IsLoneItem(args)) FindItems(k, may_join);
  }

  const intact_gemm_args& args() const { return args_; }
  int64_t items() const { return items_; }
  int64_t m() const { return m_; }  // rows of each item
  int64_t rows() const { return items_ * m_; }
  BatchItem Item(int64_t i) const { return i == 0 && !has_pointers_ ? first_ : FindItem(i); }
  /// How many parts each item is cut into, so that `parts` threads have about equal work.
  int PartsPerItem(int parts) const { return items_ == 1 ? parts : FindPartsPerItem(parts); }

 private:
  void FindItems(int64_t k, bool may_join);
  BatchItem FindItem(int64_t i) const;
  int FindPartsPerItem(int parts) const;

  const intact_gemm_args& args_;
  const LinearProblem& problem_;
  int64_t items_, m_;
  BatchItem first_;            // without pointers from arrays, which are read later
  bool has_pointers_ = false;  // some tensor's items are given by an array of pointers
  // Elements from an item to the next item; 0 for a lone item.
  int64_t a_step_ = 0, c_step_ = 0, residual_step_ = 0, b_step_ = 0;
};

/// Whether a run has no rows or no items, and so nothing to do.
inline bool IsEmpty(const intact_gemm_args& args) { return args.m == 0 || args.batch == 0; }
/// Checks the number of items, and that each tensor has either a pointer and strides or an array of pointers.
/// Reads no array. Errors name the argument.
Error CheckItemCounts(const intact_gemm_args& args, const LinearProblem& problem);
inline Error CheckBatch(const intact_gemm_args& args, const LinearProblem& problem) {
  return IsLoneItem(args) && !problem.has_runtime_b ? Error() : CheckItemCounts(args, problem);
}
/// Checks the distances between items, after CheckBatch() and the checks of the strides between rows.
Error CheckItemStrides(const intact_gemm_args& args, const LinearProblem& problem);
inline Error CheckBatchStrides(const intact_gemm_args& args, const LinearProblem& problem) {
  return args.batch < 2 || args.m == 0 ? Error() : CheckItemStrides(args, problem);
}
/// Checks the contents of a run's arrays: pointers of items, scales and zero points of B. CheckBatch() has
/// accepted `args`.
Error CheckItemArrays(const intact_gemm_args& args, const LinearProblem& problem);
inline Error CheckBatchArrays(const intact_gemm_args& args, const LinearProblem& problem) {
  return IsLoneItem(args) ? Error() : CheckItemArrays(args, problem);
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_BATCH_H_
