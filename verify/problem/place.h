// Where an output and its depths are, in the words of the operation: rows and columns of a GEMM, pixels, taps
// and channels of a convolution, whose m, n and k are those of its lowered GEMMs (reference/models/lowering.h).
#ifndef INTACT_VERIFY_PROBLEM_PLACE_H_
#define INTACT_VERIFY_PROBLEM_PLACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/contract/conv.h"

namespace intact::verify {

/// A convolution's geometry; a GEMM has none.
using MaybeConv = std::optional<reference::ConvGeometry>;

/// "m 3 n 5"; or "n 0 oh 2 ow 4 oc 5" (image, pixel, output channel), with as many spatial dimensions as
/// there are.
std::string OutputPlace(const MaybeConv& conv, int64_t m, int64_t n);

/// The same of a batch of GEMMs with `item_rows` rows each, which follow each other: "item 2 m 3 n 5". 0:
/// there are no items.
std::string OutputPlace(const MaybeConv& conv, int64_t item_rows, int64_t m, int64_t n);

/// The depths k and k+1 of column n: "k 24"; or "tap kh 1 kw 0, channels 4 5" (of the input).
std::string PairPlace(const MaybeConv& conv, int64_t n, int64_t k);
/// The depths k and k1 of column n, adjacent or not: "k 24 and 28"; or "tap kh 1 kw 0, channel 4 and tap kh 1
/// kw 1, channel 2".
std::string PairPlace(const MaybeConv& conv, int64_t n, int64_t k, int64_t k1);

/// The values of the dimensions that the convolution has.
std::vector<int64_t> OfItsDimensions(const reference::ConvGeometry& conv, const reference::Spatial& spatial);

/// The channel of the input under depth k of output channel n.
int64_t InputChannel(const reference::ConvGeometry& conv, int64_t n, int64_t k);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_PLACE_H_
