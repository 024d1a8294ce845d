// What the wrong outputs of a convolution look like: the mistakes about its geometry that people make.
#ifndef INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_
#define INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/contract/conv.h"
#include "verify/explain/diagnose.h"

namespace intact::verify {

/// The input pixel in whose place a tap beyond an end of the input would read if there were no padding: those
/// of the next row, image or slice follow in memory. Nothing for a tap that is not beyond an end, or beyond
/// all that there is.
std::optional<int64_t> RowThatFollows(const reference::ConvGeometry& geometry, const reference::Pixel& output,
                                      const reference::Spatial& tap);

/// What accumulator (m, n) would be under each mistake; n is the output channel.
std::vector<Suspicion> SuspectGeometry(const reference::Conv& conv, int64_t m, int64_t n);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_
