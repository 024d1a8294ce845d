// Where an output and its depths are, in the words of the operation: rows and columns of a GEMM, pixels, taps
// and channels of a convolution, whose m, n and k are those of its lowered GEMMs (reference/conv.h).
#ifndef INTACT_VERIFY_PLACE_H_
#define INTACT_VERIFY_PLACE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/conv.h"

namespace intact::verify {

/// A convolution's geometry; a GEMM has none.
using MaybeConv = std::optional<reference::ConvGeometry>;

/// "m 3 n 5"; or "n 0 oh 2 ow 4 oc 5" (image, pixel, output channel), with as many spatial dimensions as
/// there are.
std::string OutputPlace(const MaybeConv& conv, int64_t m, int64_t n);

/// The depths k and k+1 of column n: "k 24"; or "tap kh 1 kw 0, channels 4 5" (of the input).
std::string PairPlace(const MaybeConv& conv, int64_t n, int64_t k);

/// The values of the dimensions that the convolution has.
std::vector<int64_t> OfItsDimensions(const reference::ConvGeometry& conv, const reference::Spatial& spatial);

/// The two channels of the input under depths k and k+1 of output channel n.
std::array<int64_t, 2> InputChannels(const reference::ConvGeometry& conv, int64_t n, int64_t k);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PLACE_H_
