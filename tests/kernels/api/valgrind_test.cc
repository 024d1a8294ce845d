// Runs a user's program (valgrind_client.c) under valgrind, which must report wrong accesses, and nothing
// else.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/binary_test.h"

namespace intact::tests {
namespace {

constexpr int kReported = 9;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

class Valgrind : public BinaryTest {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "valgrind runs no programs with sanitizers";
    if (std::system("valgrind --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no valgrind";
  }

  Outcome Watch(const std::string& fault, const std::string& options = "") const {
    return Run(fault, "valgrind -q --error-exitcode=" + std::to_string(kReported) + options);
  }
};

TEST_F(Valgrind, IsSilentOfACorrectProgram) {
  const Outcome watched = Watch("none");
  EXPECT_EQ(watched.status, 0) << watched.err;
  EXPECT_EQ(watched.err, "");
  // The CPU that valgrind presents has no more than AVX2. In saturating mode the bytes depend on the ISA.
  const Outcome alone = Run("none", "INTACT_MAX_ISA=avx2");
  EXPECT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(alone.out, watched.out) << "the same bytes";
}

TEST_F(Valgrind, ReportsWhatAProgramDoesWrong) {
  const auto expect = [this](const std::string& fault, const std::string& words) {
    SCOPED_TRACE(fault);
    const Outcome watched = Watch(fault, " --exit-on-first-error=yes");
    EXPECT_EQ(watched.status, kReported);
    EXPECT_THAT(watched.err, testing::HasSubstr(words));
  };
  expect("small_a", "Invalid read");
  expect("small_weights", "Invalid read");
  expect("small_c", "Invalid write");
  expect("small_scratch", "Invalid ");
  expect("unset_a", "uninitialised");
}

}  // namespace
}  // namespace intact::tests
