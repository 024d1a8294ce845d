#include "kernels/plans/batch.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/result.h"
#include "core/types.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {
namespace {

// A stride; 0 stands for `dense`.
int64_t OrDense(int64_t stride, int64_t dense) { return stride == 0 ? dense : stride; }

// Values of each item; 0 stands for one.
int64_t CountOf(int64_t count) { return std::max<int64_t>(count, 1); }

// a·b, or the largest int64 if a·b overflows: strides may be anything until they are checked.
int64_t Times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

// a + b, or the largest int64 if a + b overflows; b is not negative.
int64_t Plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

struct Steps {
  int64_t a_stride;        // elements from a row of A to the next; from a depth to the next if transposed
  int64_t a, c, residual;  // elements from a row to the next
  int64_t item_a, item_c, item_residual;  // and from an item to the next
};

Steps StepsOf(const intact_gemm_args& args, int64_t n, int64_t k) {
  Steps steps{};
  const bool transposed = IsTransposed(args);
  steps.a_stride = StrideOfA(args, k);
  steps.a = transposed ? 1 : steps.a_stride;
  steps.c = OrDense(args.c_stride, n);
  steps.residual = OrDense(args.residual_stride, n);
  steps.item_a = OrDense(args.a_batch_stride, Times(transposed ? k : args.m, steps.a_stride));
  steps.item_c = OrDense(args.c_batch_stride, Times(args.m, steps.c));
  steps.item_residual = OrDense(args.residual_batch_stride, Times(args.m, steps.residual));
  return steps;
}

// One tensor's items are a stride apart from `base` on, or each at one of `pointers`.
Error CheckTensor(const char* name, const void* base, const void* const* pointers, int64_t stride) {
  if (pointers == nullptr && stride >= 0 && stride <= kMaxStride) return {};
  if (pointers != nullptr && base == nullptr) return {};
  return Refuse([=] {
    return pointers == nullptr ? Unexpected(std::string(name) + "_batch_stride", stride, "0 to 2^40")
                               : InvalidArgument(std::string(name) + "_items and " + name +
                                                 " are both given; expected one of them");
  });
}

Error CheckPointers(const char* name, const void* const* pointers, int64_t items) {
  for (int64_t i = 0; pointers != nullptr && i < items; ++i) {
    if (pointers[i] != nullptr) continue;
    return Refuse(
        [&] { return InvalidArgument(std::string(name) + "_items[" + std::to_string(i) + "] is NULL"); });
  }
  return {};
}

// Checks the number of `name`s of an item: one, or one for each of `n` columns.
Error CheckCount(const std::string& name, bool are_given, int64_t count, int64_t n) {
  if (!are_given && count != 0) return Unexpected(name + "_count", count, "0, because " + name + "s is NULL");
  if (count == 0 || count == 1 || count == n) return {};
  return Unexpected(name + "_count", count, "0, 1 or n, which is " + std::to_string(n));
}

// Checks the B, scales and zero points that a run of a plan with runtime B passes.
Error CheckRuntimeB(const intact_gemm_args& args, const LinearProblem& problem) {
  RETURN_IF_ERROR(CheckTensor("b", args.b, args.b_items, args.b_batch_stride));
  if (args.b_scales != nullptr && !problem.HasScales()) {
    return InvalidArgument("b_scales are given; expected NULL, because the plan's outputs have no scales");
  }
  if (args.b_zero_points != nullptr && !problem.may_have_b_zero_points) {
    return InvalidArgument(
        "b_zero_points are given; expected NULL, because the plan was made without zero points of B");
  }
  RETURN_IF_ERROR(CheckCount("b_scale", args.b_scales != nullptr, args.b_scale_count, problem.n));
  return CheckCount("b_zero_point", args.b_zero_points != nullptr, args.b_zero_point_count, problem.n);
}

// Checks the values of a runtime B's scales and zero points.
Error CheckRuntimeValues(const intact_gemm_args& args, const LinearProblem& problem) {
  const int64_t scales = args.b_scales == nullptr ? 0 : args.batch * CountOf(args.b_scale_count);
  for (int64_t i = 0; i < scales; ++i) RETURN_IF_ERROR(CheckScale("b_scales", i, args.b_scales[i]));
  const int32_t least = core::LowestOf(problem.b_type);
  const int64_t zero_points =
      args.b_zero_points == nullptr ? 0 : args.batch * CountOf(args.b_zero_point_count);
  for (int64_t i = 0; i < zero_points; ++i) {
    const int32_t zero_point = args.b_zero_points[i];
    if (zero_point >= least && zero_point <= least + 255) continue;
    return Unexpected("b_zero_points[" + std::to_string(i) + "]", zero_point,
                      std::to_string(least) + " to " + std::to_string(least + 255));
  }
  return {};
}

// Checks the numbers of rows and items, and the flags.
Error CheckCounts(const intact_gemm_args& args) {
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
  if (args.batch < 0 || args.batch > kMostRows) {
    return Refuse([&args] { return Unexpected("batch", args.batch, "0 to 2147483647"); });
  }
  if (args.a_transposed != 0 && args.a_transposed != 1) {
    return Refuse([&args] { return Unexpected("a_transposed", args.a_transposed, "0 or 1"); });
  }
  if (args.reserved != 0) return Refuse([&args] { return Unexpected("reserved", args.reserved, "0"); });
  if (args.m * args.batch <= kMostRows) return {};
  return Refuse([&args] { return Unexpected("m·batch", args.m * args.batch, "at most 2147483647"); });
}

// Checks that a run of a plan with a constant B passes none.
Error CheckNoRuntimeB(const intact_gemm_args& args) {
  const char* const given = args.b != nullptr               ? "b"
                            : args.b_items != nullptr       ? "b_items"
                            : args.b_scales != nullptr      ? "b_scales"
                            : args.b_zero_points != nullptr ? "b_zero_points"
                            : args.b_batch_stride != 0      ? "b_batch_stride"
                            : args.b_scale_count != 0       ? "b_scale_count"
                            : args.b_zero_point_count != 0  ? "b_zero_point_count"
                                                            : nullptr;
  if (given == nullptr) return {};
  return Refuse([=] {
    return InvalidArgument(std::string(given) +
                           " is given to a run; expected none: the plan's B is constant");
  });
}

}  // namespace

Error CheckItemStrides(const intact_gemm_args& args, const LinearProblem& problem, int64_t k) {
  const Steps steps = StepsOf(args, problem.n, k);
  // Items of C follow each other, or alternate row by row.
  const int64_t item_c = Plus(Times(args.m - 1, steps.c), problem.n);
  const bool alternate = steps.item_c >= problem.n &&
                         (args.m == 1 || steps.c >= Plus(Times(args.batch - 1, steps.item_c), problem.n));
  if (args.c_items == nullptr && steps.item_c < item_c && !alternate) {
    return Unexpected("c_batch_stride", args.c_batch_stride,
                      "0 or at least " + std::to_string(item_c) + ", because items of c must not overlap");
  }
  if (args.residual != nullptr && args.residual == args.c && steps.item_residual != steps.item_c) {
    return Unexpected(
        "residual_batch_stride", args.residual_batch_stride,
        "c_batch_stride, which is " + std::to_string(args.c_batch_stride) + ", because residual is c");
  }
  return {};
}

namespace {

// Where item `i` begins; items are `step` elements of `bytes` bytes apart. Addresses wrap.
template <class Pointer>
Pointer* ItemAt(Pointer* base, Pointer* const* pointers, int64_t i, int64_t step, int bytes) {
  if (pointers != nullptr) return pointers[i];
  if (base == nullptr) return base;
  const uint64_t offset =
      static_cast<uint64_t>(i) * static_cast<uint64_t>(step) * static_cast<uint64_t>(bytes);
  const uintptr_t address = reinterpret_cast<uintptr_t>(base) + offset;
  return reinterpret_cast<Pointer*>(address);  // NOLINT(performance-no-int-to-ptr): see RowMap
}

}  // namespace

void Batch::FindItems(int64_t k, bool may_join) {
  has_pointers_ = args_.a_items != nullptr || args_.c_items != nullptr || args_.residual_items != nullptr ||
                  args_.b_items != nullptr;
  if (items_ == 1) return;
  const Steps steps = StepsOf(args_, problem_.n, k);
  const bool has_residual = problem_.output.has_residual();
  a_step_ = steps.item_a;
  c_step_ = steps.item_c;
  residual_step_ = steps.item_residual;
  b_step_ = OrDense(args_.b_batch_stride, problem_.n * k);
  if (!may_join || has_pointers_ || problem_.has_runtime_b) return;
  const bool follow = a_step_ == Times(m_, steps.a) && c_step_ == Times(m_, steps.c) &&
                      (!has_residual || residual_step_ == Times(m_, steps.residual));
  const bool joins_rows = !follow && m_ == 1 && !IsTransposed(args_) && a_step_ >= k &&
                          c_step_ >= problem_.n && (!has_residual || residual_step_ >= problem_.n);
  if (!follow && !joins_rows) return;
  if (joins_rows) {
    first_.a_stride = a_step_;
    first_.c_stride = c_step_;
    first_.residual_stride = residual_step_;
  }
  m_ *= items_;
  items_ = 1;
}

BatchItem Batch::FindItem(int64_t i) const {
  const Requantization& output = problem_.output;
  BatchItem item = first_;
  item.a = ItemAt(args_.a, args_.a_items, i, a_step_, problem_.a_bytes());
  item.c = ItemAt(args_.c, args_.c_items, i, c_step_, core::BytesOf(output.c_type));
  item.residual =
      ItemAt(args_.residual, args_.residual_items, i, residual_step_, core::BytesOf(output.residual_type));
  item.b = ItemAt(args_.b, args_.b_items, i, b_step_, 1);
  if (item.b_scales != nullptr) item.b_scales += i * CountOf(args_.b_scale_count);
  if (item.b_zero_points != nullptr) item.b_zero_points += i * CountOf(args_.b_zero_point_count);
  if (problem_.a_quantization == INTACT_QUANTIZATION_TENSOR) return item;  // one value for all
  if (item.a_zero_points != nullptr) item.a_zero_points += i * m_;
  if (item.a_scales != nullptr) item.a_scales += i * m_;
  return item;
}

int Batch::FindPartsPerItem(int parts) const {
  constexpr int64_t kMostWaitingPercent = 115;  // the slowest thread's share over all threads' mean
  constexpr int64_t kTries = 4;
  const int64_t most = std::numeric_limits<int32_t>::max() / items_;
  const int64_t least = std::min(CeilDivide(parts, items_), most);
  for (int64_t each = least; each <= std::min(least + kTries, most); ++each) {
    const int64_t shares = items_ * each;
    const int64_t slowest = CeilDivide(shares, parts) * parts;
    if (100 * slowest <= kMostWaitingPercent * shares) return static_cast<int>(each);
  }
  return static_cast<int>(least);
}

Error CheckItemCounts(const intact_gemm_args& args, const LinearProblem& problem) {
  RETURN_IF_ERROR(CheckCounts(args));
  RETURN_IF_ERROR(CheckTensor("a", args.a, args.a_items, args.a_batch_stride));
  RETURN_IF_ERROR(CheckTensor("c", args.c, args.c_items, args.c_batch_stride));
  RETURN_IF_ERROR(CheckTensor("residual", args.residual, args.residual_items, args.residual_batch_stride));
  if (args.residual_items != nullptr && !problem.output.has_residual()) {
    return Refuse([] {
      return InvalidArgument("residual_items are given; expected NULL, because the plan has no residual");
    });
  }
  return problem.has_runtime_b ? CheckRuntimeB(args, problem) : CheckNoRuntimeB(args);
}

Error CheckItemArrays(const intact_gemm_args& args, const LinearProblem& problem) {
  RETURN_IF_ERROR(CheckPointers("a", args.a_items, args.batch));
  RETURN_IF_ERROR(CheckPointers("c", args.c_items, args.batch));
  RETURN_IF_ERROR(CheckPointers("residual", args.residual_items, args.batch));
  RETURN_IF_ERROR(CheckPointers("b", args.b_items, args.batch));
  return CheckRuntimeValues(args, problem);
}

}  // namespace intact::kernels
