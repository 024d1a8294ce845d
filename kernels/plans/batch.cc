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

inline ItemSteps StepsOfA(const intact_gemm_args& args, int64_t k) {
  const int64_t stride = StrideOfA(args, k);
  if (!IsTransposed(args)) return ItemSteps::Of(args.m, k, stride, args.a_batch_stride);
  return {std::numeric_limits<int64_t>::max(), 1, OrDense(args.a_batch_stride, Times(k, stride))};
}
inline ItemSteps StepsOfC(const intact_gemm_args& args, int64_t n) {
  return ItemSteps::Of(args.m, n, args.c_stride, args.c_batch_stride);
}
inline ItemSteps StepsOfResidual(const intact_gemm_args& args, int64_t n) {
  return ItemSteps::Of(args.m, n, args.residual_stride, args.residual_batch_stride);
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
  RETURN_IF_ERROR(CheckItemNumbers(args.m, args.batch));
  if (args.a_transposed != 0 && args.a_transposed != 1) {
    return Refuse([&args] { return Unexpected("a_transposed", args.a_transposed, "0 or 1"); });
  }
  return args.reserved == 0 ? Error() : Refuse([&] { return Unexpected("reserved", args.reserved, "0"); });
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

Error CheckItemStrides(const intact_gemm_args& args, const LinearProblem& problem) {
  const ItemSteps c = StepsOfC(args, problem.n);
  if (args.c_items == nullptr) {
    RETURN_IF_ERROR(CheckItemsApart(c, args.m, args.batch, args.c_batch_stride));
  }
  if (args.residual != nullptr && args.residual == args.c &&
      StepsOfResidual(args, problem.n).item != c.item) {
    return Unexpected(
        "residual_batch_stride", args.residual_batch_stride,
        "c_batch_stride, which is " + std::to_string(args.c_batch_stride) + ", because residual is c");
  }
  return {};
}

void Batch::FindItems(int64_t k, bool may_join) {
  has_pointers_ = args_.a_items != nullptr || args_.c_items != nullptr || args_.residual_items != nullptr ||
                  args_.b_items != nullptr;
  if (items_ == 1) return;
  const bool has_residual = problem_.output.has_residual();
  ItemSteps a = StepsOfA(args_, k), c = StepsOfC(args_, problem_.n), residual = {};
  if (has_residual) residual = StepsOfResidual(args_, problem_.n);
  a_step_ = a.item;
  c_step_ = c.item;
  residual_step_ = residual.item;
  b_step_ = OrDense(args_.b_batch_stride, problem_.n * k);
  if (!may_join || has_pointers_ || problem_.has_runtime_b) return;
  if (!(has_residual ? JoinItems(m_, &a, &c, &residual) : JoinItems(m_, &a, &c))) return;
  if (!IsTransposed(args_)) first_.a_stride = a.row;
  first_.c_stride = c.row;
  first_.residual_stride = residual.row;
  m_ *= items_;
  items_ = 1;
}

BatchItem Batch::FindItem(int64_t i) const {
  const Requantization& output = problem_.output;
  BatchItem item = first_;
  const auto at = [i](auto* base, const auto* pointers, int64_t step, int bytes) {
    return pointers != nullptr ? pointers[i] : ItemAt(base, i, step, bytes);
  };
  item.a = at(args_.a, args_.a_items, a_step_, problem_.a_bytes());
  item.c = at(args_.c, args_.c_items, c_step_, core::BytesOf(output.c_type));
  item.residual =
      at(args_.residual, args_.residual_items, residual_step_, core::BytesOf(output.residual_type));
  item.b = at(args_.b, args_.b_items, b_step_, 1);
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
