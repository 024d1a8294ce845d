// Recognises wrong outputs of a convolution: tries common mistakes with the geometry and with the
// quantization of the input.
#ifndef INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_
#define INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/contract/conv.h"
#include "verify/explain/diagnose.h"

namespace intact::verify {

/// For a tap beyond the end of an axis: the input pixel that the tap would read if padding were ignored. This
/// pixel is of the next row, slice or image in memory. nullopt if the tap is inside the input or before its
/// beginning, or if no pixel follows.
std::optional<int64_t> RowThatFollows(const reference::ConvGeometry& geometry, const reference::Pixel& output,
                                      const reference::Spatial& tap);

/// Suspicions about an output: which input pixels were read, and how a dynamic input was quantized.
class ConvSuspects {
 public:
  explicit ConvSuspects(const reference::Conv& conv) : conv_(conv) {}
  std::vector<Suspicion> Of(const Observation& seen);

 private:
  const reference::Conv& conv_;
  std::vector<reference::Conv> wrongly_quantized_;  // one for each of WrongQuantizers(); made when needed
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_CONV_H_
