// Lists of expected failures, and JUnit's XML of a sweep.
#include "verify/report/expected_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_path.h"
#include "verify/report/report_junit.h"

namespace intact::verify {
namespace {

using testing::HasSubstr;

constexpr const char* kFails = "gemm u8s8s32 m=2 n=3 k=4 isa=avx2";
constexpr const char* kAlsoFails = "gemm u8s8s32 m=2 n=3 k=5 isa=avx2";
constexpr const char* kPasses = "grouped s8u4f32 m=1 n=2 k=64 isa=avx2";

// Two problems that failed, and one that passed.
SweepResult Swept() {
  SweepResult sweep;
  for (const char* line : {kFails, kAlsoFails, kPasses}) {
    SweepOutcome outcome;
    outcome.problem = line;
    outcome.isa = INTACT_ISA_AVX2;
    outcome.outputs.emplace().outputs = 6;
    if (line != kPasses) outcome.failure = outcome.kind = "1 < \"2\" & 3";
    sweep.Add(outcome);
  }
  return sweep;
}

class ExpectedFailuresTest : public testing::Test {
 protected:
  Result<ExpectedFailures> ReadList(const std::string& text) {
    std::ofstream(path_) << text;
    return ExpectedFailures::Read(path_);
  }

  const std::string path_ = tests::TempPath();
};

TEST_F(ExpectedFailuresTest, AreNotFailures) {
  Result<ExpectedFailures> expected =
      ReadList(std::string("# known\n\n  ") + kFails + " # why\r\ngemm u8s8s32 m=9 n=9 k=9\n");
  ASSERT_TRUE(expected) << expected.error().message;
  SweepResult sweep = Swept();
  expected->Apply(&sweep);
  ASSERT_EQ(sweep.failures.size(), 1U);
  EXPECT_EQ(sweep.failures[0].problem, kAlsoFails);
  EXPECT_EQ(sweep.Failed(), 1);
  EXPECT_THAT(expected->Met(), testing::ElementsAre(kFails));
  EXPECT_EQ(expected->ToText(),
            "expected failures: 1 of 2 listed problems failed; 1 did not run or were skipped\n");
  EXPECT_EQ(sweep.Verdict(), SweepVerdict::kFailed);
}

TEST_F(ExpectedFailuresTest, MustFail) {
  Result<ExpectedFailures> expected =
      ReadList(std::string(kFails) + '\n' + kAlsoFails + '\n' + kPasses + '\n');
  ASSERT_TRUE(expected) << expected.error().message;
  SweepResult sweep = Swept();
  expected->Apply(&sweep);
  ASSERT_EQ(sweep.failures.size(), 1U);
  EXPECT_EQ(sweep.failures[0].problem, kPasses);
  EXPECT_THAT(sweep.failures[0].reason, HasSubstr("passed; expected a failure"));
  EXPECT_EQ(sweep.Failed(), 1);
  EXPECT_EQ(expected->ToText(), "expected failures: 2 of 3 listed problems failed\n");
}

TEST_F(ExpectedFailuresTest, AllOfAListPass) {
  Result<ExpectedFailures> expected = ReadList(std::string(kFails) + '\n' + kAlsoFails + '\n');
  ASSERT_TRUE(expected) << expected.error().message;
  SweepResult sweep = Swept();
  expected->Apply(&sweep);
  EXPECT_EQ(sweep.Verdict(), SweepVerdict::kPassed);
}

TEST_F(ExpectedFailuresTest, ErrorsNameTheLine) {
  EXPECT_THAT(ReadList("\ngemm u8s8s32 m=3\n").error().message, HasSubstr(path_ + ": line 2: "));
  EXPECT_THAT(ExpectedFailures::Read(path_ + "/no").error().message, HasSubstr("/no: cannot be read"));
  EXPECT_THAT(ExpectedFailures::Read("/tmp").error().message,
              HasSubstr("/tmp: cannot be read; expected a file"));
}

TEST(Junit, HasATestForEachProblem) {
  SweepResult sweep = Swept();
  sweep.skips.push_back({"gemm u8s8s32 m=1 n=1 k=1", "no kernel"});
  const std::vector<std::string> expected = {"gemm u8s8s32 m=4 n=4 k=4"};  // it had no outputs
  sweep.not_run = 7;
  sweep.why_not_run = "five hangs";
  SweepResult random;
  random.failures.push_back({"gemm u8s8s32 m=8 n=8 k=8", "wrong", "", "", ""});
  const std::string xml = ToJunit("intact verify sweep: a & b", sweep, expected, &random);
  EXPECT_THAT(xml, HasSubstr("<testsuite name=\"intact verify sweep: a &amp; b\" tests=\"7\" failures=\"3\" "
                             "errors=\"1\" skipped=\"2\">"));
  EXPECT_THAT(xml, HasSubstr(std::string("<testcase classname=\"avx2.exact\" name=\"") + kFails +
                             "\"><failure message=\"1 &lt; &quot;2&quot; &amp; 3\">"));
  EXPECT_THAT(
      xml, HasSubstr(std::string("<testcase classname=\"avx2.exact\" name=\"") + kPasses + "\"></testcase>"));
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"no kernel\"/>"));
  EXPECT_THAT(xml, HasSubstr(expected[0] + "\"><skipped message=\"failed as expected\"/>"));
  EXPECT_THAT(xml, HasSubstr("name=\"7 problems that did not run\"><error message=\"five hangs\"/>"));
}

}  // namespace
}  // namespace intact::verify
