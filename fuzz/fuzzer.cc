#include "fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  intact::fuzz::Require(intact::fuzz::INTACT_FUZZ_CHECK({data, size}));
  return 0;
}
