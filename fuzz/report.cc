#include "verify/report/report_compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "fuzz/check.h"
#include "fuzz/scratch.h"

namespace intact::fuzz {
namespace {

using verify::ProblemDifference;
using verify::ReportComparison;
using verify::ReportDigests;

bool AreSame(const std::vector<verify::DigestedRun>& a, const std::vector<verify::DigestedRun>& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.problem == y.problem && x.digest == y.digest; });
}

bool Mirror(const ReportComparison& a, const ReportComparison& b) {
  return a.problems == b.problems && a.only_a == b.only_b && a.only_b == b.only_a &&
         std::ranges::equal(a.differences, b.differences,
                            [](const ProblemDifference& x, const ProblemDifference& y) {
                              return AreSame(x.a, y.b) && AreSame(x.b, y.a);
                            });
}

}  // namespace

std::string CheckReports(std::span<const uint8_t> bytes) {
  const auto end = static_cast<size_t>(std::ranges::find(bytes, 0) - bytes.begin());
  const std::string path_a = WriteScratch("a.json", bytes.first(end));
  const std::string path_b = WriteScratch("b.json", bytes.subspan(std::min(end + 1, bytes.size())));
  const Result<ReportDigests> a = verify::ReadDigests(path_a);
  const Result<ReportDigests> b = verify::ReadDigests(path_b);
  if (!a) return WrongFileRefusal(path_a, a.error());
  if (!b) return WrongFileRefusal(path_b, b.error());
  const Result<ReportComparison> forth = verify::CompareReports(*a, *b);
  const Result<ReportComparison> back = verify::CompareReports(*b, *a);
  if (static_cast<bool>(forth) != static_cast<bool>(back))
    return "the reports can be compared in one order only";
  if (!forth) {
    const bool names_a = forth.error().message.starts_with(path_a);
    return WrongFileRefusal(names_a ? path_a : path_b, forth.error());
  }
  return Mirror(*forth, *back) ? "" : "the comparison in the other order differs";
}

}  // namespace intact::fuzz
