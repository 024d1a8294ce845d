#include <cstdio>
#include <cstdlib>

#include "fuzz/check.h"

namespace intact::fuzz {

void Require(const std::string& wrong) {
  if (wrong.empty()) return;
  std::fprintf(stderr, "finding: %s\n", wrong.c_str());
  std::abort();
}

}  // namespace intact::fuzz
