#include "fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  intact::fuzz::Require(intact::fuzz::CheckConv({data, size}));
  return 0;
}
