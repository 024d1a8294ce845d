// Compares the reports, or sweeps, of two machines or targets, problem by problem, by the digests of the
// outputs.
//
// A problem's outputs depend on its tensors and on whether int16 sums saturate, and on nothing else. So the
// digests of a problem are compared across the reports and across all their ISAs, in two groups: digests of
// exact sums (these include the saturating mode on VNNI and AMX), and digests of sums that saturate. So a
// machine that has only AVX2 is compared with one that swept AMX.
#ifndef INTACT_VERIFY_REPORT_REPORT_COMPARE_H_
#define INTACT_VERIFY_REPORT_REPORT_COMPARE_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <string>
#include <vector>

namespace intact::verify {

/// A problem that was run, and the digest of what it output.
struct DigestedRun {
  std::string problem;      // the repro line
  std::string digest;       // hexadecimal
  std::string target = {};  // as the user named it; "" for our own kernels
};

struct ReportDigests {
  std::string path;
  std::string machine;  // its CPU, and the target if that was swept
  std::string field;    // of the file, where the runs are
  std::vector<DigestedRun> runs;
};

/// A problem with runs that differ: one run for each digest in each report.
struct ProblemDifference {
  std::vector<DigestedRun> a, b;
};

struct ReportComparison {
  int64_t problems = 0;  // in both reports
  int64_t only_a = 0, only_b = 0;
  std::vector<ProblemDifference> differences;  // of problems in both
  bool Same() const { return differences.empty(); }
};

/// `path`: a report.json, of our own kernels or of targets, or the JSON of a sweep or of merged sweeps.
/// Errors name the file and what was expected.
Result<ReportDigests> ReadDigests(const std::string& path);

/// Fails if no problem is in both, or if a line is not a problem.
Result<ReportComparison> CompareReports(const ReportDigests& a, const ReportDigests& b);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_COMPARE_H_
