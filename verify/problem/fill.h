// How the tensors of a problem are filled. Activations are distances d from the type's minimum, in
// [range_min, LargestActivation()]. Weights w are in [−wmax, wmax]. These are the values that a u8×s8
// instruction gets. u8 weights are w + 128.
//
// For a convolution, "rows of A" are the input's pixels. If a fill is described with whole rows of A, a
// convolution fills patches: all inputs of an output pixel. It takes only patches that share no pixel. Pairs
// of weights are adjacent channels of a tap.
//
// The fill `bound` drives int16 sums to where they must not overflow. With activations up to L, a lane holds
// positive weights of 32767/L in total, and negative ones of 32768/L: 128 for L = 255. The sum of a pair of
// weights is 1/1, 1/2, 1/4 or 1/8 of that capacity, so groups of pairs fill it exactly. One pair in eight has
// 1 more, so a group with one pair too many overflows. Every fourth column is uniform. Row m aims at column
// m/2 mod n: in even rows activations are L where that column's weights are positive, in odd rows where they
// are negative; all others are the smallest. Some rows of the fill `stray` are made like this with 255 and 0,
// whatever the activation range is.
#ifndef INTACT_VERIFY_PROBLEM_FILL_H_
#define INTACT_VERIFY_PROBLEM_FILL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "verify/problem/problem.h"

namespace intact::verify {

/// Distances from a_type's minimum: m×k for each item, or input pixels × channels.
std::vector<uint8_t> FillActivations(const Problem& problem);

/// Weights w: n×k (for each item with runtime B), or output channels × taps × channels of a group.
std::vector<int8_t> FillWeights(const Problem& problem);

/// The zero points of weights, in the weights' type: none if all are 0; else one, n, one per item, or n per
/// item.
std::vector<int32_t> FillWeightZeroPoints(const Problem& problem);

/// The zero points and scales that runs pass, of rows or of all of A. With a dynamic quantization: the
/// numbers, and the reference's quantization of them.
void FillQuantization(const Problem& problem, reference::Gemm* gemm);
void FillQuantization(const Problem& problem, reference::Conv* conv);

/// Bias, scales, residual and clamp of `operation`. Its tensors are already made; `groups` are its GEMMs (a
/// GEMM is its own only group). 8-bit outputs spread over the type's range, and the bias alone does not push
/// an accumulator out of int32, unless sums may wrap.
void FillEpilogue(const Problem& problem, std::span<const reference::Gemm> groups,
                  reference::Linear* operation);

/// Per-item scales for runtime B, chosen like those of FillEpilogue().
void FillItemScales(const Problem& problem, reference::Gemm* gemm);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_FILL_H_
