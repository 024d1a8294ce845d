// Which ISAs a test run must cover: INTACT_REQUIRE_ISAS=avx2,avx512_vnni turns the skip of a test for one of
// them into a failure, so that nothing is silently left untested.
#ifndef INTACT_TESTS_REQUIRE_ISAS_H_
#define INTACT_TESTS_REQUIRE_ISAS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

namespace intact::tests {

inline bool IsRequired(std::string_view isa) {
  const char* list = std::getenv("INTACT_REQUIRE_ISAS");
  std::istringstream names(list == nullptr ? "" : list);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == isa) return true;
  }
  return false;
}

}  // namespace intact::tests

/// Skips the test, or fails it if the environment requires `isa`.
#define INTACT_SKIP_ISA(isa)                                                       \
  do {                                                                             \
    if (::intact::tests::IsRequired(isa)) {                                        \
      FAIL() << (isa) << " is required by INTACT_REQUIRE_ISAS, and not available"; \
    }                                                                              \
    GTEST_SKIP() << (isa) << " is not available";                                  \
  } while (false)

#endif  // INTACT_TESTS_REQUIRE_ISAS_H_
