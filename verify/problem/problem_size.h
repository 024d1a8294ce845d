// Limits on problems: tensors that fit into memory, and work that a scalar reference does in minutes.
#ifndef INTACT_VERIFY_PROBLEM_PROBLEM_SIZE_H_
#define INTACT_VERIFY_PROBLEM_PROBLEM_SIZE_H_

#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <optional>

#include "reference/contract/conv.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// An error if a problem is too large to be verified. All other fields must be valid.
std::optional<Error> CheckSizes(const Problem& problem);

/// An error if a convolution is too large. `a_pad` and `c_pad`: elements between input and output pixels.
std::optional<Error> CheckSizes(const reference::ConvGeometry& geometry, int64_t a_pad, int64_t c_pad);

/// m, n and k of a GEMM, or of the GEMM of one group of a convolution.
std::array<int64_t, 3> GemmSizesOf(const Problem& problem);

/// An upper bound of the bytes that the tensors of a problem take while they are made. Saturates at the
/// largest int64.
int64_t MemoryOf(const Problem& problem);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_PROBLEM_SIZE_H_
