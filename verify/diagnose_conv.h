// What the wrong outputs of a convolution look like: the mistakes about its geometry that people make.
#ifndef INTACT_VERIFY_DIAGNOSE_CONV_H_
#define INTACT_VERIFY_DIAGNOSE_CONV_H_

#include <cstdint>
#include <vector>

#include "reference/conv.h"
#include "verify/diagnose.h"

namespace intact::verify {

/// What accumulator (m, n) would be under each mistake; n is the output channel.
std::vector<Suspicion> SuspectGeometry(const reference::Conv& conv, int64_t m, int64_t n);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_DIAGNOSE_CONV_H_
