// Compares the reports, or sweeps, of two machines or targets, problem by problem, by the digests of the
// outputs.
//
// A problem's outputs depend only on its tensors, and on whether int16 sums saturate. So the digests of a
// problem are compared across the reports and across all their ISAs, in two groups: digests of exact sums,
// and digests of sums that saturate. The saturating mode on VNNI and AMX has exact sums too. So a machine
// that has only AVX2 is compared with one that swept AMX.
#ifndef INTACT_VERIFY_REPORT_REPORT_COMPARE_H_
#define INTACT_VERIFY_REPORT_REPORT_COMPARE_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <string>
#include <vector>

namespace intact::verify {

/// A problem that was run, and the digest of its output.
struct DigestedRun {
  std::string problem;      // the repro line
  std::string digest;       // hexadecimal
  std::string target = {};  // as the user named it; "" for our own kernels
};

struct ReportDigests {
  std::string path;
  std::string machine;  // the machine's CPU, and the target if one was swept
  std::string field;    // the field of the file that holds the runs
  std::vector<DigestedRun> runs;
};

/// A problem with runs that differ: one run for each digest in each report.
struct ProblemDifference {
  std::vector<DigestedRun> a, b;
};

struct ReportComparison {
  int64_t problems = 0;  // problems that both reports have
  int64_t only_a = 0, only_b = 0;
  std::vector<ProblemDifference> differences;  // problems of both reports whose outputs differ
  bool Same() const { return differences.empty(); }
};

/// `path`: a report.json, of our own kernels or of targets, or the JSON of a sweep or of merged sweeps.
/// Errors name the file and what was expected.
Result<ReportDigests> ReadDigests(const std::string& path);

/// Fails if the reports have no problem in common, or if a line is not a problem.
Result<ReportComparison> CompareReports(const ReportDigests& a, const ReportDigests& b);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_COMPARE_H_
