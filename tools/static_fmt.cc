// fmt's library functions, which -fkeep-inline-functions compiles from its headers. Templates need to be used.
#include <fmt/format.h>

#include <cstdio>

namespace intact {

void UseTemplatesOfFmt(double number, float single) {
  fmt::print(stdout, "{:L} {:L} {}", number, single, number);
}

}  // namespace intact
