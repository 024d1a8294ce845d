// Reports of two machines: equal bytes, or the problem that differs.
#include "verify/report/report_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_path.h"
#include "verify/report/report_terminal.h"

namespace intact::verify {
namespace {

constexpr char kProblem[] = "gemm u8s8s32 m=5 n=16 k=64 fill=bait seed=7";

std::string On(const std::string& isa, const std::string& mode = "exact") {
  return std::string(kProblem) + " mode=" + mode + " isa=" + isa;
}

ReportComparison Compared(std::vector<DigestedRun> a, std::vector<DigestedRun> b) {
  const Result<ReportComparison> comparison = CompareReports({"a.json", "A", "sweep.digests", std::move(a)},
                                                             {"b.json", "B", "sweep.digests", std::move(b)});
  EXPECT_TRUE(comparison) << comparison.error().message;
  return comparison ? *comparison : ReportComparison{};
}

TEST(CompareReports, ExactOutputsDoNotDependOnTheIsa) {
  const ReportComparison same = Compared({{On("avx2"), "1"}, {On("avx512"), "1"}}, {{On("amx_int8"), "1"}});
  EXPECT_EQ(same.problems, 1);
  EXPECT_TRUE(same.Same());
  const ReportComparison different = Compared({{On("avx2"), "1"}}, {{On("amx_int8"), "2"}});
  ASSERT_EQ(different.differences.size(), 1u);
  EXPECT_EQ(different.differences[0].a[0].problem, On("avx2"));
  EXPECT_EQ(different.differences[0].b[0].digest, "2");
  EXPECT_THAT(ToText(different), testing::HasSubstr("B 2  intact verify replay '" + On("amx_int8") + "'"));
}

TEST(CompareReports, OutputsOfATargetAreRunAgainOnIt) {
  const ReportComparison different =
      Compared({{kProblem, "1", "./mine.so"}}, {{kProblem, "2", "onednn:isa=avx2"}});
  EXPECT_THAT(ToText(different), testing::HasSubstr("A 1  intact verify replay '" + std::string(kProblem) +
                                                    "' --target ./mine.so\n"));
  EXPECT_THAT(ToText(different), testing::HasSubstr("' --target onednn:isa=avx2\n"));
}

TEST(CompareReports, SaturatingOutputsAreOfTheirOwn) {
  const ReportComparison comparison = Compared(
      {{On("avx2"), "1"}, {On("avx2", "saturating"), "2"}},
      {{On("avx512_vnni", "saturating"), "1"}, {On("avx512", "saturating"), "2"}, {On("avx512"), "1"}});
  EXPECT_EQ(comparison.problems, 2);
  EXPECT_TRUE(comparison.Same());
  EXPECT_FALSE(Compared({{On("avx2", "saturating"), "2"}}, {{On("avx512", "saturating"), "1"}}).Same());
}

TEST(CompareReports, OneReportMayDifferFromItself) {
  const ReportComparison comparison = Compared({{On("avx2"), "1"}}, {{On("avx2"), "1"}, {On("avx512"), "2"}});
  ASSERT_EQ(comparison.differences.size(), 1u);
  EXPECT_EQ(comparison.differences[0].b.size(), 2u);
}

TEST(CompareReports, CountsWhatOnlyOneHas) {
  const std::string small = "gemm u8s8s32 m=1 n=1 k=1";
  const std::string large = "gemm u8s8s32 m=1 n=1 k=9";
  const ReportComparison comparison =
      Compared({{On("avx2"), "1"}, {small, "3"}, {large, "4"}}, {{On("avx2"), "1"}});
  EXPECT_EQ(comparison.problems, 1);
  EXPECT_EQ(comparison.only_a, 2);
  EXPECT_EQ(comparison.only_b, 0);
  EXPECT_TRUE(comparison.Same());
  EXPECT_THAT(ToText(comparison), testing::HasSubstr("1 problem in both reports, 0 different; 2 only in A"));
}

TEST(CompareReports, RefusesWhatCannotBeCompared) {
  const ReportDigests a{"a.json", "A", "sweep.digests", {{On("avx2"), "1"}}};
  const Result<ReportComparison> disjoint =
      CompareReports(a, {"b.json", "B", "sweep.digests", {{"gemm u8s8s32 m=1 n=1 k=1", "1"}}});
  ASSERT_FALSE(disjoint);
  EXPECT_EQ(disjoint.error().message, "b.json: has no problem in common with a.json");
  const Result<ReportComparison> foreign =
      CompareReports(a, {"b.json", "B", "sweep.digests", {{"gemm m=1 q=3", "1"}}});
  ASSERT_FALSE(foreign);
  EXPECT_THAT(foreign.error().message, testing::StartsWith("b.json: sweep.digests: 'gemm m=1 q=3': "));
  const Result<ReportComparison> garbled =
      CompareReports(a, {"b.json", "B", "sweep.digests", {{"gemm u8s8s32 \x01", "1"}}});
  ASSERT_FALSE(garbled);
  EXPECT_EQ(garbled.error().message, "b.json: sweep.digests: 'gemm u8s8s32 \\x01': '\\x01' is not key=value");
}

class ReadDigestsTest : public testing::Test {
 public:
  ~ReadDigestsTest() override { std::filesystem::remove(path_); }

 protected:
  Result<ReportDigests> Read(const std::string& text) const {
    std::ofstream(path_) << text;
    return ReadDigests(path_);
  }

  void ExpectRefusal(const std::string& text, const std::string& words) const {
    const Result<ReportDigests> digests = Read(text);
    ASSERT_FALSE(digests) << text;
    EXPECT_THAT(digests.error().message, testing::StartsWith(path_ + ": "));
    EXPECT_THAT(digests.error().message, testing::HasSubstr(words));
  }

  const std::string path_ = tests::TempPath() + ".json";
};

TEST_F(ReadDigestsTest, ReadsAReport) {
  const Result<ReportDigests> digests = Read(
      R"({"schema": "intact-report", "schema_version": 3, "machine": {"cpu": "X"},
          "sweep": {"digests": {"gemm u8s8s32 m=1 n=1 k=1": "00ff"}}})");
  ASSERT_TRUE(digests) << digests.error().message;
  EXPECT_EQ(digests->machine, "X");
  ASSERT_EQ(digests->runs.size(), 1u);
  EXPECT_EQ(digests->runs[0].problem, "gemm u8s8s32 m=1 n=1 k=1");
  EXPECT_EQ(digests->runs[0].digest, "00ff");
}

TEST_F(ReadDigestsTest, ReadsASweep) {
  const std::string head = R"({"schema": "intact-sweep", "schema_version": 6, "machine": {"cpu": "X"}, )";
  const Result<ReportDigests> digests =
      Read(head + R"("target": {"name": "mine 1"}, "digests": {"gemm u8s8s32 m=1 n=1 k=1": "00ff"}})");
  ASSERT_TRUE(digests) << digests.error().message;
  EXPECT_EQ(digests->machine, "mine 1 on X");
  EXPECT_EQ(digests->field, "digests");
  ASSERT_EQ(digests->runs.size(), 1u);
  ExpectRefusal(head + R"("digests": {"gemm": 3}})", "digests: 'gemm': expected a string");
}

TEST_F(ReadDigestsTest, ReadsAReportOfTargets) {
  const Result<ReportDigests> digests = Read(
      R"({"schema": "intact-target-report", "schema_version": 3, "machine": {"cpu": "X"}, "targets": [
          {"target": "a.so", "name": "mine 1", "sweep": {"digests": {"gemm u8s8s32 m=1 n=1 k=1": "00ff"}}},
          {"target": "b.so", "name": "mine 2", "sweep": {"digests": {"gemm u8s8s32 m=1 n=1 k=1": "00fe"}}}]})");
  ASSERT_TRUE(digests) << digests.error().message;
  EXPECT_EQ(digests->machine, "mine 1, mine 2 on X");
  ASSERT_EQ(digests->runs.size(), 2u);
  EXPECT_EQ(digests->runs[1].target, "b.so");
  const Result<ReportComparison> itself = CompareReports(*digests, *digests);  // each target with itself
  ASSERT_TRUE(itself) << itself.error().message;
  EXPECT_EQ(itself->problems, 2);
  EXPECT_TRUE(itself->Same());
}

TEST_F(ReadDigestsTest, RefusesOtherFiles) {
  EXPECT_THAT(ReadDigests(path_).error().message, testing::HasSubstr("no such file"));
  ExpectRefusal("", "malformed JSON");
  ExpectRefusal("[]", "is not a JSON object");
  ExpectRefusal(R"({"schema": "layer", "schema_version": 1})", "is neither a report of intact nor");
  ExpectRefusal(R"({"schema": "intact-report", "schema_version": 9})", "schema_version 3");
  const std::string head = R"({"schema": "intact-report", "schema_version": 3, "sweep": )";
  ExpectRefusal(head + "[1]}", "sweep.digests: expected an object");
  ExpectRefusal(head + R"({"digests": ["x"]}})", "sweep.digests: expected an object");
  ExpectRefusal(head + R"({"digests": {"gemm": 3}}})", "'gemm': expected a string");
  ExpectRefusal(head + R"({"digests": {"a\nb": 3}}})", R"('a\x0ab': expected a string)");
}

}  // namespace
}  // namespace intact::verify
