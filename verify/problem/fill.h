// How the tensors of a problem are filled. Activations are distances d from the type's minimum, in
// [range_min, LargestActivation()]. Weights w are in [−wmax, wmax]. A u8×s8 instruction multiplies d by w. u8
// weights are stored as w + 128.
//
// For a convolution, "rows of A" are the input's pixels. If a fill sets whole rows of A, it sets whole
// patches of a convolution's input. A patch is all inputs of one output pixel. Patches that share a pixel
// with an earlier patch are skipped. Pairs of weights are adjacent channels of a tap.
//
// The fill `bound` drives int16 sums to their limits. With activations up to L, the positive weights of an
// int16 lane may sum to 32767/L, the negative weights to −32768/L: the lane's capacity, ±128 for L = 255. The
// sum of a pair of weights is 1/1, 1/2, 1/4 or 1/8 of the capacity, so groups of pairs fill the lane exactly.
// In one pair in eight the sum is larger by 1, so a group with one pair too many overflows. Every fourth
// column is uniform. Row m aims at column m/2 mod n. If m is even, the row's activations are L for positive
// weights of this column. If m is odd, they are L for negative weights. The row's other activations are
// range_min. The fill `stray` aims every 155th row in this way, with 255 and 0 instead of L and range_min. So
// these rows leave the activation range.
#ifndef INTACT_VERIFY_PROBLEM_FILL_H_
#define INTACT_VERIFY_PROBLEM_FILL_H_

#include <cstdint>
#include <vector>

#include "reference/models/operands.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// Distances from a_type's minimum: m×k for each item, or input pixels × channels.
std::vector<uint8_t> FillActivations(const Problem& problem);

/// Weights w: n×k (for each item with runtime B), or output channels × taps × channels of a group.
std::vector<int8_t> FillWeights(const Problem& problem);

/// An operation whose fields are filled, one after the other (FillFields() in verify/problem/fields.h). Each
/// function below fills in one field. A and B are made before.
struct Filling {
  const Problem& problem;
  reference::Linear* linear = nullptr;      // a GEMM or a convolution
  std::vector<reference::Operands> groups;  // the GEMM of each group of a convolution, or the GEMM itself
  reference::Grouped* grouped = nullptr;    // a product with grouped weights, instead
};

/// The zero points of weights, in the weights' type. Empty if all are 0. Otherwise one zero point, one per
/// column, one per item, or one per column of each item.
std::vector<int32_t> FillWeightZeroPoints(const Problem& problem);

/// The zero points and scales of A that each run passes, per row or one for all of A. If the quantization is
/// dynamic: the real numbers, and A as the reference quantizes them.
void FillQuantization(const Problem& problem, reference::Gemm* gemm);
void FillQuantization(const Problem& problem, reference::Conv* conv);

/// The bias alone does not push an accumulator out of int32, unless sums may wrap.
void FillBias(const Filling& filling);
/// With these scales, 8-bit outputs spread over the type's range.
void FillScales(const Filling& filling);
/// Replaces the scales by nearby fixed point with bits below a float's precision. A scale of 0 becomes a
/// multiplier of 0. If every column has its own scale, one shift in five is random and to the left. The
/// outputs of this column clamp.
void FillFixedPoint(const Filling& filling);
/// A permutation, so that each wrong index is visible.
void FillTable(const Filling& filling);
/// Uniform residuals over the full range. Times their scale, residuals reach 20 to 60 from the zero point.
/// For kTies, they are multiples of a half.
void FillResidual(const Filling& filling);
void FillActivation(const Filling& filling);

/// Scales of runtime B for each item, or for each column of each item. Chosen like the scales of
/// FillScales().
void FillItemScales(const Problem& problem, reference::Gemm* gemm);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_FILL_H_
