// ISAs that a test run must cover. With INTACT_REQUIRE_ISAS=avx2,avx512_vnni, tests for these ISAs fail
// instead of being skipped, so that nothing is silently left untested. An unknown name fails every skip.
#ifndef INTACT_TESTS_SUPPORT_REQUIRE_ISAS_H_
#define INTACT_TESTS_SUPPORT_REQUIRE_ISAS_H_

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <cstdlib>
#include <intact/intact.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "verify/problem/problem.h"

namespace intact::tests {

/// The ISAs of a list like "avx2, avx512". The error names an unknown word.
inline Result<std::vector<intact_isa>> ParseIsas(const std::string& list) {
  std::vector<intact_isa> isas;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t begin = std::min(word.find_first_not_of(" \t"), word.size());
    const size_t end = word.find_last_not_of(" \t") + 1;  // npos + 1 is 0
    const std::string name = word.substr(begin, std::max(end, begin) - begin);
    if (name.empty()) continue;
    const Result<intact_isa> isa = verify::ParseIsa(name);
    if (!isa || *isa == INTACT_ISA_ANY) {
      return Error{INTACT_INVALID_ARGUMENT, "INTACT_REQUIRE_ISAS: '" + name + "' is not the name of an ISA"};
    }
    isas.push_back(*isa);
  }
  return isas;
}

inline Result<std::vector<intact_isa>> RequiredIsas() {
  const char* list = std::getenv("INTACT_REQUIRE_ISAS");
  return ParseIsas(list == nullptr ? "" : list);
}

/// Why a test for `isa`, which is not available, must not be skipped; "" if it may be.
inline std::string WhyRequired(std::string_view isa) {
  const Result<std::vector<intact_isa>> required = RequiredIsas();
  if (!required) return required.error().message;
  const bool is_required =
      std::ranges::any_of(*required, [isa](intact_isa one) { return intact_isa_name(one) == isa; });
  if (!is_required) return "";
  return fmt::format("{} is required by INTACT_REQUIRE_ISAS, and not available", isa);
}

}  // namespace intact::tests

/// Skips the test, or fails it if the environment requires `isa`.
#define INTACT_SKIP_ISA(isa)                                                       \
  do {                                                                             \
    if (const std::string why = ::intact::tests::WhyRequired(isa); !why.empty()) { \
      FAIL() << why;                                                               \
    }                                                                              \
    GTEST_SKIP() << (isa) << " is not available";                                  \
  } while (false)

#endif  // INTACT_TESTS_SUPPORT_REQUIRE_ISAS_H_
