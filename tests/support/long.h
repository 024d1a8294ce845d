// Long tests and their quick counterparts.
//
// A test is long if the name of its suite, or the prefix of its instantiation, begins with "Long". Quick runs
// leave long tests out (ctest --exclude-regex '^Long'); `tools/bootstrap.sh test --long` runs them. If a test
// covers a product of thousands of cases, the quick one takes a share of it. The share has every value of
// every factor, and every kind of code path on every ISA. The long test covers the whole product.
// every factor, and every kind of code path on every ISA, is met; the long one takes the whole product.
#ifndef INTACT_TESTS_SUPPORT_LONG_H_
#define INTACT_TESTS_SUPPORT_LONG_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <iterator>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace intact::tests {

/// Whether the running test is a long one.
inline bool IsLong() {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  return test != nullptr && std::string_view(test->test_suite_name()).starts_with("Long");
}

/// One in `step` of the pairs of `first` and `second`. If both have at least `step` elements, each element is
/// in some pair.
template <class First, class Second>
auto SomePairs(const First& first, const Second& second, size_t step) {
  std::vector<
      std::tuple<std::decay_t<decltype(*std::begin(first))>, std::decay_t<decltype(*std::begin(second))>>>
      pairs;
  size_t i = 0;
  for (const auto& a : first) {
    size_t j = i++;
    for (const auto& b : second) {
      if (j++ % step == 0) pairs.emplace_back(a, b);
    }
  }
  return pairs;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_LONG_H_
