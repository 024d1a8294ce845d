// How large a problem may be: tensors that fit memory, and work that a scalar reference does in minutes.
#ifndef INTACT_VERIFY_PROBLEM_PROBLEM_SIZE_H_
#define INTACT_VERIFY_PROBLEM_PROBLEM_SIZE_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>

#include "reference/contract/conv.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// Nothing, or what is more than can be verified of a problem whose other fields are right.
std::optional<Error> CheckSizes(const Problem& problem);

/// The same of a convolution whose pixels are `a_pad` and `c_pad` elements apart beside their channels.
std::optional<Error> CheckSizes(const reference::ConvGeometry& geometry, int64_t a_pad, int64_t c_pad);

/// The bytes that the tensors of a problem take at most while they are made. Beyond int64, its largest value.
int64_t MemoryOf(const Problem& problem);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_PROBLEM_SIZE_H_
