// Linked into every test program: after each test no page of the process is both writable and executable.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace intact::tests {
namespace {

class CodePagesCheck : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& /*test*/) override {
    std::ifstream maps("/proc/self/maps");
    std::string range, rights, line;
    while (maps >> range >> rights && std::getline(maps, line)) {
      EXPECT_FALSE(rights.find('w') != std::string::npos && rights.find('x') != std::string::npos)
          << range << " " << rights << line;
    }
  }
};

const bool kIsListening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new CodePagesCheck);
  return true;
}();

}  // namespace
}  // namespace intact::tests
