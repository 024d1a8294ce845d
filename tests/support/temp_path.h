// Paths for a test's files.
#ifndef INTACT_TESTS_SUPPORT_TEMP_PATH_H_
#define INTACT_TESTS_SUPPORT_TEMP_PATH_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace intact::tests {

/// "/tmp/intact_1234_Suite_Test": unique to the test and to this run.
inline std::string TempPath() {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string("intact_") + std::to_string(getpid());
  for (const char* part : {test->test_suite_name(), test->name()}) name.append("_").append(part);
  std::replace(name.begin(), name.end(), '/', '_');
  return testing::TempDir() + name;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_TEMP_PATH_H_
