// Everything that a user can get wrong in a descriptor or in a run's arguments is found here, before anything
// else looks at it. Errors are INVALID_ARGUMENT and name the field, its value and what was expected.
#ifndef INTACT_KERNELS_PROBLEM_CHECKS_H_
#define INTACT_KERNELS_PROBLEM_CHECKS_H_

#include <intact/intact.h>

#include <cstdint>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/isa.h"
#include "kernels/problem/linear_problem.h"

namespace intact::kernels {

/// "`field` is `value`; expected `expected`"
Error Unexpected(const std::string& field, int64_t value, const std::string& expected);
Error UnexpectedNumber(const std::string& field, float value, const std::string& expected);
Error InvalidArgument(const std::string& message);
Error Unsupported(const std::string& message);

/// The shortest decimal that reads back as `value`: "1e-40", "0.1".
std::string Text(float value);
std::string Text(double value);

/// Whether a value is finite, and above 0, whatever the caller's float environment takes denormals for.
bool IsFinite(float value);
bool IsFiniteAndPositive(float value);
/// Element `i` of the scales that `field` names: finite, and at least 0.
Error CheckScale(const char* field, int64_t i, float scale);

/// The rows of a GEMM, `least` or more.
Error CheckRows(int64_t m, int64_t least);

/// The permitted ISAs under a plan's own cap: an intact_isa, if the caller gave one.
Result<core::IsaSet> PermittedIsas(int32_t max_isa);

/// What a caller's descriptor must not leave out, and a saved plan may hold: the bounds of CLAMP.
Error CheckAccumulatorBounds(const intact_linear_desc& desc);

/// The linear problem of `n` columns.
Result<LinearProblem> CheckLinear(const intact_linear_desc& desc, int64_t n);
/// The same for a convolution, which is not offered all of it.
Result<LinearProblem> CheckConvLinear(const intact_linear_desc& desc, int64_t n);

/// The shape and layout of a GEMM's weights, whose type, and so their shift, is yet to be checked.
Result<WeightView> CheckGemm(const intact_gemm_desc& desc, const void* b);

/// A run's rows beside A: where C and the residual lie.
struct OutputArguments {
  const void* c = nullptr;
  int64_t c_stride = 0;
  const void* residual = nullptr;
  int64_t residual_stride = 0;
};
/// The largest stride, in elements.
inline constexpr int64_t kMaxStride = int64_t{1} << 40;
/// That `stride` is 0 or leads from a row of `elements` to the next.
Error CheckStride(const char* field, int64_t stride, int64_t elements);
/// A matrix in memory: `rows` rows of `row_bytes` each, `stride_bytes` from one to the next.
struct MemoryRows {
  const char* name;
  const void* data;
  int64_t rows, row_bytes, stride_bytes;
};
/// That no byte belongs to both. Rows may alternate, as two slices of the channels of one tensor do.
Error CheckApart(const MemoryRows& c, const MemoryRows& other);
/// The strides of `arguments`, of a plan of `columns` columns.
Error CheckOutputStrides(int64_t columns, const OutputArguments& arguments);
/// Against what a plan of `columns` columns wants, after CheckOutputStrides().
Error CheckOutput(const Requantization& output, int64_t columns, const OutputArguments& arguments);
/// What a run gives of its `m` rows with INTACT_QUANTIZATION_ROWS, or of A with TENSOR.
Error CheckRowArguments(const LinearProblem& problem, int64_t m, const int32_t* zero_points,
                        const float* scales);
Error CheckPart(int32_t part, int32_t parts);
/// An intact_pairing.
Error CheckPairing(int32_t pairing);
Error CheckThreads(int32_t threads);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_CHECKS_H_
