// What wrong outputs of a convolution look like: common mistakes with its geometry and with the quantization
// of its input.
#ifndef INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_
#define INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/contract/conv.h"
#include "verify/explain/diagnose.h"

namespace intact::verify {

/// The input pixel that a tap beyond an end of the input would read if padding were ignored: the pixels of
/// the next row, image or slice follow in memory. nullopt if the tap is not beyond an end, or if it is beyond
/// all pixels.
std::optional<int64_t> RowThatFollows(const reference::ConvGeometry& geometry, const reference::Pixel& output,
                                      const reference::Spatial& tap);

/// Suspicions about an output: where its taps were read, and how a dynamic input was quantized.
class ConvSuspects {
 public:
  explicit ConvSuspects(const reference::Conv& conv) : conv_(conv) {}
  std::vector<Suspicion> Of(const Observation& seen);

 private:
  const reference::Conv& conv_;
  std::vector<reference::Conv> wrongly_quantized_;  // by each of WrongQuantizers(), when first needed
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_
