#include "verify/problem/target.h"

namespace intact::verify {

Result<std::vector<uint8_t>> Target::RunConv(const reference::Conv& /*conv*/,
                                             const RunOptions& /*options*/) const {
  return Error{INTACT_UNSUPPORTED, "target " + Name() + " runs no convolutions"};
}

}  // namespace intact::verify
