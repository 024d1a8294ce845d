// How the tensors of a problem are made. Activations are made as distances d from the type's minimum, in
// [0, amax], which is what a u8×s8 instruction gets to see; weights lie in [−wmax, wmax].
#ifndef INTACT_VERIFY_FILL_H_
#define INTACT_VERIFY_FILL_H_

#include <cstdint>
#include <vector>

#include "verify/problem.h"

namespace intact::verify {

/// m×k distances from a_type's minimum.
std::vector<uint8_t> FillActivations(const Problem& problem);

/// k×n weights.
std::vector<int8_t> FillWeights(const Problem& problem);

/// Bias and scales of `gemm`, whose tensors are already made: chosen so that 8-bit outputs spread over the
/// type's range, and so that no accumulator leaves int32 which would not do so without the bias.
void FillEpilogue(const Problem& problem, reference::Gemm* gemm);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_FILL_H_
