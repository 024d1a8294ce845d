// How the tensors of a problem are made. Activations are made as distances d from the type's minimum, in
// [range_min, LargestActivation()], and weights w in [−wmax, wmax]: that is what a u8×s8 instruction gets
// to see. u8 weights are w + 128.
//
// The rows of A are the input's pixels in a convolution. Where a fill is told in terms of whole rows of A, or
// in pairs of weights, a convolution's are patches: all that an output pixel reads, of which those are taken
// that share no pixel; and the pairs of adjacent channels within a tap.
//
// The fill `bound` drives int16 sums to where they must not overflow. With activations up to L, a lane holds
// positive weights of 32767/L in all, and negative ones of 32768/L: 128 for L = 255. Its weights come in
// pairs of 1/1, 1/2, 1/4 or 1/8 of that, so that groups of pairs are filled exactly, or in one of eight of 1
// more, so that one pair too many in a group is beyond; every fourth column is uniform. Row m aims at column
// m/2 mod n: its activations are L where that column's weights are positive (odd rows: negative), else 0.
// The fill `stray` has such rows with 255 and 0, whatever range is declared.
#ifndef INTACT_VERIFY_PROBLEM_FILL_H_
#define INTACT_VERIFY_PROBLEM_FILL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "verify/problem/problem.h"

namespace intact::verify {

/// Distances from a_type's minimum: m×k of each item, or input pixels × channels.
std::vector<uint8_t> FillActivations(const Problem& problem);

/// Weights w: n×k, of each item with its own B, or output channels × taps × channels of a group.
std::vector<int8_t> FillWeights(const Problem& problem);

/// The zero points of weights, in the type of weights: none if all are 0, else one, n, one for each item, or
/// n for each item.
std::vector<int32_t> FillWeightZeroPoints(const Problem& problem);

/// The zero points and scales of rows or of all of A, if runs give them; or the numbers of a dynamic
/// quantization, and what the reference makes of them.
void FillQuantization(const Problem& problem, reference::Gemm* gemm);
void FillQuantization(const Problem& problem, reference::Conv* conv);

/// Bias, scales, residual and clamp of `operation`, whose tensors are already made, and `groups` of them as
/// GEMMs (a GEMM is its own only one): chosen so that 8-bit outputs spread over the type's range, and so that
/// no accumulator leaves int32 which would not do so without the bias.
void FillEpilogue(const Problem& problem, std::span<const reference::Gemm> groups,
                  reference::Linear* operation);

/// Scales of items with a B of their own, chosen likewise.
void FillItemScales(const Problem& problem, reference::Gemm* gemm);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_FILL_H_
