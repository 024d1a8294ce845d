// Describes where an output and its depths are, in the operation's terms: rows and columns of a GEMM; pixels,
// taps and channels of a convolution. For a convolution, m, n and k are indices in its lowered GEMMs
// (reference/models/lowering.h).
#ifndef INTACT_VERIFY_PROBLEM_PLACE_H_
#define INTACT_VERIFY_PROBLEM_PLACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/contract/conv.h"

namespace intact::verify {

/// A convolution's geometry; nullopt for a GEMM.
using MaybeConv = std::optional<reference::ConvGeometry>;

/// "m 3 n 5"; or "n 0 oh 2 ow 4 oc 5" (image, pixel, output channel) with the convolution's own spatial
/// dimensions.
std::string OutputPlace(const MaybeConv& conv, int64_t m, int64_t n);

/// The place of an output in a batch of GEMMs, `item_rows` rows per item: "item 2 m 3 n 5". 0: no batch.
std::string OutputPlace(const MaybeConv& conv, int64_t item_rows, int64_t m, int64_t n);

/// Depths k and k+1 of column n: "k 24"; or "tap kh 1 kw 0, channels 4 5" (channels of the input).
std::string PairPlace(const MaybeConv& conv, int64_t n, int64_t k);
/// Depths k and k1 of column n, adjacent or not: "k 24 and 28"; or "tap kh 1 kw 0, channel 4 and tap kh 1 kw
/// 1, channel 2".
std::string PairPlace(const MaybeConv& conv, int64_t n, int64_t k, int64_t k1);

/// The values of `spatial` for the dimensions that the convolution has: 1, 2 or 3 values.
std::vector<int64_t> OfItsDimensions(const reference::ConvGeometry& conv, const reference::Spatial& spatial);

/// The input channel at depth k of output channel n.
int64_t InputChannel(const reference::ConvGeometry& conv, int64_t n, int64_t k);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_PLACE_H_
