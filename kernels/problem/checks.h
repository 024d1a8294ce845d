// Checks of descriptors and of a run's arguments, before any other code reads them. Errors are
// INVALID_ARGUMENT and name the field, its value and what was expected.
//
// Checks of a run are inline: a check that succeeds is a few compares. Refuse() makes messages out of line,
// except for a runtime B.
#ifndef INTACT_KERNELS_PROBLEM_CHECKS_H_
#define INTACT_KERNELS_PROBLEM_CHECKS_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/isa.h"
#include "kernels/problem/linear_problem.h"

namespace intact::kernels {

inline bool IsOneOf(int64_t value, std::initializer_list<int64_t> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}
inline bool IsOneOf(int64_t value, std::span<const intact_type> types) {
  return std::find(types.begin(), types.end(), value) != types.end();
}
/// "INTACT_F32 or INTACT_BF16"
std::string NamesOf(std::span<const intact_type> types);

/// "`field` is `value`; expected `expected`"
Error Unexpected(const std::string& field, int64_t value, const std::string& expected);
Error UnexpectedNumber(const std::string& field, float value, const std::string& expected);
Error InvalidArgument(const std::string& message);
Error Unsupported(const std::string& message);
/// The Error that `make` returns. Never inline.
template <class Make>
[[gnu::cold, gnu::noinline]] Error Refuse(const Make& make) {
  return make();
}

/// The shortest decimal that reads back as `value`: "1e-40", "0.1".
std::string Text(float value);
std::string Text(double value);

/// Whether a value is finite, or finite and above 0. A float environment that flushes denormals does not
/// matter.
bool IsFinite(float value);
bool IsFiniteAndPositive(float value);
/// Checks element `i` of the scales `field`: finite, and at least 0.
Error CheckScale(const char* field, int64_t i, float scale);

/// Checks the number of rows of a GEMM: `least` or more.
inline Error CheckRows(int64_t m, int64_t least) {
  if (m >= least && m <= std::numeric_limits<int32_t>::max()) return {};
  return Refuse([=] { return Unexpected("m", m, std::to_string(least) + " to 2147483647"); });
}

/// The permitted ISAs under a plan's cap `max_isa`, an intact_isa.
Result<core::IsaSet> PermittedIsas(int32_t max_isa);

/// Checks that the bounds of CLAMP are not both 0. A caller's descriptor must set them; a saved plan may hold
/// zeros.
Error CheckClampBounds(const intact_linear_desc& desc);

/// Checks `desc`; returns the linear problem of `n` columns.
Result<LinearProblem> CheckLinear(const intact_linear_desc& desc, int64_t n);
/// CheckLinear() for a convolution. Convolutions do not support all quantizations.
Result<LinearProblem> CheckConvLinear(const intact_linear_desc& desc, int64_t n);

/// Checks the shape and layout of a GEMM's weights. The result's shift is 0: the type is not checked yet.
Result<WeightView> CheckGemm(const intact_gemm_desc& desc, const void* b);

/// A run's arguments for C and the residual: pointers and strides.
struct OutputArguments {
  const void* c = nullptr;
  int64_t c_stride = 0;
  const void* residual = nullptr;
  int64_t residual_stride = 0;
};
/// The largest stride, in elements.
inline constexpr int64_t kMaxStride = int64_t{1} << 40;
/// Checks that `stride` is 0, or from `elements`, the length of a row, to kMaxStride.
inline Error CheckStride(const char* field, int64_t stride, int64_t elements) {
  if (stride == 0 || (stride >= elements && stride <= kMaxStride)) return {};
  return Refuse([=] {
    return Unexpected(field, stride,
                      elements == 0 ? std::string("0 to 2^40")
                                    : "0 or at least " + std::to_string(elements) + ", at most 2^40");
  });
}
/// A matrix in memory: `rows` rows of `row_bytes` each, which begin `stride_bytes` apart.
struct MemoryRows {
  const char* name;
  const void* data;
  int64_t rows, row_bytes, stride_bytes;
  // As integers: a pointer must not point beyond the end of its buffer, and the end may.
  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(data); }
  uintptr_t end() const {
    return begin() + static_cast<uintptr_t>(rows - 1) * static_cast<uintptr_t>(stride_bytes) +
           static_cast<uintptr_t>(row_bytes);
  }
};
/// CheckApart() for matrices whose first and last bytes overlap.
Error CheckRowsApart(const MemoryRows& c, const MemoryRows& other);
/// Checks that no byte belongs to both matrices. Their rows may alternate, like two channel slices of a
/// tensor.
inline Error CheckApart(const MemoryRows& c, const MemoryRows& other) {
  if (c.end() <= other.begin() || other.end() <= c.begin()) return {};
  return CheckRowsApart(c, other);
}
/// Checks the strides of `arguments` for a plan of `columns` columns.
inline Error CheckOutputStrides(int64_t columns, const OutputArguments& arguments) {
  RETURN_IF_ERROR(CheckStride("c_stride", arguments.c_stride, columns));
  return CheckStride("residual_stride", arguments.residual_stride, columns);
}
/// Checks the pointers of `arguments` for a plan of `columns` columns, after CheckOutputStrides().
Error CheckResidual(const Requantization& output, int64_t columns, const OutputArguments& arguments);
inline Error CheckOutput(const Requantization& output, int64_t columns, const OutputArguments& arguments) {
  if (arguments.c == nullptr) return Refuse([] { return InvalidArgument("c is NULL"); });
  if (arguments.residual == nullptr && !output.has_residual()) return {};
  return CheckResidual(output, columns, arguments);
}
/// Checks the zero points and scales that a run gives: for `m` rows with INTACT_QUANTIZATION_ROWS, or for A
/// with TENSOR.
Error CheckRowValues(const LinearProblem& problem, int64_t m, const int32_t* zero_points,
                     const float* scales);
inline Error CheckRowArguments(const LinearProblem& problem, int64_t m, const int32_t* zero_points,
                               const float* scales) {
  const bool has_none =
      problem.a_quantization == INTACT_QUANTIZATION_STATIC && zero_points == nullptr && scales == nullptr;
  return has_none ? Error() : CheckRowValues(problem, m, zero_points, scales);
}
inline Error CheckPart(int32_t part, int32_t parts) {
  if (parts >= 1 && part >= 0 && part < parts) return {};
  return Refuse([=] {
    return InvalidArgument("part is " + std::to_string(part) + " of " + std::to_string(parts) +
                           "; expected 0 to parts − 1");
  });
}
inline Error CheckThreads(int32_t threads) {
  return threads >= 0 ? Error() : Refuse([=] { return Unexpected("threads", threads, "0 or more"); });
}
/// Checks that `pairing` is an intact_pairing.
Error CheckPairing(int32_t pairing);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_CHECKS_H_
