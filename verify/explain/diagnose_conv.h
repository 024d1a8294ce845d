// What the wrong outputs of a convolution look like: the mistakes that people make about its geometry and
// about the quantization of its input.
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

/// What may be wrong with an output: where its taps were read, and how a dynamic input was quantized.
class ConvSuspects {
 public:
  explicit ConvSuspects(const reference::Conv& conv) : conv_(conv) {}
  std::vector<Suspicion> Of(const Observation& seen);

 private:
  const reference::Conv& conv_;
  std::vector<reference::Conv> wrongly_quantized_;  // by WrongQuantizers(), once it is needed
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_
