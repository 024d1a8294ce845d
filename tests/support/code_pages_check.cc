// Linked into every test program: after each test, no page of the process is both writable and executable.
// Most plans are gone then; code_cache_test checks this while plans live and run.
#include <gtest/gtest.h>

#include "tests/support/code_pages.h"

namespace intact::tests {
namespace {

class CodePagesCheck : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& /*test*/) override { EXPECT_EQ(WritableCodePages(), ""); }
};

const bool kIsListening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new CodePagesCheck);
  return true;
}();

}  // namespace
}  // namespace intact::tests
