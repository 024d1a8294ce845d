// A convolution as GEMMs. Everything written for GEMMs (models of instructions, comparison, attribution,
// audits) then works for convolutions.
//
// One GEMM per group:
//
//   row m     output pixel (batch, od, oh, ow), w fastest
//   column n  output channel of the group
//   depth k   (tap, channel of the group): k = tap·E + channel; E is the group's channels, made even
//
//             tap (0,0,0)   tap (0,0,1)        tap (KD−1,KH−1,KW−1)
//           | c0 c1 … pad | c0 c1 … pad | … | c0 c1 … pad |
//
// So the pairs (k, k+1) are the contract's: adjacent channels of a tap. InPairs() has other pairings. Pixels
// outside the input hold the zero point; so do the gaps between input pixels that a transposed convolution's
// taps fall on. The padding of an odd last channel is the zero point too, with weights 0 for the
// instruction. So it adds nothing to the sum, and the last channel's product stays alone in its pair.
#ifndef INTACT_REFERENCE_MODELS_LOWERING_H_
#define INTACT_REFERENCE_MODELS_LOWERING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/contract/operation.h"
#include "reference/models/models.h"

namespace intact::reference {

/// The GEMM of each group.
std::vector<Gemm> Lower(const Conv& conv);

/// The GEMM of each group, only for these rows of the output, in this order.
std::vector<Gemm> Lower(const Conv& conv, std::span<const int64_t> rows);

/// y of every output pixel and channel, as `model` accumulates the lowered GEMMs. kExact is the contract.
std::vector<int32_t> Accumulators(const Conv& conv, const Model& model);
/// The accumulators of a GEMM or of a convolution.
std::vector<int32_t> Accumulators(const Operation& operation, const Model& model);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_LOWERING_H_
